//! Both ends get each other's media where we have called one of them ourselves: the caller (of an outbound call: the callee) is
//! re-INVITEd with the other's SDP, the other with what the caller changes in it, until both agree (RFC 3725 §4.4).

use std::time::Duration;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::call::{Call, ForkDialog, OURS, Pending, Phase, Purpose, Side, Speaker};
use super::context::{CallTimer, Cx};
use super::effect::Effect;
use super::record::Fact;
use super::refusal::Reason;
use super::session::glare_wait;
use super::{hangup, has_sdp, origin};

/// Re-INVITEs of ours until both sides have each other's media.
const MAX_ROUNDS: u8 = 8;
/// How long to wait before a re-INVITE that something else stands in the way of.
const JOIN_PAUSE: Duration = Duration::from_millis(500);
/// The longest wait that a callee may ask for before the next re-INVITE, in seconds.
const MAX_RETRY_AFTER: u32 = 10;

/// How far both ends have each other's media.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    /// The caller's SDP as the agent's side knows it.
    heard: Box<[u8]>,
    /// The SDP of the agent's side, until the caller has it.
    join: Option<Box<[u8]>>,
    /// The SDP of the agent's side as the caller has it.
    told: Box<[u8]>,
    /// The caller's new SDP, until the agent's side has it.
    follow: Option<Box<[u8]>>,
    /// Re-INVITEs of ours so far.
    rounds: u8,
    timer: Option<TimerId>,
}

impl Joining {
    /// The agent's side is offered the caller's SDP.
    pub(crate) fn with(heard: Box<[u8]>) -> Self {
        Self {
            heard,
            ..Self::default()
        }
    }

    pub(crate) const fn take_timer(&mut self) -> Option<TimerId> {
        self.timer.take()
    }
}

impl Call {
    /// Whether the two don't have each other's media yet.
    pub(crate) fn is_joining(&self) -> bool {
        let waits = |joining: &Joining| joining.join.is_some() || joining.follow.is_some();
        self.joining.as_deref().is_some_and(waits)
    }

    /// The timer that is to be cancelled with the call.
    pub(crate) fn joining_timer(&self) -> Option<TimerId> {
        self.joining.as_deref()?.timer
    }

    /// The runtime has answered with its SDP: the callee is to have it.
    pub(crate) fn on_runtime_joins(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        client: ClientTx,
        message: &Message<'_>,
    ) {
        let uri = self
            .setup
            .as_deref()
            .and_then(|setup| setup.current.as_ref())
            .map(|target| target.uri.clone())
            .unwrap_or_default();
        let Some(dialog) = Dialog::uac(uri.as_bytes(), message) else {
            hangup::refuse_late_answer(cx, flow, Some(client), message);
            return self.refuse(cx, Reason::RuntimeRefused);
        };
        if self.is_out_of_reach(message) {
            hangup::refuse_late_answer(cx, flow, Some(client), message);
            return self.refuse(cx, Reason::MediaFamilies);
        }
        let setup = self.setup.take();
        if let Some(setup) = &setup {
            cx.release_setup(setup);
            self.keep_runtime_credentials(setup);
        }
        if let Speaker::Runtime(leg) = &mut self.speaker {
            leg.dialogs.clear();
            leg.dialogs.push(ForkDialog { fork: 0, dialog });
        }
        self.open_runtime_leg(cx, flow, message);
        let lines = setup.map(|setup| self.runtime_ack_lines(cx, 0, &setup));
        let (cseq, lines) = (u32::from(self.runtime_cseq), lines.unwrap_or_default());
        self.send_ack(cx, Side::Agent, 0, client, cseq, Some((&lines, b"")));
        self.phase = Phase::Confirmed;
        self.limit_duration(cx);
        self.start_session(cx, Side::Agent);
        cx.core.fact(Fact::Joined {
            call: self.id,
            org: self.org,
            runtime_call_id: String::from_utf8_lossy(message.call_id()).into(),
        });
        let heard = self.joining.as_deref().map(|joining| joining.heard.clone());
        let heard = heard.unwrap_or_default();
        self.remember_sdp(Side::Agent, &heard);
        self.with_origin(Side::Agent, &heard);
        if !has_sdp(message) {
            return self.hang_up(cx, Reason::NoCommonMedia);
        }
        self.join(cx, message.body());
    }

