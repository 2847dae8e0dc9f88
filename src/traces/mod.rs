//! SIP messages of the recent past, kept so that a call can show its own: in memory the latest, with calls apart from
//! unauthenticated peers, and on disk those of calls.
//!
//! A shard copies octets into a batch of its own and leaves it for a thread to pick up; it never waits. That thread
//! assigns messages to calls by Call-ID, and strikes credentials out before anything is kept. Everything is bounded;
//! the oldest goes first.

mod block;
pub mod dialog;
mod export;
mod forget;
mod found;
pub mod pcap;
mod record;
mod removal_filter;
mod scan;
mod segments;
pub mod show;
pub mod successor;
pub mod svg;
pub mod tag_mask;
mod tap;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, Weak};

use trunkline_capture::Captured;
use trunkline_sip::moment::Moment;

use crate::memory;
use block::{Block, BlockQuery, Open};
use export::Exporter;
pub use export::{CallStarts, Collector};
pub use forget::CallLegs;
pub use found::FoundMessages;
use found::MessageCollector;
use record::Record;
pub use segments::Disk;
use segments::{AGE, Segments};
pub use tap::Tap;
use tap::{Batch, SWEEP_INTERVAL, TapQueue, lock};

/// Compressed octets in memory: messages of calls that aren't in a file yet, and messages that belong to no call.
const CALL_OCTETS: usize = 6 << 20;
const UNMATCHED_OCTETS: usize = 1 << 20;
/// Octets of one call's messages: more than a trace shows, and little beside what all calls may have. Further messages aren't kept.
const OCTETS_OF_CALL: usize = 4 << 20;
/// Calls whose later messages are recognized: at least so many, the latest; at most twice as many.
const MAX_KNOWN: usize = 16_384;

/// Class of messages that are gathered together.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Class {
    /// Messages that belong to no known call.
    Unmatched,
    /// Messages of calls.
    Calls,
}

/// Memory of a class.
#[derive(Debug, Default)]
struct Store {
    open: Open,
    /// Block filled before the current one, for messages of no call: it may hold the first messages of a call that begins now.
    full: Open,
    closed: VecDeque<Arc<Block>>,
    /// Octets of the closed blocks.
    held: usize,
}

#[derive(Debug, Default)]
struct StoredTraces {
    unmatched: Store,
    calls: Store,
    /// Keys of calls, the newer and the older half, with the octets of their messages.
    known: [HashMap<u64, usize>; 2],
    /// Batch that was picked up and is being sorted in; empty otherwise.
    spare: Batch,
    /// Buffer for compression.
    scratch: Vec<u8>,
    exporter: Option<Exporter>,
    /// Blocks of calls that are about to be written.
    unwritten: Vec<Arc<Block>>,
    /// True if blocks of calls go to segment files.
    is_written: bool,
}

/// Traces of this node.
#[derive(Debug)]
pub struct Traces {
    queues: Vec<Arc<TapQueue>>,
    kept: Mutex<StoredTraces>,
    segments: Option<Mutex<Segments>>,
    beginnings: Option<CallStarts>,
    clock: fn() -> Moment,
}

impl Traces {
    /// Makes empty traces with a queue per shard, and the thread that reads the queues until the traces are dropped.
    ///
    /// # Errors
    /// The directory can't be created or read, or no thread can be started.
    pub fn new(
        shards: usize,
        disk: Option<Disk>,
        collector: Option<Collector>,
        clock: fn() -> Moment,
    ) -> io::Result<Arc<Self>> {
        let traces = Arc::new(Self::unattended(shards, disk, collector, clock)?);
        let weak = Arc::downgrade(&traces);
        let keeper = std::thread::Builder::new()
            .name("traces".to_owned())
            .spawn(move || keep(&weak))?;
        for queue in &traces.queues {
            queue.attend(keeper.thread());
        }
        Ok(traces)
    }

    fn unattended(
        shards: usize,
        disk: Option<Disk>,
        collector: Option<Collector>,
        clock: fn() -> Moment,
    ) -> io::Result<Self> {
        let segments = disk.map(Segments::open).transpose()?;
        let (exporter, beginnings) = collector.map(Exporter::new).unzip();
        Ok(Self {
            queues: (0..shards).map(|_| Arc::default()).collect(),
            kept: Mutex::new(StoredTraces {
                is_written: segments.is_some(),
                exporter,
                ..StoredTraces::default()
            }),
            segments: segments.map(Mutex::new),
            beginnings,
            clock,
        })
    }

