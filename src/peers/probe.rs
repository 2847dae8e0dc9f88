//! OPTIONS to the peers that we call, and what their answers say of them.

use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Method;

use super::{Asked, Peers, Reply, SLOT};
use crate::calls::health::{Outcome, Peer, Turn};
use crate::calls::target::Target;
use crate::calls::ways;

impl Peers {
    /// Asks each of these whether it is there.
    pub fn probe(&mut self, endpoint: &mut Endpoint, targets: &[Target], now: Moment) {
        for target in targets {
            self.probe_one(endpoint, target, now);
        }
    }

    fn probe_one(&mut self, endpoint: &mut Endpoint, target: &Target, now: Moment) {
        let Some(flow) = self.way_to(target) else {
            return;
        };
        let minter = endpoint.minter().clone();
        let tag = minter.tag(SLOT, endpoint.entropy());
        let call_id = minter.call_id(SLOT, endpoint.entropy());
        let contact = ways::contact(endpoint, &flow);
        let host = endpoint.sent_by(&flow).to_owned();
        let Some(peer) = Peer::of(target) else {
            return;
        };
        let asked = Asked::Probe(peer);
        let request = (flow, Method::Options, &*target.uri);
        self.send(
            endpoint,
            request,
            asked,
            |head| {
                head.number("Max-Forwards", 70);
                head.fmt(
                    "From",
                    format_args!("<sip:trunkline@{host}>;tag={}", tag.as_str()),
                );
                head.fmt("To", format_args!("<{}>", target.uri));
                head.line("Call-ID", call_id.as_bytes());
                head.line("CSeq", b"1 OPTIONS");
                head.line("Contact", contact.as_bytes());
                head.line("Accept", b"application/sdp");
            },
            now,
        );
    }

    /// Any answer but 503 says that somebody is there.
    pub(super) fn probed(&self, peer: &Peer, reply: Reply<'_>) {
        let outcome = match reply {
            Reply::Message(message) if message.status() == 503 => Outcome::Refused,
            Reply::Message(_) => Outcome::Answered,
            Reply::Silence => Outcome::Silent,
            Reply::Broken => Outcome::Refused,
        };
        let Peer {
            uri,
            transport,
            address,
            ..
        } = peer;
        match self.health.note(peer, outcome) {
            Some(Turn::Down) => {
                tracing::warn!(peer = %address, %transport, %uri, "a peer doesn't answer OPTIONS: calls to it are refused until it does");
            }
            Some(Turn::Up) => {
                tracing::info!(peer = %address, %transport, %uri, "a peer answers again")
            }
            None => {}
        }
    }
}
