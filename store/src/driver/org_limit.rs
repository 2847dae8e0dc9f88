//! Kinds of limits of an org.

pub use trunkline_model::org_limit::StoredLimit;

/// A quantity that is limited for each org.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum OrgLimit {
    /// Calls at once, in both directions.
    Calls,
    /// Outbound trunks.
    OutboundTrunks,
    /// Phone agents.
    Agents,
    /// Transfer destinations.
    Destinations,
    /// API keys.
    ApiKeys,
    /// Outbound trunks that register with their carriers.
    Registrations,
    /// Webhooks.
    Webhooks,
    /// Contacts.
    Contacts,
    /// Numbers.
    Numbers,
    /// Handoffs.
    Handoffs,
    /// API requests in a minute.
    Requests,
    /// Event streams opened in a minute.
    Streams,
}

/// Defaults from the configuration.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DefaultLimits {
    /// Trunks that register with their carriers.
    pub registrations: u32,
    /// API requests in a minute.
    pub requests_per_minute: u32,
    /// Event streams opened in a minute.
    pub streaming_requests_per_minute: u32,
}

impl OrgLimit {
    /// All variants.
    pub const ALL: [Self; 12] = [
        Self::Calls,
        Self::OutboundTrunks,
        Self::Agents,
        Self::Destinations,
        Self::ApiKeys,
        Self::Registrations,
        Self::Webhooks,
        Self::Contacts,
        Self::Numbers,
        Self::Handoffs,
        Self::Requests,
        Self::Streams,
    ];

    /// Greatest value of any limit.
    pub const GREATEST: u32 = 100_000_000;
    /// Greatest number of calls at once, which is the default and no limit: a node carries fewer.
    pub const MOST_CALLS: u32 = 1_000_000;

    /// Returns the default.
    pub const fn default_of(self, defaults: DefaultLimits) -> u32 {
        match self {
            Self::Calls => Self::MOST_CALLS,
            Self::OutboundTrunks => 50,
            Self::Agents | Self::Destinations => 1_000,
            Self::ApiKeys => 100,
            Self::Webhooks => 20,
            Self::Contacts | Self::Handoffs => 1_000_000,
            Self::Numbers => 10_000,
            Self::Registrations => defaults.registrations,
            Self::Requests => defaults.requests_per_minute,
            Self::Streams => defaults.streaming_requests_per_minute,
        }
    }

    /// Returns the name in the database, on the command line and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "concurrent_calls",
            Self::OutboundTrunks => "outbound_trunks",
            Self::Agents => "agents",
            Self::Destinations => "destinations",
            Self::ApiKeys => "api_keys",
            Self::Registrations => "registrations",
            Self::Webhooks => "webhooks",
            Self::Contacts => "contacts",
            Self::Numbers => "numbers",
            Self::Handoffs => "handoffs",
            Self::Requests => "requests_per_minute",
            Self::Streams => "streaming_requests_per_minute",
        }
    }

    /// Returns the least value that may be set. It is 1 for calls, requests and streams: an org that may have none has to be suspended instead.
    pub const fn least(self) -> u32 {
        match self {
            Self::OutboundTrunks
            | Self::Agents
            | Self::Destinations
            | Self::ApiKeys
            | Self::Registrations
            | Self::Webhooks
            | Self::Contacts
            | Self::Numbers
            | Self::Handoffs => 0,
            Self::Calls | Self::Requests | Self::Streams => 1,
        }
    }

    /// Returns the greatest value that may be set.
    pub const fn greatest(self) -> u32 {
        match self {
            Self::Calls => Self::MOST_CALLS,
            Self::OutboundTrunks
            | Self::Agents
            | Self::Destinations
            | Self::ApiKeys
            | Self::Registrations
            | Self::Webhooks
            | Self::Contacts
            | Self::Numbers
            | Self::Handoffs
            | Self::Requests
            | Self::Streams => Self::GREATEST,
        }
    }

    /// Returns the name in a sentence.
    const fn in_words(self, is_one: bool) -> &'static str {
        match (self, is_one) {
            (Self::Calls, true) => "call at once",
            (Self::Calls, false) => "calls at once",
            (Self::OutboundTrunks, true) => "outbound trunk",
            (Self::OutboundTrunks, false) => "outbound trunks",
            (Self::Agents, true) => "agent",
            (Self::Agents, false) => "agents",
            (Self::Destinations, true) => "transfer destination",
            (Self::Destinations, false) => "transfer destinations",
            (Self::ApiKeys, true) => "API key",
            (Self::ApiKeys, false) => "API keys",
            (Self::Registrations, true) => "trunk that registers with its carrier",
            (Self::Registrations, false) => "trunks that register with their carriers",
            (Self::Webhooks, true) => "webhook",
            (Self::Webhooks, false) => "webhooks",
            (Self::Contacts, true) => "contact",
            (Self::Contacts, false) => "contacts",
            (Self::Numbers, true) => "number",
            (Self::Numbers, false) => "numbers",
            (Self::Handoffs, true) => "handoff",
            (Self::Handoffs, false) => "handoffs",
            (Self::Requests, true) => "request a minute",
            (Self::Requests, false) => "requests a minute",
            (Self::Streams, true) => "stream a minute",
            (Self::Streams, false) => "streams a minute",
        }
    }

    /// Returns the sentence for an org that has reached the limit.
    pub(crate) fn reached(self, most: u32) -> String {
        let words = self.in_words(most == 1);
        match most {
            0 => format!("the org may have no {words}"),
            1 => format!("the org may have 1 {words}, and has it already"),
            _ => format!("the org may have {most} {words}, and has them already"),
        }
    }
}
