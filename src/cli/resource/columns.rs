//! Columns of lists that several verbs print.

pub(super) const ORG: &[&str] = &[
    "id",
    "name",
    "partner_id",
    "max_concurrent_calls",
    "suspended_by",
    "created_at",
];
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
