//! One record per call, with both its ends, found by the sixteen hex digits that every message of the call carries.

use std::net::SocketAddrV4;

use crate::outbox::hex;

/// The place of a call, and a count of the calls that have used the place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallRef {
    index: u32,
    serial: u32,
}

impl CallRef {
    /// Packs both halves into one number.
    pub const fn bits(self) -> u64 {
        (self.serial as u64) << 32 | self.index as u64
    }

    /// Reverses [`bits`](Self::bits).
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            serial: (bits >> 32) as u32,
        }
    }

    /// The sixteen hex digits that messages carry.
    pub fn digits(self) -> [u8; 16] {
        hex::<16>(self.bits())
    }

    /// Reads the first sixteen octets.
    pub fn read(octets: &[u8]) -> Option<Self> {
        let digits = octets.get(..16)?;
        let mut bits = 0;
        for digit in digits {
            bits = bits << 4 | u64::from((*digit as char).to_digit(16)?);
        }
        Some(Self::from_bits(bits))
    }

    /// The place alone, from which small numbers are derived.
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// A few octets kept inside a record.
#[derive(Clone, Copy, Debug)]
pub struct InlineOctets<const MOST: usize> {
    len: u16,
    octets: [u8; MOST],
}

impl<const MOST: usize> Default for InlineOctets<MOST> {
    fn default() -> Self {
        Self {
            len: 0,
            octets: [0; MOST],
        }
    }
}

impl<const MOST: usize> InlineOctets<MOST> {
    /// Returns the stored octets.
    pub fn as_bytes(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// Returns true if nothing is stored.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all octets.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends `more`; false, and nothing appended, if it doesn't fit.
    #[must_use]
    pub fn push(&mut self, more: &[u8]) -> bool {
        let start = usize::from(self.len);
        let Some(room) = self.octets.get_mut(start..start + more.len()) else {
            return false;
        };
        room.copy_from_slice(more);
        self.len += more.len() as u16;
        true
    }

    /// Replaces the content by `octets`; false, and nothing is left, if they don't fit.
    #[must_use]
    pub fn set(&mut self, octets: &[u8]) -> bool {
        self.clear();
        self.push(octets)
    }
}

/// State of the caller's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallerState {
    /// The INVITE was sent, and no response has come.
    Inviting,
    /// A provisional response came.
    Proceeding,
    /// The 200 was acknowledged.
    Talking,
    /// The BYE was sent.
    HangingUp,
    /// An OPTIONS was sent.
    Probing,
    /// Nothing more is expected.
    Done,
}

/// State of the callee's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CalleeState {
    /// No INVITE has arrived.
    Idle,
    /// 180 was sent.
    Ringing,
    /// 200 was sent, and no ACK has come.
    Answered,
    /// The ACK came.
    Talking,
    /// The call was hung up, or never began.
    Done,
}

/// State of one call, as its two peers know it.
#[derive(Clone, Debug)]
pub struct Call {
    serial: u32,
    live: bool,
    /// The caller's end.
    pub caller: CallerState,
    /// The callee's end.
    pub callee: CalleeState,
    /// The call began inside the measured time, so it counts.
    pub measured: bool,
    /// A failure of the call has been counted already.
    pub failed: bool,
    /// CSeq of the caller's newest INVITE.
    pub cseq: u8,
    /// Time at which the call should begin, in microseconds.
    pub scheduled: u64,
    /// Time at which the caller's side ended, in microseconds.
    pub ended: u64,
    /// Authorization of the newest INVITE; empty if it has none.
    pub credentials: InlineOctets<512>,
    /// The daemon's tag on the caller's leg.
    pub remote_tag: InlineOctets<96>,
    /// Remote target of the caller's in-dialog requests: the daemon's Contact.
    pub remote_target: InlineOctets<160>,
    /// Via to CSeq of the callee's INVITE, with our tag in To: the start of every response to it.
    pub invite_head: InlineOctets<1536>,
    /// Fingerprint of the top Via of that INVITE.
    pub invite_branch: u64,
    /// Source address of that INVITE.
    pub invite_source: SocketAddrV4,
}

