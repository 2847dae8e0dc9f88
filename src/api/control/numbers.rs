//! `/operator/orgs/{orgId}/phone-numbers`: numbers of an org, which the operator verifies without a call.

use axum::Json;
use axum::extract::State;
use trunkline_sip::moment::Moment;
use trunkline_store::{Error, Kind, Number, Tx, numbers};
use uuid::Uuid;

use super::named_org::org_in;
use crate::api::body::Body;
use crate::api::operations::{Audience, Operations};
use crate::api::operator::Operator;
use crate::api::page::Page;
use crate::api::partner::page_of_numbers;
use crate::api::path::Named;
use crate::api::phone::{NumberView, lists_numbers};
use crate::api::query::Query;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/operator/orgs/{orgId}/phone-numbers",
        list,
        "listOperatorsNumbers",
        "The org's numbers, newest first",
        lists_numbers,
    );

    of.post(
        "/operator/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify",
        verify,
        "verifyOperatorsNumber",
        "Marks a number as verified, on the operator's word; no call is placed",
        |op| op.gives::<NumberView>(200),
    );

    of.post(
        "/operator/orgs/{orgId}/phone-numbers/{phoneNumberId}/unverify",
        unverify,
        "unverifyNumber",
        "Ends the verification, and the number's assignment",
        |op| op.gives::<NumberView>(200),
    );
}

/// `GET /operator/orgs/{orgId}/phone-numbers?verified&phone_number&limit&cursor`
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Page<NumberView>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    page_of_numbers(&api, org, query).await
}

/// `POST /operator/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify`: 409 for a number that is verified in another org.
pub(super) async fn verify(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<Json<NumberView>, ApiError> {
    change(&api, &named, body, numbers::verify).await
}

/// `POST /operator/orgs/{orgId}/phone-numbers/{phoneNumberId}/unverify`: ends the number's assignment too.
pub(super) async fn unverify(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<Json<NumberView>, ApiError> {
    change(&api, &named, body, numbers::unverify).await
}

async fn change(
    api: &Api,
    named: &Named,
    body: Body,
    work: fn(&mut Tx, Uuid, Uuid, Moment) -> Result<Number, Error>,
) -> Result<Json<NumberView>, ApiError> {
    let org = org_in(api, named).await?.id;
    let id = named.id("phoneNumberId", Kind::Number)?;
    body.empty()?;
    let changed = api.write(move |tx, now| work(tx, org, id, now));
    Ok(Json(changed.await?.into()))
}
