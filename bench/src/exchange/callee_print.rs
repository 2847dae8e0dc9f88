//! The callee's answers, made from the request, with an agent's Contact and SDP.

use std::net::SocketAddrV4;

use trunkline_sip::wire::{HeaderName, Message};

use super::plan::Parties;
use crate::calls::{Call, CallRef, InlineOctets};
use crate::outbox::Outbox;

/// The parts that every answer of the callee shares.
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

    pub(super) fn put(&self, out: &mut Outbox, status: u16, call: &Call) {
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

/// Prints an answer from the request alone; adds a tag to To if the request has none.
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

/// The same without its end, so that lines can be added.
pub(super) fn put_response_head(out: &mut Outbox, status: &[u8], request: &Message<'_>) {
    out.put(b"SIP/2.0 ");
    out.put(status);
    out.put(b"\r\n");
    for via in request.all(HeaderName::Via) {
        out.put(b"Via: ");
        out.put(via);
        out.put(b"\r\n");
    }
    out.put(b"From: ");
    out.put(request.from());
    out.put(b"\r\nTo: ");
    out.put(request.to());
    if request.to_tag().is_none() {
        out.put(b";tag=nobody");
    }

    out.put(b"\r\nCall-ID: ");
    out.put(request.call_id());
    out.put(b"\r\nCSeq: ");
    out.put(request.first(HeaderName::CSeq).unwrap_or_default());
    out.put(b"\r\n");
}

/// Stores Via to CSeq with the call's own tag in To; false if they don't fit.
pub(super) fn keep_head(
    head: &mut InlineOctets<1536>,
    request: &Message<'_>,
    reference: CallRef,
) -> bool {
    head.clear();
    let copied: [(HeaderName, &[u8]); 2] = [
        (HeaderName::Via, b"Via: "),
        (HeaderName::RecordRoute, b"Record-Route: "),
    ];
    let lines = copied.into_iter().all(|(name, written)| {
        request
            .all(name)
            .all(|value| head.push(written) && head.push(value) && head.push(b"\r\n"))
    });

    let tag = reference.digits();
    let parts: [&[u8]; 11] = [
        b"From: ",
        request.from(),
        b"\r\nTo: ",
        request.to(),
        b";tag=u",
        &tag,
        b"\r\nCall-ID: ",
        request.call_id(),
        b"\r\nCSeq: ",
        request.first(HeaderName::CSeq).unwrap_or_default(),
        b"\r\n",
    ];
    lines && parts.iter().all(|part| head.push(part))
}
