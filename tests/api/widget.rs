//! `/widget/authenticate-user`, `/widget/authenticate-user-by-external-id`, `/widget/me`, `/widget/contacts/{contact_id}` and its export.

use std::collections::HashSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use trunkline_model::record::{Fact, Started};
use trunkline_routing::{E164, Facts};
use trunkline_store::{Contact, TokenKind};
use uuid::Uuid;

use crate::calls::bare;
use crate::test_api::{Answer, Tenant, TestApi, all_absent, all_lack, arc, masked, now, pass};

const PLAIN: &str = "/widget/authenticate-user";
const BY_ID: &str = "/widget/authenticate-user-by-external-id";

/// Returns the contact that the answer names.
fn contact_of(answer: &Answer) -> Uuid {
    let body = answer.with(200);
    let fields: Vec<_> = body.as_object().expect("an object").keys().collect();
    assert_eq!(fields, ["contact", "token"]);
    let id = body["contact"]["id"].as_str().expect("an id");
    assert_eq!(body["contact"], json!({"id": id}));
    id.parse().expect("an id")
}

fn token_of(answer: &Answer) -> String {
    let body = answer.with(200);
    body["token"].as_str().expect("a token").to_owned()
}

async fn authenticate(api: &TestApi, tenant: &Tenant, path: &str, body: Value) -> Uuid {
    contact_of(&api.post(path, &tenant.token, body).await)
}

async fn stored(api: &TestApi, tenant: &Tenant, id: Uuid) -> Contact {
    let contact = api.store.contacts().by_id(tenant.org, id).await;
    contact.expect("the contact is stored")
}

fn everything() -> Value {
    json!({
        "email": "Ann@Example.com",
        "phone": "+44 20 7183 8750",
        "name": "Ann",
        "avatar_url": "https://example.com/ann.png",
        "language": "kmr",
        "customData": {"plan": {"seats": 3}},
        "chat_context": "on the page\nof prices",
        "mcp_access": {"server_ids": ["00000000-0000-0000-0000-00000000000a"], "account_id": "acct-7"},
        "http_action_overrides": {"headers": {"X-Tenant": "7"}, "query_params": {}, "path_params": {"id": 1}, "body_params": {"a": [null]}},
    })
}

#[tokio::test]
async fn a_visitor_gets_a_token_that_shows_who_it_is() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let mut body = everything();
    body["external_id"] = json!("crm/7");

    let answer = api.post(BY_ID, &tenant.token, body).await;
    let id = contact_of(&answer);
    let me = api.get("/widget/me", &token_of(&answer)).await;
    insta::assert_json_snapshot!("a_contact_by_its_token", masked(me.with(200)));

    let contact = stored(&api, &tenant, id).await;
    let kept = json!([
        contact.mcp_access,
        contact.http_action_overrides,
        contact.chat_context
    ]);
    let everything = everything();
    let sent = ["mcp_access", "http_action_overrides", "chat_context"]
        .map(|name| everything[name].clone());
    assert_eq!(kept, json!(sent));
}

#[tokio::test]
async fn the_token_says_who_and_nothing_else() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let answer = api.post(PLAIN, &tenant.token, everything()).await;
    let token = token_of(&answer);
    let part = |at: usize| -> Value {
        let part = token.split('.').nth(at).expect("three parts");
        let octets = URL_SAFE_NO_PAD.decode(part).expect("base64url");
        serde_json::from_slice(&octets).expect("JSON")
    };
    let signing = api.store.keyring().signing_key_of(TokenKind::Widget);
    let kid = signing.id().to_owned();
    assert_eq!(part(0), json!({"typ": "JWT", "alg": "EdDSA", "kid": kid}));

    let iat = now().as_secs();
    let claims = json!({
        "typ": "widget_contact", "iss": "https://api.example", "aud": tenant.org, "sub": contact_of(&answer), "org": tenant.org, "iat": iat, "exp": iat + 86_400,
    });
    assert_eq!(part(1), claims);
}

