//! Turns of our own requests inside a call: one offer at a time is open in it (RFC 3261 §14.1), ours or a peer's. Hold, join and refresh queue their
//! requests; each runs when its turn comes, and one rule ([`Reply`](super::reply::Reply)) judges the answers.

use super::call::Call;
use super::context::Cx;
use super::own_request::QueuedRequest;
use super::request_queue::Turn;

impl Call {
    /// Sends the requests whose turn has come, at the end of each input.
    pub(crate) fn take_turns(&mut self, cx: &mut Cx<'_>) {
        if self.bridge.requests.has_no_turns() {
            return;
        }

        self.bridge.requests.check_theirs(cx);
        while let Some(turn) = self.bridge.next_turn(cx, self.joining.phase()) {
            match turn {
                Turn::Send(QueuedRequest::Hold) => self.holding.send(&mut self.bridge, cx),
                Turn::Send(QueuedRequest::Join) => self.joining.send(&mut self.bridge, cx),
                Turn::Send(QueuedRequest::Refresh(id)) => {
                    if let Some(mut leg) = self.bridge.at(id) {
                        leg.send_refresh(cx);
                    }
                }
                Turn::TooLate(QueuedRequest::Hold) => self.holding.on_late(&mut self.bridge, cx),
                Turn::TooLate(QueuedRequest::Join) => {
                    let progress = self.joining.on_late();
                    self.go_on_joining(cx, progress, None);
                }
                Turn::TooLate(QueuedRequest::Refresh(_)) => {}
            }
        }
        self.bridge.requests.set_turn(cx, self.bridge.key);
    }
}
