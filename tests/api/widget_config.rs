//! `/widget/config`: what a website's widget needs before anybody is authenticated, by the org's `widget_token`.

use std::net::{IpAddr, SocketAddr};

use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use serde_json::{Value, json};
use trunkline_store::orgs;

use crate::test_api::{Answer, Reseller, TestApi, done, id_of, pass};

const CONFIG: &str = "/widget/config";

async fn org(api: &TestApi, partner: &Reseller) -> (String, String) {
    let body = json!({"name": "Harbour Tours", "language": "de", "website": "https://harbour.example", "ai_instructions": "Be brief"});
    let made = api.post("/partner/v1/orgs", &partner.key, body).await;
    let made = made.with(201);
    let token = made["widget_token"].as_str().expect("a token").to_owned();
    (id_of(&made), token)
}

#[tokio::test]
async fn a_website_learns_what_its_widget_needs() {
    let api = TestApi::new().await;
    let partner = api.reseller("Partner").await;
    let (org, token) = org(&api, &partner).await;

    let answer = api.get(CONFIG, &token).await;
    let expected = json!({
        "org_id": org,
        "name": "Harbour Tours",
        "language": "de",
        "authentication_required": true,
        "issuer": "https://api.example",
        "audience": org,
        "jwks_url": "https://api.example/.well-known/jwks.json",
    });
    assert_eq!(answer.with(200), expected);
    let kept = answer.header("Cache-Control");
    assert_eq!(kept, Some("private, max-age=60"));

    // It is no credential for anything else.
    for path in [
        "/widget/me",
        "/phone",
        "/widget/contacts",
        "/partner/v1/orgs",
    ] {
        api.get(path, &token).await.with(401);
    }
    for wrong in [
        "",
        "0",
        &"0".repeat(32),
        &"0".repeat(65),
        &partner.key,
        &org,
    ] {
        let refused = api.get(CONFIG, wrong).await;
        refused.with(401);
        assert_eq!(refused.header("WWW-Authenticate"), Some("Bearer"));
    }
    let nothing = api.send(Request::get(CONFIG).body(Body::empty())).await;
    let message = nothing.with(401)["message"].clone();
    assert_eq!(
        message,
        "The org's widget_token is required: Authorization: Bearer <widget_token>"
    );
    api.get(&format!("{CONFIG}?x=1"), &token).await.with(400);

    let path = |word: &str| format!("/partner/v1/orgs/{org}/{word}");
    api.post(&path("suspend"), &partner.key, json!({}))
        .await
        .with(200);
    let suspended = api.get(CONFIG, &token).await.with(403);
    assert_eq!(suspended["code"], "org_suspended");
    api.post(&path("resume"), &partner.key, json!({}))
        .await
        .with(200);
    api.get(CONFIG, &token).await.with(200);
    let org_path = format!("/partner/v1/orgs/{org}");
    api.delete(&org_path, &partner.key).await.with(200);
    api.get(CONFIG, &token).await.with(401);
    api.post(&path("restore"), &partner.key, json!({}))
        .await
        .with(200);
    api.get(CONFIG, &token).await.with(200);
}

#[tokio::test]
async fn a_replaced_token_is_good_for_a_day() {
    let api = TestApi::new().await;
    let (partner, other) = (api.reseller("Partner").await, api.reseller("Other").await);
    let (org, first) = org(&api, &partner).await;
    let path = format!("/partner/v1/orgs/{org}/rotate-widget-token");
    api.post(&path, &other.key, json!({})).await.with(403);
    api.post(&path, &partner.key, json!({"x": 1}))
        .await
        .with(400);

    pass(1);
    let rotate = async || {
        let shown = api.post(&path, &partner.key, json!({})).await.with(200);
        shown["widget_token"].as_str().expect("a token").to_owned()
    };
    let second = rotate().await;
    assert_ne!(second, first);
    pass(86_399);
    for token in [&first, &second] {
        api.get(CONFIG, token).await.with(200);
    }
    pass(1);
    api.get(CONFIG, &first).await.with(401);

    // Of two rotations in a row the first token goes at once.
    let third = rotate().await;
    let fourth = rotate().await;
    api.get(CONFIG, &second).await.with(401);
    for token in [&third, &fourth] {
        api.get(CONFIG, token).await.with(200);
    }
}

