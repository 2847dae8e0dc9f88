//! `DELETE /partner/v1/orgs/{orgId}`, `POST …/restore`.

use serde_json::{Value, json};
use trunkline_model::record::{Direction, Fact, Started};
use trunkline_store::deleted_orgs;
use uuid::Uuid;

use crate::test_api::{Reseller, Tenant, TestApi, found, id_of, now, pass};

const ORGS: &str = "/partner/v1/orgs";

async fn org(api: &TestApi, partner: &Reseller, external_id: &str) -> Tenant {
    let body = json!({"name": "Acme", "external_id": external_id});
    let made = api.post(ORGS, &partner.key, body).await.with(201);
    let org: Uuid = id_of(&made).parse().expect("an id");
    let (key, token) = api.key(org, &trunkline::api::SCOPES).await;
    Tenant { org, key, token }
}

fn path(org: Uuid, rest: &str) -> String {
    format!("{ORGS}/{org}{rest}")
}

#[tokio::test]
async fn a_deleted_org_is_as_if_absent() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let ours = org(&api, &partner, "a").await;
    let number = api.number(ours.org, "+442071838750").await;
    let visitor = json!({"email": "ann@example.com"});
    let visitor = api
        .post("/widget/authenticate-user", &ours.token, visitor)
        .await
        .with(200);
    let visitor = visitor["token"].as_str().expect("a token").to_owned();
    let link = json!({"email": "owner@example.com"});
    let link = api
        .post(&path(ours.org, "/login-links"), &partner.key, link)
        .await
        .with(201);
    api.get("/phone", &ours.token).await.with(200);

    let deleted = api.delete(&path(ours.org, ""), &partner.key).await;
    assert_eq!(deleted.with(200), json!({"success": true}));
    let absent = api.get(&path(Uuid::new_v4(), ""), &partner.key).await;
    for rest in ["", "/limits", "/sessions", "/roles", "/phone-numbers"] {
        let answer = api.get(&path(ours.org, rest), &partner.key).await;
        assert_eq!(answer.with(403), absent.json(), "{rest}");
    }

    let again = api.delete(&path(ours.org, ""), &partner.key).await;
    assert_eq!(again.with(403), absent.json(), "twice");
    let key = api
        .post(&path(ours.org, "/api-keys"), &partner.key, json!({}))
        .await;
    assert_eq!(key.with(403), absent.json());

    api.get("/phone", &ours.token).await.with(401);
    api.get("/widget/me", &visitor).await.with(401);
    let link = link["url"].as_str().expect("a link");
    let (_, token) = link.split_once("token=").expect("a token");
    let page = format!("/partner-login?token={token}");
    assert_eq!(api.get(&page, "").await.status, 410);
    let listed = api.get(ORGS, &partner.key).await.with(200);
    assert_eq!(listed["total"], 0);
    let by_id = format!("{ORGS}/by-external-id/a");
    api.get(&by_id, &partner.key).await.with(404);

    // External id and number of the deleted org are free.
    let next = org(&api, &partner, "a").await;
    api.number(next.org, number.number.as_str()).await;
}

#[tokio::test]
async fn a_deleted_org_is_restored_within_thirty_days() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let ours = org(&api, &partner, "a").await;
    let number = api.number(ours.org, "+442071838750").await;
    let before = api.get(&path(ours.org, ""), &partner.key).await.with(200);
    api.delete(&path(ours.org, "?now=false"), &partner.key)
        .await
        .with(200);

    let other = api.reseller("Another").await;
    let restore = path(ours.org, "/restore");
    let foreign = api.post(&restore, &other.key, json!({})).await;
    let absent = path(Uuid::new_v4(), "/restore");
    let absent = api.post(&absent, &other.key, json!({})).await;
    assert_eq!(foreign.with(403), absent.json());
    api.post(&restore, &partner.key, json!({"name": "B"}))
        .await
        .with(400);

    let restored = api.post(&restore, &partner.key, json!({})).await;
    assert_eq!(restored.with(200), before);
    let again = api.post(&restore, &partner.key, json!({})).await;
    assert_eq!(again.with(200), before, "once more changes nothing");
    api.get("/phone", &ours.token).await.with(401);
    let (_, token) = api.key(ours.org, &["phone:read"]).await;
    let numbers = api.get("/phone/numbers", &token).await.with(200);
    assert_eq!(numbers["items"][0]["id"], json!(number.id));
    assert_eq!(numbers["items"][0]["verified"], true);

    api.delete(&path(ours.org, ""), &partner.key)
        .await
        .with(200);
    let next = org(&api, &partner, "a").await;
    let refused = api.post(&restore, &partner.key, json!({})).await.with(409);
    assert_eq!(refused["code"], "external_id_taken");

    api.delete(&path(next.org, ""), &partner.key)
        .await
        .with(200);
    pass(30 * 24 * 3600);
    for org in [ours.org, next.org] {
        let late = path(org, "/restore");
        api.post(&late, &partner.key, json!({})).await.with(403);
    }
}

#[tokio::test]
async fn what_is_deleted_at_once_does_not_come_back() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let ours = org(&api, &partner, "a").await;
    let refused = api
        .delete(&path(ours.org, "?now=maybe"), &partner.key)
        .await
        .with(400);
    assert_eq!(refused["message"], "now: expected true or false");
    api.get(&path(ours.org, ""), &partner.key).await.with(200);

    let deleted = api.delete(&path(ours.org, "?now=true"), &partner.key).await;
    deleted.with(200);
    let restore = path(ours.org, "/restore");
    api.post(&restore, &partner.key, json!({})).await.with(403);
    let at = now();
    assert_eq!(
        found(&api.store, move |tx| deleted_orgs::to_purge(tx, at)).await,
        [ours.org]
    );
}

#[tokio::test]
async fn what_another_tenant_has_stays() {
    let api = TestApi::new().await;
    let (partner, other) = (api.reseller("One").await, api.reseller("Two").await);
    let ours = org(&api, &partner, "a").await;
    let theirs = org(&api, &other, "a").await;
    let foreign = api.delete(&path(theirs.org, ""), &partner.key).await;
    assert_eq!(foreign.with(403)["code"], "foreign_org");
    api.delete(&path(ours.org, "?now=true"), &partner.key)
        .await
        .with(200);
    api.get("/phone", &theirs.token).await.with(200);
    let shown = api.get(&path(theirs.org, ""), &other.key).await.with(200);
    assert_eq!(shown["external_id"], "a");
}

/// A deleted org's calls are still billed: the usage of its partner counts them.
#[tokio::test]
async fn usage_of_a_deleted_org_stays() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let ours = org(&api, &partner, "a").await;
    let started = Started {
        call: Uuid::new_v4(),
        org: ours.org,
        session: Uuid::new_v4(),
        agent: None,
        trunk: None,
        direction: Direction::Inbound,
        from: "100".into(),
        to: "200".into(),
        from_e164: None,
        to_e164: None,
        caller_call_id: "a@b".into(),
        at: now(),
        decision: None,
        headers: Vec::new(),
        metadata: None,
        invite_facts: None,
        clock_offset: 0,
    };
    api.project(&[Fact::Started(started.into())]).await;
    let calls = async |rest: &str| -> Value {
        let usage = format!("/partner/v1/usage{rest}");
        api.get(&usage, &partner.key).await.with(200)["items"][0]["calls"].clone()
    };

    assert_eq!(calls("?group_by=org").await, 1);

    api.delete(&path(ours.org, ""), &partner.key)
        .await
        .with(200);
    assert_eq!(calls("?group_by=org").await, 1);
}
