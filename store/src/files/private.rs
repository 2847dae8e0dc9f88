//! Protection of directories, files and the process's memory from all users but the daemon's own.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Mode of a directory.
pub const DIRECTORY: u32 = 0o700;
/// Mode of a file.
pub const FILE: u32 = 0o600;
/// Permissions of the group and all others.
const OTHERS: u32 = 0o077;

/// Creates the directory if absent, and restricts an existing one to its owner.
///
/// # Errors
/// It can't be created, or isn't ours to restrict.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(DIRECTORY)
        .create(path)?;
    restrict(path, DIRECTORY)
}

/// Sets this mode, if others have any permission.
///
/// # Errors
/// The path doesn't exist, or isn't ours to restrict.
pub fn restrict(path: &Path, mode: u32) -> io::Result<()> {
    let found = fs::metadata(path)?.permissions().mode();
    // A stricter mode, which the operator may have set, stays.
    if found & OTHERS == 0 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    let (path, found) = (path.display(), found & 0o777);
    tracing::warn!(%path, mode = %format_args!("{found:o}"), "other users had access to this: its mode is {mode:o} now");
    Ok(())
}

/// Keeps the process's memory, which holds keys and passwords, off the disk: the process leaves no core dump. Files that it creates from
/// now on are readable to its user alone.
pub fn process() {
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    // The limit isn't enforced where the kernel pipes core dumps to a program, so the process is made undumpable as
    // well.
    let kept = setrlimit(Resource::Core, none)
        .and_then(|()| set_dumpable_behavior(DumpableBehavior::NotDumpable));
    if let Err(error) = kept {
        tracing::warn!(%error, "a crash may write the memory of this process to the disk");
    }
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(OTHERS));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_could_read_is_taken_from_them() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let made = folder.path().join("a/b");
        directory(&made).unwrap();
        assert_eq!(mode(&made), DIRECTORY);
        fs::set_permissions(&made, Permissions::from_mode(0o755)).unwrap();
        directory(&made).unwrap();
        assert_eq!(mode(&made), DIRECTORY);

        let file = made.join("keys");
        fs::write(&file, "secret").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        restrict(&file, FILE).unwrap();
        assert_eq!(mode(&file), FILE);
        // A stricter mode stays as it is.
        fs::set_permissions(&file, Permissions::from_mode(0o400)).unwrap();
        restrict(&file, FILE).unwrap();
        assert_eq!(mode(&file), 0o400);
    }
}
