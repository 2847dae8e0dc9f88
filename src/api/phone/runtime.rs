//! Field `runtime` of an agent: the software that speaks for it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trunkline_model::builtin;
use trunkline_model::runtime_headers::MASK;
use trunkline_model::settings::{
    BotProtocol, CallProgress, FailoverOn, OnClose, Runtime, RuntimeLogin, Wake, is_builtin,
};
use uuid::Uuid;

use super::flow::{Steps, or_null};
use super::outbound_trunks::{CREDENTIAL, credentials};
use super::sip_uri::{pattern, reads_as_sip_uri, without_parties};
use crate::api::body::Fields;
use crate::api::field_type::{Bool, Choice, FieldType, ListOf, Parsed};
use crate::api::object::Object;
use crate::config::is_url_template;
use crate::webhooks::Target;

/// `{"type": "echo"}`, `{"type": "sip", "uri": "sip:…", "fallbacks": ["sip:…", "wss://…", "builtin:", …]}`,
/// `{"type": "websocket", "uri": "wss://…", "fallbacks": ["wss://…", "sip:…", "builtin:", …]}`, or
/// `{"type": "builtin", "flow": {…}, "fallbacks": ["wss://…", "sip:…", …]}`, with at most five fallbacks.
pub(super) const RUNTIME: Object<Runtime> = Object(read);

/// SIP URI that may contain `{agent_id}` and `{org_id}`, and in its user part `{called}`, `{caller}` and `{session_id}`.
const TEMPLATE: Parsed<Box<str>> = Parsed::new(
    "a SIP URI, in which {agent_id} and {org_id} may be used",
    |text| is_template(text).then(|| text.into()),
)
.like(pattern!(
    r"|\{agent_id\}|\{org_id\}|\{called\}|\{caller\}|\{session_id\}",
    r"|\{org_id\}"
))
.at_most(LONGEST)
.example("sip:{agent_id}@agents.example.com");

/// Maximum length in octets. With ids in place of all placeholders it grows less than fivefold.
const LONGEST: usize = 300;

/// URL of a WebSocket that may contain `{agent_id}` and `{org_id}`.
const URL: Parsed<Box<str>> = Parsed::new(
    "a wss: URL of at most 300 characters, in which {agent_id} and {org_id} may be used",
    |text| is_url(text).then(|| text.into()),
)
.like(concat!(
    r"^wss?://(([A-Za-z0-9_]{1,63}|\{org_id\})([.-][A-Za-z0-9_]{1,63}){0,6})",
    r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?",
    r"(/([A-Za-z0-9_.~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2}|\{agent_id\}|\{org_id\})*(\?[A-Za-z0-9_.~!$&'()*+,;=:@/-]*)?)?$"
))
.at_most(LONGEST)
.example("wss://bot.example.com/ws");

/// Fallback of a built-in runtime: a URL of a WebSocket or a SIP URI.
const EITHER: Parsed<Box<str>> = Parsed::new(
    "a wss: URL or a SIP URI, in which {agent_id} and {org_id} may be used",
    |text| (is_url(text) || is_template(text)).then(|| text.into()),
)
.at_most(LONGEST)
.example("sip:{agent_id}@agents.example.com");

/// URL to which the progress of calls is posted. The handlers judge it as a webhook's.
const CALLBACK: Parsed<Box<str>> =
    Parsed::new("an https: URL of at most 2,048 characters", |text| {
        Target::parse(text, true).is_ok().then(|| text.into())
    })
    .at_most(2_048)
    .example("https://bot.example.com/status");

/// Fallback of a SIP runtime or a WebSocket: a SIP URI, a URL of a WebSocket, or `builtin:`, the flow of the same runtime.
const ANY: Parsed<Box<str>> = Parsed::new(
    "a wss: URL, a SIP URI, in which {agent_id} and {org_id} may be used, or builtin:",
    |text| (is_url(text) || is_template(text) || is_builtin(text)).then(|| text.into()),
)
.at_most(LONGEST)
.example("sip:{agent_id}@agents.example.com");

