//! Streams of changed parts of a page, as server-sent events. The id of an event names the parts that the page has then, so that a page that
//! reconnects with it gets only later changes.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, stream};

use super::backend::parameter;
use super::board::{Boards, Part, Place};

use super::page::ErrorPage;
use super::visitor::Visitor;
use crate::api::{Api, dashboard_session};

/// Interval of comment lines that keep the connection alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
const RECONNECT_AFTER: Duration = Duration::from_secs(2);
/// Reads between two checks of the session.
const LOOKS_BETWEEN_CHECKS: u32 = 8;

/// Hashes of the parts that a page shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Shown(Vec<u64>);

impl Shown {
    /// Reads the id of the last event that a page has seen: from the header, or from the query of a page that opened its stream again.
    pub(super) fn of(headers: &HeaderMap, raw: Option<&str>) -> Self {
        let given = headers
            .get("last-event-id")
            .and_then(|value| value.to_str().ok());
        let given = given.map_or_else(|| parameter(raw, "last_event_id"), str::to_owned);
        Self::read(&given)
    }

    fn read(id: &str) -> Self {
        // The browser sends this text back, so its length is anyone's choice; hashes beyond these are ignored.
        const MOST: usize = 8;
        let hashes = id.split('-').take(MOST);
        let hashes: Result<Vec<_>, _> = hashes.map(|hash| u64::from_str_radix(hash, 16)).collect();
        Self(hashes.unwrap_or_default())
    }

    /// Event with the parts that the page doesn't show yet; `None` if it shows all of them.
    pub(super) fn event(&mut self, parts: &[Part]) -> Option<sse::Event> {
        let mut text = String::new();
        for (at, part) in parts.iter().enumerate() {
            match self.0.get_mut(at) {
                Some(shown) if *shown == part.hash => continue,
                Some(shown) => *shown = part.hash,
                None => self.0.push(part.hash),
            }
            text.push_str(&part.html);
        }

        if text.is_empty() {
            return None;
        }
        let id: Vec<String> = self.0.iter().map(|hash| format!("{hash:x}")).collect();
        let event = sse::Event::default().event("parts").id(id.join("-"));
        // An event can't hold a carriage return, which SIP messages have; in HTML a line feed alone means the same.
        Some(event.data(text.replace('\r', "")))
    }
}

/// Takes a place for a page's stream.
///
/// # Errors
/// 429 if the session or the node has none left.
pub(super) fn place(boards: &Boards, visitor: &Visitor) -> Result<Place, ErrorPage> {
    boards
        .enter(visitor.session.hash, visitor.org)
        .ok_or_else(|| {
            ErrorPage::new(
                StatusCode::TOO_MANY_REQUESTS,
                "Too many live pages are open",
                "Close one, and load this page again.",
            )
        })
}

/// First event of every stream.
pub(super) fn hello() -> sse::Event {
    sse::Event::default().retry(RECONNECT_AFTER).comment("open")
}

/// Answer of a stream.
pub(super) fn answer(
    events: impl Stream<Item = Result<sse::Event, Infallible>> + Send + 'static,
) -> Response {
    let alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL).text("alive");
    let mut response = Sse::new(events).keep_alive(alive).into_response();
    // A proxy that buffers the answer would delay every event.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

/// Parts that were read for a page.
#[derive(Debug)]
pub(super) enum Looked {
    Parts(Vec<Part>),
    /// The last parts: nothing changes after them.
    Last(Vec<Part>),
}

/// An open page whose parts are read periodically.
struct Repeated<F> {
    api: Api,
    visitor: Visitor,
    shown: Shown,
    every: Duration,
    looks: u32,
    is_over: bool,
    look: F,
    _place: Place,
}

/// Answers with the parts that `look` returns, and again whenever one has changed; calls `look` after each interval.
pub(super) fn repeated<F, L>(
    api: Api,
    visitor: Visitor,
    shown: Shown,
    place: Place,
    every: Duration,
    look: F,
) -> Response
where
    F: FnMut() -> L + Send + 'static,
    L: Future<Output = Looked> + Send,
{
    let state = Repeated {
        api,
        visitor,
        shown,
        every,
        looks: 0,
        is_over: false,
        look,
        _place: place,
    };

    answer(stream::unfold(state, |mut state| async move {
        if state.looks == 0 {
            state.looks = 1;
            return Some((Ok(hello()), state));
        }

        loop {
            if state.is_over {
                // A browser takes the end of a stream for a fault and opens it again: it stays open, without events.
                tokio::time::sleep(KEEP_ALIVE_INTERVAL).await;
            } else {
                tokio::time::sleep(state.every).await;
            }
            // Never 0 again, at which a stream sends its greeting.
            state.looks = state.looks.wrapping_add(1).max(1);
            let is_due = state.is_over || state.looks % LOOKS_BETWEEN_CHECKS == 0;
            if is_due && !dashboard_session::is_open(&state.visitor.session, &state.api).await {
                return None;
            }
            if state.is_over {
                continue;
            }

            let parts = match (state.look)().await {
                Looked::Parts(parts) => parts,
                Looked::Last(parts) => {
                    state.is_over = true;
                    parts
                }
            };
            if let Some(event) = state.shown.event(&parts) {
                return Some((Ok(event), state));
            }
        }
    }))
}

#[cfg(test)]
mod tests {
    use maud::html;

    use super::*;

    #[test]
    fn only_what_changed_is_sent() {
        let part = |text: &str| Part::new(html! { p { (text) } });
        let mut shown = Shown::default();
        assert!(shown.event(&[part("a"), part("b")]).is_some());
        assert!(shown.event(&[part("a"), part("b")]).is_none());

        let id: Vec<String> = shown.0.iter().map(|hash| format!("{hash:x}")).collect();
        let mut again = Shown::read(&id.join("-"));
        assert_eq!(again, shown);
        assert!(again.event(&[part("a"), part("a\r\nb")]).is_some());
        assert_eq!(Shown::read("no-id"), Shown::default());
    }
}
