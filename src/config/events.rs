//! `[events]`: retention of events, and limits of event streams.

use std::time::Duration;

use super::section::Section;

/// Events and their streams.
#[derive(Clone, Debug)]
pub struct Events {
    /// Time that events, and deliveries to webhooks, are kept.
    pub retention: Duration,
    /// Events that are kept of one org.
    pub max_per_org: u32,
    /// Streams of one org on one node.
    pub max_streams_per_org: usize,
    /// Streams of one API key among them.
    pub max_streams_per_key: usize,
}

impl Events {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            retention: section.days("retention_days", 1..=365, 7),
            max_per_org: section
                .number("max_per_org", 1_000..=100_000_000)
                .unwrap_or(1_000_000),
            max_streams_per_org: section
                .number("max_streams_per_org", 1..=1_000)
                .unwrap_or(50),
            max_streams_per_key: section
                .number("max_streams_per_key", 1..=1_000)
                .unwrap_or(10),
        }
    }
}
