//! `/phone/numbers`, `/phone/numbers/{number_id}`.

use serde_json::json;
use trunkline_store::{number_codes, numbers};

use crate::house::{House, all_absent, all_lack, done, id_of, masked, pass, walk};

const NUMBER: &str = "+442071838750";

#[tokio::test]
async fn a_number_waits_for_the_operator() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let body = json!({"phone_number": NUMBER});
    let made = house
        .post("/phone/numbers", &tenant.token, body.clone())
        .await;
    let made = made.with(201);
    insta::assert_json_snapshot!("a_number_not_verified_yet", masked(made.clone()));
    pass(60);
    let id = id_of(&made);
    let number = id.parse().expect("an id");
    done(&house.store, move |tx, now| {
        numbers::verify(tx, tenant.org, number, now)
    })
    .await;
    let listed = house.get("/phone/numbers", &tenant.token).await.with(200);
    insta::assert_json_snapshot!("a_list_of_numbers", masked(listed));

    let again = house.post("/phone/numbers", &tenant.token, body).await;
    insta::assert_json_snapshot!("a_number_twice", again.with(409));
    let path = format!("/phone/numbers/{id}");
    let gone = house.delete(&path, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));
    all_absent(&[house.delete(&path, &tenant.token).await], "phone number");
}

#[tokio::test]
async fn where_numbers_are_verified_at_once_the_first_org_has_it() {
    let house = House::with("[phone]\nauto_verify_numbers = true").await;
    let (acme, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    let body = json!({"phone_number": NUMBER});
    let made = house
        .post("/phone/numbers", &acme.token, body.clone())
        .await;
    assert_eq!(made.with(201)["verified"], true);
    let refused = house.post("/phone/numbers", &other.token, body).await;
    // Whose it is isn't told.
    insta::assert_json_snapshot!(refused.with(409));
}

#[tokio::test]
async fn numbers_are_listed_newest_first() {
    let house = House::new().await;
    let (tenant, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    for digit in 1..=3 {
        pass(1);
        let body = json!({"phone_number": format!("+44207183875{digit}")});
        house
            .post("/phone/numbers", &tenant.token, body)
            .await
            .with(201);
    }
    let listed = walk(&house, "/phone/numbers", &tenant.token, 2, "phone_number").await;
    assert_eq!(listed, ["+442071838753", "+442071838752", "+442071838751"]);
    let none = json!({"items": [], "next": null, "total": 0});
    assert_eq!(
        house.get("/phone/numbers", &other.token).await.with(200),
        none
    );
}

#[tokio::test]
async fn what_is_no_number_is_refused() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
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
        let refused = house.post("/phone/numbers", &tenant.token, body).await;
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn a_number_of_another_tenant_is_as_one_that_is_not_there() {
    let house = House::new().await;
    let (acme, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    let number = house.number(acme.org, NUMBER).await.id.to_string();
    for id in [&*number, "00000000-0000-0000-0000-000000000000", "no-id"] {
        let path = format!("/phone/numbers/{id}?colour=red");
        all_absent(&[house.delete(&path, &other.token).await], "phone number");
    }
    let listed = house.get("/phone/numbers", &acme.token).await.with(200);
    assert_eq!(listed["total"], 1);
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    let (_, reader) = house.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = house.key(tenant.org, &["phone:write"]).await;
    let writing = [
        house.post("/phone/numbers", &reader, json!([])).await,
        house.delete("/phone/numbers/no-id", &reader).await,
    ];
    all_lack(&writing, "phone:write");
    all_lack(
        &[house.get("/phone/numbers?x=1", &writer).await],
        "phone:read",
    );
}

#[tokio::test]
async fn lists_are_narrowed_and_cursors_carry_what_narrows_them() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    for at in 0..3 {
        house.number(tenant.org, &format!("+44207183875{at}")).await;
    }
    let other = json!({"phone_number": "+442071838759"});
    house
        .post("/phone/numbers", &tenant.token, other)
        .await
        .with(201);
    house.agent(tenant.org, "Reception").await;
    let total = async |path: &str| {
        let page = house.get(path, &tenant.token).await.with(200);
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
        ("/webhooks?enabled=true", 0),
        ("/phone/sip/outbound-trunks?transport=tls", 0),
        ("/phone/sip/transfer-destinations?type=sip&name=Desk", 0),
    ] {
        assert_eq!(total(path).await, expected, "{path}");
    }
    let first = "/phone/numbers?verified=true&limit=2";
    let first = house.get(first, &tenant.token).await.with(200);
    assert_eq!(first["total"], 3);
    let cursor = first["next"].as_str().expect("a cursor");
    let second = format!("/phone/numbers?cursor={cursor}");
    let second = house.get(&second, &tenant.token).await.with(200);
    assert_eq!(
        (second["items"].as_array().map(Vec::len), &second["next"]),
        (Some(1), &json!(null))
    );
    let others = format!("/phone/numbers?cursor={cursor}&verified=false");
    house.get(&others, &tenant.token).await.with(400);
    for wrong in ["verified=yes", "phone_number=12", "type=inbound"] {
        house
            .get(&format!("/phone/numbers?{wrong}"), &tenant.token)
            .await
            .with(400);
    }
}

#[tokio::test]
async fn a_code_that_was_spoken_verifies_the_orgs_number() {
    let house = House::new().await;
    let (acme, other) = (house.tenant("Acme").await, house.tenant("Other").await);
    let made = house
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
    let none = house.post(&confirm, &acme.token, code.clone()).await;
    assert_eq!(none.with(409)["code"], "no_code");

    let number = id.parse().expect("an id");
    done(&house.store, move |tx, now| {
        number_codes::make(tx, acme.org, number, b"407190", now)
    })
    .await;
    all_absent(
        &[house.post(&confirm, &other.token, code.clone()).await],
        "phone number",
    );
    let (_, reads) = house.key(acme.org, &["phone:read"]).await;
    let verify = format!("/phone/numbers/{id}/verify");
    all_lack(
        &[
            house.post(&confirm, &reads, code.clone()).await,
            house.post(&verify, &reads, json!({})).await,
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
        let refused = house
            .post(&confirm, &acme.token, json!({"code": wrong}))
            .await;
        let message = refused.with(400)["message"].clone();
        assert_eq!(message, "code: expected six digits", "{wrong}");
    }
    let refused = house
        .post(&confirm, &acme.token, json!({"code": "000000"}))
        .await;
    insta::assert_json_snapshot!("a_wrong_code", refused.with(400));
    let verified = house
        .post(&confirm, &acme.token, code.clone())
        .await
        .with(200);
    assert_eq!(verified["verified"], true);
    let events = house.rows("SELECT type FROM events").await;
    assert_eq!(events, ["number.verified"]);
}
