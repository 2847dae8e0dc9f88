//! What passed on the wire, kept a while in memory so that a call can show its messages: those of calls, and with less room those of
//! strangers. A shard copies octets into a batch of its own and leaves it where it is picked up; it never waits. Which
//! call a message belongs to is looked at off the shard, by its Call-ID alone. Everything is bounded; the oldest goes first.

pub mod pcap;
pub mod show;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;

use crate::capture::{self, Captured};

/// Octets of messages of calls, and of what never became one.
const CALLS: usize = 14 << 20;
const STRANGERS: usize = 2 << 20;
/// Octets of one Call-ID, of a batch that waits, and of one that its shard can't hand on.
const ONE: usize = 256 << 10;
const BATCH: usize = 1 << 20;
/// How long a trace is kept at most.
const KEPT: Duration = Duration::from_secs(24 * 3_600);
/// How often batches are picked up.
const SWEEP: Duration = Duration::from_millis(50);
/// What a message costs beside its octets.
const OVERHEAD: usize = size_of::<Mark>();

/// One message of a batch.
#[derive(Copy, Clone, Debug)]
struct Mark {
    at: Moment,
    flow: Flow,
    is_sent: bool,
    start: usize,
    end: usize,
}

/// Messages one behind the other.
#[derive(Debug, Default)]
struct Batch {
    octets: Vec<u8>,
    marks: Vec<Mark>,
}

impl Batch {
    fn push(&mut self, mark: Mark, octets: &[u8]) {
        let start = self.octets.len();
        self.octets.extend_from_slice(octets);
        self.marks.push(Mark {
            start,
            end: self.octets.len(),
            ..mark
        });
    }

    fn size(&self) -> usize {
        self.octets.len() + self.marks.len() * OVERHEAD
    }

    fn messages(&self) -> impl Iterator<Item = (Mark, &[u8])> {
        self.marks
            .iter()
            .map(|mark| (*mark, &self.octets[mark.start..mark.end]))
    }
}

/// A shard's end.
#[derive(Debug)]
pub struct Tap {
    batch: Batch,
    shelf: Arc<Mutex<Batch>>,
}

impl Tap {
    /// Copies a message.
    pub fn note(&mut self, at: Moment, flow: Flow, is_sent: bool, octets: &[u8]) {
        if self.batch.size() + octets.len() > BATCH {
            return;
        }
        let mark = Mark {
            at,
            flow,
            is_sent,
            start: 0,
            end: 0,
        };
        self.batch.push(mark, octets);
    }

    /// Leaves what was copied to be picked up; if that is just happening, the next turn does.
    pub fn hand_on(&mut self) {
        if self.batch.marks.is_empty() {
            return;
        }
        let Ok(mut shelf) = self.shelf.try_lock() else {
            return;
        };
        if shelf.marks.is_empty() {
            std::mem::swap(&mut *shelf, &mut self.batch);
        } else if shelf.size() < BATCH {
            for (mark, octets) in self.batch.messages() {
                shelf.push(mark, octets);
            }
        }
        drop(shelf);
        self.batch.octets.clear();
        self.batch.marks.clear();
    }
}

/// The messages of one Call-ID.
#[derive(Debug, Default)]
struct Trace {
    batch: Batch,
    began: Moment,
    /// We answered with more than a challenge, or asked something.
    is_call: bool,
    left_out: u32,
}

#[derive(Debug)]
struct Ledger {
    traces: HashMap<u64, Trace>,
    /// By age: strangers, calls.
    order: [VecDeque<u64>; 2],
    held: [usize; 2],
}

/// All traces of this node.
#[derive(Debug)]
pub struct Traces {
    shelves: Vec<Arc<Mutex<Batch>>>,
    ledger: Mutex<Ledger>,
    hasher: RandomState,
}

