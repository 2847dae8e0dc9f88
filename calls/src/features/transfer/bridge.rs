//! Transfer by bridge: the daemon calls the destination with the caller's SDP. The destination replaces the agent once it has answered and
//! the caller has its media (RFC 3725 §4.4). Until then, and if that fails, the caller stays with the agent.

use std::time::Duration;

use trunkline_sip::dialog::direction;
use trunkline_sip::dialog::direction::rewritten;
use trunkline_sip::dialog::sdp::Direction;

use super::event::TransferEvent;
use super::last::LastTransfer;
use crate::core::context::{Core, Cx};
use crate::dial::dialing;
use crate::features::transfer::destination_route::DestinationRoute;
use crate::invite::invite_client::{Accepted, Patience};
use crate::invite::late_answer::bye_alone;
use crate::leg::bridge::Bridge;
use crate::leg::call_status::CallStatus;
use crate::leg::{LegState, Session, SipPeer, media_profile};
use crate::parts::dial_failure::UNREACHABLE;
use crate::parts::ids::{CallRef, LegId};
use crate::parts::ip_family;
use crate::parts::refusal::Reason;
use crate::parts::target::DialTarget;

/// Longest ringing time of a destination.
const RINGING: Duration = Duration::from_secs(45);

/// Returns whether a destination can be called now.
pub(crate) fn can_dial(bridge: &Bridge) -> bool {
    let has_sdp = bridge.trunk_sdp().is_some();
    has_sdp && bridge.status() == CallStatus::Up && bridge.dialing().is_none()
}

impl LastTransfer {
    /// Adds the leg of the destination, ready to be dialled.
    ///
    /// # Errors
    /// Its call isn't permitted, or its trunk can't be reached: the event that says so.
    pub(crate) fn begin_bridge(
        &mut self,
        bridge: &mut Bridge,
        cx: &mut Cx<'_>,
        ids: &CallRef,
        hops: u8,
        route: DestinationRoute,
    ) -> Result<(), TransferEvent> {
        let heard = bridge.trunk_sdp().unwrap_or_default();
        let is_open = |direction| direction == Direction::SendRecv;
        let offer = match direction::of(heard).into_iter().all(is_open) {
            true => heard.to_vec(),
            // The caller's direction comes from a hold, by the agent or by its own PBX. The destination is offered both directions.
            false => rewritten(heard, Direction::SendRecv),
        };
        bridge.set_trunk_sdp(&offer);

        let Core {
            outbound_limits,
            limits,
            health,
            ..
        } = &*cx.core;
        // The permit comes first, so that a refused call leaves no leg behind.
        // REFER must not get around a bound: it may follow only where the trunk can't be reached.
        let permit = route.permit(ids.holder(), outbound_limits, limits, health, cx.now);
        let permit = permit.map_err(|reason| match reason == Reason::TrunkUnreachable {
            true => TransferEvent::DestinationLost(UNREACHABLE),
            false => TransferEvent::DestinationRefused(reason.status()),
        })?;

        let is_at_pbx = route.is_at_pbx();
        let mut callee = route.callee;
        let counted_at = (!callee.leads_back).then_some(cx.now);
        if let (true, Some(DialTarget::Resolved(target))) =
            (is_at_pbx, callee.dial_targets.front_mut())
            && let Some(trunk) = bridge.trunk()
            && let Some(dialog) = trunk.first_dialog()
        {
            // A Contact may name another port of the proven source, never another host.
            let flow = cx.next_flow(dialog, trunk.flow);
            let is_proven = flow.peer.ip() == trunk.flow.peer.ip();
            target.by = Some(if is_proven { flow } else { trunk.flow });
        }

        // If REFER may follow, a silent destination doesn't get the whole ringing time.
        let patience = match self.refers_after_bridge() {
            true => Patience::WithNone,
            false => Patience::WithLast,
        };
        dialing::add_destination(bridge, cx, ids, hops, callee, patience);
        self.count(permit, counted_at);
        dialing::set_offer(bridge, cx, offer, RINGING);
        Ok(())
    }
}

/// Answer of a destination, by its media.
#[must_use]
pub(crate) enum DestinationAnswer {
    /// The call's own dialogs are gone.
    Late,
    /// The caller can't use the destination's media: the destination got BYE, and its leg is gone.
    Unusable(Reason),
    /// The destination's leg is ready, and the caller is to get this SDP.
    Usable(Box<[u8]>),
}

/// Takes the 2xx of a destination that was offered `offer`.
pub(crate) fn meet_destination(
    bridge: &mut Bridge,
    cx: &mut Cx<'_>,
    leg: LegId,
    accepted: Accepted<'_>,
    offer: &[u8],
) -> DestinationAnswer {
    // RFC 3261 §13.2.2.4: "The UAC core MUST generate an ACK request for each 2xx", also for one that BYE follows.
    accepted.acknowledge(cx);
    let sdp: Box<[u8]> = accepted.sdp().unwrap_or_default().into();
    let session = Session::of_accepted(&accepted, cx);
    let mut peer = SipPeer::accepted(accepted, offer.into());
    let (Some(fork), Some(first)) = (bridge.fork(), peer.dialogs.first_mut()) else {
        return DestinationAnswer::Late;
    };

    // SDP crosses unchanged and media isn't relayed, so neither IPv4 and IPv6 media nor RTP and SRTP can meet.
    let is_apart = ip_family::differ(offer, &sdp) || media_profile::differ(offer, &sdp);
    if sdp.is_empty() || is_apart {
        let target = cx.next_flow(&first.dialog, peer.flow);
        bye_alone(cx, &mut first.dialog, target, b"");
        bridge.legs.remove(leg);
        return DestinationAnswer::Unusable(Reason::NoCommonMedia);
    }

    // Both ends of a bridge are found by one fork number, that of the caller's dialog.
    first.fork = fork;
    bridge.legs.meet(leg, peer);
    bridge.legs.set_state(leg, LegState::Ready(session));
    if let Some(mut leg) = bridge.at(leg) {
        leg.start_session(cx);
        leg.start_keep_alives(cx);
    }
    // The caller knows the agent's o= line. RFC 3264 §8: its version "MUST increment by one from the previous SDP",
    // so the destination's SDP gets that line.
    bridge.legs.keep_origin(bridge.trunk_id());

    // Notes the origin line of the offer, as the one that the destination knows. What the caller has changed since follows after its
    // answer to the re-INVITE.
    bridge.legs.with_origin(leg, offer);
    DestinationAnswer::Usable(sdp)
}
