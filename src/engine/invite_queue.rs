//! Queue of new INVITEs under load, so that messages of existing calls go first, and no sender's INVITEs keep those of others waiting.
//!
//! INVITEs wait in lanes, by what they prove ([`InviteLane`]), and lanes in groups, so that an org that names many addresses has no more turns than
//! others. The groups are served in turn, one INVITE each, and so are the lanes of a group. Lanes of those that prove nothing have a turn together.
//! This file also decides when the waits are too long, so that INVITEs are shed.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use slab::Slab;
use trunkline_calls::inbound::admission::{InviteLane, SourceGroup};
use trunkline_sip::endpoint::InviteKey;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Message, Method};
use uuid::Uuid;

use super::inbox::ForwardedMessage;

/// Octets of the INVITEs that may wait in each half: those that prove something, and the others. A group may hold as many as are left free, so
/// that one alone has half, and the largest groups give way first, in them the longest lanes. Half is more than a socket's receive buffer
/// holds.
const ROOM: usize = 16 * 1024 * 1024;

/// Octets that a waiting INVITE takes besides its own, with a lane and a group to itself.
const OVERHEAD: usize = 512;

/// INVITEs of proven lanes that are served before one that proves nothing has its turn. Most calls begin with such a one, which is only challenged.
const TURNS: u32 = 4;

/// Lanes of unproven senders beyond which further INVITEs of theirs are refused on arrival, under pressure: their turn would come too late.
const MAX_UNPROVEN_LANES: usize = 256;

/// Wait after which a new INVITE is shed under pressure.
const ACCEPTABLE_WAIT: Duration = Duration::from_millis(100);

/// Wait after which a new INVITE is shed in any case: its sender has given up (Timer B, RFC 3261 §17.1.1.2).
const MAX_WAIT: Duration = Duration::from_secs(32);

/// Period over which waits are compared. Pressure begins when waits got no shorter in two periods in a row. Shrinking
/// waits mean that the machine was stalled and is catching up; a refusal wouldn't help then.
const WINDOW: Duration = Duration::from_millis(150);

/// Time without long waits after which pressure ends.
const CALM: Duration = Duration::from_secs(1);

/// Age of the oldest INVITE of an unproven lane at which further ones are refused on arrival, under pressure.
const MAX_UNPROVEN_AGE: Duration = Duration::from_millis(80);

/// Queue of new INVITEs.
#[derive(Debug, Default)]
pub(crate) struct InviteQueue {
    proven: Lanes,
    unproven: Lanes,
    /// Turns of proven lanes since the last one of an unproven lane.
    turns: u32,
    /// Transactions of the queued INVITEs, for their CANCELs and repetitions.
    transactions: HashMap<InviteKey, QueuedTransaction>,
    pressure: Pressure,
}

/// Lanes that are served in turn.
#[derive(Debug, Default)]
struct Lanes {
    invites: Slab<Waiting>,
    lanes: HashMap<InviteLane, Lane>,
    groups: HashMap<GroupKey, Group>,
    /// Groups in the order of their turns.
    ring: VecDeque<GroupKey>,
    octets: usize,
}

/// Lanes that share one turn.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
enum GroupKey {
    /// The one lane of an org's digest. The org's addresses aren't in this group, since their packets may be forged.
    Org(Uuid),
    Sources(SourceGroup),
    /// One lane.
    Unproven(IpAddr),
}

/// Lanes of a group in the order of their turns: a list in [`Lanes::lanes`], so that a group of its own costs no allocation.
#[derive(Debug)]
struct Group {
    first: InviteLane,
    last: InviteLane,
    octets: usize,
}

/// INVITEs of a lane: a list in [`Lanes::invites`], so that a lane of its own costs no allocation.
#[derive(Debug)]
struct Lane {
    first: usize,
    last: usize,
    octets: usize,
    /// Next lane of the group.
    next: Option<InviteLane>,
}

#[derive(Debug)]
struct Waiting {
    invite: QueuedInvite,
    /// Next INVITE of the lane.
    next: Option<usize>,
}

