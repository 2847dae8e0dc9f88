//! Files of the journal: their names, and what a new run finds of them.
//!
//! `0000000000000007.node1.boot42.facts2`: the first number orders the files, node and boot name the run whose calls the facts are about, and
//! the last number is the format of the facts.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::frame::{Piece, Pieces};
use super::position::Origin;

/// Format of the facts in a segment, the last part of its name. Raise it with any change that makes written facts unreadable.
const FORMAT: u32 = 2;
/// Last part of the name of all segments, without a format in those of builds from before 0.1.0.
const FACTS: &str = "facts";

/// A segment, identified by its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Segment {
    pub(super) number: u64,
    pub(super) origin: Origin,
}

impl Segment {
    pub(super) fn path(&self, directory: &Path) -> PathBuf {
        let Origin { node, boot } = self.origin;
        directory.join(format!(
            "{:016}.node{node}.boot{boot}.{FACTS}{FORMAT}",
            self.number
        ))
    }

    fn read_name(name: &str) -> Option<Self> {
        let (rest, ending) = name.rsplit_once('.')?;
        if ending.strip_prefix(FACTS)?.parse() != Ok(FORMAT) {
            return None;
        }
        let mut parts = rest.split('.');
        let number = parts.next()?.parse().ok()?;
        let node = parts.next()?.strip_prefix("node")?.parse().ok()?;
        let boot = parts.next()?.strip_prefix("boot")?.parse().ok()?;
        parts.next().is_none().then_some(Self {
            number,
            origin: Origin { node, boot },
        })
    }
}

/// Returns the segments in a directory, oldest first.
pub(super) fn list(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(directory)? {
        segments.extend(entry?.file_name().to_str().and_then(Segment::read_name));
    }
    segments.sort_unstable();
    Ok(segments)
}

/// A segment whose facts are in another format than this build's.
#[derive(Debug)]
pub(super) struct Unreadable {
    pub(super) path: PathBuf,
    pub(super) is_empty: bool,
    /// Its name has no format.
    pub(super) is_unnumbered: bool,
}

/// Returns the segments in a directory whose facts are in another format; none if there is no directory.
pub(super) fn unreadable(directory: &Path) -> io::Result<Vec<Unreadable>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };

    let mut unreadable = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let ending = name.rsplit_once('.').map(|(_, ending)| ending);
        let format = ending.and_then(|ending| ending.strip_prefix(FACTS));
        if let Some(format) = format
            && Segment::read_name(name).is_none()
        {
            unreadable.push(Unreadable {
                path: entry.path(),
                is_empty: entry.metadata()?.len() == 0,
                is_unnumbered: format.is_empty(),
            });
        }
    }
    Ok(unreadable)
}

/// Returns whether one of the segments up to and including this number still exists and isn't empty.
pub(super) fn hold_facts(directory: &Path, number: u64) -> io::Result<bool> {
    for segment in list(directory)? {
        // Later segments hold facts that were appended after the wait began: waiting for them might never end.
        if segment.number > number {
            continue;
        }
        match fs::metadata(segment.path(directory)) {
            Ok(data) if data.len() > 0 => return Ok(true),
            Ok(_) => {}
            // Deleted by the projector since the directory was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Cuts an interrupted write off the end of a segment, and returns the remaining length.
pub(super) fn cut_torn_tail(path: &Path) -> io::Result<u64> {
    let octets = fs::read(path)?;
    let torn = Pieces::new(&octets).find_map(|piece| match piece {
        Piece::Torn { from } => Some(from),
        Piece::Fact { .. } | Piece::Damage { .. } => None,
    });
    let Some(from) = torn else {
        return Ok(octets.len() as u64);
    };

    tracing::warn!(
        segment = %path.display(),
        cut_octets = octets.len() - from,
        "the journal ended in the middle of a fact, which was never acknowledged"
    );

    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(from as u64)?;
    file.sync_data()?;

    Ok(from as u64)
}

/// An open segment.
pub(super) type Open = Arc<dyn Tail>;

/// Factory of segments: a directory or, in tests, a disk that fails on demand.
pub(super) trait Disk {
    /// Creates a segment, with its name synced to disk.
    fn create(&self, segment: &Segment) -> io::Result<Open>;

    /// Deletes a segment to which nothing was ever synced. Best effort: an empty segment does no harm.
    fn remove(&self, segment: &Segment);
}

/// The segment being written, by several threads.
pub(super) trait Tail: Send + Sync {
    /// Appends without waiting for the disk.
    fn write(&self, octets: &[u8]) -> io::Result<()>;

    /// Returns once all written data will survive a crash of the machine.
    fn sync(&self) -> io::Result<()>;

    /// Truncates to `length`. Best effort: whole lines that remain are projected twice, which is safe.
    fn cut(&self, length: u64);
}

/// A directory of segments.
#[derive(Debug)]
pub(super) struct Directory(pub(super) PathBuf);

impl Disk for Directory {
    fn create(&self, segment: &Segment) -> io::Result<Open> {
        let path = segment.path(&self.0);
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        // `sync_data` of a file doesn't cover its name: without this, a crash of the machine could lose a synced
        // segment.
        if let Err(error) = File::open(&self.0).and_then(|directory| directory.sync_all()) {
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(Arc::new(file))
    }

    fn remove(&self, segment: &Segment) {
        let _ = fs::remove_file(segment.path(&self.0));
    }
}

impl Tail for File {
    fn write(&self, octets: &[u8]) -> io::Result<()> {
        let mut file = self;
        file.write_all(octets)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&self, length: u64) {
        let _ = self.set_len(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written_and_nothing_else_is() {
        let segment = Segment {
            number: 7,
            origin: Origin { node: 1, boot: 42 },
        };
        let path = segment.path(Path::new("/j"));
        assert_eq!(
            path.to_str(),
            Some("/j/0000000000000007.node1.boot42.facts2")
        );

        let cases = [
            ("0000000000000007.node1.boot42.facts2", Some(segment)),
            ("lock", None),
            ("0000000000000007.node1.facts2", None),
            ("0000000000000007.node1.boot42.more.facts2", None),
            ("0000000000000007.node256.boot42.facts2", None),
            ("x.node1.boot42.facts2", None),
            ("0000000000000007.node1.boot42.facts", None),
            ("0000000000000007.node1.boot42.facts1", None),
        ];
        for (name, expected) in cases {
            assert_eq!(Segment::read_name(name), expected, "{name}");
        }
    }
}
