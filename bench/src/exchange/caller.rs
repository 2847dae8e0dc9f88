//! The caller: a user agent client behind a trunk's digest credentials (RFC 3261 §13.2, §15.1.1, §17.1, §22.2).

use std::net::SocketAddrV4;

use trunkline_sip::wire::Message;

use super::Exchange;
use super::callee_print::put_response;
use super::plan::Span;
use crate::calls::{Call, CallRef, CallerState};
use crate::digest::challenge;
use crate::due::{Due, DueAction, T1, next_wait};
use crate::message::{contact_uri, read};
use crate::tally::Failure;

/// RFC 3261 §17.1.2.2's T2, in microseconds: the longest wait between two transmissions of a BYE or an OPTIONS.
const T2: u64 = 4_000_000;
/// Highest CSeq, since the templates have room for one digit.
const LAST_CSEQ: u8 = 7;

impl Exchange {
    /// Begins a call, whose set-up time runs from `scheduled`. False, and counted, if there is no room.
    pub fn begin_call(&mut self, scheduled: u64, now: u64) -> bool {
        let Some(reference) = self.begin(scheduled) else {
            return false;
        };
        let call = self.calls.find(reference).expect("the call has just begun");
        call.cseq = 1;
        self.send_invite(reference, now);
        true
    }

    /// Sends an OPTIONS. False, and counted, if there is no room.
    pub fn begin_probe(&mut self, now: u64) -> bool {
        let Some(reference) = self.begin(now) else {
            return false;
        };
        let call = self.calls.find(reference).expect("the call has just begun");
        call.cseq = 1;
        call.caller = CallerState::Probing;
        self.caller
            .put_options(&mut self.caller_out, reference, self.plan.callers);
        self.due.push(T1, 0, reference, DueAction::Probe, now);
        true
    }

    /// Hangs up, if the call is answered.
    pub fn hang_up(&mut self, reference: CallRef, now: u64) {
        let Some(call) = self
            .calls
            .find(reference)
            .filter(|call| call.caller == CallerState::Talking)
        else {
            return;
        };
        call.caller = CallerState::HangingUp;
        self.send_bye(reference);
        self.due.push(T1, 0, reference, DueAction::Bye, now);
    }

    /// Handles a datagram for the caller.
    pub fn caller_received(&mut self, datagram: &[u8], source: SocketAddrV4, now: u64) {
        let message = match read(datagram) {
            Ok(message) => message,
            Err(fault) => return self.tally.malformed(fault),
        };
        if message.is_request() {
            return self.caller_request(&message, source, now);
        }

        let status = message.status();
        match message.method_token() {
            b"INVITE" => self.invite_response(status, &message, now),
            b"BYE" => self.bye_response(status, &message, now),
            b"OPTIONS" => self.probe_response(status, &message, now),
            _ => {}
        }
    }

    fn begin(&mut self, scheduled: u64) -> Option<CallRef> {
        // A call without room was offered too: `NoRoom` then says that the generator was the limit, not the daemon.
        self.tally.started += 1;
        let begun = self.calls.begin(scheduled);
        match begun.and_then(|reference| self.calls.find(reference)) {
            Some(call) => call.measured = self.measuring,
            None => self.tally.fail(Failure::NoRoom),
        }
        begun
    }

    fn send_invite(&mut self, reference: CallRef, now: u64) {
        let Some(call) = self.calls.find(reference) else {
            return;
        };
        call.caller = CallerState::Inviting;
        self.caller
            .put_invite(&mut self.caller_out, reference, call, self.plan.callers);
        self.due
            .push(T1, 0, reference, DueAction::Invite { cseq: call.cseq }, now);
    }

    fn send_ack(&mut self, reference: CallRef) {
        let Some(call) = self.calls.find(reference) else {
            return;
        };
        self.caller.put_in_dialog(
            &mut self.caller_out,
            b"ACK",
            call.cseq,
            reference,
            call,
            self.plan.callers,
        );
    }

    fn send_bye(&mut self, reference: CallRef) {
        let Some(call) = self.calls.find(reference) else {
            return;
        };
        self.caller.put_in_dialog(
            &mut self.caller_out,
            b"BYE",
            call.cseq + 1,
            reference,
            call,
            self.plan.callers,
        );
    }

    /// Cancels an INVITE that has waited too long for its final response (§9.1).
    pub(super) fn cancel(&mut self, reference: CallRef, now: u64) {
        self.fail(reference, Failure::NoAnswer);
        let Some(call) = self.calls.find(reference) else {
            return;
        };
        self.caller
            .put_cancel(&mut self.caller_out, reference, call, self.plan.callers);
        // Nothing waits for the 487. Its ACK is printed from the response alone, also once the call is forgotten.
        self.caller_done(reference, now);
    }

