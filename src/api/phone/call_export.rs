//! `GET /phone/calls` as CSV or JSON lines: ended calls in the order in which their ends were recorded.

use std::borrow::Cow;

use trunkline_store::{CallEnd, Error, call_ends};
use uuid::Uuid;

use super::call_filters::CallFilters;
use super::calls::CallView;
use super::transfer_view::TransferView;
use crate::api::Api;
use crate::api::csv::{foreign, plain};
use crate::api::export::{Batch, ExportRow, ExportRows};
use crate::api::feed_page::FeedPaging;

/// Calls read at once.
const BATCH: u32 = 200;

/// Columns of the CSV.
const COLUMNS: [&str; 35] = [
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
    "duration_s",
    "answered_s",
    "sip_code",
    "reason",
    "reason_detail",
    "hangup_by",
    "q850_cause",
    "caller_call_id",
    "runtime_call_id",
    "transfer_id",
    "transfer_status",
    "transfer_confirmed",
    "caller_withheld",
    "metadata",
    "media_received_mos",
    "media_sent_mos",
    "media_round_trip_ms",
    "media_first_word_ms",
    "media_underruns",
    "cursor",
];

/// The ended calls that match, up to the limit.
pub(super) struct CallExport {
    api: Api,
    org: Uuid,
    paging: FeedPaging<CallFilters>,
    /// Number after which to continue; `None` at the end.
    after: Option<i64>,
    /// Maximum number of further calls.
    remaining: u32,
}

impl CallExport {
    pub(super) fn new(api: Api, org: Uuid, paging: FeedPaging<CallFilters>) -> Self {
        Self {
            api,
            org,
            after: Some(paging.after),
            remaining: paging.limit.unwrap_or(u32::MAX),
            paging,
        }
    }
}

impl ExportRows for CallExport {
    type Row = CallView;

    const LIST: &'static str = "calls that ended";

    async fn next(&mut self) -> Result<Option<Batch<CallView>>, Error> {
        let Some(after) = self.after else {
            return Ok(None);
        };

        let filter = self.paging.filters.for_store();
        let org = self.org;
        let found = self
            .api
            .read_of(org, move |tx| {
                call_ends::after(tx, org, &filter, after, BATCH)
            })
            .await?;

        let ends = found.ends.into_iter().take(self.remaining as usize);
        let rows: Vec<_> = ends
            .map(|CallEnd { seq, call }| (call.into(), self.paging.cursor(seq)))
            .collect();

        self.remaining -= rows.len() as u32;
        self.after = found.more_after.filter(|_| self.remaining > 0);
        Ok(Some(rows))
    }
}

impl ExportRow for CallView {
    const COLUMNS: &'static [&'static str] = &COLUMNS;

    fn cells<'c>(&'c self, cursor: &'c str) -> Vec<Cow<'c, str>> {
        fn text<T: ToString>(value: Option<T>) -> Cow<'static, str> {
            Cow::Owned(value.map(|value| value.to_string()).unwrap_or_default())
        }

        fn time(time: &Option<String>) -> Cow<'_, str> {
            plain(time.as_deref().unwrap_or_default())
        }

        let transfer = self.transfer.as_ref();
        let media = self.media.as_ref();

        let cells: [_; COLUMNS.len()] = [
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
            text(self.duration_s),
            text(self.answered_s),
            text(self.sip_code),
            plain(self.reason.as_deref().unwrap_or_default()),
            foreign(self.reason_detail.as_deref().unwrap_or_default()),
            text(self.hangup_by.map(|by| by.as_str())),
            text(self.q850_cause),
            foreign(&self.caller_call_id),
            foreign(self.runtime_call_id.as_deref().unwrap_or_default()),
            text(transfer.map(|transfer| transfer.id)),
            text(transfer.map(|transfer| transfer.status.as_str())),
            text(transfer.map(TransferView::is_confirmed)),
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
        ];

        cells.into()
    }
}
