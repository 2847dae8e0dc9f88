//! Both ends of an outbound call get each other's media: the callee is re-INVITEd with the runtime's SDP, the runtime with what
//! the callee changes in it, until both agree (RFC 3725 §4.4).

use std::time::Duration;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::call::{Call, ForkDialog, Pending, Phase, Purpose, Side, Speaker};
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

impl Call {
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
        if let Some(setup) = self.setup.take() {
            cx.release_setup(&setup);
        }
        if let Speaker::Runtime(leg) = &mut self.speaker {
            leg.dialogs.clear();
            leg.dialogs.push(ForkDialog { fork: 0, dialog });
        }
        self.open_runtime_leg(cx, flow, message);
        self.send_ack(cx, Side::Agent, 0, client, 1, None);
        self.phase = Phase::Confirmed;
        self.limit_duration(cx);
        self.start_session(cx, Side::Agent);
        cx.core.fact(Fact::Joined {
            call: self.id,
            org: self.org,
            runtime_call_id: String::from_utf8_lossy(message.call_id()).into(),
        });
        let Some(outbound) = self.outbound.as_deref_mut() else {
            return;
        };
        let heard = outbound.heard.clone();
        self.remember_sdp(Side::Agent, &heard);
        if !has_sdp(message) {
            return self.hang_up(cx, Reason::NoCommonMedia);
        }
        self.join(cx, message.body());
    }

    /// The callee is to hear `sdp` of the runtime.
    fn join(&mut self, cx: &mut Cx<'_>, sdp: &[u8]) {
        if let Some(outbound) = self.outbound.as_deref_mut() {
            outbound.join = Some(sdp.into());
        }
        self.send_join(cx);
    }

    /// Sends the re-INVITE that is due, or waits until nothing else is being agreed.
    pub(crate) fn send_join(&mut self, cx: &mut Cx<'_>) {
        let busy = self.pending.iter().any(|pending| pending.offers) || !self.awaited.is_empty();
        let Some(outbound) = self.outbound.as_deref_mut() else {
            return;
        };
        outbound.timer = None;
        let due = match (&outbound.join, &outbound.follow) {
            (Some(sdp), _) => (Side::Caller, Purpose::Join, sdp.clone()),
            (None, Some(sdp)) => (Side::Agent, Purpose::Follow, sdp.clone()),
            (None, None) => return,
        };
        if busy {
            return self.join_later(cx, JOIN_PAUSE);
        }
        if outbound.rounds == MAX_ROUNDS {
            return self.hang_up(cx, Reason::JoinRefused);
        }
        outbound.rounds += 1;
        let (side, purpose, body) = due;
        let lines = |head: &mut Head<'_>| head.line("Content-Type", b"application/sdp");
        let invite = (Method::Invite, "INVITE");
        if !self.send_on_leg(cx, side, 0, invite, (purpose, true, 0), &body, lines) {
            self.join_later(cx, JOIN_PAUSE);
        }
    }

    fn join_later(&mut self, cx: &mut Cx<'_>, wait: Duration) {
        let timer = cx.schedule(self.key, wait, CallTimer::Join);
        if let Some(outbound) = self.outbound.as_deref_mut() {
            cx.cancel_timer(&mut outbound.timer);
            outbound.timer = Some(timer);
        }
    }

    /// The callee's answer to the re-INVITE that joins the two.
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
        let Some(outbound) = self.outbound.as_deref_mut() else {
            return;
        };
        // What was agreed with our own address may be another thing with the runtime's.
        if has_sdp(message) && !origin::is_same_media(&outbound.heard, message.body()) {
            outbound.heard = message.body().into();
            outbound.follow = Some(message.body().into());
            self.send_join(cx);
        }
    }

    /// The runtime's answer to the re-INVITE with what the callee has changed.
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
        let Some(outbound) = self.outbound.as_deref_mut() else {
            return;
        };
        outbound.follow = None;
        if has_sdp(message) && !origin::is_same_media(&outbound.told, message.body()) {
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
                self.send_ack(cx, pending.side, 0, pending.client, pending.cseq, None);
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
        let key = self.key;
        let Some(outbound) = self.outbound.as_deref_mut() else {
            return;
        };
        if let Some(sdp) = outbound.join.take() {
            outbound.told = sdp;
        }
        outbound.follow = None;
        cx.cancel_timer(&mut outbound.timer);
        if outbound.media.take().is_some() {
            cx.core.effects.push(Effect::CloseEcho { call: key });
        }
    }
}
