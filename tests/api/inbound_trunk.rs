//! `/phone/sip/inbound-trunk` and what lies beneath it.

use serde_json::{Value, json};
use trunkline_store::rows_of;

use crate::house::{House, Tenant, all_absent, all_lack, done, found, masked, pass};

const TRUNK: &str = "/phone/sip/inbound-trunk";
const NUMBERS: &str = "/phone/sip/inbound-trunk/phone-numbers";
const ONE: &str = "+442071838751";
const TWO: &str = "+442071838752";

async fn house() -> House {
    House::with("[sip]\npublic_host = \"sip.example.com\"\nheader_prefix = \"X-ACME\"").await
}

/// A tenant with two verified numbers and one that isn't.
async fn tenant(house: &House) -> Tenant {
    let tenant = house.tenant("Acme").await;
    for number in [ONE, TWO] {
        house.number(tenant.org, number).await;
        pass(1);
    }
    let raw = json!({"phone_number": "+442071838753"});
    house
        .post("/phone/numbers", &tenant.token, raw)
        .await
        .with(201);
    tenant
}

/// The trunk with its credentials masked where they look as they should.
fn shown(mut trunk: Value) -> Value {
    let letters = |text: &str, count: usize| {
        text.len() == count && text.bytes().all(|octet| octet.is_ascii_alphanumeric())
    };
    if trunk["auth_username"]
        .as_str()
        .and_then(|name| name.strip_prefix("trunk-"))
        .is_some_and(|name| letters(name, 12))
    {
        trunk["auth_username"] = json!("<username>");
    }

    if trunk["auth_password"]
        .as_str()
        .is_some_and(|password| letters(password, 28))
    {
        trunk["auth_password"] = json!("<password>");
    }

    masked(trunk)
}

#[tokio::test]
async fn a_trunk_is_made_shown_and_deleted() {
    let house = house().await;
    let tenant = tenant(&house).await;
    let made = house.post(TRUNK, &tenant.token, json!({})).await.with(201);
    insta::assert_json_snapshot!("a_trunk_of_all_verified_numbers", shown(made.clone()));
    assert_eq!(house.get(TRUNK, &tenant.token).await.with(200), made);

    let (_, reader) = house.key(tenant.org, &["phone:read"]).await;
    let read = house.get(TRUNK, &reader).await.with(200);
    assert_eq!(read["auth_username"], made["auth_username"]);
    assert_eq!(read["auth_password"], json!(null));

    let again = house.post(TRUNK, &tenant.token, json!({})).await;
    insta::assert_json_snapshot!("a_second_trunk", again.with(409));
    let gone = house.delete(TRUNK, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));
    all_absent(&[house.get(TRUNK, &tenant.token).await], "inbound trunk");
}

#[tokio::test]
async fn a_trunk_is_made_as_told_and_changed() {
    let house = house().await;
    let tenant = tenant(&house).await;
    let body = json!({
        "phone_numbers": [TWO], "krisp_enabled": true, "name": "Head office",
        "allowed_addresses": ["192.0.2.7", "198.51.100.9/24", "2001:db8::/48"], "default_country": "GB",
        "refer_to_format": "tel", "refer_host": "pbx.example.com:5070", "refer_headers_in_uri": false,
        "bridge_when_refer_fails": false, "max_concurrent_calls": 30, "rtp_from_any_address": true,
    });
    let made = house.post(TRUNK, &tenant.token, body).await.with(201);
    insta::assert_json_snapshot!("a_trunk_with_everything", shown(made));

    pass(60);
    let change = json!({
        "phone_numbers": [TWO, ONE], "krisp_enabled": false, "name": "Branch", "allowed_addresses": [],
        "default_country": null, "refer_to_format": "sip", "refer_host": null, "refer_headers_in_uri": true,
        "bridge_when_refer_fails": true, "max_concurrent_calls": null,
    });
    let changed = house.patch(TRUNK, &tenant.token, change).await.with(200);
    insta::assert_json_snapshot!("a_trunk_changed", shown(changed.clone()));
    let mut same = house.patch(TRUNK, &tenant.token, json!({})).await.with(200);
    same["updated_at"] = changed["updated_at"].clone();
    assert_eq!(same, changed);
}

#[tokio::test]
async fn null_makes_a_trunk_with_its_defaults() {
    let house = house().await;
    let tenant = tenant(&house).await;
    let body =
        json!({"phone_numbers": null, "krisp_enabled": null, "name": null, "refer_host": null});
    let made = house.post(TRUNK, &tenant.token, body).await.with(201);
    assert_eq!(made["phone_numbers"], json!([ONE, TWO]));
    assert_eq!(
        (&made["krisp_enabled"], &made["name"]),
        (&json!(false), &json!("Inbound"))
    );
}

