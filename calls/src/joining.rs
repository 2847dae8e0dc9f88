//! Both ends get each other's media where we have called one of them ourselves: the caller (of an outbound call: the callee) is
//! re-INVITEd with the other's SDP, the other with what the caller changes in it (RFC 3725 §4.4). Where the other then changes its own
//! again, both might go on so for ever: the caller is asked for an offer, the other gets it, and its answer goes into the ACK (§4.3).
//!
//! A destination that is to take the agent's place arrives: the caller stays connected with the agent until it has accepted the
//! destination's media, and if it refuses them.

use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::dialog::compared::is_same_media;
use trunkline_sip::endpoint::ClientTx;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::bye::ByeContent;
use super::call::{Call, CallStatus, Pending, Purpose, QueuedRequest};
use super::context::Cx;
use super::effect::Effect;
use super::ids::LegId;
use super::invite_client::Accepted;
use super::leg::{Delayed, ForkDialog, LegState, Session};
use super::refusal::Reason;
use super::reply::{PAUSE, Reply};
use super::request_origin::RequestOrigin;
use super::{has_sdp, sdp_of};

/// Time that a re-INVITE may wait for its turn, over all refusals that put it off: as long as glare lasts nobody hears the other, and a
/// person would have hung up by then.
const PATIENCE: Duration = Duration::from_secs(120);

/// In `Reason` of the two re-INVITEs of the last round: the trace knows them by it.
pub const UNSETTLED: &str = "Both ends answer with another SDP each time";

/// Progress of giving both ends each other's media.
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
    /// The destination that is to take the agent's place once the caller has its media.
    arriving: Option<LegId>,
    /// When the re-INVITE that is due is given up.
    until: Moment,
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

    /// A destination was offered the caller's SDP, and is to take the agent's place.
    pub(crate) fn arriving(heard: Box<[u8]>, destination: LegId) -> Self {
        Self {
            arriving: Some(destination),
            ..Self::with(heard)
        }
    }

    /// The caller's SDP as the agent's side knows it.
    pub(crate) const fn heard(&self) -> &[u8] {
        &self.heard
    }

    /// Returns whether an offer of the caller's waits for its answer in our ACK.
    const fn is_asking(&self) -> bool {
        matches!(self.last, LastRound::Offered { .. })
    }

    /// The caller's 2xx whose ACK waits.
    const fn delayed(&self) -> Option<&Delayed> {
        match &self.last {
            LastRound::Offered { delayed, .. } => Some(delayed),
            LastRound::Unneeded | LastRound::Due { .. } | LastRound::Over => None,
        }
    }

    /// Returns what is due next.
    const fn due(&self) -> Option<Purpose> {
        match (&self.join, &self.follow, &self.last) {
            (Some(_), _, _) => Some(Purpose::Join),
            (None, Some(_), _) => Some(Purpose::Follow),
            (None, None, LastRound::Due { .. }) => Some(Purpose::AskOffer),
            (None, None, LastRound::Offered { .. }) => Some(Purpose::AnswerOffer),
            (None, None, LastRound::Unneeded | LastRound::Over) => None,
        }
    }
}

