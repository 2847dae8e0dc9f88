//! Page of one call: its record and cause, the ladder of its messages, and why it went where it went, in the same sentences as in the API
//! and the CLI. The messages can be downloaded as a capture and as a flow.

use std::collections::BTreeSet;
use std::io::BufReader;
use std::time::Duration;

use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::Value;
use trunkline_capture::flow;
use trunkline_capture::import::import;
use trunkline_store::{SessionHandoff, handoffs};

use super::backend::{items, query, text};
use super::board::{Boards, Part};
use super::calls::{answered, outcome};
use super::cause::cause;
use super::document::{card, moment, spaced, time, time_or};
use super::forms::{button, danger, token};
use super::frame::{Section, headed};
use super::ladder::{ladder, sdp};
use super::media::media;
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::stream::{self, Looked};
use super::visitor::Visitor;
use crate::api::Api;

/// Interval at which a call that is up is read: each time costs the org five requests to the API.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// Handoffs that are shown.
const MAX_HANDOFFS: u32 = 5;
/// Longest capture that is turned into a flow; for a longer one the request fails.
const MAX_CAPTURE: usize = 16 << 20;

/// Everything that the page shows of a call, as the API has it.
struct Shown {
    call: Value,
    explained: Value,
    names: Names,
    /// Assignments of the call's agent; `null` if it was deleted since.
    config: Value,
    trace: Value,
    /// Handoffs of the call's session, newest first.
    handoffs: Vec<SessionHandoff>,
}

impl Shown {
    async fn read(api: &Api, visitor: &Visitor) -> Result<Self, ErrorPage> {
        let client = &visitor.client;
        let path = format!("/phone/calls/{}", visitor.id("call_id")?);
        let call: Value = client.get(&path).await?;
        // The agent may be deleted by now. The page then offers no transfer.
        let config = match call["agent_id"].as_str() {
            Some(agent) => {
                client
                    .get(&format!("/phone/sip/agents/{agent}/config"))
                    .await
            }
            None => Ok(Value::Null),
        };

        // The node that holds the messages may be away. The page shows the rest without them.
        let trace = client.get(&format!("{path}/trace")).await;
        let (org, session) = (visitor.org, text(&call, "session_id").to_owned());
        let handoffs = api
            .read_inline(move |tx| handoffs::of_session(tx, org, &session, MAX_HANDOFFS))
            .await?;
        Ok(Self {
            handoffs,
            explained: client.get(&format!("{path}/routing")).await?,
            names: Names::of(client, BTreeSet::from([text(&call, "agent_id")])).await?,
            config: config.unwrap_or_default(),
            trace: trace.unwrap_or_default(),
            call,
        })
    }

    fn is_up(&self) -> bool {
        self.call["ended_at"].is_null()
    }

    /// Parts that change while the call is up, in the order of the page. Each has an id.
    fn parts(&self, visitor: &Visitor) -> [Markup; 5] {
        let Self {
            call,
            explained,
            names,
            config,
            trace,
            handoffs,
        } = self;
        let is_answered = self.is_up() && text(call, "status") == "in_progress";

        [
            html! { p.under #outcome { (outcome(call)) " " (time(text(call, "started_at"))) } },
            html! {
                div #now {
                    (cause(visitor, call, explained).unwrap_or_default())
                    @if is_answered && visitor.writes() { (commands(visitor, call, config)) }
                }
            },
            card(
                "record",
                "What happened",
                &record(visitor, call, explained, names),
            ),
            card("why", "Why it went there", &why(visitor, call, explained)),
            html! {
                div #messages {
                    (card("passed", "What passed", &passed(trace)))
                    @if let Some(difference) = sdp(trace) { (card("sdp", "Offers on the two legs", &difference)) }
                    @if !call["media"].is_null() { (card("media", "Media", &media(&call["media"]))) }
                    @if !call["transfer"].is_null() { (card("transfer", "Transfer", &transfer(&call["transfer"]))) }
                    @for (at, handoff) in handoffs.iter().enumerate() { (card(&format!("handoff-{at}"), "Handoff", &handed_off(handoff))) }
                }
            },
        ]
    }
}

/// `GET /dashboard/{org_id}/calls/{call_id}`
pub(super) async fn show(State(api): State<Api>, visitor: Visitor) -> Result<Html, ErrorPage> {
    let shown = Shown::read(&api, &visitor).await?;
    let call = &shown.call;
    let [outcome, now, record, why, messages] = shown.parts(&visitor);
    let title = format!(
        "Call from {} to {}",
        text(call, "from_number"),
        text(call, "to_number")
    );

    let heading = html! {
        div {
            p.crumbs { a href=(visitor.path("calls")) { "Calls" } }
            h1 { (title) }
            (outcome)
        }
        div.actions { (downloads(&visitor, call)) }
    };
    let events = visitor.path(&format!("calls/{}/events", text(call, "id")));
    let content = html! {
        div data-stream=[shown.is_up().then_some(events)] {
            (now)
            div.two { (record) (why) }
            (messages)
        }
    };
    Ok(headed(&visitor, Section::Calls, &title, &heading, &content))
}