    fn invite_response(&mut self, status: u16, message: &Message<'_>, now: u64) {
        let found = CallRef::read(message.call_id())
            .and_then(|reference| Some((reference, self.calls.find(reference)?.invite_state())));
        let Some((reference, (state, cseq))) = found else {
            return self.stray_response(status, message);
        };

        // An answer to the INVITE before the challenge may come late, and must not decide the new INVITE.
        let current = message.cseq().number == u32::from(cseq);
        match (state, status) {
            (CallerState::Inviting | CallerState::Proceeding, 100..=199) if current => {
                self.proceeding(reference)
            }
            (CallerState::Inviting | CallerState::Proceeding, 200..=299) if current => {
                self.answered(reference, message, now)
            }
            (CallerState::Inviting | CallerState::Proceeding, 401) if current => {
                self.challenged(reference, message, now)
            }
            (CallerState::Inviting | CallerState::Proceeding, 300..) if current => {
                self.refused(reference, status, message, now)
            }

            (_, 200..=299) => self.accepted_again(reference, message),
            // After a CANCEL this may be the first final response, so it doesn't count as repeated.
            (CallerState::Done, 300..) => {
                self.caller.put_refusal_ack(&mut self.caller_out, message)
            }
            (_, 300..) => {
                self.tally.daemon.answer += 1;
                self.caller.put_refusal_ack(&mut self.caller_out, message);
            }
            (_, _) => {}
        }
    }

    fn proceeding(&mut self, reference: CallRef) {
        if let Some(call) = self.calls.find(reference) {
            call.caller = CallerState::Proceeding;
        }
    }

    fn answered(&mut self, reference: CallRef, message: &Message<'_>, now: u64) {
        let Some(call) = self.calls.find(reference) else {
            return;
        };

        let (tag, target) = (
            message.to_tag().unwrap_or_default(),
            contact_uri(message).unwrap_or_default(),
        );
        let kept = call.remote_tag.set(tag) & call.remote_target.set(target);
        if !kept || tag.is_empty() || target.is_empty() {
            self.fail(reference, Failure::Unusable);
            return self.caller_done(reference, now);
        }

        call.caller = CallerState::Talking;
        self.tally.answered += 1;
        if call.measured {
            self.tally.set_up.record(now.saturating_sub(call.scheduled));
        }

        // The ACK goes first: `hang_up` may print the BYE in the same turn, and both leave in this order.
        self.send_ack(reference);
        match self.plan.talk {
            Span::For(0) => self.hang_up(reference, now),
            Span::For(micros) => self.due.push(micros, 0, reference, DueAction::HangUp, now),
            Span::Held => {}
        }
    }

    /// §13.2.2.4: acknowledges a repeated 2xx with the same ACK; hangs up one that comes after the caller gave up.
    fn accepted_again(&mut self, reference: CallRef, message: &Message<'_>) {
        let tag = message.to_tag();
        if self
            .calls
            .find(reference)
            .is_some_and(|call| Some(call.remote_tag.as_bytes()) == tag)
        {
            self.tally.daemon.answer += 1;
            self.send_ack(reference);
        } else {
            self.caller.put_unwanted(&mut self.caller_out, message);
        }
    }

    /// Answers a challenge (§22.2). A stale nonce alone is no refusal.
    fn challenged(&mut self, reference: CallRef, message: &Message<'_>, now: u64) {
        self.caller.put_refusal_ack(&mut self.caller_out, message);
        let Some(call) = self.calls.find(reference) else {
            return;
        };

        // The CSeq bounds the answers: the call fails with a daemon that calls every nonce stale.
        let is_first = call.credentials.is_empty();
        let challenge = challenge(message)
            .filter(|challenge| call.cseq < LAST_CSEQ && (challenge.stale || is_first));
        if challenge.is_some_and(|challenge| self.caller.authorize(reference, call, &challenge)) {
            call.cseq += 1;
            return self.send_invite(reference, now);
        }

        let failure = if is_first {
            Failure::Challenge
        } else {
            Failure::Refused(401)
        };
        self.fail(reference, failure);
        self.caller_done(reference, now);
    }

    fn refused(&mut self, reference: CallRef, status: u16, message: &Message<'_>, now: u64) {
        self.caller.put_refusal_ack(&mut self.caller_out, message);
        if status == 503 && self.calls.find(reference).is_some_and(|call| call.measured) {
            self.tally.shed += 1;
        }
        self.fail(reference, Failure::Refused(status));
        self.caller_done(reference, now);
    }