#[tokio::test]
async fn numbers_are_added_removed_and_synced() {
    let house = house().await;
    let tenant = tenant(&house).await;
    let body = json!({"phone_numbers": [ONE]});
    house
        .post(TRUNK, &tenant.token, body.clone())
        .await
        .with(201);
    let numbers = |trunk: Value| trunk["phone_numbers"].clone();

    let same = house.post(NUMBERS, &tenant.token, body).await.with(200);
    assert_eq!(numbers(same), json!([ONE]));
    let both = json!({"phone_numbers": [TWO, ONE, TWO]});
    let more = house.post(NUMBERS, &tenant.token, both).await.with(200);
    assert_eq!(numbers(more), json!([ONE, TWO]));
    let path = format!("{NUMBERS}/%2B442071838751");
    let fewer = house.delete(&path, &tenant.token).await.with(200);
    assert_eq!(numbers(fewer), json!([TWO]));
    let unlisted = [
        house.delete(&path, &tenant.token).await,
        house
            .delete(&format!("{NUMBERS}/442071838752"), &tenant.token)
            .await,
        house
            .delete(&format!("{NUMBERS}/x?colour=red"), &tenant.token)
            .await,
    ];
    all_absent(&unlisted, "phone number");

    let two = found(&house.store, move |tx| {
        trunkline_store::numbers::by_number(tx, tenant.org, &TWO.parse().expect("a number"))
    })
    .await;
    done(&house.store, move |tx, now| {
        trunkline_store::numbers::unverify(tx, tenant.org, two.id, now)
    })
    .await;
    let listed = house.get(TRUNK, &tenant.token).await.with(200);
    assert_eq!(numbers(listed), json!([TWO]));
    let synced = house
        .post(&format!("{TRUNK}/sync"), &tenant.token, json!({}))
        .await;
    insta::assert_json_snapshot!(shown(synced.with(200)));
    let path = format!("{NUMBERS}/{ONE}");
    let none = house.delete(&path, &tenant.token).await.with(200);
    assert_eq!(numbers(none), json!([]));
}

#[tokio::test]
async fn rotated_credentials_are_new() {
    let house = house().await;
    let tenant = tenant(&house).await;
    let made = house.post(TRUNK, &tenant.token, json!({})).await.with(201);
    let path = format!("{TRUNK}/rotate-credentials");
    let rotated = house.post(&path, &tenant.token, json!({})).await.with(200);
    assert_eq!(shown(rotated.clone()), shown(made.clone()));
    assert_ne!(rotated["auth_username"], made["auth_username"]);
    assert_ne!(rotated["auth_password"], made["auth_password"]);
    assert_eq!(house.get(TRUNK, &tenant.token).await.with(200), rotated);
}