/// `GET /dashboard/{org_id}/calls/{call_id}/events`: the parts of the page that change while the call is up, the last time after its end.
pub(super) async fn events(
    State(api): State<Api>,
    visitor: Visitor,
    Extension(boards): Extension<Boards>,
    headers: HeaderMap,
    RawQuery(raw): RawQuery,
) -> Result<Response, ErrorPage> {
    visitor
        .client
        .get::<Value>(&format!("/phone/calls/{}", visitor.id("call_id")?))
        .await?;

    // After the read, so that a call that isn't the org's takes no place.
    let place = stream::place(&boards, &visitor)?;
    let on_page = stream::Shown::of(&headers, raw.as_deref());
    let of = (api.clone(), visitor.clone());
    let look = move || {
        let (api, visitor) = of.clone();
        async move {
            // A read that fails is tried again at the next look.
            let Ok(shown) = Shown::read(&api, &visitor).await else {
                return Looked::Parts(Vec::new());
            };
            let parts = shown.parts(&visitor).map(Part::new).to_vec();
            match shown.is_up() {
                true => Looked::Parts(parts),
                false => Looked::Last(parts),
            }
        }
    };

    Ok(stream::repeated(
        api,
        visitor,
        (on_page, place),
        LOOK_INTERVAL,
        look,
    ))
}

fn downloads(visitor: &Visitor, call: &Value) -> Markup {
    let path = |what: &str| visitor.path(&format!("calls/{}/{what}", text(call, "id")));
    html! {
        a.button href=(path("trace.pcap")) download { "Capture" }
        a.button href=(path("trace.flow")) download { "Flow" }
    }
}

/// Hold, transfer and hang-up of a call that is up.
fn commands(visitor: &Visitor, call: &Value, config: &Value) -> Markup {
    let at = format!("calls/{}", text(call, "id"));

    let destinations = config["transfer_destinations"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);

    html! {
        div.card.commands-row aria-label="Commands" role="group" {
            @if call["held"] == true {
                (button(visitor, &format!("{at}/resume"), "Resume"))
            } @else {
                (button(visitor, &format!("{at}/hold"), "Hold"))
            }
            @if !destinations.is_empty() {
                form.inline.transfer method="post" action=(visitor.path(&format!("{at}/transfer"))) {
                    (token(visitor))
                    select name="destination_id" aria-label="Destination" {
                        @for destination in destinations { option value=(text(destination, "id")) { (text(destination, "name")) } }
                    }
                    button.plain type="submit" { "Transfer" }
                }
            } @else if let Some(agent) = call["agent_id"].as_str() {
                span.soft { "To transfer the call, give the agent a destination on " a href=(visitor.path(&format!("agents/{agent}"))) { "its page" } "." }
            }
            (danger(visitor, &format!("{at}/hangup"), "Hang up", "Both sides are hung up on at once."))
        }
    }
}

fn record(visitor: &Visitor, call: &Value, explained: &Value, names: &Names) -> Markup {
    let agent = text(call, "agent_id");
    let log_in = &explained["log_in"];

    html! {
        dl {
            dt { "Direction" } dd { (text(call, "direction")) }
            dt { "Agent" }
            dd {
                @if agent.is_empty() { (names.shown(agent)) }
                @else { a href=(visitor.path(&format!("agents/{agent}"))) { (names.shown(agent)) } }
            }
            @if call["caller_withheld"] == true { dt { "Caller" } dd { "withheld: neither the runtime nor a destination gets the number" } }
            @for (title, dialled, number) in [("Caller's number", "from_number", "from_e164"), ("Called number", "to_number", "to_e164")] {
                // The E.164 form, if the phone system sent another one.
                @if let Some(number) = call[number].as_str().filter(|number| *number != text(call, dialled)) { dt { (title) } dd { (number) } }
            }

            dt { "Answered for" } dd { (answered(call)) }
            dt { "Rang" } dd { (time_or(call["ringing_at"].as_str(), "never")) }
            dt { "Answered" } dd { (time_or(call["answered_at"].as_str(), "never")) }
            dt { "Ended" } dd { (time_or(call["ended_at"].as_str(), "is up")) }
            @if let Some(by) = call["hangup_by"].as_str() { dt { "Ended by" } dd { (spaced(by)) } }
            @if let Some(code) = call["sip_code"].as_u64() { dt { "SIP status" } dd { (code) } }
            @if let Some(reason) = call["reason"].as_str() { dt { "Reason" } dd { code { (reason) } } }
            @if let Some(detail) = call["reason_detail"].as_str() { dt { "Details of the reason" } dd { (detail) } }
            @if let Some(cause) = call["q850_cause"].as_u64() { dt { "Q.850 cause" } dd { (cause) } }

            @if !log_in.is_null() {
                dt { "Phone system" }
                dd { (log_in["user_agent"].as_str().unwrap_or("sends no User-Agent")) ", from " (text(log_in, "source")) " by " (text(log_in, "transport")) }
            }

            dt { "Call-ID" } dd { code { (text(call, "caller_call_id")) } }
            @if let Some(id) = call["runtime_call_id"].as_str() { dt { "Runtime's Call-ID" } dd { code { (id) } } }
            dt { "Session" } dd { code { (text(call, "session_id")) } }
            @if let Some(contact) = call["contact_id"].as_str() { dt { "Contact" } dd { code { (contact) } } }
            @if !call["metadata"].is_null() { dt { "Metadata" } dd { code { (call["metadata"]) } } }
        }
    }
}

