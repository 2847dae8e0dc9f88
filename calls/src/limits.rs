//! Limits on the calls of an agent, an org, a trunk and this node, and shares of the node: permits, released by drop.

pub(crate) mod allowance;
pub(crate) mod attempt_counter;
pub mod outbound_limits;
pub(crate) mod refusal_records;
pub(crate) mod unproven_calls;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::IpAddr;
use std::sync::Arc;

use dashmap::mapref::entry::Entry;
use trunkline_bounds::{Holder, NoShare, Share, SharedIdTable, Shares};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::limits::refusal_records::RefusalRecords;
use crate::limits::unproven_calls::UnprovenCalls;
use crate::parts::ids::DEPLOYMENT;
use crate::parts::refusal::Reason;

/// Calls, and set-ups a second, that are the least share of an org or a partner.
const LEAST: u32 = 20;
/// Seconds in which new calls may fill the node before set-ups are scarce.
const FILL: usize = 20;
/// Set-ups a second that aren't scarce on any node.
const SETUPS: usize = 80;
/// Verification calls of this node at once, and the least share of an org or a partner. They count apart from other calls.
const VERIFICATION_CALLS: usize = 10;
const LEAST_VERIFICATION_CALLS: u32 = 2;

/// Limit that is reached.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LimitReached {
    /// The agent is at `max_concurrent_calls`.
    Agent,
    /// The trunk is at its limit.
    Trunk,
    /// The org is at its limit, or its share of the node or that of its partner is used up.
    Org,
    /// The org is at its limit of outbound calls.
    Outbound,
    /// The caller has as many open set-ups to this number as it may have.
    Caller,
    /// This node is at its limit.
    Node,
}

impl LimitReached {
    /// Reason that a call is refused for.
    pub(crate) const fn reason(self) -> Reason {
        match self {
            Self::Agent => Reason::AgentBusy,
            Self::Trunk => Reason::TrunkBusy,
            Self::Org => Reason::OrgBusy,
            Self::Outbound => Reason::OutboundBusy,
            Self::Caller => Reason::CallerBusy,
            Self::Node => Reason::Overload,
        }
    }
}

/// One count to take: its agent, trunk, org or set-up, and the most it may reach (`None`: no limit, still counted).
#[derive(Copy, Clone, Debug)]
pub struct Claim {
    /// Agent, trunk or org; for set-ups a hash of caller, called number and trunk.
    pub id: Uuid,
    /// The limit.
    pub max: Option<u32>,
}

/// Live calls of every agent, trunk and org, and open set-ups of every caller to a number, shared by all shards.
#[derive(Debug)]
pub struct Limits {
    counts: SharedIdTable<Uuid, u32>,
    max_calls: usize,
    /// Open set-ups of one caller to one number through one trunk; 0: all.
    max_setups: u16,
    setup_keys: [RandomState; 2],
    calls: Arc<Shares>,
    setups: Arc<Shares>,
    verification_calls: Arc<Shares>,
    refusals: RefusalRecords,
    unproven: UnprovenCalls,
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

    /// At most `max_calls` on this node, and `max_setups` open at once of one caller to one number through one trunk (0: all).
    pub fn with_setups(max_calls: usize, max_setups: u16) -> Arc<Self> {
        Arc::new(Self {
            counts: SharedIdTable::default(),
            max_calls,
            max_setups,
            setup_keys: Default::default(),
            calls: Shares::new(max_calls, LEAST),
            setups: Shares::new(SETUPS.max(max_calls / FILL), LEAST),
            verification_calls: Shares::new(VERIFICATION_CALLS, LEAST_VERIFICATION_CALLS),
            refusals: RefusalRecords::default(),
            unproven: UnprovenCalls::default(),
        })
    }

