//! Both dialects' migrations make the same tables, columns and indexes: compared as SQL text, and as the databases report them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use sqlx::{Connection as _, PgConnection, SqliteConnection};

use crate::test_db::{TestDb, on_postgres};

/// Returns name, common type and constraints of each column, by table.
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
            "FALSE" => "0",
            "TRUE" => "1",
            "'00000000-0000-0000-0000-000000000000'::uuid" => "zeroblob(16)",
            other => other,
        };
        format!("{common}{}", word[end..].trim_end_matches(' '))
    });

    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// Returns the number of tables read, and of other statements.
fn shape(read: &BTreeMap<String, Vec<String>>) -> (usize, usize) {
    let outside = read.get("outside tables");
    let ends = |lines: &Vec<String>| lines.iter().filter(|line| line.ends_with(';')).count();
    let tables = read.len() - usize::from(outside.is_some());
    (tables, outside.map_or(0, ends))
}

/// Returns the same numbers, counted by semicolons in the SQL text.
fn counted(sql: &str) -> (usize, usize) {
    let lines = sql.lines().filter(|line| !line.trim().starts_with("--"));
    let text: String = lines.collect::<Vec<_>>().join("\n");
    let statements = text.split(';').map(str::trim);
    let statements = statements.filter(|statement| !statement.is_empty());
    let (tables, others): (Vec<_>, Vec<_>) =
        statements.partition(|statement| statement.starts_with("CREATE TABLE "));
    (tables.len(), others.len())
}

#[test]
fn both_dialects_have_the_same_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut files: Vec<_> = std::fs::read_dir(root.join("sqlite"))
        .expect("migrations")
        .flatten()
        .collect();
    files.sort_by_key(std::fs::DirEntry::file_name);

    let names = |dialect: &str| -> BTreeSet<_> {
        let files = std::fs::read_dir(root.join(dialect)).expect("migrations");
        files.flatten().map(|file| file.file_name()).collect()
    };

    assert_eq!(names("sqlite"), names("postgres"));
    assert!(!files.is_empty());

    for file in files {
        let read = |path: &Path| std::fs::read_to_string(path).expect("a migration");
        let text = read(&file.path());
        let sqlite = columns(&text);
        let postgres = columns(&read(&root.join("postgres").join(file.file_name())));
        assert_eq!(sqlite, postgres, "{}", file.file_name().display());
        assert_eq!(
            shape(&sqlite),
            counted(&text),
            "{} was read otherwise than it is written",
            file.file_name().display()
        );
    }
}

/// `table.column type null-or-not key-or-not`, and `index on table (columns) unique-or-not`, of a migrated database.
type Told = BTreeSet<String>;

const SQLITE_COLUMNS: &str = "SELECT tables.name || '.' || columns.name || ' ' || columns.type
    || CASE WHEN columns.\"notnull\" = 1 OR columns.pk > 0 THEN ' NOT NULL' ELSE '' END || CASE WHEN columns.pk > 0 THEN ' KEY' ELSE '' END
    FROM sqlite_master AS tables, pragma_table_info(tables.name) AS columns
    WHERE tables.type = 'table' AND tables.name NOT LIKE 'sqlite_%'";
const SQLITE_INDEXES: &str = "SELECT indexes.name || ' ON ' || indexes.tbl_name || ' ('
    || (SELECT group_concat(COALESCE(columns.name, 'expression'), ', ') FROM pragma_index_info(indexes.name) AS columns) || ')'
    || (SELECT CASE WHEN listed.\"unique\" = 1 THEN ' UNIQUE' ELSE '' END FROM pragma_index_list(indexes.tbl_name) AS listed
        WHERE listed.name = indexes.name)
    FROM sqlite_master AS indexes WHERE indexes.type = 'index' AND indexes.sql IS NOT NULL";
const POSTGRES_COLUMNS: &str = "SELECT c.table_name || '.' || c.column_name || ' ' || c.data_type
    || CASE WHEN c.is_nullable = 'NO' THEN ' NOT NULL' ELSE '' END
    || CASE WHEN EXISTS (SELECT 1 FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
                         WHERE i.indisprimary AND i.indrelid = to_regclass(c.table_name) AND a.attname = c.column_name)
            THEN ' KEY' ELSE '' END
    FROM information_schema.columns AS c WHERE c.table_schema = 'public'";
const POSTGRES_INDEXES: &str = "SELECT named.relname || ' ON ' || tables.relname || ' ('
    || (SELECT string_agg(COALESCE(a.attname, 'expression'), ', ' ORDER BY k.place)
        FROM unnest(i.indkey) WITH ORDINALITY AS k (attribute, place)
        LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attribute AND k.attribute > 0) || ')'
    || CASE WHEN i.indisunique THEN ' UNIQUE' ELSE '' END
    FROM pg_index AS i JOIN pg_class AS named ON named.oid = i.indexrelid JOIN pg_class AS tables ON tables.oid = i.indrelid
    JOIN pg_namespace AS spaces ON spaces.oid = tables.relnamespace
    WHERE spaces.nspname = 'public' AND NOT EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = i.indexrelid AND contype IN ('p', 'u', 'x'))";

async fn on_sqlite_file(db: &TestDb) -> Told {
    let file = db.options.data_dir.join("trunkline.db");
    let connection = SqliteConnection::connect(&format!("sqlite:{}", file.display()));
    let mut connection = connection.await.expect("it opens");
    let mut told = Told::new();

    for sql in [SQLITE_COLUMNS, SQLITE_INDEXES] {
        let rows: Vec<(String,)> = sqlx::query_as(sql)
            .fetch_all(&mut connection)
            .await
            .expect(sql);
        told.extend(
            rows.into_iter()
                .map(|(row,)| row.replace("BIGINT", "INTEGER")),
        );
    }
    told
}

async fn on_server(db: &TestDb) -> Told {
    let url = db.options.url.as_deref().expect("a server's");
    let mut connection = PgConnection::connect(url).await.expect("it answers");
    let mut told = Told::new();
    for sql in [POSTGRES_COLUMNS, POSTGRES_INDEXES] {
        let rows: Vec<(String,)> = sqlx::query_as(sql)
            .fetch_all(&mut connection)
            .await
            .expect(sql);
        told.extend(rows.into_iter().map(|(row,)| row));
    }

    let kinds = [
        (" uuid", " BLOB"),
        (" bytea", " BLOB"),
        (" bigint", " INTEGER"),
        (" boolean", " INTEGER"),
        (" text", " TEXT"),
        (" double precision", " REAL"),
    ];

    let common = |row: String| {
        kinds
            .iter()
            .fold(row, |row, (own, common)| row.replace(own, common))
    };
    told.into_iter().map(common).collect()
}

#[test]
fn both_databases_have_the_same_schema() {
    on_postgres(|db| {
        Box::pin(async move {
            let beside = TestDb::new(None);
            db.open().await.close().await;
            beside.open().await.close().await;
            let (ours, theirs) = (on_sqlite_file(&beside).await, on_server(db).await);
            let only_ours: Vec<_> = ours.difference(&theirs).collect();
            let only_theirs: Vec<_> = theirs.difference(&ours).collect();
            assert!(
                only_ours.is_empty() && only_theirs.is_empty(),
                "on SQLite alone: {only_ours:#?}; on PostgreSQL alone: {only_theirs:#?}"
            );
            assert!(ours.len() > 100, "{ours:#?}");
        })
    });
}
