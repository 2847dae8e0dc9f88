//! The OpenAPI document and the server judge values alike: the server doesn't answer 400 to what a schema allows, and does to what it forbids. Covers
//! the bodies of every operation and every parameter of queries.
//!
//! Some values are drawn by a seed; `TRUNKLINE_TEST_SEED` sets another one, and `just differential` tries many.

mod bodies;
mod values;

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use jsonschema::Validator;
use serde_json::{Value, json};

use crate::test_api::TestApi;
use bodies::Fixtures;
use values::Dice;

/// Bodies drawn by the seed for each operation, beside those at the bounds.
const DRAWN: usize = 60;

/// Fields where the server refuses more than JSON Schema can say: operation (`*`: any), field, reason.
const NARROWER: [(&str, &str, &str); 45] = [
    (
        "addInboundNumber",
        "phone_number_id",
        "a verified number of the org",
    ),
    ("explainInvite", "invite", "an INVITE that begins a call"),
    ("explainInvite", "source", "an IP address and port"),
    ("*", "expires_at", "must lie in the future"),
    (
        "updateOrgLimits",
        "contacts",
        "what the operator allows the partner to give",
    ),
    (
        "updateOrgLimits",
        "numbers",
        "what the operator allows the partner to give",
    ),
    (
        "updateOrgLimits",
        "api_keys",
        "what the operator allows the partner to give",
    ),
    (
        "updateOrgLimits",
        "destinations",
        "what the operator allows the partner to give",
    ),
    (
        "updateOrgLimits",
        "outbound_trunks",
        "what the operator allows the partner to give",
    ),
    (
        "updateOrgLimits",
        "registrations",
        "what the operator allows the partner to give",
    ),
    (
        "updateOrgLimits",
        "webhooks",
        "what the operator allows the partner to give",
    ),
    (
        "updateOrgLimits",
        "requests_per_minute",
        "what the operator allows the partner to give",
    ),
    (
        "updateOrgLimits",
        "streaming_requests_per_minute",
        "what the operator allows the partner to give",
    ),
    ("*", "customData", "bounded by its octets as JSON"),
    ("*", "query_params", "bounded by its octets as JSON"),
    ("*", "path_params", "bounded by its octets as JSON"),
    ("*", "body_params", "bounded by its octets as JSON"),
    (
        "*",
        "headers",
        "bounded by its octets as JSON, or by those of all headers together",
    ),
    ("*", "metadata", "bounded by its octets as JSON"),
    ("*", "uri", "not every host may be called"),
    ("createPrompt", "audio", "the base64 of a WAV file"),
    ("*", "flow", "its steps have to be sound as a whole"),
    ("*", "fallbacks", "not every host may be called"),
    ("*", "host", "not every host may be called"),
    (
        "*",
        "from_host",
        "an address that is written as a number is no host",
    ),
    ("*", "url", "not every URL may be sent to"),
    (
        "*",
        "value",
        "not every host may be called; after a change of type it has to fit that type",
    ),
    ("*", "type", "the value that is stored has to fit the type"),
    ("*", "refer_host", "a host or host:port, of many forms"),
    (
        "*",
        "allowed_addresses",
        "addresses and blocks of many forms, few of them, none of the node's own",
    ),
    (
        "*",
        "default_country",
        "one of the countries that have a code",
    ),
    ("*", "voice_id", "one that the operator offers"),
    ("*", "phone_numbers", "verified ones of the org"),
    ("*", "phone_number_ids", "verified ones of the org"),
    ("*", "role_ids", "roles of the org"),
    ("*", "trunk_id", "a trunk of the org"),
    ("*", "destination_id", "a destination of the org"),
    ("*", "phone_agent_id", "an agent of the org"),
    ("*", "agents", "agents of the org, none of them twice"),
    (
        "*",
        "numbers",
        "numbers and agents of the org, none of them twice",
    ),
    (
        "*",
        "trunk",
        "the org may have none, and a country has to have a code",
    ),
    ("*", "busy", "agents of the org"),
    (
        "*",
        "start_date",
        "ISO 8601 has many forms; not after the end",
    ),
    (
        "*",
        "end_date",
        "ISO 8601 has many forms; not before the start",
    ),
    ("*", "cursor", "opaque: one that was given out"),
];

