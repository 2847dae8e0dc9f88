//! Turns of our own requests inside a call: one offer at a time is open in it (RFC 3261 §14.1), ours or a peer's. Hold, join and refresh queue their
//! requests; each runs when its turn comes, and one rule ([`Reply`]) judges the answers.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_sip::wire::Message;

use super::call::{Call, CallStatus};
use super::context::Cx;
use super::exchange::OwnRequest;
use super::ids::CallTimer;
use super::ids::LegId;
use super::own_request::{Pending, QueuedRequest};
use super::refusal::Reason;
use super::reply::{PAUSE, Reply, glare_wait};
use super::request_queue::Turn;

impl Call {
    /// Queues a request after `wait` until the open exchange has room for it; dropped at `until`.
    pub(crate) fn ask(
        &mut self,
        cx: &mut Cx<'_>,
        ask: QueuedRequest,
        wait: Duration,
        until: Option<Moment>,
    ) {
        self.queue.push(ask, cx.now + wait, until);
        self.take_turns(cx);
    }

    /// Sends the requests whose turn has come.
    pub(crate) fn take_turns(&mut self, cx: &mut Cx<'_>) {
        if self.queue.is_empty() && self.turn.is_none() {
            return;
        }

        // The peer's exchange lasts until its answer is acknowledged (RFC 3261 §14.1). The ACK to a refusal never reaches the call, so its
        // transaction is checked.
        let theirs = self.theirs.filter(|tx| cx.endpoint.server_exists(*tx));
        self.theirs = theirs;
        while let Some(turn) = self.next_turn(cx) {
            match turn {
                Turn::Send(QueuedRequest::Hold) => self.send_hold(cx),
                Turn::Send(QueuedRequest::Join) => self.send_join(cx),
                Turn::Send(QueuedRequest::Refresh(id)) => self.send_refresh(cx, id),
                Turn::TooLate(QueuedRequest::Hold) => self.hold_is_late(cx),
                Turn::TooLate(QueuedRequest::Join) => self.join_is_late(cx),
                Turn::TooLate(QueuedRequest::Refresh(_)) => {}
            }
        }
        cx.cancel_timer(&mut self.turn);

        let look = theirs.filter(|_| !self.queue.is_empty()).map(|_| PAUSE);
        let next = self.queue.next_after(cx.now).into_iter().chain(look).min();
        self.turn = next.map(|after| cx.schedule(self.key, after, CallTimer::Turn));
    }

    fn next_turn(&mut self, cx: &Cx<'_>) -> Option<Turn<QueuedRequest>> {
        let mut queue = std::mem::take(&mut self.queue);
        let turn = queue.poll(cx.now, |ask| self.may_go(cx, ask));
        self.queue = queue;
        turn
    }

    /// Returns whether a request of ours may be sent now.
    fn may_go(&self, cx: &Cx<'_>, ask: QueuedRequest) -> bool {
        let longest = cx.core.config.dead_peer;
        let own = match ask {
            QueuedRequest::Hold if self.status() != CallStatus::Up || self.is_joining() => {
                return false;
            }
            QueuedRequest::Hold => OwnRequest::Offer,
            QueuedRequest::Join => OwnRequest::Join,
            QueuedRequest::Refresh(id) if self.refreshes_by_offer(id, cx.now, longest) => {
                OwnRequest::Offer
            }
            QueuedRequest::Refresh(_) => OwnRequest::Bare,
        };
        self.exchange().admits(own)
    }

    /// Handles the timer of the queue.
    pub(crate) fn on_turn(&mut self, cx: &mut Cx<'_>) {
        self.turn = None;
        self.take_turns(cx);
    }

    /// Returns the consequence of the final answer to a request of ours. If the dialog is gone, the leg has ended already; if the peer may be gone,
    /// it is probed; a session interval has been raised.
    pub(crate) fn reply_to(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) -> Reply {
        let (id, fork) = (pending.leg, pending.fork);
        let reply = Reply::of(message, || self.glare_wait(cx, id, fork));

        match reply {
            Reply::TooBrief => match self.raise_session(id, message) {
                true => Reply::Again(PAUSE),
                false => Reply::Refused(422),
            },
            Reply::Gone => {
                self.lose_leg(cx, id, (Reason::DialogGone, message.status()));
                reply
            }
            Reply::Unheard => {
                self.missed(cx, id);
                reply
            }
            Reply::Accepted | Reply::Again(_) | Reply::Refused(_) => reply,
        }
    }

    /// The same for a request that has no answer.
    pub(crate) fn reply_of_none(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        status: u16,
    ) -> Reply {
        let reply = Reply::without_answer(status, pending.connected);
        if reply == Reply::Unheard {
            self.missed(cx, pending.leg);
        }
        reply
    }

    /// Returns the wait after glare in a dialog.
    pub(crate) fn glare_wait(&mut self, cx: &mut Cx<'_>, id: LegId, fork: u8) -> Duration {
        let dialog = self.leg(id).and_then(|leg| leg.dialog_ref(fork));
        let owns_call_id = dialog.is_some_and(|dialog| dialog.owns_call_id());
        glare_wait(owns_call_id, cx.endpoint.chance().bits64())
    }

    fn raise_session(&mut self, id: LegId, message: &Message<'_>) -> bool {
        let Some(session) = self.legs.session_mut(id) else {
            return false;
        };
        let raised = session.timer.and_then(|timer| timer.raised(message));
        if raised.is_some() {
            session.timer = raised;
        }
        raised.is_some()
    }
}
