//! Pages of agents: settings, the numbers that each answers, the trunk that it dials through, and its transfer destinations.

use axum::http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};
use trunkline_model::builtin;
use trunkline_model::settings::Runtime;
use trunkline_store::AgentKind;
use trunkline_store::names::NamedKind;
use uuid::Uuid;

use super::backend::{BackendRefusal, Client};
use super::choice::Choice;
use super::document::{Tone, badge, card};
use super::fields::{Field, Input, choices, inputs};
use super::forms::token;
use super::frame::Section;
use super::names::Names;
use super::resource::{Action, Kind, Resource};
use super::visitor::Visitor;
use crate::api::phone::{AgentView, ConfigView, DestinationView, InboundNumber, OutboundTrunkView};
use crate::config::Voice;

impl Resource for AgentView {
    const KIND: Kind = Kind {
        at: "agents",
        api: "/phone",
        parameter: "agent_id",
        section: Section::Agents,
        title: "Agents",
        noun: "agent",
        about: "An agent answers calls or makes them. Its runtime is the software that speaks for it.",
        empty: "There is no agent yet. Create one, then assign it a number.",
        columns: &["Name", "Type", "State", "Runtime", "Language"],
        delete: "Its numbers are free for other agents. Calls that are up continue.",
        actions: &[
            Action {
                at: "inbound-numbers",
                method: Method::POST,
                api: "/phone/sip/agents/{id}/inbound-numbers",
                named: None,
                choice: Some(("number", NamedKind::Number)),
                body: |_, number| json!({"phone_number_id": number}),
            },
            Action {
                at: "inbound-numbers/remove",
                method: Method::DELETE,
                api: "/phone/sip/agents/{id}/inbound-numbers/{named}",
                named: Some("number_id"),
                choice: None,
                body: |_, _| Value::Null,
            },
            Action {
                at: "outbound-trunk",
                method: Method::PUT,
                api: "/phone/sip/agents/{id}/outbound-trunk",
                named: None,
                choice: Some(("trunk_id", NamedKind::OutboundTrunk)),
                body: |_, trunk| json!({"trunk_id": trunk}),
            },
            Action {
                at: "destinations",
                method: Method::POST,
                api: "/phone/sip/agents/{id}/transfer-destinations",
                named: None,
                choice: Some(("destination_id", NamedKind::Destination)),
                body: |_, destination| json!({"destination_id": destination}),
            },
            Action {
                at: "destinations/remove",
                method: Method::DELETE,
                api: "/phone/sip/agents/{id}/transfer-destinations/{named}",
                named: Some("destination_id"),
                choice: None,
                body: |_, _| Value::Null,
            },
        ],
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
        let kind = match self.r#type {
            AgentKind::Inbound => "answers",
            AgentKind::Outbound => "calls out",
        };

        vec![
            html! { (self.name) },
            html! { (kind) },
            match self.enabled {
                true => badge(Tone::Good, "enabled"),
                false => badge(Tone::Quiet, "disabled"),
            },
            runtime(self),
            html! { (self.language) },
        ]
    }

    async fn fields(agent: Option<&Self>, client: &Client) -> Result<Vec<Field>, BackendRefusal> {
        let voices: Vec<Voice> = client.all("/phone/voices").await?;
        Ok(fields(agent, voices))
    }

    fn nested(&self) -> Value {
        json!({"runtime": self.runtime})
    }

    fn tidy(body: &mut Value) {
        tidy(body);
    }

    async fn beside(&self, visitor: &Visitor) -> Result<Markup, BackendRefusal> {
        let path = format!("/phone/sip/agents/{}/config", self.id);
        let config: ConfigView = visitor.client.get(&path).await?;
        let numbers = choice_of(visitor, NamedKind::Number).await?;
        let trunks = choice_of(visitor, NamedKind::OutboundTrunk).await?;
        let destinations = choice_of(visitor, NamedKind::Destination).await?;

        Ok(html! {
            (card("numbers", "Numbers it answers", &own_numbers(visitor, self, &config.inbound_numbers, numbers)))
            (card("outbound", "Trunk it dials through", &own_trunk(visitor, self, config.outbound_trunk.as_ref(), trunks)))
            (card("transfers", "Where it may transfer to", &own_destinations(visitor, self, &config.transfer_destinations, destinations)))
        })
    }
}

