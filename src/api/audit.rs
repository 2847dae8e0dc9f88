//! Audit log as `/phone/audit` and `/partner/v1/audit` show it: a page as JSON, newest first, or by `Accept` all of it
//! as CSV or JSON lines, oldest first.

use std::borrow::Cow;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trunkline_sip::moment::Moment;
use trunkline_store::{ActorKind, AuditEntry, AuditFilter, AuditScope, Error, Tx, audit};
use uuid::Uuid;

use super::audited_request::KINDS;
use super::caller::Caller;
use super::csv::{foreign, plain};
use super::export::{self, Batch, ExportFormat, ExportRow, ExportRows};
use super::feed_page::FeedPaging;
use super::field_type::id;
use super::openapi::Operation;
use super::operations::{Audience, Operations};
use super::page::Page;
use super::query::{Query, date_schema};
use super::time::{self, written};
use super::{Api, ApiError, accept};

/// Declares the org's log, at the top and below `/phone` for clients from before.
pub(super) fn of_org_operations(api: &mut Operations<'_>) {
    let whose = Audience::Org {
        read: &[SCOPE],
        write: &[SCOPE],
    };
    let mut of = api.area("Audit log", whose);
    for (path, id) in [("/audit", "listAudit"), ("/phone/audit", "listPhoneAudit")] {
        let title = "Changes to the org, newest first; by `Accept` as CSV or JSON lines";
        of.get(path, of_org, id, title, describe);
    }
}

/// Scope for reading the log: a credential that manages keys sees what was done with them.
pub(super) const SCOPE: &str = "keys:write";
/// Entries of a page when `limit` is absent.
const DEFAULT_LIMIT: u32 = 50;
/// Entries read at once for a stream.
const BATCH: u32 = 500;

/// Filters of a list. The cursor carries them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AuditFilters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    org_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    actor_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    resource_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_date: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_date: Option<Moment>,
}

/// An entry as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AuditEntry")]
pub(crate) struct AuditView {
    pub(crate) at: String,
    /// Org of the change; `null` if it concerns no org.
    pub(crate) org_id: Option<Uuid>,
    /// The partner of the org, or the one that was changed or made the change.
    pub(crate) partner_id: Option<Uuid>,
    /// `org_key`, `partner_key`, `dashboard`, `operator` (a session of the dashboard that the operator has opened), `session_token` or `command`.
    pub(crate) actor: String,
    /// The key or the session; `null` for a command.
    actor_id: Option<Uuid>,
    /// Name of the key, e-mail address of the person, `operator`, or words of the command.
    pub(crate) actor_name: String,
    /// Address that the request came from; `null` for a command.
    pub(crate) address: Option<String>,
    /// Method and route, or the words of the command.
    pub(crate) action: String,
    /// Kind of the changed object.
    pub(crate) resource: String,
    /// Id of the changed object; `null` for one that the org has exactly one of.
    pub(crate) resource_id: Option<Uuid>,
    /// Names of the fields in the request. Their values aren't kept.
    pub(crate) fields: Vec<String>,
    /// `X-Request-Id` of the answer; `null` for a command.
    request_id: Option<String>,
    /// Name that the org has now.
    org_name: Option<String>,
    /// Name that the changed object has now, or its number or URL; `null` once it is deleted, and for what has none.
    pub(crate) resource_name: Option<String>,
}

impl From<AuditEntry> for AuditView {
    fn from(entry: AuditEntry) -> Self {
        Self {
            at: written(entry.at),
            org_id: entry.org_id,
            partner_id: entry.partner_id,
            actor: entry.actor,
            actor_id: entry.actor_id,
            actor_name: entry.actor_name,
            address: entry.address,
            action: entry.action,
            resource: entry.resource,
            resource_id: entry.resource_id,
            fields: entry.fields,
            request_id: entry.request_id,
            org_name: entry.org_name,
            resource_name: entry.resource_name,
        }
    }
}

/// Columns of the CSV.
const COLUMNS: [&str; 15] = [
    "at",
    "org_id",
    "partner_id",
    "actor",
    "actor_id",
    "actor_name",
    "address",
    "action",
    "resource",
    "resource_id",
    "fields",
    "request_id",
    "org_name",
    "resource_name",
    "cursor",
];

impl ExportRow for AuditView {
    const COLUMNS: &'static [&'static str] = &COLUMNS;

    fn cells<'c>(&'c self, cursor: &'c str) -> Vec<Cow<'c, str>> {
        fn id(id: Option<Uuid>) -> Cow<'static, str> {
            Cow::Owned(id.map(|id| id.to_string()).unwrap_or_default())
        }

        fn text(text: &Option<String>) -> Cow<'_, str> {
            foreign(text.as_deref().unwrap_or_default())
        }

        let cells: [_; COLUMNS.len()] = [
            plain(&self.at),
            id(self.org_id),
            id(self.partner_id),
            plain(&self.actor),
            id(self.actor_id),
            foreign(&self.actor_name),
            text(&self.address),
            plain(&self.action),
            plain(&self.resource),
            id(self.resource_id),
            Cow::Owned(foreign(&self.fields.join(" ")).into_owned()),
            text(&self.request_id),
            text(&self.org_name),
            text(&self.resource_name),
            plain(cursor),
        ];
        cells.into()
    }
}

