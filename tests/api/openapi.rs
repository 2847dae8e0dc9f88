//! The OpenAPI document: it equals the snapshot, and it describes every route and no other.

use std::collections::BTreeSet;
use std::path::Path;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;
use serde_json::Value;
use trunkline::api;
use trunkline::config::{Config, Sources};
use trunkline::console;

use crate::test_api::TestApi;

/// The snapshot, beside the other fixtures.
const SNAPSHOT: &str = "fixtures/openapi.json";

/// Returns whether the document leaves the operation out: pages for people, and another vendor's interface that bots' libraries call.
fn is_page(operation: &str) -> bool {
    let (_, path) = operation.split_once(' ').expect("a path");
    ["/", "/partner-login", "/dashboard"].contains(&path)
        || path.starts_with("/dashboard/")
        || path.starts_with("/operator-console")
        || path.starts_with("/2010-04-01/")
}

/// Returns the methods of a path, from the router's `Allow` on an unknown method. `OPTIONS` is no operation: it answers the preflight of a browser.
pub(crate) async fn methods(api: &TestApi, path: &str) -> Vec<String> {
    let request = Request::builder().method("BREW").uri(path);
    let answer = api.send(request.body(Body::empty())).await;
    assert_eq!(answer.status, 405, "{path}");
    let allowed = answer.header("Allow").expect("Allow");
    let methods = allowed
        .split(',')
        .map(|method| method.trim().to_lowercase());
    methods
        .filter(|method| !["head", "options"].contains(&&**method))
        .collect()
}

/// Returns the path with `x` in place of each parameter.
pub(crate) fn filled(path: &str) -> String {
    let parts = path
        .split('/')
        .map(|part| if part.starts_with('{') { "x" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// Returns method and path of every route, such as `get /phone`.
pub(crate) async fn operations(api: &TestApi) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for path in console::paths(&config()) {
        for method in methods(api, &filled(&path)).await {
            all.insert(format!("{method} {path}"));
        }
    }
    all
}

fn described(document: &Value) -> BTreeSet<String> {
    let paths = document["paths"].as_object().expect("paths");
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("methods").keys();
        methods.map(move |method| format!("{method} {path}"))
    });
    operations.collect()
}

fn config() -> Config {
    Config::load(&Sources::default()).expect("the defaults are sound")
}

pub(crate) fn document() -> Value {
    api::document(&config())
}

#[tokio::test]
async fn every_route_is_described_and_nothing_else() {
    let api = TestApi::new().await;
    let mut routes = operations(&api).await;
    routes.retain(|operation| !is_page(operation));
    let described = described(&document());
    let missing: Vec<_> = routes.difference(&described).collect();
    let invented: Vec<_> = described.difference(&routes).collect();
    assert!(
        missing.is_empty() && invented.is_empty(),
        "routes without a declaration in an `operations` of src/api: {missing:?}; described, but no route: {invented:?}"
    );
}

#[tokio::test]
async fn the_document_is_the_snapshot() {
    let api = TestApi::new().await;
    let served = api
        .send(Request::get("/openapi.json").body(Body::empty()))
        .await;
    assert_eq!(served.header("Content-Type"), Some("application/json"));

    let document = document();
    assert_eq!(served.with(200), document);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SNAPSHOT);
    let text = format!("{document:#}\n");
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &text).expect("the snapshot is written");
    }

    let snapshot = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        snapshot == text,
        "{SNAPSHOT} is not what the code describes: look at the difference after UPDATE_OPENAPI=1 cargo test --test api openapi"
    );
}

#[test]
fn every_operation_says_who_may_ask_and_what_may_come() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], "1.0-beta");

    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let name = format!("{method} {path}");
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id.to_owned()), "{name}: {id} is another's id");
            for part in ["summary", "tags", "security"] {
                assert!(!operation[part].is_null(), "{name}: no {part}");
            }
            let statuses = operation["responses"].as_object().expect("responses");
            assert!(
                statuses.keys().any(|status| status.starts_with('2')),
                "{name}: nothing succeeds"
            );
            let secured = !operation["security"].as_array().expect("a list").is_empty();
            for status in ["401", "429"] {
                assert_eq!(statuses.contains_key(status), secured, "{name}: {status}");
            }
            assert_eq!(
                operation.get("requestBody").is_some(),
                ["post", "put", "patch"].contains(&&**method),
                "{name}: body"
            );
            // Generators make one function of an operation, which sends one form.
            if let Some(forms) = operation.pointer("/requestBody/content") {
                let forms = forms.as_object().expect("media types");
                assert_eq!(forms.len(), 1, "{name}: {forms:?}");
            }
        }
    }
}