/// Reads what can be chosen. Only who may change things chooses.
async fn choice_of(visitor: &Visitor, kind: NamedKind) -> Result<Option<Choice>, BackendRefusal> {
    match visitor.writes() {
        true => Choice::of(visitor, kind).await.map(Some),
        false => Ok(None),
    }
}

fn runtime(agent: &AgentView) -> Markup {
    match agent.runtime.as_ref().map(|view| &view.runtime) {
        Some(Runtime::Echo) => html! { "echo" },
        Some(Runtime::Builtin { .. }) => html! { "built-in" },
        Some(Runtime::Sip { uri, .. } | Runtime::WebSocket { uri, .. }) => {
            html! { code { (uri) } }
        }
        None => html! { span.soft { "default" } },
    }
}

/// Values of a runtime that the form has fields for; all are empty for the default runtime.
#[derive(Copy, Clone, Debug, Default)]
struct RuntimeValues<'r> {
    r#type: &'static str,
    uri: &'r str,
    fallbacks: &'r [Box<str>],
    username: &'r str,
    session_token: bool,
}

impl<'r> RuntimeValues<'r> {
    fn of(runtime: &'r Runtime) -> Self {
        let none = Self::default();
        match runtime {
            Runtime::Echo => Self {
                r#type: "echo",
                ..none
            },
            Runtime::Sip {
                uri,
                fallbacks,
                session_token,
                login,
                ..
            } => Self {
                r#type: "sip",
                uri,
                fallbacks,
                username: login.as_ref().map_or("", |login| &login.user),
                session_token: *session_token,
            },
            Runtime::WebSocket { uri, fallbacks, .. } => Self {
                r#type: "websocket",
                uri,
                fallbacks,
                ..none
            },
            Runtime::Builtin { fallbacks, .. } => Self {
                r#type: "builtin",
                fallbacks,
                ..none
            },
        }
    }
}

