//! Pages of agents: settings, the numbers that each answers, the trunk that it dials through, and its transfer destinations.

use axum::http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};
use trunkline_model::builtin;
use trunkline_store::names::NamedKind;

use super::backend::{items, text};
use super::choice::Choice;
use super::document::{Tone, badge, card};
use super::fields::{Field, Filled, Input, choices, inputs};
use super::forms::token;
use super::frame::Section;
use super::names::Names;
use super::resource::{Action, Beside, Resource};
use super::visitor::Visitor;

pub(super) const AGENTS: Resource = Resource {
    at: "agents",
    api: "/phone",
    parameter: "agent_id",
    section: Section::Agents,
    title: "Agents",
    noun: "agent",
    about: "An agent answers calls or makes them. Its runtime is the software that speaks for it.",
    empty: "There is no agent yet. Create one, then assign it a number.",
    columns: &["Name", "Type", "State", "Runtime", "Language"],
    cells,
    name: |agent| text(agent, "name").to_owned(),
    mentions: &[],
    needs: &["/phone/voices"],
    needs_of_one: &["/phone/sip/agents/{id}/config"],
    choices: &[
        NamedKind::Number,
        NamedKind::OutboundTrunk,
        NamedKind::Destination,
    ],
    fields,
    changeable: fields,
    tidy,
    beside,
    secret: None,
    delete: "Its numbers are free for other agents. Calls that are up continue.",
    actions: &[
        Action {
            at: "inbound-numbers",
            method: Method::POST,
            api: "/phone/sip/agents/{id}/inbound-numbers",
            named: None,
            choice: Some(("number", NamedKind::Number)),
            body: |_, number| json!({"phone_number_id": number}),
            secret: None,
        },
        Action {
            at: "inbound-numbers/remove",
            method: Method::DELETE,
            api: "/phone/sip/agents/{id}/inbound-numbers/{named}",
            named: Some("number_id"),
            choice: None,
            body: |_, _| Value::Null,
            secret: None,
        },
        Action {
            at: "outbound-trunk",
            method: Method::PUT,
            api: "/phone/sip/agents/{id}/outbound-trunk",
            named: None,
            choice: Some(("trunk_id", NamedKind::OutboundTrunk)),
            body: |_, trunk| json!({"trunk_id": trunk}),
            secret: None,
        },
        Action {
            at: "destinations",
            method: Method::POST,
            api: "/phone/sip/agents/{id}/transfer-destinations",
            named: None,
            choice: Some(("destination_id", NamedKind::Destination)),
            body: |_, destination| json!({"destination_id": destination}),
            secret: None,
        },
        Action {
            at: "destinations/remove",
            method: Method::DELETE,
            api: "/phone/sip/agents/{id}/transfer-destinations/{named}",
            named: Some("destination_id"),
            choice: None,
            body: |_, _| Value::Null,
            secret: None,
        },
    ],
};

fn cells(_: &Visitor, agent: &Value, _: &Names) -> Vec<Markup> {
    let kind = match text(agent, "type") {
        "outbound" => "calls out",
        _ => "answers",
    };

    vec![
        html! { (text(agent, "name")) },
        html! { (kind) },
        match agent["enabled"] == true {
            true => badge(Tone::Good, "enabled"),
            false => badge(Tone::Quiet, "disabled"),
        },
        runtime(agent),
        html! { (text(agent, "language")) },
    ]
}

fn runtime(agent: &Value) -> Markup {
    match text(&agent["runtime"], "type") {
        "echo" => html! { "echo" },
        "builtin" => html! { "built-in" },
        "sip" | "websocket" => html! { code { (text(&agent["runtime"], "uri")) } },
        _ => html! { span.soft { "default" } },
    }
}

