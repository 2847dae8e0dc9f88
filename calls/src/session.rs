//! Liveness of a leg's peer. Session timers (RFC 4028), one on each leg, are refreshed by us, or end a session that the peer doesn't refresh. A peer
//! that has been silent for long is probed, with a session or without: by a request that refreshes, since OPTIONS doesn't prove a dialog.
//!
//! One timer of the wheel serves both. A message only updates a time, which the timer reads when it fires.

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};

use super::Calls;
use super::call::{Call, CallStatus};
use super::context::Cx;
use super::ids::CallTimer;
use super::ids::LegId;
use super::leg::{Leg, LegState, Peer, SipPeer};
use super::own_request::{Pending, Purpose, QueuedRequest};
use super::presence::{Means, Question, Refusal};
use super::refusal::Reason;
use super::reply::{PAUSE, Reply};
use super::request_origin::RequestOrigin;

/// Time over which probes are spread to legs that share a peer taken for dead.
const SPREAD_MS: u64 = 2_000;
/// Reason of our BYE, and outcome of a transfer to that peer, for a session that wasn't refreshed.
const EXPIRED: (Reason, u16) = (Reason::SessionExpired, 408);

impl SipPeer {
    fn means(&self) -> Means<'_> {
        Means {
            update: self.abilities.update,
            told: self.told_first(),
        }
    }
}

impl Leg {
    /// Returns the next refresh or probe of the peer.
    fn next_question(&self, now: Moment, longest: Duration) -> Option<Question> {
        let (session, means) = (self.session()?, self.sip()?.means());
        let timer = session.timer.as_ref();
        session.presence.next_question(timer, means, now, longest)
    }
}

impl Calls {
    /// Handles a peer that no longer answers OPTIONS outside of calls: it is probed in its calls at once.
    pub fn suspect(&mut self, transport: Transport, address: SocketAddr, now: Moment) {
        let longest = self.core.config.dead_peer;
        for (_, slot) in &mut self.slab {
            let call = &mut slot.call;
            let key = call.key;
            let is_up = matches!(call.status(), CallStatus::Answered | CallStatus::Up);

            for id in [call.trunk_id(), call.agent_id()] {
                let is_asked = call.is_refreshing(id);
                let is_meant =
                    |leg: &&SipPeer| leg.flow.peer == address && leg.flow.transport == transport;
                let peer = call.legs.sip(id).filter(is_meant);
                let is_asked = is_asked || !is_up || peer.is_none();
                let session = call.legs.session_mut(id);
                let Some(session) = session.filter(|_| !is_asked) else {
                    continue;
                };

                let spread = u64::from(key.index).wrapping_mul(37) % SPREAD_MS;
                let from = now + Duration::from_millis(spread);
                let Some(due) = session.presence.doubt(from, longest) else {
                    continue;
                };

                let timer = (key, CallTimer::Session(id));
                let timer = self.core.timers.schedule(due, timer);
                if let Some(old) = session.due.replace(timer) {
                    self.core.timers.cancel(old);
                }
            }
        }
    }
}

impl Call {
    /// Restarts the leg's timer: its session begins, or was refreshed.
    pub(crate) fn start_session(&mut self, cx: &mut Cx<'_>, id: LegId) {
        if let Some(session) = self.legs.session_mut(id) {
            session.presence.begin(session.timer.as_ref(), cx.now);
        }
        self.watch(cx, id);
    }

    /// Returns whether a probe of the peer is out, or waits for its turn.
    fn is_refreshing(&self, id: LegId) -> bool {
        let is_it = |pending: &Pending| pending.leg == id && pending.purpose == Purpose::Refresh;
        self.queue.has(QueuedRequest::Refresh(id)) || self.pending.iter().any(is_it)
    }

    /// Sets the leg's timer to its next step.
    fn watch(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let (key, longest) = (self.key, cx.core.config.dead_peer);
        let is_refreshing = self.is_refreshing(id);
        let leg = self.legs.get_mut(id).filter(|leg| leg.sip().is_some());
        let Some(session) = leg.and_then(Leg::session_mut) else {
            return;
        };
        let due = match is_refreshing {
            true => session.presence.over(),
            false => session.presence.due(longest),
        };
        cx.cancel_timer(&mut session.due);
        if let Some(due) = due {
            let timer = (key, CallTimer::Session(id));
            session.due = Some(cx.core.timers.schedule(due, timer));
        }
    }

    /// Handles the leg's timer: refresh, end of an expired session, or probe after long silence.
    pub(crate) fn on_session_timer(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let is_asked = |pending: &Pending| pending.leg == id && pending.purpose == Purpose::Refresh;
        let is_asked = self.pending.iter().any(is_asked);
        let now = cx.now;
        let Some(session) = self.legs.session_mut(id) else {
            return;
        };
        session.due = None;
        match (session.presence.is_over(now), is_asked) {
            // A probe is out, and its answer may still come.
            (true, true) => {}
            (true, false) => self.lose_leg(cx, id, EXPIRED),
            (false, _) => self.refresh_later(cx, id, Duration::ZERO),
        }
    }

    /// Queues a probe of the peer, if it is due by then.
    fn refresh_later(&mut self, cx: &mut Cx<'_>, id: LegId, wait: Duration) {
        let now = cx.now;
        let session = self.legs.session(id);
        if session.is_some_and(|session| session.presence.is_over(now)) {
            return self.lose_leg(cx, id, EXPIRED);
        }
        self.ask(cx, QueuedRequest::Refresh(id), wait, None);
        self.watch(cx, id);
    }

