//! `/partner/v1/orgs/{orgId}/phone-numbers`: numbers of a partner's org. A partner whom the operator trusts with it verifies them.

use axum::Json;
use axum::extract::State;
use trunkline_store::Kind;

use super::caller::PartnerCaller;
use crate::api::body::Body;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::phone::NumberView;
use crate::api::query::Query;
use crate::api::{Api, ApiError};

/// `GET /partner/v1/orgs/{orgId}/phone-numbers?limit&cursor`: verified or not, newest first.
pub(super) async fn list(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    mut query: Query,
) -> Result<Page<NumberView>, ApiError> {
    let org = caller.owned(&api, &named).await?.id;
    let narrow = [query.switch("verified"), query.number("phone_number")];
    let paging = Paging::read(&mut query, "numbers", narrow);
    query.finish()?;
    let numbers = api.store().numbers();
    let page = numbers
        .page(org, &paging.filters, paging.after, paging.limit)
        .await?;
    Ok(paging.page(page, NumberView::from))
}

/// `POST /partner/v1/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify`: 403 unless the operator gave the partner that right, 409 for
/// a number that is verified in another org. Again changes nothing.
pub(super) async fn verify(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    body: Body,
) -> Result<Json<NumberView>, ApiError> {
    let org = caller.owned(&api, &named).await?.id;
    caller.may_verify_numbers()?;
    let id = named.id("phoneNumberId", Kind::Number)?;
    let numbers = api.store().numbers();
    numbers.by_id(org, id).await?;
    body.empty()?;
    let verified = numbers.verify(org, id, api.now()).await?;
    Ok(Json(verified.into()))
}
