//! `/partner/v1/orgs/{orgId}/phone-numbers`: numbers of an org, which the operator verifies without a call, and a partner with the operator's
//! permission too.

use axum::Json;
use axum::extract::State;
use trunkline_sip::moment::Moment;
use trunkline_store::{Error, Kind, Number, Tx, numbers};
use uuid::Uuid;

use crate::api::body::Body;
use crate::api::caller::Provisioner;
use crate::api::openapi::no_fields;
use crate::api::operations::{Audience, Operations};
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::phone::{NumberView, lists_numbers};
use crate::api::query::Query;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let mut of = api.provisioning(by);
    of.get(
        "/orgs/{orgId}/phone-numbers",
        list,
        "listOrgNumbers",
        "The org's phone numbers, newest first",
        lists_numbers,
    );

    of.post(
        "/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify",
        verify,
        "verifyOrgNumber",
        "Verifies a number, if the operator allows the partner to",
        |op| {
            op.may_refuse(&[404, 409])
                .body(no_fields())
                .gives::<NumberView>(200)
        },
    );

    of.post(
        "/orgs/{orgId}/phone-numbers/{phoneNumberId}/unverify",
        unverify,
        "unverifyOrgNumber",
        "Ends the verification of a number, and its assignment, if the operator allows the partner to",
        |op| {
            op.may_refuse(&[404])
                .body(no_fields())
                .gives::<NumberView>(200)
        },
    );
}

/// `GET /partner/v1/orgs/{orgId}/phone-numbers?verified&phone_number&limit&cursor`: numbers, newest first.
pub(super) async fn list(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    mut query: Query,
) -> Result<Page<NumberView>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
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
    caller: Provisioner,
    named: Named,
    body: Body,
) -> Result<Json<NumberView>, ApiError> {
    change(&api, &caller, &named, body, numbers::verify).await
}

/// `POST /partner/v1/orgs/{orgId}/phone-numbers/{phoneNumberId}/unverify`: ends the number's assignment too. Idempotent.
pub(super) async fn unverify(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    body: Body,
) -> Result<Json<NumberView>, ApiError> {
    change(&api, &caller, &named, body, numbers::unverify).await
}

async fn change(
    api: &Api,
    caller: &Provisioner,
    named: &Named,
    body: Body,
    work: fn(&mut Tx, Uuid, Uuid, Moment) -> Result<Number, Error>,
) -> Result<Json<NumberView>, ApiError> {
    let org = caller.org(api, named).await?.id;
    caller.may_verify_numbers()?;
    let id = named.id("phoneNumberId", Kind::Number)?;
    // An unknown number is 404, whatever the body.
    api.read_inline(move |tx| numbers::by_id(tx, org, id))
        .await?;
    body.empty()?;
    let changed = api.write(move |tx, now| work(tx, org, id, now));
    Ok(Json(changed.await?.into()))
}
