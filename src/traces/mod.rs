//! SIP messages of the recent past, kept so that a call can show its own: in memory the latest, with calls apart from
//! unauthenticated peers, and on disk those of calls.
//!
//! A shard copies octets into a batch of its own and leaves it for a thread to pick up; it never waits. With them it reports the identities of
//! its calls' legs. By these the thread assigns messages to legs, and it strikes credentials out before anything is kept. A message without a leg
//! is in no call's trace. Everything is bounded; the oldest goes first.

mod assignment;
mod block;
mod export;
mod forget;
mod found;
mod in_memory;
mod local;
pub mod pcap;
mod record;
mod removal_filter;
mod scan;
mod segments;
mod shares;
pub mod show;
pub mod tag_mask;
mod tap;

use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use trunkline_calls::parts::wall_clock::WallClock;
use trunkline_capture::Captured;
use trunkline_sip::moment::Moment;
use trunkline_store::priority::{API_AND_TRACES, give_way};
use uuid::Uuid;

use crate::memory;
use assignment::{Assigned, Assignments, LegReport, Repeated};
use block::{Block, BlockQuery, Open};
pub use export::Collector;
use export::Exporter;
use found::MessageCollector;
pub use found::{FoundMessage, FoundMessages};
use in_memory::CallsInMemory;
use local::LocalAddresses;
use record::Record;
pub use removal_filter::ErasedCall;
use scan::{Method, Seen};
pub use segments::Disk;
use segments::{AGE, Segments};
use shares::Partners;
pub use tap::Tap;
use tap::{Batch, SWEEP_INTERVAL, TapQueue, lock};

/// Compressed octets in memory of messages of calls that aren't in a file yet.
const CALL_OCTETS: usize = 6 << 20;

/// Octets of messages of no call before those that have waited longest are forgotten, twice: a challenged caller has to find its first INVITE.
const UNMATCHED_OCTETS: usize = 256 << 10;

/// Messages of earlier batches examined in one sweep, at most, for the calls that have begun with them. Taps wait for a sweep, so one org's
/// messages must not make it long. Those beyond stay in no call's trace.
const EARLIER_EXAMINED: usize = 4_096;

/// Messages of no call, the latest: a call that begins now may have begun with some of them.
#[derive(Debug, Default)]
struct Unmatched {
    open: Open,
    /// Block filled before.
    full: Open,
}

#[derive(Debug)]
struct StoredTraces {
    unmatched: Unmatched,
    calls: CallsInMemory,
    assignments: Assignments,
    /// Batches that were picked up and are being sorted in; empty otherwise.
    taken: Vec<Batch>,
    /// Buffer for compression.
    scratch: Vec<u8>,
    exporter: Option<Exporter>,
    /// Blocks of calls that are about to be written.
    unwritten: Vec<Arc<Block>>,
    /// Messages of earlier batches that this sweep may still examine.
    examined_left: usize,
    /// True if blocks of calls go to segment files.
    is_written: bool,
    /// Partners of the orgs that have had calls.
    partners: Partners,
    local: LocalAddresses,
}

/// Functions of the machine that traces use.
#[derive(Copy, Clone, Debug)]
pub struct Surroundings {
    /// Wall-clock time.
    pub now: fn() -> Moment,
    /// Wall clock of the times of messages.
    pub wall: &'static WallClock,
    /// Returns the address that packets to a peer leave from.
    pub source_towards: fn(IpAddr) -> Option<IpAddr>,
}

