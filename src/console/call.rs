//! Page of one call: its record and cause, the ladder of its messages, and why it went where it went, in the same sentences as in the API
//! and the CLI. The messages can be downloaded as a capture and as a flow.

use std::io::BufReader;
use std::time::Duration;

use axum::Extension;
use axum::body::to_bytes;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use trunkline_capture::flow;
use trunkline_capture::import::import;
use trunkline_model::record::{Direction, Status};
use trunkline_store::{SessionHandoff, handoffs};

use super::backend::query;
use super::board::{Boards, Part};
use super::calls::{answered, outcome};
use super::cause::cause;
use super::document::{card, moment, spaced, time, time_or};
use super::forms::{button, danger, token};
use super::frame::{Section, headed};
use super::ladder::{drawn, sdp};
use super::media::media;
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::stream::{self, Looked};
use super::visitor::Visitor;
use crate::api::Api;
use crate::api::phone::{CallView, ConfigView, DestinationView, TraceView, TransferView};
use crate::explain::call::Explanation;
use crate::explain::ladder::Ladder;

/// Interval at which a call that is up is read: each time costs the org five requests to the API.
const LOOK_INTERVAL: Duration = Duration::from_secs(3);
/// Handoffs that are shown.
const MAX_HANDOFFS: u32 = 5;
/// Longest capture that is turned into a flow; for a longer one the request fails.
const MAX_CAPTURE: usize = 16 << 20;

/// Everything that the page shows of a call, as the API has it.
struct Shown {
    call: CallView,
    explained: Explanation,
    names: Names,
    /// Destinations of the call's agent; none if it was deleted since.
    destinations: Vec<DestinationView>,
    ladder: Ladder,
    /// False if there was no room for some of the messages.
    is_complete: bool,
    /// Handoffs of the call's session, newest first.
    handoffs: Vec<SessionHandoff>,
}

impl Shown {
    async fn read(api: &Api, visitor: &Visitor) -> Result<Self, ErrorPage> {
        let client = &visitor.client;
        let path = format!("/phone/calls/{}", visitor.id("call_id")?);
        let call: CallView = client.get(&path).await?;
        // The agent may be deleted by now. The page then offers no transfer.
        let destinations = match call.agent_id {
            Some(agent) => {
                let path = format!("/phone/sip/agents/{agent}/config");
                let config = client.get::<ConfigView>(&path).await;
                config.map_or_else(|_| Vec::new(), |config| config.transfer_destinations)
            }
            None => Vec::new(),
        };

        // The node that holds the messages may be away. The page shows the rest without them.
        let trace = client.get::<TraceView>(&format!("{path}/trace")).await.ok();
        let (org, session) = (visitor.org, call.session_id.to_string());
        let handoffs = api
            .read_inline(move |tx| handoffs::of_session(tx, org, &session, MAX_HANDOFFS))
            .await?;
        Ok(Self {
            handoffs,
            explained: client.get(&format!("{path}/routing")).await?,
            names: Names::of(client, call.agent_id.into_iter().collect()).await?,
            destinations,
            is_complete: trace.as_ref().is_none_or(|trace| trace.complete),
            ladder: trace.map(TraceView::into_ladder).unwrap_or_default(),
            call,
        })
    }

    fn is_up(&self) -> bool {
        self.call.ended_at.is_none()
    }