    /// Returns the claim of a set-up of `caller` to `called` through `trunk`: a circle through a peer that hides it ends by it.
    pub(crate) fn setup_claim(&self, caller: &str, called: &str, trunk: Uuid) -> Option<Claim> {
        let [high, low] = self
            .setup_keys
            .each_ref()
            .map(|keys| keys.hash_one((caller, called, trunk)));
        (self.max_setups > 0).then_some(Claim {
            id: Uuid::from_u64_pair(high, low),
            max: Some(self.max_setups.into()),
        })
    }

    /// Counts a refused INVITE of an org; `false` if it isn't to be recorded.
    pub(crate) fn records_refusal(&self, org: Uuid, now: Moment) -> bool {
        self.refusals.take(org, now)
    }

    /// Counts a call of a source, admitted by its address, that was acknowledged.
    pub(crate) fn acknowledge(&self, source: IpAddr, now: Moment) {
        self.unproven.acknowledge(source, now);
    }

    /// Returns whether a source has as many answered calls that aren't proven as it may have.
    pub(crate) fn is_crowded(&self, source: IpAddr, now: Moment) -> bool {
        self.unproven.is_crowded(source, now)
    }

    /// Counts a call that wasn't proven in time, for its source as well if that is given; `None` if the org has as many as it may have.
    pub(crate) fn count_unproven(
        self: &Arc<Self>,
        holder: Holder,
        source: Option<IpAddr>,
    ) -> Option<UnprovenCount> {
        let share = self.share_of_calls(holder);
        let is_counted = self.unproven.take(holder.org, source, share);
        is_counted.then(|| UnprovenCount {
            limits: Arc::clone(self),
            org: holder.org,
            source,
        })
    }

    /// The live calls of an agent, trunk or org.
    pub fn live(&self, id: Uuid) -> u32 {
        self.counts.get(&id).map_or(0, |count| *count)
    }

    /// The live calls of this node.
    pub fn calls(&self) -> usize {
        self.calls.held() as usize
    }

    /// Returns the number of calls that an org may have while calls are scarce on this node.
    pub fn share_of_calls(&self, holder: Holder) -> u32 {
        self.calls.share_of(holder)
    }

