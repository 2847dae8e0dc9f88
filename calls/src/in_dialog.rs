//! Requests inside a call: each is checked against its dialog, answered here or relayed to the other leg
//! (RFC 3261 §12.2).

use trunkline_model::view::OrgView;
use trunkline_sip::endpoint::ServerTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::allow::capabilities;
use super::bridge::Bridge;
use super::call::Call;
use super::call_status::CallStatus;
use super::context::Cx;
use super::crossing::lacking_options;
use super::ids::LegId;
use super::ids::owner_of;
use super::leg::{LegState, Lost};
use super::own_request::{Pending, Purpose};
use super::pbx::Pbx;
use super::provisional_relay::HeldAnswer;
use super::relay::Relay;
use super::reoffer::{Reoffer, ReofferProgress};
use super::transfer::TransferEvent;
use super::transferring::ReferRequest;
use super::{has_sdp, sdp_of};

/// Answers of one call that may wait for their ACK at once.
const MAX_AWAITED: usize = 8;

impl Bridge {
    /// Returns whether a request of the PBX with this method shows that it still has the caller.
    fn shows_caller(&self, method: Method) -> bool {
        let pbx = self.trunk().and_then(|trunk| trunk.abilities.pbx);
        let offers_anyway = pbx.is_some_and(Pbx::offers_without_caller);
        let may_be_offer = matches!(method, Method::Invite | Method::Update);

        // BYE and NOTIFY are also accepted without a caller.
        let is_accepted_anyway = matches!(method, Method::Bye | Method::Notify);
        !(is_accepted_anyway || may_be_offer && offers_anyway)
    }

    /// Answers a request other than BYE of a leg that isn't connected with another: it was replaced, or doesn't replace one yet. `arriving`: the leg
    /// of a destination that does so later.
    fn answer_apart(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        server: ServerTx,
        message: &Message<'_>,
        arriving: Option<LegId>,
    ) {
        let method = message.method();
        if arriving != Some(id) {
            return cx.respond(server, 481, None, |_| {}, b"");
        }

        // A destination whose media the caller doesn't have yet: its dialog exists, and a 481 would end it.
        if let Some(lacking) = lacking_options(message) {
            return refuse_options(cx, server, &lacking);
        }
        let methods = self.methods(id);
        match method {
            Method::Options => {
                cx.respond(server, 200, None, |head| capabilities(head, methods), b"");
            }
            Method::Info => cx.respond(server, 200, None, |_| {}, b""),
            Method::Message => cx.respond(server, 480, None, |_| {}, b""),
            Method::Invite
            | Method::Ack
            | Method::Bye
            | Method::Cancel
            | Method::Register
            | Method::Prack
            | Method::Update
            | Method::Refer
            | Method::Notify
            | Method::Subscribe
            | Method::Publish
            | Method::Other => cx.respond(server, 491, None, |_| {}, b""),
        }
    }

    /// Handles BYE from a leg that isn't connected with another.
    fn on_apart_bye(&mut self, cx: &mut Cx<'_>, id: LegId) {
        self.legs.stop_timers(cx, id);
        self.legs.set_state(id, LegState::Gone);
        if let Some(peer) = self.legs.sip_mut(id) {
            peer.dialogs.clear();
        }
    }

    /// Returns the loss of a leg whose peer has lost the dialog of a request, as 481, 408 and silence say (RFC 3261 §12.2.1.2). Only the dialog that
    /// the call goes by counts: an early one, or that of a fork that has lost, may be gone while its INVITE goes on (§13.2.2.4).
    pub(crate) fn lost_by(&self, pending: &Pending, status: u16) -> Option<Lost> {
        let is_gone = matches!(status, 408 | 481) && pending.method != Method::Prack;
        let is_up = self.status() != CallStatus::SettingUp;
        let is_lost = is_gone && is_up && self.has_fork(pending.leg, pending.fork);
        is_lost.then(|| Lost::of(status))
    }
}

