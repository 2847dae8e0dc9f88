//! INVITE with Replaces: a PBX that completes an attended transfer puts a new leg in the caller's place (RFC 3891). The agent is offered the new
//! leg's media; only after it has accepted them is the old leg ended. Until then, and if the agent refuses, the call stays as it was.
//!
//! A PBX finds only calls of its org, and only on its own side. On the agent's side the daemon itself sends the INVITE, for a runtime that joins two
//! of its calls (`transferring::own`): then the caller is offered the new leg's media.

use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::{Endpoint, ServerTx};
use trunkline_sip::flow::Flow;
use trunkline_sip::header::replaces::Replaces;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};
use uuid::Uuid;

use super::admission::{self, CallerInvite};
use super::attempt_counter::AttemptCounter;
use super::bridge::Bridge;
use super::bye::ByeContent;
use super::call::Call;
use super::call_status::CallStatus;
use super::context::Cx;
use super::credentials::LegCredentials;
use super::ids::{CallKey, LegId, owner_of};
use super::join::JoinPhase;
use super::keep_alive;
use super::leg::{ForkDialog, LegPeer, LegState, Replacing, SipPeer};
use super::refusal::Reason;
use super::relay::Relay;
use super::role::LegRole;
use super::{Calls, has_sdp, sdp_of, setup, sips};

impl Calls {
    /// Handles an authenticated INVITE that names a call to take over.
    pub(super) fn replace(
        &mut self,
        endpoint: &mut Endpoint,
        admitted: CallerInvite<'_, '_>,
        now: Moment,
    ) {
        let (flow, message) = (admitted.flow, admitted.message);
        let found = sips::came_securely(admitted.request_uri.as_ref(), &flow)
            .and_then(|()| self.replaced(&admitted));
        let key = found.map_or_else(|_| self.reserve(), |(key, _)| key);
        let replaced = match found {
            Ok((_, leg)) => leg,
            Err(reason) => {
                let mut cx = Cx {
                    core: &mut self.core,
                    endpoint,
                    attempt_counter: &mut AttemptCounter::default(),
                    now,
                };
                return setup::turn_down(&mut cx, key, admitted, reason);
            }
        };
        let Ok(server) = endpoint.accept(message, flow, owner_of(Some(key)), now) else {
            let reason = Reason::Overload;
            return admission::turn_away(&mut self.core, endpoint, flow, message, reason);
        };

        self.with(key, endpoint, now, |call, cx| {
            call.relaying()
                .on_successor(cx, (replaced, admitted.verified), server, flow, message);
        });
    }

    /// Returns the call whose caller is to be replaced, if that is possible now (RFC 3891 §3). A leg by a less secure transport replaces none: a
    /// sender admitted by a forgeable address could get the media of a call on TLS.
    fn replaced(&self, admitted: &CallerInvite<'_, '_>) -> Result<(CallKey, LegId), Reason> {
        if admitted.difference.is_some() {
            return Err(Reason::BadRequest);
        }

        let (flow, message) = (admitted.flow, admitted.message);
        setup::acceptable(&self.core, admitted)?;
        let mut values = message.all(HeaderName::Replaces);
        let value = values.next().filter(|_| values.next().is_none());
        let replaces = value.and_then(Replaces::parse).ok_or(Reason::BadRequest)?;
        let org = admitted.org.routing.id;
        let (key, leg) = self.leg_replaced(&replaces, org, LegRole::Trunk)?;
        let slot = self.slab.get(key.index as usize);
        let peer = slot.and_then(|slot| slot.call.bridge.legs.sip(leg));
        let is_as_secure = peer.is_some_and(|peer| peer.known_addresses.admits(flow.transport));

        is_as_secure
            .then_some((key, leg))
            .ok_or(Reason::NothingReplaced)
    }

    /// Returns the call in which we replace the agent's leg ourselves, or the status of the refusal.
    pub(super) fn agent_replaced(
        &self,
        replaces: &Replaces<'_>,
        org: Uuid,
    ) -> Result<(CallKey, LegId), u16> {
        let found = self.leg_replaced(replaces, org, LegRole::Agent);
        found.map_err(|reason| reason.status())
    }

