//! Passwords, which the command line takes from files.

use std::io::Read as _;

use crate::cli::Failure;

/// Octets of a password's file that are read.
const MAX_SECRET: u64 = 2_048;

/// Reads a password from a file, so that `ps` doesn't show it.
///
/// # Errors
/// The file can't be read.
pub(super) fn secret(option: &str, path: &str) -> Result<String, Failure> {
    let said = |fault: std::io::Error| Failure::Startup(format!("{option}: {path}: {fault}"));
    let mut text = String::new();
    match path {
        "-" => std::io::stdin().take(MAX_SECRET).read_to_string(&mut text),
        path => std::fs::File::open(path)
            .map_err(said)?
            .take(MAX_SECRET)
            .read_to_string(&mut text),
    }
    .map_err(said)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
