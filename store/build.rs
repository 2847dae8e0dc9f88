//! Finds the migrations. Writes `migrations.rs`, the list that `src/access/migrate.rs` includes, from the files in `../migrations/`.
//!
//! A migration is a file `NNNN_name.sql` in both dialects. The numbers begin at 1 and have no gap; the build fails otherwise.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../migrations");
    let sqlite = names(&root.join("sqlite"))?;
    let postgres = names(&root.join("postgres"))?;
    if let Some(alone) = sqlite.iter().find(|name| !postgres.contains(name)) {
        return Err(format!("migrations/postgres has no {alone}.sql").into());
    }
    if let Some(alone) = postgres.iter().find(|name| !sqlite.contains(name)) {
        return Err(format!("migrations/sqlite has no {alone}.sql").into());
    }

    let list = PathBuf::from(env::var("OUT_DIR")?).join("migrations.rs");
    fs::write(list, entries(&root, &sqlite)?)?;
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../migrations");
    Ok(())
}

/// Names of the files in a folder without `.sql`, in their order.
fn names(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let file = entry?.path();
        let name = file.file_name().and_then(|name| name.to_str());
        let name = name.and_then(|name| name.strip_suffix(".sql"));
        let name = name.ok_or_else(|| format!("{} is no migration", file.display()))?;
        names.push(name.to_owned());
    }
    names.sort();
    Ok(names)
}

/// Returns the list as an expression of Rust.
fn entries(root: &Path, names: &[String]) -> Result<String, Box<dyn Error>> {
    let mut list = String::from("&[\n");
    for (version, name) in (1..).zip(names) {
        if !name.starts_with(&format!("{version:04}_")) {
            return Err(format!("{name}.sql should have the number {version:04}").into());
        }

        let sqlite = root.join("sqlite").join(name).with_extension("sql");
        let postgres = root.join("postgres").join(name).with_extension("sql");
        writeln!(
            list,
            "Migration {{ version: {version}, name: {name:?}, sqlite: include_str!({sqlite:?}), postgres: include_str!({postgres:?}) }},"
        )?;
    }
    list.push(']');
    Ok(list)
}
