//! Bound on the answers to an unverified source: a datagram's source may be forged, and then the answer hits a victim.
//!
//! One datagram is answered with at most twice its size. A source that floods gets less than it sends. A verified source, whose request was
//! accepted into a transaction, has a larger budget.

use std::hash::Hasher;
use std::net::IpAddr;

use siphasher::sip::SipHasher13;

use crate::entropy::Entropy;
use crate::flow::source;
use crate::moment::Moment;

/// Most octets sent for each octet of a request from an unverified source.
pub(super) const MOST_FOR_ONE: usize = 2;
/// Number of sources in the table.
const SOURCES: usize = 8_192;
/// Octets that a source may get beyond the credit for its own requests: at once, and per second. An answer beyond them isn't sent.
const BURST: u32 = 32 << 10;
const A_SECOND: u32 = 2 << 10;
/// The same for a verified source.
const BURST_WHEN_PROVEN: u32 = 2 << 20;
const A_SECOND_WHEN_PROVEN: u32 = 256 << 10;

/// Budgets of the sources, by a keyed hash. Each source has two possible places. A new source replaces the account with the higher rank
/// ([`Account::replacement_rank`]).
#[derive(Debug)]
pub(super) struct Budget {
    keys: (u64, u64),
    /// Allocated with the first answer.
    places: Vec<Account>,
}

/// Octets left to a source.
#[derive(Copy, Clone, Default, Debug)]
struct Account {
    /// Hash of the source; 0 in a free place.
    source: u64,
    octets: u32,
    is_proven: bool,
    /// The source is known to send OPTIONS.
    is_prober: bool,
    at: Moment,
}

impl Budget {
    pub(super) fn new(entropy: &mut Entropy) -> Self {
        Self {
            keys: (entropy.bits64(), entropy.bits64()),
            places: Vec::new(),
        }
    }

    /// Charges an answer to its source; false if the source has too little left. The octets of the request are credited in any case.
    pub(super) fn pay(&mut self, peer: IpAddr, brought: usize, answer: usize, now: Moment) -> bool {
        let account = self.account(peer, now);
        let brought = u32::try_from(brought).unwrap_or(u32::MAX);
        let answer = u32::try_from(answer).unwrap_or(u32::MAX);
        let credit = match account.is_proven {
            true => brought,
            // Less than all of it, so that a flood gets less than it sends.
            false => brought - brought / 8,
        };

        let has = account.octets.saturating_add(credit).min(account.burst());
        match has.checked_sub(answer) {
            Some(rest) => {
                account.octets = rest;
                true
            }
            None => {
                account.octets = has;
                false
            }
        }
    }

    /// Marks a source as verified.
    pub(super) fn prove(&mut self, peer: IpAddr, now: Moment) {
        let account = self.account(peer, now);
        // Filled only the first time. Otherwise each accepted request would fill the budget again.
        if !account.is_proven {
            account.is_proven = true;
            account.octets = account.burst();
        }
    }

    /// Marks a source whose OPTIONS are to be answered however many they are.
    pub(super) fn expect_probes(&mut self, peer: IpAddr, now: Moment) {
        self.account(peer, now).is_prober = true;
    }

    /// Returns whether the answer to an OPTIONS isn't charged: its source is verified, or known to send them. Each answer has twice the size of its
    /// request at most, so that it makes little of a forged one.
    pub(super) fn owes_probes(&mut self, peer: IpAddr, now: Moment) -> bool {
        let account = self.account(peer, now);
        account.is_proven || account.is_prober
    }

    fn account(&mut self, peer: IpAddr, now: Moment) -> &mut Account {
        if self.places.is_empty() {
            self.places = vec![Account::default(); SOURCES];
        }

        let hash = self.hash(peer);
        // Two places, so that a new source replaces the one of two that has spent least, and not just the one that it
        // hits.
        let (first, second) = (hash as usize % SOURCES, (hash >> 32) as usize % SOURCES);
        let is_of = |at: usize| self.places[at].source == hash;

        let at = match (is_of(first), is_of(second)) {
            (true, _) => first,
            (_, true) => second,
            (false, false) => {
                let rank = |at: usize| self.places[at].replacement_rank(now);
                let at = if rank(first) >= rank(second) {
                    first
                } else {
                    second
                };

                self.places[at] = Account {
                    source: hash,
                    octets: BURST,
                    is_proven: false,
                    is_prober: false,
                    at: now,
                };
                at
            }
        };

        let account = &mut self.places[at];
        account.refill(now);
        account
    }

