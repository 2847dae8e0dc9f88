//! `/phone/sip/inbound-trunk` and the paths below it.

use serde_json::{Value, json};
use trunkline_store::rows_of;

use crate::test_api::{Tenant, TestApi, all_absent, all_lack, done, found, masked, pass, walk};

const TRUNK: &str = "/phone/sip/inbound-trunk";
const NUMBERS: &str = "/phone/sip/inbound-trunk/phone-numbers";
const ONE: &str = "+442071838751";
const TWO: &str = "+442071838752";

async fn api() -> TestApi {
    TestApi::with("[sip]\npublic_host = \"sip.example.com\"\nheader_prefix = \"X-ACME\"").await
}

/// A tenant with two verified numbers and one that isn't.
async fn tenant(api: &TestApi) -> Tenant {
    let tenant = api.tenant("Acme").await;
    for number in [ONE, TWO] {
        api.number(tenant.org, number).await;
        pass(1);
    }
    let raw = json!({"phone_number": "+442071838753"});
    api.post("/phone/numbers", &tenant.token, raw)
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
    let api = api().await;
    let tenant = tenant(&api).await;
    let made = api.post(TRUNK, &tenant.token, json!({})).await.with(201);
    insta::assert_json_snapshot!("a_trunk_of_all_verified_numbers", shown(made.clone()));
    assert_eq!(api.get(TRUNK, &tenant.token).await.with(200), made);

    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let read = api.get(TRUNK, &reader).await.with(200);
    assert_eq!(read["auth_username"], made["auth_username"]);
    assert_eq!(read["auth_password"], json!(null));

    let again = api.post(TRUNK, &tenant.token, json!({})).await;
    insta::assert_json_snapshot!("a_second_trunk", again.with(409));
    let gone = api.delete(TRUNK, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));
    all_absent(&[api.get(TRUNK, &tenant.token).await], "inbound trunk");
}

#[tokio::test]
async fn a_trunk_is_made_as_told_and_changed() {
    let api = api().await;
    let tenant = tenant(&api).await;
    let body = json!({
        "phone_numbers": [TWO], "krisp_enabled": true, "name": "Head office",
        "allowed_addresses": ["192.0.2.7", "198.51.100.9/24", "2001:db8::/48"], "default_country": "GB",
        "refer_to_format": "tel", "refer_host": "pbx.example.com:5070", "refer_headers_in_uri": false,
        "bridge_when_refer_fails": false, "max_concurrent_calls": 30, "rtp_from_any_address": true,
    });
    let made = api.post(TRUNK, &tenant.token, body).await.with(201);
    insta::assert_json_snapshot!("a_trunk_with_everything", shown(made));

    pass(60);
    let change = json!({
        "phone_numbers": [TWO, ONE], "krisp_enabled": false, "name": "Branch", "allowed_addresses": [],
        "default_country": null, "refer_to_format": "sip", "refer_host": null, "refer_headers_in_uri": true,
        "bridge_when_refer_fails": true, "max_concurrent_calls": null,
    });
    let changed = api.patch(TRUNK, &tenant.token, change).await.with(200);
    insta::assert_json_snapshot!("a_trunk_changed", shown(changed.clone()));
    let mut same = api.patch(TRUNK, &tenant.token, json!({})).await.with(200);
    same["updated_at"] = changed["updated_at"].clone();
    assert_eq!(same, changed);
}

#[tokio::test]
async fn null_makes_a_trunk_with_its_defaults() {
    let api = api().await;
    let tenant = tenant(&api).await;
    let body =
        json!({"phone_numbers": null, "krisp_enabled": null, "name": null, "refer_host": null});
    let made = api.post(TRUNK, &tenant.token, body).await.with(201);
    assert_eq!(made["phone_numbers"], json!([ONE, TWO]));
    assert_eq!(
        (&made["krisp_enabled"], &made["name"]),
        (&json!(false), &json!("Inbound"))
    );
}

