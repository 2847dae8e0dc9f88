//! `Idempotency-Key`: a request that is sent again does its work once.

use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use trunkline_store::written;

use crate::test_api::{Answer, Tenant, TestApi, id_of, now, pass};

/// Sends a `POST` with an idempotency key.
pub(crate) async fn ask(api: &TestApi, path: &str, token: &str, key: &str, body: &Value) -> Answer {
    api.send(
        Request::post(path)
            .header("Authorization", format!("Bearer {token}"))
            .header("Content-Type", "application/json")
            .header("Idempotency-Key", key)
            .body(Body::from(body.to_string())),
    )
    .await
}

fn sales() -> Value {
    json!({"name": "Sales", "type": "phone", "value": "+442071838750"})
}

const DESTINATIONS: &str = "/phone/sip/transfer-destinations";

async fn destinations(api: &TestApi, tenant: &Tenant) -> u64 {
    let page = api.get(DESTINATIONS, &tenant.token).await.with(200);
    page["total"].as_u64().expect("a number")
}

pub(crate) fn is_replay(answer: &Answer) -> bool {
    answer.header("Idempotent-Replayed") == Some("true")
}

#[tokio::test]
async fn the_same_request_again_is_answered_the_same() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let first = ask(&api, DESTINATIONS, &tenant.token, "k", &sales()).await;
    first.with(201);
    assert!(!is_replay(&first));
    pass(24 * 3600 - 1);

    let again = ask(&api, DESTINATIONS, &tenant.token, "k", &sales()).await;
    assert!(is_replay(&again));
    assert_eq!((again.status, &again.text), (201, &first.text));
    assert_eq!(again.header("Content-Type"), Some("application/json"));
    assert_ne!(again.header("X-Request-Id"), first.header("X-Request-Id"));
    assert!(first.header("ETag").is_some());
    assert_eq!(again.header("ETag"), first.header("ETag"));
    assert_eq!(destinations(&api, &tenant).await, 1);

    // A day later the key has expired: the request is new, and its name is taken.
    pass(1);

    let late = ask(&api, DESTINATIONS, &tenant.token, "k", &sales()).await;
    late.with(409);
    assert!(!is_replay(&late));
}

#[tokio::test]
async fn another_body_under_the_same_key_is_422() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    ask(&api, DESTINATIONS, &tenant.token, "k", &sales())
        .await
        .with(201);
    let mut other = sales();
    other["name"] = json!("Else");
    let refused = ask(&api, DESTINATIONS, &tenant.token, "k", &other).await;
    let message = "This Idempotency-Key was used with another body";
    let body = json!({"statusCode": 422, "message": message, "error": "Unprocessable Entity", "code": "idempotency_key_reused"});
    assert_eq!(refused.with(422), body);
    assert_eq!(destinations(&api, &tenant).await, 1);
}

/// A client that serializes its request differently makes the same request.
#[tokio::test]
async fn a_body_is_compared_by_what_it_says() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let first = ask(&api, DESTINATIONS, &tenant.token, "k", &sales()).await;
    first.with(201);
    let anew = r#"{ "value": "\u002b442071838750", "name": "Sales",
        "type": "phone" }"#;
    let again = Request::post(DESTINATIONS)
        .header("Authorization", format!("Bearer {}", tenant.token))
        .header("Content-Type", "application/json")
        .header("Idempotency-Key", "k")
        .body(Body::from(anew));
    let again = api.send(again).await;
    assert!(is_replay(&again), "{}", again.text);
    assert_eq!((again.status, &again.text), (201, &first.text));
}

#[tokio::test]
async fn a_key_is_of_one_credential_and_path() {
    let api = TestApi::new().await;
    let (ours, theirs) = (api.tenant("Acme").await, api.tenant("Other").await);
    let (_, second) = api.key(ours.org, &trunkline::api::SCOPES).await;
    let made = ask(&api, DESTINATIONS, &ours.token, "k", &sales()).await;
    made.with(201);
    let elsewhere = ask(&api, DESTINATIONS, &theirs.token, "k", &sales()).await;
    assert_ne!(elsewhere.with(201)["id"], made.json()["id"]);
    assert!(!is_replay(&elsewhere));

    // Another API key of the org has its own idempotency keys: the name is taken.
    ask(&api, DESTINATIONS, &second, "k", &sales())
        .await
        .with(409);
    let number = json!({"phone_number": "+442071838750"});
    ask(&api, "/phone/numbers", &ours.token, "k", &number)
        .await
        .with(201);
}