    /// The caller is to hear `sdp` of the agent's side.
    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, sdp: &[u8]) {
        if let Some(joining) = self.joining.as_deref_mut() {
            joining.join = Some(sdp.into());
        }
        self.send_join(cx);
    }

    /// Sends the re-INVITE that is due, or waits until nothing else is being agreed.
    pub(crate) fn send_join(&mut self, cx: &mut Cx<'_>) {
        let busy = self.pending.iter().any(|pending| pending.offers) || !self.awaited.is_empty();
        let Some(joining) = self.joining.as_deref_mut() else {
            return;
        };
        cx.cancel_timer(&mut joining.timer);
        let due = match (&joining.join, &joining.follow) {
            (Some(sdp), _) => (Side::Caller, Purpose::Join, sdp.clone()),
            (None, Some(sdp)) => (Side::Agent, Purpose::Follow, sdp.clone()),
            (None, None) => return,
        };
        if busy {
            return self.join_later(cx, JOIN_PAUSE);
        }
        if joining.rounds == MAX_ROUNDS {
            return self.hang_up(cx, Reason::JoinRefused);
        }
        joining.rounds += 1;
        let (side, purpose, body) = due;
        let Some(fork) = self.caller.dialogs.first().map(|held| held.fork) else {
            return;
        };
        let lines = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
        let invite = (Method::Invite, "INVITE");
        if !self.send_on_leg(cx, side, fork, invite, (purpose, true, OURS), &body, lines) {
            self.join_later(cx, JOIN_PAUSE);
        }
    }

    /// The way broke under a re-INVITE of ours.
    pub(crate) fn join_again(&mut self, cx: &mut Cx<'_>) {
        self.join_later(cx, JOIN_PAUSE);
    }

    fn join_later(&mut self, cx: &mut Cx<'_>, wait: Duration) {
        let timer = cx.schedule(self.key, wait, CallTimer::Join);
        match self.joining.as_deref_mut() {
            Some(joining) => {
                cx.cancel_timer(&mut joining.timer);
                joining.timer = Some(timer);
            }
            None => cx.cancel_timer(&mut Some(timer)),
        }
    }

    /// It is time for what had to wait.
    pub(crate) fn on_join_timer(&mut self, cx: &mut Cx<'_>) {
        if let Some(joining) = self.joining.as_deref_mut() {
            joining.timer = None;
        }
        self.send_join(cx);
    }

    /// The caller's answer to the re-INVITE that joins the two.
    pub(crate) fn on_join_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        if !self.takes_join(cx, flow, pending, message) {
            return;
        }
        self.joined(cx);
        if !has_sdp(message) {
            return;
        }
        self.caller.heard = Some(message.body().into());
        let Some(joining) = self.joining.as_deref_mut() else {
            return;
        };
        // What was agreed with other media may be another thing with these.
        if !origin::is_same_media(&joining.heard, message.body()) {
            joining.heard = message.body().into();
            joining.follow = Some(message.body().into());
            self.send_join(cx);
        }
    }

    /// The answer of the agent's side to the re-INVITE with what the caller has changed.
    pub(crate) fn on_follow_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        if !self.takes_join(cx, flow, pending, message) {
            return;
        }
        let Some(joining) = self.joining.as_deref_mut() else {
            return;
        };
        joining.follow = None;
        if has_sdp(message) && !origin::is_same_media(&joining.told, message.body()) {
            self.join(cx, message.body());
        }
    }

    /// Whether a re-INVITE of ours was accepted. If not, it is sent again later, or the call ends.
    fn takes_join(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) -> bool {
        let retry_after = message
            .number(HeaderName::RetryAfter)
            .filter(|after| *after <= MAX_RETRY_AFTER);
        match (message.status(), retry_after) {
            (200..=299, _) => {
                if let Some(leg) = self.leg(pending.side) {
                    leg.flow = flow;
                }
                self.send_ack(
                    cx,
                    pending.side,
                    pending.fork,
                    pending.client,
                    pending.cseq,
                    None,
                );
                self.note_refresh(cx, pending, message);
                return true;
            }
            (408 | 481, _) => self.hang_up(cx, Reason::DialogGone),
            // Both Call-IDs are ours, so the longer wait is ours as well (RFC 3261 §14.1).
            (491, _) => {
                let wait = glare_wait(Side::Agent, cx.endpoint.entropy().bits64());
                self.join_later(cx, wait);
            }
            (500 | 503, Some(after)) => {
                self.join_later(cx, Duration::from_secs(u64::from(after)).max(JOIN_PAUSE));
            }
            _ => self.hang_up(cx, Reason::JoinRefused),
        }
        false
    }

    /// Both hear each other: our own media have no part in it any more.
    pub(crate) fn joined(&mut self, cx: &mut Cx<'_>) {
        if let Some(joining) = self.joining.as_deref_mut() {
            if let Some(sdp) = joining.join.take() {
                joining.told = sdp;
            }
            joining.follow = None;
            cx.cancel_timer(&mut joining.timer);
        }
        let media = self
            .outbound
            .as_deref_mut()
            .and_then(|outbound| outbound.media.take());
        if media.is_some() {
            cx.core
                .effects
                .push_back(Effect::CloseEcho { call: self.key });
        }
    }
}