impl Lanes {
    fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns true if there is room for an INVITE of so many octets.
    fn has_room(&self, lane: InviteLane, octets: usize) -> bool {
        let group = self.groups.get(&group_of(lane));
        let of_group = group.map_or(0, |group| group.octets);
        // A lane among others counts twice, so that it leaves room to those of its group: alone it has a third.
        let of_lane = match lane {
            InviteLane::Source { .. } => self.lanes.get(&lane).map_or(0, |lane| lane.octets),
            InviteLane::Org(_) | InviteLane::Unproven(_) => 0,
        };
        of_group + of_lane + octets + OVERHEAD <= ROOM.saturating_sub(self.octets)
    }

    fn push(&mut self, lane: InviteLane, invite: QueuedInvite) {
        let octets = invite.cost();
        let at = self.invites.insert(Waiting { invite, next: None });
        self.octets += octets;

        let turn = group_of(lane);
        let group = self.groups.entry(turn).or_insert_with(|| {
            self.ring.push_back(turn);
            Group {
                first: lane,
                last: lane,
                octets: 0,
            }
        });
        group.octets += octets;

        if let Some(lane) = self.lanes.get_mut(&lane) {
            self.invites[lane.last].next = Some(at);
            lane.last = at;
            lane.octets += octets;
            return;
        }

        // None if the group is new.
        if let Some(last) = self.lanes.get_mut(&group.last) {
            last.next = Some(lane);
        }
        group.last = lane;
        self.lanes.insert(
            lane,
            Lane {
                first: at,
                last: at,
                octets,
                next: None,
            },
        );
    }

    /// Takes the first INVITE of the lane whose turn it is, in the group whose turn it is.
    fn pop(&mut self) -> Option<QueuedInvite> {
        let turn = self.ring.pop_front()?;
        let group = self.groups.get_mut(&turn)?;
        let served = group.first;
        let lane = self.lanes.get_mut(&served)?;
        let Waiting { invite, next } = self.invites.try_remove(lane.first)?;

        let octets = invite.cost();
        self.octets -= octets;
        group.octets -= octets;
        lane.octets -= octets;

        let next_lane = lane.next.take();
        match next {
            Some(next) => lane.first = next,
            None => drop(self.lanes.remove(&served)),
        }
        match (next_lane, next) {
            // The lane goes to the end of its group.
            (Some(next_lane), Some(_)) => {
                group.first = next_lane;
                if let Some(last) = self.lanes.get_mut(&group.last) {
                    last.next = Some(served);
                }
                group.last = served;
            }
            (Some(next_lane), None) => group.first = next_lane,
            (None, Some(_)) => {}
            (None, None) => {
                self.groups.remove(&turn);
                return Some(invite);
            }
        }
        self.ring.push_back(turn);
        Some(invite)
    }

    /// Returns how long the oldest INVITE of a lane has waited.
    fn age_of(&self, lane: InviteLane, now: Moment) -> Duration {
        let first = self.lanes.get(&lane).map(|lane| lane.first);
        let first = first.and_then(|first| self.invites.get(first));
        first.map_or(Duration::ZERO, |first| first.invite.age(now))
    }

    /// Returns how long the INVITE whose turn it is has waited.
    fn age_of_next(&self, now: Moment) -> Duration {
        let next = self.ring.front().and_then(|turn| self.groups.get(turn));
        next.map_or(Duration::ZERO, |group| self.age_of(group.first, now))
    }
}

/// An INVITE, or a repetition of one.
#[derive(Debug)]
pub(crate) struct QueuedInvite {
    pub(crate) key: InviteKey,
    pub(crate) arrived: ForwardedMessage,
}

impl QueuedInvite {
    fn cost(&self) -> usize {
        self.arrived.octets.len() + OVERHEAD
    }

