//! `/phone/numbers`: the org's phone numbers.
//!
//! A number is unverified until the operator, the partner or a spoken code (`verification`) verifies it; with
//! `phone.auto_verify_numbers` it is verified at once. It can be verified in one org only. Routing, trunks and
//! assignments use verified numbers only.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use trunkline_routing::E164;
use trunkline_store::{Kind, Number, numbers};
use uuid::Uuid;

use super::OF_ORG;
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::NUMBER;
use crate::api::idempotency::once;
use crate::api::openapi::{Operation, read_by};
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError, Success};

/// Describes a list of numbers with its filters; the org's list and the partner's are alike.
pub(crate) fn lists_numbers(op: Operation<'_>) -> Operation<'_> {
    op.query(
        "verified",
        json!({"type": "boolean"}),
        "Only numbers that are verified, or that are not.",
    )
    .query(
        "phone_number",
        json!({"type": "string", "pattern": E164::PATTERN}),
        "Only this number.",
    )
    .lists::<NumberView>()
}

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Numbers", OF_ORG);
    of.get(
        "/phone/numbers",
        list,
        "listNumbers",
        "The org's numbers, verified or not, newest first",
        lists_numbers,
    );

    of.post_once(
        "/phone/numbers",
        once(create),
        "createNumber",
        "Adds a number, unverified until the operator, the partner or a spoken code verifies it",
        |op| op.makes::<NumberView>(read_by(named)),
    );
    of.get(
        "/phone/numbers/{number_id}",
        one,
        "showNumber",
        "A phone number of the org",
        |op| op.gives::<NumberView>(200),
    );

    of.delete(
        "/phone/numbers/{number_id}",
        delete,
        "deleteNumber",
        "Deletes a number and ends its assignment",
        |op| op.deletes(),
    );
}

/// A phone number as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Number")]
pub(crate) struct NumberView {
    pub(crate) id: Uuid,
    pub(crate) phone_number: E164,
    pub(crate) verified: bool,
    pub(crate) verified_at: Option<String>,
    /// The agent that answers it.
    pub(crate) agent_id: Option<Uuid>,
    created_at: String,
}

impl From<Number> for NumberView {
    fn from(number: Number) -> Self {
        Self {
            id: number.id,
            phone_number: number.number,
            verified: number.verified_at.is_some(),
            verified_at: number.verified_at.map(written),
            agent_id: number.agent_id,
            created_at: written(number.created_at),
        }
    }
}

/// `POST /phone/numbers {phone_number}`: 201; 409 if the org has it already, or if it would be verified here but is
/// verified in another org.
pub(crate) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Json<NumberView>), ApiError> {
    let number = named(body.fields()?)?;
    let verified = api.config().phone.auto_verify_numbers;
    let made = api
        .write(move |tx, now| numbers::create(tx, caller.org, number, verified, now))
        .await?;
    Ok((StatusCode::CREATED, Json(made.into())))
}

pub(super) fn named(mut fields: Fields) -> Result<E164, ApiError> {
    let number = fields.required("phone_number", NUMBER);
    fields.done(|| number)
}

/// `GET /phone/numbers?limit&cursor`: the org's numbers, verified or not, newest first.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<NumberView>, ApiError> {
    let narrow = [query.switch("verified"), query.number("phone_number")];
    let paging = Paging::read(&mut query, "numbers", narrow);
    query.finish()?;
    paging
        .find(api.store(), caller.org, numbers::page, NumberView::from)
        .await
}

/// `GET /phone/numbers/{number_id}`
pub(crate) async fn one(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<NumberView>, ApiError> {
    let id = named.id("number_id", Kind::Number)?;
    let number = api
        .read_inline(move |tx| numbers::by_id(tx, caller.org, id))
        .await?;
    query.finish()?;
    Ok(Json(number.into()))
}

/// `DELETE /phone/numbers/{number_id}`: deletes the number and its assignment. A trunk lists it until the next sync,
/// without effect.
pub(crate) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let id = named.id("number_id", Kind::Number)?;
    api.read_inline(move |tx| numbers::by_id(tx, caller.org, id))
        .await?;
    query.finish()?;
    api.write(move |tx, now| numbers::delete(tx, caller.org, id, now))
        .await?;
    Ok(Json(Success::DONE))
}
