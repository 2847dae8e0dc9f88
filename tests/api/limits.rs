//! Request limits of a credential, and the time of its last use.

use serde_json::json;
use trunkline_store::org_keys;

use crate::pages::{org_of, submit};
use crate::test_api::{NOW, TestApi, found, now, pass};

const LIMITS: &str = "[limits]\nrequests_per_minute = 3";

#[tokio::test]
async fn an_orgs_keys_together_may_ask_so_often() {
    let api = TestApi::with(LIMITS).await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let (_, second) = api.key(tenant.org, &["calls:read"]).await;
    for (token, left) in [(&tenant.token, 2), (&second, 1), (&tenant.token, 0)] {
        let answer = api.get("/phone/calls", token).await;
        answer.with(200);
        let expected = format!("\"org\";r={left};t=60");
        assert_eq!(answer.header("RateLimit"), Some(&*expected));
        let policy = api.policy("\"org\";q=3;w=60");
        assert_eq!(answer.header("RateLimit-Policy"), Some(&*policy));
    }

    pass(20);
    let refused = api.get("/phone/calls", &second).await;
    insta::assert_json_snapshot!("one_request_too_many", refused.with(429));
    assert_eq!(refused.header("Retry-After"), Some("40"));
    assert_eq!(refused.header("RateLimit"), Some("\"org\";r=0;t=40"));

    api.get("/phone/calls", &other.token).await.with(200);
    pass(39);
    api.get("/phone/calls", &second).await.with(429);
    pass(1);
    api.get("/phone/calls", &second).await.with(200);
}

#[tokio::test]
async fn unless_configured_the_limits_are_those_of_the_document() {
    let api = TestApi::with("[limits]").await;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(&api, &reseller, "Acme").await;
    let (_, token) = api.key(org, &["calls:read"]).await;
    let link = format!("/partner/v1/orgs/{org}/login-links");
    let email = json!({"email": "ada@example.org"});

    for (answer, policy) in [
        (api.get("/phone/calls", &token).await, "\"org\";q=100;w=60"),
        (
            api.get("/phone/events", &token).await,
            "\"org-streams\";q=1000;w=60",
        ),
        (
            api.get("/partner/v1/orgs", &reseller.key).await,
            "\"partner\";q=100;w=60",
        ),
        (
            api.post(&link, &reseller.key, email).await,
            "\"partner\";q=100;w=60, \"login-links\";q=30;w=60",
        ),
    ] {
        let policy = api.policy(policy);
        assert_eq!(answer.header("RateLimit-Policy"), Some(&*policy));
    }
}

#[tokio::test]
async fn without_a_good_key_nothing_is_counted() {
    let api = TestApi::with(LIMITS).await;
    let tenant = api.tenant("Acme").await;
    for _ in 0..5 {
        let refused = api.get("/phone/calls", "garbage").await;
        refused.with(401);
        assert_eq!(refused.header("RateLimit"), None);
    }
    api.get("/phone/calls", &tenant.token).await.with(200);
}

#[tokio::test]
async fn the_limit_is_judged_before_scope_path_and_body() {
    let api = TestApi::with(LIMITS).await;
    let tenant = api.tenant("Acme").await;
    let (_, narrow) = api.key(tenant.org, &["handoff:read"]).await;
    let refused = api.post("/phone/numbers", &narrow, json!([])).await;
    refused.with(403);
    assert_eq!(refused.header("RateLimit"), Some("\"org\";r=2;t=60"));

    api.get("/phone/calls/no-id", &tenant.token).await.with(404);
    api.get("/phone/calls?colour=red", &tenant.token)
        .await
        .with(400);
    for path in ["/phone/calls/no-id", "/phone/calls?colour=red"] {
        api.get(path, &narrow).await.with(429);
    }
}

#[tokio::test]
async fn a_visitors_token_counts_by_itself() {
    let api = TestApi::with(LIMITS).await;
    let tenant = api.tenant("Acme").await;
    let made = api
        .post(
            "/widget/authenticate-user",
            &tenant.token,
            json!({"email": "a@b.com"}),
        )
        .await;
    let token = made.with(200)["token"]
        .as_str()
        .expect("a token")
        .to_owned();

    for _ in 0..3 {
        api.get("/widget/me", &token).await.with(200);
    }
    let refused = api.get("/widget/me", &token).await;
    refused.with(429);

    assert_eq!(refused.header("RateLimit"), Some("\"visitor\";r=0;t=60"));

    api.get("/phone/calls", &tenant.token).await.with(200);
}

#[tokio::test]
async fn it_is_written_down_when_a_key_was_used_last() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let used = async || {
        api.state.write_uses().await;
        found(&api.store, move |tx| {
            org_keys::by_id(tx, tenant.org, tenant.key.id)
        })
        .await
        .expect("the key is there")
        .last_used_at
    };
    assert_eq!(used().await, None);

    api.get("/phone/calls", &tenant.token).await.with(200);
    pass(5);
    api.get("/phone/calls/no-id", &tenant.token).await.with(404);
    assert_eq!(used().await, Some(now()));
    pass(5);

    assert_eq!(used().await, Some(NOW + std::time::Duration::from_secs(5)));
}

/// A form that logs in is read before its sender is known, so its length is bounded.
#[tokio::test]
async fn a_long_form_is_refused_before_anybody_is_known() {
    let api = TestApi::new().await;
    for path in ["/partner-login", "/operator-console/login"] {
        let long = format!("token={}", "x".repeat(5_000));
        let refused = submit(&api, path, "", &long).await;
        assert_eq!(refused.status, 413, "{path}: {}", refused.text);
        let short = submit(&api, path, "", "token=x").await;
        assert_eq!(short.status, 410, "{path}: {}", short.text);
    }
}
