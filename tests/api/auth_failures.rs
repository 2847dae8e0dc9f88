//! `/phone/sip/inbound-trunk/auth-failures`.

use serde_json::json;
use trunkline_store::{NewAuthFailure, auth_failures};
use uuid::Uuid;

use crate::test_api::{
    Tenant, TestApi, all_absent, all_lack, done, id_of, masked, now, pass, walk,
};

const TRUNK: &str = "/phone/sip/inbound-trunk";
const FAILURES: &str = "/phone/sip/inbound-trunk/auth-failures";

/// Makes a trunk of the tenant, and failed log-ins on it, each from another address.
async fn failures(api: &TestApi, tenant: &Tenant, number: &str, count: u8) {
    api.number(tenant.org, number).await;
    let trunk = api.post(TRUNK, &tenant.token, json!({})).await.with(201);
    let trunk: Uuid = id_of(&trunk).parse().expect("an id");

    for at in 1..=count {
        pass(1);
        let failure = NewAuthFailure {
            org: tenant.org,
            trunk,
            username: "trunk-a".into(),
            source: [192, 0, 2, at].into(),
            part: "password",
            at: now(),
            sip_call_id: "call@pbx".into(),
            dialled: Some("+442071838750".into()),
        };
        done(&api.store, move |tx, _| {
            auth_failures::record(tx, &[failure])
        })
        .await;
    }
}

#[tokio::test]
async fn failed_log_ins_are_listed_newest_first() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    failures(&api, &acme, "+442071838751", 3).await;
    failures(&api, &other, "+442071838752", 0).await;
    let page = api.get(FAILURES, &acme.token).await.with(200);
    insta::assert_json_snapshot!(masked(page));

    let sources = walk(&api, FAILURES, &acme.token, 2, "source").await;
    assert_eq!(sources, ["192.0.2.3", "192.0.2.2", "192.0.2.1"]);

    for (query, expected) in [
        ("source=192.0.2.2", 1),
        ("source=::ffff:192.0.2.2", 1),
        ("username=trunk-a", 3),
        ("username=trunk-a&source=192.0.2.9", 0),
        ("username=trunk-b", 0),
    ] {
        let page = api.get(&format!("{FAILURES}?{query}"), &acme.token).await;
        assert_eq!(page.with(200)["total"], expected, "{query}");
    }

    let none = json!({"items": [], "next": null, "total": 0});
    assert_eq!(api.get(FAILURES, &other.token).await.with(200), none);
}

#[tokio::test]
async fn without_a_trunk_there_are_none_to_list() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let answer = api.get(&format!("{FAILURES}?limit=0"), &tenant.token).await;
    all_absent(&[answer], "inbound trunk");
}

#[tokio::test]
async fn a_wrong_question_is_refused() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    failures(&api, &tenant, "+442071838751", 0).await;
    let path = format!("{FAILURES}?limit=0&cursor=x&source=pbx&from=x");
    let refused = api.get(&path, &tenant.token).await.with(400);
    assert_eq!(
        refused["message"],
        "source: \"pbx\" is not an IP address; limit: expected a number from 1 to 100; cursor: is no cursor of this list; from: is no parameter of this endpoint"
    );
    let (_, writer) = api.key(tenant.org, &["phone:write"]).await;
    all_lack(&[api.get(&path, &writer).await], "phone:read");
}