/// Fields where the server accepts more than the schema says; clients need no more than the schema.
const WIDER: [(&str, &str, &str); 5] = [
    ("*", "uri", "further spellings of RFC 3261 §25"),
    ("*", "fallbacks", "further spellings of RFC 3261 §25"),
    ("*", "value", "further spellings of RFC 3261 §25"),
    ("*", "host", "IPv6 and names with underscores"),
    ("*", "from_host", "IPv6 and names with underscores"),
];

/// Needs a delivery; it takes no field.
const REDELIVER: &str = "redeliver";

/// A stream has no end.
const STREAMS: [&str; 2] = ["streamEvents", "streamPhoneEvents"];

/// An operation of the document.
struct Operation<'d> {
    id: &'d str,
    method: &'d str,
    path: &'d str,
    described: &'d Value,
    is_partners: bool,
}

/// Counts of a run, and the cases in which document and server disagree.
#[derive(Default)]
struct Tally {
    taken: usize,
    refused: usize,
    differences: Vec<String>,
}

impl Tally {
    fn judge(
        &mut self,
        what: &str,
        changed: &[String],
        operation: &str,
        fits: bool,
        answer: (u16, &str),
    ) {
        let (status, text) = answer;
        assert!(
            ![401, 403, 429, 500].contains(&status),
            "{what}: {status} {text}"
        );

        let is_taken = status != 400;
        *(if is_taken {
            &mut self.taken
        } else {
            &mut self.refused
        }) += 1;
        let known: &[_] = if is_taken { &WIDER } else { &NARROWER };

        let is_known = known.iter().any(|(of, field, _)| {
            (*of == "*" || *of == operation) && changed.iter().any(|name| name == field)
        });
        if fits != is_taken && !is_known {
            let fits = if fits {
                "the schema lets it pass"
            } else {
                "the schema doesn't"
            };
            self.differences
                .push(format!("{what}\n  {fits}; {status} {text}"));
        }
    }
}

fn operations(document: &Value) -> Vec<Operation<'_>> {
    let paths = document["paths"].as_object().expect("paths");
    let each = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").iter();
        methods.map(move |(method, described)| Operation {
            id: described["operationId"].as_str().expect("an id"),
            method,
            path,
            described,
            is_partners: path.starts_with("/partner/"),
        })
    });
    each.collect()
}

fn validator(document: &Value, schema: &Value) -> Validator {
    let whole = json!({"components": document["components"], "allOf": [schema]});
    let options = jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .should_validate_formats(true);
    options.build(&whole).expect("a sound schema")
}

/// Collects the names on the way to the places where two bodies differ.
fn changed(good: &Value, other: &Value, names: &mut Vec<String>) {
    match (good, other) {
        (Value::Object(good), Value::Object(other)) => {
            let all: BTreeSet<&String> = good.keys().chain(other.keys()).collect();
            for name in all {
                let (before, after) = (good.get(name), other.get(name));
                if before != after {
                    names.push(name.clone());
                    changed(
                        before.unwrap_or(&Value::Null),
                        after.unwrap_or(&Value::Null),
                        names,
                    );
                }
            }
        }
        (Value::Array(good), Value::Array(other)) => {
            for (good, other) in good.iter().zip(other) {
                changed(good, other, names);
            }
        }
        _ => {}
    }
}

