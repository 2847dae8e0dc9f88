//! `/phone/numbers/{number_id}/verify` and `…/verify/confirm`: an org proves that it holds a number by a code that a
//! call to the number speaks. The call takes the operator's route; the code appears in no answer, log or trace.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use trunkline_calls::Reason;
use trunkline_calls::media::verification::{SpokenCode, Verification};
use trunkline_calls::parts::target::default_port;
use trunkline_model::address::NamedBy;
use trunkline_model::view::{OutboundRoute, PeerLogin};
use trunkline_routing::E164;
use trunkline_routing::tariff::Tariff;
use trunkline_store::{CodeLimit, Kind, MadeCode, TRIES, TriedCode, number_codes};
use uuid::Uuid;

use super::OF_ORG;
use super::commands::outbound::refused;
use super::numbers::NumberView;
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{FieldType, Text};
use crate::api::idempotency::call_once;
use crate::api::openapi::{no_fields, read_by};
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::config::VerificationTrunk;

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Numbers", OF_ORG);
    of.post_once("/phone/numbers/{number_id}/verify", call_once(verify), "verifyNumber", "Calls the number and speaks a code: 202; 200 if the number is already verified", |op| {
            op.note("Three calls to a number in 24 hours. 409 `no_verification_route` where the operator has no route for such calls.")
                .may_refuse(&[403, 409])
                .body(no_fields())
                .gives::<VerificationView>(202)
                .gives::<NumberView>(200)
        });
    of.post("/phone/numbers/{number_id}/verify/confirm", confirm, "confirmNumber", "Verifies a number by the code from the call", |op| {
            op.note("A code is valid for ten minutes and five tries: 400 `wrong_code`, then 409 `no_code`.")
                .may_refuse(&[409])
                .body(read_by(code))
                .gives::<NumberView>(200)
        });
}

/// A call that speaks a code is on its way.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "NumberVerification")]
pub(crate) struct VerificationView {
    phone_number_id: Uuid,
    phone_number: E164,
    /// Expiry of the code.
    expires_at: String,
    /// Number of tries for the code.
    tries: u8,
    /// Number of further calls to this number within 24 hours.
    calls_left: u8,
}

/// Six digits. The message for a wrong value doesn't repeat them.
#[derive(Copy, Clone, Debug)]
struct Code;

impl FieldType for Code {
    type Read = [u8; 6];

    fn schema(&self) -> Value {
        json!({"type": "string", "pattern": "^[0-9]{6}$"})
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<[u8; 6]> {
        let text = Text::line(1..=255).read(value, path, faults)?;
        let digits: Option<[u8; 6]> = text.as_bytes().try_into().ok();
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_digit));
        if digits.is_none() {
            faults.push(format!("{path}: expected six digits"));
        }
        digits
    }
}

pub(super) fn code(mut fields: Fields) -> Result<[u8; 6], ApiError> {
    let code = fields.required("code", Code);
    fields.done(|| code)
}

/// `POST /phone/numbers/{number_id}/verify`: 202, and the number is called. 200 for a verified number; 403 for one that
/// the operator's prefixes don't allow, or that costs more than a line; 409 if the operator has no route or no prefixes
/// for such calls, or another org has verified the number; 429 after three calls to the number in 24 hours, and once
/// the calls of the org, of its partner or of all orgs are used up.
pub(crate) async fn verify(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    body: Body,
) -> Result<Response, ApiError> {
    let id = named.id("number_id", Kind::Number)?;
    let number = api
        .read_inline(move |tx| trunkline_store::numbers::by_id(tx, caller.org, id))
        .await?;
    body.empty()?;

    // Before the route is asked for: a verified number needs no call, and so no route.
    if number.verified_at.is_some() {
        return Ok(Json(NumberView::from(number)).into_response());
    }

    let Some(trunk) = &api.config().phone.verification_trunk else {
        return Err(no_route(number.number, "phone.verification_trunk"));
    };
    if trunk.prefixes.is_empty() {
        return Err(no_route(number.number, "phone.verification_trunk.prefixes"));
    }
    may_be_called(trunk, number.number)?;
    let Some(engine) = api.engine() else {
        return Err(refused(Reason::Draining.into()));
    };

    api.begin_once().await?;
    // Stored before the call: its count must hold even if the process dies while the number rings.
    let code = SpokenCode(drawn());
    let per_day = VerificationTrunk::CALLS_PER_DAY;
    let made = api
        .write(move |tx, now| number_codes::make(tx, caller.org, id, &code.0, per_day, now))
        .await?;

    let (made, expires_at, calls_left) = match made {
        MadeCode::TooOften { wait } => {
            let cause = format!("{} was called three times within 24 hours", number.number);
            return Err(too_often(&cause, wait));
        }
        MadeCode::OrgUsedUp { wait, limit } => {
            let cause = match limit {
                CodeLimit::Calls(calls) => {
                    format!("Your {calls} verification calls of 24 hours are used up")
                }
                CodeLimit::Numbers(numbers) => {
                    format!("{numbers} other numbers of yours were called within 24 hours")
                }
            };
            return Err(too_often(&cause, wait));
        }
        MadeCode::UsedUp { wait } => {
            return Err(too_often(
                "The verification calls of 24 hours are used up",
                wait,
            ));
        }
        MadeCode::Code {
            id,
            expires_at,
            calls_left,
        } => (id, expires_at, calls_left),
    };

    let asked = Verification {
        org: caller.org,
        number: number.number,
        code,
        way: Arc::new(way(trunk)),
    };

    // If the shard doesn't answer, it may have placed the call all the same, so the call counts.
    let begun = engine.verify(asked).await;
    let begun = begun.map_err(|fault| ApiError::Broke(Box::new(fault)))?;
    if let Err(why) = begun {
        api.write(move |tx, _| number_codes::take_back(tx, caller.org, made))
            .await?;
        return Err(refused(why));
    }

    let view = VerificationView {
        phone_number_id: id,
        phone_number: number.number,
        expires_at: written(expires_at),
        tries: TRIES,
        calls_left,
    };

    Ok((StatusCode::ACCEPTED, Json(view)).into_response())
}

