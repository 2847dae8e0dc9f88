//! The callee: an agent's SIP runtime (RFC 3261 §13.3, §15.1.2).

use std::net::SocketAddrV4;

use super::{Exchange, Parties, Span};
use crate::calls::{Call, CallRef, CalleeState, CallerState, Kept};
use crate::due::{Due, T1, What, next_wait};
use crate::message::{Message, Start};
use crate::outbox::Outbox;
use crate::tally::Failure;

/// RFC 3261 §13.3.1.4's T2, in microseconds.
const T2: u64 = 4_000_000;

/// What every answer of the callee shares.
#[derive(Debug)]
pub(super) struct Callee {
    ringing: Vec<u8>,
    answer: Vec<u8>,
}

impl Callee {
    pub(super) fn new(parties: &Parties) -> Self {
        let own = parties.callee;
        let contact = format!("Contact: <sip:agent@{own}>\r\nServer: trunkline-bench\r\n");
        let body = answer(own);
        Self {
            ringing: format!("{contact}Content-Length: 0\r\n\r\n").into(),
            answer: format!(
                "{contact}Allow: INVITE, ACK, BYE, CANCEL, OPTIONS, UPDATE, INFO, REFER, NOTIFY\r\nSupported: replaces, timer\r\n\
                 Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )
            .into(),
        }
    }

    fn put(&self, out: &mut Outbox, status: u16, call: &Call) {
        let (line, tail): (&[u8], &[u8]) = match status {
            100 => (b"SIP/2.0 100 Trying\r\n", b"Content-Length: 0\r\n\r\n"),
            180 => (b"SIP/2.0 180 Ringing\r\n", &self.ringing),
            487 => (
                b"SIP/2.0 487 Request Terminated\r\n",
                b"Content-Length: 0\r\n\r\n",
            ),
            _ => (b"SIP/2.0 200 OK\r\n", &self.answer),
        };
        out.put(line);
        out.put(call.invite_head.as_bytes());
        out.put(tail);
        out.end(call.invite_source);
    }
}

fn answer(own: SocketAddrV4) -> String {
    let ip = own.ip();
    format!(
        "v=0\r\no=agent 20518 20518 IN IP4 {ip}\r\ns=agent\r\nc=IN IP4 {ip}\r\nt=0 0\r\nm=audio 18384 RTP/AVP 0 101\r\n\
         a=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\na=fmtp:101 0-16\r\na=ptime:20\r\na=sendrecv\r\n"
    )
}

/// An answer made of the request alone; a request without a tag in To gets one.
pub(super) fn put_response(
    out: &mut Outbox,
    status: &[u8],
    request: &Message<'_>,
    to: SocketAddrV4,
) {
    put_response_head(out, status, request);
    out.put(b"Content-Length: 0\r\n\r\n");
    out.end(to);
}

/// The same without its end, for lines to be added.
pub(super) fn put_response_head(out: &mut Outbox, status: &[u8], request: &Message<'_>) {
    out.put(b"SIP/2.0 ");
    out.put(status);
    out.put(b"\r\n");
    request.via.iter().for_each(|via| out.put(via));
    out.put(b"From: ");
    out.put(request.from);
    out.put(b"\r\nTo: ");
    out.put(request.to);
    if request.to_tag().is_none() {
        out.put(b";tag=nobody");
    }
    out.put(b"\r\nCall-ID: ");
    out.put(request.call_id);
    out.put(b"\r\nCSeq: ");
    out.put_decimal(request.cseq);
    out.put(b" ");
    out.put(request.method);
    out.put(b"\r\n");
}

/// Via to CSeq with the call's own tag in To; false when it doesn't fit.
fn keep_head(head: &mut Kept<1536>, request: &Message<'_>, reference: CallRef) -> bool {
    head.clear();
    let lines = request
        .via
        .iter()
        .chain(request.record_route.iter())
        .all(|line| head.push(line));
    let tag = reference.digits();
    let cseq = crate::outbox::hex::<10>(decimal_digits(request.cseq));
    let parts: [&[u8]; 11] = [
        b"From: ",
        request.from,
        b"\r\nTo: ",
        request.to,
        b";tag=u",
        &tag,
        b"\r\nCall-ID: ",
        request.call_id,
        b"\r\nCSeq: ",
        &cseq[cseq.iter().position(|digit| *digit != b'0').unwrap_or(9)..],
        b" INVITE\r\n",
    ];
    lines && parts.iter().all(|part| head.push(part))
}

/// A number whose hex digits are the decimal digits of `number`.
fn decimal_digits(number: u32) -> u64 {
    (0..10).fold(0, |digits, place| {
        digits | u64::from(number / 10_u32.pow(place) % 10) << (4 * place)
    })
}

/// FNV-1a: tells one branch of a call from another.
fn fingerprint(octets: &[u8]) -> u64 {
    octets.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x100_0000_01b3)
    })
}

impl Exchange {
    /// A datagram for the callee.
    pub fn callee_received(&mut self, datagram: &[u8], source: SocketAddrV4, now: u64) {
        let message = match Message::read(datagram) {
            Ok(message) => message,
            Err(fault) => return self.tally.malformed(fault),
        };
        let Start::Request(method) = message.start else {
            self.tally.unexpected += 1;
            return;
        };
        match method {
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

    /// The phone is picked up, if it rings.
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
        self.due.push(T1, 0, reference, What::Ok, now);
    }

    fn invited(&mut self, message: &Message<'_>, source: SocketAddrV4, now: u64) {
        if let Some(gate) = &mut self.gate
            && !gate.admits(message)
        {
            return gate.put_challenge(&mut self.callee_out, message, source);
        }
        let reference = CallRef::read(message.mark);
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
        let branch = fingerprint(message.via.iter().next().unwrap_or_default());
        if call.invite_branch == branch {
            self.tally.daemon.invite += 1;
            return self.answer_again(reference);
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
            Span::For(micros) => self.due.push(micros, 0, reference, What::Answer, now),
            Span::Held => {}
        }
    }

    /// What the daemon must carry to the callee.
    fn compare(&mut self, reference: CallRef, message: &Message<'_>) {
        if message.body != self.caller.body {
            self.fail(reference, Failure::BodyChanged);
        }
        if self.plan.context && !message.has_context {
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

    /// §9.2. Rare, so that looking through all calls for the INVITE's branch is cheap enough.
    fn cancelled(&mut self, message: &Message<'_>, source: SocketAddrV4) {
        put_response(&mut self.callee_out, b"200 OK", message, source);
        let branch = fingerprint(message.via.iter().next().unwrap_or_default());
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
        self.callee.put(&mut self.callee_out, 487, call);
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

/// The call whose tag stands in To.
fn own_tag(message: &Message<'_>) -> Option<CallRef> {
    CallRef::read(message.to_tag()?.strip_prefix(b"u")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_numbers_stand_in_the_head_as_they_came() {
        for number in [0, 7, 10, 102, 4_294_967_295] {
            let digits = crate::outbox::hex::<10>(decimal_digits(number));
            let text = std::str::from_utf8(&digits).expect("digits");
            assert_eq!(text.parse(), Ok(u64::from(number)), "{number}");
        }
    }
}
