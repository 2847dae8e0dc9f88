//! Turns of our own requests inside a call: one offer at a time is open in it (RFC 3261 §14.1), ours or a peer's. Hold, join and refresh queue their
//! requests; each runs when its turn comes, and one rule ([`Reply`](crate::parts::reply::Reply)) judges the answers.

use super::Call;
use crate::core::context::Cx;
use crate::leg::own_request::RequestKind;
use crate::leg::request_queue::NextRequest;
use crate::session;

impl Call {
    /// Sends the requests whose turn has come, at the end of each input.
    pub(crate) fn take_turns(&mut self, cx: &mut Cx<'_>) {
        if self.bridge.requests.has_no_turns() {
            return;
        }

        self.bridge.requests.check_theirs(cx);

        // Asked anew each time: the request that was just sent may be an offer, which the next one has to wait for.
        while let Some(turn) = self.bridge.next_turn(cx, self.joining.phase()) {
            match turn {
                NextRequest::Send(RequestKind::Hold) => self.hold.send(&mut self.bridge, cx),
                NextRequest::Send(RequestKind::Join) => self.joining.send(&mut self.bridge, cx),
                NextRequest::Send(RequestKind::Refresh(id)) => {
                    if let Some(mut leg) = self.bridge.at(id) {
                        session::send_refresh(&mut leg, cx);
                    }
                }

                NextRequest::TooLate(RequestKind::Hold) => self.hold.on_late(&mut self.bridge, cx),
                NextRequest::TooLate(RequestKind::Join) => {
                    let progress = self.joining.on_late();
                    self.apply_join_progress(cx, progress, None);
                }
                // A refresh is queued without a deadline: the session's own timer ends the wait.
                NextRequest::TooLate(RequestKind::Refresh(_)) => {}
            }
        }

        self.bridge.requests.set_turn(cx, self.bridge.key);
    }
}
