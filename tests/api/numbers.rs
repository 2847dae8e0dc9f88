//! `/phone/numbers`, `/phone/numbers/{number_id}` and its verification by a code; filters of lists.

use serde_json::json;
use trunkline_store::{number_codes, numbers};

use crate::test_api::{TestApi, all_absent, all_lack, done, id_of, masked, pass, walk};

const NUMBER: &str = "+442071838750";

#[tokio::test]
async fn a_number_waits_for_the_operator() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let body = json!({"phone_number": NUMBER});
    let made = api
        .post("/phone/numbers", &tenant.token, body.clone())
        .await;
    let made = made.with(201);
    insta::assert_json_snapshot!("a_number_not_verified_yet", masked(made.clone()));
    pass(60);
    let id = id_of(&made);
    let number = id.parse().expect("an id");
    done(&api.store, move |tx, now| {
        numbers::verify(tx, tenant.org, number, now)
    })
    .await;
    let listed = api.get("/phone/numbers", &tenant.token).await.with(200);
    insta::assert_json_snapshot!("a_list_of_numbers", masked(listed));

    let again = api.post("/phone/numbers", &tenant.token, body).await;
    insta::assert_json_snapshot!("a_number_twice", again.with(409));
    let path = format!("/phone/numbers/{id}");
    let gone = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));
    all_absent(&[api.delete(&path, &tenant.token).await], "phone number");
}

#[tokio::test]
async fn where_numbers_are_verified_at_once_the_first_org_has_it() {
    let api = TestApi::with("[phone]\nauto_verify_numbers = true").await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let body = json!({"phone_number": NUMBER});
    let made = api.post("/phone/numbers", &acme.token, body.clone()).await;
    assert_eq!(made.with(201)["verified"], true);
    let refused = api.post("/phone/numbers", &other.token, body).await;
    // The refusal doesn't name the owner.
    insta::assert_json_snapshot!(refused.with(409));
}

#[tokio::test]
async fn numbers_are_listed_newest_first() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    for digit in 1..=3 {
        pass(1);
        let body = json!({"phone_number": format!("+44207183875{digit}")});
        api.post("/phone/numbers", &tenant.token, body)
            .await
            .with(201);
    }

    let listed = walk(&api, "/phone/numbers", &tenant.token, 2, "phone_number").await;
    assert_eq!(listed, ["+442071838753", "+442071838752", "+442071838751"]);

    let none = json!({"items": [], "next": null, "total": 0});
    assert_eq!(
        api.get("/phone/numbers", &other.token).await.with(200),
        none
    );
}

