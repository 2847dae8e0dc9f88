//! Our requests inside a call that wait for their turn: no offer may be sent while another is open (RFC 3261 §14.1), and a peer may have
//! asked for a pause. Only the kind of request waits, once each; its content is made when its turn comes.
//!
//! Knows no dialogs. INFO, PRACK and others that need no turn aren't queued.

use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::own_request::RequestKind;

/// Next request in the queue.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum NextRequest {
    /// It may be sent now.
    Send(RequestKind),
    /// It has exceeded its deadline.
    TooLate(RequestKind),
}

#[derive(Debug)]
struct Waiting {
    ask: RequestKind,
    /// Earliest time at which the request may be sent.
    from: Moment,
    /// Time at which the request is given up; `None`: it waits until it is sent or withdrawn.
    until: Option<Moment>,
}

/// Queue of requests, the oldest first. RequestKind request that may not be sent yet doesn't hold up those after it.
#[derive(Debug, Default)]
pub(crate) struct RequestQueue {
    waiting: Vec<Waiting>,
}

impl RequestQueue {
    /// Queues `ask` from `from` on, at the end; it keeps its place if it is queued already.
    pub(crate) fn push(&mut self, ask: RequestKind, from: Moment, until: Option<Moment>) {
        let before = self.waiting.iter_mut().find(|waiting| waiting.ask == ask);
        match before {
            Some(waiting) => (waiting.from, waiting.until) = (from, until),
            None => self.waiting.push(Waiting { ask, from, until }),
        }
    }

    /// Removes a request that isn't needed any more.
    pub(crate) fn withdraw(&mut self, ask: RequestKind) {
        self.waiting.retain(|waiting| waiting.ask != ask);
        self.free();
    }

    /// Removes all requests.
    pub(crate) fn clear(&mut self) {
        self.waiting = Vec::new();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns whether `ask` is queued.
    pub(crate) fn has(&self, ask: RequestKind) -> bool {
        self.waiting.iter().any(|waiting| waiting.ask == ask)
    }

    /// Takes the first request whose turn has come. `may_go` says whether it may be sent.
    pub(crate) fn poll(
        &mut self,
        now: Moment,
        may_go: impl Fn(RequestKind) -> bool,
    ) -> Option<NextRequest> {
        let turn = |waiting: &Waiting| {
            let is_late = |until| waiting.from.max(now) >= until;
            match waiting.until.is_some_and(is_late) {
                // RequestKind pause beyond the deadline gives the request up at once: waiting it out would change nothing.
                true => Some(NextRequest::TooLate(waiting.ask)),
                false if waiting.from <= now && may_go(waiting.ask) => {
                    Some(NextRequest::Send(waiting.ask))
                }
                false => None,
            }
        };
        let mut waiting = self.waiting.iter().enumerate();
        let (at, turn) = waiting.find_map(|(at, waiting)| Some((at, turn(waiting)?)))?;
        self.waiting.remove(at);
        self.free();
        Some(turn)
    }

    /// Frees the allocation of an empty queue, as in most calls that are up.
    fn free(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = Vec::new();
        }
    }

    /// Returns the time until the queue changes without an input.
    pub(crate) fn next_after(&self, now: Moment) -> Option<Duration> {
        let moments = self.waiting.iter().flat_map(|waiting| {
            let from = Some(waiting.from).filter(|from| *from > now);
            [from, waiting.until]
        });
        moments.flatten().min().map(|next| next.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parts::ids::LegId;

    const REFRESH: RequestKind = RequestKind::Refresh(LegId::FIRST);
    const START: Moment = Moment::from_secs(1_790_000_000);

    fn after(seconds: u64) -> Moment {
        START + Duration::from_secs(seconds)
    }

    fn seconds(queue: &RequestQueue, now: Moment) -> Option<u64> {
        queue.next_after(now).map(|left| left.as_secs())
    }

    #[test]
    fn requests_take_their_turns_in_their_order() {
        let mut queue = RequestQueue::default();
        queue.push(REFRESH, START, None);
        queue.push(RequestKind::Hold, START, Some(after(30)));
        queue.push(RequestKind::Join, after(4), Some(after(60)));
        queue.push(REFRESH, START, None);
        assert!(!queue.is_empty());
        let all = |_| true;
        let none = |_| false;

        assert_eq!(queue.poll(START, none), None, "another offer is open");
        let but_refresh = |ask| ask != REFRESH;
        assert_eq!(
            queue.poll(START, but_refresh),
            Some(NextRequest::Send(RequestKind::Hold))
        );
        assert_eq!(queue.poll(START, all), Some(NextRequest::Send(REFRESH)));
        assert_eq!(queue.poll(START, all), None, "the last one has to pause");
        assert_eq!(seconds(&queue, START), Some(4));
        assert_eq!(queue.poll(after(4), none), None);
        assert_eq!(seconds(&queue, after(4)), Some(56), "it is given up then");
        assert_eq!(
            queue.poll(after(60), all),
            Some(NextRequest::TooLate(RequestKind::Join))
        );
        assert!(queue.is_empty());
        assert_eq!(queue.waiting.capacity(), 0, "most calls have no requests");
        assert_eq!(seconds(&queue, after(60)), None);
    }

    #[test]
    fn a_pause_beyond_its_time_gives_a_request_up_at_once() {
        let mut queue = RequestQueue::default();
        queue.push(RequestKind::Hold, after(31), Some(after(30)));
        assert_eq!(
            queue.poll(START, |_| true),
            Some(NextRequest::TooLate(RequestKind::Hold))
        );
    }

    #[test]
    fn what_is_withdrawn_is_not_sent() {
        let mut queue = RequestQueue::default();
        for ask in [RequestKind::Hold, REFRESH] {
            queue.push(ask, START, None);
        }
        queue.withdraw(RequestKind::Hold);
        assert!(!queue.has(RequestKind::Hold) && queue.has(REFRESH));
        assert_eq!(
            queue.poll(START, |_| true),
            Some(NextRequest::Send(REFRESH))
        );
        queue.push(RequestKind::Hold, START, None);
        queue.clear();
        assert_eq!(queue.poll(START, |_| true), None);
    }
}
