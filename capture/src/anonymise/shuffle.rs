//! A bijection of a bounded domain onto itself: two values never get the same replacement, and memory doesn't grow with the file.
//!
//! The first values get readable replacements, in order of appearance. All others go through a keyed permutation, which needs no memory: a
//! Feistel network over the next larger power of four, iterated until the result is inside the domain. The key is random in each run and
//! never stored.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// Rounds of the Feistel network.
const ROUNDS: u32 = 8;

/// A set of values, and its readable replacements, which the first values get.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Domain {
    /// Public IPv4 addresses.
    Public,
    /// IPv4 addresses of RFC 1918, counted from 10.0.0.0 on.
    Private,
    /// Subscriber numbers of this many digits.
    Subscriber(u32),
    /// Area codes of this many digits.
    Area(u32),
}

impl Domain {
    /// Returns whether the value belongs to the domain.
    pub(super) const fn contains(self, value: u64) -> bool {
        match self {
            Self::Public => value <= u32::MAX as u64 && !is_private(value) && !is_fixed(value),
            Self::Private => value < (1 << 24) + (1 << 20) + (1 << 16),
            Self::Subscriber(digits) | Self::Area(digits) => value < 10_u64.pow(digits),
        }
    }

    /// Returns half the number of bits that hold every value, rounded up: the width of each half of the Feistel network.
    const fn half_bits(self) -> u32 {
        match self {
            Self::Public => 16,
            Self::Private => 13,
            Self::Subscriber(digits) | Self::Area(digits) => {
                let bits = 64 - (10_u64.pow(digits) - 1).leading_zeros();
                bits.div_ceil(2)
            }
        }
    }

    /// Returns the number of readable replacements.
    const fn readable(self) -> u64 {
        match self {
            Self::Public | Self::Private => 16_384,
            Self::Subscriber(digits @ 0..=3) | Self::Area(digits @ 0..=3) => 10_u64.pow(digits),
            Self::Subscriber(_) => 9_999,
            Self::Area(_) => 1_000,
        }
    }

    /// Returns the readable replacement at an index: an address for documentation or benchmarks (RFC 5737, RFC 2544), or a number that begins
    /// with 555.
    const fn value_of(self, index: u64) -> u64 {
        match self {
            Self::Public if index < DOCUMENTS => (192 << 24) + (2 << 8) + index + 1,
            Self::Public => (198 << 24) + (18 << 16) + index,
            Self::Private => index + 1,
            Self::Subscriber(7) => 5_550_001 + index,
            Self::Subscriber(digits) => (index + 1) % 10_u64.pow(digits),
            Self::Area(_) => index,
        }
    }

    /// Returns the index of a readable replacement; `None` for any other value.
    fn index_of(self, value: u64) -> Option<u64> {
        let likely = match self {
            Self::Public if value >> 24 == 192 => value.checked_sub((192 << 24) + (2 << 8) + 1)?,
            Self::Public => value.checked_sub((198 << 24) + (18 << 16))?,
            Self::Private => value.checked_sub(1)?,
            Self::Subscriber(7) => value.checked_sub(5_550_001)?,
            Self::Subscriber(digits) => (value + 10_u64.pow(digits) - 1) % 10_u64.pow(digits),
            Self::Area(_) => value,
        };
        (likely < self.readable() && self.value_of(likely) == value).then_some(likely)
    }
}

/// Host addresses in 192.0.2.0/24.
const DOCUMENTS: u64 = 254;

const fn is_private(value: u64) -> bool {
    value >> 24 == 10 || value >> 20 == (172 << 4) + 1 || value >> 16 == (192 << 8) + 168
}

/// Returns whether the address is left as it is: unspecified or loopback.
const fn is_fixed(value: u64) -> bool {
    value == 0 || value >> 24 == 127
}

/// Replaces the values of a domain.
#[derive(Debug)]
pub(super) struct Shuffle {
    domain: Domain,
    /// Index of each value that has a readable replacement.
    indices: HashMap<u64, u64>,
    /// Value that each index belongs to.
    holders: Vec<u64>,
    key: RandomState,
}

impl Shuffle {
    pub(super) fn new(domain: Domain) -> Self {
        Self {
            domain,
            indices: HashMap::new(),
            holders: Vec::new(),
            key: RandomState::new(),
        }
    }

