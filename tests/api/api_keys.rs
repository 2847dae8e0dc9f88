//! `/api-keys`, `/api-keys/{api_key_id}`.

use serde_json::{Value, json};
use trunkline::api::SCOPES;
use trunkline_store::org_keys;

use crate::test_api::{TestApi, all_absent, all_lack, masked, pass, walk, written};

const KEYS: &str = "/api-keys";

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

#[tokio::test]
async fn a_key_is_made_shown_once_used_and_revoked() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let body = json!({"name": "Reader", "scopes": ["calls:read", "phone:read", "calls:read"]});
    let mut made = api.post(KEYS, &tenant.token, body).await.with(201);
    let key = text(&made["api_key"].take());
    insta::assert_json_snapshot!("a_new_key", masked(made.clone()));
    api.get("/phone", &key).await.with(200);
    all_lack(&[api.post("/phone", &key, json!({})).await], "phone:write");

    let listed = api.get(KEYS, &tenant.token).await;
    assert!(!listed.text.contains(&key), "a key is shown once");
    let id = text(&made["api_key_id"]);
    let path = format!("{KEYS}/{id}");
    let gone = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));

    api.get("/phone", &key).await.with(401);
    all_absent(&[api.delete(&path, &tenant.token).await], "API key");
    let row = api
        .store
        .read_inline(move |tx| org_keys::by_id(tx, tenant.org, id.parse().expect("an id")))
        .await;
    assert_eq!(row.expect("an answer"), None);
}

#[tokio::test]
async fn keys_are_listed_newest_first() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    for name in ["one", "two"] {
        pass(1);
        api.post(KEYS, &tenant.token, json!({"name": name}))
            .await
            .with(201);
    }
    let names = walk(&api, KEYS, &tenant.token, 2, "name").await;
    assert_eq!(names, ["two", "one", "Test"]);
    let page = api.get(KEYS, &other.token).await.with(200);
    insta::assert_json_snapshot!(masked(page));
}

#[tokio::test]
async fn a_key_grants_no_scope_that_it_lacks() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let scopes = async |token: &str, body: Value| {
        let made = api.post(KEYS, token, body).await.with(201);
        made["scopes"].clone()
    };
    assert_eq!(scopes(&tenant.token, json!({})).await, json!(SCOPES));

    let default = json!({"name": null, "scopes": null});
    assert_eq!(scopes(&tenant.token, default).await, json!(SCOPES));

    let (_, maker) = api.key(tenant.org, &["keys:write", "calls:read"]).await;
    let its_own = json!(["calls:read", "keys:write"]);
    assert_eq!(scopes(&maker, json!({})).await, its_own);

    let one = json!({"scopes": ["calls:read"]});
    assert_eq!(scopes(&maker, one).await, json!(["calls:read"]));

    let more = json!({"scopes": ["calls:read", "phone:write", "phone:read"]});
    all_lack(&[api.post(KEYS, &maker, more).await], "phone:write");

    let (_, reader) = api.key(tenant.org, &["calls:read"]).await;
    let answers = [
        api.post(KEYS, &reader, json!([])).await,
        api.get(&format!("{KEYS}?limit=0"), &reader).await,
        api.delete(&format!("{KEYS}/no-id"), &reader).await,
    ];
    all_lack(&answers, "keys:write");
}

#[tokio::test]
async fn a_key_ends_by_itself_and_makes_none_that_outlives_it() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let body = json!({"scopes": ["keys:write"], "expires_at": written(60)});
    let made = api.post(KEYS, &tenant.token, body).await.with(201);
    assert_eq!(made["expires_at"], written(60));
    let key = text(&made["api_key"]);

    // A new key inherits the end of the key that made it, and may name an earlier end.
    for (body, ends_at) in [
        (json!({}), written(60)),
        (json!({"expires_at": written(30)}), written(30)),
    ] {
        let child = api.post(KEYS, &key, body).await.with(201);
        assert_eq!(child["expires_at"], ends_at);
    }
    let later = json!({"expires_at": written(61)});
    let refused = api.post(KEYS, &key, later).await.with(403);
    let message = text(&refused["message"]);
    assert!(message.contains(&written(60)), "{message}");

    for (wrong, fault) in [
        (json!(written(0)), "must lie in the future"),
        (json!("2036-01-31"), "is not an RFC 3339 time"),
        (json!(7), "expected a text"),
    ] {
        let body = json!({"expires_at": wrong});
        let refused = api.post(KEYS, &tenant.token, body).await.with(400);
        let message = text(&refused["message"]);
        assert!(
            message.starts_with("expires_at: ") && message.contains(fault),
            "{message}"
        );
    }

    // The lookup of the last use is still cached when the key ends.
    pass(59);
    api.get(KEYS, &key).await.with(200);
    pass(1);
    let refused = api.get(KEYS, &key).await.with(401);
    assert_eq!(refused["message"], "The API key has expired");
    api.get(KEYS, &tenant.token).await.with(200);
}

#[tokio::test]
async fn every_fault_is_named() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for (body, message) in [
        (
            json!({"name": "", "scopes": ["calls:read", "calls:write "], "expires": 1}),
            "name: must not be empty; scopes[1]: \"calls:write \" is none of widget:write, handoff:read, handoff:write, \
             phone:read, phone:write, calls:read, calls:write, webhooks:write, keys:write, integrations:read; \
             expires: is no field of this request",
        ),
        (
            json!({"scopes": []}),
            "scopes: expected 1 to 10 entries, not 0",
        ),
        (
            json!({"scopes": "calls:read"}),
            "scopes: expected a list, not a text",
        ),
    ] {
        let refused = api.post(KEYS, &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn a_key_of_another_tenant_is_as_one_that_is_not_there() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let theirs = acme.key.id.to_string();
    for id in [&*theirs, "00000000-0000-0000-0000-000000000000", "no-id"] {
        let path = format!("{KEYS}/{id}?x=1");
        all_absent(&[api.delete(&path, &other.token).await], "API key");
    }
    api.get("/phone", &acme.token).await.with(200);
}

#[tokio::test]
async fn a_key_may_revoke_itself() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let path = format!("{KEYS}/{}", tenant.key.id);
    api.delete(&path, &tenant.token).await.with(200);
    let rows = api
        .store
        .read_inline(move |tx| org_keys::list(tx, tenant.org))
        .await;
    assert_eq!(rows.expect("an answer"), []);
}

#[tokio::test]
async fn a_key_revokes_no_key_that_may_do_more() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, small) = api.key(tenant.org, &["keys:write", "phone:read"]).await;
    let (equal, _) = api.key(tenant.org, &["phone:read"]).await;
    let path = format!("{KEYS}/{}", tenant.key.id);
    let refused = api.delete(&path, &small).await.with(403);
    assert_eq!(refused["code"], "missing_scope");

    api.get(KEYS, &tenant.token).await.with(200);
    api.delete(&format!("{KEYS}/{}", equal.id), &small)
        .await
        .with(200);
    let absent = format!("{KEYS}/{}", equal.id);
    all_absent(&[api.delete(&absent, &small).await], "API key");
}
