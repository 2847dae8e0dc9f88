//! `POST /2010-04-01/Accounts/{account_sid}/Calls/{call_sid}.json`: the endpoint by which bots that speak Twilio's format end and transfer their
//! calls. User name and password are the account of the bot's `start` and the org's token. Answers and errors have Twilio's form, as the bots'
//! libraries expect.

mod twiml;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequestParts, State};
use axum::http::header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use subtle::ConstantTimeEq as _;
use trunkline_calls::ANONYMOUS_USER;
use trunkline_calls::features::transfer::{DestinationChoice, TransferRequest};
use trunkline_model::destinations::Destination;
use trunkline_model::handoff::Report;
use trunkline_model::record::Direction;
use trunkline_model::settings::TransferTarget;
use trunkline_store::{Acting, Actor, ActorKind, Call, calls};
use uuid::Uuid;

use super::body::is_late;
use super::connection_limiter::Proof;
use super::path::Named;
use super::phone::{RemoteCommand, from_memory};
use super::quota::{Policy, Tally};
use super::routes::Routes;
use super::{Api, ApiError};
use twiml::{Instruction, NoTwiml};

/// The route. The call's SID may end in `.json`, as Twilio's libraries write it.
const PATH: &str = "/2010-04-01/Accounts/{account_sid}/Calls/{call_sid}";

pub(super) fn router() -> Routes {
    Routes::new().route(PATH, post(update))
}

/// Error in Twilio's form.
#[derive(Debug)]
struct BotError {
    status: StatusCode,
    /// Twilio's number of the error.
    code: u32,
    message: String,
    retry_after: Option<u64>,
}

impl BotError {
    fn new(status: StatusCode, code: u32, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            retry_after: None,
        }
    }

    fn unauthenticated() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, 20003, "Authenticate")
    }

    fn not_found(call_sid: &str) -> Self {
        let message = format!("The requested resource /Calls/{call_sid}.json was not found");
        Self::new(StatusCode::NOT_FOUND, 20404, message)
    }

    /// Error of a command other than ending the call, while the call's org is suspended.
    fn suspended() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            20005,
            "The account is suspended: its calls can only be ended",
        )
    }

    fn bad(code: u32, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }
}

impl From<ApiError> for BotError {
    fn from(error: ApiError) -> Self {
        let status = error.status();
        let code = match status {
            StatusCode::NOT_FOUND => 20404,
            StatusCode::TOO_MANY_REQUESTS => 20429,
            // The call can't be changed in its state.
            StatusCode::CONFLICT => 21220,
            StatusCode::BAD_REQUEST
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::PAYLOAD_TOO_LARGE => 20001,
            _ => 20500,
        };

        let message = match status {
            StatusCode::INTERNAL_SERVER_ERROR => "Internal server error".to_owned(),
            _ => error.to_string(),
        };

        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(%error, "a bot's request failed");
        }

        Self {
            retry_after: wait_s(&error),
            ..Self::new(status, code, message)
        }
    }
}

impl From<BytesRejection> for BotError {
    fn from(rejection: BytesRejection) -> Self {
        let error = match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => ApiError::TooLarge,
            _ if is_late(&rejection) => ApiError::Late,
            _ => ApiError::bad("The body did not arrive whole"),
        };
        error.into()
    }
}

/// Returns the seconds until a retry may succeed.
#[expect(clippy::wildcard_enum_match_arm, reason = "all the others say none")]
fn wait_s(error: &ApiError) -> Option<u64> {
    match error {
        ApiError::TooMany { wait_s, .. }
        | ApiError::AtLimit { wait_s, .. }
        | ApiError::Unavailable { wait_s, .. } => Some(*wait_s),
        ApiError::Coded { of, .. } => self::wait_s(of),
        _ => None,
    }
}

impl IntoResponse for BotError {
    fn into_response(self) -> Response {
        let body = json!({
            "code": self.code,
            "message": self.message,
            "more_info": format!("https://www.twilio.com/docs/errors/{}", self.code),
            "status": self.status.as_u16(),
        });
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            let realm = HeaderValue::from_static("Basic realm=\"bots\"");
            headers.insert(WWW_AUTHENTICATE, realm);
        }

        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }

        response
    }
}

/// Authenticated bot: the account of the path, by one of its org's tokens.
#[derive(Debug)]
struct BotCaller {
    org: Uuid,
}