/// Maximum number of fallbacks.
const FALLBACKS: usize = 5;

#[derive(Copy, Clone, Debug)]
enum Type {
    Echo,
    Sip,
    WebSocket,
    Builtin,
}

const TYPES: &[(&str, Type)] = &[
    ("echo", Type::Echo),
    ("sip", Type::Sip),
    ("websocket", Type::WebSocket),
    ("builtin", Type::Builtin),
];

/// Fields of a SIP runtime alone, of a WebSocket's alone, and of both.
const OF_SIP: [&str; 5] = [
    "failover_on",
    "headers",
    "session_token",
    "username",
    "password",
];
const OF_WEB_SOCKET: [&str; 3] = ["wake", "status_callback", "status_callback_events"];
const OF_BOTH: [&str; 4] = ["uri", "fallbacks", "protocol", "on_close"];
/// Fields of both that a built-in runtime lacks.
const NOT_OF_BUILTIN: [&str; 3] = ["uri", "protocol", "on_close"];
const FLOW: &str = "flow";

/// Adds to the schema which fields belong to which type.
fn sketch(fields: &Fields) {
    fields.amend_schema(|schema| {
        let of = schema["properties"].take();
        let any = json!({"type": ["array", "null"], "maxItems": FALLBACKS,
            "items": {"anyOf": [URL.schema(), TEMPLATE.schema(), {"const": builtin::ENTRY}]}});

        *schema = json!({"oneOf": [
            {"type": "object", "properties": {"type": {"const": "echo"}}, "required": ["type"], "additionalProperties": false},
            {
                "type": "object",
                "properties": {"type": {"const": "sip"}, "uri": TEMPLATE.schema(), "fallbacks": any,
                    "failover_on": of["failover_on"], "headers": of["headers"], "session_token": of["session_token"],
                    "username": CREDENTIAL.schema(), "password": CREDENTIAL.schema(),
                    "protocol": of["protocol"], "on_close": of["on_close"], FLOW: or_null(Steps.schema())},
                "required": ["type", "uri"],
                "dependentRequired": {"username": ["password"], "password": ["username"]},
                "additionalProperties": false,
            },
            {
                "type": "object",
                "properties": {"type": {"const": "websocket"}, "uri": URL.schema(), "fallbacks": any,
                    "protocol": of["protocol"], "wake": of["wake"], "on_close": of["on_close"],
                    "status_callback": of["status_callback"], "status_callback_events": of["status_callback_events"], FLOW: or_null(Steps.schema())},
                "required": ["type", "uri"],
                "additionalProperties": false,
            },
            {
                "type": "object",
                "properties": {"type": {"const": "builtin"}, FLOW: Steps.schema(),
                    "fallbacks": {"type": ["array", "null"], "maxItems": FALLBACKS, "items": {"anyOf": [URL.schema(), TEMPLATE.schema()]}}},
                "required": ["type", "flow"],
                "additionalProperties": false,
            },
        ]});
    });
}

const fn fallbacks(of: Parsed<Box<str>>) -> ListOf<Parsed<Box<str>>> {
    ListOf::new(of, 0..=FALLBACKS)
}

