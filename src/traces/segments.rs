//! Blocks on disk: segment files that are only appended to, and removed whole when they are old or the disk quota is
//! used up.
//!
//! The name of a segment is the time it began. A segment cut short by a crash is read up to there.

use std::collections::{HashSet, VecDeque};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use trunkline_sip::moment::Moment;
use trunkline_store::private;
use trunkline_store::whole_file::{UNFINISHED, WholeFile};
use uuid::Uuid;

use super::block::{Block, BlockQuery, HEAD, Head};
use super::removal_filter::RemovalFilter;
use super::shares::{self, OrgOctets, Partners};

/// Maximum time that messages are gathered before they are compressed and written.
pub(super) const AGE: Duration = Duration::from_secs(5);
/// First octets of a segment.
const MAGIC: &[u8; 8] = b"TLTRACE2";
/// First octets of a segment of builds from before 0.1.0, whose messages have no leg: nobody's trace may show them.
const MAGIC_WITHOUT_LEGS: &[u8; 8] = b"TLTRACE1";
/// Size of a segment, and age of a segment, after which another one begins.
const MAX_SEGMENT_OCTETS: u64 = 16 << 20;
const MAX_SEGMENT_AGE: Duration = Duration::from_secs(3_600);
const ENDING: &str = "trace";
/// Segments that are rewritten without the messages of some orgs at once: taps wait meanwhile.
const THINNED_AT_ONCE: u32 = 2;

/// Location and limits of traces on disk.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Directory, created if missing.
    pub directory: PathBuf,
    /// Maximum size of all segments, in octets.
    pub max_bytes: u64,
    /// Time that a message is kept.
    pub retention: Duration,
}

#[derive(Clone, Debug)]
struct Segment {
    path: PathBuf,
    began: Moment,
    /// Time of its last message, or later.
    last: Moment,
    /// Start of its retention, which a file has as its modification time: the time of its last message. If the clock was ahead when that came,
    /// it is the time at which this showed.
    retained_from: Moment,
    /// The same as the file had it, or the last message: `retained_from` is earlier while this lies in the future.
    claimed: Moment,
    size: u64,
    /// Octets of its orgs before they were compressed; none of a file from before the start.
    orgs: OrgOctets,
}

/// Segments, oldest first; the last is being written while `file` is open.
#[derive(Debug)]
pub(super) struct Segments {
    disk: Disk,
    known: VecDeque<Segment>,
    file: Option<File>,
}

impl Segments {
    /// Finds existing segments, and deletes those whose messages have no leg.
    ///
    /// # Errors
    /// The directory can't be created, or it can't be read.
    pub(super) fn open(disk: Disk) -> io::Result<Self> {
        private::directory(&disk.directory)?;
        let mut known = Vec::new();
        let mut without_legs = 0_u32;
        for entry in std::fs::read_dir(&disk.directory)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                // A rewrite was interrupted. The segment that it was to replace is whole.
                std::fs::remove_file(&path)?;
                continue;
            }
            let Some(began) = began(&path) else { continue };
            match open_segment(&path, MAGIC_WITHOUT_LEGS) {
                Ok(Some(_)) => {
                    without_legs += u32::from(is_removed(&path));
                    continue;
                }
                Ok(None) => {}
                // Calls don't depend on it.
                Err(fault) => {
                    tracing::warn!(%fault, file = %path.display(), "a file of traces can't be read");
                }
            }
            let data = entry.metadata()?;
            // Known without reading the file: its last message came before it was last written.
            let retained_from = modified(&data).unwrap_or(began);

