//! `/partner/v1/orgs`, `/partner/v1/orgs/by-external-id/{externalId}`.

use serde_json::{Value, json};
use trunkline_store::{NewPartner, SuspendedBy, Suspender, orgs, partners};
use uuid::Uuid;

use crate::test_api::{Reseller, TestApi, done, found, masked, pass};

const ORGS: &str = "/partner/v1/orgs";

/// Masks ids, times and the widget token, which is random.
fn shown(mut body: Value) -> Value {
    let token = body["widget_token"].as_str().expect("a token");
    assert!(token.len() >= 32, "{token}");
    body["widget_token"] = json!("<token>");
    masked(body)
}

async fn org(api: &TestApi, partner: &Reseller, body: Value) -> Value {
    pass(1);
    api.post(ORGS, &partner.key, body).await.with(201)
}

#[tokio::test]
async fn an_org_is_made_found_and_listed() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let everything = json!({
        "name": "Tours & Co",
        "external_id": "cust/7 ä",
        "website": "https://tours.example",
        "language": "fr",
        "ai_instructions": "Be kind.\nBe brief.",
        "integrations": {},
    });

    let made = org(&api, &partner, everything).await;
    insta::assert_json_snapshot!("a_new_org", shown(made.clone()));
    let shown_again = api
        .get(
            &format!("{ORGS}/by-external-id/cust%2F7%20%C3%A4"),
            &partner.key,
        )
        .await;
    insta::assert_json_snapshot!("an_org_by_its_external_id", shown(shown_again.with(200)));
    let least = org(&api, &partner, json!({"name": "B"})).await;
    assert_eq!(least["external_id"], Value::Null);

    let listed = api.get(ORGS, &partner.key).await.with(200);
    assert_eq!(listed["total"], 2);
    assert_eq!(listed["data"][0]["id"], least["id"]);
    assert_eq!(listed["data"][1], shown_again.json());

    let id = made["id"].as_str().and_then(|id| id.parse().ok());
    let org = found(&api.store, move |tx| orgs::by_id(tx, id.expect("an id"))).await;
    let kept = (
        org.website.as_deref(),
        &*org.language,
        org.ai_instructions.as_deref(),
    );
    assert_eq!(
        kept,
        (
            Some("https://tours.example"),
            "fr",
            Some("Be kind.\nBe brief.")
        )
    );
}

#[tokio::test]
async fn an_external_id_is_unique_within_a_partner() {
    let api = TestApi::new().await;
    let (ours, theirs) = (api.reseller("Ours").await, api.reseller("Theirs").await);
    let body = json!({"name": "A", "external_id": "7"});
    let made = org(&api, &ours, body.clone()).await;
    let again = api.post(ORGS, &ours.key, body.clone()).await;
    insta::assert_json_snapshot!("an_external_id_twice", again.with(409));

    let other = org(&api, &theirs, body).await;
    assert_ne!(made["id"], other["id"]);

    for (partner, expected) in [(&ours, &made), (&theirs, &other)] {
        let found = api
            .get(&format!("{ORGS}/by-external-id/7"), &partner.key)
            .await
            .with(200);
        assert_eq!(found["id"], expected["id"]);
        assert_eq!(api.get(ORGS, &partner.key).await.with(200)["total"], 1);
    }

    // A null id and a missing one are the same.
    for body in [
        json!({"name": "B", "external_id": null}),
        json!({"name": "B"}),
    ] {
        org(&api, &ours, body).await;
    }

    assert_eq!(api.get(ORGS, &ours.key).await.with(200)["total"], 3);
}

#[tokio::test]
async fn an_external_id_of_nobody_or_another_partner_is_404() {
    let api = TestApi::new().await;
    let (ours, theirs) = (api.reseller("Ours").await, api.reseller("Theirs").await);
    org(&api, &theirs, json!({"name": "A", "external_id": "7"})).await;

    let absent = api
        .get(&format!("{ORGS}/by-external-id/7"), &ours.key)
        .await;
    insta::assert_json_snapshot!("an_external_id_of_nobody", absent.with(404));
    for path in ["nobody", "%00", "%ff", "a%2Fb"] {
        api.get(&format!("{ORGS}/by-external-id/{path}"), &ours.key)
            .await
            .with(404);
    }

    api.get(&format!("{ORGS}/by-external-id/7?x=1"), &ours.key)
        .await
        .with(400);
}