fn fields(agent: Option<&AgentView>, voices: Vec<Voice>) -> Vec<Field> {
    let runtime = agent.and_then(|agent| agent.runtime.as_ref());
    let runtime = runtime.map_or_else(RuntimeValues::default, |view| {
        RuntimeValues::of(&view.runtime)
    });
    let mut voice = choices(&[("", "None")]);
    voice.extend(
        voices
            .into_iter()
            .map(|voice| (voice.id.into(), voice.name.into())),
    );

    vec![
        Field::new("name", "Name", Input::Text).holds(agent.map(|agent| &*agent.name)),
        Field::new("enabled", "Enabled: takes calls", Input::Check)
            .holds(agent.is_none_or(|agent| agent.enabled)),
        Field::new(
            "type",
            "Type",
            Input::Select(choices(&[
                ("inbound", "Answers calls, and may call out"),
                ("outbound", "Only calls out"),
            ])),
        )
        .holds(agent.map(|agent| agent.r#type.as_str())),
        Field::new("language", "Language", Input::Text)
            .holds(agent.map_or("en", |agent| &agent.language))
            .help("A BCP 47 tag, such as en, de-CH or pt-BR."),
        Field::new("first_message", "First message", Input::Area)
            .holds(agent.map(|agent| &*agent.first_message))
            .help("Passed to the runtime, which may say it first."),
        Field::new("voice_id", "Voice", Input::Select(voice))
            .holds(agent.and_then(|agent| agent.voice_id.as_deref())),
        Field::new("use_org_knowledgebase", "Uses the organization's knowledge base", Input::Check)
            .holds(agent.map(|agent| agent.use_org_knowledgebase)),
        Field::new("handoff_phone_number", "Number for handoffs", Input::Text)
            .holds(agent.and_then(|agent| Some(agent.handoff_phone_number.as_ref()?.as_str())))
            .help("E.164, such as +442071838750."),
        Field::new("max_concurrent_calls", "Most calls at once", Input::Number)
            .holds(agent.and_then(|agent| agent.max_concurrent_calls))
            .help("Empty: no limit of its own."),
        Field::new("media_timeout_s", "Seconds of silence before the caller is asked whether it is still there", Input::Number)
            .holds(agent.and_then(|agent| agent.media_timeout_s))
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
        )
        .holds(runtime.r#type),
        Field::new("runtime.uri", "Address of the runtime", Input::Text)
            .holds(runtime.uri)
            .help("Such as sip:agent@10.0.0.5, or wss://bot.example.com/media for a WebSocket. {agent_id} and {org_id} are replaced; in a SIP address {called}, {caller} and {session_id} too."),
        Field::new("runtime.fallbacks", "Fallbacks", Input::Lines)
            .holds(runtime.fallbacks)
            .help("SIP addresses and wss: URLs of bots that are tried next, one a line; five at most."),
        Field::new("runtime.username", "User name", Input::Text)
            .holds(runtime.username)
            .help("If a SIP runtime asks for credentials."),
        Field::new("runtime.password", "Password", Input::Secret)
            .help("Type it again when you change anything about a runtime with a user name."),
        Field::new("runtime.session_token", "Give the runtime a session token", Input::Check)
            .holds(runtime.session_token)
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

fn form(visitor: &Visitor, agent: &AgentView, action: &str, content: &Markup) -> Markup {
    html! {
        form method="post" action=(visitor.path(&format!("agents/{}/{action}", agent.id))) {
            (token(visitor))
            (content)
        }
    }
}

/// Form that adds what is chosen.
fn adding(visitor: &Visitor, agent: &AgentView, action: &str, field: Field, label: &str) -> Markup {
    form(
        visitor,
        agent,
        action,
        &html! {
            (inputs(&[field], None, &[]))
            div.go { button type="submit" { (label) } }
        },
    )
}

/// One of the agent's that a button removes.
#[derive(Debug)]
struct Removed<'r> {
    /// Field of the form with the id.
    field: &'static str,
    id: Option<Uuid>,
    name: &'r str,
}

/// Button that removes one of the agent's.
fn removing(visitor: &Visitor, agent: &AgentView, action: &str, removed: &Removed<'_>) -> Markup {
    let id = removed.id.map(|id| id.to_string()).unwrap_or_default();
    html! {
        @if visitor.writes() {
            (form(visitor, agent, action, &html! {
                input type="hidden" name=(removed.field) value=(id);
                button.small type="submit" aria-label={ "Remove " (removed.name) } { "Remove" }
            }))
        }
    }
}

fn own_numbers(
    visitor: &Visitor,
    agent: &AgentView,
    own: &[InboundNumber],
    choice: Option<Choice>,
) -> Markup {
    html! {
        @if own.is_empty() { p.empty { "None yet." } }
        ul.plain {
            @for number in own {
                @let removed = Removed { field: "number_id", id: Some(number.id), name: number.phone_number.as_str() };
                li {
                    span { a href=(visitor.path(&format!("numbers/{}", number.id))) { (number.phone_number) } }
                    (removing(visitor, agent, "inbound-numbers/remove", &removed))
                }
            }
        }
        @if let Some(choice) = choice {
            @let field = Field::new("number", "Number", Input::Choice(choice))
                .help("A verified number that no other agent answers.");
            (adding(visitor, agent, "inbound-numbers", field, "Add"))
        }
    }
}

fn own_trunk(
    visitor: &Visitor,
    agent: &AgentView,
    own: Option<&OutboundTrunkView>,
    choice: Option<Choice>,
) -> Markup {
    html! {
        @if let Some(trunk) = own {
            // Setting no trunk removes it.
            @let removed = Removed { field: "trunk_id", id: None, name: &trunk.name };
            ul.plain {
                li {
                    span { a href=(visitor.path(&format!("outbound-trunks/{}", trunk.id))) { (trunk.name) } }
                    (removing(visitor, agent, "outbound-trunk", &removed))
                }
            }
        } @else {
            p.empty { "None: it can't call out." }
        }
        @if let Some(choice) = choice {
            @let field = Field::new("trunk_id", "Outbound trunk", Input::Choice(choice));
            (adding(visitor, agent, "outbound-trunk", field, "Set"))
        }
    }
}

fn own_destinations(
    visitor: &Visitor,
    agent: &AgentView,
    own: &[DestinationView],
    choice: Option<Choice>,
) -> Markup {
    html! {
        @if own.is_empty() { p.empty { "Nowhere yet." } }
        ul.plain {
            @for destination in own {
                @let removed = Removed { field: "destination_id", id: Some(destination.id), name: &destination.name };
                li {
                    span { strong { (destination.name) } " " code { (destination.value) } }
                    (removing(visitor, agent, "destinations/remove", &removed))
                }
            }
        }
        @if let Some(choice) = choice {
            @let field = Field::new("destination_id", "Destination", Input::Choice(choice));
            (adding(visitor, agent, "destinations", field, "Add"))
        }
    }
}