    /// Makes the tap of a shard.
    pub fn tap(&self, shard: usize) -> Tap {
        Tap::of(&self.queues[shard])
    }

    /// Exporter to which beginning calls are reported.
    pub const fn beginnings(&self) -> Option<&CallStarts> {
        self.beginnings.as_ref()
    }

    /// Picks up the batches of all shards.
    fn sweep(&self, now: Moment) {
        let mut kept = lock(&self.kept);
        let mut any = false;
        for queue in &self.queues {
            let left_out = queue.left_out();
            if left_out > 0 {
                metrics::counter!("trunkline_traces_left_out_total").increment(left_out);
            }

            if !queue.pick_up(&mut kept.spare) {
                continue;
            }
            // Only after the batch was taken: by then each call in it has been reported.
            if let Some(exporter) = &mut kept.exporter {
                exporter.prepare(now);
            }
            kept.take_in();
            any = true;
        }

        kept.close(now, false);
        if !any {
            kept.rest();
        }
    }

    /// Writes closed blocks of calls; those that can't be written stay in memory.
    fn write(&self, now: Moment) {
        let Some(segments) = &self.segments else {
            return;
        };
        // Locked from before the blocks leave memory until they are in a file. A reader takes this lock first, so it
        // finds them in one place or the other.
        let mut segments = lock(segments);
        let blocks = std::mem::take(&mut lock(&self.kept).unwritten);
        if let Err(fault) = segments.append(&blocks, now) {
            tracing::warn!(%fault, blocks = blocks.len(), "traces can't be written");
            // Some of them may be in the file by now. `each` recognises a block that it finds in both places.
            let calls = &mut lock(&self.kept).calls;
            blocks
                .into_iter()
                .for_each(|block| calls.hold(block, CALL_OCTETS));
        }
    }

    /// Writes everything of calls to disk, before the process ends.
    pub fn finish(&self) {
        let now = (self.clock)();
        self.sweep(now);
        lock(&self.kept).close(now, true);
        self.write(now);
    }

    /// Returns the first messages of Call-IDs within a time. Reads files.
    pub fn of(&self, call_ids: &[&str], from: Moment, until: Moment) -> FoundMessages {
        let keys: Vec<u64> = call_ids.iter().map(|id| scan::key(id.as_bytes())).collect();
        let wanted = BlockQuery {
            keys: Some(&keys),
            from,
            until,
        };
        let mut found = MessageCollector::default();
        let read = self.each(&wanted, &mut |record| {
            // The key is a hash, which another Call-ID may have too.
            let call_id = scan::call_id(record.octets);
            if call_ids.iter().any(|id| id.as_bytes() == call_id) {
                found.take(record);
            }
        });

        let mut found = found.finish();
        if let Err(fault) = read {
            tracing::warn!(%fault, "a trace can't be read");
            found.is_cut = true;
        }
        found
    }

    /// Returns the Call-IDs of INVITEs that we sent within a time and that contain these octets, in order of time. Reads files.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn begun(&self, text: &[u8], from: Moment, until: Moment) -> io::Result<Vec<String>> {
        let finder = memchr::memmem::Finder::new(text);
        let mut first: HashMap<String, u64> = HashMap::new();
        self.each_within(from, until, &mut |is_sent, at, octets| {
            if is_sent && octets.starts_with(b"INVITE ") && finder.find(octets).is_some() {
                let call_id = String::from_utf8_lossy(scan::call_id(octets));
                let first = first.entry(call_id.into_owned()).or_insert(at);
                *first = at.min(*first);
            }
        })?;