#[tokio::test]
async fn refusals_that_pass_are_not_kept_and_others_are() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let mut wrong = sales();
    wrong["value"] = json!("12");
    let refused = ask(&api, DESTINATIONS, &tenant.token, "wrong", &wrong).await;
    refused.with(400);
    // 400 leaves the idempotency key free, for another body too.
    ask(&api, DESTINATIONS, &tenant.token, "wrong", &sales())
        .await
        .with(201);

    // So does 415: the body is the same once its type is said.
    let untyped = Request::post(DESTINATIONS)
        .header("Authorization", format!("Bearer {}", tenant.token))
        .header("Idempotency-Key", "typed");
    let mut other = sales();
    other["name"] = json!("Support");
    let body = Body::from(other.to_string());
    api.send(untyped.body(body)).await.with(415);
    ask(&api, DESTINATIONS, &tenant.token, "typed", &other)
        .await
        .with(201);

    let taken = ask(&api, DESTINATIONS, &tenant.token, "taken", &sales()).await;
    taken.with(409);
    let listed = api.get(DESTINATIONS, &tenant.token).await.json();
    let id = listed["items"][1]["id"].as_str().expect("an id").to_owned();
    api.delete(&format!("{DESTINATIONS}/{id}"), &tenant.token)
        .await
        .with(200);
    let again = ask(&api, DESTINATIONS, &tenant.token, "taken", &sales()).await;
    assert!(is_replay(&again));
    assert_eq!((again.status, &again.text), (409, &taken.text));

    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    ask(&api, DESTINATIONS, &reader, "k", &sales())
        .await
        .with(403);
    let nobody = ask(&api, DESTINATIONS, "no key", "k", &sales()).await;
    nobody.with(401);
    assert_eq!(
        api.rows("SELECT key FROM idempotency_keys ORDER BY key")
            .await,
        ["taken", "typed", "wrong"]
    );
}

#[tokio::test]
async fn a_key_that_is_none_is_a_fault_of_the_request() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let expected = "Idempotency-Key: expected 1 to 255 visible characters";
    for key in ["", &"k".repeat(256), "é"] {
        let answer = ask(&api, DESTINATIONS, &tenant.token, key, &sales()).await;
        assert_eq!(answer.with(400)["message"], expected, "{key}");
    }

    ask(
        &api,
        DESTINATIONS,
        &tenant.token,
        &"k".repeat(255),
        &sales(),
    )
    .await
    .with(201);

    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    ask(&api, DESTINATIONS, &reader, "", &sales())
        .await
        .with(403);

    let twice = Request::post(DESTINATIONS)
        .header("Authorization", format!("Bearer {}", tenant.token))
        .header("Idempotency-Key", "a")
        .header("Idempotency-Key", "b")
        .body(Body::empty());
    let answer = api.send(twice).await.with(400);
    let message = answer["message"].as_str().expect("a text");
    assert!(
        message.starts_with("Idempotency-Key: is given more than once; name: is required"),
        "{message}"
    );
}

#[tokio::test]
async fn a_body_too_long_is_413_with_a_key_as_without() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let long = json!({"name": "x".repeat(1 << 20)});
    ask(&api, DESTINATIONS, &tenant.token, "k", &long)
        .await
        .with(413);
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    ask(&api, DESTINATIONS, &reader, "k", &long).await.with(403);
}

#[tokio::test]
async fn a_replay_counts_once_as_every_request_does() {
    let api = TestApi::with("[limits]\nrequests_per_minute = 3").await;
    let tenant = api.tenant("Acme").await;
    for left in [2, 1, 0] {
        let answer = ask(&api, DESTINATIONS, &tenant.token, "k", &sales()).await;
        answer.with(201);
        let expected = format!("\"org\";r={left};t=60");
        assert_eq!(answer.header("RateLimit"), Some(&*expected));
    }
    ask(&api, DESTINATIONS, &tenant.token, "k", &sales())
        .await
        .with(429);
}

/// A retry shows the rotated secret again, and that secret signs.
#[tokio::test]
async fn a_webhooks_secret_is_rotated_once() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let hook = json!({"url": "https://hooks.example.com/x"});
    let made = api.post("/webhooks", &tenant.token, hook).await.with(201);
    let path = format!("/webhooks/{}/rotate-secret", id_of(&made));
    let first = ask(&api, &path, &tenant.token, "k", &json!({})).await;
    let again = ask(&api, &path, &tenant.token, "k", &json!({})).await;
    assert_ne!(first.with(200)["secret"], made["secret"]);
    assert!(is_replay(&again) && !is_replay(&first));
    assert_eq!((again.status, &again.text), (200, &first.text));
    let next = ask(&api, &path, &tenant.token, "l", &json!({})).await;
    assert_ne!(next.with(200)["secret"], first.json()["secret"]);
}

