//! Scopes of the telephony API, and the operations that need them.

use super::calls;
use crate::api::operations::Audience;

/// Reads agents, numbers, trunks and destinations.
pub(super) const READ: &str = "phone:read";
/// Changes agents, numbers, trunks and destinations.
pub(super) const WRITE: &str = "phone:write";

/// Operations on the org's telephony, by one scope for reading and one for changes.
pub(super) const OF_ORG: Audience = Audience::Org {
    read: &[READ],
    write: &[WRITE],
};
/// Operations on calls.
pub(super) const OF_CALLS: Audience = Audience::Org {
    read: &[calls::SCOPE],
    write: &["calls:write"],
};
/// Questions that take a body, and change nothing.
pub(super) const ASKS: Audience = Audience::Org {
    read: &[READ],
    write: &[READ],
};
/// Such questions whose answers tell of recorded calls.
pub(super) const ASKS_OF_CALLS: Audience = Audience::Org {
    read: &[READ, calls::SCOPE],
    write: &[READ, calls::SCOPE],
};
