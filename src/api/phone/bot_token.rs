//! `/phone/bot-token`: the secret that an org shares with its bots. It signs the handshakes of their WebSockets and is the password of the
//! endpoint by which they end and transfer calls ([`bot_calls`](crate::api::bot_calls)). It is shown once.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::{BotToken, Password, bot_tokens};

use super::OF_ORG;
use crate::api::body::Body;
use crate::api::caller::Caller;
use crate::api::idempotency::once;
use crate::api::openapi::no_fields;
use crate::api::operations::Operations;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError, Success};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Bot token", OF_ORG);
    of.get(
        "/phone/bot-token",
        show,
        "showBotToken",
        "The token of the org's bots, without its secret",
        |op| op.may_refuse(&[404]).gives::<BotTokenView>(200),
    );

    of.post_once("/phone/bot-token", once(create), "createBotToken", "Makes the org's first bot token, or the next one; it is shown once", |op| {
        op.note("The first one signs the handshakes of WebSockets at once. The next one is accepted by the endpoint for bots at once, and signs once it is promoted.")
            .makes::<NewBotTokenView>(no_fields())
    });

    of.post("/phone/bot-token/promote", promote, "promoteBotToken", "Has the next token sign; the endpoint for bots accepts the one before for another 24 hours", |op| {
            op.may_refuse(&[404, 409])
                .body(no_fields())
                .gives::<BotTokenView>(200)
        });
    of.delete(
        "/phone/bot-token",
        delete,
        "deleteBotToken",
        "Deletes all bot tokens of the org: they stop working at once",
        |op| op.may_refuse(&[404]).deletes(),
    );
}

/// Tokens of an org's bots, as the API shows them.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "BotToken")]
pub(crate) struct BotTokenView {
    /// User name of the endpoint for bots, and the account that bots get at the start of a call.
    pub(crate) account_sid: String,
    /// Time at which the token that signs was made.
    pub(crate) created_at: String,
    /// Time at which the next token was made. The endpoint accepts it already; it signs once it is promoted.
    pub(crate) next_created_at: Option<String>,
    /// Time until which the endpoint accepts the token that signed before.
    pub(crate) old_expires_at: Option<String>,
}

/// A new token, the one time that it is shown.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NewBotToken")]
pub(crate) struct NewBotTokenView {
    #[serde(flatten)]
    token: BotTokenView,
    /// The secret: 32 hexadecimal digits.
    pub(crate) auth_token: String,
}

impl From<BotToken> for BotTokenView {
    fn from(token: BotToken) -> Self {
        Self {
            account_sid: format!("AC{}", token.org_id.simple()),
            created_at: written(token.created_at),
            next_created_at: token.next.map(|(_, at)| written(at)),
            old_expires_at: token.old.map(|(_, until)| written(until)),
        }
    }
}

/// `GET /phone/bot-token`: 404 if the org has none.
pub(super) async fn show(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
) -> Result<Json<BotTokenView>, ApiError> {
    let org = caller.org;
    let token = api
        .read_inline(move |tx| bot_tokens::of_org(tx, org))
        .await?;
    query.finish()?;
    Ok(Json(token.into()))
}

/// `POST /phone/bot-token`: 201 with the org's first token, which signs at once, or with the next one.
pub(super) async fn create(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<(StatusCode, Json<NewBotTokenView>), ApiError> {
    body.empty()?;
    let auth_token = new_token();
    let secret = Password::new(auth_token.clone());
    let token = api
        .write(move |tx, now| bot_tokens::create(tx, caller.org, &secret, now))
        .await?;
    let view = NewBotTokenView {
        token: token.into(),
        auth_token,
    };
    Ok((StatusCode::CREATED, Json(view)))
}

/// `POST /phone/bot-token/promote`: the next token signs from now on; the endpoint accepts the token before it for another 24 hours. 409
/// without a next token.
pub(super) async fn promote(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<Json<BotTokenView>, ApiError> {
    body.empty()?;
    let token = api.write(move |tx, now| bot_tokens::promote(tx, caller.org, now));
    Ok(Json(token.await?.into()))
}

/// `DELETE /phone/bot-token`: all tokens stop working at once, and handshakes aren't signed any more.
pub(super) async fn delete(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    query.finish()?;
    api.write(move |tx, now| bot_tokens::delete(tx, caller.org, now))
        .await?;
    Ok(Json(Success::DONE))
}

/// Makes a token: 128 random bits, in the form that bots' libraries expect.
fn new_token() -> String {
    format!("{:032x}", rand::random::<u128>())
}