/// Asks for the configuration from this address.
async fn from(api: &TestApi, address: &str, token: &str) -> Answer {
    let ip: IpAddr = address.parse().expect("an address");
    let peer = ConnectInfo(SocketAddr::new(ip, 40_000));
    let request = Request::get(CONFIG)
        .header("Authorization", format!("Bearer {token}"))
        .extension(peer)
        .body(Body::empty());
    api.send(request).await
}

#[tokio::test]
async fn requests_are_counted_by_address_and_org() {
    let api = TestApi::new().await;
    let partner = api.reseller("Partner").await;
    let (_, token) = org(&api, &partner).await;

    for turn in 0..300 {
        // Guesses count as well.
        let token = if turn % 2 == 0 { &*token } else { "guessed" };
        let answer = from(&api, "192.0.2.1", token).await;
        assert_ne!(answer.status, 429, "{turn}");
    }
    let refused = from(&api, "192.0.2.1", &token).await;
    refused.with(429);
    assert!(refused.header("Retry-After").is_some());
    assert_eq!(refused.header("Access-Control-Allow-Origin"), Some("*"));
    let other = from(&api, "192.0.2.2", &token).await;
    other.with(200);
    let limits = other.header("RateLimit-Policy").expect("limits");
    assert!(limits.contains("\"widget\";q=6000") && limits.contains("\"widget-address\";q=300"));
    pass(60);
    from(&api, "192.0.2.1", &token).await.with(200);

    // All addresses together use up what the org has, and no other org's.
    let (_, others) = org(&api, &partner).await;
    let mut last = 200;
    for turn in 0..6_001_u32 {
        let [_, _, high, low] = (turn / 100).to_be_bytes();
        last = from(&api, &format!("198.51.{high}.{low}"), &token)
            .await
            .status;
    }
    assert_eq!(last, 429);
    from(&api, "203.0.113.1", &others).await.with(200);
}

#[tokio::test]
async fn pages_of_other_websites_read_the_widgets_operations_alone() {
    let api = TestApi::new().await;
    let partner = api.reseller("Partner").await;
    let (_, token) = org(&api, &partner).await;
    let preflight = async |path: &str| {
        let request = Request::options(path)
            .header("Origin", "https://harbour.example")
            .header("Access-Control-Request-Method", "GET")
            .header("Access-Control-Request-Headers", "authorization");
        api.send(request.body(Body::empty())).await
    };

    for path in [CONFIG, "/widget/me"] {
        let allowed = preflight(path).await;
        assert_eq!((allowed.status, &*allowed.text), (204, ""), "{path}");
        for (name, value) in [
            ("Access-Control-Allow-Origin", "*"),
            ("Access-Control-Allow-Methods", "GET"),
            ("Access-Control-Allow-Headers", "Authorization"),
        ] {
            assert_eq!(allowed.header(name), Some(value), "{path} {name}");
        }
        assert_eq!(allowed.header("Access-Control-Allow-Credentials"), None);

        // The script reads refusals too.
        for token in [&*token, "wrong"] {
            let answer = api.get(path, token).await;
            let origin = answer.header("Access-Control-Allow-Origin");
            assert_eq!(origin, Some("*"), "{path}: {}", answer.text);
            let readable = answer.header("Access-Control-Expose-Headers");
            assert!(readable.is_some_and(|names| names.contains("Retry-After")));
        }

        // A request that is no preflight isn't answered otherwise than elsewhere.
        let plain = Request::options(path).body(Body::empty());
        let plain = api.send(plain).await;
        plain.with(405);
        assert_eq!(plain.header("Allow"), Some("GET,HEAD"));
    }

    for path in [
        "/widget/contacts",
        "/phone",
        "/widget/authenticate-user",
        "/.well-known/jwks.json",
    ] {
        let refused = preflight(path).await;
        refused.with(405);
        assert_eq!(
            refused.header("Access-Control-Allow-Origin"),
            None,
            "{path}"
        );
        let answer = api.get(path, &token).await;
        assert_eq!(answer.header("Access-Control-Allow-Origin"), None, "{path}");
    }
}

/// The operator rotates the token of an org that has no partner.
#[tokio::test]
async fn an_org_without_a_partner_gets_another_token_too() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let org = tenant.org;
    let made = done(&api.store, move |tx, now| {
        orgs::rotate_widget_token(tx, org, now)
    })
    .await;
    let shown = api.get(CONFIG, &made.widget_token).await.with(200);
    assert_eq!(shown["name"], "Acme");
    assert_eq!(shown["org_id"], Value::from(org.to_string()));
}