#[tokio::test]
async fn numbers_are_added_removed_and_synced() {
    let api = api().await;
    let tenant = tenant(&api).await;
    let body = json!({"phone_numbers": [ONE]});
    api.post(TRUNK, &tenant.token, body.clone()).await.with(201);
    let numbers = |trunk: Value| trunk["phone_numbers"].clone();

    let same = api.post(NUMBERS, &tenant.token, body).await.with(200);
    assert_eq!(numbers(same), json!([ONE]));
    let both = json!({"phone_numbers": [TWO, ONE, TWO]});
    let more = api.post(NUMBERS, &tenant.token, both).await.with(200);
    assert_eq!(numbers(more), json!([ONE, TWO]));

    let path = format!("{NUMBERS}/%2B442071838751");
    let fewer = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(numbers(fewer), json!([TWO]));
    let unlisted = [
        api.delete(&path, &tenant.token).await,
        api.delete(&format!("{NUMBERS}/442071838752"), &tenant.token)
            .await,
        api.delete(&format!("{NUMBERS}/x?colour=red"), &tenant.token)
            .await,
    ];
    all_absent(&unlisted, "phone number");

    let two = found(&api.store, move |tx| {
        trunkline_store::numbers::by_number(tx, tenant.org, &TWO.parse().expect("a number"))
    })
    .await;
    done(&api.store, move |tx, now| {
        trunkline_store::numbers::unverify(tx, tenant.org, two.id, now)
    })
    .await;
    let listed = api.get(TRUNK, &tenant.token).await.with(200);
    assert_eq!(numbers(listed), json!([TWO]));

    let synced = api
        .post(&format!("{TRUNK}/sync"), &tenant.token, json!({}))
        .await;
    insta::assert_json_snapshot!(shown(synced.with(200)));
    let path = format!("{NUMBERS}/{ONE}");
    let none = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(numbers(none), json!([]));
}

#[tokio::test]
async fn rotated_credentials_are_new() {
    let api = api().await;
    let tenant = tenant(&api).await;
    let made = api.post(TRUNK, &tenant.token, json!({})).await.with(201);
    let path = format!("{TRUNK}/rotate-credentials");
    let rotated = api.post(&path, &tenant.token, json!({})).await.with(200);
    assert_ne!(rotated["updated_at"], made["updated_at"]);
    let mut before = shown(made.clone());
    before["updated_at"] = shown(rotated.clone())["updated_at"].clone();
    assert_eq!(shown(rotated.clone()), before);
    assert_ne!(rotated["auth_username"], made["auth_username"]);
    assert_ne!(rotated["auth_password"], made["auth_password"]);
    assert_eq!(api.get(TRUNK, &tenant.token).await.with(200), rotated);
}

