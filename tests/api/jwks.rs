//! `/.well-known/jwks.json`: a client can verify our tokens with it.

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ed25519_dalek::{Signature, Verifier as _, VerifyingKey};
use serde_json::Value;
use trunkline_store::TokenKind;

use crate::test_api::TestApi;

const PATH: &str = "/.well-known/jwks.json";

fn octets(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).expect("base64url")
}

#[tokio::test]
async fn our_tokens_are_checked_with_the_published_key() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let answer = api.send(Request::get(PATH).body(Body::empty())).await;
    let set = answer.with(200);
    assert_eq!(answer.header("Cache-Control"), Some("public, max-age=300"));

    let body = serde_json::json!({"external_id": "1"});
    let visitor = api
        .post(
            "/widget/authenticate-user-by-external-id",
            &tenant.token,
            body,
        )
        .await
        .with(200);

    let visitor = visitor["token"].as_str().expect("a token");
    for (token, tokens) in [(&*tenant.token, "api_key"), (visitor, "widget_contact")] {
        let (signed, signature) = token.rsplit_once('.').expect("three parts");
        let header = octets(signed.split('.').next().expect("a header"));
        let header: Value = serde_json::from_slice(&header).expect("JSON");
        let keys = set["keys"].as_array().expect("keys");
        let key = keys
            .iter()
            .find(|key| key["kid"] == header["kid"])
            .expect("the key");
        assert_eq!(key["tokens"], tokens, "{set}");
        let x = octets(key["x"].as_str().expect("a text"));
        let public = VerifyingKey::from_bytes(&x.try_into().expect("32 octets")).expect("a key");
        let signature = Signature::from_slice(&octets(signature)).expect("a signature");
        public
            .verify(signed.as_bytes(), &signature)
            .expect("the signature is good");
    }
}

#[tokio::test]
async fn the_set_shows_public_keys_alone() {
    let api = TestApi::new().await;
    let mut set = api
        .send(Request::get(PATH).body(Body::empty()))
        .await
        .with(200);

    for (place, kind) in [TokenKind::ApiKey, TokenKind::Widget]
        .into_iter()
        .enumerate()
    {
        let key = &mut set["keys"][place];
        let signing = api.store.keyring().signing_key_of(kind);
        assert_eq!(key["kid"], signing.id());
        for random in ["kid", "x"] {
            key[random] = "<random>".into();
        }
    }

    insta::assert_json_snapshot!(set);
    api.send(Request::get(format!("{PATH}?x=1")).body(Body::empty()))
        .await
        .with(400);
}
