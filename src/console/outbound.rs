//! Pages of outbound trunks, through which agents call out, and of transfer destinations.

use maud::{Markup, html};
use trunkline_calls::peers::registrations::State;
use trunkline_model::settings::Via;
use trunkline_model::transfer::TransferMethod;
use uuid::Uuid;

use super::backend::{BackendRefusal, Client};
use super::calls::last_of_trunk;
use super::document::{Tone, badge, card, spaced, time_or};
use super::fields::{Field, Input, choices};
use super::frame::Section;
use super::names::Names;
use super::resource::{Kind, Resource};
use super::visitor::Visitor;
use crate::api::phone::{DestinationView, OutboundTrunkView};

impl Resource for OutboundTrunkView {
    const KIND: Kind = Kind {
        at: "outbound-trunks",
        api: "/phone/sip/outbound-trunks",
        parameter: "trunk_id",
        section: Section::OutboundTrunks,
        title: "Outbound trunks",
        noun: "outbound trunk",
        about: "Calls that agents make leave through a trunk: a carrier, or the registered phone system.",
        empty: "There is no outbound trunk yet: agents can't call out.",
        columns: &["Name", "Leads to", "Caller's number", "State"],
        delete: "It can be deleted once no agent dials through it.",
        actions: &[],
    };

    fn id(&self) -> Uuid {
        self.id
    }

    fn title(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> &str {
        &self.updated_at
    }

    fn cells(&self, _: &Names) -> Vec<Markup> {
        vec![
            html! { (self.name) },
            leads_to(self),
            html! { (self.caller_number) },
            trunk_state(self),
        ]
    }

    async fn fields(trunk: Option<&Self>, _: &Client) -> Result<Vec<Field>, BackendRefusal> {
        Ok(match trunk {
            Some(trunk) => vec![
                Field::new("name", "Name", Input::Text).holds(&*trunk.name),
                transfer_way(Some(trunk)),
            ],
            None => new_trunk(),
        })
    }

    async fn beside(&self, visitor: &Visitor) -> Result<Markup, BackendRefusal> {
        let calls = last_of_trunk(visitor, self.id).await?;
        Ok(html! {
            (trunk_facts(self))
            (card("last-calls", "Last calls", &calls))
        })
    }
}

impl Resource for DestinationView {
    const KIND: Kind = Kind {
        at: "destinations",
        api: "/phone/sip/transfer-destinations",
        parameter: "destination_id",
        section: Section::Destinations,
        title: "Destinations",
        noun: "destination",
        about: "People and desks that agents transfer calls to. Give them to an agent on its page.",
        empty: "There is no destination yet: agents can't transfer calls.",
        columns: &["Name", "Leads to", "By way of"],
        delete: "Agents can't transfer calls to it any more.",
        actions: &[],
    };

    fn id(&self) -> Uuid {
        self.id
    }

    fn title(&self) -> String {
        self.name.clone()
    }

    fn version(&self) -> &str {
        &self.updated_at
    }

    fn cells(&self, _: &Names) -> Vec<Markup> {
        vec![
            html! { (self.name) },
            html! { code { (self.value) } },
            html! { (title(self.via)) },
        ]
    }

    async fn fields(destination: Option<&Self>, _: &Client) -> Result<Vec<Field>, BackendRefusal> {
        Ok(destination_fields(destination))
    }

