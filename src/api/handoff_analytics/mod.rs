//! Handoffs to humans: `/handoff-analytics`.

mod events;

pub(crate) use events::{HandoffView, report};

use super::operations::Operations;

pub(super) fn operations(api: &mut Operations<'_>) {
    events::operations(api);
}
