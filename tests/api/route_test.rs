//! `/phone/sip/route-test`.

use serde_json::json;
use trunkline_store::numbers;

use crate::test_api::{TestApi, all_lack, done, masked};

const PATH: &str = "/phone/sip/route-test";

#[tokio::test]
async fn the_decision_is_shown_and_explained() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Anna").await;
    let number = api.number(tenant.org, "+442071838750").await;
    done(&api.store, move |tx, now| {
        numbers::assign(tx, tenant.org, agent, &[number.id], now)
    })
    .await;
    let question = json!({"to": "+44 20 7183 8750", "from": "sip", "agent_id": "no-id"});
    let decision = api.post(PATH, &tenant.token, question).await.with(200);
    insta::assert_json_snapshot!(masked(decision));

    let question = json!({"to": "+442071838750", "busy": [agent]});
    let decision = api.post(PATH, &tenant.token, question).await.with(200);
    assert_eq!(decision["outcome"], json!({"agent_busy": {"id": agent}}));

    let calls = api.get("/phone/calls", &tenant.token).await.with(200);
    assert_eq!(calls["total"], 0, "nothing is placed");
}

/// Each edit counts for the next call at once: the request asks the directory, as a call would, and never the store.
#[tokio::test]
async fn a_change_counts_at_once() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let token = &tenant.token;
    let decide = async || {
        let question = json!({"to": "+442071838750"});
        let decision = api.post(PATH, token, question).await.with(200);
        decision["outcome"].clone()
    };
    assert_eq!(decide().await, json!("no_agent"));

    let agent = api.agent(tenant.org, "Anna").await;
    let step = |step: &str| json!({"agent": {"id": agent, "step": step}});
    assert_eq!(decide().await, step("first_available"));

    let number = api.number(tenant.org, "+442071838750").await.id;
    let numbers = format!("/phone/sip/agents/{agent}/inbound-numbers");
    let ids = json!({"phone_number_ids": [number]});
    api.json("PUT", &numbers, token, ids).await.with(200);
    assert_eq!(decide().await, step("assigned_number"));

    let path = format!("/phone/{agent}");
    api.patch(&path, token, json!({"enabled": false}))
        .await
        .with(200);
    assert_eq!(decide().await, json!("no_agent"));
    api.patch(&path, token, json!({"enabled": true}))
        .await
        .with(200);
    let path = format!("/phone/numbers/{number}");
    api.delete(&path, token).await.with(200);
    assert_eq!(decide().await, step("first_available"));

    api.delete(&format!("/phone/{agent}"), token)
        .await
        .with(200);
    assert_eq!(decide().await, json!("no_agent"));
}

#[tokio::test]
async fn another_tenants_agents_play_no_part() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let agent = api.agent(acme.org, "Anna").await;
    api.number(acme.org, "+442071838750").await;
    let question = json!({"to": "+442071838750", "agent_id": agent});
    let decision = api.post(PATH, &other.token, question).await.with(200);
    assert_eq!(decision["outcome"], "no_agent");
}

#[tokio::test]
async fn every_fault_is_named() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for (body, message) in [
        (json!({}), "to: is required"),
        (
            json!({"to": "", "from": 7, "agent_id": "a\nb", "busy": ["x"], "number": 1}),
            "to: must not be empty; from: expected a text, not a number; agent_id: must not hold control characters; \
             busy[0]: \"x\" is not an id; number: is no field of this request",
        ),
    ] {
        let refused = api.post(PATH, &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
    let (_, writer) = api.key(tenant.org, &["phone:write"]).await;
    all_lack(&[api.post(PATH, &writer, json!([])).await], "phone:read");
}
