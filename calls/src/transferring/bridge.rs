//! Transfer by bridge: the daemon calls the destination with the caller's SDP, and it replaces the agent once it has answered (RFC 3725 §4.4). Until
//! then, and if it doesn't answer, the caller stays with the agent.

use std::time::Duration;

use trunkline_sip::dialog::direction::{self, rewritten};
use trunkline_sip::dialog::sdp::Direction;

use crate::bridge::Bridge;
use crate::bye::ByeContent;
use crate::call::Call;
use crate::call_status::CallStatus;
use crate::context::{Core, Cx};
use crate::destination_route::DestinationRoute;
use crate::dial_failure::UNREACHABLE;
use crate::ids::LegId;
use crate::invite_client::{Accepted, Patience};
use crate::ip_family;
use crate::join::Join;
use crate::late_answer::bye_alone;
use crate::leg::LegState;
use crate::refusal::Reason;
use crate::relay::Relay;
use crate::target::DialTarget;
use crate::transfer::TransferEvent;

/// Longest ringing time of a destination.
const RINGING: Duration = Duration::from_secs(45);

impl Bridge {
    /// Returns whether a destination can be called now.
    pub(super) fn can_dial(&self) -> bool {
        let is_heard = self.heard().is_some();
        is_heard && self.status() == CallStatus::Up && self.dialing().is_none()
    }
}

impl Relay<'_> {
    /// Ends what is pending with the agent, as at the end of a call. Our own requests to the caller go on.
    pub(crate) fn agent_goes(&mut self, cx: &mut Cx<'_>) {
        let agent = self.bridge.agent_id();
        if let Some(bot) = self.bridge.bot_mut() {
            bot.stop_builtin(cx);
        }
        self.bridge.drop_awaited_acks(cx, agent);
        self.bridge.reject_delayed(cx);
        self.bridge.requests.abandon_agent(cx, agent);
        self.holding.give_up(self.bridge);
        self.bridge.legs.stop_timers(cx, agent);
    }
}

impl Call {
    /// Calls the destination.
    pub(super) fn begin_bridge(&mut self, cx: &mut Cx<'_>, route: DestinationRoute) {
        let heard = self.bridge.heard().unwrap_or_default();
        let is_open = |direction| direction == Direction::SendRecv;
        let offer = match direction::of(heard).into_iter().all(is_open) {
            true => heard.to_vec(),
            // The agent has put the caller on hold meanwhile.
            false => rewritten(heard, Direction::SendRecv),
        };
        self.bridge.set_heard(&offer);

        let Core {
            outbound_limits,
            limits,
            health,
            ..
        } = &*cx.core;
        let permit = match route.permit(self.ids.org, outbound_limits, limits, health, cx.now) {
            Ok(permit) => permit,
            Err(Reason::TrunkUnreachable) => {
                return self.on_transfer(cx, TransferEvent::DestinationLost(UNREACHABLE));
            }
            Err(reason) => {
                return self.on_transfer(cx, TransferEvent::DestinationRefused(reason.status()));
            }
        };
        let is_at_pbx = route.is_at_pbx();
        let mut callee = route.callee;
        let counted_at = (!callee.leads_back).then_some(cx.now);
        if let (true, Some(DialTarget::Resolved(target))) =
            (is_at_pbx, callee.dial_targets.front_mut())
            && let Some(trunk) = self.bridge.trunk()
            && let Some(dialog) = trunk.first_dialog()
        {
            // A Contact may name another port of the proven source, never another host.
            let flow = cx.next_flow(dialog, trunk.flow);
            let is_proven = flow.peer.ip() == trunk.flow.peer.ip();
            target.by = Some(if is_proven { flow } else { trunk.flow });
        }

        let patience = match self.transfer.refers_after_bridge() {
            true => Patience::WithNone,
            false => Patience::WithLast,
        };
        self.bridge
            .add_destination(cx, &self.ids, self.hops, callee, patience);
        self.transfer.count(permit, counted_at);
        self.bridge.set_offer(cx, offer, RINGING);
        self.with_dialing(cx, |client, cx, text| client.begin(cx, text));
    }

    /// Offers the caller the media of the destination, which has answered.
    pub(crate) fn on_destination_answers(
        &mut self,
        cx: &mut Cx<'_>,
        leg: LegId,
        accepted: Accepted<'_>,
        offer: Box<[u8]>,
    ) {
        accepted.acknowledge(cx);
        let sdp: Box<[u8]> = accepted.sdp().unwrap_or_default().into();
        let session = accepted.session(cx);
        let offered = offer.clone();
        let mut peer = accepted.into_peer(offer);
        let (Some(fork), Some(first)) = (self.bridge.fork(), peer.dialogs.first_mut()) else {
            return;
        };

        if sdp.is_empty() || ip_family::differ(&offered, &sdp) {
            let target = cx.next_flow(&first.dialog, peer.flow);
            bye_alone(cx, &mut first.dialog, target, b"");
            self.bridge.legs.remove(leg);
            return self.on_transfer(
                cx,
                TransferEvent::DestinationRefused(Reason::NoCommonMedia.status()),
            );
        }

        first.fork = fork;
        self.bridge.legs.meet(leg, peer);
        self.bridge.legs.set_state(leg, LegState::Ready(session));
        if let Some(mut leg) = self.bridge.at(leg) {
            leg.start_session(cx);
            leg.start_keep_alives(cx);
        }
        self.bridge.legs.keep_origin(self.bridge.trunk_id());

        // With its answer to the re-INVITE, the destination gets what the caller has changed since.
        self.bridge.legs.with_origin(leg, &offered);
        self.joining.wait_with(Join::arriving(offered, leg));
        self.on_transfer(cx, TransferEvent::DestinationAnswered);
        let progress = self.joining.begin(&sdp, cx.now);
        self.apply_join_progress(cx, progress, None);
    }

    /// Ends the agent's leg: the caller has the destination's media (RFC 3725 §4.4).
    pub(crate) fn hand_over(&mut self, cx: &mut Cx<'_>, destination: LegId) {
        self.on_transfer(cx, TransferEvent::DestinationConnected);
        self.relaying().agent_goes(cx);
        let (agent, is_local) = (self.bridge.agent_id(), self.bridge.is_local());
        self.bridge.legs.put_in_place_of(agent, destination);
        match is_local {
            true => {
                self.bridge.legs.remove(agent);
                let closed = self.bridge.closed_media(&self.ids);
                cx.core.effects.push_back(closed);
            }
            false => self.bridge.send_bye(cx, agent, ByeContent::default()),
        }
        self.bridge.forget_left(agent, self.joining.arriving());
        if let Some(permit) = &mut self.permit {
            permit.release(self.ids.agent);
        }
    }
}