/// What is known of one Call-ID.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Found {
    /// Its messages in their order, with whether we sent them.
    pub messages: Vec<(bool, Captured)>,
    /// Messages for which there was no room.
    pub left_out: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Traces {
    /// Empty, with a shelf a shard.
    pub fn new(shards: usize) -> Arc<Self> {
        Arc::new(Self {
            shelves: (0..shards).map(|_| Arc::default()).collect(),
            ledger: Mutex::new(Ledger {
                traces: HashMap::new(),
                order: [VecDeque::new(), VecDeque::new()],
                held: [0, 0],
            }),
            hasher: RandomState::new(),
        })
    }

    /// A shard's end of it.
    pub fn tap(&self, shard: usize) -> Tap {
        Tap {
            batch: Batch::default(),
            shelf: Arc::clone(&self.shelves[shard]),
        }
    }

    /// Picks batches up as long as somebody holds the traces.
    pub async fn keep(traces: std::sync::Weak<Self>) {
        let mut ticks = tokio::time::interval(SWEEP);
        loop {
            ticks.tick().await;
            let Some(traces) = traces.upgrade() else {
                return;
            };
            traces.sweep();
        }
    }

    fn sweep(&self) {
        for shelf in &self.shelves {
            let batch = std::mem::take(&mut *lock(shelf));
            if batch.marks.is_empty() {
                continue;
            }
            let mut ledger = lock(&self.ledger);
            for (mark, octets) in batch.messages() {
                let key = self.hasher.hash_one(call_id(octets));
                ledger.take(key, mark, octets);
            }
            ledger.make_room();
        }
    }

    /// What is known of a Call-ID.
    pub fn of(&self, call_id: &str) -> Found {
        self.sweep();
        let ledger = lock(&self.ledger);
        let Some(trace) = ledger.traces.get(&self.hasher.hash_one(call_id.as_bytes())) else {
            return Found::default();
        };
        let messages = trace
            .batch
            .messages()
            .map(|(mark, octets)| captured(mark, octets));
        Found {
            messages: messages.collect(),
            left_out: trace.left_out,
        }
    }

    /// Call-IDs of messages that we sent between two moments and that hold these octets: legs that were never answered.
    pub fn holding(&self, text: &[u8], from: Moment, until: Moment) -> Option<String> {
        self.sweep();
        let ledger = lock(&self.ledger);
        let finder = memchr::memmem::Finder::new(text);
        ledger
            .traces
            .values()
            .filter(|trace| trace.is_call && trace.began >= from && trace.began <= until)
            .find_map(|trace| {
                let (mark, octets) = trace.batch.messages().next()?;
                (mark.is_sent && finder.find(octets).is_some())
                    .then(|| String::from_utf8_lossy(call_id(octets)).into_owned())
            })
    }
}

impl Ledger {
    fn take(&mut self, key: u64, mark: Mark, octets: &[u8]) {
        let order = &mut self.order;
        let trace = self.traces.entry(key).or_insert_with(|| {
            order[0].push_back(key);
            Trace {
                began: mark.at,
                ..Trace::default()
            }
        });
        let size = octets.len() + OVERHEAD;
        if trace.batch.size() + size > ONE {
            trace.left_out = trace.left_out.saturating_add(1);
            return;
        }
        trace.batch.push(mark, octets);
        self.held[usize::from(trace.is_call)] += size;
        let is_more = mark.is_sent
            && (!octets.starts_with(b"SIP/2.0 ") || octets.starts_with(b"SIP/2.0 100"));
        if is_more && !trace.is_call {
            trace.is_call = true;
            self.held[0] -= trace.batch.size();
            self.held[1] += trace.batch.size();
            order[1].push_back(key);
        }
    }

    fn make_room(&mut self) {
        for (class, limit) in [(0, STRANGERS), (1, CALLS)] {
            while self.held[class] > limit || self.is_stale(class) {
                let Some(key) = self.order[class].pop_front() else {
                    break;
                };
                // One that became a call stands in the other order now.
                if self
                    .traces
                    .get(&key)
                    .is_some_and(|trace| usize::from(trace.is_call) == class)
                    && let Some(trace) = self.traces.remove(&key)
                {
                    self.held[class] -= trace.batch.size();
                }
            }
        }
    }

    /// Whether the oldest of a class is gone, stands elsewhere, or has been kept long enough.
    fn is_stale(&self, class: usize) -> bool {
        let Some(key) = self.order[class].front() else {
            return false;
        };
        let Some(trace) = self.traces.get(key) else {
            return true;
        };
        let latest = trace.batch.marks.last().map_or(trace.began, |mark| mark.at);
        let newest = self.order[class]
            .back()
            .and_then(|key| self.traces.get(key))
            .map_or(latest, |trace| trace.began);
        usize::from(trace.is_call) != class || newest.since(latest) > KEPT
    }
}

