//! The callee: an agent's SIP runtime (RFC 3261 §13.3, §15.1.2).

use std::net::SocketAddrV4;

use trunkline_sip::wire::{HeaderName, Message};

use super::Exchange;
use super::callee_print::{keep_head, put_response};
use super::plan::Span;
use crate::calls::{Call, CallRef, CalleeState, CallerState};
use crate::due::{Due, DueAction, T1, next_wait};
use crate::message::{MARK, has_context, read};
use crate::tally::Failure;

/// RFC 3261 §13.3.1.4's T2, in microseconds: the longest wait between two transmissions of a 200.
const T2: u64 = 4_000_000;

/// FNV-1a hash of the top Via, which distinguishes the branches of a call.
fn fingerprint(message: &Message<'_>) -> u64 {
    let via = message.first(HeaderName::Via).unwrap_or_default();
    via.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3)
    })
}

impl Exchange {
    /// Handles a datagram for the callee.
    pub fn callee_received(&mut self, datagram: &[u8], source: SocketAddrV4, now: u64) {
        let message = match read(datagram) {
            Ok(message) => message,
            Err(fault) => return self.tally.malformed(fault),
        };
        if !message.is_request() {
            self.tally.unexpected += 1;
            return;
        }

        match message.method_token() {
            b"INVITE" if message.to_tag().is_none() => self.invited(&message, source, now),
            b"ACK" => self.acknowledged(&message),
            b"BYE" => self.hung_up(&message, source),
            b"CANCEL" => self.cancelled(&message, source),
            b"OPTIONS" => put_response(&mut self.callee_out, b"200 OK", &message, source),
            _ => {
                self.tally.unexpected += 1;
                put_response(
                    &mut self.callee_out,
                    b"501 Not Implemented",
                    &message,
                    source,
                );
            }
        }
    }

    /// Answers the call, if its phone rings.
    pub fn answer(&mut self, reference: CallRef, now: u64) {
        let Some(call) = self
            .calls
            .find(reference)
            .filter(|call| call.callee == CalleeState::Ringing)
        else {
            return;
        };
        call.callee = CalleeState::Answered;
        self.callee.put(&mut self.callee_out, 200, call);
        self.due.push(T1, 0, reference, DueAction::Ok, now);
    }

    fn invited(&mut self, message: &Message<'_>, source: SocketAddrV4, now: u64) {
        let reference = message.other(MARK).and_then(CallRef::read);
        let Some((reference, call)) =
            reference.and_then(|reference| Some((reference, self.calls.find(reference)?)))
        else {
            self.tally.strays += 1;
            return put_response(
                &mut self.callee_out,
                b"480 Temporarily Unavailable",
                message,
                source,
            );
        };

        // A repeated INVITE has the branch of the first; another branch is another transaction.
        let branch = fingerprint(message);
        if call.invite_branch == branch {
            self.tally.daemon.invite += 1;
            return self.answer_again(reference);
        }

        if let Some(gate) = &mut self.gate
            && !gate.admits(&mut self.callee_out, message, source, now)
        {
            return;
        }

        call.invite_branch = branch;
        call.invite_source = source;
        if !keep_head(&mut call.invite_head, message, reference) {
            self.fail(reference, Failure::Unusable);
            return put_response(
                &mut self.callee_out,
                b"513 Message Too Large",
                message,
                source,
            );
        }

        call.callee = CalleeState::Ringing;
        self.callee.put(&mut self.callee_out, 100, call);
        self.callee.put(&mut self.callee_out, 180, call);
        self.compare(reference, message);
        match self.plan.ring {
            Span::For(0) => self.answer(reference, now),
            Span::For(micros) => self.due.push(micros, 0, reference, DueAction::Answer, now),
            Span::Held => {}
        }
    }

