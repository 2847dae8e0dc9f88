//! Forms that show which agent would answer a call, and which calls of the last week a change would have given to another agent.

use std::time::Duration;

use axum::extract::{RawQuery, State};
use maud::{Markup, html};
use serde_json::{Map, Value, json};
use trunkline_routing::Outcome;
use trunkline_sip::moment::Moment;
use trunkline_store::names::NamedKind;
use uuid::Uuid;

use super::backend::{BackendRefusal, parameter};
use super::choice::{self, Choice};
use super::document::{card, table, time};
use super::fields::{Field, Input, choices};
use super::form_page::{form_of, shown_status};
use super::frame::{Section, headed};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;
use crate::api::Api;
use crate::api::time::written;
use crate::explain::DecisionView;
use crate::explain::replay::{MOST_CALLS, ReplayView};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);

/// `GET /dashboard/{org_id}/route-test?to&from&agent_id`; `replay` routes last week's calls again, as if an agent's state or a number's agent
/// were another.
pub(super) async fn show(
    State(api): State<Api>,
    visitor: Visitor,
    RawQuery(raw): RawQuery,
) -> Result<Html, ErrorPage> {
    let value = |name: &str| parameter(raw.as_deref(), name).trim().to_owned();
    let (to, from, agent_header) = (value("to"), value("from"), value("agent_id"));
    let (mut decided, mut refused) = (None, None);
    if !to.is_empty() {
        // The API refuses empty texts, and an input that was left alone is one.
        let given = [("to", &to), ("from", &from), ("agent_id", &agent_header)]
            .into_iter()
            .filter(|(_, text)| !text.is_empty());
        let body: Map<String, Value> = given
            .map(|(name, text)| (name.to_owned(), json!(text)))
            .collect();
        let body = Value::Object(body);
        let answer = visitor.client.ask("/phone/sip/route-test", &body).await;
        match answer {
            Ok(DecisionView {
                decision,
                explanation,
            }) => decided = Some((decision.outcome, explanation)),
            Err(fault) => {
                shown_status(&fault)?;
                refused = Some(fault);
            }
        }
    }

    let supposed = Supposed {
        agent: value("agent"),
        enabled: value("enabled"),
        number: value("number"),
        holder: value("holder"),
    };
    let (mut replayed, mut unreplayed) = (None, None);
    if !value("replay").is_empty() {
        match replay(&visitor, &supposed, api.now()).await {
            Ok(answer) => replayed = Some(answer),
            Err(fault) => {
                shown_status(&fault)?;
                unreplayed = Some(fault);
            }
        }
    }

    let moved = replayed.iter().flat_map(|replayed| &replayed.items);
    let outcomes = moved.flat_map(|call| [call.before, call.after]);
    let outcomes = outcomes.chain(decided.as_ref().map(|(outcome, _)| *outcome));
    let names = Names::of(&visitor.client, outcomes.filter_map(agent_of).collect()).await?;
    let changeable = supposed.fields(
        Choice::of(&visitor, NamedKind::Agent).await?,
        Choice::of(&visitor, NamedKind::Number).await?,
    );

    let fields = [
        Field::new("to", "Number that is called", Input::Text)
            .holds(&*to)
            .help("As your phone system would send it."),
        Field::new("from", "Caller's number", Input::Text).holds(&*from),
        Field::new("agent_id", "Value of the agent header", Input::Text)
            .holds(&*agent_header)
            .help("Empty: the phone system names no agent."),
    ];

    let heading = html! { div { h1 { "Which agent would answer?" } p.under { "Decided by the function that decides live calls. No call is placed." } } };
    let content = html! {
        div.two {
            form.card method="get" action=(visitor.path("route-test")) {
                (form_of(&fields, None, refused.as_ref()))
                div.go { button type="submit" { "Decide" } }
            }
            div { @if let Some((outcome, explanation)) = &decided { (decision(&visitor, *outcome, explanation, &names)) } }
        }
        div.two id="replay" {
            form.card method="get" action=(visitor.path("route-test")) {
                h2 { "What would a change have done to last week's calls?" }
                input type="hidden" name="replay" value="week";
                (form_of(&changeable, None, unreplayed.as_ref()))
                div.go { button type="submit" { "Route last week's calls again" } }
            }
            div { @if let Some(replayed) = &replayed { (card("moved", "Last week's calls", &moved_calls(&visitor, replayed, &names))) } }
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

/// Agent that an outcome is about.
const fn agent_of(outcome: Outcome) -> Option<Uuid> {
    match outcome {
        Outcome::Agent { id, .. } | Outcome::AgentBusy { id } => Some(id),
        Outcome::NoAgent => None,
    }
}

fn outcome(visitor: &Visitor, outcome: Outcome, names: &Names) -> Markup {
    let agent = |id: Uuid| {
        html! { a href=(visitor.path(&format!("agents/{id}"))) { (names.shown(Some(id))) } }
    };
    match outcome {
        Outcome::Agent { id, .. } => agent(id),
        Outcome::AgentBusy { id } => {
            html! { (agent(id)) ", which is at its limit: the call is refused" }
        }
        Outcome::NoAgent => html! { "no agent: the call is refused" },
    }
}

fn decision(visitor: &Visitor, of: Outcome, explanation: &[String], names: &Names) -> Markup {
    let content = html! {
        p.answer { (outcome(visitor, of, names)) }
        ol.why { @for sentence in explanation { li { (sentence) } } }
    };
    card("decision", "Answer", &content)
}

/// The supposed change, as the form has it. Left empty, it means today's settings.
#[derive(Debug)]
struct Supposed {
    agent: String,
    enabled: String,
    number: String,
    holder: String,
}

impl Supposed {
    fn fields(&self, agents: Choice, numbers: Choice) -> [Field; 4] {
        [
            Field::new("agent", "If this agent", Input::Choice(agents.clone()))
                .holds(&*self.agent)
                .help("Empty: no change of an agent."),
            Field::new(
                "enabled",
                "were",
                Input::Select(choices(&[("true", "enabled"), ("false", "disabled")])),
            )
            .holds(&*self.enabled),
            Field::new("number", "and if this number", Input::Choice(numbers))
                .holds(&*self.number)
                .help("Empty: no change of a number."),
            Field::new("holder", "were assigned to", Input::Choice(agents))
                .holds(&*self.holder)
                .help("Empty: to no agent."),
        ]
    }
}

/// Routes the calls of the last week again with the supposed change.
async fn replay(
    visitor: &Visitor,
    supposed: &Supposed,
    now: Moment,
) -> Result<ReplayView, BackendRefusal> {
    let client = &visitor.client;
    let mut changes = json!({});
    let agent = choice::chosen(client, NamedKind::Agent, "agent", &supposed.agent).await?;
    if let Some(agent) = agent {
        let enabled = supposed.enabled != "false";
        changes["agents"] = json!([{"id": agent, "enabled": enabled}]);
    }
    let number = &supposed.number;
    if !number.is_empty() {
        let holder = choice::chosen(client, NamedKind::Agent, "holder", &supposed.holder).await?;
        changes["numbers"] = json!([{"phone_number": number, "agent_id": holder}]);
    }

    let body = json!({"start_date": written(now - WEEK), "limit": MOST_CALLS, "changes": changes});
    client.ask("/phone/sip/route-replay", &body).await
}

/// Calls that would have gone to another agent, each with both.
fn moved_calls(visitor: &Visitor, replayed: &ReplayView, names: &Names) -> Markup {
    let columns = ["Call", "From", "To", "Went to", "Would go to"];

    let rows: Vec<_> = replayed
        .items
        .iter()
        .map(|call| {
            let page = visitor.path(&format!("calls/{}", call.call_id));
            vec![
                html! { a.row href=(page) { (time(&call.started_at)) } },
                html! { (call.from_number) },
                html! { (call.to_number) },
                outcome(visitor, call.before, names),
                outcome(visitor, call.after, names),
            ]
        })
        .collect();

    html! {
        p {
            "Of " (replayed.calls) " calls, " strong { (replayed.elsewhere) } " would have gone to another agent."
            @if replayed.unrouted > 0 { " " (replayed.unrouted) " had no decision to compare with." }
            @if !replayed.complete { " Only the newest " (replayed.calls) " calls were looked at." }
            @if !replayed.all_listed { " The newest " (rows.len()) " are listed." }
        }
        @if !rows.is_empty() { (table("Calls that would have gone to another agent", &columns, &rows, "")) }
    }
}