    /// Returns the replacement of a value.
    pub(super) fn of(&mut self, value: u64) -> u64 {
        if let Some(index) = self.indices.get(&value) {
            return self.domain.value_of(*index);
        }

        let next = self.holders.len() as u64;
        if next < self.domain.readable() {
            self.indices.insert(value, next);
            self.holders.push(value);
            return self.domain.value_of(next);
        }

        // The permutation may yield a readable replacement, which belongs to another value, its holder. That holder's own permuted value is
        // unused, so the search goes on from there, and no two values get the same replacement.
        let mut shown = self.permuted(value);
        while let Some(holder) = self.holder(shown) {
            shown = self.permuted(holder);
        }
        shown
    }

    /// Returns the value whose readable replacement this is.
    fn holder(&self, replacement: u64) -> Option<u64> {
        let index = usize::try_from(self.domain.index_of(replacement)?).ok()?;
        self.holders.get(index).copied()
    }

    fn permuted(&self, value: u64) -> u64 {
        let half = self.domain.half_bits();
        let mask = (1 << half) - 1;
        let mut value = value;
        loop {
            let (mut left, mut right) = (value >> half, value & mask);
            for round in 0..ROUNDS {
                let mixed = left ^ (self.key.hash_one((round, right)) & mask);
                (left, right) = (right, mixed);
            }

            value = (left << half) | right;
            // Always reached: a permutation that is repeated comes back to where it began, which is inside the domain.
            if self.domain.contains(value) {
                return value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const DOMAINS: [Domain; 8] = [
        Domain::Public,
        Domain::Private,
        Domain::Subscriber(1),
        Domain::Subscriber(4),
        Domain::Subscriber(5),
        Domain::Subscriber(7),
        Domain::Area(3),
        Domain::Area(8),
    ];

    #[test]
    fn every_readable_replacement_has_one_index() {
        for domain in DOMAINS {
            for index in 0..domain.readable() {
                let value = domain.value_of(index);
                assert!(domain.contains(value), "{domain:?}: {value}");
                assert_eq!(domain.index_of(value), Some(index), "{domain:?}");
            }
        }
        assert_eq!(Domain::Public.index_of((192 << 24) + (2 << 8)), None);
        assert_eq!(Domain::Public.index_of((198 << 24) + (18 << 16)), None);
    }

    #[test]
    fn a_small_domain_is_permuted_as_a_whole() {
        for digits in [1, 2, 4, 5] {
            let all = 10_u64.pow(digits);
            let mut shuffle = Shuffle::new(Domain::Subscriber(digits));
            // Every value once, since 7 and a power of ten share no factor.
            let order = (0..all).map(|value| value * 7 % all);
            let shown: Vec<u64> = order.clone().map(|value| shuffle.of(value)).collect();

            let distinct: HashSet<u64> = shown.iter().copied().collect();
            assert_eq!(distinct.len() as u64, all, "{digits} digits");
            assert!(distinct.iter().all(|value| *value < all));

            let again: Vec<u64> = order.map(|value| shuffle.of(value)).collect();
            assert_eq!(shown, again, "{digits} digits: a value is replaced anew");
        }
    }

    #[test]
    fn many_addresses_stay_apart_and_little_is_remembered() {
        for (domain, first) in [(Domain::Public, 8_u64 << 24), (Domain::Private, 70_000)] {
            let mut shuffle = Shuffle::new(domain);
            let mut shown = HashSet::new();
            for value in first..first + 60_000 {
                let other = shuffle.of(value);
                assert!(domain.contains(other), "{domain:?}: {other}");
                assert!(
                    shown.insert(other),
                    "{domain:?}: {value} shares its replacement"
                );
            }
            assert_eq!(shuffle.indices.len() as u64, domain.readable());
            assert_eq!(shuffle.holders.len() as u64, domain.readable());
        }
    }

    #[test]
    fn each_run_has_a_key_of_its_own() {
        let [one, other] = [(); 2].map(|()| Shuffle::new(Domain::Subscriber(7)));
        let differs = (0..100).filter(|value| one.permuted(*value) != other.permuted(*value));
        assert!(differs.count() > 90);
    }
}