            known.push(Segment {
                path,
                began,
                // The modification time is too early for a search if the clock had been ahead. No segment is written for longer than this.
                last: retained_from.max(began + MAX_SEGMENT_AGE),
                retained_from,
                claimed: retained_from,
                size: data.len(),
                orgs: OrgOctets::default(),
            });
        }

        if without_legs > 0 {
            tracing::warn!(
                files = without_legs,
                "deleted traces from before 0.1.0: their messages don't say to which call they belong, so no org may see them"
            );
        }
        known.sort_by_key(|segment| segment.began);
        Ok(Self {
            disk,
            known: known.into(),
            file: None,
        })
    }

    /// Appends blocks, and removes segments that are too old or beyond the quota.
    ///
    /// # Errors
    /// Those of the disk. Some blocks may be written; the next one begins a new segment.
    pub(super) fn append(
        &mut self,
        blocks: &[std::sync::Arc<Block>],
        partners: &Partners,
        now: Moment,
    ) -> io::Result<()> {
        let done = blocks.iter().try_for_each(|block| self.one(block, now));
        if done.is_err() {
            // The last block may be half written, and reading stops there. What comes next has to be in another file.
            self.file = None;
        }
        self.make_room(partners, now);
        done
    }

    fn one(&mut self, block: &Block, now: Moment) -> io::Result<()> {
        let first = block.span.0;
        let is_done = self.known.back().is_some_and(|segment| {
            segment.size >= MAX_SEGMENT_OCTETS
                || now.since(segment.began) > MAX_SEGMENT_AGE
                || !segment.may_hold(first)
        });
        if is_done || self.file.is_none() {
            // Not `now`: the clock may have been set since the messages came.
            self.begin(first.min(now))?;
        }

        let (Some(file), Some(segment)) = (&mut self.file, self.known.back_mut()) else {
            return Ok(());
        };
        let mut octets = Vec::with_capacity(HEAD + block.size());
        block.write(&mut octets);
        file.write_all(&octets)?;
        segment.size += octets.len() as u64;
        segment.orgs.add_all(&block.orgs);
        segment.last = segment.last.max(block.span.1);
        segment.retained_from = segment.retained_from.max(block.span.1);
        segment.claimed = segment.claimed.max(block.span.1);

        Ok(())
    }

    /// Begins a new segment with messages from this time on. Its name is unique even if the clock went back.
    fn begin(&mut self, from: Moment) -> io::Result<()> {
        let mut micros = from.as_micros();
        let (path, mut file) = loop {
            let path = self.disk.directory.join(format!("{micros:020}.{ENDING}"));
            match OpenOptions::new().append(true).create_new(true).open(&path) {
                Ok(file) => break (path, file),
                // Another process made it, or the clock went back.
                Err(fault) if fault.kind() == io::ErrorKind::AlreadyExists => micros += 1,
                Err(fault) => return Err(fault),
            }
        };

        if let Err(fault) = file.write_all(MAGIC) {
            // Each attempt on a full disk would leave another empty file.
            let _ = std::fs::remove_file(&path);
            return Err(fault);
        }
        self.file = Some(file);
        let began = Moment::from_micros(micros);
        self.known.push_back(Segment {
            path,
            began,
            last: began,
            retained_from: began,
            claimed: began,
            size: MAGIC.len() as u64,
            orgs: OrgOctets::default(),
        });

        Ok(())
    }

    /// Removes segments that are too old. Beyond the quota, removes the oldest messages of orgs that have more than their share, or else the oldest
    /// segment, but not the newest.
    fn make_room(&mut self, partners: &Partners, now: Moment) {
        for segment in &mut self.known {
            segment.limit_to(now);
        }

        // At any place in the list: its order is that of the names, and a segment named by a clock that was ahead may precede younger ones.
        let retention = self.disk.retention;
        let newest = self.known.back().map(|segment| segment.began);
        self.known.retain(|segment| {
            now.since(segment.retained_from) <= retention || !is_removed(&segment.path)
        });
        if self.known.back().map(|segment| segment.began) != newest {
            // The file that was being written, if any: the next block begins another.
            self.file = None;
        }

        let mut thinned = 0;
        while self.size() > self.disk.max_bytes && self.known.len() > 1 {
            if thinned < THINNED_AT_ONCE && self.thin(partners) {
                thinned += 1;
                continue;
            }
            match self.known.front() {
                Some(oldest) if is_removed(&oldest.path) => drop(self.known.pop_front()),
                Some(_) | None => return,
            }
        }
    }

    fn size(&self) -> u64 {
        self.known.iter().map(|segment| segment.size).sum()
    }

    /// Removes the messages of orgs with more than their share from the oldest segment that has many of them; false if there is none, or if the oldest
    /// segment has nobody else's, which is then removed whole. So is one from before the start: it is older than every message that could be removed
    /// in its stead, and its orgs aren't known.
    fn thin(&mut self, partners: &Partners) -> bool {
        let files = self.known.iter();
        let files = files.map(|segment| (segment.size, &segment.orgs));
        let above = shares::above_their_share(files, self.disk.max_bytes, partners);
        let percent = |segment: &Segment| segment.orgs.percent_of(&above);
        if above.is_empty()
            || self
                .known
                .front()
                .is_none_or(|oldest| oldest.orgs.is_empty() || percent(oldest) == 100)
        {
            return false;
        }

        // Not the one that is being written.
        let newest = self.known.len() - 1;
        let mut older = self.known.iter_mut().take(newest);
        let Some(segment) = older.find(|segment| percent(segment) >= shares::THINNED_PERCENT)
        else {
            return false;
        };
        match segment.without(&above) {
            Ok(()) => true,
            Err(fault) => {
                tracing::warn!(%fault, path = %segment.path.display(), "a trace can't be rewritten");
                false
            }
        }
    }

    /// Returns the files that may have messages of a time, oldest first.
    pub(super) fn touched(&self, from: Moment, until: Moment) -> Vec<PathBuf> {
        self.known
            .iter()
            .filter(|segment| segment.touches(from, until))
            .map(|segment| segment.path.clone())
            .collect()
    }

    /// Rewrites the segments that have messages to remove, and adds the number of removed messages to `all_gone`.
    ///
    /// # Errors
    /// Those of the disk, also where a segment can't be read; each segment is either unchanged or filtered.
    pub(super) fn forget(
        &mut self,
        going: &RemovalFilter,
        scratch: &mut Vec<u8>,
        all_gone: &mut u64,
    ) -> io::Result<()> {
        let wanted = going.wanted();
        let newest = self.known.len().saturating_sub(1);
        for (at, segment) in self.known.iter_mut().enumerate() {
            if !segment.touches(wanted.from, wanted.until) {
                continue;
            }
            // Most segments have no block with these keys, and needn't be read whole.
            match blocks(&segment.path, &wanted).next() {
                None => continue,
                Some(first) => drop(first?),
            }

            // Made in memory: a segment has little more than `MAX_SEGMENT_OCTETS`.
            let mut octets = MAGIC.to_vec();
            let mut gone = 0;
            for block in blocks(&segment.path, &BlockQuery::ALL) {
                let block = block?;
                match going.filtered(&block, scratch) {
                    None => block.write(&mut octets),
                    Some((left, count)) => {
                        gone += count;
                        if let Some(left) = left {
                            left.write(&mut octets);
                        }
                    }
                }
            }

            if gone == 0 {
                continue;
            }

            replace(&segment.path, &octets, segment.retained_from)?;
            segment.size = octets.len() as u64;
            *all_gone += gone;
            if at == newest && self.file.is_some() {
                // The name now leads to a new file: append to that one. If it can't be opened, the next block begins a new segment.
                self.file = OpenOptions::new().append(true).open(&segment.path).ok();
            }
        }

        Ok(())
    }
}

