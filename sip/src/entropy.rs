//! Randomness as an input: one seeded generator a shard, so that a run can be repeated from its seed.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A cryptographic generator. The shell seeds it from the operating system, a simulation from a number.
pub struct Entropy(StdRng);

impl Entropy {
    /// From 256 bits of seed.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(StdRng::from_seed(seed))
    }

    /// Returns another generator, seeded by this one. Draws from either don't affect the other.
    pub fn split(&mut self) -> Self {
        Self(StdRng::from_rng(&mut self.0))
    }

    /// 64 random bits.
    pub fn bits64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 128 random bits.
    pub fn bits128(&mut self) -> u128 {
        u128::from(self.0.next_u64()) << 64 | u128::from(self.0.next_u64())
    }
}

impl std::fmt::Debug for Entropy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Entropy")
    }
}
