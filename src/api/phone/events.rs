//! `GET /phone/events`: the org's events as they happen, as server-sent events (HTML Living Standard §9.2).
//!
//! A stream begins after `Last-Event-ID`, or now. It ends when its key is revoked or the server stops. A client that
//! reconnects with the id of its last event misses nothing that is still kept.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde_json::json;
use trunkline_store::{Event, EventType, events};
use uuid::Uuid;

use super::OF_CALLS;
use crate::api::caller::{Caller, STREAMS, StreamCaller};
use crate::api::field_type::Choice;
use crate::api::operations::Operations;
use crate::api::query::Query;
use crate::api::streams::{Full, Seat, StreamLimits, StreamPermit};
use crate::api::{Api, ApiError};

/// Declares the stream at the top, since it is about the whole org, and below `/phone` for clients from before.
pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    for (path, id) in [
        ("/events", "streamEvents"),
        ("/phone/events", "streamPhoneEvents"),
    ] {
        of.get(path, stream, id, "Events as they happen, as server-sent events", |op| {
            op.note("Without `types`, a stream has all types that the key's scopes allow. It begins after `Last-Event-ID`, or now.")
                .query("types", json!({"type": "string"}), "Event types, separated by commas.")
                .query("last_event_id", json!({"type": "string"}), "For clients that can't set `Last-Event-ID`; `0` is the oldest event kept.")
                .may_refuse(&[503])
                .gives_text(200, "text/event-stream")
        });
    }
}

/// Scope that every stream requires; some event types require more.
const SCOPE: &str = "calls:read";
/// Interval of comment lines that keep the connection alive.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Interval between checks of the key and for events, should a wake-up be missed.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Reconnection time that clients are given.
const RECONNECT_AFTER: Duration = Duration::from_secs(2);
/// Pause after the database failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Events read at once.
const BATCH: u32 = 100;
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Event types, as words of the parameter `types`.
pub(crate) const TYPES: [(&str, EventType); EventType::ALL.len()] = {
    let mut words = [("", EventType::CallStarted); EventType::ALL.len()];
    let mut at = 0;
    while at < words.len() {
        words[at] = (EventType::ALL[at].as_str(), EventType::ALL[at]);
        at += 1;
    }
    words
};

/// Position at which a stream begins.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Start {
    /// Oldest event that is kept.
    Oldest,
    /// Event after this one.
    After(Uuid),
}

/// `GET /phone/events?types&last_event_id`: a stream of the org's events. `types` lists the types to send, separated by
/// commas; without it, all that the key's scopes allow. `last_event_id` is for clients that can't set the header; `0`
/// starts with the oldest event that is kept.
pub(crate) async fn stream(
    State(api): State<Api>,
    caller: StreamCaller,
    headers: HeaderMap,
    mut query: Query,
) -> Result<Response, ApiError> {
    let types = query.read("types", types);
    for kind in types.iter().flatten() {
        caller.caller.needs(scope(*kind))?;
    }

    let start = query.read("last_event_id", start);
    let start = match last_event_id(&headers) {
        Ok(None) => start,
        Ok(given) => given,
        Err(fault) => {
            query.refuse(format!("Last-Event-ID: {fault}"));
            None
        }
    };

    query.finish()?;
    // Before the store is read: a client that has all its streams open costs no query.
    let seat = seat(&api, &caller)?;
    let org = caller.caller.org;

    let seq = match start {
        None => api.read(events::position).await?,
        Some(Start::Oldest) => 0,
        Some(Start::After(id)) => {
            let seq = api.read(move |tx| events::seq(tx, org, id));
            // The event is past its retention, or was never this org's: all that is kept is sent, so that none is missed.
            seq.await?.unwrap_or(0)
        }
    };

    // Without `types` a key gets what its scopes allow, while above a type that is named and not allowed is 403: its
    // events would be awaited in vain.
    let types = types.unwrap_or_else(|| allowed(&caller.caller));
    let listener = Listener {
        api,
        caller,
        seat,
        types,
        seq,
        waiting: VecDeque::new(),
        greeted: false,
    };

    let alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL).text("alive");
    let events = stream::unfold(listener, Listener::next);
    let mut response = Sse::new(events).keep_alive(alive).into_response();

    // A proxy that buffers the answer would delay every event.
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );

    Ok(response)
}