    /// Returns the leg with the dialog that Replaces names, or the reason why it can't be replaced now.
    fn leg_replaced(
        &self,
        replaces: &Replaces<'_>,
        org: Uuid,
        role: LegRole,
    ) -> Result<(CallKey, LegId), Reason> {
        let (key, leg, call) = self
            .leg_named(replaces, org, role)
            .ok_or(Reason::NothingReplaced)?;
        let is_changing = || {
            call.bridge.is_changing()
                || call.transfer.is_under_way()
                || call.joining.phase() != JoinPhase::Idle
                || call.holding.hold.is_turning()
        };
        match refusal(call.bridge.status(), replaces.early_only, is_changing) {
            Some(reason) => Err(reason),
            None => Ok((key, leg)),
        }
    }

    /// Finds the connected leg with the dialog that Replaces names, in a call of that org and with that role.
    fn leg_named(
        &self,
        replaces: &Replaces<'_>,
        org: Uuid,
        role: LegRole,
    ) -> Option<(CallKey, LegId, &Call)> {
        let tag = self.core.minter.read_tag(replaces.to_tag)?;
        let found = self.core.tags.get(&tag.bits)?;
        let slot = self.slab.get(found.key.index as usize)?;
        let call = &*slot.call;
        let is_meant = slot.generation == found.key.generation
            && call.ids.org == org
            && call.bridge.role(found.leg) == role
            && !call.bridge.has_left(found.leg);
        let peer = call.bridge.legs.sip(found.leg).filter(|_| is_meant)?;
        let is_it = |held: &ForkDialog| {
            held.dialog.call_id() == replaces.call_id
                && held.dialog.remote_tag() == replaces.from_tag
                && held.dialog.local_tag() == replaces.to_tag
        };
        let is_known = peer.dialogs.iter().any(is_it);

        is_known.then_some((found.key, found.leg, call))
    }
}

impl Bridge {
    /// Returns whether an exchange or a dialled leg is pending that a new leg would disturb.
    fn is_changing(&self) -> bool {
        self.dialing().is_some()
            || self.legs.successor().is_some()
            || self.legs.is_full()
            || self.awaited().next().is_some()
            || self.requests.offering().is_some()
    }

    /// Answers the cancelled INVITE of a new leg at once (RFC 3261 §9.2). False if it was another INVITE.
    pub(crate) fn cancel_successor(&mut self, cx: &mut Cx<'_>, server: ServerTx) -> bool {
        let is_meant = self.legs.successor_by(server).is_some();
        if is_meant {
            self.requests.cancel_relayed(cx, server, b"");
            self.give_up_successor(cx, 487);
        }
        is_meant
    }

    /// Refuses the new leg: it is cancelled, or the agent doesn't answer the offer in time. If the agent accepts later, it gets the caller's media
    /// back.
    pub(crate) fn give_up_successor(&mut self, cx: &mut Cx<'_>, status: u16) {
        let Some((leg, Replacing { server, .. })) = self.legs.successor() else {
            return;
        };
        self.legs.remove(leg);
        self.requests.forget_relayed(server);
        cx.respond(server, status, None, |_| {}, b"");
    }
}

