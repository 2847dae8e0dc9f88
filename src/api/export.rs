//! A list as CSV or JSON lines, as a stream.
//!
//! Rows are read in batches, the next one once the client has taken the last, so memory use is bounded. Each line has a cursor, so
//! that an interrupted reader continues after its last whole line.

use std::borrow::Cow;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use trunkline_store::Error;

use super::csv::line;
use super::feed_page::log_broken_off;
use super::{ApiError, accept};

/// Format of the lines.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ExportFormat {
    Csv,
    Json,
}

/// A row as a line of JSON.
#[derive(Serialize)]
struct JsonLine<'r, R> {
    #[serde(flatten)]
    row: &'r R,
    cursor: &'r str,
}

/// A row of an export, as the API shows it.
pub(super) trait ExportRow: Serialize {
    /// Names of the columns of the CSV; the last one is the cursor's.
    const COLUMNS: &'static [&'static str];

    /// Returns a cell for each column.
    fn cells<'c>(&'c self, cursor: &'c str) -> Vec<Cow<'c, str>>;
}

/// Rows, each with its cursor.
pub(super) type Batch<R> = Vec<(R, String)>;

/// The rows of one export, read from the store batch by batch.
pub(super) trait ExportRows: Send + 'static {
    type Row: ExportRow;

    /// Name of the list in its cursors.
    const LIST: &'static str;

    /// Returns the next batch; it is empty if none of its rows match. `None` at the end.
    fn next(&mut self) -> impl Future<Output = Result<Option<Batch<Self::Row>>, Error>> + Send;
}

impl ExportFormat {
    /// Returns the format that a client prefers to a page of JSON.
    pub(super) fn wanted(headers: &HeaderMap) -> Option<Self> {
        let forms = [Self::Csv, Self::Json].map(|format| (format.content_type(), Some(format)));
        let forms = [&[("application/json", None)][..], &forms].concat();
        accept::preferred(headers, &forms).flatten()
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8",
            Self::Json => "application/x-ndjson",
        }
    }

    /// Returns the lines that come before the first row.
    fn head<R: ExportRow>(self) -> String {
        let mut head = String::new();
        if self == Self::Csv {
            let names: Vec<_> = R::COLUMNS.iter().copied().map(Cow::Borrowed).collect();
            line(&mut head, &names);
        }
        head
    }

    fn lines<R: ExportRow>(self, rows: &[(R, String)]) -> String {
        let mut lines = String::new();
        for (row, cursor) in rows {
            match self {
                Self::Csv => line(&mut lines, &row.cells(cursor)),
                Self::Json => {
                    let json = serde_json::to_string(&JsonLine { row, cursor });
                    lines.push_str(&json.expect("a row is plain data"));
                    lines.push('\n');
                }
            }
        }
        lines
    }
}

/// Streams the rows. The first batch is read before the answer begins.
///
/// # Errors
/// The first batch can't be read. If a later one can't, the stream breaks off.
pub(super) async fn answer<E: ExportRows>(
    mut rows: E,
    format: ExportFormat,
) -> Result<Response, ApiError> {
    // Sent with the first rows, so that an answer without rows has the names of its columns.
    let mut first = format.head::<E::Row>();
    // Before the status is sent: a store that is away is a 503, and not a stream that breaks off.
    let batch = rows.next().await?;
    first.push_str(&format.lines(&batch.unwrap_or_default()));

    let rest = stream::try_unfold(rows, move |mut rows| async move {
        let batch = rows.next().await;
        let batch = batch.inspect_err(|error| log_broken_off(E::LIST, error))?;
        let lines = batch.map(|batch| Bytes::from(format.lines(&batch)));
        Ok::<_, Error>(lines.map(|lines| (lines, rows)))
    });

    let first = stream::iter([Ok(Bytes::from(first))]);
    let body = Body::from_stream(first.chain(rest));
    let kind = (header::CONTENT_TYPE, format.content_type());
    Ok(([accept::VARIES, kind], body).into_response())
}