/// `POST /phone/numbers/{number_id}/verify/confirm {code}`: 200 with the verified number. 400 for a wrong code; a code
/// may be tried five times. 409 if there is no code to confirm.
pub(crate) async fn confirm(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    body: Body,
) -> Result<Json<NumberView>, ApiError> {
    let id = named.id("number_id", Kind::Number)?;
    api.read_inline(move |tx| trunkline_store::numbers::by_id(tx, caller.org, id))
        .await?;

    let code = code(body.fields()?)?;
    // One transaction counts the try and compares the code: requests at once don't get more than five tries.
    match api
        .write(move |tx, now| number_codes::try_code(tx, caller.org, id, &code, now))
        .await?
    {
        TriedCode::Right(number) => Ok(Json(number.into())),
        TriedCode::Wrong { left: 0 } => Err(wrong(
            "no try is left: ask for another call with POST /phone/numbers/{number_id}/verify",
        )),
        TriedCode::Wrong { left: 1 } => Err(wrong("one try is left")),
        TriedCode::Wrong { left } => Err(wrong(&format!("{left} tries are left"))),
        TriedCode::None => {
            let message = "There is no code to confirm: none was asked for, or it is used up or older than ten minutes; \
                           POST /phone/numbers/{number_id}/verify calls the number with another";
            Err(ApiError::Conflict(message.to_owned()).with_code("no_code"))
        }
    }
}

fn wrong(left: &str) -> ApiError {
    ApiError::bad(format!("code: is wrong; {left}")).with_code("wrong_code")
}

/// Refuses numbers that the operator's prefixes don't allow, and those that cost more than a line whatever the prefixes:
/// the operator pays for the call.
fn may_be_called(trunk: &VerificationTrunk, number: E164) -> Result<(), ApiError> {
    if !trunk.allows(number) {
        return Err(refused(Reason::DestinationNotAllowed.into()));
    }
    match Tariff::of(number) {
        None => Ok(()),
        Some(tariff) => {
            let message = format!("{number} is {tariff}, which no verification call goes to");
            Err(ApiError::Forbidden(message).with_code(Reason::DestinationNotAllowed.code()))
        }
    }
}

fn no_route(number: E164, key: &str) -> ApiError {
    let message = format!(
        "No verification route is configured here ({key}), so no code can be spoken to {number}: ask your partner or the operator to \
         verify the number"
    );
    ApiError::Conflict(message).with_code("no_verification_route")
}

fn too_often(cause: &str, wait: Duration) -> ApiError {
    let message = format!("{cause}: try again later");
    let wait_s = wait.as_secs().max(1);
    ApiError::AtLimit { message, wait_s }.with_code("verification_calls_used_up")
}

/// Draws six digits, uniformly.
fn drawn() -> [u8; 6] {
    std::array::from_fn(|_| rand::random_range(b'0'..=b'9'))
}

/// Operator's route in the form that calls use.
fn way(trunk: &VerificationTrunk) -> OutboundRoute {
    let port = trunk.port.unwrap_or(default_port(trunk.transport));
    let login = trunk.login.as_ref().map(|(user, password)| PeerLogin {
        user: user.clone(),
        password: password.expose().into(),
    });

    OutboundRoute {
        org: Uuid::nil(),
        id: Uuid::nil(),
        peer: Some((trunk.host.clone(), port)),
        // So the carrier may have a private address: what the operator names isn't judged.
        named: NamedBy::Operator,
        transport: trunk.transport,
        login: login.map(Arc::new),
        realms: Arc::default(),
        caller_number: trunk.caller_number,
        from_host: None,
        p_asserted_identity: false,
        user_phone: false,
        register: false,
        max_concurrent_calls: None,
        calls_per_second: None,
        transfer_way: Default::default(),
        keeps_caller: false,
    }
}