#[test]
fn every_reference_leads_somewhere() {
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Object(map) => {
                if let Some(to) = map.get("$ref").and_then(Value::as_str) {
                    let to = to.strip_prefix('#').expect(to);
                    assert!(document.pointer(to).is_some(), "{to}");
                }
                map.values().for_each(|value| walk(value, document));
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, document)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let document = document();
    walk(&document, &document);
}

#[tokio::test]
async fn the_page_shows_every_operation_and_loads_nothing() {
    let api = TestApi::new().await;
    let page = api.send(Request::get("/docs").body(Body::empty())).await;
    assert_eq!(page.status, 200);
    assert_eq!(
        page.header("Content-Type"),
        Some("text/html; charset=utf-8")
    );

    for methods in document()["paths"].as_object().expect("paths").values() {
        for operation in methods.as_object().expect("methods").values() {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(page.text.contains(&format!("id=\"{id}\"")), "{id}");
        }
    }

    for loading in [
        "<script", "<link", "<img", "src=", "url(", "http://", "https://",
    ] {
        assert!(!page.text.contains(loading), "{loading}");
    }

    let policy = page.header("Content-Security-Policy").expect("a policy");
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
}

/// Calls `look` with place and schema of every property in a part of the document.
fn each_property(value: &Value, place: &str, look: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                each_property(value, &format!("{place}/{name}"), look);
            }
            let properties = map.get("properties").and_then(Value::as_object);
            for (name, property) in properties.into_iter().flatten() {
                look(&format!("{place}/{name}"), property);
            }
        }
        Value::Array(values) => {
            for value in values {
                each_property(value, place, look);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_property_is_described_or_names_a_schema() {
    let document = document();
    let mut silent = BTreeSet::new();
    let mut count = 0;
    for part in ["components", "paths", "webhooks"] {
        each_property(&document[part], part, &mut |place, property| {
            count += 1;
            if property["$ref"].is_null() && property["description"].is_null() {
                silent.insert(place.to_owned());
            }
        });
    }

    assert!(count > 500, "{count} properties");
    assert!(
        silent.is_empty(),
        "without a doc comment or an entry in src/api/openapi/property_texts.rs: {silent:#?}"
    );
}

/// Client generators make types of these names.
#[test]
fn schemas_have_plain_names_and_words_are_enumerations() {
    let document = document();
    let schemas = document["components"]["schemas"]
        .as_object()
        .expect("schemas");

    for (name, schema) in schemas {
        let is_plain =
            !name.ends_with("View") && !name.contains(|char: char| char.is_ascii_digit());
        assert!(is_plain || name == "E164", "{name}");
        for branch in schema["oneOf"].as_array().into_iter().flatten() {
            assert!(branch["const"].is_null(), "{name}: {branch}");
        }
        assert!(schema["additionalProperties"].is_null(), "{name} is closed");
    }

    assert_eq!(schemas["CallStatus"]["enum"][0], "queued");
    assert_eq!(document["servers"][0]["url"], "/");

    let ended = &document["webhooks"]["call.ended"]["post"]["requestBody"];
    let schema = &ended["content"]["application/json"]["schema"];
    assert_eq!(schema["$ref"], "#/components/schemas/CallEvent");
}

/// Answers that nobody reads, each of half a megabyte, would let any client fill memory.
#[tokio::test]
async fn all_answers_share_the_octets_of_the_document_and_its_page() {
    let api = TestApi::new().await;
    for path in ["/openapi.json", "/docs"] {
        let octets = async || {
            let answer = api.begin(Request::get(path).body(Body::empty())).await;
            answer
                .into_body()
                .collect()
                .await
                .expect("a body")
                .to_bytes()
        };
        let (first, second) = (octets().await, octets().await);
        assert_eq!(first.as_ptr(), second.as_ptr(), "{path}");
    }
}