#[tokio::test]
async fn orgs_are_listed_newest_first_by_limit_and_offset() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    for name in ["a", "b", "c", "d"] {
        org(&api, &partner, json!({"name": name})).await;
    }

    for (query, expected) in [
        ("", vec!["d", "c", "b", "a"]),
        ("?limit=2", vec!["d", "c"]),
        ("?limit=2&offset=1", vec!["c", "b"]),
        ("?offset=3", vec!["a"]),
        ("?offset=4294967295", vec![]),
    ] {
        let page = api
            .get(&format!("{ORGS}{query}"), &partner.key)
            .await
            .with(200);
        let names: Vec<_> = page["data"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|org| org["name"].clone())
            .collect();
        assert_eq!(
            (names, &page["total"]),
            (expected.into_iter().map(Value::from).collect(), &json!(4)),
            "{query}"
        );
    }

    org(&api, &partner, json!({"name": "b", "external_id": "7"})).await;
    for (query, expected) in [
        ("name=b", 2),
        ("name=b&external_id=7", 1),
        ("external_id=7", 1),
        ("external_id=8", 0),
        ("name=b&offset=1", 2),
    ] {
        let page = api.get(&format!("{ORGS}?{query}"), &partner.key).await;
        assert_eq!(page.with(200)["total"], expected, "{query}");
    }

    let refused = api
        .get(&format!("{ORGS}?limit=0&offset=-1&cursor=x"), &partner.key)
        .await;
    insta::assert_json_snapshot!("a_wrong_query_for_orgs", refused.with(400));
    api.get(&format!("{ORGS}?limit=101"), &partner.key)
        .await
        .with(400);
}

#[tokio::test]
async fn every_fault_of_an_org_is_named() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let wrong = json!({
        "name": "", "external_id": "x".repeat(256), "website": 7, "language": "klingon", "ai_instructions": [],
        "integrations": {"booking": {"app_key": "a", "user_key": "b"}}, "colour": "red",
    });
    insta::assert_json_snapshot!(
        "faults_of_an_org",
        api.post(ORGS, &partner.key, wrong).await.with(400)
    );

    for (body, message) in [
        (json!({}), "name: is required"),
        (
            json!({"name": "A", "integrations": []}),
            "integrations: expected an object, not a list",
        ),
    ] {
        assert_eq!(
            api.post(ORGS, &partner.key, body).await.with(400)["message"],
            message
        );
    }

    assert_eq!(api.get(ORGS, &partner.key).await.with(200)["total"], 0);
}

