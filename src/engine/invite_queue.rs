//! Queue of new INVITEs under load, so that messages of existing calls go first.
//!
//! It has two halves: INVITEs that are expected (a proven password, or a known source address) go before those
//! of unauthenticated peers. This file also decides when the waits are too long, so that INVITEs are shed.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use trunkline_sip::endpoint::InviteKey;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Message, Method};

use super::inbox::ForwardedMessage;

/// INVITEs that may wait in each half: more than a socket's receive buffer holds. Further ones are refused on arrival.
const CAPACITY: usize = 8_192;

/// Wait after which a new INVITE is shed under pressure.
const ACCEPTABLE_WAIT: Duration = Duration::from_millis(100);

/// Wait after which a new INVITE is shed in any case: its sender has given up (Timer B, RFC 3261 §17.1.1.2).
const MAX_WAIT: Duration = Duration::from_secs(32);

/// Period over which waits are compared. Pressure begins when waits got no shorter in two periods in a row. Shrinking
/// waits mean that the machine was stalled and is catching up; a refusal wouldn't help then.
const WINDOW: Duration = Duration::from_millis(150);

/// Time without long waits after which pressure ends.
const CALM: Duration = Duration::from_secs(1);

/// Age of the oldest unauthenticated INVITE at which further ones are refused on arrival, under pressure.
const MAX_UNAUTHENTICATED_AGE: Duration = Duration::from_millis(80);

/// Queue of new INVITEs.
#[derive(Debug, Default)]
pub(crate) struct InviteQueue {
    expected: VecDeque<QueuedInvite>,
    unauthenticated: VecDeque<QueuedInvite>,
    /// Transactions of the queued INVITEs, for their CANCELs.
    transactions: HashMap<InviteKey, QueuedTransaction>,
    pressure: Pressure,
}

/// An INVITE, or a repetition of one.
#[derive(Debug)]
pub(crate) struct QueuedInvite {
    pub(crate) key: InviteKey,
    pub(crate) arrived: ForwardedMessage,
}

/// The copies of one INVITE that are queued.
#[derive(Debug)]
struct QueuedTransaction {
    flow: Flow,
    copies: u32,
    is_canceled: bool,
}

/// Fate of a new INVITE.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    Served,
    /// It has waited too long.
    Shed,
    /// Its sender has cancelled it while it waited.
    Canceled,
}

/// Next INVITE.
#[derive(Debug)]
pub(crate) struct NextInvite {
    pub(crate) arrived: ForwardedMessage,
    /// Its CANCEL has come meanwhile, and was answered.
    pub(crate) is_canceled: bool,
}

/// Detector of waits that are too long for a while.
#[derive(Debug, Default)]
struct Pressure {
    late: Option<Late>,
    /// Time at which pressure ends, if no long wait follows.
    until: Option<Moment>,
}

/// Period in which all waits have been too long.
#[derive(Copy, Clone, Debug)]
struct Late {
    since: Moment,
    /// Wait at the start of the period.
    wait: Duration,
    /// Time of the latest long wait.
    last: Moment,
    /// True if waits got no shorter in the period before either.
    lasts: bool,
}

impl Pressure {
    fn is_on(&self, now: Moment) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Notes how long an INVITE has waited (`wait`), and the oldest queued one (`behind`); returns true if `wait` is too
    /// long.
    fn is_too_long(&mut self, wait: Duration, behind: Duration, now: Moment) -> bool {
        let longest = wait.max(behind);
        if longest <= ACCEPTABLE_WAIT {
            self.late = None;
            return false;
        }

        let new_period = |lasts| Late {
            since: now,
            wait: longest,
            last: now,
            lasts,
        };

        // Without an INVITE for two periods nothing is known of the present waits, so counting begins again.
        let recent = self.late.filter(|late| now.since(late.last) < 2 * WINDOW);
        let late = recent.unwrap_or(new_period(false));
        let is_over = now.since(late.since) >= WINDOW;
        let is_no_shorter = is_over && longest >= late.wait;
        self.late = Some(if is_over {
            new_period(is_no_shorter)
        } else {
            Late { last: now, ..late }
        });

        if self.is_on(now) || (is_no_shorter && late.lasts) {
            self.until = Some(now + CALM);
            // `longest` may be the wait of another INVITE. This one is shed for its own alone.
            return wait > ACCEPTABLE_WAIT;
        }

        // Not under pressure: serve even a late INVITE, as long as its sender still waits.
        wait > MAX_WAIT
    }
}

