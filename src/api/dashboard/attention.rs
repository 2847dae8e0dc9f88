//! Card of the overview about settings and peers that keep calls from arriving now, each with the page that shows more.

use maud::{Markup, html};
use serde_json::Value;

use super::backend::{items, text};
use super::document::{Tone, badge, card};
use super::visitor::Visitor;

/// Answers of the API by which the card judges the org.
#[derive(Copy, Clone, Debug)]
pub(super) struct Known<'v> {
    pub(super) agents: &'v Value,
    pub(super) numbers: &'v Value,
    pub(super) outbound_trunks: &'v Value,
    pub(super) inbound_trunk: Option<&'v Value>,
    /// JSON `null` if the visitor may not see webhooks.
    pub(super) webhooks: &'v Value,
}

/// Problem that a person has to look at: its sentence, and the path of its page below the org's.
#[derive(PartialEq, Eq, Debug)]
struct Concern {
    sentence: String,
    at: String,
}

fn concerns(known: Known<'_>) -> Vec<Concern> {
    let of_trunk = items(known.outbound_trunks).iter().filter_map(|trunk| {
        let name = text(trunk, "name");
        let registration = text(&trunk["registration"], "status");
        let sentence = match (trunk["reachable"] == false, registration) {
            (true, _) => format!("The outbound trunk {name} doesn't answer."),
            (false, "failed") => format!("The outbound trunk {name} can't register."),
            (false, _) => return None,
        };
        let at = format!("outbound-trunks/{}", text(trunk, "id"));
        Some(Concern { sentence, at })
    });

    let registrations = known
        .inbound_trunk
        .and_then(|trunk| trunk["registrations"].as_array());
    let lost = registrations
        .into_iter()
        .flatten()
        .filter(|registration| registration["reachable"] == false)
        .map(|registration| Concern {
            sentence: format!(
                "The phone system registered from {} doesn't answer.",
                text(registration, "source")
            ),
            at: "trunk".to_owned(),
        });

    let of_number = items(known.numbers).iter().filter_map(|number| {
        let phone_number = text(number, "phone_number");
        let agent = items(known.agents)
            .iter()
            .find(|agent| agent["id"] == number["agent_id"])?;
        (number["verified"] == true && agent["enabled"] == false).then(|| Concern {
            sentence: format!(
                "{phone_number} is assigned to the agent {}, which is disabled.",
                text(agent, "name")
            ),
            at: format!("agents/{}", text(agent, "id")),
        })
    });

    let of_webhook = items(known.webhooks).iter().filter_map(|webhook| {
        let reason = webhook["disabled_reason"].as_str()?;
        Some(Concern {
            sentence: format!(
                "The webhook {} was disabled: {reason}",
                text(webhook, "url")
            ),
            at: format!("webhooks/{}", text(webhook, "id")),
        })
    });

    of_trunk
        .chain(lost)
        .chain(of_number)
        .chain(of_webhook)
        .collect()
}

/// Returns the card; `None` if there is no problem.
pub(super) fn attention(visitor: &Visitor, known: Known<'_>) -> Option<Markup> {
    let concerns = concerns(known);
    (!concerns.is_empty()).then(|| {
        let list = html! {
            ul.findings {
                @for concern in &concerns {
                    li {
                        (badge(Tone::Warn, "look"))
                        a href=(visitor.path(&concern.at)) { (concern.sentence) }
                    }
                }
            }
        };
        card("attention", "Needs attention", &list)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_keeps_calls_away_is_named_with_its_page() {
        let known = Known {
            agents: &json!({"items": [{"id": "a", "name": "Echo", "enabled": false}]}),
            numbers: &json!({"items": [
                {"phone_number": "+12025550123", "verified": true, "agent_id": "a"},
                {"phone_number": "+12025550124", "verified": true, "agent_id": null},
            ]}),
            outbound_trunks: &json!({"items": [
                {"id": "t", "name": "Carrier", "reachable": false},
                {"id": "u", "name": "Other", "reachable": null, "registration": {"status": "registered"}},
            ]}),
            inbound_trunk: Some(
                &json!({"registrations": [{"source": "192.0.2.7:5060", "reachable": false}]}),
            ),
            webhooks: &json!({"items": [{"id": "w", "url": "https://x", "disabled_reason": null}]}),
        };
        let places: Vec<_> = concerns(known)
            .into_iter()
            .map(|concern| concern.at)
            .collect();
        assert_eq!(places, ["outbound-trunks/t", "trunk", "agents/a"]);
    }
}
