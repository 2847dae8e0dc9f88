//! Limits on the calls of an agent, an org, a trunk and this node: permits, released by drop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::loop_counter::LoopCounter;
use super::org_shares::{OrgShares, ShareUse};
use super::refusal_records::RefusalRecords;

/// Limit that is reached.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LimitReached {
    /// The agent is at `max_concurrent_calls`.
    Agent,
    /// The trunk is at its limit.
    Trunk,
    /// The org is at its limit, or its share of the node is used up.
    Org,
    /// The org is at its limit of outbound calls.
    Outbound,
    /// This node is at its limit.
    Node,
}

/// One count to take: its agent, trunk or org, and the most it may reach (`None`: no limit, still counted).
#[derive(Copy, Clone, Debug)]
pub struct Claim {
    /// Agent, trunk or org.
    pub id: Uuid,
    /// The limit.
    pub max: Option<u32>,
}

/// Live calls of every agent, trunk and org, shared by all shards.
#[derive(Debug)]
pub struct Limits {
    counts: DashMap<Uuid, u32>,
    calls: AtomicUsize,
    max_calls: usize,
    loop_counter: LoopCounter,
    shares: OrgShares,
    refusals: RefusalRecords,
}

impl Limits {
    /// Returns whether this node is at its limit.
    pub fn is_full(&self) -> bool {
        self.calls() >= self.max_calls
    }

    /// At most `max_calls` on this node, however many of them are one caller's.
    pub fn new(max_calls: usize) -> Arc<Self> {
        Self::with_setups(max_calls, 0)
    }

    /// At most `max_calls` on this node, and `setups` in ten seconds of one caller to one number through one trunk (0: all).
    pub fn with_setups(max_calls: usize, setups: u16) -> Arc<Self> {
        Arc::new(Self {
            counts: DashMap::new(),
            calls: AtomicUsize::new(0),
            max_calls,
            loop_counter: LoopCounter::new(setups),
            shares: OrgShares::new(max_calls),
            refusals: RefusalRecords::default(),
        })
    }

    /// Counts a set-up of `caller` to `called` through `trunk`; `false` if there were too many lately (a loop).
    pub(crate) fn admits(&self, caller: &str, called: &str, trunk: Uuid, now: Moment) -> bool {
        self.loop_counter.admits(caller, called, trunk, now)
    }

    /// Counts a refused INVITE of an org; `false` if it isn't to be recorded.
    pub(crate) fn records_refusal(&self, org: Uuid, now: Moment) -> bool {
        self.refusals.take(org, now)
    }

    /// The live calls of an agent, trunk or org.
    pub fn live(&self, id: Uuid) -> u32 {
        self.counts.get(&id).map_or(0, |count| *count)
    }

    /// The live calls of this node.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Takes all counts of a call or none.
    ///
    /// # Errors
    /// The limit that is reached; then nothing was taken.
    pub fn acquire(
        self: &Arc<Self>,
        org: Claim,
        trunk: Option<Claim>,
        agent: Claim,
        now: Moment,
    ) -> Result<Permit, LimitReached> {
        let claims = [
            (Some(org), LimitReached::Org),
            (trunk, LimitReached::Trunk),
            (Some(agent), LimitReached::Agent),
            (None, LimitReached::Outbound),
        ];
        self.acquire_all(org.id, ShareUse::SetUp, claims, now)
    }

    /// Takes all counts of a call that we begin, or none. It counts among its org's outbound calls as well.
    ///
    /// # Errors
    /// The limit that is reached; then nothing was taken.
    pub(crate) fn acquire_outbound(
        self: &Arc<Self>,
        [org, outbound, trunk, agent]: [Claim; 4],
        now: Moment,
    ) -> Result<Permit, LimitReached> {
        let claims = [
            (Some(org), LimitReached::Org),
            (Some(outbound), LimitReached::Outbound),
            (Some(trunk), LimitReached::Trunk),
            (Some(agent), LimitReached::Agent),
        ];
        self.acquire_all(org.id, ShareUse::SetUp, claims, now)
    }

    /// Takes the counts of one more leg of an org's call that is up. It counts in the org's share of the node.
    ///
    /// # Errors
    /// The limit that is reached; then nothing was taken.
    pub(crate) fn acquire_leg(
        self: &Arc<Self>,
        org: Uuid,
        [outbound, trunk]: [Option<Claim>; 2],
        now: Moment,
    ) -> Result<Permit, LimitReached> {
        let claims = [
            (None, LimitReached::Org),
            (outbound, LimitReached::Outbound),
            (trunk, LimitReached::Trunk),
            (None, LimitReached::Agent),
        ];
        self.acquire_all(org, ShareUse::Leg, claims, now)
    }

