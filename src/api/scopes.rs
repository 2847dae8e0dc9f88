//! Scopes of org keys.

/// All scopes of org keys; a key made without naming any holds all.
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
