//! Files that are written as a whole: a new file takes the place of the old one by a rename, so that a crash leaves one or the other. Only a
//! regular file is replaced. A link stays, and the file that it leads to is replaced. Devices, FIFOs and open files of this process
//! (`/dev/stdout`) stay too, and are written to.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// Extension of a file that isn't finished.
pub const UNFINISHED: &str = "new";

/// Names that are tried for the new file. One may be taken by what a run left that was killed.
const MAX_NAMES: u32 = 16;

/// Most links that one path may lead through, as for the kernel.
const MAX_LINKS: usize = 40;

/// File that is being written. Unless it is finished, it is removed and the old one stays.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    /// Rest of the work for a new file; `None` for a device or a FIFO, which has all that was written.
    rename: Option<Rename>,
}

#[derive(Debug)]
struct Rename {
    new: PathBuf,
    target: PathBuf,
}

/// Kind of file that a path leads to.
enum Place {
    /// Nothing, or a regular file, under this name.
    File(PathBuf),
    /// A device, a FIFO, an open file of this process, or a link to a name that is free.
    Other,
}

impl WholeFile {
    /// Begins a file that will be at `path`, with this mode if it is new there.
    ///
    /// # Errors
    /// The path leads to a directory, or can't be written.
    pub fn create(path: &Path, mode: u32) -> io::Result<Self> {
        let target = match place(path)? {
            Place::File(target) => target,
            Place::Other => {
                // Append: what another process writes to the same open file isn't overwritten.
                let mut options = File::options();
                let file = options.append(true).create(true).mode(mode).open(path)?;
                return Ok(Self { file, rename: None });
            }
        };

        // Beside the target, since a rename doesn't leave the file system.
        let (file, new) = create_beside(&target, mode)?;
        Ok(Self {
            file,
            rename: Some(Rename { new, target }),
        })
    }

    /// Returns the file that is written, whose owner or times may be set.
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Puts the file into its place.
    ///
    /// # Errors
    /// The disk doesn't take it; the old file stays.
    pub fn finish(mut self) -> io::Result<()> {
        let Some(rename) = &self.rename else {
            return Ok(());
        };

        // Synced before the rename, which may otherwise be on disk before the content: a power cut would leave an empty file.
        self.file.sync_all()?;
        fs::rename(&rename.new, &rename.target)?;
        let target = self.rename.take().map(|rename| rename.target);
        // The rename has to outlive a crash too.
        File::open(directory(&target.unwrap_or_default()))?.sync_all()
    }
}

impl Write for WholeFile {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.file.write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(Rename { new, .. }) = &self.rename {
            let _ = fs::remove_file(new);
        }
    }
}

/// Writes a whole file with this content.
///
/// # Errors
/// The path leads to a directory, or can't be written.
pub fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let mut file = WholeFile::create(path, mode)?;
    file.write_all(content)?;
    file.finish()
}

fn create_beside(target: &Path, mode: u32) -> io::Result<(File, PathBuf)> {
    let name = target.file_name().unwrap_or_default();
    let mut taken = io::Error::from(io::ErrorKind::AlreadyExists);
    for number in 0..MAX_NAMES {
        let mut new = name.to_owned();
        new.push(format!(".{}-{number}.{UNFINISHED}", std::process::id()));
        let new = target.with_file_name(new);

        // A file or a link that is there under this name isn't taken over, since others might read it.
        let mut options = File::options();
        match options.write(true).create_new(true).mode(mode).open(&new) {
            Ok(file) => return Ok((file, new)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = error,
            Err(error) => return Err(error),
        }
    }
    Err(taken)
}

fn place(path: &Path) -> io::Result<Place> {
    // The kernel follows the links, and so refuses those that another user has left in a directory such as `/tmp`
    // (fs.protected_symlinks). A FIFO isn't opened by this, and nobody waits for its reader.
    let flags = OFlags::PATH.bits().cast_signed();
    let found = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let is_link = fs::symlink_metadata(path).is_ok();
            return Ok(match is_link {
                true => Place::Other,
                false => Place::File(path.to_owned()),
            });
        }
        Err(error) => return Err(error),
    };

    let metadata = found.metadata()?;
    if metadata.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !metadata.is_file() || names_open_file(path) {
        return Ok(Place::Other);
    }

    let target = fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd()))?;
    // The name of a file that was removed meanwhile leads nowhere, or to another file.
    let there = fs::symlink_metadata(&target)?;
    match (there.dev(), there.ino()) == (metadata.dev(), metadata.ino()) {
        true => Ok(Place::File(target)),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Returns whether a path such as `/dev/stdout` or `/dev/fd/3` names an open file of a process. Whoever opened that file wouldn't see one
/// that takes its name.
fn names_open_file(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let directory = directory(&path).canonicalize();
        if directory.is_ok_and(|directory| directory.starts_with("/proc")) {
            return true;
        }
        let Ok(next) = fs::read_link(&path) else {
            return false;
        };
        path = self::directory(&path).join(next);
    }
    false
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn regular_files_alone_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), "old").unwrap();
        fs::write(at("target"), "old").unwrap();
        fs::create_dir(at("directory")).unwrap();
        symlink("target", at("link")).unwrap();
        symlink("link", at("link of link")).unwrap();
        symlink("nothing", at("dangling")).unwrap();
        symlink("circle", at("circle")).unwrap();
        let before = names(folder.path()).len();

        for (name, leads_to) in [
            ("old", "old"),
            ("new", "new"),
            ("link", "target"),
            ("link of link", "target"),
            ("dangling", "nothing"),
        ] {
            write(&at(name), 0o600, name.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(at(leads_to)).unwrap(), name);
            let is_link = fs::symlink_metadata(at(name)).unwrap().is_symlink();
            assert_eq!(is_link, name != leads_to, "{name}");
        }

        for (name, kind) in [
            ("directory", io::ErrorKind::IsADirectory),
            ("absent/file", io::ErrorKind::NotFound),
        ] {
            assert_eq!(write(&at(name), 0o600, b"").unwrap_err().kind(), kind);
        }
        assert!(write(&at("circle"), 0o600, b"").is_err());
        assert_eq!(names(folder.path()).len(), before + 2, "nothing is left");
    }

    #[test]
    fn a_fifo_gets_the_octets() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("fifo", folder.path().join("link")).unwrap();

        for name in ["fifo", "link"] {
            let from = fifo.clone();
            let reader = std::thread::spawn(move || fs::read_to_string(from).unwrap());
            write(&folder.path().join(name), 0o600, name.as_bytes()).unwrap();
            assert_eq!(reader.join().unwrap(), name);
        }
        assert!(fs::metadata(&fifo).unwrap().file_type().is_fifo());
        assert_eq!(names(folder.path()), ["fifo", "link"]);
    }

    #[test]
    fn an_open_file_is_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "before, ").unwrap();
        let mut open = File::options().read(true).open(&path).unwrap();
        let by_number = format!("/dev/fd/{}", open.as_raw_fd());
        let link = folder.path().join("link");
        symlink(&by_number, &link).unwrap();

        write(Path::new(&by_number), 0o600, b"by number, ").unwrap();
        write(&link, 0o600, b"by link").unwrap();

        let mut all = String::new();
        open.read_to_string(&mut all).unwrap();
        assert_eq!(all, "before, by number, by link");
    }

    #[test]
    fn what_a_killed_run_left_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "old").unwrap();
        let left = WholeFile::create(&path, 0o600).unwrap();

        write(&path, 0o600, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        // Dropped unfinished: it takes no place.
        drop(left);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(folder.path()), ["file"]);
    }
}