    async fn beside(&self, _: &Visitor) -> Result<Markup, BackendRefusal> {
        Ok(Markup::default())
    }
}

fn leads_to(trunk: &OutboundTrunkView) -> Markup {
    html! {
        @if trunk.to_registered { "the registered phone system" }
        @else { code { (trunk.host.as_deref().unwrap_or_default()) @if let Some(port) = trunk.port { ":" (port) } } " by " (trunk.transport) }
    }
}

fn trunk_state(trunk: &OutboundTrunkView) -> Markup {
    html! {
        @match trunk.reachable {
            Some(true) => (badge(Tone::Good, "reachable")),
            Some(false) => (badge(Tone::Bad, "unreachable")),
            None => (badge(Tone::Quiet, "not asked")),
        }
        @if let Some(registration) = &trunk.registration {
            " " (badge(if registration.status == State::Registered { Tone::Good } else { Tone::Warn }, &spaced(registration.status.as_str())))
        }
    }
}

fn transfer_way(trunk: Option<&OutboundTrunkView>) -> Field {
    Field::new(
        "transfer_way",
        "Transfers",
        Input::Select(choices(&[
            ("refer", "Ask the other side (REFER)"),
            ("bridge", "Call the destination from here"),
            ("auto", "Whichever is safe for the caller"),
        ])),
    )
    .holds(trunk.map(|trunk| trunk.transfer_way.as_str()))
}

fn new_trunk() -> Vec<Field> {
    vec![
        Field::new("name", "Name", Input::Text),
        Field::new("host", "Host", Input::Text).help(
            "Name or address of the carrier. Leave it empty to use the registered phone system.",
        ),
        Field::new("port", "Port", Input::Number)
            .help("Empty: the usual one, or what the name's DNS records say."),
        Field::new(
            "transport",
            "Transport",
            Input::Select(choices(&[("udp", "UDP"), ("tcp", "TCP"), ("tls", "TLS")])),
        ),
        Field::new(
            "to_registered",
            "Leads to the registered phone system",
            Input::Check,
        ),
        Field::new("caller_number", "Caller's number", Input::Text)
            .help("One of your verified numbers, shown to the people who are called."),
        Field::new("username", "User name", Input::Text),
        Field::new("password", "Password", Input::Secret),
        Field::new("register", "Register with the carrier", Input::Check),
        Field::new("max_concurrent_calls", "Most calls at once", Input::Number),
        Field::new("calls_per_second", "Most new calls a second", Input::Number),
        transfer_way(None),
    ]
}

fn trunk_facts(trunk: &OutboundTrunkView) -> Markup {
    card(
        "trunk",
        "This trunk",
        &html! {
            dl {
                dt { "State" } dd { (trunk_state(trunk)) }
                dt { "Leads to" } dd { (leads_to(trunk)) }
                dt { "Caller's number" } dd { (trunk.caller_number) }
                @if let Some(name) = &trunk.username { dt { "User name" } dd { code { (name) } } }
                @if let Some(registration) = &trunk.registration {
                    dt { "Registered" } dd { (time_or(registration.registered_at.as_deref(), "not yet")) }
                    @if let Some(code) = registration.sip_code { dt { "Last answer" } dd { (code) } }
                }
                dt { "Transfers" }
                dd {
                    (match trunk.transfer_way_in_force.way {
                        TransferMethod::Bridge => "Called from here",
                        TransferMethod::Refer => "By REFER",
                    })
                    ": " span.soft { (trunk.transfer_way_in_force.explanation) }
                }
            }
            p.soft { "Host, credentials and limits are set when a trunk is created: to change them, create another and move your agents to it." }
        },
    )
}

const fn title(via: Via) -> &'static str {
    match via {
        Via::Trunk => "the agent's outbound trunk",
        Via::Pbx => "the phone system of the call",
    }
}

fn destination_fields(destination: Option<&DestinationView>) -> Vec<Field> {
    vec![
        Field::new("name", "Name", Input::Text)
            .holds(destination.map(|destination| &*destination.name))
            .help("Agents choose a destination by its name."),
        Field::new(
            "type",
            "Type",
            Input::Select(choices(&[
                ("phone", "Telephone number"),
                ("sip", "SIP address"),
            ])),
        )
        .holds(destination.map(|destination| &*destination.r#type)),
        Field::new("value", "Number or address", Input::Text)
            .holds(destination.map(|destination| &*destination.value))
            .help("Such as +442071838750, or sip:desk@pbx.example.com."),
        Field::new(
            "via",
            "By way of",
            Input::Select(choices(
                &[Via::Pbx, Via::Trunk].map(|via| (via.as_str(), title(via))),
            )),
        )
        .holds(destination.map(|destination| destination.via.as_str())),
    ]
}
