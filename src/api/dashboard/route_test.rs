//! Forms that show which agent would answer a call, and which calls of the last week a change would have given to another agent.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use serde_json::{Value, json};
use trunkline_sip::moment::Moment;
use trunkline_store::names::NamedKind;

use super::backend::{BackendRefusal, items, parameter, text};
use super::choice::{self, Choice};
use super::document::{card, table, time};
use super::fields::{Field, Filled, Input, choices};
use super::form_page::{form_of, shown_status};
use super::frame::{Section, headed};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;
use crate::api::Api;
use crate::api::time::written;
use crate::explain::replay::MOST_CALLS;

const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

/// `GET /dashboard/{org_id}/route-test?to&from&agent_id`; `replay` routes last week's calls again, as if an agent's state or a number's agent
/// were another.
pub(super) async fn show(
    State(api): State<Api>,
    visitor: Visitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let value = |name: &str| parameter(raw.as_deref(), name).trim().to_owned();
    let asked = json!({"to": value("to"), "from": value("from"), "agent_id": value("agent_id")});
    let mut refused = None;
    let mut decided = Value::Null;
    if !text(&asked, "to").is_empty() {
        let mut body = asked.clone();
        if let Value::Object(fields) = &mut body {
            // The API refuses empty texts, and an input that was left alone is one.
            fields.retain(|_, value| value != "");
        }
        let answer = visitor.client.ask("/phone/sip/route-test", &body).await;
        match answer {
            Ok(answer) => decided = answer,
            Err(fault) => {
                shown_status(&fault)?;
                refused = Some(fault);
            }
        }
    }

    let supposed = json!({
        "agent": value("agent"), "enabled": value("enabled"), "number": value("number"), "holder": value("holder"),
    });
    let (mut replayed, mut unreplayed) = (Value::Null, None);
    if !value("replay").is_empty() {
        match replay(&visitor, &supposed, api.now()).await {
            Ok(answer) => replayed = answer,
            Err(fault) => {
                shown_status(&fault)?;
                unreplayed = Some(fault);
            }
        }
    }

    let outcomes = items(&replayed)
        .iter()
        .flat_map(|call| [&call["before"], &call["after"]]);
    let agents = outcomes
        .chain([&decided["outcome"]])
        .flat_map(|outcome| ["agent", "agent_busy"].map(|field| text(&outcome[field], "id")));
    let names = Names::of(&visitor.client, agents.collect()).await?;
    let changeable = change_fields(
        Choice::of(&visitor, NamedKind::Agent).await?,
        Choice::of(&visitor, NamedKind::Number).await?,
    );

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
            div { @if !decided.is_null() { (decision(&visitor, &decided, &names)) } }
        }
        div.two id="replay" {
            form.card method="get" action=(visitor.path("route-test")) {
                h2 { "What would a change have done to last week's calls?" }
                input type="hidden" name="replay" value="week";
                (form_of(&changeable, Filled::With(&supposed), unreplayed.as_ref()))
                div.go { button type="submit" { "Route last week's calls again" } }
            }
            div { @if !replayed.is_null() { (card("moved", "Last week's calls", &moved(&visitor, &replayed, &names))) } }
        }
    };

    Ok(headed(
        &visitor,
        Section::RouteTest,
        "Which agent?",
        &heading,
        &content,
    ))
}

fn outcome(visitor: &Visitor, outcome: &Value, names: &Names) -> Markup {
    let agent = |id: &str| {
        html! { a href=(visitor.path(&format!("agents/{id}"))) { (names.shown(id)) } }
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

fn decision(visitor: &Visitor, decided: &Value, names: &Names) -> Markup {
    let sentences = decided["explanation"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let content = html! {
        p.answer { (outcome(visitor, &decided["outcome"], names)) }
        ol.why { @for sentence in sentences { li { (sentence.as_str().unwrap_or_default()) } } }
    };
    card("decision", "Answer", &content)
}

/// Fields of the supposed change. Left empty, they mean today's settings.
fn change_fields(agents: Choice, numbers: Choice) -> [Field; 4] {
    [
        Field::new("agent", "If this agent", Input::Choice(agents.clone()))
            .help("Empty: no change of an agent."),
        Field::new(
            "enabled",
            "were",
            Input::Select(choices(&[("true", "enabled"), ("false", "disabled")])),
        ),
        Field::new("number", "and if this number", Input::Choice(numbers))
            .help("Empty: no change of a number."),
        Field::new("holder", "were assigned to", Input::Choice(agents)).help("Empty: to no agent."),
    ]
}

/// Routes the calls of the last week again with the supposed change.
async fn replay(visitor: &Visitor, supposed: &Value, now: Moment) -> Result<Value, BackendRefusal> {
    let client = &visitor.client;
    let agent =
        async |field| choice::chosen(client, NamedKind::Agent, field, text(supposed, field)).await;
    let mut changes = json!({});
    if let Some(agent) = agent("agent").await? {
        let enabled = text(supposed, "enabled") != "false";
        changes["agents"] = json!([{"id": agent, "enabled": enabled}]);
    }
    let number = text(supposed, "number");
    if !number.is_empty() {
        let holder = agent("holder").await?;
        changes["numbers"] = json!([{"phone_number": number, "agent_id": holder}]);
    }

    let body = json!({"start_date": written(now - WEEK), "limit": MOST_CALLS, "changes": changes});
    client.ask("/phone/sip/route-replay", &body).await
}

/// Calls that would have gone to another agent, each with both.
fn moved(visitor: &Visitor, replayed: &Value, names: &Names) -> Markup {
    let count = |field: &str| replayed[field].as_u64().unwrap_or_default();
    let columns = ["Call", "From", "To", "Went to", "Would go to"];

    let rows: Vec<_> = items(replayed)
        .iter()
        .map(|call| {
            let page = visitor.path(&format!("calls/{}", text(call, "call_id")));
            vec![
                html! { a.row href=(page) { (time(text(call, "started_at"))) } },
                html! { (text(call, "from_number")) },
                html! { (text(call, "to_number")) },
                outcome(visitor, &call["before"], names),
                outcome(visitor, &call["after"], names),
            ]
        })
        .collect();

    html! {
        p {
            "Of " (count("calls")) " calls, " strong { (count("elsewhere")) } " would have gone to another agent."
            @if count("unrouted") > 0 { " " (count("unrouted")) " had no decision to compare with." }
            @if replayed["complete"] == false { " Only the newest " (count("calls")) " calls were looked at." }
            @if replayed["all_listed"] == false { " The newest " (rows.len()) " are listed." }
        }
        @if !rows.is_empty() { (table("Calls that would have gone to another agent", &columns, &rows, "")) }
    }
}
