//! The second lane: under pressure new INVITEs wait here, so that everything inside a call goes first. Those that are
//! expected (their sender answers a challenge, or is known by address) go before strangers, since answering them is what
//! the work so far was for.

use std::collections::VecDeque;
use std::time::Duration;

use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Message, Method};

use super::inbox::Arrived;

/// INVITEs that may wait in each half of the lane.
const ROOM: usize = 4_096;

/// How long the queue of strangers may stand before further ones are refused on arrival.
const STRANGERS_STAND: Duration = Duration::from_millis(80);

/// New INVITEs that wait for their turn.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    expected: VecDeque<Arrived>,
    strangers: VecDeque<Arrived>,
}

impl Lanes {
    pub(crate) fn is_empty(&self) -> bool {
        self.expected.is_empty() && self.strangers.is_empty()
    }

    /// Whether an INVITE that comes now has a chance to be served in time: there is room, and a stranger finds no
    /// queue before it that has stood too long. To say so at once costs less than to let it wait for its refusal.
    pub(crate) fn takes(&self, is_expected: bool, now: Moment) -> bool {
        if is_expected {
            return self.expected.len() < ROOM;
        }
        let stands = self
            .strangers
            .front()
            .map_or(Duration::ZERO, |first| now.since(first.received_at));
        self.strangers.len() < ROOM && stands < STRANGERS_STAND
    }

    /// Lets an INVITE wait.
    pub(crate) fn push(&mut self, is_expected: bool, arrived: Arrived) {
        let lane = if is_expected {
            &mut self.expected
        } else {
            &mut self.strangers
        };
        lane.push_back(arrived);
    }

    /// The next one to be served.
    pub(crate) fn pop(&mut self) -> Option<Arrived> {
        let next = self
            .expected
            .pop_front()
            .or_else(|| self.strangers.pop_front());
        if next.is_none() && self.expected.capacity() + self.strangers.capacity() > 64 {
            *self = Self::default();
        }
        next
    }
}

/// Whether a message would begin a call.
pub(crate) fn is_new_invite(message: &Message<'_>) -> bool {
    message.is_request() && message.method() == Method::Invite && message.to_tag().is_none()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use trunkline_sip::flow::{Flow, Transport};

    use super::*;

    const START: Moment = Moment::from_secs(1_790_000_000);

    fn arrived(mark: u8, received_at: Moment) -> Arrived {
        let nowhere = SocketAddr::from(([192, 0, 2, 1], 5060));
        let flow = Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: nowhere,
            peer: nowhere,
        };
        Arrived {
            flow,
            octets: Box::new([mark]),
            received_at,
        }
    }

    #[test]
    fn the_expected_go_before_strangers() {
        let mut lanes = Lanes::default();
        for (mark, is_expected) in [(1, false), (2, true), (3, false), (4, true)] {
            lanes.push(is_expected, arrived(mark, START));
        }
        let order: Vec<u8> = std::iter::from_fn(|| lanes.pop())
            .map(|next| next.octets[0])
            .collect();
        assert_eq!(order, [2, 4, 1, 3]);
        assert!(lanes.is_empty());
    }

    #[test]
    fn strangers_are_not_let_in_where_they_would_be_late_or_there_is_no_room() {
        let mut lanes = Lanes::default();
        lanes.push(false, arrived(0, START));
        assert!(lanes.takes(false, START + STRANGERS_STAND / 2));
        assert!(!lanes.takes(false, START + STRANGERS_STAND));
        assert!(lanes.takes(true, START + STRANGERS_STAND));
        for _ in 0..ROOM {
            lanes.push(true, arrived(0, START));
        }
        assert!(!lanes.takes(true, START));
        assert!(lanes.takes(false, START), "each half has room of its own");
    }
}
