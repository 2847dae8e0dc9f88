//! A bijection of a bounded domain onto itself: two values never get the same replacement, and memory doesn't grow with the file. The first
//! few values get readable replacements, in order of appearance; all others go through a keyed permutation (a Feistel network over the next
//! larger power of four, iterated until the result is inside the domain), which needs no memory. The key is random in each run and never
//! stored.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

/// Rounds of the Feistel network.
const ROUNDS: u32 = 8;

/// A set of values, and the readable replacements of the first of them.
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

    /// Returns half of the bits that hold every value.
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
    const fn places(self) -> u64 {
        match self {
            Self::Public | Self::Private => 16_384,
            Self::Subscriber(digits @ 0..=3) | Self::Area(digits @ 0..=3) => 10_u64.pow(digits),
            Self::Subscriber(_) => 9_999,
            Self::Area(_) => 1_000,
        }
    }

    /// Returns the readable replacement of an index: networks for documents and benchmarks (RFC 5737, RFC 2544), numbers that begin with
    /// 555.
    const fn value_of(self, place: u64) -> u64 {
        match self {
            Self::Public if place < DOCUMENTS => (192 << 24) + (2 << 8) + place + 1,
            Self::Public => (198 << 24) + (18 << 16) + place,
            Self::Private => place + 1,
            Self::Subscriber(7) => 5_550_001 + place,
            Self::Subscriber(digits) => (place + 1) % 10_u64.pow(digits),
            Self::Area(_) => place,
        }
    }

    /// Returns the index of a readable replacement.
    fn place_of(self, value: u64) -> Option<u64> {
        let likely = match self {
            Self::Public if value >> 24 == 192 => value.checked_sub((192 << 24) + (2 << 8) + 1)?,
            Self::Public => value.checked_sub((198 << 24) + (18 << 16))?,
            Self::Private => value.checked_sub(1)?,
            Self::Subscriber(7) => value.checked_sub(5_550_001)?,
            Self::Subscriber(digits) => (value + 10_u64.pow(digits) - 1) % 10_u64.pow(digits),
            Self::Area(_) => value,
        };
        (likely < self.places() && self.value_of(likely) == value).then_some(likely)
    }
}

/// Addresses in 192.0.2.0/24.
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
    places: HashMap<u64, u64>,
    /// The value that holds each index.
    holders: Vec<u64>,
    key: RandomState,
}

impl Shuffle {
    pub(super) fn new(domain: Domain) -> Self {
        Self {
            domain,
            places: HashMap::new(),
            holders: Vec::new(),
            key: RandomState::new(),
        }
    }

    /// Returns the replacement of a value.
    pub(super) fn of(&mut self, value: u64) -> u64 {
        if let Some(place) = self.places.get(&value) {
            return self.domain.value_of(*place);
        }
        let next = self.holders.len() as u64;
        if next < self.domain.places() {
            self.places.insert(value, next);
            self.holders.push(value);
            return self.domain.value_of(next);
        }

        // A readable replacement belongs to the value that got it first. If the permutation yields one, it goes on from that value, whose own
        // permuted value is unused. So no two values get the same replacement.
        let mut shown = self.permuted(value);
        while let Some(holder) = self.holder(shown) {
            shown = self.permuted(holder);
        }
        shown
    }

    fn holder(&self, value: u64) -> Option<u64> {
        let place = usize::try_from(self.domain.place_of(value)?).ok()?;
        self.holders.get(place).copied()
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
    fn every_place_is_its_own() {
        for domain in DOMAINS {
            for place in 0..domain.places() {
                let value = domain.value_of(place);
                assert!(domain.contains(value), "{domain:?}: {value}");
                assert_eq!(domain.place_of(value), Some(place), "{domain:?}");
            }
        }
        assert_eq!(Domain::Public.place_of((192 << 24) + (2 << 8)), None);
        assert_eq!(Domain::Public.place_of((198 << 24) + (18 << 16)), None);
    }

    #[test]
    fn all_of_a_small_domain_are_exchanged_among_themselves() {
        for digits in [1, 2, 4, 5] {
            let all = 10_u64.pow(digits);
            let mut shuffle = Shuffle::new(Domain::Subscriber(digits));
            // In an order of its own: 7 has nothing in common with a power of ten.
            let order = (0..all).map(|value| value * 7 % all);
            let shown: Vec<u64> = order.clone().map(|value| shuffle.of(value)).collect();
            let distinct: HashSet<u64> = shown.iter().copied().collect();
            assert_eq!(distinct.len() as u64, all, "{digits} digits");
            assert!(distinct.iter().all(|value| *value < all));
            let again: Vec<u64> = order.map(|value| shuffle.of(value)).collect();
            assert_eq!(shown, again, "{digits} digits: the same by the same");
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
                assert!(shown.insert(other), "{domain:?}: {value} isn't alone");
            }
            assert_eq!(shuffle.places.len() as u64, domain.places());
            assert_eq!(shuffle.holders.len() as u64, domain.places());
        }
    }

    #[test]
    fn each_run_has_a_key_of_its_own() {
        let [one, other] = [(); 2].map(|()| Shuffle::new(Domain::Subscriber(7)));
        let differs = (0..100).filter(|value| one.permuted(*value) != other.permuted(*value));
        assert!(differs.count() > 90);
    }
}
