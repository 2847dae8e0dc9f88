//! Bound of `max_concurrent_calls`, which agents and trunks have.

use crate::api::field_type::Count;

/// The field `max_concurrent_calls`.
pub(super) const CALLS_AT_ONCE: Count = Count::new(1..=1_000_000);
