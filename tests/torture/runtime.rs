//! An agent's runtime that answers as it likes.

use trunkline_sip::wire::{HeaderName, Message};

use crate::caller::read;
use crate::peer::Stranger;
use trunkline_testkit::House;

/// Takes the calls of a house's first agent.
#[derive(Debug)]
pub(crate) struct Runtime {
    pub(crate) peer: Stranger,
}

impl Runtime {
    /// Binds a port and has the first agent spoken for from there.
    pub(crate) fn of(house: &House) -> Self {
        let peer = Stranger::new(house.sip);
        house.runtime(
            &house.first_agent,
            &format!("sip:{{agent_id}}@{}", peer.address()),
        );
        Self { peer }
    }

    /// The next request of this method; what comes before it is passed over.
    pub(crate) fn request(&self, method: &str) -> Vec<u8> {
        loop {
            let octets = self.peer.receive();
            let message = read(&octets);
            if message.is_request() && message.method_token() == method.as_bytes() {
                return octets;
            }
        }
    }

    /// Answers a request. `status` is what stands behind the version, `lines` are whole lines.
    pub(crate) fn answer(&self, request: &[u8], status: &str, lines: &str, body: &str) {
        self.peer
            .send(&answer(&read(request), status, "runtime", lines, body));
    }
}

/// An answer to a request with that To-tag.
pub(crate) fn answer(
    request: &Message<'_>,
    status: &str,
    tag: &str,
    lines: &str,
    body: &str,
) -> Vec<u8> {
    let value =
        |name| String::from_utf8_lossy(request.first(name).expect("a request has it")).into_owned();
    let tag = if request.to_tag().is_some() {
        String::new()
    } else {
        format!(";tag={tag}")
    };
    format!(
        "SIP/2.0 {status}\r\nVia: {}\r\nFrom: {}\r\nTo: {}{tag}\r\nCall-ID: {}\r\nCSeq: {}\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        value(HeaderName::Via),
        value(HeaderName::From),
        value(HeaderName::To),
        value(HeaderName::CallId),
        value(HeaderName::CSeq),
        body.len()
    )
    .into_bytes()
}