impl Segment {
    /// Rewrites the file without the messages of these orgs.
    fn without(&mut self, orgs: &HashSet<Uuid>) -> io::Result<()> {
        let mut octets = MAGIC.to_vec();
        let mut scratch = Vec::new();
        for block in blocks(&self.path, &BlockQuery::ALL) {
            if let Some(left) = block?.without(orgs, &mut scratch) {
                left.write(&mut octets);
            }
        }

        replace(&self.path, &octets, self.retained_from)?;
        self.size = octets.len() as u64;
        self.orgs.remove(orgs);
        shares::count_thinned();
        Ok(())
    }

    /// Starts the retention now if its start lies in the future, because the clock was ahead when the last message came.
    fn limit_to(&mut self, now: Moment) {
        let from = match self.claimed <= now {
            // If it was corrected before, it was the present clock that had been behind.
            true => self.claimed,
            // Before that day the present clock is wrong for certain.
            false if now < CLOCK_IS_SET => return,
            false => self.retained_from.min(now),
        };
        if from == self.retained_from {
            return;
        }

        self.retained_from = from;
        // In the file too: otherwise each restart would begin the retention anew.
        let opened = OpenOptions::new().append(true).open(&self.path);
        if let Err(fault) = opened.and_then(|file| set_modified(&file, from))
            && fault.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%fault, path = %self.path.display(), "the time of a trace can't be corrected");
        }
    }

    /// Returns true if it may have messages of a time.
    fn touches(&self, from: Moment, until: Moment) -> bool {
        self.may_hold(until) && self.last >= from
    }

    /// Returns false if a message of this time is too old for the segment. That holds even if the clock was set back: after a restart the segment's
    /// name, its first moment, is all that is known of its messages.
    fn may_hold(&self, at: Moment) -> bool {
        // Messages may wait in memory for `AGE`, so a segment also has some from before it began. An older one begins another segment.
        self.began <= at + AGE
    }
}