fn read(fields: &mut Fields) -> Option<Runtime> {
    let kind = fields.required("type", Choice(TYPES));
    // Asked before the fields are read, which takes them out of the object. All are read whatever the type: else those
    // of another type would be reported as unknown.
    let given = |names: &[&str]| names.iter().any(|name| fields.has(name));
    let (of_sip, of_web_socket, of_both) = (given(&OF_SIP), given(&OF_WEB_SOCKET), given(&OF_BOTH));
    let not_of_builtin = NOT_OF_BUILTIN.iter().any(|name| fields.has_value(name));

    let has_flow = fields.has_value(FLOW);

    let (one, others) = match kind {
        Some(Type::WebSocket) => (URL, ANY),
        Some(Type::Sip) => (TEMPLATE, ANY),
        Some(Type::Builtin) => (URL, EITHER),
        Some(Type::Echo) | None => (TEMPLATE, TEMPLATE),
    };

    let uri = match kind {
        Some(Type::Sip | Type::WebSocket) => fields.required("uri", one),
        Some(Type::Echo | Type::Builtin) | None => fields.optional("uri", one),
    };

    let flow = match kind {
        Some(Type::Builtin) => fields.required(FLOW, Steps),
        Some(Type::Echo | Type::Sip | Type::WebSocket) | None => fields.optional(FLOW, Steps),
    };
    let fallbacks = fields.optional("fallbacks", fallbacks(others));

    let failover_on = fields.optional("failover_on", ListOf::new(Choice(&FailoverOn::ALL), 0..=3));
    let headers = fields.optional("headers", Headers);
    let session_token = fields.optional("session_token", Bool);
    let login = credentials(fields).pair();
    let protocol = fields.optional("protocol", Choice(&BotProtocol::ALL));
    let wake = fields.optional("wake", Choice(&Wake::ALL));
    let on_close = fields.optional("on_close", Choice(&OnClose::ALL));
    let status_callback = fields.optional("status_callback", CALLBACK);
    let progress = ListOf::new(Choice(&CallProgress::ALL), 1..=4);
    let status_callback_events = fields.optional("status_callback_events", progress);
    sketch(fields);

    let fault = match kind? {
        Type::Echo if has_flow => "an echo runtime has no flow",
        Type::Builtin if not_of_builtin || of_sip || of_web_socket => {
            "a builtin runtime has flow and fallbacks, and no other field"
        }
        Type::Echo if of_sip || of_web_socket || of_both => {
            "an echo runtime has none of the fields of a SIP runtime or a WebSocket"
        }
        Type::Sip if of_web_socket => {
            "wake, status_callback and status_callback_events belong to a websocket runtime"
        }
        Type::WebSocket if of_sip => {
            "failover_on, headers, session_token, username and password belong to a sip runtime"
        }

        Type::Echo => return Some(Runtime::Echo),
        Type::Sip => {
            let fallbacks = fallbacks.unwrap_or_default();
            match_flow(fields, &fallbacks, has_flow);
            return Some(Runtime::Sip {
                uri: uri?,
                fallbacks,
                failover_on: failover_on.unwrap_or_default(),
                headers: headers.unwrap_or_default().into(),
                session_token: session_token.unwrap_or(false),
                login: login.map(|(user, password)| RuntimeLogin {
                    user: user.into(),
                    password: password.reveal().into(),
                }),
                protocol: protocol.unwrap_or_default(),
                on_close: on_close.unwrap_or_default(),
                flow,
            });
        }

        Type::Builtin => {
            return Some(Runtime::Builtin {
                flow: flow?,
                fallbacks: fallbacks.unwrap_or_default(),
            });
        }

        Type::WebSocket => {
            let fallbacks = fallbacks.unwrap_or_default();
            match_flow(fields, &fallbacks, has_flow);
            return Some(Runtime::WebSocket {
                uri: uri?,
                fallbacks,
                flow,
                protocol: protocol.unwrap_or_default(),
                wake: wake.unwrap_or_default(),
                on_close: on_close.unwrap_or_default(),
                status_callback,
                status_callback_events: status_callback_events.unwrap_or_default(),
            });
        }
    };

    fields.refuse("type", fault);
    None
}

