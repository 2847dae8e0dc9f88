//! Pages of outbound trunks, through which agents call out, and of transfer destinations.

use maud::{Markup, html};
use serde_json::Value;

use super::backend::text;
use super::calls::{LAST_OF_TRUNK, last_of_trunk};
use super::document::{Tone, badge, card, spaced, time_or};
use super::fields::{Field, Input, choices};
use super::frame::Section;
use super::names::Names;
use super::resource::{Beside, Resource};
use super::visitor::Visitor;

pub(super) const OUTBOUND_TRUNKS: Resource = Resource {
    at: "outbound-trunks",
    api: "/phone/sip/outbound-trunks",
    parameter: "trunk_id",
    section: Section::OutboundTrunks,
    title: "Outbound trunks",
    noun: "outbound trunk",
    about: "Calls that agents make leave through a trunk: a carrier, or the registered phone system.",
    empty: "There is no outbound trunk yet: agents can't call out.",
    columns: &["Name", "Leads to", "Caller's number", "State"],
    cells: trunk_cells,
    name: |trunk| text(trunk, "name").to_owned(),
    mentions: &[],
    needs: &[],
    needs_of_one: &[LAST_OF_TRUNK],
    choices: &[],
    fields: trunk_fields,
    changeable: trunk_changes,
    tidy: |_| {},
    beside,
    secret: None,
    delete: "It can be deleted once no agent dials through it.",
    actions: &[],
};

pub(super) const DESTINATIONS: Resource = Resource {
    at: "destinations",
    api: "/phone/sip/transfer-destinations",
    parameter: "destination_id",
    section: Section::Destinations,
    title: "Destinations",
    noun: "destination",
    about: "People and desks that agents transfer calls to. Give them to an agent on its page.",
    empty: "There is no destination yet: agents can't transfer calls.",
    columns: &["Name", "Leads to", "By way of"],
    cells: destination_cells,
    name: |destination| text(destination, "name").to_owned(),
    mentions: &[],
    needs: &[],
    needs_of_one: &[],
    choices: &[],
    fields: destination_fields,
    changeable: destination_fields,
    tidy: |_| {},
    beside: |_, _, _| Markup::default(),
    secret: None,
    delete: "Agents can't transfer calls to it any more.",
    actions: &[],
};

fn leads_to(trunk: &Value) -> Markup {
    let host = text(trunk, "host");
    html! {
        @if trunk["to_registered"] == true { "the registered phone system" }
        @else { code { (host) @if let Some(port) = trunk["port"].as_u64() { ":" (port) } } " by " (text(trunk, "transport")) }
    }
}

fn trunk_state(trunk: &Value) -> Markup {
    let registration = text(&trunk["registration"], "status");
    html! {
        @match trunk["reachable"].as_bool() {
            Some(true) => (badge(Tone::Good, "reachable")),
            Some(false) => (badge(Tone::Bad, "unreachable")),
            None => (badge(Tone::Quiet, "not asked")),
        }
        @if !registration.is_empty() {
            " " (badge(if registration == "registered" { Tone::Good } else { Tone::Warn }, &spaced(registration)))
        }
    }
}

fn trunk_cells(_: &Visitor, trunk: &Value, _: &Names) -> Vec<Markup> {
    vec![
        html! { (text(trunk, "name")) },
        leads_to(trunk),
        html! { (text(trunk, "caller_number")) },
        trunk_state(trunk),
    ]
}

fn transfer_way() -> Field {
    Field::new(
        "transfer_way",
        "Transfers",
        Input::Select(choices(&[
            ("refer", "Ask the other side (REFER)"),
            ("bridge", "Call the destination from here"),
            ("auto", "Whichever is safe for the caller"),
        ])),
    )
}

fn trunk_fields(_: &[Value]) -> Vec<Field> {
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
        transfer_way(),
    ]
}

fn trunk_changes(_: &[Value]) -> Vec<Field> {
    vec![Field::new("name", "Name", Input::Text), transfer_way()]
}

fn beside(visitor: &Visitor, trunk: &Value, beside: &Beside) -> Markup {
    let calls = beside.needs.first().unwrap_or(&Value::Null);
    let calls = last_of_trunk(visitor, text(trunk, "id"), calls);
    html! {
        (trunk_facts(trunk))
        (card("last-calls", "Last calls", &calls))
    }
}

fn trunk_facts(trunk: &Value) -> Markup {
    let registration = &trunk["registration"];

    card(
        "trunk",
        "This trunk",
        &html! {
            dl {
                dt { "State" } dd { (trunk_state(trunk)) }
                dt { "Leads to" } dd { (leads_to(trunk)) }
                dt { "Caller's number" } dd { (text(trunk, "caller_number")) }
                @if let Some(name) = trunk["username"].as_str() { dt { "User name" } dd { code { (name) } } }
                @if !registration.is_null() {
                    dt { "Registered" } dd { (time_or(registration["registered_at"].as_str(), "not yet")) }
                    @if let Some(code) = registration["sip_code"].as_u64() { dt { "Last answer" } dd { (code) } }
                }
                dt { "Transfers" }
                dd {
                    (match text(&trunk["transfer_way_in_force"], "way") {
                        "bridge" => "Called from here",
                        _ => "By REFER",
                    })
                    ": " span.soft { (text(&trunk["transfer_way_in_force"], "explanation")) }
                }
            }
            p.soft { "Host, credentials and limits are set when a trunk is created: to change them, create another and move your agents to it." }
        },
    )
}

fn destination_cells(_: &Visitor, destination: &Value, _: &Names) -> Vec<Markup> {
    vec![
        html! { (text(destination, "name")) },
        html! { code { (text(destination, "value")) } },
        html! { (via(text(destination, "via"))) },
    ]
}

fn via(word: &str) -> &'static str {
    match word {
        "trunk" => "the agent's outbound trunk",
        _ => "the phone system of the call",
    }
}

fn destination_fields(_: &[Value]) -> Vec<Field> {
    vec![
        Field::new("name", "Name", Input::Text).help("Agents choose a destination by its name."),
        Field::new(
            "type",
            "Type",
            Input::Select(choices(&[
                ("phone", "Telephone number"),
                ("sip", "SIP address"),
            ])),
        ),
        Field::new("value", "Number or address", Input::Text)
            .help("Such as +442071838750, or sip:desk@pbx.example.com."),
        Field::new(
            "via",
            "By way of",
            Input::Select(choices(&[("pbx", via("pbx")), ("trunk", via("trunk"))])),
        ),
    ]
}
