//! Handoffs to humans: `/handoff-analytics`.

mod events;

pub(in crate::api) use events::{HandoffView, report};

use super::operations::{Operations, Whose};

const OF_ORG: Whose = Whose::Orgs {
    read: "handoff:read",
    write: "handoff:write",
};

pub(super) fn operations(api: &mut Operations<'_>) {
    events::operations(api);
}
