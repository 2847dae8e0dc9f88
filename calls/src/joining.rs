//! Both ends get each other's media where we have called one of them ourselves: the caller (of an outbound call: the callee) is
//! re-INVITEd with the other's SDP, the other with what the caller changes in it (RFC 3725 §4.4). Where the other then changes its own
//! again, both might go on so for ever: the caller is asked for an offer, the other gets it, and its answer goes into the ACK (§4.3).
//!
//! An agent whose place is taken stays until the caller has the new media.

use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message, Method};

use super::call::{Call, Delayed, ForkDialog, LEFT, Pending, Phase, Purpose, Side, Speaker};
use super::context::{CallTimer, Cx};
use super::effect::Effect;
use super::refusal::Reason;
use super::request_origin::RequestOrigin;
use super::session::glare_wait;
use super::{hangup, has_sdp, origin};

/// Re-INVITEs of ours until both sides have each other's media.
const MAX_ROUNDS: u8 = 8;
/// How long to wait before a re-INVITE that something else stands in the way of.
const JOIN_PAUSE: Duration = Duration::from_millis(500);
/// The longest wait that a callee may ask for before the next re-INVITE, in seconds.
const MAX_RETRY_AFTER: u32 = 10;

/// In `Reason` of the two re-INVITEs of the last round: the trace knows them by it.
pub const UNSETTLED: &str = "Both ends answer with another SDP each time";

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
    last: LastRound,
    /// The agent whose place is taken still waits for its BYE.
    keeps_agent: bool,
    /// Re-INVITEs of ours so far.
    rounds: u8,
    timer: Option<TimerId>,
}

/// The round that ends all others, since each end gets what the other says in it.
#[derive(Debug, Default)]
enum LastRound {
    /// It wasn't needed so far.
    #[default]
    Unneeded,
    /// The caller is to be asked for an offer. `answer` is what it gets if the agent's side refuses that offer.
    Due { answer: Box<[u8]> },
    /// The agent's side is to answer the caller's offer, which waits for its ACK.
    Offered { delayed: Delayed, answer: Box<[u8]> },
    /// It is over.
    Over,
}

impl Joining {
    /// The agent's side is offered the caller's SDP.
    pub(crate) fn with(heard: Box<[u8]>) -> Self {
        Self {
            heard,
            ..Self::default()
        }
    }

    /// The same, while the agent whose place is taken waits for the caller to have the new media.
    pub(crate) fn keeping_agent(heard: Box<[u8]>) -> Self {
        Self {
            keeps_agent: true,
            ..Self::with(heard)
        }
    }

    /// Returns whether an offer of the caller's waits for its answer in our ACK.
    const fn is_asking(&self) -> bool {
        matches!(self.last, LastRound::Offered { .. })
    }

    const fn last_is_due(&self) -> bool {
        matches!(self.last, LastRound::Due { .. } | LastRound::Offered { .. })
    }

    /// The caller's 2xx whose ACK waits.
    const fn delayed(&self) -> Option<&Delayed> {
        match &self.last {
            LastRound::Offered { delayed, .. } => Some(delayed),
            LastRound::Unneeded | LastRound::Due { .. } | LastRound::Over => None,
        }
    }

    pub(crate) const fn take_timer(&mut self) -> Option<TimerId> {
        self.timer.take()
    }
}

impl Call {
    /// Whether the two don't have each other's media yet.
    pub(crate) fn is_joining(&self) -> bool {
        let waits = |joining: &Joining| {
            joining.join.is_some() || joining.follow.is_some() || joining.last_is_due()
        };
        self.joining.as_deref().is_some_and(waits)
    }

    /// Returns whether the caller's offer waits for the other's answer: nothing else can be agreed on then.
    pub(crate) fn is_asking(&self) -> bool {
        self.joining.as_deref().is_some_and(Joining::is_asking)
    }

    /// Returns whether this is the transaction of a 2xx whose ACK waits for the other's answer.
    pub(crate) fn asks_by(&self, client: ClientTx) -> bool {
        let delayed = self.joining.as_deref().and_then(Joining::delayed);
        delayed.is_some_and(|delayed| delayed.client == client)
    }

    /// Returns whether the agent whose place is taken still waits for its BYE.
    pub(crate) fn keeps_agent(&self) -> bool {
        let joining = self.joining.as_deref();
        joining.is_some_and(|joining| joining.keeps_agent)
    }

    /// Notes that the agent whose place is taken needs no BYE any more.
    pub(crate) fn agent_has_left(&mut self) {
        if let Some(joining) = self.joining.as_deref_mut() {
            joining.keeps_agent = false;
        }
    }

    /// Sends BYE to the agent whose place is taken, if it waits for that.
    pub(crate) fn part_from_agent(&mut self, cx: &mut Cx<'_>) {
        if self.keeps_agent() {
            self.agent_has_left();
            let bye = (Method::Bye, "BYE");
            self.send_on_leg(
                cx,
                Side::Agent,
                LEFT,
                bye,
                (Purpose::Own, false, RequestOrigin::Ours),
                b"",
                |_| {},
            );
        }
    }

    /// Ends what waits, since the call is over: BYE to the agent, and an answer with port 0 to an open offer.
    pub(crate) fn abandon_joining(&mut self, cx: &mut Cx<'_>) {
        self.part_from_agent(cx);
        if let LastRound::Offered { delayed, .. } = self.end_last_round() {
            self.reject_offer(cx, Side::Caller, &delayed);
        }
    }

