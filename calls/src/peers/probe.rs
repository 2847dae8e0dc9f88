//! OPTIONS to the peers that we call, and the meaning of their answers.

use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::fault::Fault;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Method;

use super::{OptionsBatch, PeerReply, Peers, PeersEffect, PendingRequest, SLOT};
use crate::parts::flow_choice;
use crate::parts::target::Target;
use crate::peers::health::{HealthChange, ProbeOutcome, ProbedPeer};
use crate::registrar::keep_alive::KeepAlive;

/// Destination of an OPTIONS.
struct OptionsTarget<'t> {
    flow: Flow,
    /// The Request-URI.
    uri: &'t str,
    /// The value of Route, where it has one.
    route: Option<&'t str>,
}

impl Peers {
    /// Sends OPTIONS to each of these.
    pub fn ask(&mut self, endpoint: &mut Endpoint, inquiry: OptionsBatch, now: Moment) {
        match inquiry {
            OptionsBatch::Probe(targets) => {
                for target in targets {
                    self.probe_one(endpoint, &target, now);
                }
            }
            OptionsBatch::KeepAlive(bindings) => {
                for asked in bindings {
                    let (flow, uri) = (asked.flow, asked.contact.clone());
                    let route = asked.route.clone();
                    let asked = PendingRequest::KeepAlive(asked);
                    // One that finds no room is left out: the next follows soon.
                    let to = OptionsTarget {
                        flow,
                        uri: &uri,
                        route: route.as_deref(),
                    };
                    let _ = self.send_options(endpoint, to, asked, now);
                }
            }
        }
    }

    fn probe_one(&mut self, endpoint: &mut Endpoint, target: &Target, now: Moment) {
        // Without a listener that fits, or where the address is forbidden, nothing is learnt of the peer.
        let Some(flow) = self.way_to(target) else {
            return;
        };
        let Some(peer) = ProbedPeer::of(target) else {
            return;
        };
        // A silent peer keeps a probe for 32 s, longer than the shortest interval between two.
        if self.probing.contains(&peer) {
            return;
        }
        let asked = PendingRequest::Probe(peer.clone());
        let to = OptionsTarget {
            flow,
            uri: &target.uri,
            route: None,
        };
        let sent = self.send_options(endpoint, to, asked, now);
        if sent.is_some() {
            self.probing.insert(peer);
        }
    }

    fn send_options(
        &mut self,
        endpoint: &mut Endpoint,
        to: OptionsTarget<'_>,
        asked: PendingRequest,
        now: Moment,
    ) -> Option<u32> {
        let OptionsTarget { flow, uri, route } = to;
        let minter = endpoint.minter().clone();
        let tag = minter.tag(SLOT, endpoint.entropy());
        let call_id = minter.call_id(SLOT, endpoint.entropy());
        let contact = flow_choice::contact(endpoint, &flow);
        let host = endpoint.sent_by(&flow).into_owned();
        let request = (flow, Method::Options, uri);

        self.send(
            endpoint,
            request,
            asked,
            |head| {
                if let Some(route) = route {
                    head.line("Route", route.as_bytes());
                }
                head.number("Max-Forwards", 70);
                head.fmt(
                    "From",
                    format_args!("<sip:trunkline@{host}>;tag={}", tag.as_str()),
                );
                head.fmt("To", format_args!("<{uri}>"));
                head.line("Call-ID", call_id.as_bytes());
                head.line("CSeq", b"1 OPTIONS");
                head.line("Contact", contact.as_bytes());
                head.line("Accept", b"application/sdp");
            },
            now,
        )
    }

    /// Notes any answer of a registered PBX: its mapping is alive.
    pub(super) fn kept_alive(&self, asked: &KeepAlive, reply: PeerReply<'_>) {
        let is_answered = match reply {
            PeerReply::Message(_) => true,
            PeerReply::Silence | PeerReply::Broken(_) => false,
        };
        if !self.bindings.note_keep_alive(asked, is_answered) {
            return;
        }

        let KeepAlive {
            trunk,
            contact,
            flow,
            ..
        } = asked;
        match is_answered {
            true => {
                tracing::info!(trunk.id = %trunk, %contact, source = %flow.peer, "a registered PBX answers again");
            }
            false => {
                tracing::warn!(trunk.id = %trunk, %contact, source = %flow.peer, "a registered PBX behind NAT no longer answers OPTIONS: calls to it may not arrive");
            }
        }
    }

    /// Notes the result of a probe: any answer but 503 shows that the peer is up.
    pub(super) fn probed(&mut self, peer: &ProbedPeer, reply: PeerReply<'_>) {
        let outcome = match reply {
            PeerReply::Message(message) if message.status() == 503 => ProbeOutcome::Refused,
            PeerReply::Message(_) => ProbeOutcome::Answered,
            PeerReply::Silence => ProbeOutcome::Silent,
            // We may open no further connection, which says nothing about the peer.
            PeerReply::Broken(Fault::TooMany) => return,
            PeerReply::Broken(
                Fault::Closed
                | Fault::Refused
                | Fault::Unreachable(_)
                | Fault::NotOpened
                | Fault::NotSecured(_),
            ) => ProbeOutcome::Refused,
        };

        let ProbedPeer {
            uri,
            transport,
            address,
            ..
        } = peer;
        match self.health.note(peer, outcome) {
            Some(HealthChange::Down) => {
                tracing::warn!(peer = %address, %transport, %uri, "a peer doesn't answer OPTIONS, or refuses it: calls to it aren't tried until that ends");
                self.effects.push(PeersEffect::Down(peer.clone()));
            }
            Some(HealthChange::Up) => {
                tracing::info!(peer = %address, %transport, %uri, "calls to a peer are tried again")
            }
            None => {}
        }
    }
}