#[tokio::test]
async fn a_trunk_needs_verified_numbers_of_its_org() {
    let api = api().await;
    let (acme, other) = (tenant(&api).await, api.tenant("Other").await);
    for (token, body, message) in [
        (
            &other.token,
            json!({}),
            "phone_numbers: the org has no verified number: add one (POST /phone/numbers), and have your partner \
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
        let refused = api.post(TRUNK, token, body).await.with(400);
        assert_eq!(refused["message"], message);
        all_absent(&[api.get(TRUNK, token).await], "inbound trunk");
    }

    api.post(TRUNK, &acme.token, json!({})).await.with(201);
    let raw = json!({"phone_numbers": ["+442071838753"]});

    for refused in [
        api.post(NUMBERS, &acme.token, raw.clone()).await,
        api.patch(TRUNK, &acme.token, raw.clone()).await,
        // Faults of the request are reported before conflicts.
        api.post(TRUNK, &acme.token, raw).await,
    ] {
        let message = "phone_numbers[0]: +442071838753 is not a verified number of this org";
        assert_eq!(refused.with(400)["message"], message);
    }
}

#[tokio::test]
async fn every_fault_is_named() {
    let api = api().await;
    let tenant = tenant(&api).await;
    api.post(TRUNK, &tenant.token, json!({})).await.with(201);

    let wrong = json!({
        "name": "", "krisp_enabled": null, "allowed_addresses": ["10.0.0.0/33", "pbx"], "default_country": "gb",
        "refer_to_format": "mailto", "refer_host": "a b", "refer_headers_in_uri": 1, "bridge_when_refer_fails": "no",
        "max_concurrent_calls": 0, "auth_password": "mine",
    });

    let refused = api.patch(TRUNK, &tenant.token, wrong).await;
    insta::assert_json_snapshot!(refused.with(400));
    for path in ["sync", "rotate-credentials"] {
        let path = format!("{TRUNK}/{path}?now=1");
        let refused = api.post(&path, &tenant.token, json!({"x": 1})).await;
        assert_eq!(
            refused.with(400)["message"],
            "now: is no parameter of this endpoint; x: is no field of this request"
        );
    }
}

#[tokio::test]
async fn without_a_trunk_it_is_404_whatever_is_asked() {
    let api = api().await;
    let (acme, other) = (tenant(&api).await, api.tenant("Other").await);
    api.post(TRUNK, &acme.token, json!({})).await.with(201);
    let token = &other.token;
    let answers = [
        api.get(&format!("{TRUNK}?x=1"), token).await,
        api.patch(TRUNK, token, json!([])).await,
        api.delete(TRUNK, token).await,
        api.post(NUMBERS, token, json!([])).await,
        api.delete(&format!("{NUMBERS}/{ONE}"), token).await,
        api.post(&format!("{TRUNK}/sync"), token, json!([])).await,
        api.post(&format!("{TRUNK}/rotate-credentials"), token, json!([]))
            .await,
    ];

    all_absent(&answers, "inbound trunk");

    api.get(TRUNK, &acme.token).await.with(200);
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes() {
    let api = api().await;
    let tenant = tenant(&api).await;
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = api.key(tenant.org, &["phone:write"]).await;
    let writing = [
        api.post(TRUNK, &reader, json!([])).await,
        api.patch(TRUNK, &reader, json!([])).await,
        api.delete(TRUNK, &reader).await,
        api.post(NUMBERS, &reader, json!([])).await,
        api.delete(&format!("{NUMBERS}/x"), &reader).await,
        api.post(&format!("{TRUNK}/sync"), &reader, json!([])).await,
        api.post(&format!("{TRUNK}/rotate-credentials"), &reader, json!([]))
            .await,
    ];

    all_lack(&writing, "phone:write");
    all_lack(&[api.get(TRUNK, &writer).await], "phone:read");
}

#[tokio::test]
async fn pairs_from_before_a_rotation_are_shown_and_ended() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    api.number(tenant.org, "+442071838750").await;
    let made = api.post(TRUNK, &tenant.token, json!({})).await.with(201);
    let old = format!("{TRUNK}/old-credentials");
    assert_eq!(api.get(&old, &tenant.token).await.with(200)["total"], 0);
    let rotate = format!("{TRUNK}/rotate-credentials");
    pass(1);
    api.post(&rotate, &tenant.token, json!({})).await.with(200);
    let shown = api.get(&old, &tenant.token).await.with(200);
    let pair =
        json!({"auth_username": made["auth_username"], "expires_at": "2026-02-01T12:00:01.000Z"});
    assert_eq!(shown["items"], json!([pair]));

    api.delete(&old, &tenant.token).await.with(200);
    assert_eq!(api.get(&old, &tenant.token).await.with(200)["total"], 0);
    let rows = found(&api.store, move |tx| rows_of(tx, Some(tenant.org))).await;
    assert_eq!(rows[0].old_credentials, []);
}

#[tokio::test]
async fn pairs_from_before_rotations_come_in_pages() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    api.number(tenant.org, "+442071838750").await;
    api.post(TRUNK, &tenant.token, json!({})).await.with(201);
    // Two expire at the same time.
    for seconds in [0, 0, 1] {
        pass(seconds);
        let rotate = format!("{TRUNK}/rotate-credentials");
        api.post(&rotate, &tenant.token, json!({})).await.with(200);
    }

    let old = format!("{TRUNK}/old-credentials");
    let all = api.get(&old, &tenant.token).await.with(200);
    let names = all["items"].as_array().expect("items").iter();
    let names: Vec<_> = names.map(|pair| pair["auth_username"].clone()).collect();
    assert_eq!(names.len(), 3, "{all}");
    assert_eq!(all["items"][0]["expires_at"], "2026-02-01T12:00:01.000Z");

    let walked = walk(&api, &old, &tenant.token, 1, "auth_username").await;
    assert_eq!(walked, names);
    let page = api.get(&format!("{old}?limit=2"), &tenant.token).await;
    assert_eq!(page.with(200)["total"], 3);
}
