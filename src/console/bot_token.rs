//! Card of the token that the org shares with its bots: made, shown once, rotated and deleted.

use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::document::{copied, time};
use super::form_page::revealed;
use super::forms::{button, danger};
use super::frame::Section;
use super::page::ErrorPage;
use super::visitor::{SubmittedForm, Visitor};
use crate::api::phone::{BotTokenView, NewBotTokenView};

/// The API's path of the token.
const BOT_TOKEN: &str = "/phone/bot-token";
/// Page that has the card.
const PAGE: &str = "keys?done=done";

/// The card, on the page of keys.
pub(super) async fn card(visitor: &Visitor) -> Result<Markup, ErrorPage> {
    let token = match visitor.client.get(BOT_TOKEN).await {
        Ok(token) => Some(token),
        Err(refused) if refused.status == StatusCode::NOT_FOUND => None,
        Err(refused) => return Err(refused.into()),
    };

    let content = html! {
        p.soft { "Signs the handshake of each WebSocket to a bot, and is the password by which bots end and transfer their calls." }
        @match &token {
            None => {
                p.empty { "There is none yet: handshakes aren't signed." }
                (button(visitor, "keys/bot-token", "Make a bot token"))
            }
            Some(token) => (made(visitor, token)),
        }
    };
    Ok(super::document::card("bot-token", "Bot token", &content))
}

/// Content of the card of an org that has a token. The next one is made first, given to the bots, and then signs.
fn made(visitor: &Visitor, token: &BotTokenView) -> Markup {
    html! {
        dl {
            dt { "Account" } dd { (copied("bot-account", &token.account_sid)) }
            dt { "Signs since" } dd { (time(&token.created_at)) }
            @if let Some(at) = &token.next_created_at { dt { "Next one made" } dd { (time(at)) } }
            @if let Some(until) = &token.old_expires_at { dt { "Old one good until" } dd { (time(until)) } }
        }
        @if token.next_created_at.is_none() {
            (button(visitor, "keys/bot-token", "Make the next token"))
        } @else {
            (button(visitor, "keys/bot-token/promote", "Let the next token sign"))
        }
        (danger(visitor, "keys/bot-token/delete", "Delete", "Handshakes aren't signed any more, and bots can't end or transfer calls."))
    }
}

/// `POST /dashboard/{org_id}/keys/bot-token`: makes the first token, or the next one, and shows it in this answer only.
pub(super) async fn create(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    let made: NewBotTokenView = visitor.client.post(BOT_TOKEN, &json!({})).await?;
    let next = visitor.path("keys");
    let page = revealed(
        visitor,
        Section::Keys,
        "Bot token",
        &made.auth_token,
        "The bot token.",
        &next,
    );
    Ok(page.into_response())
}

/// `POST /dashboard/{org_id}/keys/bot-token/promote`
pub(super) async fn promote(form: SubmittedForm) -> Result<Redirect, ErrorPage> {
    let path = format!("{BOT_TOKEN}/promote");
    command(&form, Method::POST, &path, Some(&json!({}))).await
}

/// `POST /dashboard/{org_id}/keys/bot-token/delete`
pub(super) async fn delete(form: SubmittedForm) -> Result<Redirect, ErrorPage> {
    command(&form, Method::DELETE, BOT_TOKEN, None).await
}

async fn command(
    form: &SubmittedForm,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<Redirect, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;
    visitor.client.send(method, path, body).await?;
    Ok(Redirect::to(&visitor.path(PAGE)))
}