/// Returns every body to judge for a good one.
fn bodies_to_judge(schema: &Value, good: &Value, dice: &mut Dice) -> Vec<Value> {
    let mut all = vec![good.clone()];
    let mut places = Vec::new();
    values::places(good, &[], &mut places);
    for place in places {
        let at_place = place.iter().fold(good, |value, name| {
            let first = value.as_array().and_then(|items| items.first());
            first.unwrap_or_else(|| &value[name.as_str()])
        });
        all.push(values::with(good, &place, None));
        let bounds = values::at_bounds(schema, &place, at_place);
        all.extend(
            bounds
                .into_iter()
                .map(|value| values::with(good, &place, Some(value))),
        );
    }

    for _ in 0..DRAWN {
        let mut body = good.clone();
        for _ in 0..=dice.roll(2) {
            if let Value::Object(fields) = &mut body {
                dice.change(fields);
            }
        }
        all.push(body);
    }

    all
}

/// The seed of runs that name none: the same change passes or fails each time.
const SEED: u64 = 13_305_617_830_509_908_010;

fn seed() -> u64 {
    let given = std::env::var("TRUNKLINE_TEST_SEED").ok();
    let seed: u64 = given.map_or(SEED, |seed| seed.parse().expect("a number"));
    println!("TRUNKLINE_TEST_SEED={seed}");
    // The generator never leaves 0.
    seed.max(1)
}

fn has_agreed(tally: &Tally, seed: u64) {
    let Tally {
        taken,
        refused,
        differences,
    } = tally;
    println!("{taken} taken, {refused} refused");
    assert!(
        differences.is_empty(),
        "TRUNKLINE_TEST_SEED={seed}: {} differences:\n{}",
        differences.len(),
        differences.join("\n")
    );
}

#[tokio::test]
async fn the_document_and_the_server_judge_the_same_bodies_alike() {
    let seed = seed();
    let mut dice = Dice(seed);
    let api = TestApi::with("[phone]\nvoices = [\"nova\"]").await;
    let document = api.get("/openapi.json", "").await.with(200);
    let db = Fixtures::create(&api).await;
    let mut tally = Tally::default();

    for operation in operations(&document) {
        let content = &operation.described["requestBody"]["content"]["application/json"];
        if content.is_null() || operation.id == REDELIVER {
            continue;
        }
        let schema = &content["schema"];
        let validator = validator(&document, schema);
        let path = db.filled(operation.path, operation.id);
        for good in db.bodies(operation.id) {
            for body in bodies_to_judge(schema, &good, &mut dice) {
                let token = db.credential(operation.is_partners);
                let method = operation.method.to_uppercase();
                let answer = api.json(&method, &path, token, body.clone()).await;
                let mut names = Vec::new();
                changed(&good, &body, &mut names);
                let fits = validator.is_valid(&body);
                let shown: String = body.to_string().chars().take(400).collect();
                let what = format!("{} {shown}", operation.id);
                tally.judge(
                    &what,
                    &names,
                    operation.id,
                    fits,
                    (answer.status, &answer.text),
                );
            }
        }
    }

    assert!(
        tally.taken > 1_000 && tally.refused > 1_000,
        "{} taken, {} refused",
        tally.taken,
        tally.refused
    );

    has_agreed(&tally, seed);
}

/// Parses a parameter's text by the type of its schema: integers in decimal digits, booleans in words, else a string.
fn typed(schema: &Value, text: &str) -> Value {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|octet| octet.is_ascii_digit());
    match text.parse::<i64>() {
        Ok(number) if is_number && schema["type"] == "integer" => json!(number),
        Ok(_) | Err(_) if schema["type"] == "boolean" => match text {
            "true" | "false" => json!(text == "true"),
            _ => json!(text),
        },
        Ok(_) | Err(_) => json!(text),
    }
}

/// Returns texts to judge for a parameter of this schema.
fn texts_to_judge(schema: &Value, dice: &mut Dice) -> Vec<String> {
    let values = values::at_bounds(schema, &[], &Value::Null);
    let drawn = (0..DRAWN / 4).map(|_| dice.text());
    let texts = values.iter().map(|value| match value.as_str() {
        Some(text) => text.to_owned(),
        None => value.to_string(),
    });
    texts.chain(drawn).collect()
}

