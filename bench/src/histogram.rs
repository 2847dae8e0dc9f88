//! Durations from a microsecond to an hour in fixed memory, exact to one part in 64.

const SUB_BITS: u32 = 6;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = 28;

/// Counts of durations in microseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    highest: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: vec![0; SUB * BUCKETS].into(),
            total: 0,
            highest: 0,
        }
    }
}

impl Histogram {
    /// Adds one duration, in microseconds.
    pub fn record(&mut self, micros: u64) {
        self.counts[bucket(micros)] += 1;
        self.total += 1;
        self.highest = self.highest.max(micros);
    }

    /// Number of durations recorded.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The longest duration, exactly.
    pub fn highest(&self) -> u64 {
        self.highest
    }

    /// The duration, in microseconds, that `share` (0 to 1) of all don't exceed; 0 if nothing was recorded.
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.total as f64) * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                // The upper edge of the bucket, so that no quantile is reported too low.
                return upper_edge(index).min(self.highest);
            }
        }
        0
    }
}

/// One bucket per microsecond below 64, then 64 buckets for every doubling.
fn bucket(micros: u64) -> usize {
    let top = 63 - (micros | 1).leading_zeros();
    if top < SUB_BITS {
        return micros as usize;
    }
    let shift = top - SUB_BITS;
    let index = (shift as usize + 1) * SUB + ((micros >> shift) as usize - SUB);
    // Longer durations share the last bucket; `highest` keeps the longest exactly.
    index.min(SUB * BUCKETS - 1)
}

fn upper_edge(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    let shift = index / SUB - 1;
    let within = (index % SUB + SUB) as u64;
    ((within + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_lies_below_its_buckets_edge_and_within_a_64th() {
        for micros in (0..100_000).chain([1_000_003, 31_999_999, 3_599_000_000]) {
            let edge = upper_edge(bucket(micros));
            assert!(
                edge >= micros && edge <= micros + micros / 64 + 1,
                "{micros} is counted at {edge}"
            );
        }
    }

    #[test]
    fn quantiles_of_a_known_row() {
        let mut histogram = Histogram::default();
        (1..=1000).for_each(|micros| histogram.record(micros));
        for (share, least, most) in [
            (0.0, 1, 1),
            (0.5, 500, 508),
            (0.99, 990, 1000),
            (1.0, 1000, 1000),
        ] {
            let got = histogram.quantile(share);
            assert!((least..=most).contains(&got), "quantile {share} is {got}");
        }
    }

    #[test]
    fn an_empty_one_says_zero() {
        assert_eq!(Histogram::default().quantile(0.99), 0);
    }
}
