//! One sentence of cause for a call that was not completed, and the page on which it is fixed.

use maud::{Markup, html};
use serde_json::Value;
use trunkline_calls::Reason;

use super::backend::text;
use super::visitor::Visitor;

/// Statuses of calls that went as they should.
const FINE: [&str; 6] = [
    "queued",
    "ringing",
    "in_progress",
    "completed",
    "transferred",
    "canceled",
];

/// Cause of a failed call, with the fix; `None` for a call that succeeded.
pub(super) fn cause(visitor: &Visitor, call: &Value, explained: &Value) -> Option<Markup> {
    if FINE.contains(&text(call, "status")) {
        return None;
    }

    let reason = call["reason"].as_str();
    let known = reason.and_then(Reason::from_code);
    let attempts = explained["attempts"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    Some(html! {
        div.banner.bad {
            p {
                strong { (known.map_or("The call failed", Reason::sentence)) "." }
                @if let Some(code) = call["sip_code"].as_u64() { " The caller was answered " (code) "." }
            }
            @for attempt in attempts { p { (text(attempt, "explanation")) } }
            @if let Some(fix) = known.and_then(|reason| fix(visitor, call, reason)) { p.fix { (fix) } }
        }
    })
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most reasons have nothing that this org could change"
)]
fn fix(visitor: &Visitor, call: &Value, reason: Reason) -> Option<Markup> {
    let agent = call["agent_id"].as_str();
    let agents =
        visitor.path(&agent.map_or_else(|| "agents".to_owned(), |id| format!("agents/{id}")));

    Some(match reason {
        Reason::NoAgent => html! {
            "Enable an agent, or assign the number to one that is enabled, on " a href=(visitor.path("agents")) { "Agents" } "."
        },
        Reason::AgentBusy => {
            html! { "Raise the agent's limit of concurrent calls on " a href=(agents) { "its page" } "." }
        }
        Reason::TrunkBusy => {
            html! { "Raise the trunk's limit of concurrent calls on " a href=(visitor.path("trunk")) { "Inbound trunk" } "." }
        }

        Reason::RuntimeUnreachable
        | Reason::RuntimeRefused
        | Reason::Declined
        | Reason::SetupTimeout
        | Reason::PeerNotAllowed => html! {
            "Check the runtime's address and credentials, and add a fallback, on " a href=(agents) { "the agent's page" } "."
        },

        Reason::NoWayOut => {
            html! { "Give the agent an outbound trunk on " a href=(agents) { "its page" } "." }
        }
        Reason::TrunkUnreachable
        | Reason::TrunkAuthFailed
        | Reason::TrunkRefused
        | Reason::TrunkRate => html! {
            "Check the carrier's host and credentials on " a href=(visitor.path("outbound-trunks")) { "Outbound trunks" } "."
        },
        Reason::NotRegistered => {
            html! { "Let the phone system register: " a href=(visitor.path("trunk")) { "Inbound trunk" } " has its settings." }
        }

        _ => return None,
    })
}
