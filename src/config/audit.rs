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
        Self {
            retention: section.days("retention_days", 1..=3_650, 365),
        }
    }
}
