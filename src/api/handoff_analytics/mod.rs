//! Handoffs to humans: `/handoff-analytics`.

mod events;

pub(in crate::api) use events::{HandoffView, report};

use axum::routing::{delete, get};
use serde_json::json;
use trunkline_store::Reason;

use super::Success;
use super::idempotency::once;
use super::openapi::{OpenApiBuilder, read_by};
use super::page::Page;
use super::query::date_schema;
use super::routes::Routes;

pub(super) fn router() -> Routes {
    Routes::new()
        .route("/events", get(events::list).post(once(events::create)))
        .route("/events/{handoff_id}", delete(events::delete))
        .route("/events/by-session/{session_id}", get(events::of_session))
}

pub(super) fn openapi(builder: &mut OpenApiBuilder) {
    const TAG: &str = "Handoff analytics";
    const EVENTS: &str = "/handoff-analytics/events";
    const OF_SESSION: &str = "/handoff-analytics/events/by-session/{session_id}";

    builder.add(
        "get",
        EVENTS,
        "listHandoffEvents",
        "Handoffs to humans, newest first",
        |op| {
            op.tag(TAG)
                .org("handoff:read")
                .query_of::<Reason>("reason", "Only handoffs that include this reason.")
                .query(
                    "confirmed",
                    json!({"type": "boolean"}),
                    "Only handoffs whose destination is known to have answered (reported ones count), or only the others.",
                )
                .query(
                    "contact_id",
                    json!({"type": "string", "format": "uuid"}),
                    "Only handoffs of this contact.",
                )
                .query(
                    "start_date",
                    date_schema(),
                    "ISO 8601, inclusive; 30 days before now unless given.",
                )
                .query(
                    "end_date",
                    date_schema(),
                    "ISO 8601, inclusive; now unless given.",
                )
                .paged()
                .gives::<Page<events::HandoffView>>(200)
        },
    );

    builder.add(
        "get",
        OF_SESSION,
        "listHandoffsOfSession",
        "Handoffs of one session, newest first: the hundred newest",
        |op| {
            op.tag(TAG)
                .org("handoff:read")
                .gives::<events::SessionHandoffs>(200)
        },
    );

    builder.add(
        "delete",
        "/handoff-analytics/events/{handoff_id}",
        "deleteHandoff",
        "Deletes a handoff",
        |op| op.tag(TAG).org("handoff:write").gives::<Success>(200),
    );

    builder.add("post", EVENTS, "reportHandoff", "Reports a handoff", |op| {
        let body = read_by(events::reported);
        op.tag(TAG)
            .org("handoff:write")
            .once()
            .body(body)
            .gives::<events::HandoffView>(201)
    });
}
