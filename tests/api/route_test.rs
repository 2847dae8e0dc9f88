//! `/phone/sip/route-test`.

use serde_json::json;
use trunkline_store::numbers;

use crate::house::{House, all_lack, done, masked};

const PATH: &str = "/phone/sip/route-test";

#[tokio::test]
async fn the_decision_is_shown_and_explained() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let agent = house.agent(tenant.org, "Anna").await;
    let number = house.number(tenant.org, "+442071838750").await;
    done(&house.store, move |tx, now| {
        numbers::assign(tx, tenant.org, agent, &[number.id], now)
    })
    .await;
    let question = json!({"to": "+44 20 7183 8750", "from": "sip", "agent_id": "no-id"});
    let decision = house.post(PATH, &tenant.token, question).await.with(200);
    insta::assert_json_snapshot!(masked(decision));
    let question = json!({"to": "+442071838750", "busy": [agent]});
    let decision = house.post(PATH, &tenant.token, question).await.with(200);
    assert_eq!(decision["outcome"], json!({"agent_busy": {"id": agent}}));
    let calls = house.get("/phone/calls", &tenant.token).await.with(200);
    assert_eq!(calls["total"], 0, "nothing is placed");
}

/// Each edit counts for the next call at once: the directory is asked, as a call would ask it, and never the store.
#[tokio::test]
async fn a_change_counts_at_once() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let token = &tenant.token;
    let decide = async || {
        let question = json!({"to": "+442071838750"});
        let decision = house.post(PATH, token, question).await.with(200);
        decision["outcome"].clone()
    };
    assert_eq!(decide().await, json!("no_agent"));
    let agent = house.agent(tenant.org, "Anna").await;
    let step = |step: &str| json!({"agent": {"id": agent, "step": step}});
    assert_eq!(decide().await, step("first_available"));
    let number = house.number(tenant.org, "+442071838750").await.id;
    let numbers = format!("/phone/sip/agents/{agent}/inbound-numbers");
    let ids = json!({"phone_number_ids": [number]});
    house.json("PUT", &numbers, token, ids).await.with(200);
    assert_eq!(decide().await, step("assigned_number"));
    let path = format!("/phone/{agent}");
    house
        .patch(&path, token, json!({"enabled": false}))
        .await
        .with(200);
    assert_eq!(decide().await, json!("no_agent"));
    house
        .patch(&path, token, json!({"enabled": true}))
        .await
        .with(200);
    let path = format!("/phone/numbers/{number}");
    house.delete(&path, token).await.with(200);
    assert_eq!(decide().await, step("first_available"));
    house
        .delete(&format!("/phone/{agent}"), token)
        .await
        .with(200);
    assert_eq!(decide().await, json!("no_agent"));
}

#[tokio::test]
async fn another_tenants_agents_play_no_part() {
    let house = House::new().await;
    let (acme, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    let agent = house.agent(acme.org, "Anna").await;
    house.number(acme.org, "+442071838750").await;
    let question = json!({"to": "+442071838750", "agent_id": agent});
    let decision = house.post(PATH, &other.token, question).await.with(200);
    assert_eq!(decision["outcome"], "no_agent");
}

#[tokio::test]
async fn every_fault_is_named() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    for (body, message) in [
        (json!({}), "to: is required"),
        (
            json!({"to": "", "from": 7, "agent_id": "a\nb", "busy": ["x"], "number": 1}),
            "to: must not be empty; from: expected a text, not a number; agent_id: must not hold control characters; \
             busy[0]: \"x\" is not an id; number: is no field of this request",
        ),
    ] {
        let refused = house.post(PATH, &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
    let (_, writer) = house.key(tenant.org, &["phone:write"]).await;
    all_lack(&[house.post(PATH, &writer, json!([])).await], "phone:read");
}
