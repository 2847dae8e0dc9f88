//! Turns of our own requests inside a call: one offer at a time is open in it (RFC 3261 §14.1), ours or a peer's. Hold, join and refresh queue their
//! requests; each runs when its turn comes, and one rule ([`Reply`]) judges the answers.

use trunkline_sip::wire::Message;

use super::call::Call;
use super::context::Cx;
use super::own_request::{Pending, QueuedRequest};
use super::reply::{PAUSE, Reply};
use super::request_queue::Turn;

impl Call {
    /// Sends the requests whose turn has come, at the end of each input.
    pub(crate) fn take_turns(&mut self, cx: &mut Cx<'_>) {
        if self.bridge.requests.has_no_turns() {
            return;
        }

        self.bridge.requests.check_theirs(cx);
        while let Some(turn) = self.bridge.next_turn(cx, self.join_phase()) {
            match turn {
                Turn::Send(QueuedRequest::Hold) => self.send_hold(cx),
                Turn::Send(QueuedRequest::Join) => self.send_join(cx),
                Turn::Send(QueuedRequest::Refresh(id)) => {
                    if let Some(mut leg) = self.bridge.at(id) {
                        leg.send_refresh(cx);
                    }
                }
                Turn::TooLate(QueuedRequest::Hold) => self.hold_is_late(cx),
                Turn::TooLate(QueuedRequest::Join) => self.join_is_late(cx),
                Turn::TooLate(QueuedRequest::Refresh(_)) => {}
            }
        }
        self.bridge.requests.set_turn(cx, self.bridge.key);
    }

    /// Returns the consequence of the final answer to a request of ours. A leg whose peer is gone has ended already.
    pub(crate) fn reply_to(
        &mut self,
        cx: &mut Cx<'_>,
        pending: &Pending,
        message: &Message<'_>,
    ) -> Reply {
        let id = pending.leg;
        let (reply, lost) = match self.bridge.at(id) {
            Some(mut leg) => leg.reply_to(cx, pending, message),
            None => (Reply::of(message, || PAUSE), None),
        };
        self.mind_lost(cx, id, lost);
        reply
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
            let leg = self.bridge.at(pending.leg);
            let lost = leg.and_then(|mut leg| leg.missed(cx));
            self.mind_lost(cx, pending.leg, lost);
        }
        reply
    }
}