impl Relay<'_> {
    /// Relays a request to the other leg; an agent with media of ours accepts every request.
    fn request(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        server: ServerTx,
        message: &Message<'_>,
    ) {
        if self.bridge.is_local() {
            return cx.respond(server, 200, None, |_| {}, b"");
        }
        // The trunk's leg has answered or been answered, and its agent is still being called.
        let is_early =
            self.bridge.status() == CallStatus::SettingUp && self.bridge.legs.session(id).is_some();
        if self.bridge.is_trunk(id) && is_early {
            return answer_alone(cx, server, message);
        }

        let (method, purpose) = (message.method(), Purpose::Relay(server));
        let other = self.bridge.other(id);
        let sent = self.send(cx, other, fork, method, purpose, Some(message), |_| {});
        if sent.is_none() {
            cx.respond(server, 481, None, |_| {}, b"");
        }
    }
}

impl Call {
    /// Handles a request with the tags of this call. `org` is given if the request may ask for a transfer.
    pub(crate) fn on_request(
        &mut self,
        cx: &mut Cx<'_>,
        id: LegId,
        fork: u8,
        flow: Flow,
        message: &Message<'_>,
        org: Option<&OrgView>,
    ) {
        let method = message.method();
        let is_full = self.bridge.requests.is_full()
            || (method == Method::Invite && self.bridge.awaited().count() >= MAX_AWAITED);

        // A BYE needs no room: it ends the call.
        if is_full && method != Method::Bye {
            return busy(cx, flow, message);
        }
        let leg = self.bridge.legs.get_mut(id);
        if !leg.is_some_and(|leg| leg.allowance.take(method, cx.now)) {
            return busy(cx, flow, message);
        }
        let Ok(server) = cx
            .endpoint
            .accept(message, flow, owner_of(Some(self.bridge.key)), cx.now)
        else {
            return busy(cx, flow, message);
        };
        let Some(leg) = self.bridge.legs.sip_mut(id) else {
            return;
        };
        let in_order = leg
            .dialog(fork)
            .is_some_and(|dialog| dialog.receive_request(message).is_ok());
        if !in_order {
            return cx.respond(server, 500, None, |head| head.number("Retry-After", 0), b"");
        }

        // Only a request in order moves the flow: an old one that was captured may be sent again from any address.
        leg.flow = flow;
        self.bridge.legs.hear(id, cx.now);
        if self.bridge.has_left(id) {
            if method != Method::Bye {
                let arriving = self.joining.arriving();
                return self.bridge.answer_apart(cx, id, server, message, arriving);
            }
            cx.respond(server, 200, None, |_| {}, b"");
            self.bridge.on_apart_bye(cx, id);
            return self.end_if_lost(cx, id, Some(Lost::of(487)));
        }

        // RFC 3261 §16.3: Max-Forwards isn't checked for requests that end here.
        let is_relayed = matches!(method, Method::Invite | Method::Info | Method::Message)
            || (method == Method::Update && has_sdp(message));
        let crosses = is_relayed && !self.bridge.is_local();
        if crosses && message.number(HeaderName::MaxForwards) == Some(0) {
            return cx.respond(server, 483, None, |_| {}, b"");
        }

        if let Some(lacking) = lacking_options(message) {
            return refuse_options(cx, server, &lacking);
        }

        let is_over = self.bridge.status() == CallStatus::Over;
        if is_over && !matches!(message.method(), Method::Bye | Method::Notify) {
            return cx.respond(server, 481, None, |_| {}, b"");
        }

        if self.bridge.is_trunk(id) && self.bridge.shows_caller(method) {
            self.on_transfer(cx, TransferEvent::CallerHeard);
        }

        let methods = self.bridge.methods(id);
        match message.method() {
            Method::Bye => self.on_bye(cx, id, fork, server, message),
            Method::Invite | Method::Update => {
                let reoffer = Reoffer {
                    leg: id,
                    fork,
                    server,
                    message,
                    joining: self.joining.phase(),
                    has_agent_left: self.transfer.has_agent_left(&self.bridge),
                };
                match method == Method::Invite {
                    true => self.relaying().on_reinvite(cx, &reoffer),
                    false => self.relaying().on_update(cx, &reoffer),
                }
            }
            Method::Prack if self.bridge.is_trunk(id) => {
                let held = self.relaying().on_prack(cx, fork, server, message);
                if let Some(HeldAnswer { won, answer }) = held {
                    let progress = self.relaying().pass_answer(cx, won, answer.message());
                    self.apply_answer(cx, progress);
                }
            }
            Method::Info | Method::Message => {
                match self.bridge.is_trunk(id) && self.transfer.has_agent_left(&self.bridge) {
                    true => answer_alone(cx, server, message),
                    false => self.relaying().request(cx, id, fork, server, message),
                }
                if let Some(digit) = self.bridge.take_key(cx, message) {
                    self.press(cx, org, digit);
                }
            }
            Method::Options => {
                cx.respond(server, 200, None, |head| capabilities(head, methods), b"");
            }
            Method::Prack | Method::Cancel | Method::Ack => {
                cx.respond(server, 481, None, |_| {}, b"")
            }
            Method::Notify => {
                let news = self
                    .transfer
                    .on_notify(&self.bridge, cx, id, server, message);
                if let Some(event) = news {
                    self.on_transfer(cx, event);
                }
            }
            Method::Refer => {
                let refer = ReferRequest {
                    leg: id,
                    fork,
                    server,
                    message,
                    org,
                };
                let (bridge, of) = (&self.bridge, self.transferee());
                if let Some(new) = self.transfer.on_refer(bridge, cx, &of, &refer) {
                    self.begin_transfer(cx, new);
                }
            }
            Method::Subscribe | Method::Publish | Method::Register => {
                cx.respond(server, 405, None, |head| head.line("Allow", methods), b"");
            }
            Method::Other => {
                cx.respond(server, 501, None, |head| head.line("Allow", methods), b"");
            }
        }
    }

