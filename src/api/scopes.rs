//! Scopes of org keys.

/// All scopes of org keys. A key that a partner or the operator creates without naming any holds all of them.
pub const SCOPES: [&str; 10] = [
    "widget:write",
    "handoff:read",
    "handoff:write",
    "phone:read",
    "phone:write",
    "calls:read",
    "calls:write",
    "webhooks:write",
    "keys:write",
    "integrations:read",
];
