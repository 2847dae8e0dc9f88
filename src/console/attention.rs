//! Card of the overview about settings and peers that keep calls from arriving now, each with the page that shows more.

use maud::{Markup, html};
use trunkline_calls::peers::registrations::State;

use super::document::{Tone, badge, card};
use super::visitor::Visitor;
use crate::api::phone::{AgentView, InboundTrunkView, NumberView, OutboundTrunkView};
use crate::api::webhooks::WebhookView;

/// Answers of the API by which the card judges the org.
#[derive(Copy, Clone, Debug)]
pub(super) struct Known<'v> {
    pub(super) agents: &'v [AgentView],
    pub(super) numbers: &'v [NumberView],
    pub(super) outbound_trunks: &'v [OutboundTrunkView],
    pub(super) inbound_trunk: Option<&'v InboundTrunkView>,
    /// Empty if the visitor may not see webhooks.
    pub(super) webhooks: &'v [WebhookView],
}

/// Problem that a person has to look at: its sentence, and the path of its page below the org's.
#[derive(PartialEq, Eq, Debug)]
struct Concern {
    sentence: String,
    at: String,
}

fn concerns(known: Known<'_>) -> Vec<Concern> {
    let of_trunk = known.outbound_trunks.iter().filter_map(|trunk| {
        let name = &trunk.name;
        let registration = trunk.registration.as_ref().map(|known| known.status);
        let sentence = match (trunk.reachable, registration) {
            (Some(false), _) => format!("The outbound trunk {name} doesn't answer."),
            (Some(true) | None, Some(State::Failed)) => {
                format!("The outbound trunk {name} can't register.")
            }
            (
                Some(true) | None,
                Some(State::Registering | State::Registered | State::OtherNode) | None,
            ) => return None,
        };
        let at = format!("outbound-trunks/{}", trunk.id);
        Some(Concern { sentence, at })
    });

    let registrations = known
        .inbound_trunk
        .map_or(&[][..], |trunk| &trunk.registrations);
    let lost = registrations
        .iter()
        .filter(|registration| !registration.reachable)
        .map(|registration| Concern {
            sentence: format!(
                "The phone system registered from {} doesn't answer.",
                registration.source
            ),
            at: "trunk".to_owned(),
        });

    let of_number = known.numbers.iter().filter_map(|number| {
        let mut agents = known.agents.iter();
        let agent = agents.find(|agent| Some(agent.id) == number.agent_id)?;
        (number.verified && !agent.enabled).then(|| Concern {
            sentence: format!(
                "{} is assigned to the agent {}, which is disabled.",
                number.phone_number, agent.name
            ),
            at: format!("agents/{}", agent.id),
        })
    });

    let of_webhook = known.webhooks.iter().filter_map(|webhook| {
        let reason = webhook.disabled_reason.as_deref()?;
        Some(Concern {
            sentence: format!("The webhook {} was disabled: {reason}", webhook.url),
            at: format!("webhooks/{}", webhook.id),
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
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;

    /// Reads a view from these fields and from what it has as well.
    fn view<T: DeserializeOwned>(fields: Value, others: Value) -> T {
        let (Value::Object(mut view), Value::Object(fields)) = (others, fields) else {
            panic!("no objects");
        };
        view.extend(fields);
        serde_json::from_value(view.into()).expect("a view")
    }

    fn outbound_trunk(fields: Value) -> OutboundTrunkView {
        view(
            fields,
            json!({
                "name": "Carrier", "transport": "udp", "caller_number": "+12025550100", "to_registered": true, "p_asserted_identity": false,
                "register": true, "auth_realms": [], "digest_require_qop": false, "user_phone": false, "transfer_way": "refer",
                "transfer_way_in_force": {"way": "refer", "reason": "configured", "explanation": ""}, "created_at": "", "updated_at": "",
            }),
        )
    }

    fn inbound_trunk(registration: Value) -> InboundTrunkView {
        let registration = view::<Value>(
            registration,
            json!({"contact": "", "transport": "udp", "registered_at": "", "expires_at": ""}),
        );
        view(
            json!({"registrations": [registration]}),
            json!({
                "id": Uuid::nil(), "name": "", "sip_endpoint": "", "auth_realm": "", "auth_username": "", "phone_numbers": [],
                "krisp_enabled": false, "rtp_from_any_address": false, "agent_id_header": "", "allowed_addresses": [], "refer_to_format": "sip",
                "refer_headers_in_uri": false, "transfer_way": "refer", "bridge_when_refer_fails": false, "registered": true,
                "transfer_way_in_force": {"way": "refer", "reason": "configured", "explanation": ""}, "created_at": "", "updated_at": "",
            }),
        )
    }

    #[test]
    fn what_keeps_calls_away_is_named_with_its_page() {
        let [agent, silent, other, webhook] = [1, 2, 3, 4].map(Uuid::from_u128);
        let agents: [AgentView; 1] = [view(
            json!({"id": agent, "name": "Echo", "enabled": false}),
            json!({
                "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": false, "actionIds": [], "created_at": "",
                "updated_at": "",
            }),
        )];
        let number = |number: &str, agent: Option<Uuid>| -> NumberView {
            view(
                json!({"phone_number": number, "verified": true, "agent_id": agent}),
                json!({"id": Uuid::nil(), "created_at": ""}),
            )
        };

        let known = Known {
            agents: &agents,
            numbers: &[
                number("+12025550123", Some(agent)),
                number("+12025550124", None),
            ],
            outbound_trunks: &[
                outbound_trunk(json!({"id": silent, "reachable": false})),
                outbound_trunk(json!({"id": other, "registration": {"status": "registered"}})),
            ],
            inbound_trunk: Some(&inbound_trunk(
                json!({"source": "192.0.2.7:5060", "reachable": false}),
            )),
            webhooks: &[view(
                json!({"id": webhook, "url": "https://x", "disabled_reason": null}),
                json!({"types": [], "enabled": true, "created_at": "", "updated_at": ""}),
            )],
        };
        let places: Vec<_> = concerns(known)
            .into_iter()
            .map(|concern| concern.at)
            .collect();
        let expected = [
            format!("outbound-trunks/{silent}"),
            "trunk".to_owned(),
            format!("agents/{agent}"),
        ];
        assert_eq!(places, expected);
    }
}
