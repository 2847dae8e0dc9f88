//! Shares of a thing that a node has a limited number of: no org takes all of it, and neither do the orgs of one partner together.
//!
//! A share binds only while the thing is scarce, so that a node with room refuses nobody. Counts are shared by all threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use dashmap::mapref::entry::Entry;
use uuid::Uuid;

use crate::ids::SharedIdTable;

/// Per cent of the thing below which what is free is scarce: shares bind.
const SCARCE: u64 = 15;
/// Part of the thing that stays free while one org or partner alone has any of it.
const RESERVE: u32 = 10;
/// Part of the thing that is an org's share.
const ORGS_PART: u32 = 4;
/// Number of counts kept before those of earlier seconds are removed.
const SWEEP: usize = 1_024;

/// Org that takes of a thing, and its partner.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The org.
    pub org: Uuid,
    /// The partner whose orgs have a share together; an org without one has its own alone.
    pub partner: Option<PartnerShare>,
}

/// Share of the orgs of one partner.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct PartnerShare {
    /// The partner.
    pub id: Uuid,
    /// Its share in per cent.
    pub percent: u8,
}

impl PartnerShare {
    /// Share in per cent of a partner for which the operator has set none.
    pub const DEFAULT: u8 = 50;
}

impl Holder {
    /// An org without a partner.
    pub const fn alone(org: Uuid) -> Self {
        Self { org, partner: None }
    }
}

/// Reason why nothing was taken.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoShare {
    /// All of the thing is in use.
    #[error("nothing is left")]
    Full,
    /// The org, or its partner, has its share.
    #[error("the share of the org or its partner is used up")]
    UsedUp,
}

/// Shares of one thing, over all threads.
#[derive(Debug)]
pub struct Shares {
    /// Counts of orgs and of partners.
    of: SharedIdTable<Uuid, Count>,
    /// Count of all, as [`Count::pack`] has it.
    total: AtomicU64,
    capacity: AtomicU32,
    /// Least share of an org or partner.
    least: u32,
    refused: AtomicU64,
    /// Second in which counts were swept.
    swept: AtomicU32,
}

/// Number of things taken in one span. What is held, and released, is counted in span 0 alone; of what happens, each second is a span.
#[derive(Copy, Clone, Default, Debug)]
struct Count {
    span: u32,
    taken: u32,
}

impl Count {
    /// Returns the number taken in `span`.
    const fn in_span(self, span: u32) -> u32 {
        if self.span == span { self.taken } else { 0 }
    }

    const fn pack(self) -> u64 {
        ((self.span as u64) << 32) | self.taken as u64
    }

    const fn unpack(packed: u64) -> Self {
        Self {
            span: (packed >> 32) as u32,
            taken: packed as u32,
        }
    }
}

impl Shares {
    /// Shares of `capacity` things; the share of an org or partner is at least `least` of them.
    pub fn new(capacity: usize, least: u32) -> Arc<Self> {
        let shares = Self {
            of: SharedIdTable::default(),
            total: AtomicU64::new(0),
            capacity: AtomicU32::new(0),
            least,
            refused: AtomicU64::new(0),
            swept: AtomicU32::new(0),
        };
        shares.set_capacity(capacity);
        Arc::new(shares)
    }

