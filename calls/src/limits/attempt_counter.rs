//! Number of a call's attempts at targets that are recorded.

/// Attempts of a call that are recorded. Later ones aren't.
const MOST: u8 = 16;

/// Number of a call's attempts that are recorded, over all of its legs. Two legs may be dialled at once: the call has one count, which comes
/// with its context.
#[derive(Default, Debug)]
pub(crate) struct AttemptCounter(u8);

impl AttemptCounter {
    /// Returns whether there is one.
    pub(crate) const fn has_any(&self) -> bool {
        self.0 > 0
    }

    /// Returns the number of the next one; `None` beyond the last that is recorded.
    pub(crate) fn next(&mut self) -> Option<u8> {
        if self.0 >= MOST {
            return None;
        }
        self.0 += 1;
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_attempts_are_numbered() {
        let mut attempt_counter = AttemptCounter::default();
        assert!(!attempt_counter.has_any());
        let numbers: Vec<u8> = std::iter::from_fn(|| attempt_counter.next()).collect();
        assert_eq!(numbers, (1..=MOST).collect::<Vec<_>>());
        assert!(attempt_counter.has_any());
    }
}