#[tokio::test]
async fn a_token_ends() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let token = token_of(&api.post(PLAIN, &tenant.token, everything()).await);
    pass(86_399);
    api.get("/widget/me", &token).await.with(200);
    pass(1);
    let ended = api.get("/widget/me", &token).await;
    insta::assert_json_snapshot!("a_widget_token_that_has_ended", ended.with(401));
    assert_eq!(ended.header("WWW-Authenticate"), Some("Bearer"));
}

#[tokio::test]
async fn a_key_is_no_widget_token_and_a_widget_token_no_key() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, TestApi::new().await);
    let widget = token_of(&api.post(PLAIN, &tenant.token, everything()).await);
    api.get("/widget/me", &tenant.token).await.with(401);
    api.get("/widget/me", "garbage").await.with(401);
    api.get("/phone/calls", &widget).await.with(401);
    api.post(PLAIN, &widget, everything()).await.with(401);
    other.get("/widget/me", &widget).await.with(401);
    api.get("/widget/me?colour=red", &widget).await.with(400);
}

#[tokio::test]
async fn an_external_id_finds_its_contact_whatever_the_addresses() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let shared = json!({"email": "ann@example.com", "phone": "+442071838750"});
    let with = |id: &str| {
        let mut body = shared.clone();
        body["external_id"] = json!(id);
        body
    };
    let plain = authenticate(&api, &tenant, PLAIN, shared.clone()).await;
    let first = authenticate(&api, &tenant, BY_ID, with("1")).await;
    let second = authenticate(&api, &tenant, BY_ID, with("2")).await;
    assert_eq!(HashSet::from([plain, first, second]).len(), 3);

    let moved = json!({"external_id": "1", "email": "bob@example.com", "phone": null});
    assert_eq!(authenticate(&api, &tenant, BY_ID, moved).await, first);

    let bare = json!({"external_id": "1"});
    assert_eq!(authenticate(&api, &tenant, BY_ID, bare).await, first);

    let contact = stored(&api, &tenant, first).await;
    assert_eq!(
        (contact.email.as_deref(), contact.phone),
        (Some("bob@example.com"), None)
    );

    // The id is compared without trimming.
    let spaced = json!({"external_id": " 1"});
    assert_ne!(authenticate(&api, &tenant, BY_ID, spaced).await, first);
}

#[tokio::test]
async fn other_ways_in_never_meet_a_contact_with_an_external_id() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let phone = E164::parse("+442071838750").expect("a number");
    let known = json!({"external_id": "1", "email": "ann@example.com", "phone": phone});
    let known = authenticate(&api, &tenant, BY_ID, known).await;
    for body in [
        json!({"email": "ann@example.com"}),
        json!({"phone": phone}),
        json!({"email": "ann@example.com", "phone": phone}),
    ] {
        assert_ne!(authenticate(&api, &tenant, PLAIN, body).await, known);
    }

    let callers = api.store.contacts();
    let called = callers
        .find_or_create_by_phone_many(&[(tenant.org, phone)], now())
        .await;
    assert_ne!(called.expect("a contact"), [Some(known)]);
}

#[tokio::test]
async fn an_email_address_is_found_whatever_its_case() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let first = authenticate(
        &api,
        &tenant,
        PLAIN,
        json!({"email": "Ann@Example.com", "phone": "+442071838750"}),
    )
    .await;
    pass(1);

    let again = json!({"email": "aNN@example.COM", "phone": "+442071838751"});
    assert_eq!(authenticate(&api, &tenant, PLAIN, again).await, first);

    let contact = stored(&api, &tenant, first).await;
    assert_eq!(contact.email.as_deref(), Some("aNN@example.COM"));
    assert_eq!(contact.phone.as_deref(), Some("+442071838751"));
    assert_eq!(
        (contact.created_at < now(), contact.updated_at),
        (true, now())
    );
}

