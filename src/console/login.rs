//! Login and logout. A login link opens one session.

use axum::extract::{RawQuery, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use trunkline_store::Session;
use trunkline_store::sessions::{self, GoodLink};

use super::document::{document, mark};
use super::page::{ErrorPage, Html, Notice, base_of};
use super::visitor::LogOutForm;
use crate::api::credentials::presented;
use crate::api::dashboard_session::{self, LIFETIME};
use crate::api::{Api, ApiError};
use maud::{Markup, html};

/// Longest body of a form that logs in, in octets. It is read before the client is authenticated: a higher limit would let any client fill memory.
pub(super) const LONGEST_FORM: usize = 4 << 10;

/// `GET /partner-login?token`: consumes the link and opens a session in its org. If the creator of the link asked for a
/// confirmation, or another site leads a person with a session of another org to it, shows a button first. 410 for a link
/// that is used, expired or unknown.
pub(super) async fn consume(
    state: State<Api>,
    parts: Parts,
    RawQuery(query): RawQuery,
) -> Result<Response, ErrorPage> {
    let State(api) = &state;
    if !is_visit(&parts.headers) {
        return Err(ErrorPage::new(
            // A browser drops a failed prefetch, and asks again when the person opens the link.
            StatusCode::SERVICE_UNAVAILABLE,
            "Open this link in a browser",
            "The link is still good: it was fetched ahead of time, and logs you in when you open it.",
        ));
    }

    let query = query.unwrap_or_default();
    let token = token_of(&query);
    if let Some(token) = token {
        let (link, now) = (presented(token), api.now());
        // Read without consuming: the button, a POST, consumes the link.
        let link = api.read_inline(move |tx| sessions::link(tx, link, now));
        if let Some(link) = link.await? {
            let replaced = replaced(&parts, api, &link).await;
            if link.confirm || replaced.is_some() {
                let to = format!("{}/partner-login", base_of(&state));
                let page = confirmation(&to, token, &link, replaced.as_ref());
                return Ok(Html(page).into_response());
            }
        }
    }

    open(&state, token).await
}

/// Returns the session that a link would replace by one of another person or org, unless the person opened the link
/// here: another site could otherwise have somebody work in an org of its own choice without noticing (login CSRF).
async fn replaced(parts: &Parts, api: &Api, link: &GoodLink) -> Option<Session> {
    // Browsers leave it out over plain HTTP; then a session that would be replaced is asked about as well.
    let site = parts.headers.get("sec-fetch-site");
    if site.is_some_and(|site| site == "none" || site == "same-origin") {
        return None;
    }
    let session = dashboard_session::stored(parts, api).await?;
    let is_another = (session.org_id, &*session.email) != (link.org_id, &*link.email);
    is_another.then_some(session)
}

/// `POST /partner-login`: the button of the confirmation page; consumes the link.
pub(super) async fn confirm(
    state: State<Api>,
    parts: Parts,
    body: String,
) -> Result<Response, ErrorPage> {
    // There is no session yet to make a form token from. Without this check another site could log a person in to an
    // org of its own choice.
    if !dashboard_session::is_own(&parts, &state) {
        return Err(ErrorPage::new(
            StatusCode::FORBIDDEN,
            "Nothing was done",
            "Open the login link in this browser, and press the button there.",
        ));
    }
    open(&state, token_of(&body)).await
}

/// Finds the token among the pairs of a query or a form. Tokens are base64url, so nothing in one is percent-encoded.
fn token_of(pairs: &str) -> Option<&str> {
    pairs
        .split('&')
        .find_map(|pair| pair.strip_prefix("token="))
}

/// Consumes a link and redirects to the dashboard.
async fn open(state: &State<Api>, link: Option<&str>) -> Result<Response, ErrorPage> {
    let State(api) = state;
    let no_longer_good = || {
        ErrorPage::new(
            StatusCode::GONE,
            "This login link is no longer good",
            "A link works once, and for a quarter of an hour. Ask for a new one where you got this one.",
        )
    };

    // Read first: a made-up token, which needs no credential, must not take a turn of the database's writer.
    let (link, now) = (presented(link.ok_or_else(no_longer_good)?), api.now());
    let known = api.read_inline(move |tx| sessions::link(tx, link, now));
    known.await?.ok_or_else(no_longer_good)?;

    let (token, hash) = dashboard_session::new_token();
    let opened = api
        .write(move |tx, now| sessions::open(tx, link, hash, now + LIFETIME, now))
        .await?;
    let org = opened.ok_or_else(no_longer_good)?;
    let to = format!("{}/dashboard/{org}", base_of(state));
    Ok(with_cookie(
        Redirect::to(&to).into_response(),
        Some(&token),
        api,
    ))
}

/// Returns true if a person opens the link, as opposed to a prefetch or a request for a part of a page.
fn is_visit(headers: &HeaderMap) -> bool {
    let is_ahead = ["sec-purpose", "purpose", "x-moz"]
        .iter()
        .flat_map(|name| headers.get_all(*name))
        .any(|value| {
            let value = value.as_bytes().to_ascii_lowercase();
            value
                .windows(b"prefetch".len())
                .any(|part| part == b"prefetch")
        });
    let mut destinations = headers.get_all("sec-fetch-dest").iter();
    !is_ahead && destinations.all(|destination| destination == "document")
}

/// `HEAD /partner-login`: software that checks links before people open them must neither consume a link nor learn
/// anything.
pub(super) async fn look() {}

/// `GET /`: redirects to the console, for people who type the address alone.
pub(super) async fn root(state: State<Api>) -> Redirect {
    Redirect::to(&format!("{}/dashboard", base_of(&state)))
}

/// `GET /dashboard`: redirects to the session's org.
pub(super) async fn home(state: State<Api>, request: Request) -> Result<Redirect, ErrorPage> {
    let (parts, _) = request.into_parts();
    let session = dashboard_session::of(&parts, &state)
        .await?
        .ok_or_else(ErrorPage::logged_out)?;
    let to = format!("{}/dashboard/{}", base_of(&state), session.record.org_id);
    Ok(Redirect::to(&to))
}

/// `POST /dashboard/logout`: ends the session for good.
pub(super) async fn log_out(
    State(api): State<Api>,
    LogOutForm(form): LogOutForm,
) -> Result<Response, ErrorPage> {
    // The row goes, and not only the cookie: a copy of the cookie must not work any longer.
    let hash = form.visitor.session.hash;
    api.write(move |tx, now| sessions::end(tx, hash, now))
        .await?;
    api.credentials()
        .sessions
        .forget(|session| session.hash == hash);
    let page = Notice::new(
        "You are logged out",
        "This session is over. Ask for a new login link to come back.",
    );
    Ok(with_cookie(page.into_response(), None, &api))
}

fn with_cookie(mut response: Response, token: Option<&str>, api: &Api) -> Response {
    match HeaderValue::from_str(&dashboard_session::cookie(token, api)) {
        Ok(mut cookie) => {
            // `Debug` doesn't show it, and HTTP/2 keeps it out of its table of headers (RFC 7541 §7.1.3).
            cookie.set_sensitive(true);
            response.headers_mut().append(header::SET_COOKIE, cookie);
            response
        }
        Err(error) => ErrorPage::from(ApiError::Broke(Box::new(error))).into_response(),
    }
}

/// Page with the button that consumes a link, which replaces this session.
fn confirmation(to: &str, token: &str, link: &GoodLink, replaced: Option<&Session>) -> Markup {
    let body = html! {
        main.notice {
            (mark())
            h1 { "Log in to the console" }
            p { "This link works once. Press the button to use it in this browser." }
            @if let Some(session) = replaced {
                p {
                    "You are logged in as " (session.email) " in " (session.org_name) ". The button logs you in as " (link.email)
                    " instead. If another site sent you here unasked, close this page."
                }
            }
            form method="post" action=(to) {
                input type="hidden" name="token" value=(token);
                button { "Log in" }
            }
        }
    };
    document("Log in", "", &body)
}
