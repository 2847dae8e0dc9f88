//! Signing keys that are retired: tokens that they signed are refused, and API keys whose tokens are stored stay valid.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use trunkline::api::SCOPES;
use trunkline_store::{SigningPair, TokenKind, org_keys};
use uuid::Uuid;

use crate::test_api::{TestApi, done, found, now, pass};

/// Forges a token with the signing key.
pub(crate) fn forged(pair: &SigningPair, claims: &Value) -> String {
    forged_as(Some(pair.id()), pair, claims)
}

/// Forges a token with any `kid`, or none.
fn forged_as(kid: Option<&str>, pair: &SigningPair, claims: &Value) -> String {
    let mut header = Header::new(Algorithm::EdDSA);
    header.kid = kid.map(str::to_owned);
    let key = EncodingKey::from_ed_der(&pair.pkcs8());
    jsonwebtoken::encode(&header, claims, &key).expect("a token")
}

/// Claims that a widget token of this contact has.
pub(crate) fn widget_claims(contact: &Value, org: Uuid) -> Value {
    let (iat, exp) = (now().as_secs(), now().as_secs() + 3600);
    json!({
        "typ": "widget_contact", "iss": "https://api.example", "aud": org, "sub": contact, "org": org, "iat": iat, "exp": exp,
    })
}

#[tokio::test]
async fn a_retired_key_of_api_keys_forges_nothing() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let stolen = api.store.keyring().signing_key();
    let iat = now().as_secs();
    let key = json!({"sub": tenant.key.id, "org": tenant.org, "scopes": SCOPES, "iat": iat, "jti": tenant.key.id});
    let key = forged(&stolen, &key);

    // A key accepts only the token that was issued for it, even if another is signed.
    api.get("/phone", &key).await.with(401);
    api.get("/phone", &tenant.token).await.with(200);
    let kid = stolen.id();
    let signs = api.store.retire_signing_key(kid, now()).await;
    let signs = signs.expect_err("it signs").to_string();
    assert!(signs.ends_with("trunkline key rotate-signing"), "{signs}");

    api.store.rotate_signing_key(now()).await.expect("another");
    let (_, second) = api.key(tenant.org, &SCOPES).await;
    api.store
        .retire_signing_key(kid, now())
        .await
        .expect("retired");
    pass(61);

    api.get("/phone", &key).await.with(401);
    for token in [&tenant.token, &second] {
        api.get("/phone", token).await.with(200);
    }
    let published = api.get("/.well-known/jwks.json", "").await.text;
    assert!(!published.contains(kid), "{published}");

    let again = api.store.retire_signing_key(kid, now()).await;
    again.expect("it is retired already");
    let never = api.store.retire_signing_key("00", now()).await;
    assert!(
        never
            .expect_err("there is none")
            .to_string()
            .contains("list-signing")
    );

    // Its API keys can be revoked together with it.
    let (of, by) = (kid.to_owned(), kid.to_owned());
    let signed = found(&api.store, move |tx| org_keys::signed_with(tx, &by)).await;
    assert_eq!((signed.len(), signed[0].keys), (1, 1));
    assert_eq!(
        done(&api.store, move |tx, now| org_keys::revoke_signed_with(
            tx, &of, now
        ))
        .await,
        1
    );

    pass(61);
    api.get("/phone", &tenant.token).await.with(401);
    api.get("/phone", &second).await.with(200);
}

#[tokio::test]
async fn a_retired_key_of_widget_tokens_forges_nothing() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let asked = async || {
        let visitor = json!({"email": "ann@example.com"});
        let path = "/widget/authenticate-user";
        api.post(path, &tenant.token, visitor).await.with(200)
    };
    let old = asked().await;
    let stolen = api.store.keyring().signing_key_of(TokenKind::Widget);
    let widget = forged(&stolen, &widget_claims(&old["contact"]["id"], tenant.org));
    let old = old["token"].as_str().expect("a token");
    let signs = api.store.retire_signing_key(stolen.id(), now()).await;
    let signs = signs.expect_err("it signs").to_string();
    assert!(signs.ends_with("rotate-signing --widget"), "{signs}");

    // Another key of API keys changes nothing for widget tokens.
    api.store.rotate_signing_key(now()).await.expect("another");
    let signs = api.store.retire_signing_key(stolen.id(), now()).await;
    signs.expect_err("it signs still");

    let rotated = api
        .store
        .rotate_signing_key_of(TokenKind::Widget, now())
        .await;
    rotated.expect("another");
    for token in [old, &widget] {
        api.get("/widget/me", token).await.with(200);
    }
    let new = asked().await;
    let retired = api.store.retire_signing_key(stolen.id(), now()).await;
    retired.expect("retired");
    for token in [old, &widget] {
        api.get("/widget/me", token).await.with(401);
    }
    let new = new["token"].as_str().expect("a token");
    api.get("/widget/me", new).await.with(200);
    api.get("/phone", &tenant.token).await.with(200);
    let published = api.get("/.well-known/jwks.json", "").await.text;
    assert!(!published.contains(stolen.id()), "{published}");
}

#[tokio::test]
async fn a_token_that_lies_about_its_signing_key_is_refused() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let old = api.store.keyring().signing_key();
    let rotated = api.store.rotate_signing_key(now()).await;
    rotated.expect("another");
    let retired = api.store.retire_signing_key(old.id(), now()).await;
    retired.expect("retired");
    let (_, token) = api.key(tenant.org, &SCOPES).await;
    let payload = token.split('.').nth(1).expect("three parts");
    let payload = URL_SAFE_NO_PAD.decode(payload).expect("base64");
    let claims: Value = serde_json::from_slice(&payload).expect("claims");

    // The retired key signs under the good key's id, its own, none, and an unknown one.
    let good = api.store.keyring().signing_key().id().to_owned();
    for kid in [Some(&*good), Some(old.id()), None, Some("0000000000000000")] {
        let forged = forged_as(kid, &old, &claims);
        api.get("/phone", &forged).await.with(401);
    }
    api.get("/phone", &token).await.with(200);
    // Credentials of dashboard and widget aren't API keys, and API keys aren't theirs.
    api.get("/widget/me", &token).await.with(401);
}