    fn age(&self, now: Moment) -> Duration {
        now.since(self.arrived.received_at)
    }
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
        self.proven.is_empty() && self.unproven.is_empty()
    }

    /// Returns true if there is room for an INVITE of so many octets, and it can be served in time. Under pressure an unproven one can't once the
    /// oldest of its lane has waited too long; refusing at once costs less than queueing it for a refusal.
    pub(crate) fn takes(&self, lane: InviteLane, octets: usize, now: Moment) -> bool {
        if is_proven(lane) {
            // However long they wait: whether it was too long is decided when their turn comes.
            return self.proven.has_room(lane, octets);
        }
        let comes_late = || {
            let age = self.unproven.age_of(lane, now);
            age >= MAX_UNPROVEN_AGE || self.unproven.ring.len() >= MAX_UNPROVEN_LANES
        };
        let is_hopeless = self.pressure.is_on(now) && comes_late();
        self.unproven.has_room(lane, octets) && !is_hopeless
    }

    /// Returns true if an INVITE has waited too long to be served. Call it once per INVITE: the answer feeds the
    /// detector of pressure.
    pub(crate) fn is_late(&mut self, received_at: Moment, now: Moment) -> bool {
        let [proven, unproven] = [&self.proven, &self.unproven].map(|half| half.age_of_next(now));
        let behind = proven.max(unproven);
        self.pressure
            .is_too_long(now.since(received_at), behind, now)
    }

    /// Returns true if an INVITE of this transaction waits that came from the same source. This one is then a retransmission, to be discarded
    /// (RFC 3261 §17.2.1).
    pub(crate) fn absorbs(&self, key: InviteKey, flow: &Flow) -> bool {
        let waiting = self.transactions.get(&key);
        waiting.is_some_and(|waiting| waiting.flow.is_with(flow))
    }

    /// Queues an INVITE.
    pub(crate) fn push(&mut self, lane: InviteLane, invite: QueuedInvite) {
        // A copy from another source doesn't change the flow: a CANCEL is judged by that of the first copy.
        let transaction = self
            .transactions
            .entry(invite.key)
            .or_insert(QueuedTransaction {
                flow: invite.arrived.flow,
                copies: 0,
                is_canceled: false,
            });
        transaction.copies += 1;

        match is_proven(lane) {
            true => self.proven.push(lane, invite),
            false => self.unproven.push(lane, invite),
        }
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
        let is_unproven_turn = self.turns >= TURNS || self.proven.is_empty();
        let next = match is_unproven_turn && !self.unproven.is_empty() {
            true => {
                self.turns = 0;
                self.unproven.pop()
            }
            false => {
                self.turns = self.turns.saturating_add(1);
                self.proven.pop()
            }
        };

        // Both are empty: free the memory that a burst has left.
        let capacity = self.proven.invites.capacity() + self.unproven.invites.capacity();
        if next.is_none() && capacity > 64 {
            (self.proven, self.unproven) = Default::default();
            self.transactions = HashMap::new();
        }

        let QueuedInvite { key, arrived } = next?;
        let is_canceled = match self.transactions.get_mut(&key) {
            Some(transaction) => {
                transaction.copies -= 1;
                // A copy from another source ends with 487 too, or it would begin the call that was cancelled.
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

const fn is_proven(lane: InviteLane) -> bool {
    match lane {
        InviteLane::Org(_) | InviteLane::Source { .. } => true,
        InviteLane::Unproven(_) => false,
    }
}

const fn group_of(lane: InviteLane) -> GroupKey {
    match lane {
        InviteLane::Org(org) => GroupKey::Org(org),
        InviteLane::Source { group, .. } => GroupKey::Sources(group),
        InviteLane::Unproven(network) => GroupKey::Unproven(network),
    }
}

/// Returns true if the message would begin a call.
pub(crate) fn is_new_invite(message: &Message<'_>) -> bool {
    message.is_request() && message.method() == Method::Invite && message.to_tag().is_none()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use trunkline_sip::flow::Transport;

    use super::*;

    const START: Moment = Moment::from_secs(1_790_000_000);

    fn source(host: u8) -> Flow {
        let peer = SocketAddr::from(([192, 0, 2, host], 5060));
        Flow {
            transport: Transport::Udp,
            listener: 0,
            connection: 0,
            local: peer,
            peer,
        }
    }

    fn sized(mark: u32, octets: usize, received_at: Moment) -> QueuedInvite {
        let mut text = vec![0; octets];
        text[..4].copy_from_slice(&mark.to_be_bytes());
        QueuedInvite {
            key: InviteKey(mark.into()),
            arrived: ForwardedMessage {
                flow: source(1),
                octets: text.into(),
                received_at,
            },
        }
    }

    fn arrived(mark: u32, received_at: Moment) -> QueuedInvite {
        sized(mark, 4, received_at)
    }

    /// Serves all, and returns their marks.
    fn served(queue: &mut InviteQueue) -> Vec<u32> {
        let all = std::iter::from_fn(|| queue.pop());
        all.map(|next| mark_of(&next)).collect()
    }

    fn mark_of(next: &NextInvite) -> u32 {
        let mark = next.arrived.octets.first_chunk().expect("four octets");
        u32::from_be_bytes(*mark)
    }

    fn org(number: u128) -> InviteLane {
        InviteLane::Org(Uuid::from_u128(number))
    }

    /// Returns the lane of one of 65,536 addresses that the same orgs allow.
    fn allowed(group: u64, host: u16) -> InviteLane {
        let [high, low] = host.to_be_bytes();
        InviteLane::Source {
            group: SourceGroup::Allowed(group),
            source: [10, 0, high, low].into(),
        }
    }

    fn unproven(network: u8) -> InviteLane {
        InviteLane::Unproven([198, 51, network, 0].into())
    }

    #[test]
    fn an_invite_that_waits_can_be_canceled_from_its_source() {
        let mut invite_queue = InviteQueue::default();
        for mark in [1, 2, 2, 3] {
            invite_queue.push(unproven(1), arrived(mark, START));
        }
        let mut cancels =
            |mark: u8, host| invite_queue.cancel(InviteKey(mark.into()), &source(host));
        assert!(!cancels(1, 2));
        assert!(cancels(2, 1));
        assert!(!cancels(4, 1), "it isn't queued");

        let order: Vec<(u32, bool)> = std::iter::from_fn(|| invite_queue.pop())
            .map(|next| (mark_of(&next), next.is_canceled))
            .collect();
        assert_eq!(order, [(1, false), (2, true), (2, true), (3, false)]);
        assert!(invite_queue.transactions.is_empty());
    }

    #[test]
    fn a_repetition_of_an_invite_that_waits_is_absorbed() {
        let mut invite_queue = InviteQueue::default();
        assert!(!invite_queue.absorbs(InviteKey(1), &source(1)));
        invite_queue.push(org(1), arrived(1, START));
        assert!(invite_queue.absorbs(InviteKey(1), &source(1)));
        assert!(!invite_queue.absorbs(InviteKey(1), &source(2)), "not its");
        assert!(!invite_queue.absorbs(InviteKey(2), &source(1)), "another");
        assert_eq!(served(&mut invite_queue), [1]);
        assert!(!invite_queue.absorbs(InviteKey(1), &source(1)));
    }

    #[test]
    fn lanes_are_served_in_turn() {
        let mut invite_queue = InviteQueue::default();
        let host = |host: u16| allowed(host.into(), host);
        let flood = (0..6).map(|mark| (org(1), mark));
        let others = [(org(2), 100), (host(1), 200), (host(2), 300), (org(2), 101)];
        for (lane, mark) in flood.chain(others) {
            invite_queue.push(lane, arrived(mark, START));
        }
        let order = served(&mut invite_queue);
        assert_eq!(order, [0, 100, 200, 300, 1, 101, 2, 3, 4, 5]);
        assert!(invite_queue.is_empty());
    }

    #[test]
    fn lanes_of_a_group_are_served_in_turn_within_its_turns() {
        let mut invite_queue = InviteQueue::default();
        let invites = [
            (allowed(7, 1), [10, 11, 12]),
            (allowed(7, 2), [20, 21, 22]),
            (org(1), [100, 101, 102]),
        ];
        for (lane, marks) in invites {
            for mark in marks {
                invite_queue.push(lane, arrived(mark, START));
            }
        }
        let next = |queue: &mut InviteQueue| mark_of(&queue.pop().expect("an INVITE"));
        let first: [u32; 4] = std::array::from_fn(|_| next(&mut invite_queue));
        assert_eq!(first, [10, 100, 20, 101]);

        // A lane that joins its group, or comes back to it, has its turn after the others.
        invite_queue.push(allowed(7, 3), arrived(30, START));
        let rest = served(&mut invite_queue);
        assert_eq!(rest, [11, 102, 21, 30, 12, 22]);
        assert!(invite_queue.is_empty());
        assert!(invite_queue.proven.groups.is_empty());
        assert!(invite_queue.proven.lanes.is_empty());
    }

    /// A node that serves 100 INVITEs a second, while one org sends 1,000 a second from 1,000 addresses, and two others 20 each.
    #[test]
    fn an_org_with_a_thousand_addresses_has_no_more_turns_than_others() {
        let mut invite_queue = InviteQueue::default();
        let honest = [org(1), allowed(8, 1)];
        let mut arrivals = HashMap::new();
        let mut waits: HashMap<InviteLane, (u32, Duration)> = HashMap::new();

        for millisecond in 0..5_000_u32 {
            let now = START + Duration::from_millis(millisecond.into());
            let host = u16::try_from(millisecond % 1_000).expect("small");
            let is_due = millisecond % 50 == 0;
            let others = honest.into_iter().filter(|_| is_due);
            for (at, lane) in (0..).zip(std::iter::once(allowed(7, host)).chain(others)) {
                let mark = millisecond * 4 + at;
                assert!(invite_queue.takes(lane, 1_200, now), "{lane:?}");
                arrivals.insert(mark, (lane, now));
                invite_queue.push(lane, sized(mark, 1_200, now));
            }
            if millisecond % 10 == 0
                && let Some(next) = invite_queue.pop()
            {
                let (lane, came) = arrivals[&mark_of(&next)];
                let (count, longest) = waits.entry(lane).or_default();
                *count += 1;
                *longest = now.since(came).max(*longest);
            }
        }

        for lane in honest {
            let (served, longest) = waits[&lane];
            assert_eq!(served, 100, "{lane:?}");
            assert!(
                longest <= Duration::from_millis(30),
                "{lane:?}: {longest:?}"
            );
        }
    }

    #[test]
    fn what_proves_nothing_has_one_turn_in_five_whatever_its_source() {
        let mut invite_queue = InviteQueue::default();
        for mark in 0..12 {
            invite_queue.push(org(1), arrived(mark, START));
        }
        // A flood from one network, and an honest INVITE from another.
        for mark in 1_000..1_005 {
            invite_queue.push(unproven(1), arrived(mark, START));
        }
        invite_queue.push(unproven(2), arrived(2_000, START));
        let order = served(&mut invite_queue);
        assert_eq!(
            order,
            [
                0, 1, 2, 3, 1_000, 4, 5, 6, 7, 2_000, 8, 9, 10, 11, 1_001, 1_002, 1_003, 1_004
            ]
        );
    }

    /// A node that serves 100 INVITEs a second, while one org sends 500 a second, another 20, and unproven senders 1,000 with 5 honest ones
    /// among them. Returns the longest wait of each: the honest org, and the honest unproven sender.
    #[test]
    fn above_capacity_those_who_send_little_are_served_at_once() {
        let mut invite_queue = InviteQueue::default();
        let (greedy, honest, flood, first) = (org(1), org(2), unproven(1), unproven(2));
        let senders = [(greedy, 2), (honest, 50), (flood, 1), (first, 200)];
        let mut arrivals = HashMap::new();
        let mut waits: HashMap<InviteLane, (u32, Duration)> = HashMap::new();

        for millisecond in 0..5_000_u32 {
            let now = START + Duration::from_millis(millisecond.into());
            for (at, (lane, every)) in (0..).zip(senders) {
                let mark = millisecond * 4 + at;
                if millisecond % every == 0 && invite_queue.takes(lane, 1_200, now) {
                    arrivals.insert(mark, (lane, now));
                    invite_queue.push(lane, sized(mark, 1_200, now));
                }
            }
            if millisecond % 10 == 0
                && let Some(next) = invite_queue.pop()
            {
                let (lane, came) = arrivals[&mark_of(&next)];
                invite_queue.is_late(came, now);
                let (count, longest) = waits.entry(lane).or_default();
                *count += 1;
                *longest = now.since(came).max(*longest);
            }
        }

        let (served, longest) = waits[&honest];
        assert!(served >= 99, "{served} of 100 of the honest org");
        assert!(longest <= Duration::from_millis(50), "{longest:?}");
        let (served, longest) = waits[&first];
        assert!(served >= 24, "{served} of 25 honest first INVITEs");
        assert!(longest <= Duration::from_millis(110), "{longest:?}");
        let (served, _) = waits[&greedy];
        assert!(served >= 290, "the rest is the flood's: {served}");
    }

    #[test]
    fn a_lane_has_as_much_room_as_is_left_free() {
        const SIZE: usize = 65_000;
        let mut invite_queue = InviteQueue::default();
        let mut mark = 0;
        let mut fill = |queue: &mut InviteQueue, lane| {
            let before = mark;
            while queue.takes(lane, SIZE, START) {
                mark += 1;
                queue.push(lane, sized(mark, SIZE, START));
            }
            (mark - before) as usize * (SIZE + OVERHEAD)
        };

        // Each takes half of what the ones before have left.
        let mut left = ROOM;
        for number in 1..=4 {
            let taken = fill(&mut invite_queue, org(number));
            let is_half = taken.abs_diff(left / 2) <= SIZE + OVERHEAD;
            assert!(is_half, "{number}: {taken} of {left}");
            left -= taken;
            assert!(!invite_queue.takes(org(1), SIZE, START), "it has its room");
        }
        assert!(
            fill(&mut invite_queue, unproven(1)) > ROOM / 3,
            "each half has room of its own"
        );
        while invite_queue.pop().is_some() {}
        assert_eq!(invite_queue.proven.octets, 0);
        assert_eq!(invite_queue.unproven.octets, 0);
        assert!(invite_queue.proven.lanes.is_empty());
        assert!(invite_queue.proven.groups.is_empty());
        assert_eq!(invite_queue.proven.invites.capacity(), 0);
    }

    #[test]
    fn a_group_leaves_room_to_others_and_a_lane_to_its_group() {
        const SIZE: usize = 65_000;
        let mut invite_queue = InviteQueue::default();
        let mut mark = 0;
        while invite_queue.takes(allowed(7, 0), SIZE, START) {
            mark += 1;
            invite_queue.push(allowed(7, 0), sized(mark, SIZE, START));
        }
        let taken = invite_queue.proven.octets;
        assert!(taken.abs_diff(ROOM / 3) <= SIZE + OVERHEAD, "{taken}");

        // Each of the group's INVITEs from another address.
        for host in 1.. {
            if !invite_queue.takes(allowed(7, host), SIZE, START) {
                break;
            }
            mark += 1;
            invite_queue.push(allowed(7, host), sized(mark, SIZE, START));
        }
        let taken = invite_queue.proven.octets;
        assert!(taken.abs_diff(ROOM / 2) <= SIZE + OVERHEAD, "{taken}");
        assert!(
            !invite_queue.takes(allowed(7, 0), 4, START),
            "the longest lane"
        );
        assert!(invite_queue.takes(allowed(8, 0), ROOM / 3, START));
        assert!(invite_queue.takes(org(1), ROOM / 3, START));
    }

    #[test]
    fn unproven_senders_are_not_let_in_where_they_would_be_late() {
        let mut invite_queue = InviteQueue::default();
        invite_queue.push(unproven(1), arrived(0, START));
        let late = START + MAX_UNPROVEN_AGE;

        assert!(invite_queue.takes(unproven(1), 4, late), "no pressure");
        invite_queue.pressure.until = Some(START + CALM);

        assert!(invite_queue.takes(unproven(1), 4, START + MAX_UNPROVEN_AGE / 2));
        assert!(!invite_queue.takes(unproven(1), 4, late));
        assert!(invite_queue.takes(unproven(2), 4, late), "another network");
        assert!(invite_queue.takes(org(1), 4, late));

        for network in 0..MAX_UNPROVEN_LANES {
            let [high, low] = u16::try_from(network).expect("small").to_be_bytes();
            let lane = InviteLane::Unproven([100, high, low, 0].into());
            invite_queue.push(lane, arrived(1, START));
        }
        assert!(!invite_queue.takes(unproven(2), 4, late), "forged sources");
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
        invite_queue.push(unproven(1), arrived(0, START));
        let at = |millis| START + Duration::from_millis(millis);
        for now in (110..=430).step_by(20) {
            assert!(
                !invite_queue.is_late(at(now), at(now)),
                "who has just come is served"
            );
        }
        assert!(invite_queue.pressure.is_on(at(430)));
        assert!(invite_queue.is_late(START, at(430)));
        assert!(!invite_queue.takes(unproven(1), 4, at(430)));
    }
}
