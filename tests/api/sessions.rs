//! `/phone/sessions/{session_id}`: a call's context, for its runtime and for its org.

use std::time::Duration;

use serde_json::{Value, json};
use trunkline_calls::trust::token::SessionTokens;
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_routing::E164;
use trunkline_store::{NewBooking, NewOrg, NewPartner, orgs};
use uuid::Uuid;

use crate::test_api::{NOW, Tenant, TestApi, all_absent, all_lack, arc, done, id_of, masked};

const CALL: Uuid = Uuid::from_u128(0xca11);
const SESSION: Uuid = Uuid::from_u128(0x5e55);

/// Projects a call of the agent that hasn't ended, and the call's contact if there is one.
async fn up(api: &TestApi, tenant: &Tenant, agent: Uuid, contact: Option<Uuid>) {
    let started = Fact::Started(arc(Started {
        call: CALL,
        org: tenant.org,
        session: SESSION,
        agent: Some(agent),
        trunk: None,
        direction: Direction::Inbound,
        from: "01632 960001".into(),
        to: "sales".into(),
        from_e164: E164::parse("+441632960001").ok(),
        to_e164: None,
        caller_call_id: "1@pbx".into(),
        at: NOW - Duration::from_secs(60),
        decision: None,
        headers: vec![
            ("X-Account".into(), "4711".into()),
            ("X-Tag".into(), "a".into()),
            ("X-Tag".into(), "b".into()),
        ],
        metadata: None,
        invite_facts: None,
        clock_offset: 0,
    }));

    let (call, org) = (CALL, tenant.org);
    let mut facts = vec![started];
    facts.extend(contact.map(|contact| Fact::Contact { call, org, contact }));
    api.project(&facts).await;
}

async fn end(api: &TestApi, tenant: &Tenant) {
    let ended = Ended {
        call: CALL,
        org: tenant.org,
        at: NOW - Duration::from_secs(1),
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    };
    api.project(&[Fact::Ended(Box::new(ended))]).await;
}

fn token(api: &TestApi, org: Uuid, session: Uuid) -> String {
    let key = api.store.keyring().derive("session tokens");
    SessionTokens::new(key).mint(org, session).into()
}

fn path(session: Uuid) -> String {
    format!("/phone/sessions/{session}")
}

/// Makes a visitor of the widget who is a contact of the org.
async fn contact(api: &TestApi, tenant: &Tenant) -> Uuid {
    let body = json!({
        "email": "ada@example.org",
        "name": "Ada",
        "customData": {"plan": "gold"},
        "chat_context": "asks about her bill",
        "http_action_overrides": {"headers": {"X-Visitor": "7"}},
    });
    let path = "/widget/authenticate-user";
    let made = api.post(path, &tenant.token, body).await.with(200);
    id_of(&made["contact"]).parse().expect("an id")
}

#[tokio::test]
async fn a_runtime_sees_agent_destinations_contact_caller_and_headers() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Reception").await;
    let on_agent = format!("/phone/sip/agents/{agent}/transfer-destinations");
    let create = json!({"create": {"name": "Sales", "type": "phone", "value": "+442071838750"}});
    api.post(&on_agent, &tenant.token, create).await.with(201);
    let other = json!({"name": "Unassigned", "type": "sip", "value": "sip:x@pbx.example"});
    let others = "/phone/sip/transfer-destinations";
    api.post(others, &tenant.token, other).await.with(201);
    let change = json!({"handoff_phone_number": "+442071838751"});
    api.patch(&format!("/phone/{agent}"), &tenant.token, change)
        .await
        .with(200);
    let contact = contact(&api, &tenant).await;
    up(&api, &tenant, agent, Some(contact)).await;
    let token = token(&api, tenant.org, SESSION);

    let shown = api.get(&path(SESSION), &token).await.with(200);
    assert_eq!(shown["agent"]["id"], agent.to_string());
    assert_eq!(shown["contact"]["id"], contact.to_string());
    insta::assert_json_snapshot!(masked(shown));
}

#[tokio::test]
async fn an_org_sees_all_but_what_the_actions_need_also_when_the_call_is_over() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Reception").await;
    let contact = contact(&api, &tenant).await;
    up(&api, &tenant, agent, Some(contact)).await;
    end(&api, &tenant).await;

    let shown = api.get(&path(SESSION), &tenant.token).await.with(200);
    assert_eq!(shown["status"], "completed");
    assert_eq!(
        shown["headers"],
        json!({"X-Account": "4711", "X-Tag": "a, b"})
    );
    assert_eq!(shown["contact"]["name"], "Ada");
    assert_eq!(shown["contact"].get("http_action_overrides"), None);

    api.delete(&format!("/phone/{agent}"), &tenant.token)
        .await
        .with(200);

    let shown = api.get(&path(SESSION), &tenant.token).await.with(200);
    assert_eq!(
        (&shown["agent"], &shown["destinations"]),
        (&Value::Null, &json!([]))
    );
}

