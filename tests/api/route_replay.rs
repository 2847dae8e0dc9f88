//! `/phone/sip/route-replay`, and explanations of a call.

use serde_json::{Value, json};
use trunkline::directory::{Defaults, Directory};
use trunkline_model::invite_facts::Proof;
use trunkline_model::invite_facts::{InviteFacts, PeerTraits};
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_model::settings::Runtime;
use trunkline_routing::{Facts, decide};
use trunkline_store::numbers;
use uuid::Uuid;

use crate::test_api::{NOW, Tenant, TestApi, all_lack, arc, done, now};

const PATH: &str = "/phone/sip/route-replay";

/// Records a call to `dialled` a minute ago, decided by the current directory.
async fn call(api: &TestApi, tenant: &Tenant, id: u128, dialled: &str) {
    let defaults = Defaults {
        realm: "trunkline".to_owned(),
        runtime: Runtime::Echo,
        addresses: Default::default(),
    };

    let directory = Directory::start(api.store.clone(), defaults, now).await;
    let view = directory.expect("the store is read").load();
    let facts = Facts {
        request_user: Some(dialled.to_owned()),
        from_user: Some("+441632960001".to_owned()),
        ..Facts::default()
    };

    let decision = decide(
        &facts,
        &view.org(tenant.org).expect("the org").routing,
        &|_| false,
    );

    let at = NOW - std::time::Duration::from_secs(60);
    let call = Uuid::from_u128(id);
    let started = Fact::Started(arc(Started {
        call,
        org: tenant.org,
        session: Uuid::from_u128(id + 1_000),
        agent: decision.agent(),
        trunk: None,
        direction: Direction::Inbound,
        from: "+441632960001".into(),
        to: dialled.into(),
        from_e164: decision.caller.e164,
        to_e164: decision.dialled.e164,
        caller_call_id: format!("call-{id}").into(),
        at,
        decision: Some(Box::new(decision)),
        headers: Vec::new(),
        metadata: None,
        invite_facts: Some(Box::new(InviteFacts {
            facts,
            proof: Proof::Digest,
            source: "198.51.100.7:5060".parse().expect("an address"),
            transport: "udp".into(),
            host: "sip.example.com".into(),
            user_agent: Some("Asterisk PBX 20.5".into()),
            traits: PeerTraits::default(),
        })),
        clock_offset: 0,
    }));

    let ended = Fact::Ended(Box::new(Ended {
        call,
        org: tenant.org,
        at: NOW,
        status: Status::Completed,
        sip_code: 200,
        reason: None,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    }));
    api.project(&[started, ended]).await;
}

/// Makes two agents; the younger holds the number that is called, the other one the number on the trunk's list.
async fn two_agents(api: &TestApi, tenant: &Tenant) -> (Uuid, Uuid) {
    let org = tenant.org;
    let reception = api.agent(tenant.org, "Reception").await;
    let sales = api.agent(tenant.org, "Sales").await;
    let number = api.number(tenant.org, "+493012345678").await;
    done(&api.store, move |tx, now| {
        numbers::assign(tx, org, sales, &[number.id], now)
    })
    .await;

    let front = api.number(tenant.org, "+493055555555").await;
    done(&api.store, move |tx, now| {
        numbers::assign(tx, org, reception, &[front.id], now)
    })
    .await;

    let trunk = json!({"phone_numbers": ["+493055555555"]});
    let made = api
        .post("/phone/sip/inbound-trunk", &tenant.token, trunk)
        .await;
    made.with(201);

    // The test waits until the directory has caught up.
    let question = json!({"to": "+493012345678"});
    api.post("/phone/sip/route-test", &tenant.token, question)
        .await
        .with(200);
    (reception, sales)
}

