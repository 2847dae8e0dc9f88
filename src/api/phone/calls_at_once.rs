//! Field `max_concurrent_calls` of agents and trunks.

use crate::api::field_type::Count;

/// Bounds of `max_concurrent_calls`.
pub(crate) const CALLS_AT_ONCE: Count = Count::new(1..=1_000_000);
