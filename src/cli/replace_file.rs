//! Writes a file as a whole.

use std::fs;
use std::io::{Result, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a new file beside `path` and renames it over the old one, so that a crash leaves one or the other whole. A file that is there under the
/// new one's name isn't taken over, since others might read it.
pub(super) fn replace(path: &Path, mode: u32, content: &[u8]) -> Result<()> {
    let new = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = fs::File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(&new)?;

    let written = file
        .write_all(content)
        // Synced before the rename, which may otherwise be on disk before the content: a power cut would leave an empty
        // file.
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }

    written
}