        let mut begun: Vec<(u64, String)> = first.into_iter().map(|(id, at)| (at, id)).collect();
        begun.sort();
        Ok(begun.into_iter().map(|(_, call_id)| call_id).collect())
    }

    /// Passes every message of a Call-ID within a time to `take`, in no order, with true if we sent it. Keeps none. Reads files.
    ///
    /// # Errors
    /// A file can't be read.
    fn each_of(
        &self,
        call_id: &str,
        from: Moment,
        until: Moment,
        take: &mut dyn FnMut(bool, &Captured),
    ) -> io::Result<()> {
        let keys = [scan::key(call_id.as_bytes())];
        let wanted = BlockQuery {
            keys: Some(&keys),
            from,
            until,
        };
        self.each(&wanted, &mut |record| {
            if scan::call_id(record.octets) == call_id.as_bytes() {
                take(record.is_sent, &record.captured());
            }
        })
    }

    /// Passes every message within a time to `take`, in no order, with its time and true if we sent it. Reads files.
    ///
    /// # Errors
    /// A file can't be read.
    fn each_within(
        &self,
        from: Moment,
        until: Moment,
        take: &mut dyn FnMut(bool, u64, &[u8]),
    ) -> io::Result<()> {
        let wanted = BlockQuery {
            keys: None,
            from,
            until,
        };
        self.each(&wanted, &mut |record| {
            take(record.is_sent, record.at, record.octets);
        })
    }

    /// Passes every message that may be wanted to `take`, in no order, and none twice from memory and disk.
    ///
    /// # Errors
    /// A file can't be read; all others were.
    fn each(&self, wanted: &BlockQuery<'_>, take: &mut dyn FnMut(&Record<'_>)) -> io::Result<()> {
        let range = wanted.from.as_micros()..=wanted.until.as_micros();
        // A block that is wanted has messages of other times too.
        let mut one = |record: Record<'_>| {
            if range.contains(&record.at) {
                take(&record);
            }
        };

        // One snapshot under both locks, so that no message that moves to disk meanwhile is missed.
        self.sweep((self.clock)());
        let (closed, files) = {
            let segments = self.segments.as_ref().map(lock);
            let kept = lock(&self.kept);
            let mut closed = Vec::new();
            for store in [&kept.unmatched, &kept.calls] {
                // Read under the lock, since they change. Closed blocks don't, and are unpacked after it.
                for gathered in [&store.full, &store.open] {
                    gathered.records(wanted).for_each(&mut one);
                }
                closed.extend(
                    store
                        .closed
                        .iter()
                        .filter(|block| block.touches(wanted))
                        .cloned(),
                );
            }

            let unwritten = kept.unwritten.iter();
            closed.extend(unwritten.filter(|block| block.touches(wanted)).cloned());
            let files = segments.map_or_else(Vec::new, |segments| {
                segments.touched(wanted.from, wanted.until)
            });

            (closed, files)
        };

        // One block of a file is in memory at a time. A block that has moved to disk since the snapshot is read from
        // memory alone.
        let mut read = Ok(());
        for block in files.iter().flat_map(|file| segments::blocks(file, wanted)) {
            match block {
                Ok(block) if closed.iter().any(|known| **known == block) => {}
                Ok(block) => record::records(&block.unpack()).for_each(&mut one),
                Err(fault) => read = Err(fault),
            }
        }

        for block in closed {
            record::records(&block.unpack()).for_each(&mut one);
        }

        read
    }
}

fn keep(traces: &Weak<Traces>) {
    // Calls have priority over their traces. If the system refuses, all threads run alike.
    let _ = rustix::process::nice(5);
    loop {
        std::thread::park_timeout(SWEEP_INTERVAL);
        let Some(traces) = traces.upgrade() else {
            return;
        };
        let now = (traces.clock)();
        traces.sweep(now);
        traces.write(now);
        memory::follow(|| lock(&traces.kept).forget());
    }
}

/// Returns true if either half has the key.
fn holds(known: &[HashMap<u64, usize>; 2], key: u64) -> bool {
    known.iter().any(|half| half.contains_key(&key))
}

