//! Scopes of the telephony API.

/// Reads agents, numbers, trunks and destinations.
pub(super) const READ: &str = "phone:read";
/// Changes agents, numbers, trunks and destinations.
pub(super) const WRITE: &str = "phone:write";