fn captured(mark: Mark, octets: &[u8]) -> (bool, Captured) {
    let Flow { local, peer, .. } = mark.flow;
    let (source, target) = if mark.is_sent {
        (local, peer)
    } else {
        (peer, local)
    };
    let transport = match mark.flow.transport {
        Transport::Udp => capture::Transport::Udp,
        Transport::Tcp => capture::Transport::Tcp,
        Transport::Tls => capture::Transport::Tls,
    };
    let captured = Captured {
        at: mark.at.as_micros(),
        source,
        target,
        transport,
        octets: octets.to_vec(),
    };
    (mark.is_sent, captured)
}

/// The value of Call-ID, or nothing.
fn call_id(octets: &[u8]) -> &[u8] {
    let mut rest = octets;
    while let Some(end) = memchr::memchr(b'\n', rest) {
        let line = rest[..end].trim_ascii_end();
        if line.is_empty() {
            break;
        }
        rest = &rest[end + 1..];
        if !matches!(line, [b'C' | b'c' | b'I' | b'i', ..]) {
            continue;
        }
        if let Some(colon) = memchr::memchr(b':', line) {
            let name = line[..colon].trim_ascii_end();
            if name.eq_ignore_ascii_case(b"Call-ID") || name.eq_ignore_ascii_case(b"i") {
                return line[colon + 1..].trim_ascii();
            }
        }
    }
    b""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: "127.0.0.1:5060".parse().unwrap(),
            peer: "127.0.0.1:5070".parse().unwrap(),
        }
    }

    fn message(start: &str, call_id: &str, filling: usize) -> Vec<u8> {
        format!(
            "{start}\r\ni: {call_id}\r\nX: {}\r\n\r\n",
            "x".repeat(filling)
        )
        .into_bytes()
    }

    #[test]
    fn a_call_finds_its_messages_in_their_order() {
        let traces = Traces::new(2);
        let mut taps = [traces.tap(0), traces.tap(1)];
        for second in 0..4 {
            let octets = message(
                "INVITE sip:a SIP/2.0",
                if second % 2 == 0 { "a@b" } else { "c@d" },
                1,
            );
            taps[0].note(Moment::from_secs(second), flow(), second == 2, &octets);
            taps[0].hand_on();
        }
        taps[1].note(Moment::from_secs(9), flow(), false, b"rubbish");
        taps[1].hand_on();
        let found = traces.of("a@b").messages;
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].0, found[0].1.at, found[0].1.source.port()),
            (false, 0, 5070)
        );
        assert_eq!(
            (found[1].0, found[1].1.at, found[1].1.source.port()),
            (true, 2_000_000, 5060)
        );
        assert_eq!(traces.of("nobody"), Found::default());
    }

    #[test]
    fn strangers_push_out_strangers_and_no_call() {
        let traces = Traces::new(1);
        let mut tap = traces.tap(0);
        let now = Moment::from_secs(1);
        tap.note(
            now,
            flow(),
            false,
            &message("INVITE sip:a SIP/2.0", "call", 1),
        );
        tap.note(now, flow(), true, &message("SIP/2.0 100 Trying", "call", 1));
        tap.hand_on();
        for at in 0..2_000 {
            tap.note(
                now,
                flow(),
                false,
                &message("INVITE sip:a SIP/2.0", &format!("stranger {at}"), 8_000),
            );
            tap.note(
                now,
                flow(),
                true,
                &message("SIP/2.0 401 No", &format!("stranger {at}"), 1),
            );
            tap.hand_on();
            if at % 100 == 0 {
                traces.sweep();
            }
        }
        assert_eq!(traces.of("call").messages.len(), 2);
        assert!(traces.of("stranger 0").messages.is_empty());
        assert_eq!(traces.of("stranger 1999").messages.len(), 2);
        let ledger = lock(&traces.ledger);
        let held: usize = ledger.traces.values().map(|trace| trace.batch.size()).sum();
        assert_eq!(held, ledger.held.iter().sum::<usize>());
        assert!(ledger.held[0] <= STRANGERS && ledger.order[0].len() <= ledger.traces.len());
    }

    #[test]
    fn one_call_takes_no_more_than_its_share() {
        let traces = Traces::new(1);
        let mut tap = traces.tap(0);
        for _ in 0..100 {
            tap.note(
                Moment::from_secs(1),
                flow(),
                true,
                &message("INFO sip:a SIP/2.0", "long", 8_000),
            );
            tap.hand_on();
        }
        let found = traces.of("long");
        assert!(
            found.left_out > 50 && found.messages.len() > 10,
            "{}",
            found.left_out
        );
    }
}