    fn end_last_round(&mut self) -> LastRound {
        self.joining
            .as_deref_mut()
            .map_or(LastRound::Over, |joining| {
                std::mem::replace(&mut joining.last, LastRound::Over)
            })
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
        let (side, purpose, body) = match (&joining.join, &joining.follow, &joining.last) {
            (Some(sdp), _, _) => (Side::Caller, Purpose::Join, sdp.clone()),
            (None, Some(sdp), _) => (Side::Agent, Purpose::Follow, sdp.clone()),
            (None, None, LastRound::Due { .. }) => {
                (Side::Caller, Purpose::AskOffer, Box::default())
            }
            (None, None, LastRound::Offered { delayed, .. }) => {
                (Side::Agent, Purpose::AnswerOffer, delayed.offer.clone())
            }
            (None, None, LastRound::Unneeded | LastRound::Over) => return,
        };
        if busy {
            return self.join_later(cx, JOIN_PAUSE);
        }
        if joining.rounds == MAX_ROUNDS {
            return self.give_up_joining(cx, purpose);
        }
        joining.rounds += 1;
        let Some(fork) = self.caller.dialogs.first().map(|held| held.fork) else {
            return;
        };
        let lines = |head: &mut Head<'_>| {
            if matches!(purpose, Purpose::AskOffer | Purpose::AnswerOffer) {
                head.fmt("Reason", format_args!("SIP;cause=200;text=\"{UNSETTLED}\""));
            }
            if !body.is_empty() {
                head.line("Content-Type", b"application/sdp");
            }
        };
        let invite = (Method::Invite, "INVITE");
        if !self.send_on_leg(
            cx,
            side,
            fork,
            invite,
            (purpose, true, RequestOrigin::Ours),
            &body,
            lines,
        ) {
            self.join_later(cx, JOIN_PAUSE);
        }
    }

    /// The way broke under a re-INVITE of ours.
    pub(crate) fn join_again(&mut self, cx: &mut Cx<'_>) {
        self.join_later(cx, JOIN_PAUSE);
    }

    /// Ends a call whose ends refuse each other's media. Where only the last round fails, the call goes on with what was agreed before.
    fn give_up_joining(&mut self, cx: &mut Cx<'_>, purpose: Purpose) {
        if matches!(purpose, Purpose::AskOffer | Purpose::AnswerOffer) {
            self.keep_last_answer(cx);
        } else {
            self.hang_up(cx, Reason::JoinRefused);
        }
    }

    /// Ends the last round: an offer that waits gets the last answer that the other end gave before.
    fn keep_last_answer(&mut self, cx: &mut Cx<'_>) {
        if let LastRound::Offered { delayed, answer } = self.end_last_round() {
            self.acknowledge_offer(cx, &delayed, &answer);
        }
    }

    fn acknowledge_offer(&mut self, cx: &mut Cx<'_>, delayed: &Delayed, answer: &[u8]) {
        let content = Some((&b"Content-Type: application/sdp\r\n"[..], answer));
        let (fork, client, cseq) = (delayed.fork, delayed.client, delayed.cseq);
        self.remember_sdp(Side::Caller, answer);
        self.send_ack(cx, Side::Caller, fork, client, cseq, content);
        self.caller.heard = Some(delayed.offer.clone());
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
        let differs = has_sdp(message) && !origin::is_same_media(&joining.told, message.body());
        if differs && matches!(joining.last, LastRound::Unneeded) {
            let answer = message.body().into();
            joining.last = LastRound::Due { answer };
            self.send_join(cx);
        }
    }

    /// Handles the caller's answer to the re-INVITE that asks it for an offer.
    pub(crate) fn on_offer_asked(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        if message.status() >= 300 || !has_sdp(message) {
            if self.takes_join(cx, flow, pending, message) {
                self.end_last_round();
            }
            return;
        }
        self.caller.flow = flow;
        self.note_refresh(cx, pending, message);
        let Some(joining) = self.joining.as_deref_mut() else {
            return;
        };
        let answer = match std::mem::take(&mut joining.last) {
            LastRound::Due { answer } => answer,
            LastRound::Unneeded | LastRound::Offered { .. } | LastRound::Over => Box::default(),
        };
        joining.heard = message.body().into();
        joining.last = LastRound::Offered {
            delayed: Delayed {
                client: pending.client,
                fork: pending.fork,
                cseq: pending.cseq,
                offer: message.body().into(),
            },
            answer,
        };
        self.send_join(cx);
    }

    /// Handles the other's answer to the caller's offer: it goes into the ACK that waits.
    pub(crate) fn on_offer_answered(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        if !self.takes_join(cx, flow, pending, message) {
            return;
        }
        let LastRound::Offered { delayed, answer } = self.end_last_round() else {
            return;
        };
        match has_sdp(message) {
            true => self.acknowledge_offer(cx, &delayed, message.body()),
            false => self.acknowledge_offer(cx, &delayed, &answer),
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
                let wait = glare_wait(Side::Agent, cx.endpoint.chance().bits64());
                self.join_later(cx, wait);
            }
            (500 | 503, Some(after)) => {
                self.join_later(cx, Duration::from_secs(u64::from(after)).max(JOIN_PAUSE));
            }
            _ => self.give_up_joining(cx, pending.purpose),
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
        self.part_from_agent(cx);
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