#[tokio::test]
async fn a_shared_phone_gives_nobody_anothers_account() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let ann = authenticate(
        &api,
        &tenant,
        PLAIN,
        json!({"email": "ann@example.com", "phone": "+44 20 7183 8750"}),
    )
    .await;
    pass(1);
    let bob = authenticate(
        &api,
        &tenant,
        PLAIN,
        json!({"email": "bob@example.com", "phone": "+442071838750"}),
    )
    .await;
    assert_ne!(bob, ann, "both the request and the contact have an address");

    // Without an e-mail address the oldest contact with the phone number matches, in any spelling of the number.
    let called = json!({"phone": "0044-20-7183-8750"});
    assert_eq!(authenticate(&api, &tenant, PLAIN, called).await, ann);

    pass(1);
    let nameless = authenticate(&api, &tenant, PLAIN, json!({"phone": "+442071838759"})).await;
    let named = json!({"email": "cat@example.com", "phone": "+442071838759"});
    assert_eq!(
        authenticate(&api, &tenant, PLAIN, named).await,
        nameless,
        "that contact has no address"
    );
    let contact = stored(&api, &tenant, nameless).await;
    assert_eq!(contact.email.as_deref(), Some("cat@example.com"));
}

#[tokio::test]
async fn a_caller_who_chats_is_the_same_contact() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let phone = E164::parse("+442071838750").expect("a number");
    let callers = api.store.contacts();
    let called = callers
        .find_or_create_by_phone_many(&[(tenant.org, phone)], now())
        .await;
    let chatted = authenticate(
        &api,
        &tenant,
        PLAIN,
        json!({"phone": "tel:+44-20-7183-8750", "email": "a@b.com"}),
    )
    .await;
    assert_eq!(called.expect("a contact"), [Some(chatted)]);
}

#[tokio::test]
async fn absent_stays_null_clears_and_a_value_replaces() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let with = |mut body: Value| {
        body["external_id"] = json!("1");
        body
    };
    let id = authenticate(&api, &tenant, BY_ID, with(everything())).await;
    let first = stored(&api, &tenant, id).await;
    pass(1);
    authenticate(&api, &tenant, BY_ID, with(json!({}))).await;
    assert_eq!(stored(&api, &tenant, id).await, first);

    let mut cleared = everything();
    for value in cleared.as_object_mut().expect("an object").values_mut() {
        *value = Value::Null;
    }
    authenticate(&api, &tenant, BY_ID, with(cleared)).await;

    let contact = stored(&api, &tenant, id).await;
    let blank = Contact {
        email: None,
        phone: None,
        name: None,
        avatar_url: None,
        language: None,
        chat_context: None,
        custom_data: None,
        mcp_access: None,
        http_action_overrides: None,
        updated_at: now(),
        ..first
    };
    assert_eq!(contact, blank);

    authenticate(&api, &tenant, BY_ID, with(json!({"customData": {"a": 1}}))).await;

    authenticate(&api, &tenant, BY_ID, with(json!({"customData": {"b": 2}}))).await;

    let contact = stored(&api, &tenant, id).await;
    assert_eq!(
        json!(contact.custom_data),
        json!({"b": 2}),
        "an object is replaced as a whole"
    );
}