#[tokio::test]
async fn answers_outlive_a_restart_and_are_sealed() {
    let api = TestApi::new().await;
    let partner = api.reseller("Partner").await;
    let org = json!({"name": "Acme"});
    let org = ask(&api, "/partner/v1/orgs", &partner.key, "o", &org).await;
    let id = org.with(201)["id"].as_str().expect("an id").to_owned();
    let path = format!("/partner/v1/orgs/{id}/api-keys");
    let made = ask(&api, &path, &partner.key, "k", &json!({})).await;
    let key = made.with(201)["api_key"]
        .as_str()
        .expect("a key")
        .to_owned();
    let stored = api.octets("SELECT answer FROM idempotency_keys").await;
    assert_eq!(stored.len(), 2);
    let shows = |answer: &Vec<u8>| answer.windows(key.len()).any(|part| part == key.as_bytes());
    assert!(!stored.iter().any(shows));

    let db = api.leave().await;
    let api = TestApi::built("", db).await;
    let again = ask(&api, &path, &partner.key, "k", &json!({})).await;
    assert!(is_replay(&again));
    assert_eq!(again.text, made.text);
    let other = ask(&api, &path, &partner.key, "k", &json!({"name": "x"})).await;
    let message = "This Idempotency-Key was used with another body";
    assert_eq!(
        other.with(422),
        json!({"statusCode": 422, "message": message, "code": "idempotency_key_reused"})
    );
}

/// A client that lost the answer gets the token that it was made, instead of the next one.
#[tokio::test]
async fn a_bot_token_is_made_once() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let path = "/phone/bot-token";
    let first = ask(&api, path, &tenant.token, "k", &json!({})).await;
    let again = ask(&api, path, &tenant.token, "k", &json!({})).await;
    assert!(is_replay(&again) && !is_replay(&first));
    assert_eq!(again.with(201), first.with(201));
    let shown = api.get(path, &tenant.token).await.with(200);
    assert_eq!(shown["next_created_at"], Value::Null);
}

/// A secret in a kept answer is shown again while it is good. A thief of the log of answers gets nothing that was revoked.
#[tokio::test]
async fn secrets_in_kept_answers_end_with_their_revocation() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    api.number(tenant.org, "+442079460123").await;
    let token = &tenant.token;
    let key = json!({"name": "Night shift", "scopes": ["phone:read"]});
    let hook = json!({"url": "https://hooks.example.com/x"});
    let none = json!({});

    for (path, body, replace) in [
        ("/api-keys", &key, "/api-keys/{api_key_id}"),
        ("/webhooks", &hook, "/webhooks/{id}"),
        ("/phone/bot-token", &none, "/phone/bot-token"),
        (
            "/phone/sip/inbound-trunk",
            &none,
            "/phone/sip/inbound-trunk",
        ),
    ] {
        let made = ask(&api, path, token, "k", body).await;
        let shown = made.with(201);
        let again = ask(&api, path, token, "k", body).await;
        assert!(is_replay(&again), "{path}");
        assert_eq!(again.text, made.text, "{path}");

        let mut gone = replace.to_owned();
        for name in ["api_key_id", "id"] {
            let id = shown[name].as_str().unwrap_or_default();
            gone = gone.replace(&format!("{{{name}}}"), id);
        }
        api.delete(&gone, token).await.with(200);
        let refused = ask(&api, path, token, "k", body).await;
        assert_eq!(refused.with(409)["code"], "secret_revoked", "{path}");
    }
}

/// The partner or the org may revoke it, and the key or the org may end.
#[tokio::test]
async fn a_key_that_a_partner_made_is_shown_again_only_while_it_is_good() {
    let api = TestApi::new().await;
    let partner = api.reseller("Partner").await;
    for revoked in [
        "by the partner",
        "by the org",
        "by its time",
        "with its org",
    ] {
        let new = json!({"name": revoked});
        let org = api.post("/partner/v1/orgs", &partner.key, new).await;
        let org = org.with(201)["id"].as_str().expect("an id").to_owned();
        let path = format!("/partner/v1/orgs/{org}/api-keys");
        let mut new = json!({});
        if revoked == "by its time" {
            new["expires_at"] = json!(written(now() + Duration::from_secs(60)));
        }

        let made = ask(&api, &path, &partner.key, revoked, &new).await;
        let shown = made.with(201);
        let again = ask(&api, &path, &partner.key, revoked, &new).await;
        assert!(is_replay(&again) && again.text == made.text, "{revoked}");

        let id = shown["api_key_id"].as_str().expect("an id");
        let key = shown["api_key"].as_str().expect("a key");
        let gone = match revoked {
            "by the org" => Some((format!("/api-keys/{id}"), key)),
            "with its org" => Some((format!("/partner/v1/orgs/{org}"), &*partner.key)),
            "by its time" => None,
            _ => Some((format!("{path}/{id}"), &*partner.key)),
        };
        match gone {
            Some((path, key)) => drop(api.delete(&path, key).await.with(200)),
            None => pass(60),
        }
        let refused = ask(&api, &path, &partner.key, revoked, &new).await;
        assert_eq!(refused.with(409)["code"], "secret_revoked", "{revoked}");
    }
}
