//! Scopes of org keys.

/// All scopes of org keys. A key created without `scopes` by a partner holds all of them.
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