    fn stray_response(&mut self, status: u16, message: &Message<'_>) {
        self.tally.strays += 1;
        match status {
            200..=299 => self.caller.put_unwanted(&mut self.caller_out, message),
            300.. => self.caller.put_refusal_ack(&mut self.caller_out, message),
            _ => {}
        }
    }

    fn bye_response(&mut self, status: u16, message: &Message<'_>, now: u64) {
        let Some(reference) = CallRef::read(message.call_id()) else {
            return;
        };
        let state = self.calls.find(reference).map(|call| call.caller);
        if state != Some(CallerState::HangingUp) || status < 200 {
            return;
        }
        // The call is over all the same: repeating the BYE would bring the same answer.
        if status >= 300 {
            self.fail(reference, Failure::Refused(status));
        }
        self.caller_done(reference, now);
    }

    fn probe_response(&mut self, status: u16, message: &Message<'_>, now: u64) {
        let Some(reference) = CallRef::read(message.call_id()) else {
            return;
        };
        let Some(call) = self
            .calls
            .find(reference)
            .filter(|call| call.caller == CallerState::Probing)
        else {
            return;
        };

        if call.measured {
            self.tally.set_up.record(now.saturating_sub(call.scheduled));
        }
        if status != 200 {
            self.fail(reference, Failure::Refused(status));
        }

        self.caller_done(reference, now);
    }

    /// Handles a request to the caller. A BYE during the talk fails the call. Requests other than ACK, BYE and OPTIONS count as unexpected.
    fn caller_request(&mut self, message: &Message<'_>, source: SocketAddrV4, now: u64) {
        let out = &mut self.caller_out;
        match message.method_token() {
            b"ACK" => return,
            b"BYE" => put_response(out, b"200 OK", message, source),
            b"OPTIONS" => return put_response(out, b"200 OK", message, source),
            _ => {
                self.tally.unexpected += 1;
                return put_response(out, b"501 Not Implemented", message, source);
            }
        }

        let Some(reference) = message
            .to_tag()
            .and_then(|tag| CallRef::read(tag.strip_prefix(b"c")?))
        else {
            return;
        };

        // A BYE that crosses ours is no failure: both sides may hang up at once.
        if self
            .calls
            .find(reference)
            .is_some_and(|call| call.caller == CallerState::Talking)
        {
            self.fail(reference, Failure::HungUpOnUs);
            self.caller_done(reference, now);
        }
    }

    /// Timer A: sends the INVITE again until a response has come, at most for 64·T1.
    pub(super) fn invite_due(&mut self, due: Due, cseq: u8, now: u64) {
        let waits = |call: &&mut Call| call.caller == CallerState::Inviting && call.cseq == cseq;
        let Some(call) = self.calls.find(due.call).filter(waits) else {
            return;
        };
        // RFC 3261 §17.1.1.2: Timer A doubles without the cap T2 that other retransmissions have.
        let Some(wait) = next_wait(due.round, u64::MAX) else {
            self.fail(due.call, Failure::NoAnswer);
            return self.caller_done(due.call, now);
        };
        self.caller
            .put_invite(&mut self.caller_out, due.call, call, self.plan.callers);
        self.tally.ours.invite += 1;
        self.due.push(wait, due.round + 1, due.call, due.what, now);
    }

    /// Timer E: sends the BYE again until a response has come, at most for 64·T1.
    pub(super) fn bye_due(&mut self, due: Due, now: u64) {
        if self
            .calls
            .find(due.call)
            .is_none_or(|call| call.caller != CallerState::HangingUp)
        {
            return;
        }
        let Some(wait) = next_wait(due.round, T2) else {
            self.fail(due.call, Failure::NoByeAnswer);
            return self.caller_done(due.call, now);
        };
        self.send_bye(due.call);
        self.tally.ours.bye += 1;
        self.due.push(wait, due.round + 1, due.call, due.what, now);
    }

    /// Timer E of an OPTIONS, as for a BYE.
    pub(super) fn probe_due(&mut self, due: Due, now: u64) {
        if self
            .calls
            .find(due.call)
            .is_none_or(|call| call.caller != CallerState::Probing)
        {
            return;
        }
        let Some(wait) = next_wait(due.round, T2) else {
            self.fail(due.call, Failure::NoProbeAnswer);
            return self.caller_done(due.call, now);
        };
        self.caller
            .put_options(&mut self.caller_out, due.call, self.plan.callers);
        self.tally.ours.options += 1;
        self.due.push(wait, due.round + 1, due.call, due.what, now);
    }
}