/// Refuses an entry `builtin:` without a flow, a second one, and a flow without such an entry.
fn match_flow(fields: &mut Fields, fallbacks: &[Box<str>], has_flow: bool) {
    let entries = fallbacks.iter().filter(|entry| is_builtin(entry)).count();
    match (entries, has_flow) {
        (0, false) | (1, true) => {}
        (0, true) => fields.refuse(FLOW, "is used by no entry builtin: in fallbacks"),
        (_, false) => fields.refuse(FLOW, "is required with the entry builtin: in fallbacks"),
        (_, true) => fields.refuse("fallbacks", "holds builtin: more than once"),
    }
}

/// Bounds of a runtime's headers: their number, and the octets of all names and values together.
const HEADERS: usize = 20;
const HEADER_OCTETS: usize = 2_048;

/// Header names that begin with `X-`, each with its value.
#[derive(Copy, Clone, Debug)]
struct Headers;

impl FieldType for Headers {
    type Read = BTreeMap<String, String>;

    fn schema(&self) -> Value {
        json!({
            "type": "object",
            "description": "At most 20 headers and 2,048 octets. Values may hold {called}, {caller}, {session_id}, {agent_id} and {org_id}.",
            "maxProperties": HEADERS,
            "propertyNames": {"pattern": "^[Xx]-[A-Za-z0-9_.-]{1,60}$"},
            "additionalProperties": {"type": "string", "maxLength": 500},
        })
    }

    fn read(&self, value: Value, path: &str, faults: &mut Vec<String>) -> Option<Self::Read> {
        let Value::Object(map) = value else {
            faults.push(format!("{path}: expected an object"));
            return None;
        };

        let mut headers = BTreeMap::new();
        let before = faults.len();
        for (name, value) in map {
            let is_token = |octet: u8| octet.is_ascii_alphanumeric() || b"_.-".contains(&octet);
            let rest = name.strip_prefix("X-").or_else(|| name.strip_prefix("x-"));
            let is_name = rest
                .is_some_and(|rest| (1..=60).contains(&rest.len()) && rest.bytes().all(is_token));

            let fault = match &value {
                _ if !is_name => "is not a header name that begins with X-",
                Value::String(value) if value.chars().any(char::is_control) => {
                    "must not hold control characters"
                }
                Value::String(value) if value.chars().count() > 500 => {
                    "is longer than 500 characters"
                }
                // Otherwise a client that sends back what it was shown would lose the value unnoticed.
                Value::String(value) if value == MASK => {
                    "*** stands for a value that isn't shown: give the value"
                }
                Value::String(value) => {
                    headers.insert(name, value.clone());
                    continue;
                }
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::Array(_)
                | Value::Object(_) => "expected a text",
            };

            faults.push(format!("{path}.{name}: {fault}"));
        }

        let octets: usize = headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        if headers.len() > HEADERS || octets > HEADER_OCTETS {
            faults.push(format!(
                "{path}: expected at most 20 headers and 2,048 octets"
            ));
        }

        (faults.len() == before).then_some(headers)
    }
}

fn is_template(text: &str) -> bool {
    if text.len() > LONGEST {
        return false;
    }
    let id = Uuid::nil().hyphenated().to_string();
    let filled = text.replace("{agent_id}", &id).replace("{org_id}", &id);
    // In the user part only: if a host or a parameter held what a caller sends, the caller would choose where the call
    // goes.
    let filled = match filled.split_once('@') {
        Some((user, host)) => format!("{}@{host}", without_parties(user)),
        None => filled,
    };
    // A brace that is left belongs to a placeholder that isn't known, or that isn't allowed there.
    !filled.contains(['{', '}']) && reads_as_sip_uri(&filled)
}

fn is_url(text: &str) -> bool {
    text.len() <= LONGEST && is_url_template(text)
}

#[cfg(test)]
mod tests {
    use trunkline_model::builtin::Flow;

    use super::*;

    fn read(value: Value) -> Result<Runtime, String> {
        let mut faults = Vec::new();
        let runtime = RUNTIME.read(value, "runtime", &mut faults);
        runtime.ok_or_else(|| faults.join("; "))
    }

