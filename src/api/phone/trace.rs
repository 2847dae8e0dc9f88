//! `GET /phone/calls/{call_id}/trace`: the SIP messages of a call, all legs in one ladder diagram with our decisions
//! between them.
//!
//! The node that had the call keeps the messages for a while; other nodes fetch them from it. The answer is JSON, or by
//! `Accept` a ladder as text or a pcap file for Wireshark. Credentials are hidden in all formats, and tags from
//! keys that may not end calls.

use std::borrow::Cow;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_calls::features::join::UNSETTLED;
use trunkline_capture::Captured;
use trunkline_capture::message::Message;
use trunkline_sip::moment::Moment;
use trunkline_store::{Call, Kind};
use uuid::Uuid;

use super::OF_CALLS;
use super::call_routing::{attempts, decision, mismatch};
use super::calls::find;
use super::commands::trace::{ReadTrace, read_relayed};
use super::legs::{Message as Leg, messages_here};
use super::media_reach::unreachable;
use super::media_rows::media_rows;
use super::remote::RemoteCommand;
use crate::api::caller::Caller;
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::{timestamp, written};
use crate::api::{Api, ApiError, accept};
use crate::explain::attempts::sentence;
use crate::explain::ladder::{Ladder, Party, Passed, Rung, RungContent};
use crate::traces::pcap;
use crate::traces::show::summary;
use crate::traces::tag_mask::hide_tags;

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    of.get("/phone/calls/{call_id}/trace", show, "showTrace", "The SIP messages of all legs, fetched from the node that had the call; 503 while that node does not answer; as JSON, or by `Accept` as a ladder or a pcap", |op| {
            op.may_refuse(&[409, 503])
                .gives::<TraceView>(200)
                .also_as("text/plain")
                .also_as("application/vnd.tcpdump.pcap")
        });
}

/// Scope that shows tags: a peer that knows the tags of a call can send requests inside it.
const CHANGES: &str = "calls:write";

const TEXT: &str = "text/plain";
const PCAP: &str = "application/vnd.tcpdump.pcap";

/// A trace as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Trace")]
pub(crate) struct TraceView {
    call_id: Uuid,
    /// False if there was no room for some of the messages.
    pub(crate) complete: bool,
    items: Vec<ItemView>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "TraceItem")]
enum ItemView {
    Message {
        #[serde(flatten)]
        message: MessageView,
    },
    Decision {
        at: String,
        text: String,
    },
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct MessageView {
    at: String,
    /// `caller`, `runtime`, or `destination`: the destination of a transfer, if this deployment called it.
    leg: Cow<'static, str>,
    /// `received` or `sent`, as the daemon sees it.
    direction: Cow<'static, str>,
    transport: String,
    source: String,
    destination: String,
    summary: String,
    /// The message; octets that are no UTF-8 are replaced.
    text: String,
}

/// Format of the answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum TraceFormat {
    Json,
    Text,
    Pcap,
}

impl TraceFormat {
    /// Returns the format that `Accept` prefers; JSON without a preference.
    fn wanted(headers: &HeaderMap) -> Self {
        let forms = [
            ("application/json", Self::Json),
            (TEXT, Self::Text),
            (PCAP, Self::Pcap),
            ("application/x-pcap", Self::Pcap),
            ("application/cap", Self::Pcap),
        ];
        accept::preferred(headers, &forms).unwrap_or(Self::Json)
    }
}

/// Answers the trace in the requested format.
pub(crate) async fn show(
    State(api): State<Api>,
    caller: Caller,
    headers: HeaderMap,
    named: Named,
    query: Query,
) -> Result<Response, ApiError> {
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    query.finish()?;

    let (call, messages, is_complete) = messages_here(&api, call).await?;
    let mut trace = match another(&api, &call, &messages) {
        Some(node) => fetch(&api, &call, node).await?,
        None => ReadTrace {
            media: media_rows(&api, &call).await?,
            messages,
            is_complete,
        },
    };

    if !caller.may(CHANGES) {
        let secret = api.store().keyring().derive("tags in traces");
        // The search covers all octets of the trace, which peers chose. It must not block a thread that serves other requests.
        let masking = tokio::task::spawn_blocking(move || {
            let messages = trace.messages.iter_mut();
            hide_tags(messages.map(|leg| &mut leg.captured.octets), secret);
            trace
        });
        trace = masking
            .await
            .map_err(|fault| ApiError::Broke(fault.into()))?;
    }

    let answer = match TraceFormat::wanted(&headers) {
        TraceFormat::Pcap => {
            let messages: Vec<Captured> =
                trace.messages.into_iter().map(|leg| leg.captured).collect();
            ([(header::CONTENT_TYPE, PCAP)], pcap::file(&messages)).into_response()
        }

        TraceFormat::Text => {
            let decided = decided(&api, &call, &trace).await?;
            let text = ladder(&trace.messages, &decided).text();
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }

        TraceFormat::Json => {
            let decided = decided(&api, &call, &trace).await?;
            let rungs = ladder(&trace.messages, &decided).rungs.into_iter();
            Json(TraceView {
                call_id: call.id,
                complete: trace.is_complete,
                items: rungs.map(ItemView::from).collect(),
            })
            .into_response()
        }
    };
    Ok(([accept::VARIES], answer).into_response())
}

/// Returns the node that has the messages, if this one has none.
fn another(api: &Api, call: &Call, legs: &[Leg]) -> Option<u8> {
    let engine = api.engine().filter(|_| legs.is_empty())?;
    engine.another_of(call.id)
}

