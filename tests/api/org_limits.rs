//! Limits of an org: the defaults, the operator's, and those of its partner within them.

use serde_json::{Value, json};
use trunkline_store::{DefaultLimits, LimitedBy, OrgLimit, org_limits, partners};
use uuid::Uuid;

use crate::pages::org_of;
use crate::test_api::{Tenant, TestApi, done, found, now, pass, written};
use crate::test_db::TestDb;

const DEFAULTS: DefaultLimits = DefaultLimits {
    registrations: 10,
    requests_per_minute: 100,
    streaming_requests_per_minute: 1_000,
};

/// An object that an org makes by a POST, counted by this limit.
struct Made {
    limit: OrgLimit,
    path: &'static str,
    body: fn(usize) -> Value,
    /// Number that a new tenant of the tests has.
    held: u32,
}

const MADE: [Made; 8] = [
    Made {
        limit: OrgLimit::Agents,
        path: "/phone",
        body: |at| json!({"name": format!("n{at}"), "type": "inbound", "language": "en", "first_message": "Hi", "use_org_knowledgebase": false}),
        held: 0,
    },
    Made {
        limit: OrgLimit::OutboundTrunks,
        path: "/phone/sip/outbound-trunks",
        body: |at| json!({"name": format!("n{at}"), "host": "sip.example.com", "transport": "udp", "caller_number": "+442071838750"}),
        held: 0,
    },
    Made {
        limit: OrgLimit::Registrations,
        path: "/phone/sip/outbound-trunks",
        body: |at| {
            json!({"name": format!("r{at}"), "host": "sip.example.com", "transport": "udp", "caller_number": "+442071838750",
            "username": "u", "password": "p", "register": true})
        },
        held: 0,
    },
    Made {
        limit: OrgLimit::Destinations,
        path: "/phone/sip/transfer-destinations",
        body: |at| json!({"name": format!("n{at}"), "type": "phone", "value": "+442071838751"}),
        held: 0,
    },
    // The key that sends the requests counts.
    Made {
        limit: OrgLimit::ApiKeys,
        path: "/api-keys",
        body: |at| json!({"name": format!("n{at}")}),
        held: 1,
    },
    Made {
        limit: OrgLimit::Webhooks,
        path: "/webhooks",
        body: |at| json!({"url": format!("https://example.com/{at}")}),
        held: 0,
    },
    Made {
        limit: OrgLimit::Numbers,
        path: "/phone/numbers",
        body: |at| json!({"phone_number": format!("+44207946000{at}")}),
        held: 0,
    },
    Made {
        limit: OrgLimit::Handoffs,
        path: "/handoff-analytics/events",
        body: |at| json!({"session_id": format!("s{at}"), "summary": "Wants a human"}),
        held: 0,
    },
];

async fn set(api: &TestApi, org: Uuid, limit: OrgLimit, most: Option<u32>) {
    done(&api.store, move |tx, now| {
        org_limits::limit(
            tx,
            org,
            &[(limit, most)],
            LimitedBy::Operator,
            DEFAULTS,
            now,
        )
    })
    .await;
}

async fn make(api: &TestApi, tenant: &Tenant, made: &Made, at: usize) -> crate::test_api::Answer {
    api.post(made.path, &tenant.token, (made.body)(at)).await
}

#[tokio::test]
async fn an_org_that_has_all_its_contacts_goes_on_with_them() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    set(&api, tenant.org, OrgLimit::Contacts, Some(1)).await;
    let visit = async |email: &str| {
        let body = json!({"email": email, "name": "Ann"});
        api.post("/widget/authenticate-user", &tenant.token, body)
            .await
    };
    let known = visit("a@example.com").await.with(200)["contact"].clone();
    let refused = visit("b@example.com").await.with(409).clone();
    assert_eq!(refused["code"], "too_many_contacts", "{refused}");

    let said = "The org may have 1 contact, and has it already";
    assert_eq!(refused["message"], said, "{refused}");
    assert_eq!(visit("a@example.com").await.with(200)["contact"], known);

    let path = format!("/widget/contacts/{}", known["id"].as_str().expect("an id"));
    let change = json!({"name": "Zoe"});
    api.patch(&path, &tenant.token, change).await.with(200);
}

