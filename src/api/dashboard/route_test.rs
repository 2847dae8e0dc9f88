//! Form that shows which agent would answer a call, and which calls of the last week today's settings would route otherwise.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use axum::http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::backend::{items, text};
use super::calls::agent_name;
use super::document::{card, time};
use super::fields::{Field, Filled, Input};
use super::frame::{Section, headed};
use super::page::{ErrorPage, Html};
use super::resource::{form_of, parameter, shown_status};
use super::visitor::Visitor;
use crate::api::Api;
use crate::api::time::written;

const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Calls that are routed again, the newest ones: more than the API's default, at most its greatest.
const CALLS: u32 = 10_000;

/// `GET /dashboard/{org_id}/route-test?to&from&agent_id`; `replay` routes last week's calls again.
pub(super) async fn show(
    State(api): State<Api>,
    visitor: Visitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let value = |name: &str| parameter(raw.as_deref(), name).trim().to_owned();
    let asked = json!({"to": value("to"), "from": value("from"), "agent_id": value("agent_id")});
    let agents = visitor.client.get("/phone?limit=100").await?;

    let mut refused = None;
    let mut decided = Value::Null;
    if !text(&asked, "to").is_empty() {
        let mut body = asked.clone();
        if let Value::Object(fields) = &mut body {
            fields.retain(|_, value| value != "");
        }
        let answer = visitor
            .client
            .send(Method::POST, "/phone/sip/route-test", Some(&body))
            .await;
        match answer {
            Ok(answer) => decided = answer,
            Err(fault) => {
                shown_status(&fault)?;
                refused = Some(fault);
            }
        }
    }

    let replayed = match value("replay").is_empty() {
        true => Value::Null,
        false => {
            let body = json!({"start_date": written(api.now() - WEEK), "limit": CALLS});
            visitor
                .client
                .send(Method::POST, "/phone/sip/route-replay", Some(&body))
                .await?
        }
    };

    let fields = [
        Field::new("to", "Number that is called", Input::Text)
            .help("As your phone system would send it."),
        Field::new("from", "Caller's number", Input::Text),
        Field::new("agent_id", "Value of the agent header", Input::Text)
            .help("Empty: the phone system names no agent."),
    ];
    let heading = html! { div { h1 { "Which agent would answer?" } p.under { "Decided by the function that decides live calls. No call is placed." } } };
    let content = html! {
        div.two {
            form.card method="get" action=(visitor.path("route-test")) {
                (form_of(&fields, Filled::With(&asked), refused.as_ref()))
                div.go { button type="submit" { "Decide" } }
            }
            div { @if !decided.is_null() { (decision(&visitor, &decided, &agents)) } }
        }
        (card("replay", "Last week's calls with today's settings", &replay(&visitor, &replayed)))
    };
    Ok(headed(
        &visitor,
        Section::RouteTest,
        "Which agent?",
        &heading,
        &content,
    ))
}

fn outcome(visitor: &Visitor, outcome: &Value, agents: &Value) -> Markup {
    let agent = |id: &str| {
        html! { a href=(visitor.path(&format!("agents/{id}"))) { (agent_name(agents, id)) } }
    };
    match (
        outcome["agent"]["id"].as_str(),
        outcome["agent_busy"]["id"].as_str(),
    ) {
        (Some(id), _) => agent(id),
        (None, Some(id)) => html! { (agent(id)) ", which is at its limit: the call is refused" },
        (None, None) => html! { "no agent: the call is refused" },
    }
}

fn decision(visitor: &Visitor, decided: &Value, agents: &Value) -> Markup {
    let sentences = decided["explanation"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let content = html! {
        p.answer { (outcome(visitor, &decided["outcome"], agents)) }
        ol.why { @for sentence in sentences { li { (sentence.as_str().unwrap_or_default()) } } }
    };
    card("decision", "Answer", &content)
}

fn replay(visitor: &Visitor, replayed: &Value) -> Markup {
    let count = |field: &str| replayed[field].as_u64().unwrap_or_default();

    html! {
        @if replayed.is_null() {
            p.soft { "Routes the recorded calls again, to see what a change of settings has moved." }
            p { a.button href=(visitor.path("route-test?replay=week#replay")) { "Route them again" } }
        } @else {
            p {
                "Of " (count("calls")) " calls, " strong { (count("elsewhere")) } " would go to another agent."
                @if count("unrouted") > 0 { " " (count("unrouted")) " had no decision to compare with." }
            }
            ul.plain {
                @for call in items(replayed) {
                    li {
                        a href=(visitor.path(&format!("calls/{}", text(call, "call_id")))) { (time(text(call, "started_at"))) }
                        " " (text(call, "from_number")) " → " (text(call, "to_number"))
                    }
                }
            }
        }
    }
}
