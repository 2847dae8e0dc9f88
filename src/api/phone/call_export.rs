//! `GET /phone/calls` as CSV or JSON lines: ended calls in the order in which their ends were recorded, as a stream.
//!
//! Calls are read in batches, the next one once the client has taken the last, so memory use is bounded. Each line has
//! a cursor, so that an interrupted reader continues after its last whole line.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Serialize;
use trunkline_store::{CallEnd, Error, call_ends};
use uuid::Uuid;

use super::call_filters::CallFilters;
use super::calls::CallView;
use crate::api::csv::{foreign, line, plain};
use crate::api::feed_page::{FeedPaging, log_broken_off};
use crate::api::{Api, ApiError};

/// Name of the list in its cursors.
pub(super) const LIST: &str = "calls that ended";
/// Calls read at once.
const BATCH: u32 = 200;

/// Format of the lines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ExportFormat {
    Csv,
    Json,
}

impl ExportFormat {
    /// Returns the format of a media type.
    pub(super) fn of(media_type: &str) -> Option<Self> {
        match media_type {
            "text/csv" | "text/*" => Some(Self::Csv),
            "application/x-ndjson" => Some(Self::Json),
            _ => None,
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Json => "application/x-ndjson",
        }
    }

    fn write(self, to: &mut String, call: &CallView, cursor: &str) {
        match self {
            Self::Csv => line(to, &call.cells(cursor)),
            Self::Json => {
                let json = serde_json::to_string(&Line { call, cursor });
                to.push_str(&json.expect("a call is plain data"));
                to.push('\n');
            }
        }
    }
}

/// A call as a line of JSON.
#[derive(Serialize)]
struct Line<'c> {
    #[serde(flatten)]
    call: &'c CallView,
    cursor: &'c str,
}

/// Columns of the CSV.
const COLUMNS: [&str; 33] = [
    "id",
    "session_id",
    "agent_id",
    "trunk_id",
    "contact_id",
    "direction",
    "status",
    "from_number",
    "to_number",
    "from_e164",
    "to_e164",
    "started_at",
    "ringing_at",
    "answered_at",
    "ended_at",
    "duration_seconds",
    "answered_seconds",
    "sip_code",
    "reason",
    "hangup_by",
    "q850_cause",
    "caller_call_id",
    "runtime_call_id",
    "transfer_id",
    "transfer_state",
    "caller_withheld",
    "metadata",
    "media_received_mos",
    "media_sent_mos",
    "media_round_trip_ms",
    "media_first_word_ms",
    "media_underruns",
    "cursor",
];

/// State of a streamed answer.
struct Export {
    api: Api,
    org: Uuid,
    onward: FeedPaging<CallFilters>,
    form: ExportFormat,
    /// Number after which to continue; `None` at the end.
    after: Option<i64>,
    /// Maximum number of further calls.
    left: u32,
}

/// Answers with all calls that match.
///
/// # Errors
/// The first calls can't be read. If later ones can't, the stream breaks off.
pub(super) async fn answer(
    api: Api,
    org: Uuid,
    onward: FeedPaging<CallFilters>,
    form: ExportFormat,
) -> Result<Response, ApiError> {
    let mut export = Export {
        api,
        org,
        form,
        after: Some(onward.after),
        left: onward.limit.unwrap_or(u32::MAX),
        onward,
    };

    let mut first = String::new();
    if form == ExportFormat::Csv {
        line(&mut first, &COLUMNS.map(Cow::Borrowed));
    }

    first.push_str(&export.read().await?);

    let rest = stream::try_unfold(export, |mut export| async move {
        if export.after.is_none() {
            return Ok(None);
        }
        let some = export.read().await;
        let some = some.inspect_err(|error| log_broken_off(LIST, error))?;
        Ok::<_, Error>(Some((Bytes::from(some), export)))
    });

    let first = stream::iter([Ok(Bytes::from(first))]);
    let body = Body::from_stream(futures_util::StreamExt::chain(first, rest));
    Ok(([(header::CONTENT_TYPE, form.content_type())], body).into_response())
}

impl Export {
    /// Returns the lines of the next batch; empty if none of its calls match.
    async fn read(&mut self) -> Result<String, Error> {
        let Some(after) = self.after else {
            return Ok(String::new());
        };

        let filter = self.onward.filters.for_store();
        let org = self.org;
        let found = self
            .api
            .read_of(org, move |tx| {
                call_ends::after(tx, org, &filter, after, BATCH)
            })
            .await?;

        let mut lines = String::new();
        for CallEnd { seq, call } in found.ends.into_iter().take(self.left as usize) {
            let cursor = self.onward.cursor(seq);
            self.form.write(&mut lines, &call.into(), &cursor);
            self.left -= 1;
        }

        self.after = found.more_after.filter(|_| self.left > 0);
        Ok(lines)
    }
}

impl CallView {
    fn cells<'c>(&'c self, cursor: &'c str) -> [Cow<'c, str>; COLUMNS.len()] {
        fn text<T: ToString>(value: Option<T>) -> Cow<'static, str> {
            Cow::Owned(value.map(|value| value.to_string()).unwrap_or_default())
        }

        fn time(time: &Option<String>) -> Cow<'_, str> {
            plain(time.as_deref().unwrap_or_default())
        }

        let transfer = self.transfer.as_ref();
        let media = self.media.as_ref();

        [
            text(Some(self.id)),
            text(Some(self.session_id)),
            text(self.agent_id),
            text(self.trunk_id),
            text(self.contact_id),
            plain(self.direction.as_str()),
            plain(self.status.as_str()),
            foreign(&self.from_number),
            foreign(&self.to_number),
            text(self.from_e164),
            text(self.to_e164),
            plain(&self.started_at),
            time(&self.ringing_at),
            time(&self.answered_at),
            time(&self.ended_at),
            text(self.duration_seconds),
            text(self.answered_seconds),
            text(self.sip_code),
            plain(self.reason.as_deref().unwrap_or_default()),
            text(self.hangup_by.map(|by| by.as_str())),
            text(self.q850_cause),
            foreign(&self.caller_call_id),
            foreign(self.runtime_call_id.as_deref().unwrap_or_default()),
            text(transfer.map(|transfer| transfer.id)),
            text(transfer.map(|transfer| transfer.state.as_str())),
            plain(if self.caller_withheld {
                "true"
            } else {
                "false"
            }),
            self.metadata.as_ref().map_or(Cow::Borrowed(""), |json| {
                Cow::Owned(foreign(&json.to_string()).into_owned())
            }),
            text(media.and_then(|media| media.received.mos)),
            text(media.and_then(|media| media.sent.mos)),
            text(media.and_then(|media| media.round_trip_ms)),
            text(media.and_then(|media| media.first_word_ms)),
            text(media.map(|media| media.underruns)),
            plain(cursor),
        ]
    }
}
