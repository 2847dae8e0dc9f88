//! `/handoff-analytics/events`: conversations that an agent handed to a human. Runtimes report them here.
//!
//! The list and the answer to a report have the fields of the given interface alone. What is kept besides, the contact among it, is shown by
//! session.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trunkline_model::handoff::Report;
use trunkline_model::transfer::State as TransferState;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Acting, Error, Handoff, HandoffFilter, Kind, NewHandoff, Reason, Sentiment, SessionHandoff,
    calls, handoffs,
};
use uuid::Uuid;

use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{Choice, ID, ListOf, Text, id};
use crate::api::idempotency::once;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::{Query, date_schema};
use crate::api::time::{self, written};
use crate::api::{Api, ApiError, Success};

const OF_ORG: Audience = Audience::Org {
    read: &["handoff:read"],
    write: &["handoff:write"],
};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Handoff analytics", OF_ORG);
    of.get("/handoff-analytics/events", list, "listHandoffEvents", "Handoffs to humans, newest first", |op| {
            op
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
                .gives::<Page<HandoffView>>(200)
        });
    of.get(
        "/handoff-analytics/events/by-session/{session_id}",
        of_session,
        "listHandoffsOfSession",
        "Handoffs of one session, newest first: the hundred newest",
        |op| op.gives::<SessionHandoffs>(200),
    );

    of.delete(
        "/handoff-analytics/events/{handoff_id}",
        delete,
        "deleteHandoff",
        "Deletes a handoff",
        |op| op.deletes(),
    );

    of.post_once(
        "/handoff-analytics/events",
        once(create),
        "reportHandoff",
        "Reports a handoff",
        |op| {
            let body = read_by(reported);
            op.body(body).gives::<HandoffView>(201)
        },
    );
}

/// Length of the window of a list without `start_date`.
const DEFAULT_WINDOW: Duration = Duration::from_secs(30 * 24 * 3600);

/// A handoff as the API shows it: these fields and no other.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Handoff")]
pub(crate) struct HandoffView {
    session_id: String,
    pub(crate) summary: String,
    explanation: Option<String>,
    pub(crate) reasons: Vec<Reason>,
    pub(crate) sentiment: Option<Sentiment>,
    pub(crate) created_at: String,
}

impl From<Handoff> for HandoffView {
    fn from(handoff: Handoff) -> Self {
        Self {
            session_id: handoff.session_id,
            summary: handoff.summary,
            explanation: handoff.explanation,
            reasons: handoff.reasons,
            sentiment: handoff.sentiment,
            created_at: written(handoff.created_at),
        }
    }
}

/// Filters as they were asked for, and the window that follows from them. The cursor carries both, so that all pages of
/// a walk cover one window.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HandoffFilters {
    reason: Option<Reason>,
    #[serde(default)]
    confirmed: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contact_id: Option<Uuid>,
    start_date: Option<Moment>,
    end_date: Option<Moment>,
    window: Option<(Moment, Moment)>,
}

/// Filters are equal if the requests were.
impl PartialEq for HandoffFilters {
    fn eq(&self, other: &Self) -> bool {
        let asked = |filters: &Self| {
            let dates = (filters.start_date, filters.end_date);
            let narrow = (filters.reason, filters.confirmed, filters.contact_id);
            (narrow, dates)
        };
        asked(self) == asked(other)
    }
}

impl HandoffFilters {
    fn read(query: &mut Query) -> Self {
        Self {
            reason: query.read("reason", |text| REASON.meaning(text)),
            confirmed: query.switch("confirmed").map(|word| word == "true"),
            contact_id: query.read("contact_id", |text| {
                id(text).ok_or_else(|| "expected a contact's id".to_owned())
            }),
            start_date: query.read("start_date", time::start),
            end_date: query.read("end_date", time::end),
            window: None,
        }
    }

    /// Returns the window, which is fixed once for all pages of a walk.
    fn window(&mut self, now: Moment) -> (Moment, Moment) {
        let start = self.start_date.unwrap_or(now - DEFAULT_WINDOW);
        let end = self.end_date.unwrap_or(now);
        *self.window.get_or_insert((start, end))
    }
}

/// `GET /handoff-analytics/events?reason&confirmed&contact_id&start_date&end_date&limit&cursor`: newest first. Both dates are inclusive;
/// without them the list covers the last 30 days.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<HandoffView>, ApiError> {
    let given = HandoffFilters::read(&mut query);
    let mut paging = Paging::read(&mut query, "handoffs", given);
    // Also puts the window into the filters, and so into the cursor of the next page.
    let (from, to) = paging.filters.window(api.now());
    query.expect_ordered_dates(Some((from, to)), " (defaults: 30 days ago, and now)");
    query.finish()?;
    let filter = HandoffFilter {
        reason: paging.filters.reason,
        confirmed: paging.filters.confirmed,
        contact: paging.filters.contact_id,
        from,
        to,
    };
    let page = api
        .read_of(caller.org, move |tx| {
            handoffs::list(tx, caller.org, filter, paging.after, paging.limit)
        })
        .await?;

    Ok(paging.page(page, HandoffView::from))
}

/// Most handoffs of a session that are shown: its newest ones.
const MAX_OF_SESSION: u32 = 100;