fn why(visitor: &Visitor, call: &Value, explained: &Value) -> Markup {
    let sentences = explained["explanation"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let again = query(&[
        ("to", text(call, "to_number")),
        ("from", text(call, "from_number")),
    ]);

    html! {
        @if sentences.is_empty() {
            p.empty { "We began this call: there was nothing to decide." }
        } @else {
            ol.why { @for sentence in sentences { li { (sentence.as_str().unwrap_or_default()) } } }
        }
        @if text(call, "direction") == "inbound" {
            p { a href=(visitor.path(&format!("route-test{again}"))) { "Route it again with today's settings" } }
        }
    }
}

fn passed(trace: &Value) -> Markup {
    let is_message = |item: &Value| text(item, "type") == "message";
    html! {
        @if items(trace).iter().any(is_message) {
            @if trace["complete"] == false { p.soft { "Some messages are missing: there was no room for them." } }
            p.soft { "Open a message to read it." }
            (ladder(trace))
        } @else {
            p.empty { "No message of this call is with this node: they are kept for a while, where the call was." }
        }
    }
}

fn transfer(transfer: &Value) -> Markup {
    html! {
        dl {
            dt { "To" } dd { (text(transfer, "destination")) " (" (text(transfer, "value")) ")" }
            dt { "State" } dd { (spaced(text(transfer, "status"))) }
            dt { "Way" } dd { (text(transfer, "way")) }
            dt { "Requested" } dd { (time(text(transfer, "requested_at"))) }
            @if let Some(explanation) = transfer["explanation"].as_str() { dt { "Explanation" } dd { (explanation) } }
            @if !text(transfer, "summary").is_empty() { dt { "Summary" } dd { (text(transfer, "summary")) } }
        }
    }
}

fn handed_off(of_session: &SessionHandoff) -> Markup {
    let handoff = &of_session.handoff;
    let reasons: Vec<_> = handoff
        .reasons
        .iter()
        .map(|reason| spaced(reason.as_str()))
        .collect();

    html! {
        dl {
            dt { "When" } dd { (moment(handoff.created_at)) }
            dt { "Confirmed" } dd { @if handoff.confirmed { "yes" } @else { "no: nothing has shown that the destination answered" } }
            dt { "Reasons" } dd { (reasons.join(", ")) }
            @if let Some(sentiment) = handoff.sentiment { dt { "Sentiment" } dd { (sentiment.as_str()) } }
            dt { "Summary" } dd { (handoff.summary) }
            @if let Some(explanation) = &handoff.explanation { dt { "Explanation" } dd { (explanation) } }
        }
    }
}

/// Returns the messages of the call as the API makes a capture of them.
async fn captured(visitor: &Visitor) -> Result<Response, ErrorPage> {
    const PCAP: &str = "application/vnd.tcpdump.pcap";
    let path = format!("/phone/calls/{}/trace", visitor.id("call_id")?);
    Ok(visitor.client.octets(&path, PCAP).await?)
}

/// `GET /dashboard/{org_id}/calls/{call_id}/trace.pcap`
pub(super) async fn pcap(visitor: Visitor) -> Result<Response, ErrorPage> {
    Ok(attached(captured(&visitor).await?, "call.pcap"))
}

/// `GET /dashboard/{org_id}/calls/{call_id}/trace.flow`: the text form that `trunkline replay` plays.
pub(super) async fn flow(visitor: Visitor) -> Result<Response, ErrorPage> {
    let capture = captured(&visitor).await?;
    let octets = to_bytes(capture.into_body(), MAX_CAPTURE).await;
    let octets = octets.map_err(|error| crate::api::ApiError::Broke(error.into()))?;

    let mut text = Vec::new();
    let mut number = 0;
    let imported = import(BufReader::new(&*octets), None, &mut |call| {
        if number == 0 {
            flow::write_head(&mut text, "the console")?;
        }
        number += 1;
        flow::write_call(&mut text, number, &call)?;
        Ok(())
    });
    // Without stored messages there is nothing to import.
    if let Err(error) = imported {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "no flow was made of a call"
        );
    }

    let headers = [(header::CONTENT_TYPE, "text/plain; charset=utf-8")];
    Ok(attached((headers, text).into_response(), "call.flow"))
}

fn attached(mut response: Response, name: &'static str) -> Response {
    let value = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    if let Ok(value) = value {
        response
            .headers_mut()
            .insert(header::CONTENT_DISPOSITION, value);
    }
    response
}
