//! Field `runtime` of an agent: the software that speaks for it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use trunkline_model::settings::{FailoverOn, Runtime, RuntimeLogin};
use uuid::Uuid;

use super::outbound_trunks::{CREDENTIAL, credentials};
use super::sip_uri::{pattern, reads_as_sip_uri, without_parties};
use crate::api::body::Fields;
use crate::api::field_type::{Bool, Choice, FieldType, ListOf, Parsed};
use crate::api::object::Object;

/// `{"type": "echo"}`, or `{"type": "sip", "uri": "sip:…", "fallbacks": ["sip:…", …]}` with at most five fallbacks;
/// `failover_on` lists responses that lead to the next one.
pub(super) const RUNTIME: Object<Runtime> = Object(read);

/// SIP URI that may contain `{agent_id}` and `{org_id}`.
const TEMPLATE: Parsed<Box<str>> = Parsed::new(
    "a SIP URI, in which {agent_id} and {org_id} may stand",
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

#[derive(Copy, Clone, Debug)]
enum Type {
    Echo,
    Sip,
}

/// Adds to the schema that `uri`, `fallbacks` and `failover_on` belong to `sip` only.
fn sketch(fields: &Fields) {
    fields.amend_schema(|schema| {
        let of = schema["properties"].take();
        *schema = json!({"oneOf": [
            {"type": "object", "properties": {"type": {"const": "echo"}}, "required": ["type"], "additionalProperties": false},
            {
                "type": "object",
                "properties": {"type": {"const": "sip"}, "uri": TEMPLATE.schema(), "fallbacks": of["fallbacks"],
                    "failover_on": of["failover_on"], "headers": of["headers"], "session_token": of["session_token"],
                    "username": CREDENTIAL.schema(), "password": CREDENTIAL.schema()},
                "required": ["type", "uri"],
                "dependentRequired": {"username": ["password"], "password": ["username"]},
                "additionalProperties": false,
            },
        ]});
    });
}

fn read(fields: &mut Fields) -> Option<Runtime> {
    let kind = fields.required("type", Choice(&[("echo", Type::Echo), ("sip", Type::Sip)]));
    let of_sip = [
        "uri",
        "fallbacks",
        "failover_on",
        "headers",
        "session_token",
        "username",
        "password",
    ];

    let addressed = of_sip.into_iter().any(|name| fields.has(name));
    let needed = matches!(kind, Some(Type::Sip));
    let uri = if needed {
        fields.required("uri", TEMPLATE)
    } else {
        fields.optional("uri", TEMPLATE)
    };

    let fallbacks = fields.optional("fallbacks", ListOf::new(TEMPLATE, 0..=5));
    let failover_on = fields.optional("failover_on", ListOf::new(Choice(&FailoverOn::ALL), 0..=3));
    let headers = fields.optional("headers", Headers);
    let session_token = fields.optional("session_token", Bool);
    let login = credentials(fields).pair();
    sketch(fields);

    match kind? {
        Type::Sip => Some(Runtime::Sip {
            uri: uri?,
            fallbacks: fallbacks.unwrap_or_default(),
            failover_on: failover_on.unwrap_or_default(),
            headers: headers.unwrap_or_default(),
            session_token: session_token.unwrap_or(false),
            login: login.map(|(user, password)| RuntimeLogin {
                user: user.into(),
                password: password.reveal().into(),
            }),
        }),
        Type::Echo if addressed => {
            fields.refuse(
                "type",
                "an echo runtime has none of the fields of a SIP runtime",
            );
            None
        }
        Type::Echo => Some(Runtime::Echo),
    }
}

/// Bounds of a runtime's headers: their number, the octets of all names and values, and the octets of one value.
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
    let filled = match filled.split_once('@') {
        Some((user, host)) => format!("{}@{host}", without_parties(user)),
        None => filled,
    };
    !filled.contains(['{', '}']) && reads_as_sip_uri(&filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: Value) -> Result<Runtime, String> {
        let mut faults = Vec::new();
        let runtime = RUNTIME.read(value, "runtime", &mut faults);
        runtime.ok_or_else(|| faults.join("; "))
    }

    #[test]
    fn runtimes_are_read() {
        let sip = |uri: &str, fallbacks: &[&str]| Runtime::Sip {
            uri: uri.into(),
            fallbacks: fallbacks.iter().map(|uri| (*uri).into()).collect(),
            failover_on: Vec::new(),
            headers: Default::default(),
            session_token: false,
            login: None,
        };
        for (value, runtime) in [
            (json!({"type": "echo"}), Runtime::Echo),
            (
                json!({"type": "sip", "uri": "sip:{agent_id}@{org_id}.example.com"}),
                sip("sip:{agent_id}@{org_id}.example.com", &[]),
            ),
            (
                json!({"type": "sip", "uri": "sip:a", "fallbacks": ["sips:b"]}),
                sip("sip:a", &["sips:b"]),
            ),
        ] {
            assert_eq!(read(value), Ok(runtime));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let not = "is not a SIP URI, in which {agent_id} and {org_id} may stand";
        for (value, fault) in [
            (json!({}), "runtime.type: is required".to_owned()),
            (
                json!({"type": "rtp"}),
                "runtime.type: \"rtp\" is none of echo, sip".to_owned(),
            ),
            (
                json!({"type": "sip"}),
                "runtime.uri: is required".to_owned(),
            ),
            (
                json!({"type": "echo", "uri": "sip:a"}),
                "runtime.type: an echo runtime has none of the fields of a SIP runtime".to_owned(),
            ),
            (
                json!({"type": "sip", "uri": "sip:a", "username": "u"}),
                "runtime.password: is required with username".to_owned(),
            ),
            (
                json!({"type": "echo", "username": "u", "password": "p"}),
                "runtime.type: an echo runtime has none of the fields of a SIP runtime".to_owned(),
            ),
            (
                json!({"type": "sip", "uri": "sip:{call_id}@b", "fallbacks": ["x"], "fallback": 1}),
                format!(
                    "runtime.uri: \"sip:{{call_id}}@b\" {not}; runtime.fallbacks[0]: \"x\" {not}; \
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
