//! `/phone/usage` and `/partner/v1/usage`.

use serde_json::{Value, json};
use trunkline_store::{NewOrg, orgs};
use uuid::Uuid;

use crate::call_export::accepting;
use crate::calls::{TRUNK, two_calls};
use crate::test_api::{Answer, NOW, Tenant, TestApi, done};

async fn csv(api: &TestApi, path: &str, token: &str) -> Answer {
    accepting(api, path, token, "text/csv").await
}

/// An answered call of 58 s and a refused one.
fn item(parts: Value) -> Value {
    let mut item = json!({
        "day": null, "org_id": null, "agent_id": null, "trunk_id": null, "direction": null,
        "calls": 2, "answered_calls": 1, "answered_s": 58,
    });
    for (name, value) in parts.as_object().expect("an object") {
        item[name] = value.clone();
    }
    item
}

#[tokio::test]
async fn calls_and_answered_seconds_are_counted_by_what_is_asked() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    two_calls(&api, &tenant).await;
    let agent = Uuid::from_u128(0xa);

    for (query, parts) in [
        ("", json!({"day": "2026-01-31"})),
        ("?group_by=org", json!({"org_id": tenant.org})),
        ("?group_by=trunk", json!({"trunk_id": TRUNK})),
        ("?end_date=2026-03-01", json!({"day": "2026-01-31"})),
        (
            "?group_by=direction,agent&start_date=2026-01-31&end_date=2026-01-31",
            json!({"agent_id": agent, "direction": "inbound"}),
        ),
    ] {
        let path = format!("/phone/usage{query}");
        let usage = api.get(&path, &tenant.token).await.with(200);
        assert_eq!(usage, json!({"items": [item(parts)]}), "{query}");
    }

    // A window without a start begins 30 days before its end.
    for query in [
        "start_date=2026-01-01&end_date=2026-01-30",
        "end_date=2026-01-30",
        "end_date=2026-03-03",
    ] {
        let path = format!("/phone/usage?{query}");
        let usage = api.get(&path, &tenant.token).await.with(200);
        assert_eq!(usage, json!({"items": []}), "{query}");
    }

    let answer = csv(&api, "/phone/usage?group_by=day,agent,trunk", &tenant.token).await;
    assert_eq!(
        answer.header("content-type"),
        Some("text/csv; charset=utf-8")
    );
    assert_eq!(
        answer.text,
        format!(
            "day,org_id,agent_id,trunk_id,direction,calls,answered_calls,answered_s\r\n2026-01-31,,{agent},{TRUNK},,2,1,58\r\n"
        )
    );
}

#[tokio::test]
async fn a_wrong_query_is_refused() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for (query, fault) in [
        ("group_by=day,colour", "group_by"),
        ("group_by=", "group_by"),
        ("start_date=2026-01-31&end_date=2026-01-30", "start_date"),
        ("limit=5", "limit"),
    ] {
        let path = format!("/phone/usage?{query}");
        let refusal = api.get(&path, &tenant.token).await.with(400);
        assert_eq!(refusal["errors"][0]["path"], fault, "{query}");
    }
    let (_, token) = api.key(tenant.org, &["phone:read"]).await;
    api.get("/phone/usage", &token).await.with(403);
}

#[tokio::test]
async fn usage_of_others_is_not_counted() {
    let api = TestApi::new().await;
    let (partner, other) = (api.reseller("Ours").await, api.reseller("Theirs").await);
    let tenant = api.tenant("Alone").await;
    let org = done(&api.store, move |tx, _| {
        orgs::create(tx, Some(partner.id), &NewOrg::named("Acme"), NOW)
    })
    .await
    .id;
    let (key, token) = api.key(org, &["calls:read"]).await;
    let owned = Tenant { org, key, token };
    two_calls(&api, &owned).await;

    let path = "/partner/v1/usage?group_by=org";
    let usage = api.get(path, &partner.key).await.with(200);
    assert_eq!(usage, json!({"items": [item(json!({"org_id": org}))]}));
    let nothing = json!({"items": []});
    assert_eq!(api.get(path, &other.key).await.with(200), nothing);
    assert_eq!(
        api.get("/phone/usage", &tenant.token).await.with(200),
        nothing
    );
    let line = format!(",{org},,,,2,1,58\r\n");
    let answer = csv(&api, path, &partner.key).await;
    assert!(answer.text.ends_with(&line), "{}", answer.text);
}
