//! Counters of a run.

use std::collections::BTreeMap;
use std::fmt;

use crate::histogram::Histogram;
use crate::message::Defect;

/// Reason why a call counts as failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Failure {
    /// Its INVITE, BYE or OPTIONS got this final response.
    Refused(u16),
    /// No response to the INVITE within 64·T1, or no final one within the plan's patience.
    NoAnswer,
    /// No response to the BYE within 64·T1.
    NoByeAnswer,
    /// No response to the OPTIONS within 64·T1.
    NoProbeAnswer,
    /// The callee's 200 wasn't acknowledged within 64·T1.
    NoAck,
    /// The callee's end was alive for more than 64·T1 and 3 s after the caller's.
    CalleeLeftOver,
    /// The daemon hung up.
    HungUpOnUs,
    /// The daemon cancelled a call that its caller hadn't cancelled.
    CancelledOnUs,
    /// A challenge couldn't be answered.
    Challenge,
    /// The session or agent header was missing at the callee.
    ContextMissing,
    /// The callee got another body than the caller sent.
    BodyChanged,
    /// A tag, target or header is missing, or too long to store.
    Unusable,
    /// The generator had no room for another call.
    NoRoom,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "refused with {status}"),
            Self::NoAnswer => f.write_str("INVITE without a final response"),
            Self::NoByeAnswer => f.write_str("BYE without a response"),
            Self::NoProbeAnswer => f.write_str("OPTIONS without a response"),
            Self::NoAck => f.write_str("the callee's 200 without an ACK"),
            Self::CalleeLeftOver => f.write_str("the callee's end left over"),
            Self::HungUpOnUs => f.write_str("hung up by the daemon"),
            Self::CancelledOnUs => f.write_str("cancelled by the daemon"),
            Self::Challenge => f.write_str("a challenge that can't be answered"),
            Self::ContextMissing => f.write_str("session or agent header missing at the callee"),
            Self::BodyChanged => f.write_str("another body at the callee"),
            Self::Unusable => f.write_str("a tag, target or header that can't be used"),
            Self::NoRoom => f.write_str("no room in the generator"),
        }
    }
}

/// Numbers of retransmitted messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repeats {
    /// INVITEs.
    pub invite: u64,
    /// Final responses to INVITEs.
    pub answer: u64,
    /// BYEs.
    pub bye: u64,
    /// OPTIONS.
    pub options: u64,
}

impl Repeats {
    /// Sum of all kinds.
    pub fn total(&self) -> u64 {
        self.invite + self.answer + self.bye + self.options
    }
}

/// The counts of one run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Calls (or OPTIONS) begun.
    pub started: u64,
    /// Calls answered and hung up on both ends; OPTIONS answered.
    pub completed: u64,
    /// Calls whose 200 has come: each must have a record.
    pub answered: u64,
    /// Calls refused with 503, which is what an overloaded server should do.
    pub shed: u64,
    /// Failed calls among those measured, by reason.
    pub failures: BTreeMap<Failure, u64>,
    /// Messages that the daemon sent again.
    pub daemon: Repeats,
    /// Messages that we sent again.
    pub ours: Repeats,
    /// Datagrams that aren't valid SIP messages.
    pub malformed: u64,
    /// Fault of the first malformed datagram.
    pub first_fault: Option<Defect>,
    /// Messages for calls that were over.
    pub strays: u64,
    /// Requests that the daemon has no reason to send.
    pub unexpected: u64,
    /// ICMP errors and failed sends.
    pub socket_errors: u64,
    /// From the due time of a call to its 200 (or to the 200 of an OPTIONS), in microseconds.
    pub set_up: Histogram,
}

impl Tally {
    /// Measured calls that failed.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Counts a failure.
    pub fn fail(&mut self, failure: Failure) {
        *self.failures.entry(failure).or_default() += 1;
    }

    /// Counts a datagram that can't be read.
    pub fn malformed(&mut self, fault: Defect) {
        self.malformed += 1;
        self.first_fault.get_or_insert(fault);
    }
}