fn escaped(text: &str) -> String {
    text.bytes().map(|octet| format!("%{octet:02X}")).collect()
}

#[tokio::test]
async fn the_document_and_the_server_judge_the_same_queries_alike() {
    let seed = seed();
    let mut dice = Dice(seed);
    let api = TestApi::new().await;
    let document = api.get("/openapi.json", "").await.with(200);
    let db = Fixtures::create(&api).await;
    let mut tally = Tally::default();

    for operation in operations(&document) {
        let parameters = operation.described["parameters"].as_array();
        let queries = parameters
            .into_iter()
            .flatten()
            .filter(|one| one["in"] == "query");

        if STREAMS.contains(&operation.id) {
            continue;
        }

        let path = db.filled(operation.path, operation.id);
        for parameter in queries {
            let name = parameter["name"].as_str().expect("a name");
            let mut schema = &parameter["schema"];
            if let Some(to) = schema["$ref"].as_str() {
                let to = to
                    .strip_prefix('#')
                    .expect("a reference within the document");
                schema = document.pointer(to).expect("a schema");
            }
            let validator = validator(&document, schema);

            for text in texts_to_judge(schema, &mut dice) {
                let path = match operation.id {
                    "deleteOrg" => db.org_to_delete(&api).await,
                    _ => path.clone(),
                };

                let query = format!("{path}?{name}={}", escaped(&text));
                let token = db.credential(operation.is_partners);
                let request = Request::builder()
                    .method(&*operation.method.to_uppercase())
                    .uri(&query)
                    .header("Authorization", format!("Bearer {token}"));
                let answer = api.send(request.body(Body::empty())).await;

                let fits = validator.is_valid(&typed(schema, &text));
                let what = format!("{} {name}={text:?}", operation.id);
                let names = [name.to_owned()];
                tally.judge(
                    &what,
                    &names,
                    operation.id,
                    fits,
                    (answer.status, &answer.text),
                );
            }

            for wrong in [format!("{name}=1&{name}=1"), "colour=red".to_owned()] {
                let token = db.credential(operation.is_partners);
                let answer = api.get(&format!("{path}?{wrong}"), token).await;
                assert_eq!(answer.status, 400, "{} {wrong}", operation.id);
            }
        }
    }

    assert!(
        tally.taken > 200 && tally.refused > 200,
        "{} taken, {} refused",
        tally.taken,
        tally.refused
    );

    has_agreed(&tally, seed);
}

/// An unknown id, one of another form and text that is no id at all get 404 alike, never 400.
#[tokio::test]
async fn what_stands_in_a_path_is_never_called_malformed() {
    let mut dice = Dice(seed());
    let api = TestApi::new().await;
    let document = api.get("/openapi.json", "").await.with(200);
    let db = Fixtures::create(&api).await;

    for operation in operations(&document) {
        let is_about = operation.path.contains('{') && operation.method == "get";
        if !is_about || operation.described["security"] == json!([{"widgetToken": []}]) {
            continue;
        }
        for text in texts_to_judge(&json!({"minLength": 1, "maxLength": 255}), &mut dice) {
            if text.is_empty() {
                continue;
            }
            let parts = operation
                .path
                .split('/')
                .map(|part| match part.strip_prefix('{') {
                    Some(_) => escaped(&text),
                    None => part.to_owned(),
                });
            let path = parts.collect::<Vec<_>>().join("/");
            let answer = api.get(&path, db.credential(operation.is_partners)).await;
            // A partner gets 403 for an org that isn't its own.
            let is_absent = match operation.is_partners {
                true => [403, 404].contains(&answer.status),
                false => answer.status == 404,
            };
            assert!(
                is_absent,
                "{} {text:?}: {} {}",
                operation.id, answer.status, answer.text
            );
        }
    }
}