impl Call {
    /// Whether the two don't have each other's media yet.
    pub(crate) fn is_joining(&self) -> bool {
        self.joining.as_deref().and_then(Joining::due).is_some()
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

    /// The destination that is to take the agent's place, which the caller isn't connected with yet.
    pub(crate) fn arriving(&self) -> Option<LegId> {
        self.joining.as_deref()?.arriving
    }

    /// Hangs up on a destination that doesn't take the agent's place after all, and gives up the caller's re-INVITE for it.
    pub(crate) fn send_away(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(destination) = self.arriving() else {
            return false;
        };
        self.joining = None;
        self.queue.withdraw(QueuedRequest::Join);
        self.queue.withdraw(QueuedRequest::Refresh(destination));
        for pending in &mut self.pending {
            if pending.purpose == Purpose::Join {
                pending.purpose = Purpose::Stale;
                cx.endpoint.cancel(pending.client, b"", cx.now);
            }
        }
        self.legs.stop_timers(cx, destination);
        self.send_bye(cx, destination, ByeContent::default());
        self.forget_left(destination);
        true
    }

    /// BYE from a leg that isn't connected with another.
    pub(crate) fn on_apart_bye(&mut self, cx: &mut Cx<'_>, id: LegId) {
        self.legs.stop_timers(cx, id);
        self.legs.set_state(id, LegState::Gone);
        if let Some(peer) = self.leg(id) {
            peer.dialogs.clear();
        }
        if self.arriving() == Some(id) && self.send_away(cx) {
            self.on_destination_refused(cx, 487);
        }
    }

    /// Ends a leg whose peer is gone, and the call with it if the leg is one of the two that are connected. `status` is what a transfer
    /// to that peer has failed with.
    pub(crate) fn lose_leg(&mut self, cx: &mut Cx<'_>, id: LegId, (reason, status): (Reason, u16)) {
        if !self.has_left(id) {
            return self.hang_up(cx, reason);
        }
        if self.arriving() == Some(id) && self.send_away(cx) {
            self.on_destination_refused(cx, status);
        }
    }

    /// Ends what waits, since the call is over: BYE to a destination that has not arrived, and an answer with port 0 to an open offer.
    pub(crate) fn abandon_joining(&mut self, cx: &mut Cx<'_>) {
        if self.send_away(cx) {
            return;
        }
        if let LastRound::Offered { delayed, .. } = self.end_last_round() {
            self.reject_offer(cx, self.trunk_id(), &delayed);
        }
    }

    fn end_last_round(&mut self) -> LastRound {
        self.joining
            .as_deref_mut()
            .map_or(LastRound::Over, |joining| {
                std::mem::replace(&mut joining.last, LastRound::Over)
            })
    }

    /// The runtime has answered with its SDP: the callee is to have it.
    pub(crate) fn on_runtime_joins(&mut self, cx: &mut Cx<'_>, accepted: Accepted<'_>) {
        let message = accepted.message;
        let sdp: Option<Box<[u8]>> = accepted.sdp().map(Into::into);
        let heard = self.joining.as_deref().map(|joining| joining.heard.clone());
        let heard = heard.unwrap_or_default();
        if let Some(leg) = self.agent_mut() {
            leg.dialogs
                .push(ForkDialog::new(0, accepted.dialog, Some(heard.clone())));
            leg.credentials = accepted.credentials;
        }

        let (trunk, agent) = (self.trunk_id(), self.agent_id());
        self.legs
            .set_state(agent, LegState::Ready(Session::default()));
        self.open_runtime_leg(cx, accepted.flow, message);

        let content = Some((&*accepted.ack_lines, &b""[..]));
        let (client, cseq) = (accepted.client, accepted.cseq);
        self.send_ack(cx, self.agent_id(), 0, client, cseq, content);
        self.bridge = Some((trunk, agent));
        self.limit_duration(cx);
        self.start_session(cx, self.agent_id());
        cx.core.fact(Fact::Joined {
            call: self.id,
            org: self.org,
            runtime_call_id: String::from_utf8_lossy(message.call_id()).into(),
        });

        self.with_origin(self.agent_id(), &heard);
        match sdp {
            Some(sdp) => self.join(cx, &sdp),
            None => self.hang_up(cx, Reason::NoCommonMedia),
        }
    }

    /// The caller is to hear `sdp` of the agent's side.
    pub(crate) fn join(&mut self, cx: &mut Cx<'_>, sdp: &[u8]) {
        if let Some(joining) = self.joining.as_deref_mut() {
            joining.join = Some(sdp.into());
        }
        self.ask_to_join(cx);
    }

    /// Has the re-INVITE that is due sent in its turn.
    fn ask_to_join(&mut self, cx: &mut Cx<'_>) {
        if let Some(joining) = self.joining.as_deref_mut() {
            joining.until = cx.now + PATIENCE;
        }
        self.join_later(cx, Duration::ZERO);
    }

    fn join_later(&mut self, cx: &mut Cx<'_>, wait: Duration) {
        if let Some(joining) = self.joining.as_deref() {
            let until = joining.until;
            self.ask(cx, QueuedRequest::Join, wait, Some(until));
        }
    }

    /// Sends the re-INVITE that is due.
    pub(crate) fn send_join(&mut self, cx: &mut Cx<'_>) {
        let Some(joining) = self.joining.as_deref() else {
            return;
        };
        let Some(purpose) = joining.due() else { return };

        let (id, body) = match (&joining.join, &joining.follow, &joining.last) {
            (Some(sdp), _, _) => (self.trunk_id(), sdp.clone()),
            (None, Some(sdp), _) => (self.agent_id(), sdp.clone()),
            (None, None, LastRound::Offered { delayed, .. }) => {
                (self.agent_id(), delayed.offer.clone())
            }
            (None, None, _) => (self.trunk_id(), Box::default()),
        };
        let Some(fork) = self.fork() else {
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
            id,
            fork,
            invite,
            (purpose, true, RequestOrigin::Ours),
            &body,
            lines,
        ) {
            self.join_later(cx, PAUSE);
        }
    }

    /// The re-INVITE that is due couldn't be sent in time.
    pub(crate) fn join_is_late(&mut self, cx: &mut Cx<'_>) {
        self.give_up_joining(cx, Reason::JoinRefused, 408);
    }

    /// A caller who refuses a destination's media stays with its agent. One who refuses the agent's is hung up on: there is nobody else. What
    /// is refused later leaves the call with what was agreed on before.
    fn give_up_joining(&mut self, cx: &mut Cx<'_>, reason: Reason, status: u16) {
        if self.send_away(cx) {
            return self.on_destination_refused(cx, status);
        }
        let Some(joining) = self.joining.as_deref_mut() else {
            return;
        };
        if joining.join.is_some() {
            return self.hang_up(cx, reason);
        }
        if joining.follow.take().is_none() {
            self.keep_last_answer(cx);
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
        self.remember_sdp(self.trunk_id(), fork, answer);
        self.send_ack(cx, self.trunk_id(), fork, client, cseq, content);
        self.held.take_offer(&delayed.offer);
        self.set_heard(delayed.offer.clone());
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

        self.held.take_answer(sdp_of(message.body()));
        self.set_heard(sdp_of(message.body()).into());
        let Some(joining) = self.joining.as_deref_mut() else {
            return;
        };

        // What was agreed with other media may be another thing with these.
        if !is_same_media(&joining.heard, sdp_of(message.body())) {
            joining.heard = sdp_of(message.body()).into();
            joining.follow = Some(sdp_of(message.body()).into());
            self.ask_to_join(cx);
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
        let differs = has_sdp(message) && !is_same_media(&joining.told, sdp_of(message.body()));
        if differs && matches!(joining.last, LastRound::Unneeded) {
            let answer = sdp_of(message.body()).into();
            joining.last = LastRound::Due { answer };
            self.ask_to_join(cx);
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
        if let Some(trunk) = self.trunk_mut() {
            trunk.flow = flow;
        }

        self.note_refresh(cx, pending, message);
        let Some(joining) = self.joining.as_deref_mut() else {
            return;
        };

        let answer = match std::mem::take(&mut joining.last) {
            LastRound::Due { answer } => answer,
            LastRound::Unneeded | LastRound::Offered { .. } | LastRound::Over => Box::default(),
        };

        joining.heard = sdp_of(message.body()).into();
        joining.last = LastRound::Offered {
            delayed: Delayed {
                client: pending.client,
                fork: pending.fork,
                cseq: pending.cseq,
                offer: sdp_of(message.body()).into(),
            },
            answer,
        };
        self.ask_to_join(cx);
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
            true => self.acknowledge_offer(cx, &delayed, sdp_of(message.body())),
            false => self.acknowledge_offer(cx, &delayed, &answer),
        }
    }

    /// Returns whether a re-INVITE of ours was accepted. If not, it is sent again later or given up.
    fn takes_join(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) -> bool {
        let reply = self.reply_to(cx, pending, message);
        if reply != Reply::Accepted {
            self.join_unaccepted(cx, reply);
            return false;
        }
        self.take_accepted(cx, flow, pending, message);
        true
    }

    /// A re-INVITE of ours has no answer.
    pub(crate) fn on_join_unanswered(&mut self, cx: &mut Cx<'_>, pending: &Pending, status: u16) {
        let reply = self.reply_of_none(cx, pending, status);
        if matches!(reply, Reply::Refused(_)) {
            // There may be another way to the peer soon, and without this re-INVITE there is no call.
            return self.join_later(cx, PAUSE);
        }
        self.join_unaccepted(cx, reply);
    }

    fn join_unaccepted(&mut self, cx: &mut Cx<'_>, reply: Reply) {
        match reply {
            Reply::Again(wait) => self.join_later(cx, wait),
            Reply::Unheard if self.status() == CallStatus::Over => {}
            Reply::Unheard => self.give_up_joining(cx, Reason::DialogGone, 408),
            Reply::Refused(status) => self.give_up_joining(cx, Reason::JoinRefused, status),
            Reply::Accepted | Reply::TooBrief | Reply::Gone => {}
        }
    }

    /// Both hear each other: our own media have no part in it any more.
    pub(crate) fn joined(&mut self, cx: &mut Cx<'_>) {
        if let Some(joining) = self.joining.as_deref_mut() {
            if let Some(sdp) = joining.join.take() {
                joining.told = sdp;
            }
            joining.follow = None;
        }
        self.queue.withdraw(QueuedRequest::Join);

        let arriving = self.joining.as_deref_mut();
        if let Some(destination) = arriving.and_then(|joining| joining.arriving.take()) {
            self.hand_over(cx, destination);
        }

        let media = self
            .outbound
            .as_deref_mut()
            .and_then(|outbound| outbound.media.take());
        if media.is_some() {
            cx.core
                .effects
                .push_back(Effect::CloseMedia { call: self.key });
        }
    }
}
