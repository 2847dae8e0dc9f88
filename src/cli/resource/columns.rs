//! Columns of lists that several verbs print, and fields that a verb leaves out.

pub(super) const ORG: &[&str] = &["id", "name", "partner_id", "suspended_by", "created_at"];
pub(super) const LIMIT: &[&str] = &["limit", "value", "used", "partner_max"];
pub(super) const HANDOFF: &[&str] = &[
    "session_id",
    "created_at",
    "reasons",
    "sentiment",
    "summary",
];
pub(super) const SESSION_HANDOFF: &[&str] = &[
    "id",
    "created_at",
    "confirmed",
    "transfer_status",
    "reasons",
    "summary",
];
pub(super) const NETWORK: &[&str] = &["network", "org_id", "created_at"];
pub(super) const PEER: &[&str] = &["peer", "org_id", "created_at"];

/// Fields of `updateOrgLimits` that `org limit` doesn't take.
pub(super) const OTHER_LIMITS: &[&str] = &[
    "outbound_trunks",
    "agents",
    "destinations",
    "api_keys",
    "registrations",
    "webhooks",
    "contacts",
    "numbers",
    "handoffs",
    "requests_per_minute",
    "streaming_requests_per_minute",
];