#[tokio::test]
async fn an_org_is_shown_and_changed_by_its_partner() {
    let api = TestApi::new().await;
    let partner = api
        .partner(NewPartner {
            name: "Reseller".to_owned(),
            ai_instructions: Some("Be kind.".to_owned()),
            ..NewPartner::default()
        })
        .await;
    let made = org(&api, &partner, json!({"name": "A", "external_id": "7"})).await;
    let path = format!("{ORGS}/{}", made["id"].as_str().expect("an id"));
    let found = api.get(&path, &partner.key).await.with(200);
    insta::assert_json_snapshot!("an_org_with_everything", shown(found));

    let change = json!({
        "name": "B",
        "website": "https://tours.example/a?b",
        "language": "fr",
        "ai_instructions": "Be brief.",
    });
    let changed = api.patch(&path, &partner.key, change).await.with(200);
    assert_eq!(changed["ai_instructions_in_force"], "Be brief.");
    insta::assert_json_snapshot!("an_org_changed", shown(changed.clone()));
    assert_eq!(api.get(&path, &partner.key).await.with(200), changed);

    let cleared = json!({"website": null, "ai_instructions": null});
    let cleared = api.patch(&path, &partner.key, cleared).await.with(200);
    assert_eq!(
        (&cleared["website"], &cleared["ai_instructions"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(cleared["ai_instructions_in_force"], "Be kind.");
    assert_eq!(cleared["name"], "B");

    let wrong =
        json!({"name": null, "website": "tours.example", "language": "xx", "external_id": "8"});
    let refused = api.patch(&path, &partner.key, wrong).await;
    insta::assert_json_snapshot!("faults_of_a_changed_org", refused.with(400));
}

/// Returns the names of what suspends an org, as its partner sees them.
async fn suspended_by(api: &TestApi, partner: &Reseller, path: &str) -> Value {
    api.get(path, &partner.key).await.with(200)["suspended_by"].clone()
}

#[tokio::test]
async fn a_suspended_orgs_keys_are_refused_until_its_suspender_resumes_it() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let made = org(&api, &partner, json!({"name": "A"})).await;
    let id: Uuid = made["id"].as_str().expect("an id").parse().expect("an id");
    let (_, token) = api.key(id, &trunkline::api::SCOPES).await;
    let visitor = json!({"email": "ann@example.com"});
    let visitor = api.post("/widget/authenticate-user", &token, visitor);
    let visitor = visitor.await.with(200)["token"].as_str().map(str::to_owned);
    let visitor = visitor.expect("a token");
    api.get("/phone", &token).await.with(200);

    let path = format!("{ORGS}/{id}");
    let (suspend, resume) = (format!("{path}/suspend"), format!("{path}/resume"));
    assert_eq!(suspended_by(&api, &partner, &path).await, json!([]));

    for _ in 0..2 {
        let suspended = api.post(&suspend, &partner.key, json!({})).await;
        assert_eq!(suspended.with(200)["suspended_by"], json!(["partner"]));
    }

    for (path, credential) in [
        ("/phone", &token),
        ("/phone/events", &token),
        ("/phone?nonsense=1", &token),
        ("/widget/me", &visitor),
    ] {
        let refused = api.get(path, credential).await;
        assert!(
            refused.header("RateLimit").is_some(),
            "{path}: the request counts"
        );
        assert_eq!(refused.with(403)["code"], "org_suspended", "{path}");
    }

    api.get("/phone", "wrong").await.with(401);

    // The partner still reads everything.
    for rest in ["", "/roles", "/phone-numbers"] {
        let shown = api.get(&format!("{path}{rest}"), &partner.key).await;
        shown.with(200);
    }

    // The partner can't end the operator's suspension.
    done(&api.store, move |tx, now| {
        orgs::suspend(tx, id, Suspender::Operator, Some(now), now)
    })
    .await;
    let resumed = api.post(&resume, &partner.key, json!({})).await;
    assert_eq!(resumed.with(200)["suspended_by"], json!(["operator"]));

    api.get("/phone", &token).await.with(403);
    done(&api.store, move |tx, now| {
        orgs::suspend(tx, id, Suspender::Operator, None, now)
    })
    .await;
    pass(61);
    api.get("/phone", &token).await.with(200);

    // The orgs of an inactive partner are suspended by that as well, apart from the partner's own suspension.
    api.post(&suspend, &partner.key, json!({})).await.with(200);
    done(&api.store, move |tx, now| {
        partners::set_active(tx, partner.id, false, now)
    })
    .await;
    let stored = found(&api.store, move |tx| orgs::by_id(tx, id)).await;
    assert_eq!(
        stored.suspended_by(),
        [SuspendedBy::Partner, SuspendedBy::InactivePartner]
    );

    done(&api.store, move |tx, now| {
        partners::set_active(tx, partner.id, true, now)
    })
    .await;
    pass(61);
    assert_eq!(
        suspended_by(&api, &partner, &path).await,
        json!(["partner"])
    );
    api.get("/phone", &token).await.with(403);
    api.post(&resume, &partner.key, json!({})).await.with(200);
    api.get("/phone", &token).await.with(200);
}

#[tokio::test]
async fn a_partner_verifies_numbers_where_the_operator_lets_it() {
    let api = TestApi::new().await;
    let partner = api.reseller("Reseller").await;
    let made = org(&api, &partner, json!({"name": "A"})).await;
    let id: Uuid = made["id"].as_str().expect("an id").parse().expect("an id");
    let (_, token) = api.key(id, &trunkline::api::SCOPES).await;
    let number = json!({"phone_number": "+442071838750"});
    let number = api.post("/phone/numbers", &token, number).await.with(201);
    let own = format!("/phone/numbers/{}", number["id"].as_str().expect("an id"));
    assert_eq!(api.get(&own, &token).await.with(200), number);

    // The org can't verify by itself; the refusal names who can.
    let refused = api.post(&format!("{own}/verify"), &token, json!({})).await;
    assert_eq!(refused.with(409)["code"], "no_verification_route");
    let trunk = api
        .post("/phone/sip/inbound-trunk", &token, json!({}))
        .await;
    let message = trunk.with(400)["message"].as_str().map(str::to_owned);
    let message = message.expect("a sentence");
    for way in ["/verify", "trunkline number verify"] {
        assert!(message.contains(way), "{message}");
    }

    let numbers = format!("{ORGS}/{id}/phone-numbers");
    let verify = format!("{numbers}/{}/verify", number["id"].as_str().expect("an id"));
    let refused = api.post(&verify, &partner.key, json!({})).await.with(403);
    assert_eq!(refused["code"], "verification_not_granted");

    done(&api.store, move |tx, now| {
        partners::let_verify(tx, partner.id, true, now)
    })
    .await;
    pass(61);

    for _ in 0..2 {
        let verified = api.post(&verify, &partner.key, json!({})).await;
        assert_eq!(verified.with(200)["verified"], true);
    }

    let listed = api.get(&numbers, &partner.key).await.with(200);
    assert_eq!(listed["items"][0]["verified"], true);
    let absent = format!("{numbers}/{id}/verify");
    api.post(&absent, &partner.key, json!({})).await.with(404);
    api.post(&format!("{own}/verify"), &token, json!({}))
        .await
        .with(200);
    api.post("/phone/sip/inbound-trunk", &token, json!({}))
        .await
        .with(201);

    let events = "SELECT type || ' ' || body FROM events WHERE type = 'number.verified'";
    let events = api.rows(events).await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(events[0].contains("+442071838750"), "{events:?}");

    // A number belongs to one org: another org of the same partner can't have it.
    let other = org(&api, &partner, json!({"name": "B"})).await;
    let other: Uuid = other["id"].as_str().expect("an id").parse().expect("an id");
    let (_, token) = api.key(other, &trunkline::api::SCOPES).await;
    let number = json!({"phone_number": "+442071838750"});
    let number = api.post("/phone/numbers", &token, number).await.with(201);
    let id = number["id"].as_str().expect("an id");
    let path = format!("{ORGS}/{other}/phone-numbers/{id}/verify");
    let taken = api.post(&path, &partner.key, json!({})).await.with(409);
    assert_eq!(taken["code"], "number_verified_elsewhere");
}

#[tokio::test]
async fn a_partner_sets_for_how_long_data_is_kept() {
    let api = TestApi::with("[retention]\ncalls_days = 400\nhandoffs_days = 90").await;
    let partner = api.reseller("Acme").await;
    let id = org(&api, &partner, json!({"name": "A"})).await;
    let path = format!("{ORGS}/{}", id["id"].as_str().expect("an id"));
    let none = json!({"calls_days": null, "sessions_days": null, "contacts_days": null, "handoffs_days": null});
    let shown = api.get(&path, &partner.key).await.with(200);
    assert_eq!(shown["retention"], none);
    let in_force = json!({"calls_days": 400, "sessions_days": null, "contacts_days": null, "handoffs_days": 90});
    assert_eq!(shown["retention_in_force"], in_force);

    let change = json!({"retention": {"calls_days": 30, "contacts_days": 60}});
    let changed = api.patch(&path, &partner.key, change).await.with(200);
    let own = json!({"calls_days": 30, "sessions_days": null, "contacts_days": 60, "handoffs_days": null});
    assert_eq!(changed["retention"], own);

    let change = json!({"name": "B", "retention": {"calls_days": null}});
    let changed = api.patch(&path, &partner.key, change).await.with(200);
    assert_eq!(changed["retention_in_force"]["calls_days"], 400);
    assert_eq!(changed["retention"]["contacts_days"], 60);

    for (days, fault) in [
        (json!({"calls_days": 0}), "retention.calls_days: "),
        (json!({"calls_days": 36_501}), "retention.calls_days: "),
        (json!({"days": 1}), "retention.days: is no field"),
    ] {
        let change = json!({"retention": days});
        let refused = api.patch(&path, &partner.key, change).await.with(400);
        let message = refused["message"].as_str().expect("a sentence");
        assert!(message.contains(fault), "{message}");
    }
}

/// Requests of a suspended org count against its limit, beyond which they are 403 as well.
#[tokio::test]
async fn requests_of_a_suspended_org_count() {
    let api = TestApi::with("[limits]\nrequests_per_minute = 3").await;
    let tenant = api.tenant("Acme").await;
    let org = tenant.org;
    done(&api.store, move |tx, now| {
        orgs::suspend(tx, org, Suspender::Operator, Some(now), now)
    })
    .await;

    for left in [2, 1, 0, 0] {
        let refused = api.get("/phone", &tenant.token).await;
        assert_eq!(refused.with(403)["code"], "org_suspended");
        let counted = refused.header("RateLimit").map(str::to_owned);
        assert_eq!(counted, Some(format!("\"org\";r={left};t=60")));
    }
}