#[tokio::test]
async fn what_is_no_number_is_refused() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;

    for (body, message) in [
        (json!({}), "phone_number: is required"),
        (
            json!({"phone_number": null}),
            "phone_number: expected a text, not null",
        ),
        (
            json!({"phone_number": 44}),
            "phone_number: expected a text, not a number",
        ),
        (
            json!({"phone_number": "12ab"}),
            "phone_number: \"12ab\" is not an E.164 number",
        ),
        (
            json!({"phone_number": "+0441"}),
            "phone_number: \"+0441\" is not an E.164 number",
        ),
        (
            json!({"phone_number": "+44 20 7183 8750"}),
            "phone_number: \"+44 20 7183 8750\" is not an E.164 number",
        ),
        (
            json!({"phone_number": NUMBER, "verified": true}),
            "verified: is no field of this request",
        ),
    ] {
        let refused = api.post("/phone/numbers", &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn a_number_of_another_tenant_is_as_one_that_is_not_there() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let number = api.number(acme.org, NUMBER).await.id.to_string();
    for id in [&*number, "00000000-0000-0000-0000-000000000000", "no-id"] {
        let path = format!("/phone/numbers/{id}?colour=red");
        all_absent(&[api.delete(&path, &other.token).await], "phone number");
    }
    let listed = api.get("/phone/numbers", &acme.token).await.with(200);
    assert_eq!(listed["total"], 1);
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = api.key(tenant.org, &["phone:write"]).await;
    let writing = [
        api.post("/phone/numbers", &reader, json!([])).await,
        api.delete("/phone/numbers/no-id", &reader).await,
    ];
    all_lack(&writing, "phone:write");
    all_lack(
        &[api.get("/phone/numbers?x=1", &writer).await],
        "phone:read",
    );
}

#[tokio::test]
async fn lists_are_narrowed_and_cursors_carry_what_narrows_them() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for at in 0..3 {
        api.number(tenant.org, &format!("+44207183875{at}")).await;
    }

    let other = json!({"phone_number": "+442071838759"});
    api.post("/phone/numbers", &tenant.token, other)
        .await
        .with(201);
    api.agent(tenant.org, "Reception").await;

    // One that the filter keeps, and others that it leaves out.
    for (path, body) in [
        ("/webhooks", json!({"url": "https://hooks.example.com/on"})),
        (
            "/webhooks",
            json!({"url": "https://hooks.example.com/off", "enabled": false}),
        ),
        (
            "/phone/sip/outbound-trunks",
            json!({"name": "Plain", "host": "192.0.2.1", "caller_number": NUMBER, "transport": "udp"}),
        ),
        (
            "/phone/sip/outbound-trunks",
            json!({"name": "Secured", "host": "192.0.2.1", "caller_number": NUMBER, "transport": "tls"}),
        ),
        (
            "/phone/sip/transfer-destinations",
            json!({"name": "Desk", "type": "sip", "value": "sip:desk@pbx.example.com"}),
        ),
        (
            "/phone/sip/transfer-destinations",
            json!({"name": "Hall", "type": "sip", "value": "sip:hall@pbx.example.com"}),
        ),
        (
            "/phone/sip/transfer-destinations",
            json!({"name": "Sales", "type": "phone", "value": NUMBER}),
        ),
    ] {
        api.post(path, &tenant.token, body).await.with(201);
    }

    let total = async |path: &str| {
        let page = api.get(path, &tenant.token).await.with(200);
        assert_eq!(
            page["total"],
            page["items"].as_array().expect("items").len()
        );
        page["total"].as_u64().expect("a number")
    };

    for (path, expected) in [
        ("/phone/numbers", 4),
        ("/phone/numbers?verified=true", 3),
        ("/phone/numbers?verified=false", 1),
        ("/phone/numbers?phone_number=%2B442071838751", 1),
        (
            "/phone/numbers?verified=false&phone_number=%2B442071838751",
            0,
        ),
        ("/phone?type=inbound&enabled=true", 1),
        ("/phone?type=outbound", 0),
        ("/phone?enabled=false", 0),
        ("/api-keys?name=Test", 1),
        ("/api-keys?name=Other", 0),
        ("/webhooks", 2),
        ("/webhooks?enabled=true", 1),
        (
            "/webhooks?url=https%3A%2F%2Fhooks.example.com%2Foff&enabled=true",
            0,
        ),
        ("/phone/sip/outbound-trunks", 2),
        ("/phone/sip/outbound-trunks?transport=tls", 1),
        ("/phone/sip/outbound-trunks?transport=tls&name=Plain", 0),
        ("/phone/sip/transfer-destinations", 3),
        ("/phone/sip/transfer-destinations?type=sip", 2),
        ("/phone/sip/transfer-destinations?type=sip&name=Desk", 1),
        ("/phone/sip/transfer-destinations?type=sip&name=Sales", 0),
    ] {
        assert_eq!(total(path).await, expected, "{path}");
    }

    let first = "/phone/numbers?verified=true&limit=2";
    let first = api.get(first, &tenant.token).await.with(200);
    assert_eq!(first["total"], 3);

    let cursor = first["next"].as_str().expect("a cursor");
    let second = format!("/phone/numbers?cursor={cursor}");
    let second = api.get(&second, &tenant.token).await.with(200);
    assert_eq!(
        (second["items"].as_array().map(Vec::len), &second["next"]),
        (Some(1), &json!(null))
    );

    let others = format!("/phone/numbers?cursor={cursor}&verified=false");
    api.get(&others, &tenant.token).await.with(400);

    for wrong in ["verified=yes", "phone_number=12", "type=inbound"] {
        api.get(&format!("/phone/numbers?{wrong}"), &tenant.token)
            .await
            .with(400);
    }
}

#[tokio::test]
async fn a_code_that_was_spoken_verifies_the_orgs_number() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let made = api
        .post(
            "/phone/numbers",
            &acme.token,
            json!({"phone_number": NUMBER}),
        )
        .await
        .with(201);

    let id = id_of(&made);
    let confirm = format!("/phone/numbers/{id}/verify/confirm");
    let code = json!({"code": "407190"});
    let none = api.post(&confirm, &acme.token, code.clone()).await;
    assert_eq!(none.with(409)["code"], "no_code");

    let number = id.parse().expect("an id");
    done(&api.store, move |tx, now| {
        number_codes::make(tx, acme.org, number, b"407190", 200, now)
    })
    .await;

    all_absent(
        &[api.post(&confirm, &other.token, code.clone()).await],
        "phone number",
    );

    let (_, reads) = api.key(acme.org, &["phone:read"]).await;
    let verify = format!("/phone/numbers/{id}/verify");
    all_lack(
        &[
            api.post(&confirm, &reads, code.clone()).await,
            api.post(&verify, &reads, json!({})).await,
        ],
        "phone:write",
    );

    for wrong in [
        "40719",
        "4071900",
        "40719O",
        " 407190",
        "+07190",
        "４０７１９０",
    ] {
        let refused = api
            .post(&confirm, &acme.token, json!({"code": wrong}))
            .await;
        let message = refused.with(400)["message"].clone();
        assert_eq!(message, "code: expected six digits", "{wrong}");
    }

    let refused = api
        .post(&confirm, &acme.token, json!({"code": "000000"}))
        .await;
    insta::assert_json_snapshot!("a_wrong_code", refused.with(400));

    let verified = api
        .post(&confirm, &acme.token, code.clone())
        .await
        .with(200);
    assert_eq!(verified["verified"], true);
    let events = api.rows("SELECT type FROM events").await;
    assert_eq!(events, ["number.verified"]);
}