impl FromRequestParts<Api> for BotCaller {
    type Rejection = BotError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, BotError> {
        let Ok(named) = Named::from_request_parts(parts, api).await;
        let account = named.text("account_sid").unwrap_or_default();
        let (user, password) = basic(parts).ok_or_else(BotError::unauthenticated)?;
        let org = sid("AC", account).filter(|_| user == account);
        // An unknown account gets the answer of a wrong token, so that accounts can't be found out.
        let org = org.ok_or_else(BotError::unauthenticated)?;

        let view = api.directory().load();
        let tokens = view.org(org).and_then(|org| org.bot_token.as_ref());
        let is_one = |token: &str| bool::from(token.as_bytes().ct_eq(password.as_bytes()));
        if !tokens.is_some_and(|tokens| tokens.opening(api.now()).any(is_one)) {
            return Err(BotError::unauthenticated());
        }

        Proof::note(parts);
        let limit = api.config().limits.requests_per_minute;
        // A limit of its own: every bot comes here at the end of its call, and must not use up that of the org's
        // programs.
        let taken = api.quotas().take(Policy::Bots, org, limit, api.monotonic());
        Tally::of(parts).note(taken)?;

        let actor = Actor {
            kind: ActorKind::SessionToken,
            id: None,
            name: "bot token".to_owned(),
        };
        Acting::by(actor, Some(org), None);
        Ok(Self { org })
    }
}

/// User name and password of `Authorization: Basic` (RFC 7617).
fn basic(parts: &Parts) -> Option<(String, String)> {
    let value = parts.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }

    let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// Returns the id in a SID: a prefix such as `CA` and 32 hexadecimal digits.
fn sid(prefix: &str, text: &str) -> Option<Uuid> {
    let digits = text
        .strip_prefix(prefix)
        .filter(|digits| digits.len() == 32)?;
    Uuid::try_parse(digits).ok()
}

/// Fields of the form that this endpoint reads.
#[derive(Debug, Default)]
struct Form {
    status: Option<String>,
    twiml: Option<String>,
    url: Option<String>,
}

impl Form {
    fn read(body: &[u8]) -> Option<Self> {
        let pairs: Vec<(String, String)> = serde_urlencoded::from_bytes(body).ok()?;
        let mut form = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "Status" => form.status = Some(value),
                "Twiml" => form.twiml = Some(value),
                "Url" => form.url = Some(value),
                // Callbacks and methods that Twilio's libraries send along.
                _ => {}
            }
        }
        Some(form)
    }

    fn instruction(&self) -> Result<Instruction, BotError> {
        if self.url.is_some() {
            return Err(BotError::bad(21205, "Url is not supported: send Twiml"));
        }

        match (self.status.as_deref(), self.twiml.as_deref()) {
            (Some("completed" | "canceled"), None) => Ok(Instruction::HangUp),
            (Some(_), None) => Err(BotError::bad(21218, "Status can be completed or canceled")),
            (None, Some(twiml)) => twiml::read(twiml).map_err(|fault| {
                let code = match fault {
                    NoTwiml::Malformed => 12100,
                    NoTwiml::Verb(_) => 12200,
                };
                BotError::bad(code, fault.to_string())
            }),
            (Some(_), Some(_)) => Err(BotError::bad(21222, "Send either Status or Twiml")),
            (None, None) => Err(BotError::bad(21222, "Status or Twiml is required")),
        }
    }
}