#[tokio::test]
async fn every_fault_is_named() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let wrong = json!({
        "external_id": " ",
        "email": "ann@example",
        "phone": 44,
        "name": "x".repeat(256),
        "avatar_url": [],
        "language": "xx",
        "customData": "red",
        "chat_context": false,
        "mcp_access": {"server_ids": ["a", 7], "account_id": {}, "colour": 1},
        "http_action_overrides": {"headers": [], "cookies": {}},
        "custom_data": {},
    });

    insta::assert_json_snapshot!(
        "faults_by_external_id",
        api.post(BY_ID, &tenant.token, wrong.clone())
            .await
            .with(400)
    );
    insta::assert_json_snapshot!(
        "faults_by_addresses",
        api.post(PLAIN, &tenant.token, wrong).await.with(400)
    );

    for (path, body, message) in [
        (
            PLAIN,
            json!({}),
            "email: is required where there is no phone",
        ),
        (
            PLAIN,
            json!({"email": null, "phone": null}),
            "email: is required where there is no phone",
        ),
        (PLAIN, json!({"phone": " "}), "phone: must not be empty"),
        (
            PLAIN,
            json!({"email": "a@b.com", "external_id": "1"}),
            "external_id: is no field of this request",
        ),
        (
            BY_ID,
            json!({"email": "a@b.com"}),
            "external_id: is required",
        ),
        (
            BY_ID,
            json!({"external_id": null}),
            "external_id: expected a text, not null",
        ),
        (
            BY_ID,
            json!({"external_id": "x".repeat(256)}),
            "external_id: expected 1 to 255 characters, not 256",
        ),
    ] {
        assert_eq!(
            api.post(path, &tenant.token, body).await.with(400)["message"],
            message
        );
    }

    let longest = json!({"external_id": "é".repeat(255)});
    api.post(BY_ID, &tenant.token, longest).await.with(200);
}

#[tokio::test]
async fn tenants_do_not_share_contacts() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    for (path, body) in [
        (PLAIN, json!({"email": "a@b.com"})),
        (BY_ID, json!({"external_id": "1"})),
    ] {
        let ours = authenticate(&api, &acme, path, body.clone()).await;
        assert_ne!(authenticate(&api, &other, path, body).await, ours);
    }
}

#[tokio::test]
async fn identities_need_their_scope() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reader) = api.key(tenant.org, &["phone:write", "handoff:write"]).await;
    let answers = [
        api.post(PLAIN, &reader, json!([])).await,
        api.post(BY_ID, &reader, json!([])).await,
    ];
    all_lack(&answers, "widget:write");
}

#[tokio::test]
async fn an_orgs_own_systems_see_and_change_what_is_kept_of_a_contact() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let other = api.tenant("Other").await;
    let mut body = everything();
    body["external_id"] = json!("crm/7");
    let id = authenticate(&api, &tenant, BY_ID, body).await;
    let path = format!("/widget/contacts/{id}");
    let shown = api.get(&path, &tenant.token).await.with(200);

    for name in [
        "mcp_access",
        "http_action_overrides",
        "chat_context",
        "customData",
    ] {
        assert_eq!(shown[name], everything()[name], "{name}");
    }
    insta::assert_json_snapshot!("a_contact_with_everything", masked(shown));

    let change = json!({"chat_context": "called twice", "mcp_access": null});
    pass(1);
    let changed = api.patch(&path, &tenant.token, change).await.with(200);
    assert_eq!(changed["chat_context"], "called twice");
    assert_eq!(changed["mcp_access"], Value::Null);
    assert_eq!(changed["external_id"], "crm/7");
    assert_ne!(changed["updated_at"], changed["created_at"]);
    assert_eq!(api.get(&path, &tenant.token).await.with(200), changed);

    let wrong = json!({"external_id": "x", "email": "ann"});
    let refused = api.patch(&path, &tenant.token, wrong).await.with(400);
    assert_eq!(
        refused["message"],
        "email: \"ann\" is not an e-mail address; external_id: is no field of this request"
    );

    all_absent(
        &[
            api.get(&path, &other.token).await,
            api.get("/widget/contacts/7", &tenant.token).await,
            api.patch(&path, &other.token, json!({})).await,
        ],
        "contact",
    );
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    all_lack(&[api.get(&path, &reader).await], "widget:write");
}

