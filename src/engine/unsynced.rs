//! Answers that wait for the disk. The 200 to an INVITE leaves once the beginning of its call is in the journal, and a call is listed from
//! then on: so a call that was answered or listed has a record, whatever becomes of this process. Calls that ring for longer than the journal
//! takes wait for nothing.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, Method, lex};
use uuid::Uuid;

use crate::calls::record::{Direction, Started};
use crate::journal::Position;

/// How long an answer waits at most: a disk that fails holds up no call.
const LONGEST: Duration = Duration::from_secs(1);
/// Beginnings that are remembered, and answers that wait; what is beyond waits for nothing.
const MOST: usize = 16_384;

/// A call whose beginning isn't known to be on disk.
#[derive(Debug)]
struct Beginning {
    call: Uuid,
    /// A hash of the caller's Call-ID.
    key: u64,
    position: Position,
    at: Moment,
}

/// An answer that waits for its call's beginning.
#[derive(Debug)]
struct Waiting {
    flow: Flow,
    octets: Box<[u8]>,
    position: Position,
}

/// What a shard has begun and not yet seen on disk.
#[derive(Debug, Default)]
pub(crate) struct Unsynced {
    begun: VecDeque<Beginning>,
    waiting: Vec<Waiting>,
}

/// What may go on.
#[derive(Debug, Default)]
pub(crate) struct Released {
    /// Calls that may be listed.
    pub(crate) calls: Vec<Uuid>,
    /// Answers to be sent.
    pub(crate) answers: Vec<(Flow, Box<[u8]>)>,
}

impl Unsynced {
    /// A call begins with the fact at this position, or one before it.
    pub(super) fn begin(&mut self, started: &Started, position: Position) {
        let key = match started.direction {
            Direction::Inbound => key(started.caller_call_id.as_bytes()),
            // Nobody waits for an answer of ours.
            Direction::Outbound => 0,
        };
        self.begun.push_back(Beginning {
            call: started.call,
            key,
            position,
            at: started.at,
        });
    }

    /// Keeps a message back if it is an answer that has to wait.
    pub(super) fn keeps_back(&mut self, flow: Flow, octets: &[u8]) -> bool {
        if self.begun.is_empty() || self.waiting.len() >= MOST || !octets.starts_with(b"SIP/2.0 2")
        {
            return false;
        }
        // As our own answers have it, at the end of CSeq.
        if memchr::memmem::find(octets, b" INVITE\r\n").is_none() {
            return false;
        }
        let Ok(answer) = lex(octets, Framing::Stream) else {
            return false;
        };
        let key = key(answer.call_id());
        let mut begun = self.begun.iter();
        let Some(beginning) = begun.find(|begun| begun.key == key) else {
            return false;
        };
        if answer.method() != Method::Invite {
            return false;
        }
        self.waiting.push(Waiting {
            flow,
            octets: octets.into(),
            position: beginning.position,
        });
        true
    }

    /// Whether something has waited for as long as it may.
    pub(super) fn is_late(&self, now: Moment) -> bool {
        let first = self.begun.front();
        first.is_some_and(|first| now.since(first.at) > LONGEST || self.begun.len() > MOST)
    }

    /// The journal has this fact on disk, with all before it.
    pub(super) fn release(&mut self, synced: Position, now: Moment) -> Released {
        let mut released = Released::default();
        let mut through = synced;
        while let Some(first) = self.begun.front() {
            let is_late = now.since(first.at) > LONGEST || self.begun.len() > MOST;
            if first.position > synced && !is_late {
                break;
            }
            through = through.max(first.position);
            released
                .calls
                .extend(self.begun.pop_front().map(|first| first.call));
        }
        for waiting in std::mem::take(&mut self.waiting) {
            match waiting.position <= through {
                true => released.answers.push((waiting.flow, waiting.octets)),
                false => self.waiting.push(waiting),
            }
        }
        released
    }
}

fn key(call_id: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    call_id.hash(&mut hasher);
    hasher.finish() | 1
}