    /// Returns what orgs have shares of, by its name in metrics.
    pub fn shares(&self) -> [(&'static str, Arc<Shares>); 3] {
        [
            ("calls", Arc::clone(&self.calls)),
            ("setups", Arc::clone(&self.setups)),
            ("verification_calls", Arc::clone(&self.verification_calls)),
        ]
    }

    /// Takes all counts of a call or none.
    ///
    /// # Errors
    /// The limit that is reached; then nothing was taken.
    pub fn acquire(
        self: &Arc<Self>,
        holder: Holder,
        org: Claim,
        trunk: Option<Claim>,
        agent: Claim,
        setup: Option<Claim>,
        now: Moment,
    ) -> Result<Permit, LimitReached> {
        let claims = [
            (Some(org), LimitReached::Org),
            (trunk, LimitReached::Trunk),
            (Some(agent), LimitReached::Agent),
            (setup, LimitReached::Caller),
        ];
        let mut permit = self.acquire_call(holder, claims, now)?;
        permit.is_setup_open = setup.is_some();
        Ok(permit)
    }

    /// Takes all counts of a call that we begin, or none. It counts among its org's outbound calls as well.
    ///
    /// # Errors
    /// The limit that is reached; then nothing was taken.
    pub(crate) fn acquire_outbound(
        self: &Arc<Self>,
        holder: Holder,
        [org, outbound, trunk, agent]: [Claim; 4],
        now: Moment,
    ) -> Result<Permit, LimitReached> {
        let claims = [
            (Some(org), LimitReached::Org),
            (Some(outbound), LimitReached::Outbound),
            (Some(trunk), LimitReached::Trunk),
            (Some(agent), LimitReached::Agent),
        ];
        self.acquire_call(holder, claims, now)
    }

    /// Takes the counts of one more leg of an org's call that is up. It counts in the org's share of the node.
    ///
    /// # Errors
    /// The limit that is reached; then nothing was taken.
    pub(crate) fn acquire_leg(
        self: &Arc<Self>,
        holder: Holder,
        [outbound, trunk]: [Option<Claim>; 2],
    ) -> Result<Permit, LimitReached> {
        let claims = [
            (None, LimitReached::Org),
            (outbound, LimitReached::Outbound),
            (trunk, LimitReached::Trunk),
            (None, LimitReached::Agent),
        ];
        self.acquire_all([Some(take(&self.calls, holder)?), None], claims)
    }

    /// Takes the counts of a call of the deployment's own, which is made for `holder`.
    ///
    /// # Errors
    /// The limit that is reached, [`LimitReached::Node`] or [`LimitReached::Org`]; then nothing was taken.
    pub(crate) fn acquire_verification(
        self: &Arc<Self>,
        holder: Holder,
    ) -> Result<Permit, LimitReached> {
        let call = take(&self.calls, Holder::alone(DEPLOYMENT))?;
        let verification = take(&self.verification_calls, holder)?;
        let none = [(None, LimitReached::Org); 4];
        self.acquire_all([Some(call), Some(verification)], none)
    }

    /// Takes a new call, or nothing.
    fn acquire_call(
        self: &Arc<Self>,
        holder: Holder,
        claims: [(Option<Claim>, LimitReached); 4],
        now: Moment,
    ) -> Result<Permit, LimitReached> {
        let call = take(&self.calls, holder)?;
        // Counted even if a claim is refused below: the set-up takes its time of the node all the same.
        let second = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        if !self.setups.happens(holder, second) {
            return Err(LimitReached::Org);
        }
        self.acquire_all([Some(call), None], claims)
    }

    /// Takes all claims, or nothing.
    fn acquire_all(
        self: &Arc<Self>,
        shares: [Option<Share>; 2],
        claims: [(Option<Claim>, LimitReached); 4],
    ) -> Result<Permit, LimitReached> {
        let mut permit = Permit {
            limits: Arc::clone(self),
            held: [None; 4],
            is_setup_open: false,
            _shares: shares,
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

/// Takes one of what orgs have shares of.
fn take(shares: &Arc<Shares>, holder: Holder) -> Result<Share, LimitReached> {
    shares.take(holder).map_err(|none| match none {
        NoShare::Full => LimitReached::Node,
        NoShare::UsedUp => LimitReached::Org,
    })
}

/// The counts that one call holds.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    held: [Option<Uuid>; 4],
    /// The last of those held is an open set-up.
    is_setup_open: bool,
    /// Its shares of the node, until it is dropped.
    _shares: [Option<Share>; 2],
}

impl Permit {
    /// Releases the count of the open set-up: the call is answered.
    pub(crate) fn end_setup(&mut self) {
        if std::mem::take(&mut self.is_setup_open)
            && let Some(setup) = self.held.last_mut().and_then(Option::take)
        {
            self.limits.release(setup);
        }
    }

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
    }
}

/// A call's place among those that weren't proven in time.
#[derive(Debug)]
pub(crate) struct UnprovenCount {
    limits: Arc<Limits>,
    org: Uuid,
    source: Option<IpAddr>,
}

impl Drop for UnprovenCount {
    fn drop(&mut self) {
        self.limits.unproven.release(self.org, self.source);
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

    fn holder(org: u128) -> Holder {
        Holder::alone(Uuid::from_u128(org))
    }

    #[test]
    fn a_refused_claim_takes_nothing() {
        let limits = Limits::new(10);
        let first = limits
            .acquire(
                holder(1),
                claim(1, None),
                Some(claim(2, None)),
                claim(3, Some(1)),
                None,
                Moment::default(),
            )
            .expect("room");

        let refused = limits.acquire(
            holder(1),
            claim(1, None),
            Some(claim(2, None)),
            claim(3, Some(1)),
            None,
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
    fn a_caller_has_so_many_open_set_ups_to_a_number() {
        let limits = Limits::with_setups(1_000, 20);
        let trunk = Uuid::from_u128(2);
        let begin = |caller: &str, called: &str| {
            let (org, agent) = (claim(1, None), claim(3, None));
            let setup = limits.setup_claim(caller, called, trunk);
            limits.acquire(holder(1), org, None, agent, setup, Moment::default())
        };
        let mut open: Vec<_> = (0..25).map_while(|_| begin("+44", "+1").ok()).collect();
        assert_eq!(open.len(), 20);
        assert_eq!(begin("+44", "+1").err(), Some(LimitReached::Caller));
        assert!(begin("+49", "+1").is_ok(), "another caller");
        assert!(begin("+44", "+2").is_ok(), "another number");
        assert_eq!(limits.calls(), 20, "a refused one holds nothing");

        // A set-up is over when the call is answered, or ends.
        open[0].end_setup();
        open[0].end_setup();
        open.remove(1);
        let more: Vec<_> = (0..5).map_while(|_| begin("+44", "+1").ok()).collect();
        assert_eq!(more.len(), 2);
        drop((open, more));
        assert_eq!(limits.calls(), 0);
        assert!(limits.counts.is_empty());
        assert!(Limits::new(10).setup_claim("+44", "+1", trunk).is_none());
    }

    #[test]
    fn each_limit_names_itself() {
        let limits = Limits::new(1);
        let org = limits.acquire(
            holder(1),
            claim(1, Some(0)),
            None,
            claim(3, None),
            None,
            Moment::default(),
        );
        assert_eq!(org.err(), Some(LimitReached::Org));

        let trunk = limits.acquire(
            holder(1),
            claim(1, None),
            Some(claim(2, Some(0))),
            claim(3, None),
            None,
            Moment::default(),
        );
        assert_eq!(trunk.err(), Some(LimitReached::Trunk));

        let held = limits
            .acquire(
                holder(1),
                claim(1, None),
                None,
                claim(3, None),
                None,
                Moment::default(),
            )
            .expect("room");
        assert_eq!(
            limits
                .acquire(
                    holder(1),
                    claim(1, None),
                    None,
                    claim(3, None),
                    None,
                    Moment::default()
                )
                .err(),
            Some(LimitReached::Node)
        );

        drop(held);
    }

    #[test]
    fn an_org_sets_up_so_many_calls_a_second_while_others_call() {
        let limits = Limits::new(10_000);
        let set_up = |org: u128, second: u64, count: usize| {
            let begin = || {
                let (org, agent) = (claim(org, None), claim(9, None));
                let now = Moment::from_secs(second);
                limits.acquire(Holder::alone(org.id), org, None, agent, None, now)
            };
            // Each ends before the next begins, so that set-ups alone are many.
            (0..count).filter(|_| begin().is_ok()).count()
        };

        assert_eq!(set_up(1, 7, 1_000), 1_000, "alone");
        assert_eq!(set_up(2, 8, 10), 10);
        assert_eq!(set_up(1, 8, 1_000), 416, "until 75 of 500 are left");
        assert_eq!(set_up(2, 8, 100), 100, "others go on");
        assert_eq!(limits.calls(), 0);
    }

    #[test]
    fn verification_calls_have_shares_of_their_own() {
        let limits = Limits::new(1_000);
        let other = limits.acquire_verification(holder(2)).expect("room");
        let begin = || limits.acquire_verification(holder(1));
        let held: Vec<_> = (0..10).map_while(|_| begin().ok()).collect();
        assert_eq!(held.len(), 8, "one of ten is left to others");
        assert_eq!(begin().err(), Some(LimitReached::Org));
        let last = limits.acquire_verification(holder(2)).expect("the last");
        let none = limits.acquire_verification(holder(3)).err();
        assert_eq!(none, Some(LimitReached::Node));
        assert_eq!(limits.calls(), 10, "they are calls of the node as well");
        drop((held, other, last));
        assert_eq!(limits.calls(), 0);
    }
}