#[tokio::test]
async fn a_session_has_what_was_said_of_its_org() {
    let api = TestApi::new().await;
    let partner = api
        .partner(NewPartner {
            name: "Reseller".to_owned(),
            ai_instructions: Some("Be kind.".to_owned()),
            ..NewPartner::default()
        })
        .await;
    let new = NewOrg {
        website: Some("https://acme.example".to_owned()),
        language: "fr".to_owned(),
        bookings: vec![NewBooking {
            name: "Default".to_owned(),
            app_key: "the-app".to_owned(),
            user_key: "the-user".to_owned(),
            default_company_shortname: Some("boats".to_owned()),
        }],
        ..NewOrg::named("Acme")
    };

    let org = done(&api.store, move |tx, _| {
        orgs::create(tx, Some(partner.id), &new, NOW)
    })
    .await
    .id;
    let (key, key_token) = api.key(org, &["calls:read"]).await;
    let tenant = Tenant {
        org,
        key,
        token: key_token,
    };
    let agent = api.agent(org, "Reception").await;
    up(&api, &tenant, agent, None).await;

    let runtime = token(&api, org, SESSION);
    for asker in [&runtime, &tenant.token] {
        let shown = api.get(&path(SESSION), asker).await.with(200);
        let (shown, handle) = (&shown["org"], &shown["org"]["integrations"]["booking"][0]);
        assert_eq!(shown["name"], "Acme");
        assert_eq!(shown["website"], "https://acme.example");
        assert_eq!(shown["language"], "fr");
        assert_eq!(shown["ai_instructions"], "Be kind.");
        assert_eq!(handle["default_company_shortname"], "boats");
        assert_eq!(handle.get("credentials"), None);
    }

    let (_, reader) = api.key(org, &["calls:read", "integrations:read"]).await;
    let shown = api.get(&path(SESSION), &reader).await.with(200);
    let credentials = json!({"app_key": "the-app", "user_key": "the-user"});
    assert_eq!(
        shown["org"]["integrations"]["booking"][0]["credentials"],
        credentials
    );

    let own = json!({"ai_instructions": "Be brief."});
    let of_partner = format!("/partner/v1/orgs/{org}");
    api.patch(&of_partner, &partner.key, own).await.with(200);
    let shown = api.get(&path(SESSION), &runtime).await.with(200);
    assert_eq!(shown["org"]["ai_instructions"], "Be brief.");
}

#[tokio::test]
async fn a_token_opens_its_own_session_while_the_call_is_up() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let other = api.tenant("Other").await;
    let agent = api.agent(tenant.org, "Reception").await;
    up(&api, &tenant, agent, None).await;
    let good = token(&api, tenant.org, SESSION);
    assert_eq!(
        api.get(&path(SESSION), &good).await.with(200)["contact"],
        Value::Null
    );

    for (name, session, token) in [
        ("another session", CALL, good.clone()),
        ("another org's", SESSION, token(&api, other.org, CALL)),
        ("made up", SESSION, format!("tls_{}", "0".repeat(64))),
    ] {
        let refused = api.get(&path(session), &token).await;
        assert_eq!(refused.status, 401, "{name}: {}", refused.text);
        assert_eq!(refused.header("WWW-Authenticate"), Some("Bearer"), "{name}");
    }

    // A token that names this session but another org.
    let foreign = token(&api, other.org, SESSION);
    all_absent(&[api.get(&path(SESSION), &foreign).await], "session");

    let malformed = api.get("/phone/sessions/7", &good).await;
    assert_eq!(malformed.status, 401);

    for elsewhere in ["/phone", "/widget/me", "/partner/v1/orgs"] {
        assert_eq!(api.get(elsewhere, &good).await.status, 401, "{elsewhere}");
    }

    api.get(&format!("{}?x=1", path(SESSION)), &good)
        .await
        .with(400);
    end(&api, &tenant).await;
    let over = api.get(&path(SESSION), &good).await.with(401);

    assert_eq!(
        over["message"],
        "The session is over, and its token with it"
    );
}

#[tokio::test]
async fn a_foreign_an_absent_and_a_malformed_session_are_the_same() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let other = api.tenant("Other").await;
    let agent = api.agent(tenant.org, "Reception").await;
    up(&api, &tenant, agent, None).await;
    let absent = [
        api.get(&path(SESSION), &other.token).await,
        api.get(&path(CALL), &tenant.token).await,
        api.get("/phone/sessions/7", &tenant.token).await,
    ];
    all_absent(&absent, "session");
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    all_lack(&[api.get(&path(SESSION), &reader).await], "calls:read");
}

#[tokio::test]
async fn a_session_has_a_limit_of_its_own() {
    let api = TestApi::with("[limits]\nrequests_per_minute = 2\n").await;
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Reception").await;
    up(&api, &tenant, agent, None).await;
    let token = token(&api, tenant.org, SESSION);
    for expected in [200, 200, 429] {
        assert_eq!(api.get(&path(SESSION), &token).await.status, expected);
    }
    api.get(&path(SESSION), &tenant.token).await.with(200);
}