    /// Sets how many there are now. What is held already stays held.
    pub fn set_capacity(&self, capacity: usize) {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    /// Takes one, until the share is dropped.
    ///
    /// # Errors
    /// [`NoShare`]; then nothing is counted.
    pub fn take(self: &Arc<Self>, holder: Holder) -> Result<Share, NoShare> {
        self.try_take(holder)
            .inspect_err(|none| self.count_refusal(*none))
    }

    fn try_take(self: &Arc<Self>, holder: Holder) -> Result<Share, NoShare> {
        let before = self.count(holder, 0);
        let verdict = match before.total >= self.capacity() {
            true => Err(NoShare::Full),
            false => self.judge(holder, before, true),
        };

        // Made first, so that a refusal takes its count back as well.
        let share = Share {
            shares: Arc::clone(self),
            holder,
        };
        verdict.map(|()| share)
    }

    /// Counts one that happens in this second; false, without counting, if the share is used up. An org or partner that is alone in this second
    /// isn't bound, and there is no end to all together: the capacity is what may happen in a second before it is scarce.
    pub fn happens(&self, holder: Holder, second: u32) -> bool {
        self.sweep(second);
        let before = self.count(holder, second);
        let verdict = self.judge(holder, before, false);
        if let Err(none) = verdict {
            self.uncount(holder, second);
            self.count_refusal(none);
        }
        verdict.is_ok()
    }

    /// Returns the number that is held.
    pub fn held(&self) -> u32 {
        Count::unpack(self.total.load(Ordering::Relaxed)).in_span(0)
    }

    /// Returns the number that an org holds, or the orgs of a partner together.
    pub fn held_by(&self, id: Uuid) -> u32 {
        self.of.get(&id).map_or(0, |count| count.in_span(0))
    }

    /// Returns the number that a holder may have while the thing is scarce.
    pub fn share_of(&self, holder: Holder) -> u32 {
        let capacity = self.capacity();
        let of_partner = holder.partner.map(|own| self.of_partner(own, capacity));
        let of_org = self.of_org(capacity);
        of_partner.map_or(of_org, |most| most.min(of_org))
    }

    /// Returns how many times a share has bound.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    fn capacity(&self) -> u32 {
        self.capacity.load(Ordering::Relaxed)
    }

    fn of_org(&self, capacity: u32) -> u32 {
        self.within(capacity / ORGS_PART, capacity)
    }

    fn of_partner(&self, share: PartnerShare, capacity: u32) -> u32 {
        let part = u64::from(capacity) * u64::from(share.percent) / 100;
        self.within(u32::try_from(part).unwrap_or(u32::MAX), capacity)
    }

    /// Returns a share that is neither too small to work with nor all.
    fn within(&self, share: u32, capacity: u32) -> u32 {
        // On a small node the least share leaves what is scarce to others too.
        let plenty = u64::from(capacity) * (100 - SCARCE) / 100;
        let least = self.least.min(u32::try_from(plenty).unwrap_or(u32::MAX));
        share.max(least).min(most_alone(capacity))
    }

    /// Judges one more, by the counts before it.
    fn judge(&self, holder: Holder, before: Before, binds_alone: bool) -> Result<(), NoShare> {
        let capacity = self.capacity();
        let is_scarce =
            u64::from(capacity.saturating_sub(before.total)) * 100 < u64::from(capacity) * SCARCE;
        let may_have = |taken: u32, share: u32, alone: u32| match taken == before.total {
            true => !binds_alone || taken < alone,
            false => !is_scarce || taken < share,
        };

        let is_let = may_have(before.org, self.of_org(capacity), most_alone(capacity))
            && holder.partner.is_none_or(|own| {
                let share = self.of_partner(own, capacity);
                may_have(before.partner, share, most_of_partner_alone(capacity))
            });
        match is_let {
            true => Ok(()),
            false => Err(NoShare::UsedUp),
        }
    }