fn fields(needs: &[Value]) -> Vec<Field> {
    let voices = needs.first().map_or(&[][..], items).iter();
    let voices = voices.map(|voice| (text(voice, "id").to_owned(), text(voice, "name").to_owned()));
    let mut voice = choices(&[("", "None")]);
    voice.extend(voices);

    vec![
        Field::new("name", "Name", Input::Text),
        Field::new("enabled", "Enabled: takes calls", Input::Check).initially("on"),
        Field::new(
            "type",
            "Type",
            Input::Select(choices(&[
                ("inbound", "Answers calls, and may call out"),
                ("outbound", "Only calls out"),
            ])),
        ),
        Field::new("language", "Language", Input::Text)
            .initially("en")
            .help("A BCP 47 tag, such as en, de-CH or pt-BR."),
        Field::new("first_message", "First message", Input::Area)
            .help("Passed to the runtime, which may say it first."),
        Field::new("voice_id", "Voice", Input::Select(voice)),
        Field::new("use_org_knowledgebase", "Uses the organization's knowledge base", Input::Check),
        Field::new("handoff_phone_number", "Number for handoffs", Input::Text).help("E.164, such as +442071838750."),
        Field::new("max_concurrent_calls", "Most calls at once", Input::Number).help("Empty: no limit of its own."),
        Field::new("media_timeout_s", "Seconds of silence before the caller is asked whether it is still there", Input::Number)
            .help("For a bot on a WebSocket, the echo and the built-in agent. 0: never. Empty: the deployment's default."),

        Field::new(
            "runtime.type",
            "Runtime",
            Input::Select(choices(&[
                ("", "The deployment's default"),
                ("echo", "Echo: sends back what the caller says"),
                ("sip", "SIP: calls your software"),
                ("websocket", "WebSocket: streams audio to your bot"),
            ])),
        ),
        Field::new("runtime.uri", "Address of the runtime", Input::Text)
            .help("Such as sip:agent@10.0.0.5, or wss://bot.example.com/media for a WebSocket. {agent_id} and {org_id} are replaced; in a SIP address {called}, {caller} and {session_id} too."),
        Field::new("runtime.fallbacks", "Fallbacks", Input::Lines)
            .help("SIP addresses and wss: URLs of bots that are tried next, one a line; five at most."),
        Field::new("runtime.username", "User name", Input::Text)
            .help("If a SIP runtime asks for credentials."),
        Field::new("runtime.password", "Password", Input::Secret)
            .help("Type it again when you change anything about a runtime with a user name."),
        Field::new("runtime.session_token", "Give the runtime a session token", Input::Check)
            .help("With it a SIP runtime can hang up and transfer its own call. A bot uses the bot token, on the page of API keys."),
    ]
}

/// Fields of runtimes of types that the form can't choose. They are removed when the form makes such a runtime a SIP runtime.
const NOT_OF_SIP: [&str; 3] = ["wake", "status_callback", "status_callback_events"];

/// Makes the runtime fit its type; without a type it is the default runtime. A runtime of a type that the form can't choose keeps all its
/// fields, except a session token that is off.
fn tidy(body: &mut Value) {
    // An empty input reads as `null`, which the API doesn't take for this field: no message is an empty one.
    if body.get("first_message") == Some(&Value::Null) {
        body["first_message"] = json!("");
    }

    let Some(runtime) = body.get_mut("runtime") else {
        return;
    };

    // A form without a type is one of the default runtime.
    match runtime["type"].as_str().unwrap_or_default() {
        "" => *runtime = Value::Null,
        "echo" => *runtime = json!({"type": "echo"}),
        "sip" => {
            let fallbacks = runtime["fallbacks"].as_array();
            let has_builtin = fallbacks.is_some_and(|list| list.contains(&json!(builtin::ENTRY)));
            if let Value::Object(runtime) = runtime {
                runtime.retain(|name, _| !NOT_OF_SIP.contains(&name.as_str()));
                runtime.retain(|name, _| name != "flow" || has_builtin);
            }
        }

        _ => {
            if let Value::Object(runtime) = runtime {
                // These types have no such field, so a switch that is off must not be sent. One that is on is refused by the API.
                runtime.retain(|name, value| name != "session_token" || *value == true);
            }
        }
    }
}