/// Fetches the trace of a call from another node.
///
/// # Errors
/// 503 while that node doesn't answer, 409 if it can't be asked.
async fn fetch(api: &Api, call: &Call, node: u8) -> Result<ReadTrace, ApiError> {
    // Commands travel between nodes through the database, and nodes on SQLite have one each.
    if !api.store().is_shared() {
        return Err(ApiError::Conflict(format!(
            "Node {node} had the call, and its messages are there: ask that node"
        )));
    }
    let given = RemoteCommand::Trace.send(api, call, node).await?;
    read_relayed(given.body()).map_err(|fault| ApiError::Broke(fault.into()))
}

/// Returns our decisions, with their times.
async fn decided(
    api: &Api,
    call: &Call,
    trace: &ReadTrace,
) -> Result<Vec<(Moment, String)>, ApiError> {
    let mut decided = unsettled(&trace.messages);
    decided.extend(unreachable(&trace.messages));
    if let Some(decision) = decision(api, call.org_id, call.id).await? {
        decided.push((call.started_at, decision.sentences().join(" ")));
    }

    let tried = attempts(api, call).await?;
    decided.extend(
        tried
            .iter()
            .map(|attempt| (attempt.ended_at, sentence(attempt))),
    );

    decided.extend(trace.media.iter().cloned());
    if let Some(at) = call.ended_at {
        let mut text = format!("call ended: {}", call.status.as_str());
        if let Some(reason) = &call.reason {
            text.push_str(", ");
            text.push_str(reason);
        }
        if let Some(mismatch) = mismatch(api, call).await? {
            text.push_str(": ");
            text.push_str(&mismatch);
        }
        decided.push((at, text));
    }

    Ok(decided)
}

/// Returns the refusals of re-INVITEs that were to give both ends each other's last SDP. The call continued despite them.
fn unsettled(legs: &[Leg]) -> Vec<(Moment, String)> {
    let read = |leg: &Leg| Message::parse(&leg.captured.octets);
    let asks = |message: &Message| {
        message.status().is_none()
            && message
                .first("Reason")
                .is_some_and(|reason| reason.contains(UNSETTLED))
    };
    let key = |message: &Message| (message.first("Call-ID"), message.cseq());
    let asked = legs.iter().filter(|leg| leg.is_sent).map(read).filter(asks);

    let asked: Vec<_> = asked.map(|message| key(&message)).collect();
    if asked.is_empty() {
        return Vec::new();
    }

    let refused = legs.iter().filter(|leg| !leg.is_sent).filter_map(|leg| {
        let message = read(leg);
        let status = message.status()?;
        // 491 ends nothing: such a re-INVITE is sent again (RFC 3261 §14.1).
        let is_final = status >= 300 && status != 491;
        (is_final && asked.contains(&key(&message))).then(|| {
            let text = format!(
                "Both ends change their SDP in each answer, and the {} refused the re-INVITE that was to end that ({status}): the call goes on with the media last agreed on.",
                leg.name
            );
            (Moment::from_micros(leg.captured.at), text)
        })
    });

    refused.collect()
}

/// Merges messages and decisions.
fn ladder(legs: &[Leg], decided: &[(Moment, String)]) -> Ladder {
    let messages = legs.iter().map(|leg| {
        let captured = &leg.captured;
        Rung {
            at: captured.at,
            content: RungContent::Message(Box::new(Passed {
                peer: Party::named(leg.name),
                is_sent: leg.is_sent,
                summary: summary(&captured.octets, leg.is_sent),
                transport: captured.transport.as_str().to_owned(),
                source: captured.source.to_string(),
                destination: captured.target.to_string(),
                text: String::from_utf8_lossy(&captured.octets).into_owned(),
            })),
        }
    });
    let decisions = decided.iter().map(|(at, text)| Rung {
        at: at.as_micros(),
        content: RungContent::Decision(text.clone()),
    });
    Ladder::new(messages.chain(decisions).collect())
}

/// Direction of a message that went out.
const SENT: &str = "sent";

impl TraceView {
    /// Returns the messages and decisions as a ladder.
    pub(crate) fn into_ladder(self) -> Ladder {
        Ladder {
            rungs: self.items.into_iter().map(Rung::from).collect(),
        }
    }
}

impl From<ItemView> for Rung {
    fn from(item: ItemView) -> Self {
        let micros = |at: &str| timestamp(at).map_or(0, Moment::as_micros);
        match item {
            ItemView::Decision { at, text } => Self {
                at: micros(&at),
                content: RungContent::Decision(text),
            },
            ItemView::Message { message } => Self {
                at: micros(&message.at),
                content: RungContent::Message(Box::new(Passed {
                    peer: Party::named(&message.leg),
                    is_sent: message.direction == SENT,
                    summary: message.summary,
                    transport: message.transport,
                    source: message.source,
                    destination: message.destination,
                    text: message.text,
                })),
            },
        }
    }
}

impl From<Rung> for ItemView {
    fn from(rung: Rung) -> Self {
        let at = written(Moment::from_micros(rung.at));
        match rung.content {
            RungContent::Decision(text) => Self::Decision { at, text },
            RungContent::Message(message) => Self::Message {
                message: MessageView {
                    at,
                    leg: message.peer.name().into(),
                    direction: if message.is_sent { SENT } else { "received" }.into(),
                    transport: message.transport,
                    source: message.source,
                    destination: message.destination,
                    summary: message.summary,
                    text: message.text,
                },
            },
        }
    }
}
