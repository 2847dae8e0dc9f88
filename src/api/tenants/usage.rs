//! `/partner/v1/usage`: calls and answered seconds of all orgs of the partner.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;

use crate::api::caller::PartnerCaller;
use crate::api::operations::{Audience, Operations};
use crate::api::query::Query;
use crate::api::usage::UsageRequest;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let by = Audience::Partner;
    let mut of = api.provisioning(by);
    of.get(
        "/usage",
        show,
        "showPartnerUsage",
        "Calls and answered seconds of the partner's orgs; as JSON, or by `Accept` as CSV",
        crate::api::usage::describe,
    );
}

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