fn beside(visitor: &Visitor, agent: &Value, beside: &Beside) -> Markup {
    let [config] = beside.needs.as_slice() else {
        return Markup::default();
    };
    // A person who only reads has no choices.
    let mut choices = beside.choices.iter();
    let (number, trunk, destination) = (choices.next(), choices.next(), choices.next());

    html! {
        (card("numbers", "Numbers it answers", &own_numbers(visitor, agent, config, number)))
        (card("outbound", "Trunk it dials through", &own_trunk(visitor, agent, config, trunk)))
        (card("transfers", "Where it may transfer to", &own_destinations(visitor, agent, config, destination)))
    }
}

fn form(visitor: &Visitor, agent: &Value, action: &str, content: &Markup) -> Markup {
    html! {
        form method="post" action=(visitor.path(&format!("agents/{}/{action}", text(agent, "id")))) {
            (token(visitor))
            (content)
        }
    }
}

/// Form that adds what is chosen.
fn adding(visitor: &Visitor, agent: &Value, action: &str, field: Field, label: &str) -> Markup {
    form(
        visitor,
        agent,
        action,
        &html! {
            (inputs(&[field], Filled::Empty, &[]))
            div.go { button type="submit" { (label) } }
        },
    )
}

/// Button that removes one of the agent's.
fn removing(visitor: &Visitor, agent: &Value, action: &str, field: &str, own: [&str; 2]) -> Markup {
    let [id, name] = own;
    html! {
        @if visitor.writes() {
            (form(visitor, agent, action, &html! {
                input type="hidden" name=(field) value=(id);
                button.small type="submit" aria-label={ "Remove " (name) } { "Remove" }
            }))
        }
    }
}

fn list<'c>(config: &'c Value, field: &str) -> &'c [Value] {
    config[field].as_array().map_or(&[][..], Vec::as_slice)
}

fn own_numbers(
    visitor: &Visitor,
    agent: &Value,
    config: &Value,
    choice: Option<&Choice>,
) -> Markup {
    let own = list(config, "inbound_numbers");
    html! {
        @if own.is_empty() { p.empty { "None yet." } }
        ul.plain {
            @for number in own {
                @let [id, name] = ["id", "phone_number"].map(|field| text(number, field));
                li {
                    span { a href=(visitor.path(&format!("numbers/{id}"))) { (name) } }
                    (removing(visitor, agent, "inbound-numbers/remove", "number_id", [id, name]))
                }
            }
        }
        @if let Some(choice) = choice {
            @let field = Field::new("number", "Number", Input::Choice(choice.clone()))
                .help("A verified number that no other agent answers.");
            (adding(visitor, agent, "inbound-numbers", field, "Add"))
        }
    }
}

fn own_trunk(visitor: &Visitor, agent: &Value, config: &Value, choice: Option<&Choice>) -> Markup {
    let own = &config["outbound_trunk"];
    html! {
        @if own.is_null() {
            p.empty { "None: it can't call out." }
        } @else {
            ul.plain {
                li {
                    span { a href=(visitor.path(&format!("outbound-trunks/{}", text(own, "id")))) { (text(own, "name")) } }
                    (removing(visitor, agent, "outbound-trunk", "trunk_id", ["", text(own, "name")]))
                }
            }
        }
        @if let Some(choice) = choice {
            @let field = Field::new("trunk_id", "Outbound trunk", Input::Choice(choice.clone()));
            (adding(visitor, agent, "outbound-trunk", field, "Set"))
        }
    }
}

fn own_destinations(
    visitor: &Visitor,
    agent: &Value,
    config: &Value,
    choice: Option<&Choice>,
) -> Markup {
    let own = list(config, "transfer_destinations");
    html! {
        @if own.is_empty() { p.empty { "Nowhere yet." } }
        ul.plain {
            @for destination in own {
                @let [id, name] = ["id", "name"].map(|field| text(destination, field));
                li {
                    span { strong { (name) } " " code { (text(destination, "value")) } }
                    (removing(visitor, agent, "destinations/remove", "destination_id", [id, name]))
                }
            }
        }
        @if let Some(choice) = choice {
            @let field = Field::new("destination_id", "Destination", Input::Choice(choice.clone()));
            (adding(visitor, agent, "destinations", field, "Add"))
        }
    }
}
