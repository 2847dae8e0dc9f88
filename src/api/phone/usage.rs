//! `/phone/usage`: the org's calls and answered seconds.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::OF_CALLS;
use crate::api::caller::Caller;
use crate::api::operations::Operations;
use crate::api::query::Query;
use crate::api::usage::UsageRequest;
use crate::api::{Api, ApiError};

/// Declares the usage of the org, at the top and below `/phone` for clients from before.
pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    for (path, id) in [("/usage", "showUsage"), ("/phone/usage", "showPhoneUsage")] {
        let title = "The org's calls and answered seconds; as JSON, or by `Accept` as CSV";
        of.get(path, show, id, title, crate::api::usage::describe);
    }
}

/// `GET /phone/usage?start_date&end_date&group_by`
pub(crate) async fn show(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    let asked = UsageRequest::read(query, &headers, api.now())?;
    let rows = api
        .read_of(caller.org, move |tx| {
            trunkline_store::usage::of_org(
                tx,
                caller.org,
                asked.window,
                asked.parts,
                UsageRequest::ROWS,
            )
        })
        .await?;
    asked.answer(rows)
}
