//! Forms that show which agent would answer a call, and which calls of the last week a change would have given to another agent.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::backend::{items, text};
use super::calls::agent_name;
use super::document::{card, table, time};
use super::fields::{Field, Filled, Input, choices};
use super::frame::{Section, headed};
use super::page::{ErrorPage, Html};
use super::resource::{form_of, parameter, shown_status};
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
    let agents = visitor.client.get("/phone?limit=100").await?;

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

    let numbers = visitor.client.get("/phone/numbers?limit=100").await?;
    let supposed = json!({
        "agent": value("agent"), "enabled": value("enabled"), "number": value("number"), "holder": value("holder"),
    });
    let (mut replayed, mut unreplayed) = (Value::Null, None);
    if !value("replay").is_empty() {
        let week_ago = written(api.now() - WEEK);
        let body =
            json!({"start_date": week_ago, "limit": MOST_CALLS, "changes": changes(&supposed)});
        let answer = visitor.client.ask("/phone/sip/route-replay", &body).await;
        match answer {
            Ok(answer) => replayed = answer,
            Err(fault) => {
                shown_status(&fault)?;
                unreplayed = Some(fault);
            }
        }
    }

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
        div.two id="replay" {
            form.card method="get" action=(visitor.path("route-test")) {
                h2 { "What would a change have done to last week's calls?" }
                input type="hidden" name="replay" value="week";
                (form_of(&change_fields(&agents, &numbers), Filled::With(&supposed), unreplayed.as_ref()))
                div.go { button type="submit" { "Route last week's calls again" } }
            }
            div { @if !replayed.is_null() { (card("moved", "Last week's calls", &moved(&visitor, &replayed, &agents))) } }
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

/// Value of the holder's field that means: no agent.
const NO_AGENT: &str = "none";

/// Fields of the supposed change. Left empty, they mean today's settings.
fn change_fields(agents: &Value, numbers: &Value) -> [Field; 4] {
    let own = |list: &Value, id: &str, name: &str| -> Vec<_> {
        let items = items(list).iter();
        items
            .map(|item| (text(item, id).to_owned(), text(item, name).to_owned()))
            .collect()
    };
    let mut changed = choices(&[("", "No change of an agent")]);
    changed.extend(own(agents, "id", "name"));
    let mut moved = choices(&[("", "No change of a number")]);
    moved.extend(own(numbers, "phone_number", "phone_number"));
    let mut holders = choices(&[(NO_AGENT, "No agent")]);
    holders.extend(own(agents, "id", "name"));

    [
        Field::new("agent", "If this agent", Input::Select(changed)),
        Field::new(
            "enabled",
            "were",
            Input::Select(choices(&[("true", "enabled"), ("false", "disabled")])),
        ),
        Field::new("number", "and if this number", Input::Select(moved)),
        Field::new("holder", "were assigned to", Input::Select(holders))
            .help("Leave both unchanged to compare with today's settings."),
    ]
}

/// The supposed change, as the API takes it.
fn changes(supposed: &Value) -> Value {
    let mut changes = json!({});
    let given = |name: &str| Some(text(supposed, name)).filter(|text| !text.is_empty());
    if let Some(agent) = given("agent") {
        let enabled = text(supposed, "enabled") != "false";
        changes["agents"] = json!([{"id": agent, "enabled": enabled}]);
    }
    if let Some(number) = given("number") {
        let holder = given("holder").filter(|holder| *holder != NO_AGENT);
        changes["numbers"] = json!([{"phone_number": number, "agent_id": holder}]);
    }
    changes
}

/// Calls that would have gone to another agent, each with both.
fn moved(visitor: &Visitor, replayed: &Value, agents: &Value) -> Markup {
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
                outcome(visitor, &call["before"], agents),
                outcome(visitor, &call["after"], agents),
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