impl InviteQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.expected.is_empty() && self.unauthenticated.is_empty()
    }

    /// Returns true if an INVITE that arrives now can be served in time. Under pressure an unauthenticated one can't
    /// once the oldest of its half has waited too long; refusing at once costs less than queueing it for a refusal.
    pub(crate) fn takes(&self, is_expected: bool, now: Moment) -> bool {
        if is_expected {
            // However long they wait: whether it was too long is decided when their turn comes.
            return self.expected.len() < CAPACITY;
        }
        let is_hopeless = self.pressure.is_on(now)
            && age_of_oldest(&self.unauthenticated, now) >= MAX_UNAUTHENTICATED_AGE;
        self.unauthenticated.len() < CAPACITY && !is_hopeless
    }

    /// Returns true if an INVITE has waited too long to be served. Call it once per INVITE: the answer feeds the
    /// detector of pressure.
    pub(crate) fn is_late(&mut self, received_at: Moment, now: Moment) -> bool {
        let behind =
            age_of_oldest(&self.unauthenticated, now).max(age_of_oldest(&self.expected, now));
        self.pressure
            .is_too_long(now.since(received_at), behind, now)
    }

    /// Queues an INVITE.
    pub(crate) fn push(&mut self, is_expected: bool, invite: QueuedInvite) {
        // A repetition doesn't change the flow: a CANCEL is judged by that of the first copy.
        let transaction = self
            .transactions
            .entry(invite.key)
            .or_insert(QueuedTransaction {
                flow: invite.arrived.flow,
                copies: 0,
                is_canceled: false,
            });
        transaction.copies += 1;

        let lane = if is_expected {
            &mut self.expected
        } else {
            &mut self.unauthenticated
        };
        lane.push_back(invite);
    }

    /// Notes a CANCEL; false if no INVITE of its transaction is queued that came from the same source (RFC 3261 §9.2, §22.1).
    pub(crate) fn cancel(&mut self, key: InviteKey, flow: &Flow) -> bool {
        let Some(transaction) = self.transactions.get_mut(&key) else {
            return false;
        };
        let invited = &transaction.flow;
        let may_cancel = invited.is_with(flow) && invited.transport.admits(flow.transport);
        // A later CANCEL from a wrong source takes nothing back.
        transaction.is_canceled |= may_cancel;
        may_cancel
    }

    /// Takes the next INVITE.
    pub(crate) fn pop(&mut self) -> Option<NextInvite> {
        let next = self
            .expected
            .pop_front()
            .or_else(|| self.unauthenticated.pop_front());

        // Both are empty: free the memory that a burst has left.
        if next.is_none() && self.expected.capacity() + self.unauthenticated.capacity() > 64 {
            (self.expected, self.unauthenticated) = Default::default();
            self.transactions = HashMap::new();
        }

        let QueuedInvite { key, arrived } = next?;
        let is_canceled = match self.transactions.get_mut(&key) {
            Some(transaction) => {
                transaction.copies -= 1;
                // Every copy has to end with 487. A copy behind the first would begin the call that was cancelled.
                let is_canceled = transaction.is_canceled;
                if transaction.copies == 0 {
                    self.transactions.remove(&key);
                }
                is_canceled
            }
            None => false,
        };
        Some(NextInvite {
            arrived,
            is_canceled,
        })
    }
}

/// Returns how long the oldest of a queue has waited.
fn age_of_oldest(queue: &VecDeque<QueuedInvite>, now: Moment) -> Duration {
    queue
        .front()
        .map_or(Duration::ZERO, |first| now.since(first.arrived.received_at))
}

