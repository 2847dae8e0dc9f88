//! `[audit]`: retention of the audit log.

use std::time::Duration;

use super::section::Section;

/// The audit log.
#[derive(Clone, Debug)]
pub struct Audit {
    /// Time that an entry is kept.
    pub retention: Duration,
}

impl Audit {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        const DAY_S: u64 = 24 * 3600;
        let days: u64 = section.number("retention_days", 1..=3_650).unwrap_or(365);
        Self {
            retention: Duration::from_secs(days * DAY_S),
        }
    }
}
