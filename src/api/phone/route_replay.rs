//! `/phone/sip/route-replay`: routes the calls of a period again, by today's directory or by a changed one. Nothing is
//! changed.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use trunkline_sip::moment::Moment;
use trunkline_store::{Kind, explained};

use super::ASKS_OF_CALLS;
use super::commands::outbound::caught_up;
use super::inbound_trunk::COUNTRY;
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{Bool, Choice, Count, ID, ListOf, NUMBER, Parsed};
use crate::api::object::Object;
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::time;
use crate::api::{Api, ApiError};
use crate::explain::change::{AgentChange, Change, NumberChange, TrunkChange};
use crate::explain::replay::{CALLS, MOST_CALLS, MOST_DAYS, ReplayView, replay};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Inbound trunk", ASKS_OF_CALLS);
    of.post("/phone/sip/route-replay", decide, "replayRoutes", "Routes the inbound calls of a period again, by today's directory or a changed one; changes nothing", |op| {
            op.note(
                    "Without `start_date` the 24 hours before `end_date` are replayed, at most 92 days; \
                     without `limit` the newest 1,000 calls. `changes` says how the directory differs from today's: what it names \
                     is changed, all else stays.",
                )
                .body(read_by(read_request))
                .gives::<ReplayView>(200)
        });
}

/// Default length of the period.
const PERIOD: Duration = Duration::from_secs(24 * 3_600);
const LONGEST: Duration = Duration::from_secs(MOST_DAYS * 24 * 3_600);
/// Number of entries that each list of changes may have.
const CHANGES: std::ops::RangeInclusive<usize> = 0..=1_000;

/// Request for a replay.
#[derive(Debug)]
pub(crate) struct RouteReplayRequest {
    start: Option<Moment>,
    end: Option<Moment>,
    /// Maximum number of calls to route.
    pub(crate) limit: u32,
    /// Changes to today's directory.
    pub(crate) changes: Change,
}

/// `POST /phone/sip/route-replay {start_date, end_date, limit, changes}`, all optional.
pub(crate) async fn decide(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<Json<ReplayView>, ApiError> {
    // The answer lists recorded calls with their numbers.
    let request = read_request(body.fields()?)?;
    let (from, until) = request.period(api.now()).map_err(ApiError::bad)?;
    caught_up(&api).await;
    let view = api.directory().load();
    let org = view
        .org(caller.org)
        .ok_or_else(|| ApiError::absent(Kind::Org))?;

    let changed = request
        .changes
        .apply(&org.routing)
        .map_err(|faults| ApiError::BadRequest(within("changes", faults)))?;

    let limit = request.limit;
    let calls = api
        .read_of(caller.org, move |tx| {
            // One more than is routed tells whether the answer is `complete`.
            explained::recorded(tx, caller.org, from, until, None, limit + 1)
        })
        .await?;

    // Thousands of decisions would block other requests on this thread.
    let replayed = tokio::task::spawn_blocking(move || replay(calls, limit, from, until, &changed));
    let replayed = replayed.await;
    Ok(Json(
        replayed.map_err(|fault| ApiError::Broke(Box::new(fault)))?,
    ))
}

fn within(path: &str, faults: Vec<String>) -> Vec<String> {
    let named = faults.into_iter().map(|fault| format!("{path}.{fault}"));
    named.collect()
}

impl RouteReplayRequest {
    /// Returns the period, which has a maximum length.
    ///
    /// # Errors
    /// A sentence about what is wrong with the period.
    pub(crate) fn period(&self, now: Moment) -> Result<(Moment, Moment), String> {
        let end = self.end.unwrap_or(now);
        let start = self.start.unwrap_or(end - PERIOD);
        if start > end {
            return Err("start_date: lies after end_date".to_owned());
        }
        if end.since(start) > LONGEST {
            return Err(format!(
                "start_date: lies more than {MOST_DAYS} days before end_date"
            ));
        }
        Ok((start, end))
    }
}

pub(crate) fn read_request(mut fields: Fields) -> Result<RouteReplayRequest, ApiError> {
    const START: Parsed<Moment> =
        Parsed::new("an ISO 8601 date or time", |text| time::start(text).ok());
    const END: Parsed<Moment> =
        Parsed::new("an ISO 8601 date or time", |text| time::end(text).ok());
    let start = fields.optional("start_date", START);
    let end = fields.optional("end_date", END);
    let limit = fields.optional("limit", Count::new(1..=MOST_CALLS));
    let changes = fields.optional("changes", Object(changes));

    fields.done(|| {
        Some(RouteReplayRequest {
            start,
            end,
            limit: limit.unwrap_or(CALLS),
            changes: changes.unwrap_or_default(),
        })
    })
}

fn changes(fields: &mut Fields) -> Option<Change> {
    let agents = fields.optional("agents", ListOf::new(Object(agent), CHANGES));
    let numbers = fields.optional("numbers", ListOf::new(Object(number), CHANGES));
    let trunk = fields.optional("trunk", Object(trunk));
    Some(Change {
        agents: agents.unwrap_or_default(),
        numbers: numbers.unwrap_or_default(),
        trunk: trunk.unwrap_or_default(),
    })
}

fn agent(fields: &mut Fields) -> Option<AgentChange> {
    const TYPE: Choice<bool> = Choice(&[("inbound", true), ("outbound", false)]);
    let id = fields.required("id", ID);
    let enabled = fields.change("enabled", Bool);
    let inbound = fields.change("type", TYPE);
    let most = fields.clearable("max_concurrent_calls", super::CALLS_AT_ONCE);
    let deleted = fields.change("deleted", Bool);
    Some(AgentChange {
        id: id?,
        enabled,
        inbound,
        max_concurrent_calls: most,
        deleted: deleted.unwrap_or(false),
    })
}

fn number(fields: &mut Fields) -> Option<NumberChange> {
    let number = fields.required("phone_number", NUMBER);
    let agent = fields.clearable("agent_id", ID);
    let deleted = fields.change("deleted", Bool);
    Some(NumberChange {
        number: number?,
        agent,
        deleted: deleted.unwrap_or(false),
    })
}

fn trunk(fields: &mut Fields) -> Option<TrunkChange> {
    let numbers = fields.change("phone_numbers", ListOf::new(NUMBER, CHANGES));
    let country = fields.clearable("default_country", COUNTRY);
    Some(TrunkChange {
        numbers,
        default_country: country,
    })
}
