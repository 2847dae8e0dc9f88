//! `/partner/v1/orgs/{orgId}/phone-numbers`: numbers of a partner's org. A partner with the operator's permission
//! verifies them.

use axum::Json;
use axum::extract::State;
use trunkline_store::{Kind, numbers};
use uuid::Uuid;

use super::TAG;
use super::caller::PartnerCaller;
use crate::api::body::Body;
use crate::api::openapi::no_fields;
use crate::api::operations::{Audience, Operations};
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::phone::{NumberView, lists_numbers};
use crate::api::query::Query;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area(TAG, Audience::Partner);
    of.get(
        "/partner/v1/orgs/{orgId}/phone-numbers",
        list,
        "listOrgNumbers",
        "The org's phone numbers, newest first",
        lists_numbers,
    );

    of.post(
        "/partner/v1/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify",
        verify,
        "verifyOrgNumber",
        "Verifies a number, if the operator allows the partner to",
        |op| {
            op.may_refuse(&[404, 409])
                .body(no_fields())
                .gives::<NumberView>(200)
        },
    );
}

/// `GET /partner/v1/orgs/{orgId}/phone-numbers?verified&phone_number&limit&cursor`: numbers, newest first.
pub(super) async fn list(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    query: Query,
) -> Result<Page<NumberView>, ApiError> {
    let org = caller.owned(&api, &named).await?.id;
    page_of(&api, org, query).await
}

/// Returns the page of an org's numbers that a request asks for.
///
/// # Errors
/// 400 for a wrong parameter.
pub(in crate::api) async fn page_of(
    api: &Api,
    org: Uuid,
    mut query: Query,
) -> Result<Page<NumberView>, ApiError> {
    let narrow = [query.switch("verified"), query.number("phone_number")];
    let paging = Paging::read(&mut query, "numbers", narrow);
    query.finish()?;
    paging
        .find(api.store(), org, numbers::page, NumberView::from)
        .await
}

/// `POST /partner/v1/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify`: 403 unless the operator gave the partner
/// permission, 409 for a number that is verified in another org. Idempotent.
pub(super) async fn verify(
    State(api): State<Api>,
    caller: PartnerCaller,
    named: Named,
    body: Body,
) -> Result<Json<NumberView>, ApiError> {
    let org = caller.owned(&api, &named).await?.id;
    caller.may_verify_numbers()?;
    let id = named.id("phoneNumberId", Kind::Number)?;
    // An unknown number is 404, whatever the body.
    api.read_inline(move |tx| numbers::by_id(tx, org, id))
        .await?;
    body.empty()?;
    let verified = api
        .write(move |tx, now| numbers::verify(tx, org, id, now))
        .await?;
    Ok(Json(verified.into()))
}