impl Relay<'_> {
    /// Offers the other side the media of the new leg.
    pub(super) fn on_successor(
        &mut self,
        cx: &mut Cx<'_>,
        (replaces, credentials): (LegId, Option<LegCredentials>),
        server: ServerTx,
        flow: Flow,
        message: &Message<'_>,
    ) {
        let fork = self.bridge.fork().unwrap_or_default();
        let state = LegState::Replacing(Replacing {
            server,
            replaces,
            is_behind_nat: keep_alive::sent_through_nat(&flow, message),
        });

        let leg = self
            .bridge
            .legs
            .add(self.bridge.role(replaces), LegPeer::Unknown, state);
        let tag = self.bridge.mint_tag(cx, self.ids.slot, leg);
        cx.endpoint.set_tag(server, tag.as_bytes());
        let Some(dialog) = Dialog::uas(message, tag.as_bytes()) else {
            self.bridge.legs.remove(leg);
            return cx.respond(server, 400, None, |_| {}, b"");
        };

        let mut peer = SipPeer::begun(flow);
        peer.is_sips = sips::wants_sips(message.request_uri(), &dialog);
        peer.dialogs.push(ForkDialog::new(fork, dialog, None));
        peer.abilities = setup::abilities(message);
        peer.heard = has_sdp(message).then(|| sdp_of(message.body()).into());
        peer.credentials = credentials.map(Box::new);
        self.bridge.legs.meet(leg, peer);

        let (min_se, ours) = (cx.core.config.min_se, cx.core.config.session_expires);
        let renewal = SessionTimer::for_uas(message, min_se, ours).unwrap_or_default();
        match self.bridge.is_local() {
            true => self.local_succeeds(cx, renewal, server, message),
            false => {
                self.bridge.legs.keep_origin(self.bridge.other(replaces));
                self.change(cx, replaces, fork, server, message, renewal);
            }
        }
    }

    /// Answers the INVITE of a new leg with media of our own.
    fn local_succeeds(
        &mut self,
        cx: &mut Cx<'_>,
        renewal: Option<SessionTimer>,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        match self.bridge.local_body(&self.holding.hold, message) {
            Ok((body, audio)) => {
                self.succeed(cx, server);
                let id = self.bridge.trunk_id();
                self.update_media(cx, audio);
                if let Some(mut leg) = self.bridge.at(id) {
                    leg.take_renewal(cx, renewal);
                }
                let fork = self.bridge.fork().unwrap_or_default();
                self.bridge.legs.remember_sdp(id, fork, &body);
                let content = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
                let cseq = message.cseq().number;
                let trunk = self.bridge.trunk_id();
                self.holding.hear_proposed(self.bridge, trunk);
                if let Some(leg) = self.bridge.legs.get_mut(trunk) {
                    leg.accept_reinvite(cx, (server, cseq), &body, None, content);
                }
            }
            Err(no) => {
                self.bridge.legs.fail_successor(server);
                no.reject(cx, server);
            }
        }
    }

    /// Puts the new leg in place and ends the old one, if this answers the new leg's INVITE. Returns the role of the old one.
    pub(crate) fn succeed(&mut self, cx: &mut Cx<'_>, server: ServerTx) -> Option<LegRole> {
        let (leg, successor) = self.bridge.legs.accept_successor(server)?;
        let replaces = successor.replaces;
        let (key, role) = (self.bridge.key, self.bridge.role(replaces));
        if let Some(peer) = self.bridge.legs.sip_mut(leg) {
            let keeps = successor.is_behind_nat;
            peer.keep_alive = keeps.then(|| keep_alive::schedule(cx, key, leg));
            if let Some(sdp) = peer.heard.as_deref().filter(|_| role == LegRole::Trunk) {
                self.holding.hold_state.take_offer(sdp);
            }
        }

        self.bridge.legs.stop_timers(cx, replaces);
        self.bridge.requests.abandon_replaced(cx, replaces);
        self.bridge.legs.put_in_place_of(replaces, leg);

        match role {
            LegRole::Trunk => self.holding.forget_proposal(),
            // The agent has handed its caller to its peer in another call.
            LegRole::Agent | LegRole::Destination => {
                self.bridge.legs.set_role(leg, LegRole::Destination);
                self.holding.give_up(self.bridge);
            }
        }
        self.bridge.send_bye(cx, replaces, ByeContent::default());
        Some(role)
    }
}

/// Returns why a dialog of a call can't be replaced now, if it can't (RFC 3891 §3).
fn refusal(
    status: CallStatus,
    early_only: bool,
    is_changing: impl FnOnce() -> bool,
) -> Option<Reason> {
    match status {
        CallStatus::SettingUp | CallStatus::Over => Some(Reason::NothingReplaced),
        CallStatus::Answered | CallStatus::Up if early_only => Some(Reason::AnsweredAlready),
        CallStatus::Answered => Some(Reason::CallChanging),
        CallStatus::Up => is_changing().then_some(Reason::CallChanging),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialog_is_replaced_where_nothing_is_being_agreed_on() {
        let (nothing, answered) = (Some(Reason::NothingReplaced), Some(Reason::AnsweredAlready));
        let changing = Some(Reason::CallChanging);
        // The call's status; the refusals of Replaces, of one with early-only, and of one during a negotiation.
        for (status, plain, early, busy) in [
            (CallStatus::SettingUp, nothing, nothing, nothing),
            (CallStatus::Answered, changing, answered, changing),
            (CallStatus::Up, None, answered, changing),
            (CallStatus::Over, nothing, nothing, nothing),
        ] {
            assert_eq!(refusal(status, false, || false), plain, "{status:?}");
            assert_eq!(refusal(status, true, || false), early, "{status:?}");
            assert_eq!(refusal(status, false, || true), busy, "{status:?}");
        }
    }
}