    /// Takes the counts of a call of the deployment's own: all such calls, and those for one org.
    ///
    /// # Errors
    /// The limit that is reached, [`LimitReached::Node`] or [`LimitReached::Org`]; then nothing was taken.
    pub(crate) fn acquire_own(
        self: &Arc<Self>,
        [all, of_org]: [Claim; 2],
        now: Moment,
    ) -> Result<Permit, LimitReached> {
        let claims = [
            (Some(all), LimitReached::Node),
            (Some(of_org), LimitReached::Org),
            (None, LimitReached::Trunk),
            (None, LimitReached::Agent),
        ];
        self.acquire_all(all.id, ShareUse::Leg, claims, now)
    }

    /// Counts a call of the node and of the org's share, and takes all claims, or takes nothing.
    fn acquire_all(
        self: &Arc<Self>,
        org: Uuid,
        taking: ShareUse,
        claims: [(Option<Claim>, LimitReached); 4],
        now: Moment,
    ) -> Result<Permit, LimitReached> {
        // Counted first and compared afterwards, so that two shards can't both take the last place.
        if self.calls.fetch_add(1, Ordering::Relaxed) >= self.max_calls {
            self.calls.fetch_sub(1, Ordering::Relaxed);
            return Err(LimitReached::Node);
        }

        if !self.shares.take(org, taking, now) {
            self.calls.fetch_sub(1, Ordering::Relaxed);
            return Err(LimitReached::Org);
        }

        let mut permit = Permit {
            limits: Arc::clone(self),
            org,
            held: [None; 4],
        };
        // A permit that is dropped on the way gives back what it holds so far.
        for (held, (claim, full)) in permit.held.iter_mut().zip(claims) {
            let Some(claim) = claim else { continue };
            if !self.take(claim) {
                return Err(full);
            }
            *held = Some(claim.id);
        }

        Ok(permit)
    }

    fn take(&self, claim: Claim) -> bool {
        let mut count = self.counts.entry(claim.id).or_insert(0);
        if claim.max.is_some_and(|max| *count >= max) {
            return false;
        }
        *count += 1;
        true
    }

    fn release(&self, id: Uuid) {
        if let Entry::Occupied(mut entry) = self.counts.entry(id) {
            // An id without calls keeps no entry, so the table grows with live calls alone.
            if *entry.get() <= 1 {
                entry.remove();
            } else {
                *entry.get_mut() -= 1;
            }
        }
    }
}

/// The counts that one call holds.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    /// Org whose share it counts in.
    org: Uuid,
    held: [Option<Uuid>; 4],
}

impl Permit {
    /// Releases one count before the others.
    pub(crate) fn release(&mut self, id: Uuid) {
        for held in &mut self.held {
            if held.take_if(|held| *held == id).is_some() {
                self.limits.release(id);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        for id in self.held.into_iter().flatten() {
            self.limits.release(id);
        }
        self.limits.shares.release(self.org);
        self.limits.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(id: u128, max: Option<u32>) -> Claim {
        Claim {
            id: Uuid::from_u128(id),
            max,
        }
    }

    #[test]
    fn a_refused_claim_takes_nothing() {
        let limits = Limits::new(10);
        let first = limits
            .acquire(
                claim(1, None),
                Some(claim(2, None)),
                claim(3, Some(1)),
                Moment::default(),
            )
            .expect("room");

        let refused = limits.acquire(
            claim(1, None),
            Some(claim(2, None)),
            claim(3, Some(1)),
            Moment::default(),
        );

        assert_eq!(refused.err(), Some(LimitReached::Agent));
        assert_eq!(
            [1, 2, 3].map(|id| limits.live(Uuid::from_u128(id))),
            [1, 1, 1]
        );
        assert_eq!(limits.calls(), 1);

        let mut first = first;
        first.release(Uuid::from_u128(3));
        first.release(Uuid::from_u128(3));

        assert_eq!(
            [1, 2, 3].map(|id| limits.live(Uuid::from_u128(id))),
            [1, 1, 0]
        );
        drop(first);

        assert_eq!(
            [1, 2, 3].map(|id| limits.live(Uuid::from_u128(id))),
            [0, 0, 0]
        );
        assert_eq!(limits.calls(), 0);
    }

    #[test]
    fn each_limit_names_itself() {
        let limits = Limits::new(1);
        let org = limits.acquire(claim(1, Some(0)), None, claim(3, None), Moment::default());
        assert_eq!(org.err(), Some(LimitReached::Org));

        let trunk = limits.acquire(
            claim(1, None),
            Some(claim(2, Some(0))),
            claim(3, None),
            Moment::default(),
        );
        assert_eq!(trunk.err(), Some(LimitReached::Trunk));

        let held = limits
            .acquire(claim(1, None), None, claim(3, None), Moment::default())
            .expect("room");
        assert_eq!(
            limits
                .acquire(claim(1, None), None, claim(3, None), Moment::default())
                .err(),
            Some(LimitReached::Node)
        );

        drop(held);
    }
}