    /// Compares the message with the caller's parts that the daemon must carry to the callee.
    fn compare(&mut self, reference: CallRef, message: &Message<'_>) {
        if message.body() != self.caller.body {
            self.fail(reference, Failure::BodyChanged);
        }
        if self.plan.context && !has_context(message) {
            self.fail(reference, Failure::ContextMissing);
        }
    }

    fn answer_again(&mut self, reference: CallRef) {
        let Some(call) = self.calls.find(reference) else {
            return;
        };
        match call.callee {
            CalleeState::Ringing => self.callee.put(&mut self.callee_out, 180, call),
            CalleeState::Answered | CalleeState::Talking => {
                self.callee.put(&mut self.callee_out, 200, call)
            }
            CalleeState::Idle | CalleeState::Done => {}
        }
    }

    fn acknowledged(&mut self, message: &Message<'_>) {
        if let Some(call) = own_tag(message).and_then(|reference| self.calls.find(reference))
            && call.callee == CalleeState::Answered
        {
            call.callee = CalleeState::Talking;
        }
    }

    fn hung_up(&mut self, message: &Message<'_>, source: SocketAddrV4) {
        // Answered first, even where the call isn't known: the daemon repeats a BYE that gets no answer.
        put_response(&mut self.callee_out, b"200 OK", message, source);
        let Some(reference) = own_tag(message) else {
            return;
        };
        match self.calls.find(reference).map(|call| call.callee) {
            None | Some(CalleeState::Done) => self.tally.daemon.bye += 1,
            Some(CalleeState::Answered) => {
                self.fail(reference, Failure::NoAck);
                self.callee_done(reference);
            }
            Some(CalleeState::Idle | CalleeState::Ringing | CalleeState::Talking) => {
                self.callee_done(reference)
            }
        }
    }

    /// Handles a CANCEL (§9.2). These are rare, so that searching all calls for the INVITE's branch is cheap enough.
    fn cancelled(&mut self, message: &Message<'_>, source: SocketAddrV4) {
        put_response(&mut self.callee_out, b"200 OK", message, source);
        let branch = fingerprint(message);
        let ringing =
            |call: &Call| call.invite_branch == branch && call.callee == CalleeState::Ringing;
        let found = self
            .calls
            .references()
            .find(|(_, call)| ringing(call))
            .map(|(reference, _)| reference);
        let Some((reference, call)) =
            found.and_then(|reference| Some((reference, self.calls.find(reference)?)))
        else {
            return;
        };

        // Sent once: if the 487 is lost, RFC 3261 §9.1 has the daemon give the INVITE up 64·T1 after its CANCEL.
        self.callee.put(&mut self.callee_out, 487, call);
        // Our caller ends its own side before its CANCEL arrives here. A CANCEL before that is the daemon's own.
        if call.caller != CallerState::Done {
            self.fail(reference, Failure::CancelledOnUs);
        }

        self.callee_done(reference);
    }

    fn callee_done(&mut self, reference: CallRef) {
        if let Some(call) = self.calls.find(reference) {
            call.callee = CalleeState::Done;
        }
        self.settle(reference);
    }

    /// Sends the 200 again until its ACK has come (§13.3.1.4).
    pub(super) fn ok_due(&mut self, due: Due, now: u64) {
        let Some(call) = self
            .calls
            .find(due.call)
            .filter(|call| call.callee == CalleeState::Answered)
        else {
            return;
        };
        let Some(wait) = next_wait(due.round, T2) else {
            self.fail(due.call, Failure::NoAck);
            return self.callee_done(due.call);
        };
        self.callee.put(&mut self.callee_out, 200, call);
        self.tally.ours.answer += 1;
        self.due.push(wait, due.round + 1, due.call, due.what, now);
    }
}

/// The call that our tag in To belongs to.
fn own_tag(message: &Message<'_>) -> Option<CallRef> {
    // Both ends' tags hold the same call: `u` marks the callee's, and `c` the caller's.
    CallRef::read(message.to_tag()?.strip_prefix(b"u")?)
}
