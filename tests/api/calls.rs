//! `/phone/calls`, `/phone/calls/{call_id}`, `/phone/calls/{call_id}/routing`.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::{Value, json};
use trunkline_model::invite_facts::PeerTraits;
use trunkline_model::invite_facts::{InviteFacts, Proof};
use trunkline_model::record::{Direction, Ended, Fact, HangupBy, Started, Status};
use trunkline_routing::{
    Decision, E164, Facts, Org, Outcome, Step, StepFinding, StepPlace, TrailEntry, decide, facts,
};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::test_api::{NOW, Tenant, TestApi, all_absent, all_lack, arc};

const AGENT: Uuid = Uuid::from_u128(0xa);
pub(crate) const TRUNK: Uuid = Uuid::from_u128(0x7);

fn e164(text: &str) -> Option<E164> {
    E164::parse(text).ok()
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn at(secs: u64) -> Moment {
    NOW - Duration::from_secs(3600) + Duration::from_secs(secs)
}

fn decision() -> Decision {
    Decision {
        outcome: Outcome::Agent {
            id: AGENT,
            step: Step::FirstAvailable,
        },
        dialled: facts::Dialled {
            raw: "+442071838750".into(),
            e164: e164("+442071838750"),
        },
        caller: facts::Caller {
            raw: "100".into(),
            e164: None,
        },
        trail: vec![TrailEntry {
            step: Step::Header,
            at: StepPlace::Nothing,
            found: StepFinding::Nothing,
        }],
        near_misses: vec![],
    }
}

/// An inbound call that an org without agents refuses.
pub(crate) fn bare(call: Uuid, org: Uuid, facts: &Facts) -> Started {
    let empty = Org {
        id: org,
        agents: Vec::new(),
        held: HashMap::new(),
        numbers: HashSet::new(),
        trunk: None,
        max_concurrent_calls: None,
    };

    Started {
        call,
        org,
        session: Uuid::new_v4(),
        agent: None,
        trunk: None,
        direction: Direction::Inbound,
        from: "100".into(),
        to: facts.request_user.clone().unwrap_or_default().into(),
        from_e164: None,
        to_e164: None,
        caller_call_id: "bare@pbx".into(),
        at: NOW,
        decision: Some(Box::new(decide(facts, &empty, &|_| false))),
        headers: Vec::new(),
        metadata: None,
        invite_facts: Some(Box::new(InviteFacts {
            facts: facts.clone(),
            proof: Proof::Digest,
            source: "198.51.100.7:5060".parse().expect("an address"),
            transport: "udp".into(),
            host: "sip.example.com".into(),
            user_agent: None,
            traits: PeerTraits::default(),
        })),
        clock_offset: 0,
    }
}

pub(crate) fn started(tenant: &Tenant, call: u128, secs: u64) -> Fact {
    Fact::Started(arc(Started {
        call: id(call),
        org: tenant.org,
        session: id(0x5e55_0000 + call),
        agent: Some(AGENT),
        trunk: Some(TRUNK),
        direction: Direction::Inbound,
        from: "+441632960001".into(),
        to: "02071838750".into(),
        from_e164: e164("+441632960001"),
        to_e164: e164("+442071838750"),
        caller_call_id: format!("{call}@pbx").into(),
        at: at(secs),
        decision: Some(Box::new(decision())),
        headers: Vec::new(),
        metadata: None,
        invite_facts: None,
        clock_offset: 0,
    }))
}

pub(crate) fn ended(tenant: &Tenant, call: u128, secs: u64, status: Status) -> Fact {
    let (sip_code, reason) = if status == Status::Completed {
        (200, None)
    } else {
        (480, Some("no_agent".into()))
    };
    Fact::Ended(Box::new(Ended {
        call: id(call),
        org: tenant.org,
        at: at(secs),
        status,
        sip_code,
        reason,
        reason_detail: None,
        hangup_by: HangupBy::Caller,
        cause: None,
    }))
}

/// An answered call and a refused one.
pub(crate) async fn two_calls(api: &TestApi, tenant: &Tenant) {
    let facts = [
        started(tenant, 1, 0),
        Fact::Ringing {
            call: id(1),
            org: tenant.org,
            at: at(1),
        },
        Fact::Answered {
            call: id(1),
            org: tenant.org,
            at: at(2),
            runtime_call_id: "runtime".into(),
        },
        ended(tenant, 1, 60, Status::Completed),
        started(tenant, 2, 10),
        ended(tenant, 2, 11, Status::Refused),
    ];
    api.project(&facts).await;
}

fn ids(page: &Value) -> Vec<u128> {
    let items = page["items"].as_array().expect("items");
    items
        .iter()
        .map(|item| {
            item["id"]
                .as_str()
                .and_then(|id| id.parse::<Uuid>().ok())
                .expect("an id")
                .as_u128()
        })
        .collect()
}

#[tokio::test]
async fn calls_are_listed_newest_first() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    two_calls(&api, &tenant).await;
    insta::assert_json_snapshot!(api.get("/phone/calls", &tenant.token).await.with(200));
}