    fn hash(&self, peer: IpAddr) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.keys.0, self.keys.1);
        match source(peer) {
            IpAddr::V4(v4) => hasher.write(&v4.octets()),
            IpAddr::V6(v6) => hasher.write(&v6.octets()),
        }
        // 0 marks a free place.
        hasher.finish().max(1)
    }
}

impl Account {
    const fn burst(&self) -> u32 {
        match self.is_proven {
            true => BURST_WHEN_PROVEN,
            false => BURST,
        }
    }

    fn refill(&mut self, now: Moment) {
        self.octets = self.octets_at(now);
        self.at = now;
    }

    fn octets_at(&self, now: Moment) -> u32 {
        let a_second = match self.is_proven {
            true => A_SECOND_WHEN_PROVEN,
            false => A_SECOND,
        };
        let more = now.since(self.at).as_micros() * u128::from(a_second) / 1_000_000;
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        self.octets.saturating_add(more).min(self.burst())
    }

    /// Returns the rank for replacement: the account with the higher rank is replaced. A fuller account ranks higher, since its source has
    /// taken less; a verified one ranks lowest, a free place highest.
    fn replacement_rank(&self, now: Moment) -> u64 {
        match (self.source, self.is_proven) {
            (0, _) => u64::MAX,
            (_, true) => 0,
            (_, false) => u64::from(self.octets_at(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const START: Moment = Moment::from_secs(1_800_000_000);

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn a_flood_is_answered_with_less_than_it_sends() {
        let mut budget = Budget::new(&mut Entropy::from_seed([1; 32]));
        let (brought, answer) = (200, 380);
        let (mut sent, mut got) = (0, 0);
        for number in 0..20_000_u64 {
            let now = START + Duration::from_micros(number * 50);
            sent += brought;
            if budget.pay(address(1), brought, answer, now) {
                got += answer;
            }
        }

        assert!(got < sent, "{got} for {sent}");
        assert!(got > sent / 2, "it isn't ignored: {got} for {sent}");
        assert!(
            budget.pay(address(2), brought, answer, START),
            "another source is answered"
        );

        let later = START + Duration::from_secs(20);
        assert!(
            budget.pay(address(1), brought, answer, later),
            "and it is once it stops"
        );
    }

    #[test]
    fn a_source_that_is_there_may_send_more() {
        let mut budget = Budget::new(&mut Entropy::from_seed([1; 32]));
        budget.prove(address(1), START);
        let challenged = (0..5_000).filter(|_| budget.pay(address(1), 400, 600, START));
        assert_eq!(challenged.count(), 5_000, "a busy proxy");
    }

    #[test]
    fn probes_of_known_sources_are_owed() {
        let mut budget = Budget::new(&mut Entropy::from_seed([1; 32]));
        assert!(!budget.owes_probes(address(1), START));
        budget.expect_probes(address(1), START);
        budget.prove(address(2), START);
        for (number, owed) in [(1, true), (2, true), (3, false)] {
            assert_eq!(budget.owes_probes(address(number), START), owed, "{number}");
        }
        assert!(
            !budget.pay(address(1), 100, 40_000, START),
            "nothing else is"
        );
    }

    #[test]
    fn sources_that_come_and_go_push_no_flooder_out() {
        let mut budget = Budget::new(&mut Entropy::from_seed([1; 32]));
        while budget.pay(address(1), 100, 200, START) {}
        let mut forgotten = 0;
        for number in 2..20_000 {
            budget.pay(address(number), 100, 200, START);
            forgotten += u32::from(budget.pay(address(1), 0, 200, START));
        }
        assert!(forgotten < 5, "{forgotten}");
    }
}