#[tokio::test]
async fn a_change_says_which_calls_would_go_elsewhere() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let (reception, sales) = two_agents(&api, &acme).await;
    api.agent(other.org, "Elsewhere").await;
    call(&api, &acme, 1, "+493012345678").await;
    call(&api, &acme, 2, "030 12345678").await;
    call(&api, &other, 3, "030 12345678").await;

    let replay = async |body: Value| api.post(PATH, &acme.token, body).await.with(200);
    let today = replay(json!({})).await;
    assert_eq!(
        (&today["calls"], &today["elsewhere"], &today["complete"]),
        (&json!(2), &json!(0), &json!(true)),
        "{today}"
    );

    let germany = replay(json!({"changes": {"trunk": {"default_country": "DE"}}})).await;
    assert_eq!(germany["elsewhere"], 1, "{germany}");

    let moved = &germany["items"][0];
    assert_eq!(moved["call_id"], json!(Uuid::from_u128(2)));
    assert_eq!(
        moved["before"],
        json!({"agent": {"id": reception, "step": "trunk_numbers"}})
    );
    assert_eq!(
        moved["after"],
        json!({"agent": {"id": sales, "step": "assigned_number"}})
    );

    let disabled = json!({"changes": {"agents": [{"id": sales, "enabled": false}]}});
    let disabled = replay(disabled).await;
    assert_eq!(
        disabled["items"][0]["call_id"],
        json!(Uuid::from_u128(1)),
        "{disabled}"
    );

    // A number that moves to another agent, one that is removed, an agent that is deleted, a trunk's list.
    let number = |more: Value| {
        let mut number = json!({"phone_number": "+493012345678"});
        for (name, value) in more.as_object().expect("fields") {
            number[name] = value.clone();
        }
        json!({"changes": {"numbers": [number]}})
    };
    let first = Uuid::from_u128(1);

    for (what, body, call, after) in [
        (
            "given to another",
            number(json!({"agent_id": reception})),
            first,
            json!({"agent": {"id": reception, "step": "assigned_number"}}),
        ),
        (
            "given to nobody",
            number(json!({"agent_id": null})),
            first,
            json!({"agent": {"id": reception, "step": "trunk_numbers"}}),
        ),
        (
            "taken away",
            number(json!({"deleted": true})),
            first,
            json!({"agent": {"id": reception, "step": "trunk_numbers"}}),
        ),
        (
            "its agent deleted",
            json!({"changes": {"agents": [{"id": sales, "deleted": true}]}}),
            first,
            json!({"agent": {"id": reception, "step": "trunk_numbers"}}),
        ),
        (
            "a trunk without numbers",
            json!({"changes": {"trunk": {"phone_numbers": []}, "agents": [{"id": reception, "type": "outbound"}]}}),
            Uuid::from_u128(2),
            json!({"agent": {"id": sales, "step": "first_available"}}),
        ),
    ] {
        let changed = replay(body).await;
        assert_eq!(changed["elsewhere"], 1, "{what}: {changed}");
        let moved = &changed["items"][0];
        assert_eq!(
            (&moved["call_id"], &moved["after"]),
            (&json!(call), &after),
            "{what}"
        );
    }

    let nobody = json!({"changes": {"agents": [{"id": sales, "enabled": false}, {"id": reception, "enabled": false}]}});
    let nobody = replay(nobody).await;
    assert_eq!(nobody["elsewhere"], 2, "{nobody}");
    assert_eq!(nobody["items"][1]["after"], "no_agent", "{nobody}");

    // The earliest times that can be given: no calls, and no error.
    for end in ["1970-01-01", "1970-01-01T00:00:00Z"] {
        assert_eq!(
            replay(json!({ "end_date": end })).await["calls"],
            0,
            "{end}"
        );
    }

    let cut = replay(json!({"limit": 1})).await;
    assert_eq!(
        (&cut["calls"], &cut["complete"]),
        (&json!(1), &json!(false)),
        "{cut}"
    );

    // A hypothetical change isn't stored.
    let trunk = api
        .get("/phone/sip/inbound-trunk", &acme.token)
        .await
        .with(200);
    assert_eq!(trunk["default_country"], Value::Null);
    assert_eq!(replay(json!({})).await["elsewhere"], 0);

    // The current directory counts as soon as it changes.
    let change = json!({"default_country": "DE"});
    let changed = api
        .patch("/phone/sip/inbound-trunk", &acme.token, change)
        .await;
    changed.with(200);
    assert_eq!(replay(json!({})).await["elsewhere"], 1);

    let theirs = api.post(PATH, &other.token, json!({})).await.with(200);
    assert_eq!(
        (&theirs["calls"], &theirs["elsewhere"]),
        (&json!(1), &json!(0)),
        "{theirs}"
    );

    let before = json!({"end_date": "2026-01-30"});
    assert_eq!(replay(before).await["calls"], 0);
}