impl AuditFilters {
    fn read(query: &mut Query, of: AuditScope) -> Self {
        let any_id = |text: &str| id(text).ok_or_else(|| "expected an id".to_owned());
        let filters = Self {
            org_id: match of {
                AuditScope::Partner(_) => query.read("org_id", any_id),
                AuditScope::Org(_) | AuditScope::All => None,
            },
            actor: query.one_of("actor", &ActorKind::ALL.map(ActorKind::as_str)),
            actor_id: query.read("actor_id", any_id),
            resource: query.one_of("resource", &KINDS),
            resource_id: query.read("resource_id", any_id),
            start_date: query.read("start_date", time::start),
            end_date: query.read("end_date", time::end),
        };

        query.expect_ordered_dates(filters.start_date.zip(filters.end_date), "");
        filters
    }

    fn for_store(&self) -> AuditFilter {
        AuditFilter {
            org: self.org_id,
            actor: self.actor.clone(),
            actor_id: self.actor_id,
            resource: self.resource.clone(),
            resource_id: self.resource_id,
            from: self.start_date,
            to: self.end_date,
        }
    }
}

/// `GET /phone/audit?actor&actor_id&resource&resource_id&start_date&end_date&limit&cursor`
pub(super) async fn of_org(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    answer(api, AuditScope::Org(caller.org), &headers, query).await
}

/// Answers a query of the entries of one org or partner.
///
/// # Errors
/// 400 with every fault of the query.
pub(super) async fn answer(
    api: Api,
    of: AuditScope,
    headers: &HeaderMap,
    mut query: Query,
) -> Result<Response, ApiError> {
    let given = AuditFilters::read(&mut query, of);
    if let Some(format) = ExportFormat::wanted(headers) {
        let paging = FeedPaging::read(&mut query, AuditExport::LIST, given);
        query.finish()?;
        return export::answer(AuditExport::new(api, of, paging), format).await;
    }

    let paging = FeedPaging::read(&mut query, "audit", given);
    query.finish()?;
    let page = page(&api, of, &paging).await?;
    Ok(([accept::VARIES], page).into_response())
}

async fn page(
    api: &Api,
    of: AuditScope,
    paging: &FeedPaging<AuditFilters>,
) -> Result<Page<AuditView>, ApiError> {
    let limit = paging.limit.unwrap_or(DEFAULT_LIMIT);
    let filter = paging.filters.for_store();
    let before = match paging.after {
        // Without a cursor the page begins at the newest entry.
        0 => i64::MAX,
        seq => seq,
    };

    let found = read_of(api, of, move |tx| {
        let total = audit::count(tx, of, &filter)?;
        // One entry more than the page has tells whether another page follows.
        Ok((audit::before(tx, of, &filter, before, limit + 1)?, total))
    });
    let (mut entries, total) = found.await?;

    let has_more = entries.len() > limit as usize;
    entries.truncate(limit as usize);
    let last = entries.last().filter(|_| has_more);

    Ok(Page {
        next: last.map(|entry| paging.cursor(entry.seq)),
        items: entries.into_iter().map(AuditView::from).collect(),
        total,
        total_is_bounded: false,
    })
}

/// Runs a read of many entries in a turn of their owner. Only the operator reads those of the whole installation, and waits for no turn.
async fn read_of<T: Send + 'static>(
    api: &Api,
    of: AuditScope,
    work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    match of.id() {
        Some(owner) => api.read_of(owner, work).await,
        None => api.read(work).await,
    }
}

/// The entries that match, up to the limit, oldest first.
struct AuditExport {
    api: Api,
    of: AuditScope,
    paging: FeedPaging<AuditFilters>,
    /// Number after which to continue; `None` at the end.
    after: Option<i64>,
    /// Maximum number of further entries.
    remaining: u32,
}

impl AuditExport {
    fn new(api: Api, of: AuditScope, paging: FeedPaging<AuditFilters>) -> Self {
        Self {
            api,
            of,
            after: Some(paging.after),
            remaining: paging.limit.unwrap_or(u32::MAX),
            paging,
        }
    }
}

impl ExportRows for AuditExport {
    type Row = AuditView;

    const LIST: &'static str = "audit, oldest first";

    async fn next(&mut self) -> Result<Option<Batch<AuditView>>, Error> {
        let Some(after) = self.after else {
            return Ok(None);
        };

        let most = BATCH.min(self.remaining);
        let filter = self.paging.filters.for_store();
        let of = self.of;
        let entries = read_of(&self.api, of, move |tx| {
            audit::after(tx, of, &filter, after, most)
        })
        .await?;

        self.remaining -= entries.len() as u32;
        let is_full = entries.len() == most as usize && self.remaining > 0;
        self.after = entries.last().map(|entry| entry.seq).filter(|_| is_full);

        let row = |entry: AuditEntry| {
            let cursor = self.paging.cursor(entry.seq);
            (entry.into(), cursor)
        };
        Ok(Some(entries.into_iter().map(row).collect()))
    }
}

/// Adds the query and the answers to the OpenAPI document.
pub(super) fn describe(op: Operation<'_>) -> Operation<'_> {
    let uuid = || json!({"type": "string", "format": "uuid"});
    let actors = ActorKind::ALL.map(ActorKind::as_str);
    op.note(
        "As `text/csv` and `application/x-ndjson` the answer has all entries, or `limit` of them, oldest first. Each line has a `cursor` to go \
         on from; none is ever skipped.",
    )
    .query("actor", json!({"type": "string", "enum": actors}), "Only changes by this kind of credential.")
    .query("actor_id", uuid(), "Only changes by this key or session.")
    .query("resource", json!({"type": "string", "enum": KINDS}), "Only changes to objects of this kind.")
    .query("resource_id", uuid(), "Only changes to this object.")
    .query("start_date", date_schema(), "The earliest change; a date without a time is its beginning, UTC.")
    .query("end_date", date_schema(), "The latest change, inclusive; a date without a time is its end, UTC.")
    .lists::<AuditView>()
    .also_as("text/csv")
    .also_as("application/x-ndjson")
}