#[tokio::test]
async fn everything_kept_of_a_contact_is_exported_by_page() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let id = authenticate(&api, &tenant, PLAIN, everything()).await;
    let bob = json!({"email": "bob@example.org"});
    let bob = authenticate(&api, &tenant, PLAIN, bob).await;
    let number = E164::parse("+442071838750").expect("E.164");
    let started = |call: u128, org: Uuid, e164: Option<E164>| {
        let started = Started {
            session: Uuid::from_u128(0x5e55_0000 + call),
            from: "020 7183 8750".into(),
            from_e164: e164,
            headers: vec![("X-Ticket".into(), "17".into())],
            at: now() - Duration::from_secs(1_000) + Duration::from_secs(call as u64),
            ..bare(Uuid::from_u128(call), org, &Facts::default())
        };
        Fact::Started(arc(started))
    };

    let named = |call: u128, contact: Uuid| Fact::Contact {
        call: Uuid::from_u128(call),
        org: tenant.org,
        contact,
    };
    let facts = [
        started(1, tenant.org, None),
        named(1, id),
        // The contact's number, no contact named.
        started(2, tenant.org, Some(number)),
        // The contact's number, another contact named.
        started(3, tenant.org, Some(number)),
        named(3, bob),
        started(4, tenant.org, None),
        started(5, other.org, Some(number)),
    ];
    api.project(&facts).await;
    let session = Uuid::from_u128(0x5e55_0001).to_string();
    let handoff = json!({"session_id": session, "summary": "Wants a refund"});
    api.post("/handoff-analytics/events", &tenant.token, handoff)
        .await
        .with(201);

    let path = format!("/widget/contacts/{id}/export");
    let exported = api.get(&path, &tenant.token).await.with(200);
    let contact = format!("/widget/contacts/{id}");
    let shown = api.get(&contact, &tenant.token).await;
    assert_eq!(exported["contact"], shown.with(200));

    let calls = exported["calls"].as_array().expect("calls");
    let ids: Vec<_> = calls.iter().map(|call| call["id"].clone()).collect();
    assert_eq!(ids, [2, 1].map(|id| json!(Uuid::from_u128(id))));
    assert_eq!(
        calls[1]["headers"],
        json!([{"name": "X-Ticket", "value": "17"}])
    );
    assert_eq!(calls[1]["handoffs"][0]["summary"], "Wants a refund");
    assert_eq!(calls[0]["handoffs"], json!([]));
    assert_eq!(exported["next"], Value::Null);

    let first = api.get(&format!("{path}?limit=1"), &tenant.token).await;
    let next = first.with(200)["next"].as_str().expect("more").to_owned();
    let second = format!("{path}?cursor={next}");
    let second = api.get(&second, &tenant.token).await;
    assert_eq!(second.with(200)["calls"][0]["id"], ids[1]);
    let another = json!({"external_id": "x", "email": "x@example.com"});
    let another = authenticate(&api, &tenant, BY_ID, another).await;
    let elsewhere = format!("/widget/contacts/{another}/export?cursor={next}");
    let refused = api.get(&elsewhere, &tenant.token).await.with(400);
    assert_eq!(refused["message"], "cursor: was made for another contact");

    all_absent(&[api.get(&path, &other.token).await], "contact");
    for (held, lacks) in [
        (["calls:read", "handoff:read"], "widget:write"),
        (["widget:write", "handoff:read"], "calls:read"),
        (["widget:write", "calls:read"], "handoff:read"),
    ] {
        let (_, key) = api.key(tenant.org, &held).await;
        all_lack(&[api.get(&path, &key).await], lacks);
    }
}

/// A contact whose number is the org's own must not see every call through it.
#[tokio::test]
async fn a_contact_with_a_number_of_the_org_gets_no_calls_by_it() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    api.number(tenant.org, "+442071838750").await;
    let id = authenticate(&api, &tenant, PLAIN, everything()).await;
    let started = Started {
        to_e164: E164::parse("+442071838750").ok(),
        ..bare(Uuid::from_u128(1), tenant.org, &Facts::default())
    };
    api.project(&[Fact::Started(arc(started))]).await;
    let path = format!("/widget/contacts/{id}/export");
    let exported = api.get(&path, &tenant.token).await.with(200);
    assert_eq!(exported["calls"], json!([]));
}
