//! NOTIFY of the PBX for its REFER (RFC 3515 §2.4.5, RFC 6665), and the probe for the call after a failed REFER.

use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::header::subscription_state::SubscriptionState;
use trunkline_sip::header::{params, text};
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::event::TransferEvent;
use super::last::LastTransfer;
use super::sipfrag::status_of;
use crate::core::context::Cx;
use crate::leg::NewRequest;
use crate::leg::bridge::Bridge;
use crate::leg::own_request::Purpose;
use crate::parts::ids::LegId;

/// Probes the PBX for the call, unless a probe is out already. False if none can be sent.
pub(crate) fn probe(bridge: &mut Bridge, cx: &mut Cx<'_>) -> bool {
    if bridge.requests.is_out(Purpose::Probe) {
        return true;
    }
    let (Some(fork), Some(trunk)) = (bridge.fork(), bridge.trunk()) else {
        return false;
    };
    // UPDATE is matched to the dialog; a PBX may answer OPTIONS without looking for one.
    let method = match trunk.abilities.update {
        true => Method::Update,
        false => Method::Options,
    };
    let request = NewRequest::bare(fork, method, Purpose::Probe);
    let id = bridge.trunk_id();
    bridge.send(cx, id, &request, |_| {}).is_some()
}

impl LastTransfer {
    /// Answers a NOTIFY of a leg's peer. Returns its news, if it belongs to our REFER.
    pub(crate) fn on_notify(
        &self,
        bridge: &Bridge,
        cx: &mut Cx<'_>,
        leg: LegId,
        server: ServerTx,
        message: &Message<'_>,
    ) -> Option<TransferEvent> {
        let event = message.first(HeaderName::Event).unwrap_or_default();
        let end = memchr::memchr(b';', event).unwrap_or(event.len());
        let (package, params) = event.split_at(end);
        let package = package.trim_ascii();
        // A NOTIFY without Event is taken for one of `refer`, since no other package is subscribed to.
        if !package.eq_ignore_ascii_case(b"refer") && !package.is_empty() {
            let allowed = |head: &mut Head<'_>| head.line("Allow-Events", b"refer");
            cx.respond(server, 489, None, allowed, b"");
            return None;
        }

        // RFC 6665 §4.1.3: a NOTIFY without a subscription is 481.
        let cseq = match params::find(params, "id") {
            Some(id) => id
                .and_then(text::number)
                .and_then(|id| self.refer_of_notify(leg, Some(id))),
            None => self.refer_of_notify(leg, None),
        };
        // Only the PBX on the trunk's side gets REFER, so no other leg has a subscription of ours.
        let Some(cseq) = cseq.filter(|_| bridge.is_trunk(leg)) else {
            cx.respond(server, 481, None, |_| {}, b"");
            return None;
        };
        // The 200 goes first: the news may end this dialog with BYE.
        cx.respond(server, 200, None, |_| {}, b"");

        let state = message.first(HeaderName::SubscriptionState);
        Some(TransferEvent::Notified {
            cseq,
            status: status_of(message.body()),
            subscription: SubscriptionState::parse(state.unwrap_or_default()),
        })
    }
}