#[tokio::test]
async fn a_trunk_needs_verified_numbers_of_its_org() {
    let house = house().await;
    let (acme, other) = (tenant(&house).await, house.tenant("Other").await);
    for (token, body, message) in [
        (
            &other.token,
            json!({}),
            "phone_numbers: the org has no verified number: add one (POST /phone/numbers) and verify it by a call that speaks a code \
             (POST /phone/numbers/{number_id}/verify), or have your partner \
             (POST /partner/v1/orgs/{orgId}/phone-numbers/{phoneNumberId}/verify) or the operator (trunkline number verify) verify it",
        ),
        (
            &other.token,
            json!({"phone_numbers": [ONE]}),
            "phone_numbers[0]: +442071838751 is not a verified number of this org",
        ),
        (
            &acme.token,
            json!({"phone_numbers": [ONE, "+442071838753", "+442071838759"]}),
            "phone_numbers[1]: +442071838753 is not a verified number of this org; \
             phone_numbers[2]: +442071838759 is not a verified number of this org",
        ),
        (
            &acme.token,
            json!({"phone_numbers": []}),
            "phone_numbers: expected 1 to 10000 entries, not 0",
        ),
        (
            &acme.token,
            json!({"phone_numbers": [ONE, TWO, "12ab"], "trunk": 1}),
            "phone_numbers[2]: \"12ab\" is not an E.164 number; trunk: is no field of this request",
        ),
    ] {
        let refused = house.post(TRUNK, token, body).await.with(400);
        assert_eq!(refused["message"], message);
        all_absent(&[house.get(TRUNK, token).await], "inbound trunk");
    }
    house.post(TRUNK, &acme.token, json!({})).await.with(201);
    let raw = json!({"phone_numbers": ["+442071838753"]});
    for refused in [
        house.post(NUMBERS, &acme.token, raw.clone()).await,
        house.patch(TRUNK, &acme.token, raw.clone()).await,
        // What is wrong with the request comes before what stands against it.
        house.post(TRUNK, &acme.token, raw).await,
    ] {
        let message = "phone_numbers[0]: +442071838753 is not a verified number of this org";
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn every_fault_is_named() {
    let house = house().await;
    let tenant = tenant(&house).await;
    house.post(TRUNK, &tenant.token, json!({})).await.with(201);

    let wrong = json!({
        "name": "", "krisp_enabled": null, "allowed_addresses": ["10.0.0.0/33", "pbx"], "default_country": "gb",
        "refer_to_format": "mailto", "refer_host": "a b", "refer_headers_in_uri": 1, "bridge_when_refer_fails": "no",
        "max_concurrent_calls": 0, "auth_password": "mine",
    });

    let refused = house.patch(TRUNK, &tenant.token, wrong).await;
    insta::assert_json_snapshot!(refused.with(400));
    for path in ["sync", "rotate-credentials"] {
        let path = format!("{TRUNK}/{path}?now=1");
        let refused = house.post(&path, &tenant.token, json!({"x": 1})).await;
        assert_eq!(
            refused.with(400)["message"],
            "now: is no parameter of this endpoint; x: is no field of this request"
        );
    }
}

#[tokio::test]
async fn without_a_trunk_it_is_404_whatever_is_asked() {
    let house = house().await;
    let (acme, other) = (tenant(&house).await, house.tenant("Other").await);
    house.post(TRUNK, &acme.token, json!({})).await.with(201);
    let token = &other.token;
    let answers = [
        house.get(&format!("{TRUNK}?x=1"), token).await,
        house.patch(TRUNK, token, json!([])).await,
        house.delete(TRUNK, token).await,
        house.post(NUMBERS, token, json!([])).await,
        house.delete(&format!("{NUMBERS}/{ONE}"), token).await,
        house.post(&format!("{TRUNK}/sync"), token, json!([])).await,
        house
            .post(&format!("{TRUNK}/rotate-credentials"), token, json!([]))
            .await,
    ];
    all_absent(&answers, "inbound trunk");
    house.get(TRUNK, &acme.token).await.with(200);
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes() {
    let house = house().await;
    let tenant = tenant(&house).await;
    let (_, reader) = house.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = house.key(tenant.org, &["phone:write"]).await;
    let writing = [
        house.post(TRUNK, &reader, json!([])).await,
        house.patch(TRUNK, &reader, json!([])).await,
        house.delete(TRUNK, &reader).await,
        house.post(NUMBERS, &reader, json!([])).await,
        house.delete(&format!("{NUMBERS}/x"), &reader).await,
        house
            .post(&format!("{TRUNK}/sync"), &reader, json!([]))
            .await,
        house
            .post(&format!("{TRUNK}/rotate-credentials"), &reader, json!([]))
            .await,
    ];

    all_lack(&writing, "phone:write");
    all_lack(&[house.get(TRUNK, &writer).await], "phone:read");
}

#[tokio::test]
async fn pairs_from_before_a_rotation_are_shown_and_ended() {
    let house = House::new().await;
    let tenant = house.tenant("Acme").await;
    house.number(tenant.org, "+442071838750").await;
    let made = house.post(TRUNK, &tenant.token, json!({})).await.with(201);
    let old = format!("{TRUNK}/old-credentials");
    assert_eq!(house.get(&old, &tenant.token).await.with(200)["total"], 0);
    let rotate = format!("{TRUNK}/rotate-credentials");
    house
        .post(&rotate, &tenant.token, json!({}))
        .await
        .with(200);
    let shown = house.get(&old, &tenant.token).await.with(200);
    let pair =
        json!({"auth_username": made["auth_username"], "expires_at": "2026-02-01T12:00:00.000Z"});
    assert_eq!(shown["items"], json!([pair]));

    house.delete(&old, &tenant.token).await.with(200);
    assert_eq!(house.get(&old, &tenant.token).await.with(200)["total"], 0);
    let rows = found(&house.store, move |tx| rows_of(tx, Some(tenant.org))).await;
    assert_eq!(rows[0].old_credentials, []);
}
