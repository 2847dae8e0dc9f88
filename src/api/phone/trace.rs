//! `GET /phone/calls/{call_id}/trace`: the SIP messages of a call, both legs in one ladder with what we decided between them, while this
//! node has them. JSON, or by `Accept` a ladder as text or as a picture, or a pcap for Wireshark. Credentials are hidden in all of them.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::calls::{SCOPE, decision, find};
use crate::api::caller::Caller;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::calls::record::Direction;
use crate::capture::Captured;
use crate::capture::message::Message;
use crate::store::{Call, Kind};
use crate::traces::show::{Rung, label, ladder, masked};
use crate::traces::svg::svg;
use crate::traces::{Found, Traces, pcap};

const TEXT: &str = "text/plain";
const SVG: &str = "image/svg+xml";
const PCAP: &str = "application/vnd.tcpdump.pcap";
/// A runtime is asked within this time of the call's beginning.
const SET_UP: Duration = Duration::from_secs(120);
/// What came of a call before its record begins: a challenge and its answer. What comes behind its end: answers that were sent again.
const BEFORE: Duration = Duration::from_secs(40);
const AFTER: Duration = Duration::from_secs(40);

/// A trace as the API shows it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct TraceView {
    call_id: Uuid,
    /// Whether there was no room for some messages.
    complete: bool,
    items: Vec<ItemView>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ItemView {
    Message(MessageView),
    Decision { at: String, text: String },
}

#[derive(Debug, Serialize, JsonSchema)]
struct MessageView {
    at: String,
    /// `caller` or `runtime`.
    leg: &'static str,
    /// `received` or `sent`, as the daemon sees it.
    direction: &'static str,
    transport: &'static str,
    source: String,
    destination: String,
    summary: String,
    /// The message; octets that are no UTF-8 are replaced.
    text: String,
}

/// A message with its leg.
struct Leg {
    name: &'static str,
    is_sent: bool,
    captured: Captured,
}

/// What the client would like best.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Form {
    Json,
    Text,
    Svg,
    Pcap,
}

impl Form {
    /// The first in the list that is known; JSON for anyone who doesn't care.
    fn wanted(headers: &HeaderMap) -> Self {
        let accept = headers
            .get(header::ACCEPT)
            .and_then(|value| value.to_str().ok());
        let kinds = accept.unwrap_or_default().split(',');
        let known =
            kinds.filter_map(
                |kind| match kind.split(';').next().unwrap_or_default().trim() {
                    "application/json" | "*/*" | "application/*" => Some(Self::Json),
                    TEXT | "text/*" => Some(Self::Text),
                    SVG | "image/*" => Some(Self::Svg),
                    PCAP | "application/x-pcap" | "application/cap" => Some(Self::Pcap),
                    _ => None,
                },
            );
        known.into_iter().next().unwrap_or(Self::Json)
    }
}

/// Answers it.
pub(crate) async fn show(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    named: Named,
    query: Query,
) -> Result<Response, ApiError> {
    caller.needs(SCOPE)?;
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    query.finish()?;
    let (call, legs, is_complete) = read(&api, call).await?;
    Ok(match Form::wanted(&headers) {
        Form::Pcap => {
            let messages: Vec<Captured> = legs.into_iter().map(|leg| leg.captured).collect();
            ([(header::CONTENT_TYPE, PCAP)], pcap::file(&messages)).into_response()
        }
        Form::Text => {
            let decided = decided(&api, &call).await?;
            let text = ladder(&rungs(&legs, &decided));
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }
        Form::Svg => {
            let decided = decided(&api, &call).await?;
            let picture = svg(&rungs(&legs, &decided));
            ([(header::CONTENT_TYPE, SVG)], picture).into_response()
        }
        Form::Json => {
            let decided = decided(&api, &call).await?;
            Json(TraceView {
                call_id: call.id,
                complete: is_complete,
                items: items(&legs, &decided),
            })
            .into_response()
        }
    })
}

/// The ladder of a call as a picture.
///
/// # Errors
/// What is stored can't be read.
pub(in crate::api) async fn picture(api: &Api, call: Call) -> Result<String, ApiError> {
    let (call, legs, _) = read(api, call).await?;
    let decided = decided(api, &call).await?;
    Ok(svg(&rungs(&legs, &decided)))
}

/// The messages, read where waiting for a disk holds nobody up.
async fn read(api: &Api, call: Call) -> Result<(Call, Vec<Leg>, bool), ApiError> {
    let Some(engine) = api.engine() else {
        return Ok((call, Vec::new(), true));
    };
    let traces = Arc::clone(engine.traces());
    let now = api.now();
    let read = tokio::task::spawn_blocking(move || {
        let (legs, is_complete) = legs(&traces, &call, now);
        (call, legs, is_complete)
    });
    read.await.map_err(|fault| ApiError::Broke(fault.into()))
}