/// 2026-01-01. A machine whose clock has no battery shows an earlier time after its start, until it hears from a time server.
const CLOCK_IS_SET: Moment = Moment::from_secs(1_767_225_600);

/// Replaces a segment atomically. The new file has `retained_from` as its modification time.
fn replace(path: &Path, octets: &[u8], retained_from: Moment) -> io::Result<()> {
    let mut file = WholeFile::create(path, private::FILE)?;
    file.write_all(octets)?;
    // A restart takes the start of the retention from here, and a removal must not prolong it for the other messages.
    set_modified(file.file(), retained_from)?;
    file.finish()
}

/// Removes the file of a segment; false if it is still there. The next block tries again.
fn is_removed(path: &Path) -> bool {
    match std::fs::remove_file(path) {
        Ok(()) => true,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => true,
        Err(fault) => {
            tracing::warn!(%fault, path = %path.display(), "a trace can't be removed");
            false
        }
    }
}

/// Returns the modification time of a file.
fn modified(data: &Metadata) -> Option<Moment> {
    let since = data.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(Moment::from_micros(u64::try_from(since.as_micros()).ok()?))
}

fn set_modified(file: &File, at: Moment) -> io::Result<()> {
    file.set_modified(UNIX_EPOCH + Duration::from_micros(at.as_micros()))
}

fn began(path: &Path) -> Option<Moment> {
    let stem = path.file_stem()?.to_str()?;
    (path.extension()? == ENDING)
        .then(|| stem.parse().ok().map(Moment::from_micros))
        .flatten()
}

/// Reads the blocks of a file that may have wanted messages, one at a time. A file that was removed has none, and one that was cut
/// short by a crash is read up to there.
///
/// # Errors
/// The file can't be read; the error is the last item. The file may then have more blocks than were returned.
pub(super) fn blocks<'q>(
    path: &Path,
    wanted: &'q BlockQuery<'q>,
) -> impl Iterator<Item = io::Result<Block>> + use<'q> {
    let mut opened = Some(open_segment(path, MAGIC));
    std::iter::from_fn(move || match opened.take()? {
        Ok(None) => None,
        Ok(Some(mut file)) => {
            let block = next_block(&mut file, wanted).transpose()?;
            opened = block.is_ok().then_some(Ok(Some(file)));
            Some(block)
        }
        Err(fault) => Some(Err(fault)),
    })
}

/// Opens a segment behind its first octets; `None` if it isn't there, or begins otherwise.
fn open_segment(path: &Path, magic: &[u8; 8]) -> io::Result<Option<File>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(fault) => return Err(fault),
    };

    let mut first = [0; MAGIC.len()];
    let is_segment = fill(&mut file, &mut first)? && first == *magic;
    Ok(is_segment.then_some(file))
}

/// Reads up to the next wanted block; `None` at the end of what a crash left.
fn next_block(file: &mut File, wanted: &BlockQuery<'_>) -> io::Result<Option<Block>> {
    loop {
        let mut head = [0; HEAD];
        if !fill(file, &mut head)? {
            return Ok(None);
        }
        // Damage: there is no telling where the next block begins.
        let Some(head) = Head::read(&head) else {
            return Ok(None);
        };
        if head.last() < wanted.from {
            skip(file, head.keys * size_of::<u64>() + head.packed)?;
            continue;
        }

        let mut keys = vec![0; head.keys * size_of::<u64>()];
        if !fill(file, &mut keys)? {
            return Ok(None);
        }
        if !head.block(&keys, Vec::new()).touches(wanted) {
            skip(file, head.packed)?;
            continue;
        }

        let mut packed = vec![0; head.packed];
        let is_whole = fill(file, &mut packed)?;
        return Ok(is_whole.then(|| head.block(&keys, packed)));
    }
}

/// Fills the buffer; false if the file ends before.
fn fill(file: &mut File, octets: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(octets) {
        Ok(()) => Ok(true),
        Err(fault) if fault.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(fault) => Err(fault),
    }
}

fn skip(file: &mut File, octets: usize) -> io::Result<()> {
    let octets = i64::try_from(octets).map_err(io::Error::other)?;
    file.seek(SeekFrom::Current(octets)).map(|_| ())
}