#[tokio::test]
async fn what_can_not_be_replayed_is_refused() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let foreign = api.agent(other.org, "Foreign").await;
    api.post("/phone/sip/route-test", &acme.token, json!({"to": "1"}))
        .await
        .with(200);

    for (body, message) in [
        (
            json!({"start_date": "x", "limit": 0, "changes": {"agents": [{"enabled": 1}], "x": 1}, "y": 2}),
            "start_date: \"x\" is not an ISO 8601 date or time; limit: expected a whole number from 1 to 5000; \
             changes.agents[0].enabled: expected true or false, not a number; changes.agents[0].id: is required; \
             changes.x: is no field of this request; y: is no field of this request",
        ),
        (
            json!({"start_date": "2025-01-01"}),
            "start_date: lies more than 92 days before end_date",
        ),
        (
            json!({"start_date": "2026-01-02", "end_date": "2026-01-01"}),
            "start_date: lies after end_date",
        ),
        (
            json!({"changes": {"agents": [{"id": foreign}], "numbers": [{"phone_number": "+493012345678", "agent_id": foreign}]}}),
            "changes.agents[0].id: is not an agent of this org; changes.numbers[0].agent_id: is not an agent of this org",
        ),
    ] {
        let refused = api.post(PATH, &acme.token, body).await.with(400);
        let mut said: Vec<&str> = refused["message"]
            .as_str()
            .expect("a text")
            .split("; ")
            .collect();
        let mut expected: Vec<&str> = message.split("; ").collect();
        said.sort_unstable();
        expected.sort_unstable();
        assert_eq!(said, expected);
    }

    let (_, phones) = api.key(acme.org, &["phone:read"]).await;
    all_lack(&[api.post(PATH, &phones, json!([])).await], "calls:read");
    let (_, calls) = api.key(acme.org, &["calls:read"]).await;
    all_lack(&[api.post(PATH, &calls, json!([])).await], "phone:read");
}

#[tokio::test]
async fn a_call_says_who_it_was_and_what_it_came_close_to() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, sales) = two_agents(&api, &tenant).await;
    call(&api, &tenant, 2, "030 12345678").await;
    let path = format!("/phone/calls/{}/routing", Uuid::from_u128(2));
    let shown = api.get(&path, &tenant.token).await.with(200);
    let near = json!([{"number": {
        "dialled": "030 12345678", "number": "+493012345678", "agent": sales, "agent_name": "Sales", "differs": {"national_form": {"country": "DE"}},
    }}]);
    assert_eq!(shown["near_misses"], near, "{shown}");
    assert_eq!(shown["log_in"]["by"], "digest");
    assert_eq!(shown["log_in"]["source"], "198.51.100.7:5060");

    let said = shown["explanation"].as_array().expect("sentences");
    assert_eq!(
        said[0],
        "The caller at 198.51.100.7 logged in with the trunk's credentials."
    );

    let question = json!({"to": "030 12345678", "from": "+441632960001"});
    let foreseen = api
        .post("/phone/sip/route-test", &tenant.token, question)
        .await
        .with(200);
    assert_eq!(
        foreseen["explanation"].as_array().expect("sentences")[..],
        said[1..],
        "the same words"
    );

    assert_eq!(foreseen["near_misses"], near);
}

#[tokio::test]
async fn a_trunk_without_a_report_says_how_one_is_made() {
    let api = TestApi::with("[sip]\npublic_host = \"sip.example.com\"").await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    two_agents(&api, &acme).await;
    let path = "/phone/sip/inbound-trunk/doctor";
    let report = api.get(path, &acme.token).await.with(200);
    assert_eq!(
        report["how"],
        "Call sip:doctor@sip.example.com from the PBX with the trunk's credentials."
    );
    assert_eq!(
        (&report["call_id"], &report["findings"]),
        (&Value::Null, &json!([]))
    );
    crate::test_api::all_absent(&[api.get(path, &other.token).await], "inbound trunk");
}