#[tokio::test]
async fn one_call_is_shown_with_everything_about_it() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    two_calls(&api, &tenant).await;
    insta::assert_json_snapshot!(
        api.get(&format!("/phone/calls/{}", id(1)), &tenant.token)
            .await
            .with(200)
    );
}

#[tokio::test]
async fn the_decision_is_shown_and_explained() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    two_calls(&api, &tenant).await;
    insta::assert_json_snapshot!(
        api.get(&format!("/phone/calls/{}/routing", id(1)), &tenant.token)
            .await
            .with(200)
    );
}

/// A client that has the INVITE alone, from a log, doesn't know when it was sent.
#[tokio::test]
async fn an_invite_of_unknown_time_is_explained_by_its_record() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    two_calls(&api, &tenant).await;

    let invite = "INVITE sip:02071838750@192.0.2.10 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\n\
                  From: <sip:a@192.0.2.1>;tag=1\r\nTo: <sip:b@192.0.2.10>\r\nCall-ID: 1@pbx\r\nCSeq: 1 INVITE\r\n\
                  Contact: <sip:a@192.0.2.1>\r\nMax-Forwards: 70\r\nContent-Length: 0\r\n\r\n";
    for (case, sent_at, found) in [
        ("no time", json!(null), json!(id(1))),
        ("that day", json!("2026-01-31T08:00:00Z"), json!(id(1))),
        ("another day", json!("2026-01-15T08:00:00Z"), json!(null)),
    ] {
        let mut body = json!({"invite": invite});
        if !sent_at.is_null() {
            body["sent_at"] = sent_at;
        }
        let explained = api
            .post("/phone/sip/explain", &tenant.token, body)
            .await
            .with(200);
        assert_eq!(explained["call_id"], found, "{case}");
    }
}

#[tokio::test]
async fn another_tenants_call_and_none_at_all_are_the_same_404() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    two_calls(&api, &acme).await;
    assert_eq!(
        api.get("/phone/calls", &other.token).await.with(200),
        json!({"items": [], "next": null, "total": 0})
    );

    for tail in ["", "/routing"] {
        let mut bodies = HashSet::new();
        for call in [
            id(1).to_string(),
            id(9).to_string(),
            "no-id".to_owned(),
            "%ff".to_owned(),
        ] {
            let answer = api
                .get(&format!("/phone/calls/{call}{tail}"), &other.token)
                .await;
            answer.with(404);
            bodies.insert(answer.text);
        }
        assert_eq!(
            bodies,
            HashSet::from([
                r#"{"statusCode":404,"message":"There is no such call","error":"Not Found","code":"not_found"}"#
                    .to_owned()
            ])
        );
    }
}

#[tokio::test]
async fn filters_narrow_the_list() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    two_calls(&api, &tenant).await;

    let (agent, nobody) = (AGENT, id(0xb));
    for (query, found) in [
        (format!("agent_id={agent}"), vec![2, 1]),
        (format!("agent_id={nobody}"), vec![]),
        (format!("trunk_id={TRUNK}"), vec![2, 1]),
        (format!("trunk_id={nobody}"), vec![]),
        ("direction=inbound".into(), vec![2, 1]),
        ("direction=outbound".into(), vec![]),
        ("status=refused".into(), vec![2]),
        ("status=completed&direction=inbound".into(), vec![1]),
        ("phone_number=%2B441632960001".into(), vec![2, 1]),
        ("phone_number=+441632960001".into(), vec![2, 1]),
        ("number=02071838750".into(), vec![2, 1]),
        ("phone_number=%2B4400".into(), vec![]),
        (
            "start_date=2026-01-31&end_date=2026-01-31".into(),
            vec![2, 1],
        ),
        ("start_date=2026-01-31T11:00:05Z".into(), vec![2]),
        ("end_date=2026-01-31T11:00:05Z".into(), vec![1]),
        ("end_date=2026-01-30".into(), vec![]),
    ] {
        let page = api
            .get(&format!("/phone/calls?{query}"), &tenant.token)
            .await
            .with(200);
        assert_eq!(ids(&page), found, "{query}");
        assert_eq!(page["total"], found.len(), "{query}");
    }
}

