//! INVITE with Replaces: a PBX that completes an attended transfer puts a new leg in the place of the caller's (RFC 3891). The
//! agent is offered the new leg's media; only once it has taken them is the old leg told to go. Until then, and if it refuses,
//! the call stays as it was.
//!
//! Only calls of the org that asks can be found, and by a PBX only on its own side. On the agent's side it is we ourselves who ask, where a
//! runtime joins two of its calls (`transfer::own`): then it is the caller that is offered the new leg's media.

use trunkline_sip::dialog::Dialog;
use trunkline_sip::dialog::session_timer::SessionTimer;
use trunkline_sip::endpoint::{Endpoint, ServerTx};
use trunkline_sip::flow::Flow;
use trunkline_sip::header::replaces::Replaces;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};
use uuid::Uuid;

use super::admission::{self, Admitted};
use super::call::{
    Abilities, Call, CallKey, ForkDialog, LEFT, Leg, Pending, Phase, Purpose, Side, Speaker,
};
use super::context::{Cx, TagOwner};
use super::credentials::LegCredentials;
use super::keep_alive;
use super::places::Former;
use super::refusal::Reason;
use super::request_origin::RequestOrigin;
use super::transfer::Bridged;
use super::{Calls, has_sdp, owner_of, sdp_of, secure, setup};

/// A leg that is to take the place of one of the two.
#[derive(Debug)]
pub(crate) struct Successor {
    side: Side,
    server: ServerTx,
    flow: Flow,
    dialog: Dialog,
    abilities: Abilities,
    is_sips: bool,
    sdp: Option<Box<[u8]>>,
    credentials: Option<LegCredentials>,
    is_behind_nat: bool,
}

impl Calls {
    /// An INVITE that names a call to take over, of somebody who has proved who it is.
    pub(super) fn replace(
        &mut self,
        endpoint: &mut Endpoint,
        flow: Flow,
        message: &Message<'_>,
        admitted: Admitted,
        now: Moment,
    ) {
        let found = secure::came_securely(message, &flow)
            .and_then(|()| self.replaced(message, &admitted, &flow));
        let key = found.unwrap_or_else(|_| self.reserve());
        if let Err(reason) = found {
            let mut cx = Cx {
                core: &mut self.core,
                endpoint,
                now,
            };
            return setup::turn_down(&mut cx, key, (flow, message), admitted, reason);
        }
        let Ok(server) = endpoint.accept(message, flow, owner_of(key), now) else {
            let reason = Reason::Overload;
            return admission::turn_away(&mut self.core, endpoint, flow, message, reason);
        };
        self.with(key, endpoint, now, |call, cx| {
            call.on_successor(cx, (Side::Caller, admitted.verified), server, flow, message);
        });
    }

    /// The call whose caller is meant, if it can be replaced now (RFC 3891 §3). A leg by a less secure transport takes nobody's place: who was
    /// admitted by an address that can be forged would have the media of a call on TLS.
    fn replaced(
        &self,
        message: &Message<'_>,
        admitted: &Admitted,
        flow: &Flow,
    ) -> Result<CallKey, Reason> {
        if admitted.invite.is_err() {
            return Err(Reason::BadRequest);
        }
        setup::acceptable(&self.core, message)?;
        let mut values = message.all(HeaderName::Replaces);
        let value = values.next().filter(|_| values.next().is_none());
        let replaces = value.and_then(Replaces::parse).ok_or(Reason::BadRequest)?;
        let org = admitted.org.routing.id;
        let key = self.leg_replaced(&replaces, org, Side::Caller)?;
        let slot = self.slab.get(key.index as usize);
        let is_as_secure = slot.is_some_and(|slot| slot.call.caller.places.admits(flow.transport));
        is_as_secure.then_some(key).ok_or(Reason::NothingReplaced)
    }

    /// The call in which we replace the agent's leg ourselves, or the status that says why not.
    pub(super) fn agent_replaced(
        &self,
        replaces: &Replaces<'_>,
        org: Uuid,
    ) -> Result<CallKey, u16> {
        let found = self.leg_replaced(replaces, org, Side::Agent);
        found.map_err(|reason| reason.status())
    }