/// Traces of this node.
#[derive(Debug)]
pub struct Traces {
    queues: Vec<Arc<TapQueue>>,
    kept: Mutex<StoredTraces>,
    segments: Option<Mutex<Segments>>,
    clock: fn() -> Moment,
    /// Wall clock of the times of messages.
    wall: &'static WallClock,
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
        around: Surroundings,
    ) -> io::Result<Arc<Self>> {
        let traces = Self::unattended(shards, disk, collector, around)?;
        let traces = Arc::new(traces);
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
        around: Surroundings,
    ) -> io::Result<Self> {
        let segments = disk.map(Segments::open).transpose()?;
        Ok(Self {
            queues: (0..shards).map(|_| Arc::default()).collect(),
            kept: Mutex::new(StoredTraces {
                is_written: segments.is_some(),
                exporter: collector.map(Exporter::new),
                ..StoredTraces::new(LocalAddresses::new(around.source_towards))
            }),
            segments: segments.map(Mutex::new),
            clock: around.now,
            wall: around.wall,
        })
    }

    /// Makes the tap of a shard.
    pub fn tap(&self, shard: usize) -> Tap {
        Tap::of(&self.queues[shard], self.wall)
    }

    /// Picks up the batches of all shards.
    fn sweep(&self, now: Moment) {
        let mut kept = lock(&self.kept);
        kept.assignments.forget(now);
        kept.examined_left = EARLIER_EXAMINED;
        let mut any = false;
        for queue in &self.queues {
            let left_out = queue.left_out();
            if left_out > 0 {
                metrics::counter!("trunkline_traces_left_out_total").increment(left_out);
            }

            let mut taken = std::mem::take(&mut kept.taken);
            queue.pick_up(&mut taken);
            for mut batch in taken.drain(..) {
                if let Some(exporter) = &mut kept.exporter {
                    exporter.prepare(now);
                }
                kept.take_in(&mut batch, now);
                queue.give_back(batch);
                any = true;
            }
            kept.taken = taken;
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
        let (blocks, partners) = {
            let mut kept = lock(&self.kept);
            let blocks = std::mem::take(&mut kept.unwritten);
            // Most sweeps have nothing to write.
            let partners = match blocks.is_empty() {
                true => Partners::default(),
                false => kept.partners.clone(),
            };
            (blocks, partners)
        };
        if let Err(fault) = segments.append(&blocks, &partners, now) {
            tracing::warn!(%fault, blocks = blocks.len(), "traces can't be written");
            // Some of them may be in the file by now. `each` recognises a block that it finds in both places.
            let kept = &mut *lock(&self.kept);
            blocks.into_iter().for_each(|block| kept.hold(block));
        }
    }

    /// Writes everything of calls to disk, before the process ends.
    pub fn finish(&self) {
        let now = (self.clock)();
        self.sweep(now);
        let mut kept = lock(&self.kept);
        kept.close(now, true);
        // Both blocks of messages that no call has claimed.
        kept.forget_unmatched();
        kept.forget_unmatched();
        drop(kept);
        self.write(now);
    }

    /// Returns the first messages of a call's legs within a time. Reads files.
    pub fn of(&self, org: Uuid, call: Uuid, from: Moment, until: Moment) -> FoundMessages {
        let wanted = BlockQuery {
            keys: Some(&[scan::key(call.as_bytes())]),
            from,
            until,
        };
        let mut found = MessageCollector::default();
        let read = self.each(&wanted, &mut |record| {
            // The key is a hash, which another call may have too.
            if let Some(leg) = record.leg
                && (leg.org, leg.call) == (org, call)
            {
                found.take(record, leg.role);
            }
        });

        let mut found = found.finish();
        if let Err(fault) = read {
            tracing::warn!(%fault, "a trace can't be read");
            found.is_cut = true;
        }
        found
    }

    /// Passes every message of a call that may be wanted to `take`, in no order, and none twice from memory and disk.
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
            // Read under the lock, since it changes. Closed blocks don't, and are unpacked after it.
            kept.calls.open.records(wanted).for_each(&mut one);
            let closed = kept.calls.closed.iter().chain(&kept.unwritten);
            let closed = closed.filter(|block| block.touches(wanted)).cloned();
            let closed: Vec<Arc<Block>> = closed.collect();
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
                Ok(block) if closed.iter().any(|known| known.is_of(&block)) => {}
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

/// Reads all messages of a segment file in order of time, whoever they belong to. Empty if it isn't a segment.
///
/// # Errors
/// The file can't be read.
pub fn messages_in(path: &Path) -> io::Result<Vec<Captured>> {
    let mut messages = Vec::new();
    for block in segments::blocks(path, &BlockQuery::ALL) {
        let octets = block?.unpack();
        messages.extend(record::records(&octets).map(|record| record.captured()));
    }
    messages.sort_by_key(|message| message.at);
    Ok(messages)
}

fn keep(traces: &Weak<Traces>) {
    give_way(API_AND_TRACES);
    loop {
        std::thread::park_timeout(SWEEP_INTERVAL);
        let Some(traces) = traces.upgrade() else {
            return;
        };
        let now = (traces.clock)();
        traces.sweep(now);
        traces.write(now);
        memory::follow(|| ());
    }
}

impl StoredTraces {
    fn new(local: LocalAddresses) -> Self {
        Self {
            unmatched: Unmatched::default(),
            calls: CallsInMemory::default(),
            assignments: Assignments::default(),
            taken: Vec::new(),
            scratch: Vec::new(),
            exporter: None,
            unwritten: Vec::new(),
            examined_left: 0,
            is_written: false,
            partners: Partners::default(),
            local,
        }
    }

    /// Sorts a batch in, and empties it.
    fn take_in(&mut self, batch: &mut Batch, now: Moment) {
        let mut over = Vec::new();
        let mut repeated = Repeated::default();
        // The reports first: an INVITE is copied before its shard knows to which call it belongs.
        for report in batch.reports.drain(..) {
            match report {
                LegReport::Begun(leg, identity, wall) => {
                    self.assignments.begin(leg, *identity, wall, &mut repeated);
                }
                LegReport::Over(call) => over.push(call),
                LegReport::Partner(org, partner) => {
                    self.partners.insert(org, partner);
                }
            }
        }
        self.take_earlier(&repeated);

        for at in 0..batch.marks.len() {
            let mark = batch.marks[at];
            let octets = &mut batch.octets[mark.start..mark.end];
            let places = scan::strike_headers(octets);
            let seen = places.read(octets);
            let (is_sent, peer) = (mark.is_sent, mark.flow.peer);
            let assigned = self.assignments.leg_of(is_sent, peer, &seen).or_else(|| {
                self.assignments
                    .leg_of_repeated(is_sent, peer, &seen, &repeated)
            });
            let key = match &assigned {
                Some(assigned) => scan::key(assigned.leg.call.as_bytes()),
                None => scan::key(seen.call_id),
            };
            scan::strike_rest(octets, &places);
            // A call's messages have times on its own offset, as its record has: a search by the record's times finds them all.
            let wall = match &assigned {
                Some(assigned) => {
                    self.assignments.strike_secrets(assigned, octets, &places);
                    self.assignments.offset_of(assigned)
                }
                None => mark.wall,
            };
            let leg = assigned.map(|assigned| assigned.leg);
            let flow = self.local.named(mark.flow);
            let record = Record::new(wall.of(mark.at), &flow, is_sent, leg, octets);
            self.take_message(&record, assigned.as_ref(), key);
        }

        // Their last messages are in the same batch.
        for call in over {
            self.assignments.end(call, now);
        }
        batch.clear();
    }

    /// Copies a message to the collector, and keeps it. The copy of one that a call may still begin with waits until that is known, since it is
    /// sent under the call's id.
    fn take_message(&mut self, record: &Record<'_>, assigned: Option<&Assigned>, key: u64) {
        // After the scan, so that no credentials leave for the collector.
        match &mut self.exporter {
            Some(exporter) if record.leg.is_some() || !may_be_claimed(record) => {
                exporter.send(record);
            }
            Some(_) | None => {}
        }
        let Some(assigned) = assigned else {
            self.unmatched.open.push(record, key);
            if self.unmatched.open.has(UNMATCHED_OCTETS) {
                self.forget_unmatched();
            }
            return;
        };
        self.keep_of_call(assigned, record, key);
    }

    /// Forgets the messages of no call that have waited longest, and begins another block.
    fn forget_unmatched(&mut self) {
        let Unmatched { open, full } = &mut self.unmatched;
        if let Some(exporter) = &mut self.exporter {
            let unclaimed = full.records(&BlockQuery::ALL);
            unclaimed
                .filter(may_be_claimed)
                .for_each(|record| exporter.send(&record));
        }
        full.clear();
        std::mem::swap(full, open);
    }

    /// Keeps a message of a call; false if the call has had its share.
    fn keep_of_call(&mut self, of: &Assigned, record: &Record<'_>, key: u64) -> bool {
        // Without this bound, one peer with one call could push out the traces of all orgs.
        let has_room = self.assignments.has_room(of, record.octets.len());
        if has_room {
            self.calls.open.push(record, key);
            if self.calls.open.has(block::FULL) {
                self.close_calls();
            }
        }
        has_room
    }

    /// Moves messages of earlier batches to the calls that have begun with them: an INVITE that waited, or that was challenged, with the
    /// challenge and its ACK.
    fn take_earlier(&mut self, repeated: &Repeated) {
        if repeated.is_empty() {
            return;
        }
        let mut unmatched = std::mem::take(&mut self.unmatched);
        let mut left = self.examined_left;
        // Once for all calls, since a peer may begin many with one Call-ID. Twice if some message was found: the ACK of a challenge may have
        // come by another shard, and then lie before its INVITE.
        for _ in 0..2 {
            let mut any = false;
            for gathered in [&mut unmatched.full, &mut unmatched.open] {
                any |= gathered.move_out(repeated.keys(), &mut left, |record| {
                    self.take_one_earlier(record, repeated)
                });
            }
            if !any {
                break;
            }
        }

        self.examined_left = left;
        self.unmatched = unmatched;
    }

    /// Keeps a message of an earlier batch under its leg; false if it has none.
    fn take_one_earlier(&mut self, record: &Record<'_>, repeated: &Repeated) -> bool {
        let seen = Seen::of(record.octets);
        let (is_sent, peer) = (record.is_sent, record.peer);
        let assignments = &mut self.assignments;
        let assigned = assignments
            .leg_of(is_sent, peer, &seen)
            .or_else(|| assignments.leg_of_repeated(is_sent, peer, &seen, repeated));
        assigned.is_some_and(|assigned| {
            let key = scan::key(assigned.leg.call.as_bytes());
            let record = record.of_leg(assigned.leg);
            let is_kept = self.keep_of_call(&assigned, &record, key);
            // Any other message was copied when it came.
            if let Some(exporter) = &mut self.exporter
                && is_kept
                && may_be_claimed(&record)
            {
                exporter.send(&record);
            }
            is_kept
        })
    }

    /// Frees empty buffers, when no messages come.
    fn rest(&mut self) {
        self.taken = Vec::new();
        self.scratch = Vec::new();
        self.local.forget();
        for gathered in [
            &mut self.unmatched.open,
            &mut self.unmatched.full,
            &mut self.calls.open,
        ] {
            gathered.rest();
        }
    }

    /// Closes old blocks; with `all`, every block of calls.
    fn close(&mut self, now: Moment, all: bool) {
        let is_older = |open: &Open, age| open.began().is_some_and(|began| now.since(began) >= age);
        if is_older(&self.unmatched.open, AGE) || is_older(&self.unmatched.full, 2 * AGE) {
            self.forget_unmatched();
        }
        if all || is_older(&self.calls.open, AGE) {
            self.close_calls();
        }
    }

    fn close_calls(&mut self) {
        match self.calls.open.close(&mut self.scratch).map(Arc::new) {
            Some(block) if self.is_written => self.unwritten.push(block),
            Some(block) => self.hold(block),
            None => {}
        }
    }

    /// Keeps a block of calls in memory.
    fn hold(&mut self, block: Arc<Block>) {
        self.calls
            .hold(block, CALL_OCTETS, &self.partners, &mut self.scratch);
    }
}

/// Returns whether a call may yet begin with a message that belongs to none: it is about an INVITE.
fn may_be_claimed(record: &Record<'_>) -> bool {
    Seen::of(record.octets).method != Method::Other
}

#[cfg(test)]
mod tests;