#[tokio::test]
async fn an_org_has_so_many_of_each_kind() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    for made in &MADE {
        let most = made.held + 2;
        set(&api, tenant.org, made.limit, Some(most)).await;
        for at in 0..2 {
            make(&api, &tenant, made, at).await.with(201);
        }

        let refused = make(&api, &tenant, made, 2).await;
        let body = refused.with(409);
        let code = format!("too_many_{}", made.limit.as_str());
        assert_eq!(body["code"], *code, "{body}");
        let message = body["message"].as_str().expect("a sentence");
        let said = format!("The org may have {most} ");
        assert!(message.starts_with(&said), "{message}");

        // Other orgs are served, and this one is again once the operator raises its limit.
        make(&api, &other, made, 2).await.with(201);
        set(&api, tenant.org, made.limit, None).await;
        make(&api, &tenant, made, 2).await.with(201);

        // With a limit below the current count, all objects stay and one more is refused.
        set(&api, tenant.org, made.limit, Some(0)).await;
        make(&api, &tenant, made, 3).await.with(409);
        set(&api, tenant.org, made.limit, None).await;
    }
}

#[tokio::test]
async fn a_key_that_has_ended_makes_room_for_another() {
    let mut grounds = vec![TestDb::sqlite()];
    grounds.extend(TestDb::postgres().await);
    for (minute, db) in (1..).zip(grounds) {
        let api = TestApi::built("", db).await;
        let tenant = api.tenant("Acme").await;
        // The key that sends the requests, and one more.
        set(&api, tenant.org, OrgLimit::ApiKeys, Some(2)).await;
        let ends = json!({"name": "ends", "expires_at": written(60 * minute)});
        api.post("/api-keys", &tenant.token, ends).await.with(201);
        let lasts = json!({"name": "lasts"});
        let refused = api.post("/api-keys", &tenant.token, lasts.clone()).await;
        assert_eq!(refused.with(409)["code"], "too_many_api_keys");

        pass(60);
        let at = now();
        let held = found(&api.store, move |tx| org_limits::counts(tx, tenant.org, at)).await;
        assert!(held.contains(&(OrgLimit::ApiKeys, 1)), "{held:?}");
        api.post("/api-keys", &tenant.token, lasts).await.with(201);
    }
}

#[tokio::test]
async fn two_at_once_at_the_bound_make_one() {
    let mut grounds = vec![TestDb::sqlite()];
    grounds.extend(TestDb::postgres().await);
    for db in grounds {
        let api = TestApi::built("", db).await;
        let tenant = api.tenant("Acme").await;
        for made in &MADE {
            set(&api, tenant.org, made.limit, Some(made.held + 1)).await;
            let answers = api.at_once(20, |at| make(&api, &tenant, made, at)).await;
            let with = |status| answers.iter().filter(|one| one.status == status).count();
            assert_eq!((with(201), with(409)), (1, 19), "{}", made.limit.as_str());
            // The next kind of trunk shares these objects.
            set(&api, tenant.org, made.limit, None).await;
        }
    }
}

