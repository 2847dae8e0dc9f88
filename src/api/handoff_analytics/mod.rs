//! Handoffs to humans: `/handoff-analytics`.

mod events;

pub(in crate::api) use events::report;

use axum::Router;
use axum::routing::get;

use super::Api;
use super::idempotency::once;

pub(super) fn router() -> Router<Api> {
    Router::new().route("/events", get(events::list).post(once(events::create)))
}