impl Call {
    fn new(serial: u32) -> Self {
        Self {
            serial,
            live: false,
            caller: CallerState::Done,
            callee: CalleeState::Idle,
            measured: false,
            failed: false,
            cseq: 0,
            scheduled: 0,
            ended: 0,
            credentials: InlineOctets::default(),
            remote_tag: InlineOctets::default(),
            remote_target: InlineOctets::default(),
            invite_head: InlineOctets::default(),
            invite_branch: 0,
            invite_source: SocketAddrV4::new(std::net::Ipv4Addr::UNSPECIFIED, 0),
        }
    }

    /// The caller's state and the CSeq of its newest INVITE.
    pub fn invite_state(&self) -> (CallerState, u8) {
        (self.caller, self.cseq)
    }

    fn begin(&mut self, scheduled: u64) {
        self.live = true;
        self.caller = CallerState::Inviting;
        self.callee = CalleeState::Idle;
        self.measured = false;
        self.failed = false;
        self.credentials.clear();
        self.cseq = 0;
        self.scheduled = scheduled;
        self.ended = 0;
        self.invite_branch = 0;
        self.remote_tag.clear();
    }
}

/// All calls.
#[derive(Debug)]
pub struct Calls {
    all: Vec<Call>,
    free: Vec<u32>,
    most: usize,
}

impl Calls {
    /// A table for at most `most` calls; it takes memory as calls begin.
    pub fn new(most: usize) -> Self {
        Self {
            all: Vec::with_capacity(most),
            free: Vec::with_capacity(most),
            most,
        }
    }

    /// Takes a free record, the one freed last first; `None` if all are in use.
    pub fn begin(&mut self, scheduled: u64) -> Option<CallRef> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.all.len() < self.most => {
                self.all.push(Call::new(0));
                self.all.len() as u32 - 1
            }
            None => return None,
        };
        let call = &mut self.all[index as usize];
        call.begin(scheduled);
        Some(CallRef {
            index,
            serial: call.serial,
        })
    }

    /// Returns the call, unless its record has been freed.
    pub fn find(&mut self, call: CallRef) -> Option<&mut Call> {
        self.all
            .get_mut(call.index as usize)
            .filter(|found| found.live && found.serial == call.serial)
    }

    /// Frees the record. Later messages of the call find nothing.
    pub fn release(&mut self, call: CallRef) {
        if let Some(found) = self.find(call) {
            found.live = false;
            found.serial = found.serial.wrapping_add(1);
            self.free.push(call.index);
        }
    }

    /// Returns the number of calls that are up or being set up.
    pub fn live(&self) -> usize {
        self.all.len() - self.free.len()
    }

    /// All live calls, with their references.
    pub fn references(&self) -> impl Iterator<Item = (CallRef, &Call)> {
        let numbered = self.all.iter().enumerate().filter(|(_, call)| call.live);
        numbered.map(|(index, call)| {
            (
                CallRef {
                    index: index as u32,
                    serial: call.serial,
                },
                call,
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_place_serves_the_next_call_and_forgets_the_last() {
        let mut calls = Calls::new(1);
        let first = calls.begin(0).expect("room");
        assert!(calls.begin(0).is_none());
        calls.release(first);
        let second = calls.begin(0).expect("room again");
        assert_eq!(first.index(), second.index());
        assert!(calls.find(first).is_none() && calls.find(second).is_some());
        assert_eq!(calls.live(), 1);
    }

    #[test]
    fn a_reference_survives_being_written_and_read() {
        let call = CallRef::from_bits(0x0123_4567_89ab_cdef);
        assert_eq!(CallRef::read(&call.digits()), Some(call));
        assert_eq!(CallRef::read(b"0123"), None);
        assert_eq!(CallRef::read(b"0123456789abcdeg"), None);
    }

    #[test]
    fn what_is_too_long_to_keep_is_refused_whole() {
        let mut kept = InlineOctets::<4>::default();
        assert!(kept.set(b"abc"));
        assert!(!kept.push(b"de"));
        assert_eq!(kept.as_bytes(), b"abc");
    }
}