    /// Parts that change while the call is up, in the order of the page. Each has an id.
    fn parts(&self, visitor: &Visitor) -> [Markup; 5] {
        let Self {
            call,
            explained,
            names,
            destinations,
            ladder,
            is_complete,
            handoffs,
        } = self;
        let is_answered = self.is_up() && call.status == Status::InProgress;

        [
            html! { p.under #outcome { (outcome(call)) " " (time(&call.started_at)) } },
            html! {
                div #now {
                    (cause(visitor, call, explained).unwrap_or_default())
                    @if is_answered && visitor.writes() { (commands(visitor, call, destinations)) }
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
                    (card("passed", "What passed", &passed(ladder, *is_complete)))
                    @if let Some(difference) = sdp(ladder) { (card("sdp", "Offers on the two legs", &difference)) }
                    @if let Some(figures) = &call.media { (card("media", "Media", &media(figures))) }
                    @if let Some(last) = &call.transfer { (card("transfer", "Transfer", &transfer(last))) }
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
    let title = format!("Call from {} to {}", call.from_number, call.to_number);

    let heading = html! {
        div {
            p.crumbs { a href=(visitor.path("calls")) { "Calls" } }
            h1 { (title) }
            (outcome)
        }
        div.actions { (downloads(&visitor, call)) }
    };
    let events = visitor.path(&format!("calls/{}/events", call.id));
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
        .get::<CallView>(&format!("/phone/calls/{}", visitor.id("call_id")?))
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
        on_page,
        place,
        LOOK_INTERVAL,
        look,
    ))
}

fn downloads(visitor: &Visitor, call: &CallView) -> Markup {
    let path = |what: &str| visitor.path(&format!("calls/{}/{what}", call.id));
    html! {
        a.button href=(path("trace.pcap")) download { "Capture" }
        a.button href=(path("trace.flow")) download { "Flow" }
    }
}

/// Hold, transfer and hang-up of a call that is up.
fn commands(visitor: &Visitor, call: &CallView, destinations: &[DestinationView]) -> Markup {
    let at = format!("calls/{}", call.id);

    html! {
        div.card.commands-row aria-label="Commands" role="group" {
            @if call.held {
                (button(visitor, &format!("{at}/resume"), "Resume"))
            } @else {
                (button(visitor, &format!("{at}/hold"), "Hold"))
            }
            @if !destinations.is_empty() {
                form.inline.transfer method="post" action=(visitor.path(&format!("{at}/transfer"))) {
                    (token(visitor))
                    select name="destination_id" aria-label="Destination" {
                        @for destination in destinations { option value=(destination.id) { (destination.name) } }
                    }
                    button.plain type="submit" { "Transfer" }
                }
            } @else if let Some(agent) = call.agent_id {
                span.soft { "To transfer the call, give the agent a destination on " a href=(visitor.path(&format!("agents/{agent}"))) { "its page" } "." }
            }
            (danger(visitor, &format!("{at}/hangup"), "Hang up", "Both sides are hung up on at once."))
        }
    }
}

fn record(visitor: &Visitor, call: &CallView, explained: &Explanation, names: &Names) -> Markup {
    let numbers = [
        ("Caller's number", &call.from_number, &call.from_e164),
        ("Called number", &call.to_number, &call.to_e164),
    ];

    html! {
        dl {
            dt { "Direction" } dd { (call.direction.as_str()) }
            dt { "Agent" }
            dd {
                @match call.agent_id {
                    None => (names.shown(None)),
                    Some(agent) => a href=(visitor.path(&format!("agents/{agent}"))) { (names.shown(Some(agent))) },
                }
            }
            @if call.caller_withheld { dt { "Caller" } dd { "withheld: neither the runtime nor a destination gets the number" } }
            @for (title, dialled, number) in numbers {
                // The E.164 form, if the phone system sent another one.
                @if let Some(number) = number.as_ref().filter(|number| number.as_str() != dialled) { dt { (title) } dd { (number) } }
            }

            dt { "Answered for" } dd { (answered(call)) }
            dt { "Rang" } dd { (time_or(call.ringing_at.as_deref(), "never")) }
            dt { "Answered" } dd { (time_or(call.answered_at.as_deref(), "never")) }
            dt { "Ended" } dd { (time_or(call.ended_at.as_deref(), "is up")) }
            @if let Some(by) = call.hangup_by { dt { "Ended by" } dd { (spaced(by.as_str())) } }
            @if let Some(code) = call.sip_code { dt { "SIP status" } dd { (code) } }
            @if let Some(reason) = &call.reason { dt { "Reason" } dd { code { (reason) } } }
            @if let Some(detail) = &call.reason_detail { dt { "Details of the reason" } dd { (detail) } }
            @if let Some(cause) = call.q850_cause { dt { "Q.850 cause" } dd { (cause) } }

            @if let Some(log_in) = &explained.log_in {
                dt { "Phone system" }
                dd { (log_in.user_agent.as_deref().unwrap_or("sends no User-Agent")) ", from " (log_in.source) " by " (log_in.transport) }
            }

            dt { "Call-ID" } dd { code { (call.caller_call_id) } }
            @if let Some(id) = &call.runtime_call_id { dt { "Runtime's Call-ID" } dd { code { (id) } } }
            dt { "Session" } dd { code { (call.session_id) } }
            @if let Some(contact) = call.contact_id { dt { "Contact" } dd { code { (contact) } } }
            @if let Some(metadata) = &call.metadata { dt { "Metadata" } dd { code { (metadata) } } }
        }
    }
}

fn why(visitor: &Visitor, call: &CallView, explained: &Explanation) -> Markup {
    let sentences = &explained.explanation;
    let again = query(&[
        ("to", call.to_number.as_str()),
        ("from", call.from_number.as_str()),
    ]);

    html! {
        @if sentences.is_empty() {
            p.empty { "We began this call: there was nothing to decide." }
        } @else {
            ol.why { @for sentence in sentences { li { (sentence) } } }
        }
        @if call.direction == Direction::Inbound {
            p { a href=(visitor.path(&format!("route-test{again}"))) { "Route it again with today's settings" } }
        }
    }
}

fn passed(ladder: &Ladder, is_complete: bool) -> Markup {
    html! {
        @if ladder.rungs.iter().any(|rung| rung.message().is_some()) {
            @if !is_complete { p.soft { "Some messages are missing: there was no room for them." } }
            p.soft { "Open a message to read it." }
            (drawn(ladder))
        } @else {
            p.empty { "No message of this call is with this node: they are kept for a while, where the call was." }
        }
    }
}

fn transfer(transfer: &TransferView) -> Markup {
    html! {
        dl {
            dt { "To" } dd { (transfer.destination) " (" (transfer.value) ")" }
            dt { "State" } dd { (spaced(transfer.status.as_str())) }
            dt { "Way" } dd { (transfer.way.as_str()) }
            dt { "Requested" } dd { (time(&transfer.requested_at)) }
            @if let Some(explanation) = &transfer.explanation { dt { "Explanation" } dd { (explanation) } }
            @if !transfer.summary.is_empty() { dt { "Summary" } dd { (transfer.summary) } }
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