#[tokio::test]
async fn a_wrong_query_is_400_with_every_fault() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for (query, message) in [
        (
            "colour=red&shape=round",
            "colour: is no parameter of this endpoint; shape: is no parameter of this endpoint",
        ),
        ("limit=0", "limit: expected a number from 1 to 100"),
        (
            "limit=101&agent_id=x",
            "agent_id: expected an agent's id; limit: expected a number from 1 to 100",
        ),
        (
            "direction=inbound&direction=inbound",
            "direction: is given more than once",
        ),
        (
            "start_date=soon",
            "start_date: \"soon\" is not an ISO 8601 date or time",
        ),
        (
            "start_date=2026-02-01&end_date=2026-01-31",
            "start_date: lies after end_date",
        ),
        ("cursor=nonsense", "cursor: is no cursor of this list"),
        ("phone_number=", "phone_number: must not be empty"),
    ] {
        let body = api
            .get(&format!("/phone/calls?{query}"), &tenant.token)
            .await
            .with(400);
        let errors = body["errors"].as_array().expect("faults").iter();
        let listed: Vec<_> = errors
            .map(|fault| {
                let part = |name: &str| fault[name].as_str().expect("a text").to_owned();
                format!("{}: {}", part("path"), part("message"))
            })
            .collect();
        assert_eq!(listed.join("; "), message, "{query}");

        let refusal = json!({
            "statusCode": 400, "message": message, "error": "Bad Request", "code": "bad_request", "errors": body["errors"],
        });
        assert_eq!(body, refusal, "{query}");
    }

    let body = api
        .get("/phone/calls?status=up", &tenant.token)
        .await
        .with(400);
    insta::assert_json_snapshot!(body);
}

#[tokio::test]
async fn a_walk_over_pages_meets_every_call_once() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;

    // Three of four calls begin at the same time, so the id has to break the tie.
    let facts: Vec<Fact> = (1..=10)
        .flat_map(|call| {
            [
                started(&tenant, call, 100 + call as u64 / 4),
                ended(&tenant, call, 300, Status::Completed),
            ]
        })
        .collect();
    api.project(&facts).await;

    let mut seen = Vec::new();
    let mut path = "/phone/calls?limit=3&status=completed".to_owned();
    loop {
        let page = api.get(&path, &tenant.token).await.with(200);
        seen.extend(ids(&page));
        // A new call must not disturb the walk.
        api.project(&[
            started(&tenant, 50 + seen.len() as u128, 500),
            ended(&tenant, 50 + seen.len() as u128, 501, Status::Completed),
        ])
        .await;
        let Some(next) = page["next"].as_str() else {
            break;
        };
        // The cursor carries the filters; repeating them is allowed.
        path = if seen.len() < 6 {
            format!("/phone/calls?limit=3&cursor={next}")
        } else {
            format!("/phone/calls?status=completed&limit=3&cursor={next}")
        };
    }

    assert_eq!(seen, (1..=10).rev().collect::<Vec<_>>());
}

#[tokio::test]
async fn a_cursor_is_good_for_its_filters_alone() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    two_calls(&api, &tenant).await;

    let page = api
        .get("/phone/calls?limit=1&direction=inbound", &tenant.token)
        .await
        .with(200);
    let next = page["next"].as_str().expect("a second page");
    let body = api
        .get(
            &format!("/phone/calls?limit=1&direction=outbound&cursor={next}"),
            &tenant.token,
        )
        .await
        .with(400);

    assert_eq!(
        body["message"],
        "cursor: was made under other filters; give the same ones, or none"
    );
}

#[tokio::test]
async fn only_a_call_that_is_up_is_hung_up() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    two_calls(&api, &acme).await;
    api.project(&[started(&acme, 3, 60)]).await;
    let path = |call: &str| format!("/phone/calls/{call}/hangup");

    for (call, message) in [
        (1, "The call is over"),
        (2, "The call is over"),
        (3, "The call is not up on this node"),
    ] {
        let path = path(&id(call).to_string());
        let refused = api.post(&path, &acme.token, json!({})).await.with(409);
        assert_eq!(refused["message"], message, "call {call}");
        let refused = api.post(&path, &acme.token, json!({"now": 1})).await;
        assert_eq!(
            refused.with(400)["message"],
            "now: is no field of this request"
        );
    }

    for call in [id(3).to_string(), id(9).to_string(), "no-id".to_owned()] {
        let answer = api.post(&path(&call), &other.token, json!([])).await;
        all_absent(&[answer], "call");
    }

    let (_, reader) = api.key(acme.org, &["calls:read"]).await;
    let answer = api.post(&path("no-id"), &reader, json!([])).await;
    all_lack(&[answer], "calls:write");
}