    fn count_refusal(&self, none: NoShare) {
        if none == NoShare::UsedUp {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts one, and returns the counts before it. Counted before it is judged, so that two threads can't both take the last one.
    fn count(&self, holder: Holder, span: u32) -> Before {
        let add = |count: Count| Count {
            span,
            taken: count.in_span(span).saturating_add(1),
        };
        let add_to = |id: Uuid| {
            let mut count = self.of.entry(id).or_default();
            let before = count.in_span(span);
            *count = add(*count);
            before
        };

        let org = add_to(holder.org);
        let partner = holder.partner.map_or(0, |own| add_to(own.id));
        // The total last, and taken back first: an org may look as if it had company, but not as if it were alone.
        let total = self.update_total(add);
        Before {
            org,
            partner,
            total: total.in_span(span),
        }
    }

    fn uncount(&self, holder: Holder, span: u32) {
        // Another second may have begun meanwhile, whose counts begin at zero.
        let subtract = |count: Count| Count {
            taken: count.taken - u32::from(count.in_span(span) > 0),
            ..count
        };

        self.update_total(subtract);
        let partner = holder.partner.map(|own| own.id);
        for id in [Some(holder.org), partner].into_iter().flatten() {
            if let Entry::Occupied(mut entry) = self.of.entry(id) {
                let left = subtract(*entry.get());
                // Nobody without any keeps an entry.
                if left.taken == 0 {
                    entry.remove();
                } else {
                    *entry.get_mut() = left;
                }
            }
        }
    }

    fn update_total(&self, change: impl Fn(Count) -> Count) -> Count {
        let change = |packed| Some(change(Count::unpack(packed)).pack());
        let before = self
            .total
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        Count::unpack(before.unwrap_or_else(|same| same))
    }

    /// Removes the counts of earlier seconds, once a second at most.
    fn sweep(&self, second: u32) {
        let is_first = self.swept.swap(second, Ordering::Relaxed) != second;
        if is_first && self.of.len() > SWEEP {
            self.of.retain(|_, count| count.span == second);
        }
    }
}

/// Counts before one more.
#[derive(Copy, Clone, Debug)]
struct Before {
    org: u32,
    partner: u32,
    total: u32,
}

/// Returns the number that one may have while nobody else has any.
const fn most_alone(capacity: u32) -> u32 {
    capacity - capacity / RESERVE
}

/// Returns the number that the orgs of one partner may have while no other partner has any. Half of what one of them leaves free is for the
/// others of the same partner, half for other partners.
const fn most_of_partner_alone(capacity: u32) -> u32 {
    capacity - (capacity / RESERVE).div_ceil(2)
}

/// One of a thing, which is released by drop.
#[derive(Debug)]
pub struct Share {
    shares: Arc<Shares>,
    holder: Holder,
}

impl Share {
    /// Takes one more for the same holder, which can do without: it isn't counted as refused.
    pub fn another(&self) -> Option<Self> {
        self.shares.try_take(self.holder).ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.uncount(self.holder, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u128) -> Uuid {
        Uuid::from_u128(number)
    }

    fn alone(number: u128) -> Holder {
        Holder::alone(id(number))
    }

    fn of_partner(org: u128, percent: u8) -> Holder {
        let partner = PartnerShare {
            id: id(1_000),
            percent,
        };
        Holder {
            org: id(org),
            partner: Some(partner),
        }
    }

    /// Takes up to `most`, and returns what was let.
    fn take(shares: &Arc<Shares>, holder: Holder, most: usize) -> Vec<Share> {
        (0..most).filter_map(|_| shares.take(holder).ok()).collect()
    }

    #[test]
    fn an_org_alone_leaves_a_tenth_and_one_beside_others_what_is_scarce() {
        // Capacity; what an org gets alone; beside another org that has one; and, then, the other org.
        for (capacity, on_its_own, beside, other) in [
            (1, 1, 0, 0),
            (10, 9, 8, 1),
            (24, 22, 20, 3),
            (40, 36, 34, 5),
            (100, 90, 85, 14),
            (1_000, 900, 850, 149),
        ] {
            let shares = Shares::new(capacity, 20);
            let held = take(&shares, alone(1), 2_000);
            assert_eq!(held.len(), on_its_own, "{capacity}, alone");

            let shares = Shares::new(capacity, 20);
            let first = shares.take(alone(2));
            assert!(first.is_ok());
            let held = take(&shares, alone(1), 2_000);
            assert_eq!(held.len(), beside, "{capacity}, beside another");
            let others = take(&shares, alone(2), 2_000);
            assert_eq!(others.len(), other, "{capacity}, the other org");
        }
    }

    #[test]
    fn an_org_leaves_room_to_others_of_its_only_partner_and_they_to_other_partners() {
        let shares = Shares::new(100, 20);
        let greedy = take(&shares, of_partner(1, 50), 200);
        assert_eq!(greedy.len(), 90);
        let sibling = take(&shares, of_partner(2, 50), 200);
        assert_eq!(sibling.len(), 5);
        let stranger = take(&shares, alone(3), 200);
        assert_eq!(stranger.len(), 5);
    }

    #[test]
    fn orgs_of_one_partner_leave_what_is_scarce_to_others() {
        for (percent, together) in [(10, 85), (50, 85), (90, 90), (100, 90)] {
            let shares = Shares::new(100, 5);
            let other = shares.take(alone(1)).expect("room");
            let many: Vec<_> = (10..30)
                .flat_map(|org| take(&shares, of_partner(org, percent), 5))
                .collect();
            // The partner's share is 90 at most, as much as it may have alone.
            assert_eq!(many.len(), together, "{percent} %");
            let refused = shares.take(of_partner(40, percent)).err();
            assert_eq!(refused, Some(NoShare::UsedUp));
            assert_eq!(
                shares.take(alone(1)).err(),
                None,
                "{percent} %: others have room"
            );
            assert_eq!(shares.held_by(id(1_000)), together as u32);
            drop((other, many));
            assert_eq!(shares.held(), 0);
            assert!(shares.of.is_empty(), "nobody without any is remembered");
        }
    }

    #[test]
    fn orgs_without_a_partner_have_shares_of_their_own() {
        let shares = Shares::new(100, 5);
        // Four orgs, a quarter each: no share binds before all is taken.
        let held: Vec<_> = (0..100)
            .map(|turn| shares.take(alone(turn % 4)).expect("room"))
            .collect();
        assert_eq!(shares.take(alone(9)).err(), Some(NoShare::Full));
        assert_eq!(shares.refused(), 0);
        drop(held);
    }

    #[test]
    fn what_is_released_is_free_for_those_below_their_share() {
        let shares = Shares::new(40, 1);
        let _other = shares.take(alone(2)).expect("room");
        let mut held = take(&shares, alone(1), 40);
        assert_eq!(held.len(), 34);
        // Ended and begun again, as a flood of short calls does: what is scarce stays free.
        for _ in 0..100 {
            held.pop();
            held.extend(take(&shares, alone(1), 40));
            assert_eq!(held.len(), 34);
        }
        assert_eq!(take(&shares, alone(2), 4).len(), 4);
        assert!(shares.refused() > 0);
    }

    #[test]
    fn shares_follow_what_there_is() {
        let shares = Shares::new(100, 1);
        let _other = shares.take(alone(2)).expect("room");
        shares.set_capacity(20);
        assert_eq!(take(&shares, alone(1), 100).len(), 17);
        assert_eq!(shares.share_of(alone(1)), 5);
        assert_eq!(shares.share_of(of_partner(1, 10)), 2);
    }

    #[test]
    fn what_happens_is_counted_by_the_second() {
        let shares = Shares::new(100, 20);
        let let_in = |org: u128, second: u32, count: usize| {
            (0..count)
                .filter(|_| shares.happens(alone(org), second))
                .count()
        };

        assert_eq!(let_in(1, 7, 1_000), 1_000, "alone");
        assert_eq!(let_in(2, 8, 10), 10);
        assert_eq!(let_in(1, 8, 1_000), 76, "until 15 of 100 are left");
        assert_eq!(let_in(2, 8, 10), 10, "who has less than its share goes on");
        assert_eq!(let_in(3, 8, 100), 25, "even beyond what is scarce");
        assert_eq!(let_in(1, 9, 1_000), 1_000, "the next second");
    }

    #[test]
    fn quiet_orgs_are_forgotten() {
        let shares = Shares::new(1_000_000, 20);
        for org in 0..10_000 {
            assert!(shares.happens(alone(org), u32::try_from(org / 100).expect("small")));
        }
        assert!(shares.of.len() <= SWEEP + 200, "{}", shares.of.len());
    }

    #[test]
    fn threads_together_take_no_more_than_there_is() {
        let shares = Shares::new(400, 1);
        let held: Vec<Share> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..4)
                .map(|org| {
                    let shares = &shares;
                    scope.spawn(move || take(shares, of_partner(org, 100), 1_000))
                })
                .collect();
            takers
                .into_iter()
                .flat_map(|taker| taker.join().expect("no panic"))
                .collect()
        });
        // The orgs of one partner leave a twentieth.
        assert!(held.len() <= 380, "{}", held.len());
        assert_eq!(shares.held(), u32::try_from(held.len()).expect("small"));
        drop(held);
        assert_eq!(shares.held(), 0);
        assert!(shares.of.is_empty());
    }
}
