//! Messages received: lexes them, and passes each to the client or the server side (RFC 3261 §18.1.2, §18.2.1).

use crate::flow::Flow;
use crate::moment::Moment;
use crate::wire::{Framing, Malformed, Message, Method, lex};

use super::{Endpoint, Received, Response};

impl Endpoint {
    /// Takes one datagram. A malformed message is answered with 400 or the like if it is enough of a request for that,
    /// and dropped otherwise. Line ends alone are a NAT keep-alive and are ignored.
    pub fn receive<'m>(&mut self, octets: &'m [u8], flow: Flow, now: Moment) -> Received<'m> {
        if octets
            .iter()
            .all(|octet| matches!(octet, b'\r' | b'\n' | 0))
        {
            return Received::Handled;
        }
        match lex(octets, Framing::Datagram) {
            Ok(message) => self.receive_message(message, flow, now),
            Err(malformed) => {
                self.receive_malformed(&malformed, &flow);
                Received::Handled
            }
        }
    }

    /// Takes a message that the caller has lexed.
    pub fn receive_message<'m>(
        &mut self,
        message: Message<'m>,
        flow: Flow,
        now: Moment,
    ) -> Received<'m> {
        self.latest = now;
        if let Some(skipped) = message.skipped_lines() {
            self.stats.skipped_lines += u64::from(skipped.count);
        }
        if !message.is_request() {
            return self.receive_response(message, flow, now);
        }

        // An ACK or a CANCEL is matched to the transaction of its INVITE and gets none of its own.
        match message.method() {
            Method::Ack => self.receive_ack(message, now),
            Method::Cancel => self.receive_cancel(message, flow, now),
            Method::Invite
            | Method::Bye
            | Method::Options
            | Method::Register
            | Method::Prack
            | Method::Update
            | Method::Info
            | Method::Refer
            | Method::Notify
            | Method::Subscribe
            | Method::Message
            | Method::Publish
            | Method::Other => self.receive_request(message, flow, now),
        }
    }

    /// Takes a message that the caller couldn't lex.
    pub fn receive_malformed(&mut self, malformed: &Malformed<'_>, flow: &Flow) {
        self.stats.malformed += 1;
        // Answered without state, and within the budget of its source.
        match &malformed.answer {
            Some(request) => {
                self.respond_stateless(request, flow, &Response::bare(malformed.status));
            }
            None => {
                self.stats.dropped += 1;
                if let Some(response) = &malformed.response {
                    self.receive_unreadable(malformed, response, flow);
                }
            }
        }
    }

    pub(super) fn drop_message<'m>(&mut self) -> Received<'m> {
        self.stats.dropped += 1;
        Received::Handled
    }
}
