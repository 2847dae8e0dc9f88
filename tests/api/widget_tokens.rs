//! Widget tokens and API keys have signing keys of their own, and neither is taken for the other.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use trunkline::api::SCOPES;
use trunkline_store::TokenKind;

use crate::retired::{forged, widget_claims};
use crate::test_api::{Tenant, TestApi, now, pass};

async fn visitor(api: &TestApi, tenant: &Tenant) -> Value {
    let body = json!({"external_id": "1"});
    let path = "/widget/authenticate-user-by-external-id";
    api.post(path, &tenant.token, body).await.with(200)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

/// Returns the claims of a token.
fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).expect("three parts");
    let octets = URL_SAFE_NO_PAD.decode(part).expect("base64url");
    serde_json::from_slice(&octets).expect("JSON")
}

#[tokio::test]
async fn a_token_of_one_kind_is_never_taken_for_the_other() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let visitor = visitor(&api, &tenant).await;
    let keyring = api.store.keyring();
    let [of_keys, of_widget] =
        [TokenKind::ApiKey, TokenKind::Widget].map(|kind| keyring.signing_key_of(kind));
    assert_ne!(of_keys.id(), of_widget.id());

    // Even signed by the operator's own keys, as a leak of one of them would allow.
    let widget = widget_claims(&visitor["contact"]["id"], tenant.org);
    api.get("/widget/me", &forged(&of_widget, &widget))
        .await
        .with(200);
    api.get("/widget/me", &forged(&of_keys, &widget))
        .await
        .with(401);
    let key = claims(&tenant.token);
    api.get("/phone", &forged(&of_widget, &key)).await.with(401);

    for token in [&*tenant.token, text(&visitor["token"])] {
        let is_key = token == tenant.token;
        let (phone, me) = if is_key { (200, 401) } else { (401, 200) };
        api.get("/phone", token).await.with(phone);
        api.get("/widget/me", token).await.with(me);
        api.get("/widget/config", token).await.with(401);
    }

    for (name, value) in [
        ("aud", json!(other.org)),
        ("org", json!(other.org)),
        ("typ", json!("other")),
        ("aud", Value::Null),
        ("iss", Value::Null),
        ("scopes", json!(SCOPES)),
        ("exp", json!(now().as_secs())),
    ] {
        let mut changed = widget.clone();
        if value.is_null() {
            changed.as_object_mut().expect("claims").remove(name);
        } else {
            changed[name] = value;
        }
        let answer = api.get("/widget/me", &forged(&of_widget, &changed)).await;
        assert_eq!(answer.status, 401, "{changed}");
    }
}

/// Returns claims as widget tokens had them before they had signing keys of their own.
fn old_claims(contact: &Value, org: &Value, lifetime: u64) -> Value {
    let (iat, exp) = (now().as_secs(), now().as_secs() + lifetime);
    json!({"typ": "widget_contact", "sub": contact, "org": org, "iat": iat, "exp": exp})
}

#[tokio::test]
async fn an_installation_from_before_goes_on() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let made = visitor(&api, &tenant).await;
    let (contact, org) = (&made["contact"]["id"], json!(tenant.org));

    // Here a key of API keys has never signed a widget token.
    let old = forged(
        &api.store.keyring().signing_key(),
        &old_claims(contact, &org, 86_400),
    );
    api.get("/widget/me", &old).await.with(401);

    let db = api.leave().await;
    let file = db.folder.path().join("keys.json");
    let Ok(keys) = std::fs::read(&file) else {
        eprintln!("skipped: with PostgreSQL the keys are in the database, sealed");
        return;
    };
    let mut keys: Value = serde_json::from_slice(&keys).expect("JSON");
    let widget = keys.as_object_mut().expect("keys").remove("widget");
    assert!(widget.is_some_and(|widget| widget.is_array()), "{keys}");
    std::fs::write(&file, keys.to_string()).expect("the keys of before");

    let api = TestApi::built("", db).await;
    let (before, pair) = (
        api.store.keyring().signing_key_of(TokenKind::Widget),
        api.store.keyring().signing_key(),
    );
    assert_ne!(before.id(), pair.id());
    api.get("/phone", &tenant.token).await.with(200);
    api.get("/widget/me", &old).await.with(200);
    let new = visitor(&api, &tenant).await;
    let new = text(&new["token"]);
    api.get("/widget/me", new).await.with(200);
    // Nothing lives longer than such a token did.
    let long = forged(&pair, &old_claims(contact, &org, 86_401));
    api.get("/widget/me", &long).await.with(401);
    let key = claims(&tenant.token);
    api.get("/phone", &forged(&before, &key)).await.with(401);

    // A rotation of either kind leaves the tokens of before.
    for kind in [TokenKind::ApiKey, TokenKind::Widget] {
        let rotated = api.store.rotate_signing_key_of(kind, now()).await;
        rotated.expect("another");
        for token in [new, &old] {
            api.get("/widget/me", token).await.with(200);
        }
    }
    // Nor does a restart.
    let db = api.leave().await;
    let api = TestApi::built("", db).await;
    for token in [new, &old] {
        api.get("/widget/me", token).await.with(200);
    }
    pass(86_399);
    api.get("/widget/me", &old).await.with(200);
    pass(1);
    api.get("/widget/me", &old).await.with(401);

    // Once the first key of widget tokens is retired, a key of API keys signs none any more.
    let fresh = forged(&pair, &old_claims(contact, &org, 3_600));
    api.get("/widget/me", &fresh).await.with(200);
    let retired = api.store.retire_signing_key(before.id(), now()).await;
    retired.expect("retired");
    api.get("/widget/me", &fresh).await.with(401);
    api.get("/phone", &tenant.token).await.with(200);
}