    /// Refreshes the session, or probes a peer that has been silent for long.
    pub(crate) fn send_refresh(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let (now, longest) = (cx.now, cx.core.config.dead_peer);
        let leg = self.legs.get(id);
        match leg.and_then(|leg| leg.next_question(now, longest)) {
            Some(question) => self.ask_peer(cx, id, question),
            None => self.watch(cx, id),
        }
    }

    /// Returns whether a leg's refresh is an offer, which must not be made while another is open.
    pub(crate) fn refreshes_by_offer(&self, id: LegId, now: Moment, longest: Duration) -> bool {
        let leg = self.legs.get(id);
        leg.and_then(|leg| leg.next_question(now, longest)) == Some(Question::Reinvite)
    }

    /// Sends an UPDATE without a body, a re-INVITE with the peer's current SDP from us, or OPTIONS.
    fn ask_peer(&mut self, cx: &mut Cx<'_>, id: LegId, question: Question) {
        let first = self.legs.sip(id).and_then(|peer| peer.dialogs.first());
        let Some(fork) = first.map(|held| held.fork) else {
            return;
        };

        let told = self.legs.sip(id).and_then(SipPeer::told_first);
        let sdp = told.unwrap_or_default().to_vec();
        let (method, offers, body) = match question {
            Question::Update => ((Method::Update, "UPDATE"), false, &b""[..]),
            Question::Reinvite => ((Method::Invite, "INVITE"), true, &*sdp),
            Question::Options => ((Method::Options, "OPTIONS"), false, &b""[..]),
        };

        let purpose = (Purpose::Refresh, offers, RequestOrigin::Ours);
        let lines = |head: &mut Head<'_>| {
            if offers {
                head.line("Content-Type", b"application/sdp");
            }
        };
        if !self.send_on_leg(cx, id, fork, method, purpose, body, lines) {
            self.ask(cx, QueuedRequest::Refresh(id), PAUSE, None);
        }
    }

    /// Handles the answer to a refresh or probe. 481 to a refresh says that the dialog is gone. 481 to OPTIONS may come from a peer that doesn't
    /// match it to dialogs, and 408 from a proxy: these count the second time. Any other answer shows that the peer is up.
    pub(crate) fn on_refresh_answer(
        &mut self,
        cx: &mut Cx<'_>,
        flow: Flow,
        pending: &Pending,
        message: &Message<'_>,
    ) {
        let id = pending.leg;

        match self.reply_to(cx, pending, message) {
            Reply::Accepted if pending.method == Method::Options => self.watch(cx, id),
            Reply::Accepted => {
                if pending.method == Method::Update
                    && let Some(leg) = self.leg(id)
                {
                    // Even if Allow doesn't list UPDATE.
                    leg.abilities.update = true;
                }
                self.take_accepted(cx, flow, pending, message);
            }
            Reply::Again(wait) => self.refresh_later(cx, id, wait),
            Reply::Refused(status) => self.refresh_refused(cx, pending, status),
            Reply::Unheard | Reply::TooBrief | Reply::Gone => {}
        }
    }

    /// Handles a refresh or probe without an answer.
    pub(crate) fn on_refresh_unanswered(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        status: u16,
    ) {
        match self.reply_of_none(cx, pending, status) {
            Reply::Again(wait) => self.refresh_later(cx, pending.leg, wait),
            Reply::Refused(_) => self.missed(cx, pending.leg),
            Reply::Accepted | Reply::Unheard | Reply::TooBrief | Reply::Gone => {}
        }
    }

    fn refresh_refused(&mut self, cx: &mut Cx<'_>, pending: &Pending, status: u16) {
        let id = pending.leg;
        let Some(leg) = self.legs.get_mut(id) else {
            return;
        };
        let (LegState::Ready(session) | LegState::Leaving(session, _), Peer::Sip(peer)) =
            (&mut leg.state, &mut leg.peer)
        else {
            return;
        };

        if pending.method == Method::Update && matches!(status, 405 | 501) {
            peer.abilities.update = false;
        }

        let question = match pending.method == Method::Invite {
            true => Question::Reinvite,
            false => Question::Update,
        };
        let (timer, means) = (session.timer, peer.means());
        let presence = &mut session.presence;
        match presence.refuse((question, status), timer, means, cx.now) {
            Refusal::Waits => self.watch(cx, id),
            Refusal::OtherMethod => {
                // If the first answer took long, this is the last chance.
                self.ask(cx, QueuedRequest::Refresh(id), Duration::ZERO, None);
                self.watch(cx, id);
            }
            Refusal::Later(wait) => self.refresh_later(cx, id, wait),
        }
    }

    /// Notes a refresh or probe without an answer: the peer is probed once more before the call ends.
    pub(crate) fn missed(&mut self, cx: &mut Cx<'_>, id: LegId) {
        let now = cx.now;
        let session = self.legs.session_mut(id);
        let asks_again = session.is_some_and(|session| session.presence.miss(now));
        match asks_again {
            true => self.watch(cx, id),
            false => self.lose_leg(cx, id, (Reason::DialogGone, 408)),
        }
    }
}
