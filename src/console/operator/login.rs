//! Log-in and log-out of the operator. A link shows a button, and the button opens a session, so that link scanners don't use the link up.

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use maud::html;

use super::super::backend::parameter;
use super::super::document::{document, mark};

use super::super::page::{ErrorPage, Html, Notice, base_of};
use super::super::visitor::FormFields;
use super::visitor::{AT, OperatorForm, cookie};
use crate::api::credentials::presented;
use crate::api::{Api, ApiError, dashboard_session};

/// `GET /operator-console/login?token`: a button that consumes the link.
pub(super) async fn show(State(api): State<Api>, RawQuery(raw): RawQuery) -> Html {
    let base = base_of(&api);
    let token = parameter(raw.as_deref(), "token");
    let body = html! {
        main.notice {
            (mark())
            h1 { "Operator's console" }
            p { "This link works once. Press the button to use it in this browser." }
            form method="post" action={ (base) (AT) "/login" } {
                input type="hidden" name="token" value=(token);
                button { "Log in" }
            }
        }
    };
    Html(document("Log in", base, &body))
}

/// `POST /operator-console/login`: opens a session; 410 for a link that was used, has expired or is unknown.
pub(super) async fn open(
    State(api): State<Api>,
    parts: Parts,
    body: Bytes,
) -> Result<Response, ErrorPage> {
    // There is no session yet to make a form token from.
    if !dashboard_session::is_own(&parts, &api) {
        return Err(ErrorPage::foreign_form());
    }

    let fields = FormFields::read(Some(&body))?;
    let link = presented(fields.text("token"));
    let (token, hash) = dashboard_session::new_token();
    let sessions = api.operator_sessions();
    if !sessions.open_by(link, hash, api.monotonic()) {
        return Err(ErrorPage::new(
            StatusCode::GONE,
            "This link is no longer good",
            "A link works once, for five minutes, and only in the daemon that made it. Run trunkline console --operator again.",
        ));
    }

    let to = format!("{}{AT}", base_of(&api));
    with_cookie(Redirect::to(&to).into_response(), Some(&token), &api)
}

/// `POST /operator-console/logout`
pub(super) async fn log_out(
    State(api): State<Api>,
    form: OperatorForm,
) -> Result<Response, ErrorPage> {
    api.operator_sessions().end(form.visitor.session.hash);
    let page = Notice::new(
        "You are logged out",
        "This session is over. Run trunkline console --operator to come back.",
    );
    with_cookie(page.into_response(), None, &api)
}

fn with_cookie(
    mut response: Response,
    token: Option<&str>,
    api: &Api,
) -> Result<Response, ErrorPage> {
    let cookie = HeaderValue::from_str(&cookie(token, api));
    let mut cookie = cookie.map_err(|error| ApiError::Broke(Box::new(error)))?;
    cookie.set_sensitive(true);
    response.headers_mut().append(header::SET_COOKIE, cookie);
    Ok(response)
}