/// Returns true if the message would begin a call.
pub(crate) fn is_new_invite(message: &Message<'_>) -> bool {
    message.is_request() && message.method() == Method::Invite && message.to_tag().is_none()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use trunkline_sip::flow::{Flow, Transport};

    use super::*;

    const START: Moment = Moment::from_secs(1_790_000_000);

    fn arrived(mark: u8, received_at: Moment) -> QueuedInvite {
        let nowhere = SocketAddr::from(([192, 0, 2, 1], 5060));
        let flow = Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: nowhere,
            peer: nowhere,
        };
        QueuedInvite {
            key: InviteKey(mark.into()),
            arrived: ForwardedMessage {
                flow,
                octets: Box::new([mark]),
                received_at,
            },
        }
    }

    #[test]
    fn an_invite_that_waits_can_be_canceled_from_its_source() {
        let mut invite_queue = InviteQueue::default();
        for mark in [1, 2, 2, 3] {
            invite_queue.push(false, arrived(mark, START));
        }
        let from_source = arrived(0, START).arrived.flow;
        let from_another = Flow {
            peer: ([192, 0, 2, 2], 5060).into(),
            ..from_source
        };
        let mut cancels = |mark: u8, flow| invite_queue.cancel(InviteKey(mark.into()), flow);
        assert!(!cancels(1, &from_another));
        assert!(cancels(2, &from_source));
        assert!(!cancels(4, &from_source), "it isn't queued");

        let order: Vec<(u8, bool)> = std::iter::from_fn(|| invite_queue.pop())
            .map(|next| (next.arrived.octets[0], next.is_canceled))
            .collect();
        assert_eq!(order, [(1, false), (2, true), (2, true), (3, false)]);
        assert!(invite_queue.transactions.is_empty());
    }

    #[test]
    fn the_expected_go_before_strangers() {
        let mut invite_queue = InviteQueue::default();
        for (mark, is_expected) in [(1, false), (2, true), (3, false), (4, true)] {
            invite_queue.push(is_expected, arrived(mark, START));
        }
        let order: Vec<u8> = std::iter::from_fn(|| invite_queue.pop())
            .map(|next| next.arrived.octets[0])
            .collect();
        assert_eq!(order, [2, 4, 1, 3]);
        assert!(invite_queue.is_empty());
    }

    #[test]
    fn strangers_are_not_let_in_where_they_would_be_late_or_there_is_no_room() {
        let mut invite_queue = InviteQueue::default();
        invite_queue.push(false, arrived(0, START));

        assert!(
            invite_queue.takes(false, START + CALM),
            "there is no pressure"
        );
        invite_queue.pressure.until = Some(START + CALM);

        assert!(invite_queue.takes(false, START + MAX_UNAUTHENTICATED_AGE / 2));
        assert!(!invite_queue.takes(false, START + MAX_UNAUTHENTICATED_AGE));

        for _ in 0..CAPACITY {
            invite_queue.push(true, arrived(0, START));
        }

        assert!(!invite_queue.takes(true, START));
        assert!(
            invite_queue.takes(false, START),
            "each half has room of its own"
        );
    }

    /// Returns which of the waits, in milliseconds and `step` milliseconds apart, are too long.
    fn sheds(pressure: &mut Pressure, from: Moment, step: u64, waits: &[u64]) -> Vec<bool> {
        let millis = Duration::from_millis;
        let mut now = from;
        let mut shed = Vec::new();
        for wait in waits {
            shed.push(pressure.is_too_long(millis(*wait), Duration::ZERO, now));
            now = now + millis(step);
        }
        shed
    }

    #[test]
    fn who_is_late_alone_is_served_unless_his_sender_has_given_up() {
        let mut pressure = Pressure::default();
        assert_eq!(
            sheds(&mut pressure, START, 0, &[5_000, 32_001, 31_000]),
            [false, true, false]
        );
    }

    #[test]
    fn a_standstill_that_is_made_up_for_sheds_nothing() {
        let mut pressure = Pressure::default();
        let waits: Vec<u64> = (0..=40).map(|at| 900 - at * 20).collect();
        let shed = sheds(&mut pressure, START, 50, &waits);
        assert!(!shed.contains(&true), "{shed:?}");
        // A new period of long waits is counted from there.
        let again = START + Duration::from_secs(3);
        let shed = sheds(&mut pressure, again, 50, &waits);
        assert!(!shed.contains(&true), "{shed:?}");
    }

    #[test]
    fn nor_does_another_on_top_of_it() {
        let mut pressure = Pressure::default();
        let first = (0..7).map(|at| 200 - at * 10);
        let second = (0..30).map(|at| 290 - at * 10);
        let waits: Vec<u64> = first.chain(second).collect();
        let shed = sheds(&mut pressure, START, 20, &waits);
        assert!(!shed.contains(&true), "{shed:?}");
    }

    #[test]
    fn one_that_is_not_made_up_for_is_pressure() {
        let mut pressure = Pressure::default();
        let waits = [900, 880, 870, 870, 880, 890, 900, 910];
        assert_eq!(
            sheds(&mut pressure, START, 75, &waits),
            [false, false, false, false, false, false, true, true]
        );
    }

    #[test]
    fn pressure_begins_when_waits_stay_long_and_ends_with_a_calm() {
        let mut pressure = Pressure::default();
        assert_eq!(
            sheds(
                &mut pressure,
                START,
                75,
                &[150, 150, 150, 150, 150, 150, 50, 101]
            ),
            [false, false, false, false, true, true, false, true]
        );
        let calm = START + Duration::from_millis(525) + CALM;
        assert!(!pressure.is_on(calm));
        assert_eq!(sheds(&mut pressure, calm, 75, &[101, 150]), [false, false]);
    }

    #[test]
    fn it_is_pressure_too_when_those_that_go_first_are_served_in_time() {
        let mut invite_queue = InviteQueue::default();
        invite_queue.push(false, arrived(0, START));
        let at = |millis| START + Duration::from_millis(millis);
        for now in (110..=430).step_by(20) {
            assert!(
                !invite_queue.is_late(at(now), at(now)),
                "who has just come is served"
            );
        }
        assert!(invite_queue.pressure.is_on(at(430)));
        assert!(invite_queue.is_late(START, at(430)));
        assert!(!invite_queue.takes(false, at(430)));
    }
}