    fn leg_replaced(
        &self,
        replaces: &Replaces<'_>,
        org: Uuid,
        side: Side,
    ) -> Result<CallKey, Reason> {
        let (key, call) = self
            .leg_named(replaces, org, side)
            .ok_or(Reason::NothingReplaced)?;
        match call.phase {
            Phase::Setup | Phase::Over => Err(Reason::NothingReplaced),
            Phase::Answered | Phase::Confirmed if replaces.early_only => {
                Err(Reason::AnsweredAlready)
            }
            Phase::Answered => Err(Reason::CallChanging),
            Phase::Confirmed if call.is_changing() => Err(Reason::CallChanging),
            Phase::Confirmed => Ok(key),
        }
    }

    fn leg_named(
        &self,
        replaces: &Replaces<'_>,
        org: Uuid,
        side: Side,
    ) -> Option<(CallKey, &Call)> {
        let tag = self.core.minter.read_tag(replaces.to_tag)?;
        let found = self.core.tags.get(&tag.bits)?;
        let slot = self.slab.get(found.key.index as usize)?;
        let call = &*slot.call;
        let is_meant = slot.generation == found.key.generation
            && found.side == side
            && found.fork != LEFT
            && call.org == org;
        let dialog = match (side, &call.speaker) {
            (Side::Caller, _) => call.caller.dialog_ref(found.fork),
            // Whoever has taken the agent's place already is no runtime.
            (Side::Agent, Speaker::Runtime(leg)) if call.bridged.is_none() => leg
                .fork_of(replaces.from_tag)
                .and_then(|fork| leg.dialog_ref(fork)),
            (Side::Agent, Speaker::Runtime(_) | Speaker::Echo(_)) => None,
        };
        let dialog = dialog.filter(|_| is_meant)?;
        let same = dialog.call_id() == replaces.call_id
            && dialog.remote_tag() == replaces.from_tag
            && dialog.local_tag() == replaces.to_tag;
        same.then_some((found.key, call))
    }
}

impl Call {
    /// Whether something is being agreed on, or somebody is being called, that a new leg would come between.
    fn is_changing(&self) -> bool {
        self.is_transferring()
            || self.dialing.is_some()
            || self.successor.is_some()
            || self.bye_owed.is_some()
            || !self.awaited.is_empty()
            || self.is_joining()
            || self.is_turning()
            || self.pending.iter().any(|pending| pending.offers)
    }

    /// The other side is offered the media of the new leg.
    pub(super) fn on_successor(
        &mut self,
        cx: &mut Cx<'_>,
        (side, credentials): (Side, Option<LegCredentials>),
        server: ServerTx,
        flow: Flow,
        message: &Message<'_>,
    ) {
        let fork = self.caller.dialogs.first().map_or(0, |held| held.fork);
        let owner = TagOwner {
            key: self.key,
            side,
            fork,
        };
        let tag = cx.mint_tag(self.slot, owner);
        self.tags.push(tag.bits());
        cx.endpoint.set_tag(server, tag.as_bytes());
        let Some(dialog) = Dialog::uas(message, tag.as_bytes()) else {
            return cx.respond(server, 400, None, |_| {}, b"");
        };
        self.successor = Some(Box::new(Successor {
            side,
            server,
            flow,
            dialog,
            abilities: setup::abilities(message),
            is_sips: secure::wants_sips(message),
            sdp: has_sdp(message).then(|| sdp_of(message.body()).into()),
            credentials,
            is_behind_nat: keep_alive::sent_through_nat(&flow, message),
        }));
        let (min_se, ours) = (cx.core.config.min_se, cx.core.config.session_expires);
        let renewal = SessionTimer::for_uas(message, min_se, ours).unwrap_or_default();
        match self.speaker {
            Speaker::Echo(_) => self.echo_succeeds(cx, renewal, server, message),
            Speaker::Runtime(_) => {
                self.keep_origin(side.other());
                self.relay_change(cx, side, fork, server, message, renewal);
            }
        }
    }

    fn echo_succeeds(
        &mut self,
        cx: &mut Cx<'_>,
        renewal: Option<SessionTimer>,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        match self.echo_body(message) {
            Ok((body, audio)) => {
                self.succeed(cx, server);
                self.tell_media(cx, audio);
                self.take_renewal(cx, Side::Caller, renewal);
                self.remember_sdp(Side::Caller, &body);
                let content = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
                let cseq = message.cseq().number;
                self.accept_reinvite(cx, Side::Caller, (server, cseq), &body, None, content);
            }
            Err(no) => {
                self.successor = None;
                no.reject(cx, server);
            }
        }
    }

    /// The INVITE of a new leg was refused.
    pub(crate) fn fail_successor(&mut self, server: ServerTx) {
        self.successor
            .take_if(|successor| successor.server == server);
    }

