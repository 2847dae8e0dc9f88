//! `[limits]`: limits of the whole node.

use std::time::Duration;

use super::section::Section;

/// Limits of the node. Orgs, trunks and agents have limits of their own, stored with them.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Maximum number of calls; an INVITE beyond gets 503.
    pub max_calls: usize,
    /// Open call set-ups of one caller to one number through one trunk; 0: no limit.
    pub setups_per_caller: u16,
    /// Maximum number of transactions, over all shards.
    pub max_transactions: usize,
    /// Maximum number of stream connections.
    pub max_connections: usize,
    /// Maximum number of stream connections from one address.
    pub max_connections_per_source: usize,
    /// Requests per minute for all keys of an org, unless the org has a limit of its own.
    pub requests_per_minute: u32,
    /// Streams per minute that all keys of an org may open, independent of the limit on requests.
    pub streaming_requests_per_minute: u32,
    /// Requests per minute for all keys of a partner, unless the partner has a limit of its own.
    pub partner_requests_per_minute: u32,
    /// Login links per minute for a partner, unless it has a limit of its own.
    pub login_links_per_minute: u32,
    /// Concurrent outbound calls of one org.
    pub outbound_calls: u32,
    /// Outbound calls that one org may begin per minute.
    pub outbound_calls_per_minute: u32,
    /// Outbound calls that one org may begin within 24 hours.
    pub outbound_calls_per_day: u32,
    /// Trunks of one org that register with their carriers.
    pub registrations_per_org: u32,
    /// Time that a draining node waits for its calls to end.
    pub drain_timeout: Duration,
}

impl Limits {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let max_calls = section.number("max_calls", 1..=1_000_000).unwrap_or(50_000);

        Self {
            max_calls,
            setups_per_caller: section
                .number("setups_per_caller", 0..=60_000)
                .unwrap_or(20),
            registrations_per_org: section
                .number("registrations_per_org", 1..=100_000)
                .unwrap_or(10),
            max_transactions: section
                .number("max_transactions", 1..=10_000_000)
                .unwrap_or(500_000),

            max_connections: section
                .number("max_connections", 1..=1_000_000)
                .unwrap_or(10_000),
            max_connections_per_source: section
                .number("max_connections_per_source", 1..=1_000_000)
                .unwrap_or(200),

            requests_per_minute: section
                .number("requests_per_minute", 1..=100_000_000)
                .unwrap_or(100),
            streaming_requests_per_minute: section
                .number("streaming_requests_per_minute", 1..=1_000_000)
                .unwrap_or(1000),
            partner_requests_per_minute: section
                .number("partner_requests_per_minute", 1..=1_000_000)
                .unwrap_or(100),
            login_links_per_minute: section
                .number("login_links_per_minute", 1..=1_000_000)
                .unwrap_or(30),

            outbound_calls: section
                .number("outbound_calls", 0..=1_000_000)
                .unwrap_or(50),
            outbound_calls_per_minute: section
                .number("outbound_calls_per_minute", 0..=1_000_000)
                .unwrap_or(60),
            outbound_calls_per_day: section
                .number("outbound_calls_per_day", 0..=1_000_000)
                .unwrap_or(2_000),

            drain_timeout: Duration::from_secs(
                section.number("drain_timeout_s", 0..=86_400).unwrap_or(600),
            ),
        }
    }
}