/// Ends or transfers a call: 200 with the call, 404 for a call that is over or another org's.
async fn update(
    State(api): State<Api>,
    caller: BotCaller,
    named: Named,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, BotError> {
    let body = body?;
    let text = named.text("call_sid").unwrap_or_default();
    let call_sid = text.strip_suffix(".json").unwrap_or(text);
    let session = sid("CA", call_sid).ok_or_else(|| BotError::not_found(call_sid))?;

    let form = Form::read(&body);
    let form = form.ok_or_else(|| BotError::bad(20001, "The body is no form"))?;
    let instruction = form.instruction()?;

    let is_end = matches!(instruction, Instruction::HangUp);
    // A suspended org's calls go on and can be ended, but nothing new is called for it.
    if !is_end && is_suspended(&api, caller.org) {
        return Err(BotError::suspended());
    }

    let call = find(&api, caller.org, session).await?;
    let call = call.filter(|call| call.ended_at.is_none() && may_have_bot(&api, call));
    let call = call.ok_or_else(|| BotError::not_found(call_sid))?;
    Acting::about(call.id);

    let from = match call.caller_withheld == Some(true) {
        true => ANONYMOUS_USER.to_owned(),
        false => call.from_number.clone(),
    };

    let (direction, to) = (call.direction, call.to_number.clone());

    let (command, status) = match instruction {
        Instruction::HangUp => (RemoteCommand::HangUpByBot, "completed"),
        Instruction::Transfer(target) => {
            let chosen = chosen(&api, &call, &target)?;
            let report = Report::default();
            let ask = TransferRequest { chosen, report };
            (RemoteCommand::Transfer { ask, by_bot: true }, "in-progress")
        }
    };

    match command.run(&api, call).await {
        Ok(_) => {}
        Err(error) if error.status() == StatusCode::NOT_FOUND => {
            return Err(BotError::not_found(call_sid));
        }
        // The call has ended meanwhile.
        Err(error) if is_end && error.status() == StatusCode::CONFLICT => {
            return Err(BotError::not_found(call_sid));
        }
        Err(error) => return Err(error.into()),
    }

    let account_sid = format!("AC{}", caller.org.simple());
    Ok(Json(json!({
        "sid": call_sid,
        "uri": format!("/2010-04-01/Accounts/{account_sid}/Calls/{call_sid}.json"),
        "account_sid": account_sid,
        "status": status,
        "direction": match direction {
            Direction::Inbound => "inbound",
            Direction::Outbound => "outbound-api",
        },
        "from": from,
        "to": to,
    }))
    .into_response())
}

/// Returns the call of a session in its current state.
async fn find(api: &Api, org: Uuid, session: Uuid) -> Result<Option<Call>, BotError> {
    // Memory before the store, whose row may still say that the call is up.
    if let Some(live) = api.live().of_session(org, session) {
        return Ok((!live.is_over()).then(|| from_memory(live)));
    }
    let stored = api.read_inline(move |tx| calls::of_session(tx, org, session));
    match stored.await {
        Ok((call, _)) => Ok(Some(call)),
        Err(trunkline_store::Error::Wrong(_)) => Ok(None),
        Err(error) => Err(ApiError::from(error).into()),
    }
}

fn is_suspended(api: &Api, org: Uuid) -> bool {
    let view = api.directory().load();
    view.org(org).is_some_and(|org| org.suspended)
}

/// Returns false for a call of this node without a bot: the org's token can't control it. What was dialled counts, not the agent's present
/// runtime. A call of another node is judged by that node.
fn may_have_bot(api: &Api, call: &Call) -> bool {
    let live = api.live().one(call.org_id, call.id);
    live.is_none_or(|live| live.has_bot)
}

/// Finds the destination of the call's agent by number, URI or name. A call can't be transferred to any other target.
fn chosen(api: &Api, call: &Call, to: &str) -> Result<DestinationChoice, BotError> {
    let view = api.directory().load();
    let org = view.org(call.org_id);
    let destinations = org
        .zip(call.agent_id)
        .and_then(|(org, agent)| org.destinations.get(&agent));
    let is_meant = |destination: &&Destination| {
        let by_address = match &destination.target {
            TransferTarget::Phone(number) => number.as_str() == to,
            TransferTarget::Sip(uri) => **uri == *to,
        };
        by_address || destination.name.eq_ignore_ascii_case(to)
    };

    let found = destinations
        .into_iter()
        .flat_map(|own| own.iter())
        .find(is_meant);

    found
        // By its name: the agent's handoff number is a destination too, and has no id.
        .map(|destination| DestinationChoice::Name(destination.name.clone()))
        .ok_or_else(|| {
            BotError::bad(
                13224,
                format!("{to:?} is no destination of the call's agent"),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_says_what_to_do() {
        for (case, body, expected) in [
            ("the end", "Status=completed", Ok(Instruction::HangUp)),
            (
                "with callbacks",
                "Status=completed&StatusCallback=x",
                Ok(Instruction::HangUp),
            ),
            (
                "a transfer",
                "Twiml=%3CResponse%3E%3CDial%3E%2B442071838750%3C%2FDial%3E%3C%2FResponse%3E",
                Ok(Instruction::Transfer("+442071838750".into())),
            ),
            ("a URL", "Url=https%3A%2F%2Fa", Err((400, 21205))),
            ("another status", "Status=ringing", Err((400, 21218))),
            ("nothing", "", Err((400, 21222))),
            ("both", "Status=completed&Twiml=x", Err((400, 21222))),
            ("no XML", "Twiml=x", Err((400, 12100))),
            (
                "another verb",
                "Twiml=%3CResponse%3E%3CSay%3Ex%3C%2FSay%3E%3C%2FResponse%3E",
                Err((400, 12200)),
            ),
        ] {
            let read = Form::read(body.as_bytes()).expect(case).instruction();
            let read = read.map_err(|error| (error.status.as_u16(), error.code));
            assert_eq!(read, expected, "{case}");
        }
    }

    #[test]
    fn a_sid_is_its_prefix_and_an_id() {
        let id = Uuid::from_u128(7);
        assert_eq!(sid("CA", &format!("CA{}", id.simple())), Some(id));
        for text in [
            "",
            "CA",
            "CA7",
            "AC00000000000000000000000000000007",
            "CA0000000-0000000000000000000000007",
        ] {
            assert_eq!(sid("CA", text), None, "{text}");
        }
    }
}