fn seat(api: &Api, caller: &StreamCaller) -> Result<StreamPermit, ApiError> {
    let limits = &api.config().events;
    let most = StreamLimits {
        of_org: limits.max_streams_per_org,
        of_key: limits.max_streams_per_key,
    };
    let org = caller.caller.org;
    let entered = match caller.seat() {
        Seat::Operator => api.streams().enter_operator(org, STREAMS),
        Seat::Partner(partner) => api.streams().enter_partner(org, partner, most.of_org),
        Seat::Key(key) => api.streams().enter(org, key, most),
    };

    entered.map_err(|full| {
        let message = match full {
            Full::Operator(open) => {
                format!("The operator has {open} event streams of this org open already")
            }
            Full::Partner(open) => {
                format!("The partner has {open} event streams of its orgs open already")
            }
            Full::Key(open) => format!("This API key has {open} event streams open already"),
            Full::Org(open) => format!("The org has {open} event streams open already"),
            Full::Node => "No more event streams can be opened here now".to_owned(),
        };
        ApiError::TooManyAtOnce(message)
    })
}

/// Scope for events of a type.
const fn scope(kind: EventType) -> &'static str {
    match kind {
        EventType::CallStarted
        | EventType::CallRinging
        | EventType::CallAnswered
        | EventType::CallEnded
        | EventType::CallRefused
        | EventType::TransferUpdated => SCOPE,
        EventType::TrunkRegistered | EventType::TrunkLost | EventType::NumberVerified => {
            super::READ
        }
        EventType::HandoffCreated => "handoff:read",
        EventType::KeyRevoked => "keys:write",
    }
}

fn allowed(caller: &Caller) -> Vec<EventType> {
    let all = EventType::ALL.into_iter();
    all.filter(|kind| caller.may(scope(*kind))).collect()
}

fn types(text: &str) -> Result<Vec<EventType>, String> {
    let mut types = Vec::new();
    for word in text.split(',') {
        let kind = Choice(&TYPES).meaning(word.trim())?;
        if !types.contains(&kind) {
            types.push(kind);
        }
    }
    Ok(types)
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<Start>, String> {
    match headers.get(LAST_EVENT_ID).map(HeaderValue::to_str) {
        None | Some(Ok("")) => Ok(None),
        Some(Ok(text)) => start(text).map(Some),
        Some(Err(_)) => Err("is no event's id".to_owned()),
    }
}

fn start(text: &str) -> Result<Start, String> {
    if text == "0" {
        return Ok(Start::Oldest);
    }
    let id = text.parse().map_err(|_| "is no event's id".to_owned())?;
    Ok(Start::After(id))
}

/// One open stream.
struct Listener {
    api: Api,
    caller: StreamCaller,
    seat: StreamPermit,
    types: Vec<EventType>,
    /// Number of the last event that was sent or skipped.
    seq: i64,
    /// Events read and not sent yet.
    waiting: VecDeque<Event>,
    greeted: bool,
}

impl Listener {
    /// Returns the next item of the stream. It is polled when the connection has room for it.
    async fn next(mut self) -> Option<(Result<sse::Event, Infallible>, Self)> {
        if !self.greeted {
            self.greeted = true;
            let hello = sse::Event::default().retry(RECONNECT_AFTER).comment("open");
            return Some((Ok(hello), self));
        }
        loop {
            while let Some(event) = self.waiting.pop_front() {
                // Set for skipped events too: otherwise they would be read again and again.
                self.seq = event.seq;
                if self.types.iter().any(|kind| kind.as_str() == event.kind) {
                    return Some((Ok(frame(&event)), self));
                }
            }

            // Before the check of the key and the read: a key that is revoked or an event that is stored after them wakes
            // the stream again.
            self.seat.seen();

            // Checked once for each batch, and after each wait: a revoked key ends a stream that has no events as well.
            if !self.caller.is_good(&self.api).await {
                return None;
            }

            let (org, seq) = (self.caller.caller.org, self.seq);
            let found = self.api.read(move |tx| events::since(tx, org, seq, BATCH));
            match found.await {
                Ok(found) if !found.is_empty() => self.waiting = found.into(),
                Ok(_) => tokio::select! {
                    open = self.seat.news() => if !open { return None },
                    () = tokio::time::sleep(CHECK_INTERVAL) => {}
                },
                Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
            }
        }
    }
}

fn frame(event: &Event) -> sse::Event {
    sse::Event::default()
        .id(event.id.to_string())
        .event(&event.kind)
        .data(&event.body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_by_commas_and_each_counts_once() {
        use EventType::{CallEnded, CallStarted};
        assert_eq!(
            types("call.started, call.ended,call.started"),
            Ok(vec![CallStarted, CallEnded])
        );
        for text in ["", "call", "call.started,"] {
            assert!(types(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_stream_begins_after_an_event_or_with_the_oldest() {
        let id = "0190f3e0-0000-7000-8000-000000000000";
        for (text, expected) in [
            ("0", Some(Start::Oldest)),
            (id, Some(Start::After(id.parse().unwrap()))),
            ("1", None),
            ("x", None),
        ] {
            assert_eq!(start(text).ok(), expected, "{text}");
        }
    }
}
