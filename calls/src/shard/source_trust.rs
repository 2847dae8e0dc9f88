//! Requests, ACKs and answers of a dialog, let in by the trust in their source (`source_trust`).

use std::sync::Arc;

use trunkline_model::view::View;
use trunkline_sip::endpoint::{ClientTx, Endpoint, Owner};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;

use super::Calls;
use crate::core::effect::{Effect, UnknownSource};
use crate::dialog::source_trust;
use crate::dialog::source_trust::SourceTrust;
use crate::has_sdp;
use crate::inbound::address_change;
use crate::parts::ids::{DialogPlace, NamedDialog, key_of};

impl Calls {
    /// Returns whether a request inside a call may come by this flow. If not, it has been answered, or is dropped until it is retransmitted.
    pub(super) fn accepts_source(
        &mut self,
        endpoint: &mut Endpoint,
        view: &View,
        named: NamedDialog,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) -> bool {
        let (key, id) = (named.call, named.place.leg);
        let Some(call) = self.table.get_mut(key) else {
            return false;
        };

        let core = &mut self.core;
        let has_left = call.bridge.has_left(id);
        let org = call.ids.org;
        let trust = source_trust::trust(
            &mut call.bridge,
            core,
            Some(view),
            org,
            named.place,
            &flow,
            now,
        );

        match trust {
            SourceTrust::Known => return true,
            // It is retransmitted, and by then the name is resolved.
            SourceTrust::Awaited if !flow.transport.is_reliable() => return false,
            SourceTrust::Awaited | SourceTrust::Unknown | SourceTrust::LessSecure => {}
        }

        // A leg that was replaced gets no further address: only the end of its dialog is awaited.
        let leg = call.bridge.legs.sip_mut(id).filter(|_| !has_left);
        let proven = leg.and_then(|leg| Some((leg.credentials.as_deref()?.proven_pair()?, leg)));

        // No digest makes up for a less secure transport: what the dialog carries would be readable on it.
        if trust != SourceTrust::LessSecure
            && let Some((pair, leg)) = proven
        {
            if !address_change::proves_pair(core, endpoint, view, &pair, flow, message, now) {
                return false;
            }
            address_change::add_proven_address(leg, pair, &flow);
            return true;
        }

        tracing::debug!(call.id = %call.ids.call, source = %flow.peer, transport = %flow.transport, "a request from a place that its dialog doesn't know");
        core.effects
            .push_back(Effect::UnknownSource(UnknownSource::Refused));
        core.stateless(endpoint, message, flow, 403, |head| {
            head.line(
                "Warning",
                b"399 trunkline \"Not from a place that this dialog knows\"",
            );
        });
        false
    }

    /// Returns whether an ACK may come by this flow. It can't be challenged (RFC 3261 §22.1), so one from an unknown address counts only if it has no
    /// SDP and none is expected.
    pub(super) fn accepts_ack_source(
        &mut self,
        view: &View,
        named: NamedDialog,
        flow: &Flow,
        ack: &Message<'_>,
        now: Moment,
    ) -> bool {
        let Some(call) = self.table.get_mut(named.call) else {
            return false;
        };

        let (core, org) = (&mut self.core, call.ids.org);
        let trust = source_trust::trust(
            &mut call.bridge,
            core,
            Some(view),
            org,
            named.place,
            flow,
            now,
        );

        let is_let_in = match trust {
            SourceTrust::Known => true,
            SourceTrust::Awaited | SourceTrust::Unknown => {
                !has_sdp(ack)
                    && !call
                        .bridge
                        .awaits_sdp_of(named.place.leg, ack.cseq().number)
            }
            SourceTrust::LessSecure => false,
        };

        if !is_let_in {
            self.core
                .effects
                .push_back(Effect::UnknownSource(UnknownSource::Ack));
        }
        is_let_in
    }

    /// Handles a response from another IP than its request went to, if the leg knows that IP; else ignores it.
    pub(super) fn unknown_source_response(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        (tx, owner): (ClientTx, Owner),
        message: Message<'_>,
        now: Moment,
    ) {
        if !self.expects_from(&flow, tx, owner, now) {
            tracing::debug!(source = %flow.peer, "a response from another IP than its request went to");
            return self
                .core
                .effects
                .push_back(Effect::UnknownSource(UnknownSource::Response));
        }
        let received = endpoint.accept_response(tx, message, now);
        self.handle(endpoint, view, flow, received, now);
    }

    /// Returns whether the answer to a transaction may come by this flow.
    fn expects_from(&mut self, flow: &Flow, tx: ClientTx, owner: Owner, now: Moment) -> bool {
        let call = key_of(owner).and_then(|key| self.table.get_mut(key));
        let Some(call) = call else {
            return false;
        };

        let dialing = call.bridge.dialing();
        let asked = match dialing.filter(|dialing| dialing.client.owns(tx)) {
            Some(dialing) if dialing.client.knows(flow.peer.ip()) => return true,
            // A runtime has its leg by now, which knows where the Contact of an early dialog leads.
            Some(dialing) if dialing.is_runtime() => Some(DialogPlace {
                leg: call.bridge.agent_id(),
                fork: 0,
            }),
            Some(_) => None,
            None => {
                let mut pending = call.bridge.requests.pending().iter();
                let pending = pending.find(|pending| pending.client == tx);
                pending.map(|pending| DialogPlace {
                    leg: pending.leg,
                    fork: pending.fork,
                })
            }
        };

        asked.is_some_and(|at| {
            let (core, org) = (&mut self.core, call.ids.org);
            source_trust::trust(&mut call.bridge, core, None, org, at, flow, now)
                == SourceTrust::Known
        })
    }
}