impl StoredTraces {
    /// Sorts the spare batch in, and empties it.
    fn take_in(&mut self) {
        let mut batch = std::mem::take(&mut self.spare);
        // The whole batch is scanned first: our answer to an INVITE, by which it is known as a call's, comes behind
        // it.
        for mark in &mut batch.marks {
            let seen = scan::strike_out(&mut batch.octets[mark.start..mark.end], mark.is_sent);
            mark.key = seen.key;
            if seen.is_call {
                self.know(seen.key);
            }
        }

        for (mark, octets) in batch.messages() {
            // After the scan, so that no credentials leave for the collector.
            if let Some(exporter) = &mut self.exporter {
                let record = record::record(mark.at, &mark.flow, mark.is_sent, octets);
                exporter.send(mark.key, &record);
            }
            let class = self.class_of(mark.key);
            // A message is a call's by its Call-ID, whatever its source. Without this bound, one sender with one call
            // could push out the traces of all orgs.
            if class == Class::Calls && !self.has_room(mark.key, octets.len()) {
                continue;
            }
            self.store(class)
                .open
                .push(mark.at, &mark.flow, mark.is_sent, mark.key, octets);
            if self.store(class).open.is_full() {
                self.close_one(class);
            }
        }

        batch.clear();
        self.spare = batch;
    }

    const fn store(&mut self, class: Class) -> &mut Store {
        match class {
            Class::Unmatched => &mut self.unmatched,
            Class::Calls => &mut self.calls,
        }
    }

    fn class_of(&self, key: u64) -> Class {
        if holds(&self.known, key) {
            Class::Calls
        } else {
            Class::Unmatched
        }
    }

    /// Counts a message of a call; false if the call has had its share.
    fn has_room(&mut self, key: u64, octets: usize) -> bool {
        let mut halves = self.known.iter_mut();
        let Some(size) = halves.find_map(|half| half.get_mut(&key)) else {
            return true;
        };
        *size = size.saturating_add(octets);
        *size <= OCTETS_OF_CALL
    }

    /// Marks a key as a call's, and copies its earlier messages.
    fn know(&mut self, key: u64) {
        if self.known[0].contains_key(&key) {
            return;
        }
        if self.known[0].len() >= MAX_KNOWN {
            self.known.swap(0, 1);
            self.known[0].clear();
        }
        // A call that goes on moves to the newer half, and so isn't forgotten with the older one.
        let before = self.known[1].get(&key).copied();
        self.known[0].insert(key, before.unwrap_or_default());
        // Otherwise they were copied when the call was recognised.
        if before.is_none() {
            for gathered in [&self.unmatched.full, &self.unmatched.open] {
                gathered.copy_to(key, &mut self.calls.open);
            }
        }
    }

    /// Frees empty buffers, when no messages come.
    fn rest(&mut self) {
        self.spare.rest();
        self.scratch = Vec::new();
        for gathered in [
            &mut self.unmatched.open,
            &mut self.unmatched.full,
            &mut self.calls.open,
        ] {
            gathered.rest();
        }
    }

    /// Forgets the calls when none of them can have later messages.
    fn forget(&mut self) {
        self.known = Default::default();
    }

    /// Closes old blocks; with `all`, every block of calls.
    fn close(&mut self, now: Moment, all: bool) {
        let is_older = |open: &Open, age| open.began().is_some_and(|began| now.since(began) >= age);
        if is_older(&self.unmatched.open, AGE) || is_older(&self.unmatched.full, 2 * AGE) {
            self.close_one(Class::Unmatched);
        }
        if all || is_older(&self.calls.open, AGE) {
            self.close_one(Class::Calls);
        }
    }

    fn close_one(&mut self, class: Class) {
        match class {
            Class::Unmatched => {
                let Self {
                    unmatched, known, ..
                } = self;
                // Messages that turned out to be a call's were copied to the calls.
                unmatched.full.retain(|key| !holds(known, key));
                let closed = unmatched.full.close(&mut self.scratch);
                // `full` is empty by now, and is filled next.
                std::mem::swap(&mut unmatched.full, &mut unmatched.open);
                if let Some(block) = closed {
                    unmatched.hold(Arc::new(block), UNMATCHED_OCTETS);
                }
            }
            Class::Calls => match self.calls.open.close(&mut self.scratch).map(Arc::new) {
                Some(block) if self.is_written => self.unwritten.push(block),
                Some(block) => self.calls.hold(block, CALL_OCTETS),
                None => {}
            },
        }
    }
}

impl Store {
    /// Keeps a block, and drops the oldest until all are within `limit`.
    fn hold(&mut self, block: Arc<Block>, limit: usize) {
        self.held += block.size();
        self.closed.push_back(block);
        while self.held > limit
            && let Some(oldest) = self.closed.pop_front()
        {
            self.held -= oldest.size();
        }
    }
}

#[cfg(test)]
mod tests;
