//! `/partner/v1/usage`: calls and answered seconds of all orgs of the partner.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use super::caller::PartnerCaller;
use crate::api::query::Query;
use crate::api::usage::UsageRequest;
use crate::api::{Api, ApiError};

/// `GET /partner/v1/usage?start_date&end_date&group_by`
pub(super) async fn show(
    State(api): State<Api>,
    caller: PartnerCaller,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    let asked = UsageRequest::read(query, &headers, api.now())?;
    let rows = api
        .read_of(caller.id(), move |tx| {
            trunkline_store::usage::of_partner(
                tx,
                caller.id(),
                asked.window,
                asked.parts,
                UsageRequest::ROWS,
            )
        })
        .await?;
    asked.answer(rows)
}