    /// Handles the final answer to a request of ours inside the call.
    pub(crate) fn on_in_dialog_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: Pending,
        message: &Message<'_>,
    ) {
        let may_stay =
            !self.bridge.has_left(pending.leg) || self.joining.arriving() == Some(pending.leg);
        let is_life = !matches!(message.status(), 408 | 481) && may_stay;
        if is_life {
            self.bridge.legs.hear(pending.leg, cx.now);
        }

        let (org, direction) = (self.ids.org, self.direction());
        let unproven = self.bridge.prove(cx, org, direction, pending, message);
        let Some(pending) = unproven else {
            return;
        };

        match (pending.purpose, pending.method) {
            (Purpose::Own, Method::Invite) => {
                if let Some(leg) = self.bridge.legs.get_mut(pending.leg) {
                    leg.settle_late(cx, &pending, message);
                }
            }
            // The 481 to a NOTIFY ends its subscription (RFC 6665 §4.2.2), not the call.
            (Purpose::Own, Method::Notify) if message.status() == 481 => {
                self.on_transfer(cx, TransferEvent::Unsubscribed);
            }
            (Purpose::Own | Purpose::SecondBye, _) => {}
            (Purpose::Stale, method) => {
                if let Some(mut leg) = self.bridge.at(pending.leg) {
                    if method == Method::Invite {
                        leg.leg.settle_late(cx, &pending, message);
                    }
                    if message.status() < 300 {
                        leg.note_refresh(cx, &pending, message);
                    }
                }
                if message.status() < 300 {
                    self.holding.restore(&mut self.bridge, cx, pending.leg);
                }
                let lost = self.bridge.lost_by(&pending, message.status());
                self.end_if_lost(cx, pending.leg, lost);
            }
            (Purpose::Join(_), _) => {
                let sdp = has_sdp(message).then(|| sdp_of(message.body()));
                let bridge = &mut self.bridge;
                match self.joining.on_answer(bridge, cx, flow, &pending, message) {
                    Ok(progress) => self.apply_join_progress(cx, progress, sdp),
                    Err(lost) => self.end_if_lost(cx, pending.leg, Some(lost)),
                }
            }
            (Purpose::Hold, _) => {
                let bridge = &mut self.bridge;
                match self.holding.on_answer(bridge, cx, flow, &pending, message) {
                    Ok(audio) => self.relaying().update_media(cx, audio),
                    Err(lost) => self.end_if_lost(cx, pending.leg, Some(lost)),
                }
            }
            (Purpose::Transfer, _) => {
                let (org, direction) = (self.ids.org, self.direction());
                let challenger = self.bridge.challenger(pending.leg, org, direction);
                let bridge = &self.bridge;
                let event = self
                    .transfer
                    .on_refer_answer(bridge, cx, challenger, &pending, message);
                self.on_transfer(cx, event);
            }
            (Purpose::Probe, _) => {
                if let Some(mut leg) = self
                    .bridge
                    .at(pending.leg)
                    .filter(|_| message.status() < 300)
                {
                    leg.note_refresh(cx, &pending, message);
                }
                self.on_transfer(cx, TransferEvent::of_probe(message.status()));
            }
            (Purpose::Refresh, _) => {
                let leg = self.bridge.at(pending.leg);
                let lost =
                    leg.and_then(|mut leg| leg.on_refresh_answer(cx, flow, &pending, message));
                self.end_if_lost(cx, pending.leg, lost);
                // A hold or a transfer that is under way negotiates the media itself.
                let hold = &self.holding.hold;
                let is_free = !hold.is_held() && !hold.is_turning() && !self.transfer.goes_on();
                if is_free && pending.method == Method::Invite && message.status() < 300 {
                    let sdp = has_sdp(message).then(|| sdp_of(message.body()));
                    let bridge = &self.bridge;
                    let progress = self.joining.on_refreshed(bridge, pending.leg, sdp, cx.now);
                    self.apply_join_progress(cx, progress, sdp);
                }
            }
            (Purpose::Relay(_), Method::Invite) => {
                let mut relay = self.relaying();
                match relay.on_reinvite_answer(cx, flow, &pending, message) {
                    Ok(ReofferProgress::Nothing) => {}
                    Ok(ReofferProgress::AgentReplaced) => {
                        if let Some(permit) = &mut self.permit {
                            permit.release(self.ids.agent);
                        }
                    }
                    Ok(ReofferProgress::TrunkOffered) => {
                        // The callee's own re-INVITE has brought it the runtime's media.
                        if self.joining.arriving().is_none() {
                            let progress = self.joining.on_crossed();
                            self.apply_join_progress(cx, progress, None);
                        }
                    }
                    Err(lost) => self.end_if_lost(cx, pending.leg, Some(lost)),
                }
            }
            (Purpose::Relay(server), _) => {
                self.relaying().answer(cx, &pending, server, message);
                let lost = self.bridge.lost_by(&pending, message.status());
                self.end_if_lost(cx, pending.leg, lost);
            }
        }
    }
}

/// Answers INFO or MESSAGE of a peer whose agent hasn't answered yet or has left: a 481 would end its dialog (RFC 3261 §12.2.1.2) before its agent or
/// its transfer is through.
fn answer_alone(cx: &mut Cx<'_>, server: ServerTx, message: &Message<'_>) {
    let status = match message.method() == Method::Info {
        true => 200,
        false => 480,
    };
    cx.respond(server, status, None, |_| {}, b"");
}

/// Refuses a request whose `Require` names options that aren't known here (RFC 3261 §8.2.2.3).
fn refuse_options(cx: &mut Cx<'_>, server: ServerTx, lacking: &[u8]) {
    cx.respond(
        server,
        420,
        None,
        |head| head.line("Unsupported", lacking),
        b"",
    );
}

/// Refuses a request for lack of room: the peer may retry.
pub(crate) fn busy(cx: &mut Cx<'_>, flow: Flow, message: &Message<'_>) {
    let retry_after = u64::from(cx.core.config.retry_after);
    cx.core.stateless(cx.endpoint, message, flow, 503, |head| {
        head.number("Retry-After", retry_after);
    });
}
