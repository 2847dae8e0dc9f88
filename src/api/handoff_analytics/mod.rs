//! Handoffs to humans: `/handoff-analytics`.

mod events;

use axum::Router;
use axum::routing::get;

use super::Api;

pub(super) fn router() -> Router<Api> {
    Router::new().route("/events", get(events::list).post(events::create))
}
