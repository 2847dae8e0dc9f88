//! One sentence of cause for a call that was not completed, and the page on which it is fixed.

use maud::{Markup, html};
use trunkline_calls::Reason;
use trunkline_model::record::Status;

use super::visitor::Visitor;
use crate::api::phone::CallView;
use crate::explain::call::Explanation;

/// Returns true for the status of a call that went as it should.
const fn is_fine(status: Status) -> bool {
    match status {
        Status::Queued
        | Status::Ringing
        | Status::InProgress
        | Status::Completed
        | Status::Transferred
        | Status::Canceled => true,
        Status::Busy | Status::NoAnswer | Status::Failed | Status::Refused | Status::Lost => false,
    }
}

/// Cause of a failed call, with the fix; `None` for a call that succeeded.
pub(super) fn cause(visitor: &Visitor, call: &CallView, explained: &Explanation) -> Option<Markup> {
    if is_fine(call.status) {
        return None;
    }

    let known = call.reason.as_deref().and_then(Reason::from_code);
    Some(html! {
        div.banner.bad {
            p {
                strong { (known.map_or("The call failed", Reason::sentence)) "." }
                @if let Some(code) = call.sip_code { " The caller was answered " (code) "." }
            }
            @for attempt in &explained.attempts { p { (attempt.explanation) } }
            @if let Some(fix) = known.and_then(|reason| fix(visitor, call, reason)) { p.fix { (fix) } }
        }
    })
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "most reasons have nothing that this org could change"
)]
fn fix(visitor: &Visitor, call: &CallView, reason: Reason) -> Option<Markup> {
    let agent = call.agent_id.map(|id| format!("agents/{id}"));
    let agents = visitor.path(agent.as_deref().unwrap_or("agents"));

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
