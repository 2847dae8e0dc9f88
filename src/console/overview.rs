//! First page of an org: the steps to its first call, ticked off by what really happened, and the newest calls and handoffs.

use maud::{Markup, html};
use trunkline_model::handoff::Sentiment;

use super::attention::{Known, attention};
use super::calls;
use super::document::{card, spaced, table, time};
use super::frame::{Section, page};
use super::names::Names;
use super::page::{ErrorPage, Html};
use super::visitor::Visitor;
use crate::api::handoff_analytics::HandoffView;
use crate::api::page::Page;
use crate::api::phone::{AgentView, CallView, NumberView, OutboundTrunkView};

/// `GET /dashboard/{org_id}`
pub(super) async fn show(visitor: Visitor) -> Result<Html, ErrorPage> {
    let agents: Vec<AgentView> = visitor.client.all("/phone").await?;
    let numbers: Vec<NumberView> = visitor.client.all("/phone/numbers").await?;
    let newest: Page<CallView> = visitor.client.get("/phone/calls?limit=10").await?;
    let handoffs: Page<HandoffView> = visitor
        .client
        .get("/handoff-analytics/events?limit=5")
        .await?;
    let trunk = super::trunk::found(&visitor).await?;
    let outbound_trunks: Vec<OutboundTrunkView> =
        visitor.client.all("/phone/sip/outbound-trunks").await?;
    // Reading webhooks needs `webhooks:write` too, which a session that only reads lacks.
    let webhooks = match visitor.writes() {
        true => visitor.client.all("/webhooks").await?,
        false => Vec::new(),
    };

    let mentioned = newest.items.iter().filter_map(|call| call.agent_id);
    let names = Names::of(&visitor.client, mentioned.collect()).await?;
    let attention = attention(
        &visitor,
        Known {
            agents: &agents,
            numbers: &numbers,
            outbound_trunks: &outbound_trunks,
            inbound_trunk: trunk.as_ref(),
            webhooks: &webhooks,
        },
    );
    let steps = steps(trunk.is_some(), &agents, &numbers, &newest.items);
    let is_new = steps.iter().any(|step| !step.is_done);
    let content = html! {
        @if let Some(attention) = attention { (attention) }
        @if is_new { (card("steps", "First steps", &checklist(&visitor, &steps))) }
        (calls::recent(&visitor, &newest, &names))
        (card("handoffs", "Recent handoffs", &handed_off(&handoffs.items)))
    };
    Ok(page(&visitor, Section::Overview, "Overview", &content))
}

/// A step towards the first call.
struct Step {
    is_done: bool,
    title: &'static str,
    text: &'static str,
    /// Page on which it is done.
    at: &'static str,
}

fn steps(
    has_trunk: bool,
    agents: &[AgentView],
    numbers: &[NumberView],
    calls: &[CallView],
) -> [Step; 5] {
    let is_enabled = |agent: &AgentView| agent.enabled;
    let is_verified = |number: &NumberView| number.verified;
    let is_assigned = |number: &NumberView| number.verified && number.agent_id.is_some();

    [
        Step {
            is_done: has_trunk,
            title: "Create the inbound trunk",
            text: "It gives your phone system an address, a user name and a password.",
            at: "trunk",
        },
        Step {
            is_done: agents.iter().any(is_enabled),
            title: match agents.is_empty() {
                true => "Create an agent",
                false => "Enable an agent",
            },
            text: "With the echo runtime it sends back what the caller says: enough for a first call.",
            at: match agents.is_empty() {
                true => "agents/new",
                false => "agents",
            },
        },
        Step {
            is_done: numbers.iter().any(is_verified),
            title: "Add and verify a number",
            text: "The number that your phone system sends here.",
            at: "numbers",
        },
        Step {
            is_done: numbers.iter().any(is_assigned),
            title: "Assign the number to the agent",
            text: "On the agent's page.",
            at: "agents",
        },
        Step {
            is_done: !calls.is_empty(),
            title: "Place the first call",
            text: "From the phone in this console, or from your phone system with the settings of the trunk's page.",
            at: "phone",
        },
    ]
}

fn checklist(visitor: &Visitor, steps: &[Step]) -> Markup {
    html! {
        ol.steps {
            @for step in steps {
                li class=[step.is_done.then_some("done")] {
                    span.tick aria-hidden="true" { @if step.is_done { "✓" } }
                    div {
                        // A member who only reads may not open the forms.
                        strong { @if step.is_done || !visitor.writes() { (step.title) } @else { a href=(visitor.path(step.at)) { (step.title) } } }
                        @if step.is_done { span.unseen { " (done)" } }
                        p.soft { (step.text) }
                    }
                }
            }
        }
    }
}

fn handed_off(handoffs: &[HandoffView]) -> Markup {
    let columns = ["When", "Summary", "Reasons", "Sentiment"];
    let rows: Vec<_> = handoffs
        .iter()
        .map(|handoff| {
            let reasons = handoff.reasons.iter();
            let reasons: Vec<_> = reasons.map(|reason| spaced(reason.as_str())).collect();
            vec![
                time(&handoff.created_at),
                html! { (handoff.summary) },
                html! { (reasons.join(", ")) },
                html! { (handoff.sentiment.map_or("none", Sentiment::as_str)) },
            ]
        })
        .collect();

    table(
        "Recent handoffs",
        &columns,
        &rows,
        "Nothing was handed to a human yet.",
    )
}