    #[test]
    fn runtimes_are_read() {
        let sip = |uri: &str, others: &[&str], flow: Option<Flow>| {
            let mut runtime = Runtime::sip(uri.into());
            if let Runtime::Sip {
                fallbacks,
                flow: held,
                ..
            } = &mut runtime
            {
                fallbacks.extend(others.iter().map(|uri| Box::from(*uri)));
                *held = flow.map(Box::new);
            }
            runtime
        };

        for (value, runtime) in [
            (json!({"type": "echo"}), Runtime::Echo),
            (
                json!({"type": "sip", "uri": "sip:{agent_id}@{org_id}.example.com"}),
                sip("sip:{agent_id}@{org_id}.example.com", &[], None),
            ),
            (
                json!({"type": "sip", "uri": "sip:a", "fallbacks": ["sips:b"]}),
                sip("sip:a", &["sips:b"], None),
            ),
            (
                json!({"type": "sip", "uri": "sip:a", "fallbacks": ["wss://b", "sip:c", "builtin:"], "protocol": "twilio",
                    "on_close": "hang_up", "flow": Flow::demo()}),
                sip(
                    "sip:a",
                    &["wss://b", "sip:c", "builtin:"],
                    Some(Flow::demo()),
                ),
            ),
            (
                json!({"type": "websocket", "uri": "wss://bot.example.com/{agent_id}?a=b"}),
                Runtime::web_socket("wss://bot.example.com/{agent_id}?a=b".into()),
            ),
            (
                json!({"type": "websocket", "uri": "wss://a", "fallbacks": ["sip:b", "ws://10.0.0.1:8080/"],
                    "protocol": "telnyx", "wake": "answer", "on_close": "next_runtime",
                    "status_callback": "https://c.example.com/a?b=c", "status_callback_events": ["ringing", "completed"]}),
                Runtime::WebSocket {
                    uri: "wss://a".into(),
                    fallbacks: vec!["sip:b".into(), "ws://10.0.0.1:8080/".into()],
                    protocol: BotProtocol::Telnyx,
                    wake: Wake::Answer,
                    on_close: OnClose::NextRuntime,
                    status_callback: Some("https://c.example.com/a?b=c".into()),
                    status_callback_events: vec![CallProgress::Ringing, CallProgress::Completed],
                    flow: None,
                },
            ),
            (
                json!({"type": "websocket", "uri": "wss://a", "fallbacks": ["sip:b", "builtin:"], "flow": Flow::demo()}),
                Runtime::WebSocket {
                    uri: "wss://a".into(),
                    fallbacks: vec!["sip:b".into(), "builtin:".into()],
                    protocol: BotProtocol::Twilio,
                    wake: Wake::Ringing,
                    on_close: OnClose::HangUp,
                    flow: Some(Box::new(Flow::demo())),
                    status_callback: None,
                    status_callback_events: Vec::new(),
                },
            ),
            (
                json!({"type": "builtin", "flow": Flow::demo(), "fallbacks": ["wss://a"]}),
                Runtime::Builtin {
                    flow: Box::new(Flow::demo()),
                    fallbacks: vec!["wss://a".into()],
                },
            ),
        ] {
            assert_eq!(read(value), Ok(runtime));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let not = "is not a SIP URI, in which {agent_id} and {org_id} may be used";
        for (value, fault) in [
            (json!({}), "runtime.type: is required".to_owned()),
            (
                json!({"type": "rtp"}),
                "runtime.type: \"rtp\" is none of echo, sip, websocket, builtin".to_owned(),
            ),
            (
                json!({"type": "sip"}),
                "runtime.uri: is required".to_owned(),
            ),

            (
                json!({"type": "echo", "uri": "sip:a"}),
                "runtime.type: an echo runtime has none of the fields of a SIP runtime or a WebSocket".to_owned(),
            ),
            (
                json!({"type": "sip", "uri": "sip:a", "wake": "answer"}),
                "runtime.type: wake, status_callback and status_callback_events belong to a websocket runtime".to_owned(),
            ),

            (
                json!({"type": "sip", "uri": "sip:a", "fallbacks": ["wss://b", "builtin:"]}),
                "runtime.flow: is required with the entry builtin: in fallbacks".to_owned(),
            ),
            (
                json!({"type": "sip", "uri": "sip:a", "fallbacks": ["builtin:", "builtin:"], "flow": Flow::demo()}),
                "runtime.fallbacks: holds builtin: more than once".to_owned(),
            ),

            (
                json!({"type": "builtin", "flow": Flow::demo(), "protocol": "telnyx"}),
                "runtime.type: a builtin runtime has flow and fallbacks, and no other field".to_owned(),
            ),
            (
                json!({"type": "websocket", "uri": "wss://a", "session_token": true}),
                "runtime.type: failover_on, headers, session_token, username and password belong to a sip runtime".to_owned(),
            ),

            (
                json!({"type": "websocket", "uri": "https://a", "fallbacks": ["x"]}),
                "runtime.uri: \"https://a\" is not a wss: URL of at most 300 characters, in which {agent_id} and {org_id} may be used; \
                 runtime.fallbacks[0]: \"x\" is not a wss: URL, a SIP URI, in which {agent_id} and {org_id} may be used, or builtin:".to_owned(),
            ),
            (
                json!({"type": "builtin", "uri": "sip:a"}),
                "runtime.uri: \"sip:a\" is not a wss: URL of at most 300 characters, in which {agent_id} and {org_id} may be used; \
                 runtime.flow: is required; runtime.type: a builtin runtime has flow and fallbacks, and no other field".to_owned(),
            ),

            (
                json!({"type": "echo", "flow": Flow::demo()}),
                "runtime.type: an echo runtime has no flow".to_owned(),
            ),
            (
                json!({"type": "websocket", "uri": "wss://a", "fallbacks": ["builtin:"]}),
                "runtime.flow: is required with the entry builtin: in fallbacks".to_owned(),
            ),
            (
                json!({"type": "websocket", "uri": "wss://a", "flow": Flow::demo()}),
                "runtime.flow: is used by no entry builtin: in fallbacks".to_owned(),
            ),
            (
                json!({"type": "builtin", "flow": {"start": "a", "steps": {"b": {"do": "sing"}}}}),
                "runtime.flow.steps.b.do: is none of play, menu, echo, say_digits, transfer, next_runtime, hang_up; \
                 runtime.flow.start: \"a\" is no step of this flow".to_owned(),
            ),

            (
                json!({"type": "sip", "uri": "sip:a", "username": "u"}),
                "runtime.password: is required with username".to_owned(),
            ),
            (
                json!({"type": "echo", "username": "u", "password": "p"}),
                "runtime.type: an echo runtime has none of the fields of a SIP runtime or a WebSocket".to_owned(),
            ),

            (
                json!({"type": "sip", "uri": "sip:{call_id}@b", "fallbacks": ["x"], "fallback": 1}),
                format!(
                    "runtime.uri: \"sip:{{call_id}}@b\" {not}; runtime.fallbacks[0]: \"x\" is not a wss: URL, a SIP URI, in which \
                     {{agent_id}} and {{org_id}} may be used, or builtin:; \
                     runtime.fallback: is no field of this request"
                ),
            ),
        ] {
            assert_eq!(read(value), Err(fault));
        }
    }

    #[test]
    fn the_length_is_that_of_the_template() {
        let many = format!("sip:{}@b", "{agent_id}".repeat(20));
        assert!(read(json!({"type": "sip", "uri": many})).is_ok());
        let fits = format!("sip:{}@b", "a".repeat(LONGEST - 6));
        assert!(read(json!({"type": "sip", "uri": fits})).is_ok());
        assert!(read(json!({"type": "sip", "uri": format!("{fits}c")})).is_err());
    }
}
