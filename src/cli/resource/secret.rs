//! Passwords, which the command line takes from files.

use std::io::Read as _;

use crate::cli::Failure;

/// Longest password's file, in octets.
const MAX_SECRET: u64 = 2_048;

/// Reads a password from a file, so that `ps` doesn't show it.
///
/// # Errors
/// The file can't be read, or is too long.
pub(super) fn secret(option: &str, path: &str) -> Result<String, Failure> {
    let said = |fault: std::io::Error| Failure::Startup(format!("{option}: {path}: {fault}"));
    let mut text = String::new();
    match path {
        // One octet more than allowed shows that there are more.
        "-" => std::io::stdin()
            .take(MAX_SECRET + 1)
            .read_to_string(&mut text),
        path => std::fs::File::open(path)
            .map_err(said)?
            .take(MAX_SECRET + 1)
            .read_to_string(&mut text),
    }
    .map_err(said)?;
    if text.len() as u64 > MAX_SECRET {
        return Err(Failure::Startup(format!(
            "{option}: {path}: a password has at most {MAX_SECRET} octets"
        )));
    }

    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
