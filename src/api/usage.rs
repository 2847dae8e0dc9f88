//! Usage as `/phone/usage` and `/partner/v1/usage` show it: calls and answered seconds, as JSON or by `Accept` as CSV.
//!
//! Each cell of the CSV is an id, a date, a number or a fixed word, so none needs quotes or can be read as a formula.

use std::fmt::Write as _;
use std::time::Duration;

use axum::Json;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use trunkline_model::record::Direction;
use trunkline_sip::moment::Moment;
use trunkline_store::{UsageParts, UsageRow, UsageWindow};
use uuid::Uuid;

use super::field_type::shown;
use super::openapi::Operation;
use super::query::{Query, date_schema};
use super::time::{self, written};
use super::{ApiError, accept};

pub(super) const CSV: &str = "text/csv";
/// Length of the window without a `start_date`.
const DEFAULT_WINDOW: Duration = Duration::from_secs(30 * 24 * 3600);
/// Maximum number of rows in one answer.
const MAX_ROWS: u32 = 100_000;
/// Length of a date, in characters.
const DATE: usize = "2026-01-31".len();
const MICROS_OF_DAY: u64 = 86_400_000_000;

/// Usage as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Usage")]
pub(crate) struct UsageView {
    /// One item for each group that has calls, in order of day, org, agent, trunk and direction.
    pub(crate) items: Vec<UsageItem>,
}

/// Calls of one group that started within the window. Fields that the request doesn't group by are `null`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UsageItem {
    /// The day in UTC on which the calls started.
    pub(crate) day: Option<String>,
    /// The org of the calls.
    org_id: Option<Uuid>,
    /// `null` also for calls without an agent.
    pub(crate) agent_id: Option<Uuid>,
    /// The inbound or outbound trunk; `null` also for calls without one.
    pub(crate) trunk_id: Option<Uuid>,
    pub(crate) direction: Option<Direction>,
    /// All calls, refused ones and those that are up included.
    pub(crate) calls: i64,
    /// Calls among them that were answered.
    pub(crate) answered_calls: i64,
    /// Sum of the calls' `answered_s`; a call that is up adds its own when it ends.
    pub(crate) answered_s: i64,
}

impl From<UsageRow> for UsageItem {
    fn from(row: UsageRow) -> Self {
        Self {
            day: row.day.map(date),
            org_id: row.org_id,
            agent_id: row.agent_id,
            trunk_id: row.trunk_id,
            direction: row.direction,
            calls: row.calls,
            answered_calls: row.answered_calls,
            answered_s: row.answered_seconds,
        }
    }
}

fn date(day: i64) -> String {
    let day = u64::try_from(day).unwrap_or_default();
    let mut date = written(Moment::from_micros(day.saturating_mul(MICROS_OF_DAY)));
    date.truncate(DATE);
    date
}

/// Query of a usage request, and the format of the answer.
#[derive(Copy, Clone, Debug)]
pub(super) struct UsageRequest {
    pub(super) window: UsageWindow,
    pub(super) parts: UsageParts,
    is_csv: bool,
}

impl UsageRequest {
    /// Rows to read from the store: one more than an answer may have.
    pub(super) const ROWS: u32 = MAX_ROWS + 1;

    /// Reads `start_date`, `end_date` and `group_by`, and `Accept`.
    ///
    /// # Errors
    /// 400 with every fault.
    pub(super) fn read(
        mut query: Query,
        headers: &HeaderMap,
        now: Moment,
    ) -> Result<Self, ApiError> {
        let start = query.read("start_date", time::start);
        let end = query.read("end_date", time::end);
        let parts = query.read("group_by", parts).unwrap_or(UsageParts {
            day: true,
            ..UsageParts::default()
        });

        let to = end.unwrap_or(now);
        let from = start.unwrap_or(to - DEFAULT_WINDOW);
        query.expect_ordered_dates(Some((from, to)), " (default: now)");
        query.finish()?;
        Ok(Self {
            window: UsageWindow { from, to },
            parts,
            is_csv: accept::preferred(headers, &[("application/json", false), (CSV, true)])
                .unwrap_or(false),
        })
    }

    /// Makes the answer.
    ///
    /// # Errors
    /// 400 if it has too many rows.
    pub(super) fn answer(self, rows: Vec<UsageRow>) -> Result<Response, ApiError> {
        // Refused rather than cut off: the sums of a part would be taken for those of the whole.
        if rows.len() > MAX_ROWS as usize {
            let fault = format!(
                "group_by: gives more than {MAX_ROWS} rows; shorten the window or group by less"
            );
            return Err(ApiError::BadRequest(vec![fault]));
        }

        let items: Vec<_> = rows.into_iter().map(UsageItem::from).collect();
        if self.is_csv {
            let kind = (header::CONTENT_TYPE, "text/csv; charset=utf-8");
            return Ok(([accept::VARIES, kind], csv(&items)).into_response());
        }
        Ok(([accept::VARIES], Json(UsageView { items })).into_response())
    }
}

/// Adds the query and the answer to the OpenAPI document.
pub(super) fn describe(op: Operation<'_>) -> Operation<'_> {
    op.query(
        "start_date",
        date_schema(),
        "The earliest start of a call, 30 days before `end_date` unless given; a date without a time is its beginning, UTC.",
    )
    .query(
        "end_date",
        date_schema(),
        "The latest start, inclusive, now unless given; a date without a time is its end, UTC.",
    )
    .query("group_by", parts_schema(), "Some of `day` (UTC), `org`, `agent`, `trunk` and `direction`, separated by commas.")
    .gives::<UsageView>(200)
    .also_as(CSV)
}

fn parts_schema() -> Value {
    let word = "(day|org|agent|trunk|direction)";
    json!({"type": "string", "default": "day", "pattern": format!("^{word}(,{word})*$")})
}

fn parts(text: &str) -> Result<UsageParts, String> {
    let mut parts = UsageParts::default();
    for word in text.split(',') {
        match word {
            "day" => parts.day = true,
            "org" => parts.org = true,
            "agent" => parts.agent = true,
            "trunk" => parts.trunk = true,
            "direction" => parts.direction = true,
            _ => {
                let word = shown(word);
                return Err(format!(
                    "{word} is none of day, org, agent, trunk, direction"
                ));
            }
        }
    }

    Ok(parts)
}

/// Writes CSV (RFC 4180) with a header line.
fn csv(items: &[UsageItem]) -> String {
    let mut text =
        "day,org_id,agent_id,trunk_id,direction,calls,answered_calls,answered_s\r\n".to_owned();
    let id = |id: Option<Uuid>| id.map(|id| id.to_string()).unwrap_or_default();

    for item in items {
        let written = write!(
            text,
            "{},{},{},{},{},{},{},{}\r\n",
            item.day.as_deref().unwrap_or_default(),
            id(item.org_id),
            id(item.agent_id),
            id(item.trunk_id),
            item.direction.map_or("", Direction::as_str),
            item.calls,
            item.answered_calls,
            item.answered_s,
        );
        written.expect("a String takes all");
    }

    text
}
