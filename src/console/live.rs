//! Page of the calls that are up, with its stream of changed parts, and the commands to calls.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, Method};
use axum::response::sse;
use axum::response::{IntoResponse as _, Redirect, Response};
use futures_util::stream::unfold;
use maud::{Markup, PreEscaped, html};
use serde_json::{Value, json};
use tokio::sync::watch;
use trunkline_sip::moment::Moment;

use super::backend::parameter;
use super::board::{Board, Boards, Part, Place, rendered};
use super::figures::Window;
use super::form_page::{refusal, shown_status};
use super::forms::token;
use super::frame::{Section, headed};
use super::page::{ErrorPage, Html};
use super::stream::{self, Shown};
use super::visitor::{SubmittedForm, Visitor};
use crate::api::{Api, dashboard_session};

/// Interval at which figures are counted again and the session is checked.
const FIGURES_INTERVAL: Duration = Duration::from_secs(10);

/// `GET /dashboard/{org_id}/live?window`
pub(super) async fn show(
    State(api): State<Api>,
    visitor: Visitor,
    Extension(boards): Extension<Boards>,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let window = Window::of(&parameter(raw.as_deref(), "window"));
    let board = rendered(&api, visitor.org).await;
    let figures = boards.figures(&api, visitor.org, window).await?;
    let heading = html! {
        div { h1 { "Live" } p.under { "Calls that are up, on all nodes." } }
        span.badge #stream-state role="status" { "As of now" }
    };
    let events = visitor.path(&format!("live/events?window={}", window.word()));
    let content = html! {
        @if visitor.writes() { form #command method="post" { (token(&visitor)) input type="hidden" name="back" value="live"; } }
        div data-stream=(events) {
            @for part in board.parts(visitor.writes()) { (PreEscaped(&part.html)) }
            (figures.shown(&links(&visitor, window)))
        }
    };

    Ok(headed(&visitor, Section::Live, "Live", &heading, &content))
}

fn links(visitor: &Visitor, window: Window) -> Markup {
    html! {
        div.tabs role="group" aria-label="Window" {
            @for other in Window::ALL {
                a href=(visitor.path(&format!("live?window={}", other.word()))) aria-current=[(other == window).then_some("true")] { (other.word()) }
            }
        }
    }
}

/// Stream of one open page.
struct Viewer {
    api: Api,
    visitor: Visitor,
    window: Window,
    boards: Boards,
    board: watch::Receiver<Arc<Board>>,
    /// Time at which the session was checked, and the figures were counted.
    checked: Moment,
    shown: Shown,
    is_greeted: bool,
    _place: Place,
}

/// `GET /dashboard/{org_id}/live/events?window`: the changed parts of the page, as server-sent events. The id of an event names the parts that the
/// page has then, so that a page that reconnects with it gets only later changes.
pub(super) async fn events(
    State(api): State<Api>,
    visitor: Visitor,
    Extension(boards): Extension<Boards>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Result<Response, ErrorPage> {
    let place = stream::place(&boards, &visitor)?;
    let mut board = boards.watch(&api, visitor.org);
    // The page may show an older board, so the first turn compares them at once.
    board.mark_changed();
    let viewer = Viewer {
        boards,
        board,
        checked: api.monotonic(),
        window: Window::of(&parameter(raw.as_deref(), "window")),
        shown: Shown::of(&headers, raw.as_deref()),
        api,
        visitor,
        is_greeted: false,
        _place: place,
    };

    Ok(stream::answer(unfold(viewer, Viewer::next)))
}

impl Viewer {
    /// Returns the next item of the stream; `None` ends it. It is polled only when the connection has room, so a slow page gets the latest parts.
    async fn next(mut self) -> Option<(Result<sse::Event, Infallible>, Self)> {
        if !self.is_greeted {
            self.is_greeted = true;
            return Some((Ok(stream::hello()), self));
        }

        loop {
            let waited = tokio::time::timeout(FIGURES_INTERVAL, self.board.changed()).await;
            if matches!(waited, Ok(Err(_))) {
                // The server stops.
                return None;
            }

            let mut parts = self
                .board
                .borrow_and_update()
                .parts(self.visitor.writes())
                .to_vec();
            let now = self.api.monotonic();
            if now.since(self.checked) >= FIGURES_INTERVAL {
                self.checked = now;
                if !dashboard_session::is_open(&self.visitor.session, &self.api).await {
                    return None;
                }
                let figures = self
                    .boards
                    .figures(&self.api, self.visitor.org, self.window)
                    .await;
                let links = links(&self.visitor, self.window);
                // Figures that can't be counted now are left out, and the page keeps the last ones.
                parts.extend(figures.ok().map(|figures| Part::new(figures.shown(&links))));
            }
            if let Some(event) = self.shown.event(&parts) {
                return Some((Ok(event), self));
            }
        }
    }
}

/// Sends a command to a call, and shows the page of the form again.
async fn command(form: SubmittedForm, word: &str, body: Value) -> Result<Response, ErrorPage> {
    let visitor = &form.visitor;
    visitor.must_write()?;

    let call = visitor.id("call_id")?;
    let path = format!("/phone/calls/{call}/{word}");
    let back = match form.text("back") {
        "live" => visitor.path("live"),
        _ => visitor.path(&format!("calls/{call}")),
    };
    match visitor.client.send(Method::POST, &path, Some(&body)).await {
        Ok(_) => Ok(Redirect::to(&back).into_response()),
        Err(refused) => {
            let status = shown_status(&refused)?;
            let content = html! { (refusal(&refused)) p { a.button href=(back) { "Back" } } };
            let heading = html! { h1 { "That did not work" } };
            let page = headed(
                visitor,
                Section::Live,
                "Command refused",
                &heading,
                &content,
            );
            Ok((status, page).into_response())
        }
    }
}

/// `POST /dashboard/{org_id}/calls/{call_id}/hangup`
pub(super) async fn hang_up(form: SubmittedForm) -> Result<Response, ErrorPage> {
    command(form, "hangup", json!({})).await
}

/// `POST /dashboard/{org_id}/calls/{call_id}/hold`
pub(super) async fn hold(form: SubmittedForm) -> Result<Response, ErrorPage> {
    command(form, "hold", json!({})).await
}

/// `POST /dashboard/{org_id}/calls/{call_id}/resume`
pub(super) async fn resume(form: SubmittedForm) -> Result<Response, ErrorPage> {
    command(form, "resume", json!({})).await
}

/// `POST /dashboard/{org_id}/calls/{call_id}/transfer`
pub(super) async fn transfer(form: SubmittedForm) -> Result<Response, ErrorPage> {
    let body = json!({"destination_id": form.text("destination_id")});
    command(form, "transfer", body).await
}
