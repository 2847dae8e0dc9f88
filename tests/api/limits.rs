//! Request limits of a credential, and the time of its last use.

use serde_json::json;
use trunkline_store::org_keys;

use crate::house::{House, NOW, found, now, pass};
use crate::pages::org_of;

const LIMITS: &str = "[limits]\nrequests_per_minute = 3";

#[tokio::test]
async fn an_orgs_keys_together_may_ask_so_often() {
    let house = House::with(LIMITS).await;
    let (tenant, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    let (_, second) = house.key(tenant.org, &["calls:read"]).await;
    for (token, left) in [(&tenant.token, 2), (&second, 1), (&tenant.token, 0)] {
        let answer = house.get("/phone/calls", token).await;
        answer.with(200);
        let told = format!("\"org\";r={left};t=60");
        assert_eq!(answer.header("RateLimit"), Some(&*told));
        let policy = house.policy("\"org\";q=3;w=60");
        assert_eq!(answer.header("RateLimit-Policy"), Some(&*policy));
    }
    pass(20);
    let refused = house.get("/phone/calls", &second).await;
    insta::assert_json_snapshot!("one_request_too_many", refused.with(429));
    assert_eq!(refused.header("Retry-After"), Some("40"));
    assert_eq!(refused.header("RateLimit"), Some("\"org\";r=0;t=40"));
    house.get("/phone/calls", &other.token).await.with(200);
    pass(39);
    house.get("/phone/calls", &second).await.with(429);
    pass(1);
    house.get("/phone/calls", &second).await.with(200);
}

#[tokio::test]
async fn unless_configured_the_limits_are_those_of_the_document() {
    let house = House::with("[limits]").await;
    let reseller = house.reseller("Reseller").await;
    let org = org_of(&house, &reseller, "Acme").await;
    let (_, token) = house.key(org, &["calls:read"]).await;
    let link = format!("/partner/v1/orgs/{org}/login-links");
    let email = json!({"email": "ada@example.org"});
    for (answer, policy) in [
        (
            house.get("/phone/calls", &token).await,
            "\"org\";q=100;w=60",
        ),
        (
            house.get("/phone/events", &token).await,
            "\"org-streams\";q=1000;w=60",
        ),
        (
            house.get("/partner/v1/orgs", &reseller.key).await,
            "\"partner\";q=100;w=60",
        ),
        (
            house.post(&link, &reseller.key, email).await,
            "\"partner\";q=100;w=60, \"login-links\";q=30;w=60",
        ),
    ] {
        let policy = house.policy(policy);
        assert_eq!(answer.header("RateLimit-Policy"), Some(&*policy));
    }
}

#[tokio::test]
async fn without_a_good_key_nothing_is_counted() {
    let house = House::with(LIMITS).await;
    let tenant = house.tenant("Acme").await;
    for _ in 0..5 {
        let refused = house.get("/phone/calls", "garbage").await;
        refused.with(401);
        assert_eq!(refused.header("RateLimit"), None);
    }
    house.get("/phone/calls", &tenant.token).await.with(200);
}

#[tokio::test]
async fn the_limit_is_judged_before_scope_path_and_body() {
    let house = House::with(LIMITS).await;
    let tenant = house.tenant("Acme").await;
    let (_, narrow) = house.key(tenant.org, &["handoff:read"]).await;
    let refused = house.post("/phone/numbers", &narrow, json!([])).await;
    refused.with(403);
    assert_eq!(refused.header("RateLimit"), Some("\"org\";r=2;t=60"));

    house
        .get("/phone/calls/no-id", &tenant.token)
        .await
        .with(404);
    house
        .get("/phone/calls?colour=red", &tenant.token)
        .await
        .with(400);
    for path in ["/phone/calls/no-id", "/phone/calls?colour=red"] {
        house.get(path, &narrow).await.with(429);
    }
}

#[tokio::test]
async fn a_visitors_token_counts_by_itself() {
    let house = House::with(LIMITS).await;
    let tenant = house.tenant("Acme").await;
    let made = house
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
        house.get("/widget/me", &token).await.with(200);
    }
    let refused = house.get("/widget/me", &token).await;
    refused.with(429);
    assert_eq!(refused.header("RateLimit"), Some("\"visitor\";r=0;t=60"));
    house.get("/phone/calls", &tenant.token).await.with(200);
}

#[tokio::test]
async fn it_is_written_down_when_a_key_was_used_last() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let used = async || {
        house.api.write_uses().await;
        found(&house.store, move |tx| {
            org_keys::by_id(tx, tenant.org, tenant.key.id)
        })
        .await
        .expect("the key is there")
        .last_used_at
    };
    assert_eq!(used().await, None);

    house.get("/phone/calls", &tenant.token).await.with(200);
    pass(5);
    house
        .get("/phone/calls/no-id", &tenant.token)
        .await
        .with(404);
    assert_eq!(used().await, Some(now()));
    pass(5);

    assert_eq!(used().await, Some(NOW + std::time::Duration::from_secs(5)));
}