/// Both legs in the order of time, credentials hidden, and whether nothing was left out. Reads files.
fn legs(traces: &Traces, call: &Call, now: Moment) -> (Vec<Leg>, bool) {
    let from = before(call.started_at, BEFORE);
    let until = call.ended_at.unwrap_or(now) + AFTER;
    let runtime = call
        .runtime_call_id
        .clone()
        .filter(|id| !id.is_empty())
        .or_else(|| {
            // A runtime that never answered: its INVITE carries the session.
            let session = call.session_id.to_string();
            traces.holding(session.as_bytes(), from, call.started_at + SET_UP)
        })
        .filter(|id| *id != call.caller_call_id);
    let caller = &*call.caller_call_id;
    let mut call_ids = vec![caller];
    call_ids.extend(runtime.as_deref());
    let Found { messages, left_out } = traces.of(&call_ids, from, until);
    let (mut of_caller, of_runtime): (Vec<_>, Vec<_>) =
        messages.into_iter().partition(|(_, captured)| {
            Message::parse(&captured.octets)
                .first("Call-ID")
                .is_some_and(|id| id == *caller)
        });
    if call.direction == Direction::Inbound {
        of_caller = of_one_dialog(of_caller, call.started_at.as_micros());
    }
    let mut legs: Vec<Leg> = Vec::with_capacity(of_caller.len() + of_runtime.len());
    for (name, messages) in [("caller", of_caller), ("runtime", of_runtime)] {
        legs.extend(messages.into_iter().map(|(is_sent, mut captured)| {
            captured.octets = masked(&captured.octets);
            Leg {
                name,
                is_sent,
                captured,
            }
        }));
    }
    legs.sort_by_key(|leg| leg.captured.at);
    (legs, left_out == 0)
}

fn before(moment: Moment, by: Duration) -> Moment {
    let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
    Moment::from_micros(moment.as_micros().saturating_sub(by))
}

/// A Call-ID is the caller's word, and another tenant may say the same one: what came from the address of the INVITE that began
/// the call is its own, and what bears the tag that we answered it with.
fn of_one_dialog(messages: Vec<(bool, Captured)>, began: u64) -> Vec<(bool, Captured)> {
    let is_invite = |is_sent: bool, captured: &Captured| {
        !is_sent && captured.octets.starts_with(b"INVITE ") && captured.at <= began
    };
    let Some(invite) = messages
        .iter()
        .rev()
        .find(|(is_sent, captured)| is_invite(*is_sent, captured))
        .map(|(_, captured)| captured)
    else {
        return Vec::new();
    };
    let peer = invite.source.ip();
    let ours = messages.iter().find_map(|(is_sent, captured)| {
        let is_answer = *is_sent && captured.at >= began && captured.target.ip() == peer;
        let tag = Message::parse(&captured.octets).tag("To")?;
        is_answer.then_some(tag)
    });
    let theirs = Message::parse(&invite.octets).tag("From");
    let mut own = messages;
    own.retain(|(is_sent, captured)| {
        let other = if *is_sent {
            captured.target
        } else {
            captured.source
        };
        let message = Message::parse(&captured.octets);
        let tags = [message.tag("From"), message.tag("To")];
        let is_theirs = tags.contains(&theirs);
        let is_ours = ours.is_some() && tags.contains(&ours);
        is_theirs && (is_ours || other.ip() == peer)
    });
    own
}

/// What we decided, and when.
async fn decided(api: &Api, call: &Call) -> Result<Vec<(Moment, String)>, ApiError> {
    let mut decided = Vec::new();
    if let Some(decision) = decision(api, call.org_id, call.id).await? {
        decided.push((call.started_at, decision.sentences().join(" ")));
    }
    if let Some(at) = call.ended_at {
        let mut text = format!("call ended: {}", call.status.as_str());
        if let Some(reason) = &call.reason {
            text.push_str(", ");
            text.push_str(reason);
        }
        decided.push((at, text));
    }
    Ok(decided)
}

/// What was decided at the time of a message stands behind it: it follows from it.
fn rungs(legs: &[Leg], decided: &[(Moment, String)]) -> Vec<Rung> {
    let messages = legs.iter().map(|leg| Rung {
        at: leg.captured.at,
        leg: Some((leg.name, leg.is_sent)),
        text: label(&Message::parse(&leg.captured.octets)),
    });
    let decisions = decided.iter().map(|(at, text)| Rung {
        at: at.as_micros(),
        leg: None,
        text: text.clone(),
    });
    let mut rungs: Vec<Rung> = messages.chain(decisions).collect();
    rungs.sort_by_key(|rung| rung.at);
    rungs
}

fn items(legs: &[Leg], decided: &[(Moment, String)]) -> Vec<ItemView> {
    let messages = legs.iter().map(|leg| {
        let captured = &leg.captured;
        let view = MessageView {
            at: written(Moment::from_micros(captured.at)),
            leg: leg.name,
            direction: if leg.is_sent { "sent" } else { "received" },
            transport: captured.transport.as_str(),
            source: captured.source.to_string(),
            destination: captured.target.to_string(),
            summary: label(&Message::parse(&captured.octets)),
            text: String::from_utf8_lossy(&captured.octets).into_owned(),
        };
        (captured.at, ItemView::Message(view))
    });
    let decisions = decided.iter().map(|(at, text)| {
        let view = ItemView::Decision {
            at: written(*at),
            text: text.clone(),
        };
        (at.as_micros(), view)
    });
    let mut items: Vec<(u64, ItemView)> = messages.chain(decisions).collect();
    items.sort_by_key(|(at, _)| *at);
    items.into_iter().map(|(_, item)| item).collect()
}