/// A handoff of one session, with what the list doesn't show.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionHandoff")]
pub(super) struct SessionHandoffView {
    id: Uuid,
    #[serde(flatten)]
    handoff: HandoffView,
    /// The contact who was handed over; `null` if that isn't known, or was erased.
    contact_id: Option<Uuid>,
    /// State of the transfer that made the handoff; `null` for a reported one.
    transfer_status: Option<TransferState>,
    /// The destination is known to have answered, or the handoff was reported.
    confirmed: bool,
}

impl From<SessionHandoff> for SessionHandoffView {
    fn from(of: SessionHandoff) -> Self {
        Self {
            id: of.handoff.id,
            contact_id: of.handoff.contact_id,
            confirmed: of.handoff.confirmed,
            transfer_status: of.transfer_state,
            handoff: of.handoff.into(),
        }
    }
}

/// The handoffs of a session.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "SessionHandoffs")]
pub(super) struct SessionHandoffs {
    items: Vec<SessionHandoffView>,
}

/// `GET /handoff-analytics/events/by-session/{session_id}`: its newest hundred, newest first. 404 for a session of which the org has neither a handoff
/// nor a call.
pub(super) async fn of_session(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<SessionHandoffs>, ApiError> {
    query.finish()?;
    let org = caller.org;
    // An escape that isn't UTF-8 names no session.
    let session = named.text("session_id").unwrap_or_default().to_owned();
    let of_call = Uuid::parse_str(&session).ok();
    let found = api
        .read_of(org, move |tx| {
            let found = handoffs::of_session(tx, org, &session, MAX_OF_SESSION)?;
            // A session of a call that nobody was handed over in is known all the same.
            if let Some(session) = of_call.filter(|_| found.is_empty()) {
                calls::of_session(tx, org, session)?;
            }
            Ok(found)
        })
        .await;
    let is_up = || of_call.is_some_and(|session| api.live().of_session(org, session).is_some());
    let found = match found {
        Ok(found) if found.is_empty() && of_call.is_none() => {
            return Err(ApiError::absent(Kind::Session));
        }
        Err(Error::Wrong(_)) if is_up() => Vec::new(),
        found => found?,
    };

    let items = found.into_iter().map(SessionHandoffView::from).collect();
    Ok(Json(SessionHandoffs { items }))
}

/// `POST /handoff-analytics/events {session_id, contact_id, summary, explanation, reasons, sentiment}`: 201. Without reasons the handoff
/// counts as implied by the AI. Without a contact it has that of the call whose session it names.
pub(super) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Json<HandoffView>), ApiError> {
    let new = reported(body.fields()?)?;
    let now = api.now();
    let handoff = api
        .write(move |tx, _| handoffs::record(tx, caller.org, new, now))
        .await
        .map_err(ApiError::in_field("contact_id"))?;
    Acting::about(handoff.id);
    Ok((StatusCode::CREATED, Json(handoff.into())))
}

/// `DELETE /handoff-analytics/events/{handoff_id}`: also empties the texts of the event. The transfer that made the handoff keeps its own.
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let id = named.id("handoff_id", Kind::Handoff)?;
    // An unknown handoff is 404, whatever the query.
    api.read_inline(move |tx| handoffs::by_id(tx, caller.org, id))
        .await?;
    query.finish()?;
    api.write(move |tx, _| handoffs::delete(tx, caller.org, id))
        .await?;
    Ok(Json(Success::DONE))
}

pub(super) fn reported(mut fields: Fields) -> Result<NewHandoff, ApiError> {
    let session_id = fields.required("session_id", Text::line(1..=255));
    let contact_id = fields.optional("contact_id", ID);
    let report = report(&mut fields);
    fields.done(|| {
        Some(NewHandoff {
            session_id: session_id?,
            contact_id,
            summary: report.summary.into(),
            explanation: report.explanation.map(Into::into),
            reasons: report.reasons,
            sentiment: report.sentiment,
        })
    })
}

/// The fields `summary`, `explanation`, `reasons` and `sentiment`, all of them optional.
pub(crate) fn report(fields: &mut Fields) -> Report {
    let summary = fields.optional("summary", Text::lines(0..=16_384));
    let explanation = fields.optional("explanation", Text::lines(0..=16_384));
    let reasons = fields.optional("reasons", ListOf::new(REASON, 0..=REASONS.len()));
    Report {
        reasons: reasons.unwrap_or_default(),
        summary: summary.unwrap_or_default().into(),
        explanation: explanation.map(Into::into),
        sentiment: fields.optional("sentiment", SENTIMENT),
    }
}

const REASON: Choice<Reason> = Choice(&REASONS);
const REASONS: [(&str, Reason); 7] = [
    named(Reason::AiImpliedHandoff),
    named(Reason::BasedOnInstructions),
    named(Reason::InstructionsNotClear),
    named(Reason::InsufficientKnowledge),
    named(Reason::InsufficientTools),
    named(Reason::ProhibitedTopic),
    named(Reason::UserRequestedHumanAssistance),
];

const fn named(reason: Reason) -> (&'static str, Reason) {
    (reason.as_str(), reason)
}

const SENTIMENT: Choice<Sentiment> = Choice(&[
    ("angry", Sentiment::Angry),
    ("happy", Sentiment::Happy),
    ("neutral", Sentiment::Neutral),
]);