    /// The INVITE of a new leg was cancelled, and has its answer at once (RFC 3261 §9.2). False if it was another INVITE.
    pub(crate) fn cancel_successor(&mut self, cx: &mut Cx<'_>, server: ServerTx) -> bool {
        let is_meant = |successor: &Successor| successor.server == server;
        let is_meant = self.successor.as_deref().is_some_and(is_meant);
        if is_meant {
            let relayed = |pending: &&Pending| pending.purpose == Purpose::Relay(server);
            if let Some(pending) = self.pending.iter().find(relayed) {
                cx.endpoint.cancel(pending.client, b"", cx.now);
            }
            self.give_up_successor(cx, 487);
        }
        is_meant
    }

    /// There is no new leg after all, or the agent doesn't say whether it takes its media, and the INVITE is to have its answer in
    /// time. If the agent takes them yet, it gets back those of the caller.
    pub(crate) fn give_up_successor(&mut self, cx: &mut Cx<'_>, status: u16) {
        let Some(successor) = self.successor.take() else {
            return;
        };
        for pending in &mut self.pending {
            if pending.purpose == Purpose::Relay(successor.server) {
                pending.purpose = Purpose::Stale;
            }
        }
        cx.respond(successor.server, status, None, |_| {}, b"");
    }

    /// The new leg takes its place, if this is the answer to its INVITE, and the old one is told to go.
    pub(crate) fn succeed(&mut self, cx: &mut Cx<'_>, server: ServerTx) {
        let is_meant = |successor: &mut Box<Successor>| successor.server == server;
        let Some(successor) = self.successor.take_if(is_meant) else {
            return;
        };
        let Successor {
            side,
            flow,
            mut dialog,
            abilities,
            is_sips,
            sdp,
            credentials,
            is_behind_nat,
            ..
        } = *successor;
        dialog.confirm();
        let mut leg = Leg::begun(flow);
        leg.keep_alive = is_behind_nat.then(|| keep_alive::schedule(cx, self.key, side));
        leg.abilities = abilities;
        leg.is_sips = is_sips;
        if let Some(sdp) = sdp.as_deref().filter(|_| side == Side::Caller) {
            self.held.take_offer(sdp);
        }
        leg.heard = sdp;
        leg.credentials = credentials.map(Box::new);
        let mut old = match (side, &mut self.speaker) {
            (Side::Caller, _) => std::mem::replace(&mut self.caller, leg),
            (Side::Agent, Speaker::Runtime(held)) => std::mem::replace(held, leg),
            (Side::Agent, Speaker::Echo(_)) => return,
        };
        cx.cancel_timer(&mut old.session_timer);
        cx.cancel_timer(&mut old.keep_alive);
        let Some(before) = old.dialogs.into_iter().next() else {
            return;
        };
        let fork = before.fork;
        if let Some(tag) = cx.core.minter.read_tag(before.dialog.local_tag())
            && let Some(owner) = cx.core.tags.get_mut(&tag.bits)
        {
            owner.fork = LEFT;
        }
        for pending in &mut self.pending {
            if pending.side == side {
                pending.fork = LEFT;
                let purpose = std::mem::replace(&mut pending.purpose, Purpose::Again);
                if let Purpose::Relay(server) = purpose {
                    cx.respond(server, 487, None, |_| {}, b"");
                }
            }
        }
        if let Some(leg) = self.leg(side) {
            leg.places.left = Some(Box::new(Former {
                flow: old.flow,
                places: old.places,
            }));
            leg.dialogs.push(ForkDialog { fork, dialog });
            leg.dialogs.push(ForkDialog {
                fork: LEFT,
                ..before
            });
        }
        match side {
            Side::Caller => {
                self.proposed = None;
                self.invite = Some(server);
                self.phase = Phase::Answered;
            }
            Side::Agent => self.agent_succeeded(cx),
        }
        let bye = (Method::Bye, "BYE");
        let own = (Purpose::Own, false, RequestOrigin::Ours);
        self.send_on_leg(cx, side, LEFT, bye, own, b"", |_| {});
    }

    /// The agent has handed its caller to whoever it spoke with in another call.
    fn agent_succeeded(&mut self, cx: &mut Cx<'_>) {
        self.drop_hold(cx);
        self.bridged = Some(Bridged::uncounted());
        if let Some(permit) = &mut self.permit {
            permit.release(self.agent);
        }
    }
}
