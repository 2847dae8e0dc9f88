//! One side's requests in a dialog, or outside of one: all of it is text, so that a test can write what no real peer would.

use crate::Message;
use crate::message::status_of;
use crate::peer::Peer;

pub const ALLOW: &str = "Allow: INVITE, ACK, CANCEL, BYE, INFO, OPTIONS, UPDATE\r\n";

/// Parts that all requests of this side share.
#[derive(Debug, Clone)]
pub struct Dialog {
    /// The Request-URI.
    pub uri: String,
    /// From, with its tag.
    pub from: String,
    /// To, with its tag once there is one.
    pub to: String,
    pub id: String,
    /// Further lines of each request.
    pub lines: String,
}

impl Dialog {
    /// The side that this INVITE has called, which answers with `tag`.
    pub fn called(invite: &Message, tag: &str) -> Self {
        Self {
            uri: invite.uri("Contact"),
            from: format!("{};tag={tag}", invite.value("To")),
            to: invite.value("From"),
            id: invite.value("Call-ID"),
            lines: String::new(),
        }
    }

    /// A side that calls this URI as `user`; `id` becomes part of its Call-ID and tag.
    pub fn calling(uri: &str, user: &str, id: &str, own: &Peer) -> Self {
        let own = own.own;
        Self {
            uri: uri.to_owned(),
            from: format!("<sip:{user}@{own}>;tag={id}"),
            to: format!("<{uri}>"),
            id: format!("{id}@{own}"),
            lines: String::new(),
        }
    }

    /// Takes the tag and the Contact of the side that has answered.
    pub fn accepted(&mut self, answer: &Message) {
        self.to = answer.value("To");
        self.uri = answer.uri("Contact");
    }

    /// The same with one more line.
    pub fn with(&self, line: &str) -> Self {
        Self {
            lines: format!("{}{line}\r\n", self.lines),
            ..self.clone()
        }
    }

    /// Prints a request as this peer sends it. A body is an SDP unless `lines` give another type.
    pub fn request(
        &self,
        own: &Peer,
        (cseq, method): (u32, &str),
        lines: &str,
        body: &str,
    ) -> String {
        // RFC 3261 §9.1: the Via of a CANCEL equals the top Via of the request that it cancels.
        let transaction = match method {
            "CANCEL" => "INVITE",
            _ => method,
        };
        self.written(own, (cseq, method, transaction), lines, body)
    }

    /// Prints an ACK. The ACK of a refusal belongs to its INVITE's transaction (RFC 3261 §17.1.1.3); the ACK of a 2xx is its own.
    pub fn ack(&self, own: &Peer, cseq: u32, answer: &Message) -> String {
        if answer.status() < Some(300) {
            return self.request(own, (cseq, "ACK"), "", "");
        }
        let refused = Self {
            to: answer.value("To"),
            ..self.clone()
        };
        refused.written(own, (cseq, "ACK", "INVITE"), "", "")
    }

    /// Sends a request; returns the final answer.
    pub fn ask(&self, own: &Peer, (cseq, method): (u32, &str), body: &str) -> Message {
        own.send(self.request(own, (cseq, method), "", body));
        own.outcome(&format!("{cseq} {method}"))
    }

    /// Sends a request; returns the status of the final answer.
    pub fn status(&self, own: &Peer, what: (u32, &str), body: &str) -> u16 {
        status_of(&self.ask(own, what, body))
    }

    fn written(
        &self,
        peer: &Peer,
        (cseq, method, transaction): (u32, &str, &str),
        lines: &str,
        body: &str,
    ) -> String {
        let (own, transport) = (peer.own, peer.transport.name());
        let Self {
            uri,
            from,
            to,
            id,
            lines: more,
        } = self;

        let (local, _) = id.split_once('@').unwrap_or((id, ""));
        let branch = format!("{local}-{cseq}-{transaction}-{}", own.port());
        let lines = format!("{more}{lines}");

        let contact = match lines.contains("Contact: ") {
            true => String::new(),
            false => format!("Contact: <{}>\r\n", peer.uri("peer")),
        };
        let content = match body.is_empty() || lines.contains("Content-Type: ") {
            true => "",
            false => "Content-Type: application/sdp\r\n",
        };

        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/{transport} {own};branch=z9hG4bK-{branch};rport\r\nMax-Forwards: 70\r\n\
             From: {from}\r\nTo: {to}\r\nCall-ID: {id}\r\nCSeq: {cseq} {method}\r\n{contact}{lines}{content}\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}