#[tokio::test]
async fn a_partner_sets_limits_of_its_orgs_within_what_the_operator_allows() {
    let api = TestApi::new().await;
    let (partner, rival) = (api.reseller("Ours").await, api.reseller("Rival").await);
    let org = org_of(&api, &partner, "Acme").await;
    let path = format!("/partner/v1/orgs/{org}/limits");
    let shown = api.get(&path, &partner.key).await;
    insta::assert_json_snapshot!("limits_of_an_org", shown.with(200));
    let shown = api.get("/partner/v1/limits", &partner.key).await;
    insta::assert_json_snapshot!("limits_of_a_partner", shown.with(200));

    // A limit below the default, then back to the default.
    let body = json!({"agents": 1, "webhooks": 0});
    let changed = api.patch(&path, &partner.key, body).await.with(200);
    assert_eq!(changed["agents"]["limit"], 1, "{changed}");
    assert_eq!(changed["agents"]["max"], 1_000, "{changed}");

    let (_, token) = api.key(org, &["phone:write", "webhooks:write"]).await;
    let tenant_of = |made: &Made| (made.path, (made.body)(0));
    let (agents, agent) = tenant_of(&MADE[0]);
    api.post(agents, &token, agent.clone()).await.with(201);
    let refused = api.post(agents, &token, agent.clone()).await;
    assert_eq!(refused.with(409)["code"], "too_many_agents");

    let (webhooks, webhook) = tenant_of(&MADE[5]);
    let refused = api.post(webhooks, &token, webhook).await;
    assert_eq!(refused.with(409)["code"], "too_many_webhooks");
    let body = json!({"agents": null});
    let changed = api.patch(&path, &partner.key, body).await.with(200);
    assert_eq!(
        changed["agents"],
        json!({"limit": 1_000, "max": 1_000, "used": 1})
    );
    assert_eq!(changed["webhooks"]["limit"], 0, "it stays: {changed}");
    api.post(agents, &token, agent).await.with(201);

    // A limit above the operator's, a value that is no number, and another partner's org are refused and change nothing.
    for body in [
        json!({"agents": 1_001}),
        json!({"destinations": 5, "agents": 1_001}),
        json!({"agents": -1}),
        json!({"agents": 4_294_967_296_u64}),
        json!({"agents": 1.5}),
        json!({"agents": "many"}),
        json!({"requests_per_minute": 0}),
        json!({"rooms": 1}),
    ] {
        api.patch(&path, &partner.key, body).await.with(400);
    }

    let refused = api
        .patch(&path, &partner.key, json!({"agents": 1_001}))
        .await;
    insta::assert_json_snapshot!("a_limit_above_what_is_allowed", refused.with(400));
    let body = json!({"agents": 5});
    api.patch(&path, &rival.key, body).await.with(403);
    let shown = api.get(&path, &partner.key).await.with(200);
    assert_eq!(shown["agents"]["limit"], 1_000, "{shown}");
    assert_eq!(shown["destinations"]["limit"], 1_000, "{shown}");

    // The operator raises the partner's limit; a limit that the operator sets on one org takes precedence.
    let most = [(OrgLimit::Agents, Some(5_000))];
    done(&api.store, move |tx, now| {
        org_limits::limit_partner(tx, partner.id, &most, now)
    })
    .await;
    let body = json!({"agents": 4_000});
    let changed = api.patch(&path, &partner.key, body).await.with(200);
    assert_eq!(changed["agents"]["limit"], 4_000, "{changed}");

    set(&api, org, OrgLimit::Agents, Some(10)).await;
    let shown = api.get(&path, &partner.key).await.with(200);
    assert_eq!(shown["agents"], json!({"limit": 10, "max": 10, "used": 2}));
    let body = json!({"agents": 11});
    api.patch(&path, &partner.key, body).await.with(400);

    // The partner of a suspended org reads and changes its limits until the operator takes that right back.
    let suspend = format!("/partner/v1/orgs/{org}/suspend");
    api.post(&suspend, &partner.key, json!({})).await.with(200);
    let body = json!({"agents": 3});
    let changed = api.patch(&path, &partner.key, body).await.with(200);
    assert_eq!(changed["agents"]["limit"], 3, "{changed}");

    set(&api, org, OrgLimit::Agents, None).await;
    let most = [(OrgLimit::Agents, Some(2))];
    done(&api.store, move |tx, now| {
        org_limits::limit_partner(tx, partner.id, &most, now)
    })
    .await;
    let shown = api.get(&path, &partner.key).await.with(200);
    assert_eq!(shown["agents"]["limit"], 2, "{shown}");
}

#[tokio::test]
async fn a_changed_request_limit_is_in_force_at_once() {
    let api = TestApi::with("[limits]\nrequests_per_minute = 5").await;
    let (partner, other) = (api.reseller("Ours").await, api.tenant("Other").await);
    let org = org_of(&api, &partner, "Acme").await;
    let (_, token) = api.key(org, &["calls:read"]).await;
    let first = api.get("/phone/calls", &token).await;
    first.with(200);
    let policy = api.policy("\"org\";q=5;w=60");
    assert_eq!(first.header("RateLimit-Policy"), Some(&*policy));

    let path = format!("/partner/v1/orgs/{org}/limits");
    let body = json!({"requests_per_minute": 2, "streaming_requests_per_minute": 1});
    api.patch(&path, &partner.key, body).await.with(200);
    api.get("/phone/calls", &token).await.with(200);
    let refused = api.get("/phone/calls", &token).await;
    refused.with(429);
    assert_eq!(refused.header("Retry-After"), Some("60"));

    let policy = api.policy("\"org\";q=2;w=60");
    assert_eq!(refused.header("RateLimit-Policy"), Some(&*policy));
    api.get("/phone/calls", &other.token).await.with(200);
    // A stream never ends, so its body can't be read.
    assert_eq!(api.get("/phone/events", &token).await.status, 200);
    api.get("/phone/events", &token).await.with(429);

    // The operator's limit takes precedence, and only the operator changes the partner's own limit.
    pass(60);
    set(&api, org, OrgLimit::Requests, Some(1)).await;
    api.get("/phone/calls", &token).await.with(200);
    api.get("/phone/calls", &token).await.with(429);
    let at = now();
    let limited = api
        .store
        .write(move |tx| partners::limit(tx, partner.id, Some(Some(1)), Some(Some(1)), at))
        .await;
    assert_eq!(limited.expect("limited").requests_per_minute, Some(1));

    let served = api.get("/partner/v1/limits", &partner.key).await;
    served.with(200);
    let policy = api.policy("\"partner\";q=1;w=60");
    assert_eq!(served.header("RateLimit-Policy"), Some(&*policy));
    api.get("/partner/v1/limits", &partner.key).await.with(429);
}
