//! Both dialects' migrations make the same tables.

use std::collections::BTreeMap;
use std::path::Path;

/// Column by column: the name, what its type is in common, and its constraints.
fn columns(sql: &str) -> BTreeMap<String, Vec<String>> {
    let mut tables = BTreeMap::new();
    let mut table = None;
    for line in sql
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with("--"))
    {
        if let Some(name) = line
            .strip_prefix("CREATE TABLE ")
            .and_then(|rest| rest.strip_suffix(" ("))
        {
            table = Some(name.to_owned());
        } else if line.starts_with(')') {
            table = None;
        } else if let Some(name) = &table {
            tables
                .entry(name.clone())
                .or_insert_with(Vec::new)
                .push(common(line));
        } else if !line.is_empty() {
            tables
                .entry("outside tables".to_owned())
                .or_insert_with(Vec::new)
                .push(common(line));
        }
    }
    tables
}

fn common(line: &str) -> String {
    let line = line
        .replace(
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            "INTEGER PRIMARY KEY AUTOINCREMENT",
        )
        .replace("NOT NULL PRIMARY KEY", "PRIMARY KEY");
    let words = line.split_inclusive([' ', ',']).map(|word| {
        let end = word.trim_end_matches([' ', ',', ';']).len();
        let common = match &word[..end] {
            "UUID" | "BYTEA" => "BLOB",
            "BIGINT" | "BOOLEAN" => "INTEGER",
            other => other,
        };
        format!("{common}{}", word[end..].trim_end_matches(' '))
    });
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

#[test]
fn both_dialects_have_the_same_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> = std::fs::read_dir(root.join("sqlite"))
        .expect("migrations")
        .flatten()
        .collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    assert!(!files.is_empty());
    for file in files {
        let read = |path: &Path| std::fs::read_to_string(path).expect("a migration");
        let sqlite = columns(&read(&file.path()));
        let postgres = columns(&read(&root.join("postgres").join(file.file_name())));
        assert_eq!(sqlite, postgres, "{}", file.file_name().display());
        assert!(
            !sqlite.is_empty(),
            "{} was read",
            file.file_name().display()
        );
    }
}
