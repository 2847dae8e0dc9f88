//! API keys: their scopes, and their end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use trunkline_store::org_keys;

use axum::body::Body;
use axum::http::Request;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use trunkline::api::Server;
use trunkline::console;

use crate::test_api::{NOW, TestApi, done};

fn signed_by_nobody(header: &str, claims: &str) -> String {
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!(
        "{}.{}.{}",
        part(header),
        part(claims),
        URL_SAFE_NO_PAD.encode([0_u8; 64])
    )
}

#[tokio::test]
async fn without_a_good_key_it_is_401() {
    let (api, other) = (TestApi::new().await, TestApi::new().await);
    let tenant = api.tenant("Acme").await;
    let foreign = other.tenant("Elsewhere").await;
    let kid = api.store.keyring().signing_key().id().to_owned();

    let claims = format!(
        r#"{{"sub":"{}","org":"{}","scopes":["calls:read"],"iat":1}}"#,
        tenant.key.id, tenant.org
    );

    let mut forged = tenant.token.clone();
    forged.truncate(forged.len() - 4);
    forged.push_str("AAAA");

    let none = signed_by_nobody(&format!(r#"{{"alg":"none","kid":"{kid}"}}"#), &claims);
    let hmac = signed_by_nobody(&format!(r#"{{"alg":"HS256","kid":"{kid}"}}"#), &claims);

    for (name, header) in [
        ("absent", None),
        ("another scheme", Some("Basic eDp5".to_owned())),
        ("empty", Some("Bearer ".to_owned())),
        ("garbage", Some("Bearer garbage".to_owned())),
        (
            "another installation's",
            Some(format!("Bearer {}", foreign.token)),
        ),
        ("a forged signature", Some(format!("Bearer {forged}"))),
        ("no algorithm", Some(format!("Bearer {none}"))),
        ("another algorithm", Some(format!("Bearer {hmac}"))),
        ("too long", Some(format!("Bearer {}", "a".repeat(5000)))),
    ] {
        let mut request = Request::get("/phone/calls");
        if let Some(header) = header {
            request = request.header("Authorization", header);
        }

        let answer = api.send(request.body(Body::empty())).await;
        let body = answer.with(401);
        assert_eq!(
            (&body["statusCode"], &body["error"]),
            (&401.into(), &"Unauthorized".into()),
            "{name}"
        );
        assert_eq!(answer.header("WWW-Authenticate"), Some("Bearer"), "{name}");
    }
}

#[tokio::test]
async fn the_schemes_name_ignores_case() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let request =
        Request::get("/phone/calls").header("authorization", format!("bearer {}", tenant.token));
    api.send(request.body(Body::empty())).await.with(200);
}

#[tokio::test]
async fn a_missing_scope_is_403_and_is_named() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, token) = api.key(tenant.org, &["phone:read"]).await;
    let id = uuid::Uuid::nil();

    for path in [
        "/phone/calls".to_owned(),
        format!("/phone/calls/{id}"),
        format!("/phone/calls/{id}/routing"),
        "/phone/calls?colour=red".to_owned(),
    ] {
        let body = api.get(&path, &token).await.with(403);
        let expected = serde_json::json!({"statusCode": 403, "message": "This API key lacks the scope calls:read", "error": "Forbidden", "code": "missing_scope"});
        assert_eq!(body, expected, "{path}");
    }
}

#[tokio::test]
async fn a_revoked_key_is_refused() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    done(&api.store, move |tx, _| {
        org_keys::revoke(tx, tenant.org, tenant.key.id, NOW)
    })
    .await;
    let body = api.get("/phone/calls", &tenant.token).await.with(401);
    assert_eq!(body["message"], "The API key has been revoked");
}

/// Returns the status that a real server answers over a socket.
fn status(address: SocketAddr, token: &str) -> u16 {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    write!(stream, "GET /phone/calls HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n").expect("a request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer comes");
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("no status: {answer}"))
}

/// The clock of the API is frozen, so only the change feed can evict a key that is cached.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_in_use_ends_when_it_is_revoked() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address");
    let server = Server::start(
        api.state.clone(),
        console::router(api.state.clone()),
        listener,
        None,
        usize::MAX,
    );
    let token = tenant.token.clone();
    let ask = move || {
        let token = token.clone();
        tokio::task::spawn_blocking(move || status(address, &token))
    };
    assert_eq!(ask().await.expect("asked"), 200);

    done(&api.store, move |tx, _| {
        org_keys::revoke(tx, tenant.org, tenant.key.id, NOW)
    })
    .await;

    let refused = async { while ask().await.expect("asked") != 401 {} };
    tokio::time::timeout(Duration::from_secs(20), refused)
        .await
        .expect("the key is refused at last");
    server.stop().await;
}

#[tokio::test]
async fn a_credential_of_another_kind_is_named() {
    let api = TestApi::new().await;
    let (tenant, partner) = (api.tenant("Acme").await, api.reseller("Reseller").await);
    let session = format!("tls_{}", "0".repeat(64));
    for (path, credential, code, right) in [
        ("/phone", &partner.key, "partner_key", "/api-keys"),
        ("/phone", &session, "session_token", "/phone/sessions/"),
        ("/partner/v1/orgs", &tenant.token, "org_key", "partner key"),
    ] {
        let refused = api.get(path, credential).await.with(401);
        assert_eq!(refused["code"], code, "{path}");
        let message = refused["message"].as_str().expect("a sentence");
        assert!(message.contains(right), "{message}");
    }

    for answer in [
        api.get("/phone/agents", &tenant.token).await.with(404),
        api.post("/phone/agents", &tenant.token, serde_json::json!({}))
            .await
            .with(405),
    ] {
        let message = answer["message"].as_str().expect("a sentence");
        assert!(message.contains("listed at /phone"), "{message}");
    }

    let faults = serde_json::json!({"name": "", "colour": "red"});
    let refused = api.post("/api-keys", &tenant.token, faults).await.with(400);

    let errors = serde_json::json!([
        {"path": "name", "message": "must not be empty"},
        {"path": "colour", "message": "is no field of this request"},
    ]);
    assert_eq!(
        (&refused["code"], &refused["errors"]),
        (&"bad_request".into(), &errors)
    );
}
