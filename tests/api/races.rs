//! Concurrent requests, and lists that grow while they are read, on SQLite and PostgreSQL.

use std::collections::HashSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::idempotency::{ask, is_replay};
use crate::pages::{form_token, link, log_in, org_of, submit, visit};
use crate::test_api::{Answer, TestApi, id_of, pass};
use crate::test_db::TestDb;

/// Number of concurrent requests.
const MANY: usize = 100;

fn count(answers: &[Answer], status: u16) -> usize {
    let with = answers.iter().filter(|answer| answer.status == status);
    with.count()
}

async fn a_login_link_opens_one_session(api: &TestApi) {
    let reseller = api.reseller("Reseller").await;
    let org = org_of(api, &reseller, "Acme").await;
    let link = link(api, &reseller, org, "ada@example.org").await;
    let answers = api.at_once(MANY, |_| visit(api, &link, "")).await;
    assert_eq!((count(&answers, 303), count(&answers, 410)), (1, MANY - 1));
    let kept = api
        .rows("SELECT CAST(COUNT(*) AS TEXT) FROM dashboard_sessions")
        .await;
    assert_eq!(kept, ["1"]);
}

async fn an_external_id_is_one_orgs(api: &TestApi) {
    const ORGS: &str = "/partner/v1/orgs";
    let partner = api.reseller("Reseller").await;
    let body = json!({"name": "A", "external_id": "7"});
    let answers = api
        .at_once(MANY, |_| api.post(ORGS, &partner.key, body.clone()))
        .await;
    assert_eq!((count(&answers, 201), count(&answers, 409)), (1, MANY - 1));
    assert_eq!(api.get(ORGS, &partner.key).await.with(200)["total"], 1);
}

async fn an_agent_has_every_number_that_is_added_at_once(api: &TestApi) {
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Anna").await;
    let mut numbers = Vec::new();
    for place in 0..10 {
        let number = format!("+44207183876{place}");
        numbers.push(api.number(tenant.org, &number).await.id);
    }

    let path = format!("/phone/sip/agents/{agent}/inbound-numbers");
    let (numbers, path, token) = (&numbers, &path, &tenant.token);
    let add = async |place: usize| {
        let body = json!({"phone_number_id": numbers[place]});
        api.post(path, token, body).await
    };
    let held = async || {
        let config = format!("/phone/sip/agents/{agent}/config");
        let config = api.get(&config, token).await.with(200);
        config["inbound_numbers"].as_array().map(Vec::len)
    };

    let answers = api.at_once(numbers.len(), add).await;
    assert_eq!((count(&answers, 200), held().await), (10, Some(10)));

    // Five are removed while the others are added once more.
    let change = async |place: usize| match place % 2 {
        0 => add(place).await,
        _ => {
            api.delete(&format!("{path}/{}", numbers[place]), token)
                .await
        }
    };
    let answers = api.at_once(numbers.len(), change).await;
    assert_eq!((count(&answers, 200), held().await), (10, Some(5)));
}

async fn a_visitor_is_one_contact(api: &TestApi) {
    const PLAIN: &str = "/widget/authenticate-user";
    const BY_ID: &str = "/widget/authenticate-user-by-external-id";
    let tenant = api.tenant("Acme").await;
    for (path, body) in [
        (PLAIN, json!({"email": "a@b.com", "phone": "+442071838750"})),
        (PLAIN, json!({"phone": "+442071838751"})),
        (BY_ID, json!({"external_id": "1", "name": "Ann"})),
    ] {
        let answers = api
            .at_once(MANY, |_| api.post(path, &tenant.token, body.clone()))
            .await;
        let ids = answers.iter().map(|answer| {
            let id = answer.with(200)["contact"]["id"].take();
            id.as_str().expect("an id").to_owned()
        });
        assert_eq!(ids.collect::<HashSet<_>>().len(), 1, "{path} {body}");
    }

    let kept = api
        .rows("SELECT CAST(COUNT(*) AS TEXT) FROM contacts")
        .await;
    assert_eq!(kept, ["3"]);
}

async fn an_idempotency_key_has_one_effect(api: &TestApi) {
    const EVENTS: &str = "/handoff-analytics/events";
    let tenant = api.tenant("Acme").await;
    let report = json!({"session_id": "s"});
    let answers = api
        .at_once(MANY, |_| ask(api, EVENTS, &tenant.token, "k", &report))
        .await;
    assert_eq!(count(&answers, 201), MANY);
    assert!(answers.iter().all(|answer| answer.text == answers[0].text));

    let made = answers.iter().filter(|answer| !is_replay(answer)).count();
    assert_eq!(made, 1);
    let page = api.get(EVENTS, &tenant.token).await;
    assert_eq!(page.with(200)["total"], 1);
}

/// Of many concurrent changes to one version of an object, one succeeds.
async fn a_version_is_replaced_once(api: &TestApi) {
    let tenant = api.tenant("Acme").await;
    let agent = api.agent(tenant.org, "Reception").await;
    let destination = json!({"name": "Desk", "type": "phone", "value": "+442071838751"});
    let destinations = "/phone/sip/transfer-destinations";
    let destination = api.post(destinations, &tenant.token, destination).await;
    let destination = id_of(&destination.with(201));

    let hook = json!({"url": "https://hooks.example.com/x"});
    let hook = id_of(&api.post("/webhooks", &tenant.token, hook).await.with(201));

    let (trunk, trunks) = ("/phone/sip/inbound-trunk", "/phone/sip/outbound-trunks");
    api.number(tenant.org, "+442071838750").await;
    api.post(trunk, &tenant.token, json!({})).await.with(201);
    let carrier = json!({"name": "Carrier", "host": "192.0.2.1", "caller_number": "+442071838750"});
    let carrier = api.post(trunks, &tenant.token, carrier).await.with(201);

    let reseller = api.reseller("Reseller").await;
    let org = crate::pages::org_of(api, &reseller, "Bakery").await;

    for (path, field, key) in [
        (format!("/phone/{agent}"), "name", &tenant.token),
        (
            format!("{destinations}/{destination}"),
            "name",
            &tenant.token,
        ),
        (format!("/webhooks/{hook}"), "description", &tenant.token),
        (trunk.to_owned(), "name", &tenant.token),
        (
            format!("{trunks}/{}", id_of(&carrier)),
            "name",
            &tenant.token,
        ),
        (format!("/partner/v1/orgs/{org}"), "name", &reseller.key),
    ] {
        let shown = api.get(&path, key).await;
        let version = shown.header("ETag").expect("a version").to_owned();
        let updated_at = shown.with(200)["updated_at"].clone();
        let (changed_at, _) = version.trim_matches('"').split_once('+').expect("a sum");
        assert_eq!(json!(changed_at), updated_at, "{path}");

        let change = |version: String, value: String| {
            let request = Request::patch(&path)
                .header("Authorization", format!("Bearer {key}"))
                .header("Content-Type", "application/json")
                .header("If-Match", version);
            let body = json!({field: value}).to_string();
            api.send(request.body(Body::from(body)))
        };

        let answers = api
            .at_once(MANY, |turn| change(version.clone(), format!("Turn {turn}")))
            .await;
        assert_eq!(
            (count(&answers, 200), count(&answers, 412)),
            (1, MANY - 1),
            "{path}"
        );

        // The frozen clock hasn't moved, but the version has changed.
        let winner = answers.iter().find(|answer| answer.status == 200);
        let winner = winner.expect("one");
        let kept = api.get(&path, key).await;
        assert_eq!(kept.with(200)[field], winner.with(200)[field], "{path}");
        assert_eq!(kept.header("ETag"), winner.header("ETag"), "{path}");
        assert_ne!(kept.header("ETag"), Some(&*version), "{path}");

        let loser = answers.iter().find(|answer| answer.status == 412);
        let loser = loser.expect("many").with(412);
        assert_eq!(loser["code"], "outdated", "{loser}");

        change("*".to_owned(), "Any".to_owned()).await.with(200);
        change("Turn".to_owned(), "None".to_owned()).await.with(400);
    }
}

/// A credential is judged before the content of `If-Match`, as before that of a body.
#[tokio::test]
async fn a_malformed_version_is_refused_after_the_credential() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let agent = api.agent(tenant.org, "Agent").await;
    let destination = json!({"name": "Desk", "type": "phone", "value": "+442071838751"});
    let destinations = "/phone/sip/transfer-destinations";
    let made = api.post(destinations, &tenant.token, destination).await;
    let destination = format!("{destinations}/{}", id_of(&made.with(201)));

    let (ours, other) = (api.reseller("Ours").await, api.reseller("Other").await);
    let org = crate::pages::org_of(&api, &ours, "Bakery").await;
    let org = format!("/partner/v1/orgs/{org}");

    for (path, key, status) in [
        (format!("/phone/{agent}"), &tenant.token, 400),
        (format!("/phone/{agent}"), &reader, 403),
        (destination.clone(), &tenant.token, 400),
        (destination, &reader, 403),
        ("/webhooks/none".to_owned(), &reader, 403),
        ("/webhooks/none".to_owned(), &tenant.token, 404),
        ("/phone/sip/inbound-trunk".to_owned(), &reader, 403),
        ("/phone/sip/outbound-trunks/none".to_owned(), &reader, 403),
        (org.clone(), &ours.key, 400),
        (org, &other.key, 403),
    ] {
        let request = Request::patch(&path)
            .header("Authorization", format!("Bearer {key}"))
            .header("Content-Type", "application/json")
            .header("If-Match", "x");
        let answer = api.send(request.body(Body::from("{}"))).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
    }
}

/// Returns the version that a form carries, escaped for the body of its request.
fn version_in(page: &str) -> String {
    let (_, rest) = page
        .split_once("name=\"version\" value=\"")
        .expect("a version");
    let version = rest.split('"').next().expect("a value");
    version.replace(':', "%3A")
}

/// Of many forms that were loaded before one was saved, one succeeds; the others show both values.
async fn a_form_is_saved_once_for_a_version(api: &TestApi) {
    let (org, cookie, page) = crate::dashboard::session(api).await;
    let agent = api.agent(org, "Reception").await;
    let page = format!("{page}/agents/{agent}");
    let shown = visit(api, &page, &cookie).await;
    let proof = form_token(&shown);
    let version = version_in(&shown.text);

    let answers = api
        .at_once(20, async |turn| {
            let fields = format!(
                "form_token={proof}&version={version}&name=Turn+{turn}&enabled=on&type=inbound&language=en"
            );
            submit(api, &page, &cookie, &fields).await
        })
        .await;
    assert_eq!((count(&answers, 303), count(&answers, 409)), (1, 19));

    for answer in answers.iter().filter(|answer| answer.status == 409) {
        assert!(answer.text.contains("id=\"conflict\""), "{}", answer.text);
    }
}

/// Of many forms of the operator for one org or partner, loaded before one was saved, one succeeds.
async fn an_operators_form_is_saved_once_for_a_version(api: &TestApi) {
    let reseller = api.reseller("Reseller").await;
    let org = org_of(api, &reseller, "Acme").await;
    let cookie = crate::test_org::operators_cookie(api).await;

    for (at, action, fields) in [
        (format!("orgs/{org}"), "", "language=en&name=Turn"),
        (format!("orgs/{org}"), "/retention", "calls_days="),
        (
            format!("partners/{}", reseller.id),
            "",
            "active=on&name=Turn",
        ),
    ] {
        let page = format!("/operator-console/{at}");
        let shown = visit(api, &page, &cookie).await;
        let proof = form_token(&shown);
        let version = version_in(&shown.text);

        let answers = api
            .at_once(20, async |turn| {
                let turn = turn + 1;
                let fields = format!("form_token={proof}&version={version}&{fields}{turn}");
                submit(api, &format!("{page}{action}"), &cookie, &fields).await
            })
            .await;
        assert_eq!(
            (count(&answers, 303), count(&answers, 409)),
            (1, 19),
            "{at}{action}"
        );
    }
}

/// Administrators all remove or demote each other at once: one is left.
async fn an_org_keeps_an_administrator(api: &TestApi) {
    const EACH: usize = 6;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(api, &reseller, "Acme").await;
    let roles = format!("/partner/v1/orgs/{org}/roles");
    let roles = api.get(&roles, &reseller.key).await.with(200);
    let role = |name: &str| {
        let roles = roles["items"].as_array().expect("roles").iter();
        let mut named = roles.filter(|role| role["name"] == name);
        id_of(named.next().expect("a role"))
    };

    let mut sessions = Vec::new();
    for turn in 0..EACH {
        let path = format!("/partner/v1/orgs/{org}/login-links");
        let body =
            json!({"email": format!("admin{turn}@example.org"), "role_ids": [role("admin")]});
        let made = api.post(&path, &reseller.key, body).await.with(201);
        let url = made["url"].as_str().expect("a link").to_owned();
        let link = url.strip_prefix("https://dashboard.example").expect("ours");
        sessions.push(log_in(api, link).await);
    }

    let members = format!("/dashboard/{org}/members");
    let page = visit(api, &members, &sessions[0]).await.text;
    let (_, page) = page.split_once("id=\"members\"").expect("the list");
    // The id of a member is in the path of the form that changes its role.
    let member_id = |turn: usize| {
        let (_, after) = page
            .split_once(&format!("admin{turn}@example.org"))
            .expect("a member");
        let (before, _) = after.split_once("/role").expect("a form");
        before.rsplit_once('/').expect("a path").1.to_owned()
    };
    let ids: Vec<_> = (0..EACH).map(member_id).collect();

    let (member, ids, sessions, members) = (role("member"), &ids, &sessions, &members);
    // All form tokens are read first: a removed administrator is logged out.
    let mut proofs = Vec::new();
    for cookie in sessions {
        proofs.push(form_token(&visit(api, members, cookie).await));
    }

    let proofs = &proofs;
    let answers = api
        .at_once(EACH, async |turn| {
            let (cookie, next) = (&sessions[turn], &ids[(turn + 1) % EACH]);
            let proof = &proofs[turn];
            let (path, fields) = match turn % 2 {
                0 => (
                    format!("{members}/{next}/remove"),
                    format!("form_token={proof}"),
                ),
                _ => (
                    format!("{members}/{next}/role"),
                    format!("form_token={proof}&role={member}"),
                ),
            };
            submit(api, &path, cookie, &fields).await
        })
        .await;
    assert!(count(&answers, 303) >= 1);

    let kept = api.members(org).await;
    let administrators: Vec<_> = kept.iter().filter(|(_, _, role)| role == "admin").collect();
    assert!(!administrators.is_empty(), "{kept:?}");

    // The last administrator can neither be removed nor demoted.
    let last = (0..EACH).find(|turn| administrators[0].0.starts_with(&format!("admin{turn}@")));
    let last = last.expect("one of them");
    for (id, turn) in ids.iter().zip(0..EACH).filter(|(_, turn)| *turn != last) {
        let proof = form_token(&visit(api, members, &sessions[last]).await);
        let path = format!("{members}/{id}/remove");
        let fields = format!("form_token={proof}");
        let removed = submit(api, &path, &sessions[last], &fields).await;
        assert!(
            [303, 404].contains(&removed.status),
            "{turn}: {}",
            removed.text
        );
    }

    let proof = form_token(&visit(api, members, &sessions[last]).await);
    for (at, fields) in [
        ("remove", format!("form_token={proof}")),
        ("role", format!("form_token={proof}&role={member}")),
    ] {
        let path = format!("{members}/{}/{at}", ids[last]);
        let refused = submit(api, &path, &sessions[last], &fields).await;
        assert_eq!(refused.status, 409, "{at}: {}", refused.text);
        let text = refused.text.replace("&#39;", "'");
        let sentence = "The org's last administrator is admin";
        assert!(text.contains(sentence), "{at}: {}", refused.text);
    }
}

/// Records ten thousand handoffs one second apart, the last of them a second ago.
async fn ten_thousand(api: &TestApi, org: Uuid) {
    // They begin ten thousand and one seconds before the clock of the tests.
    const HANDOFFS: &str = "INSERT INTO handoffs (id, org_id, session_id, summary, reasons, position, created_at)
        WITH RECURSIVE turns (turn) AS (SELECT 1 UNION ALL SELECT turn + 1 FROM turns WHERE turn < 10000)
        SELECT gen_random_uuid(), $1, 'old ' || turn, '', '[\"ai_implied_handoff\"]', turn,
            (1769860800 - 10001 + CAST(turn AS BIGINT)) * 1000000 FROM turns";
    const ON_SQLITE: &str = "INSERT INTO handoffs (id, org_id, session_id, summary, reasons, position, created_at)
        WITH RECURSIVE turns (turn) AS (SELECT 1 UNION ALL SELECT turn + 1 FROM turns WHERE turn < 10000)
        SELECT randomblob(16), $1, 'old ' || turn, '', '[\"ai_implied_handoff\"]', turn,
            (1769860800 - 10001 + turn) * 1000000 FROM turns";
    let sql = if api.db.is_postgres() {
        HANDOFFS
    } else {
        ON_SQLITE
    };
    let made = api.db.beside().await.execute(sql, Some(org)).await;
    assert_eq!(made, 10_000);
}

async fn a_walk_meets_each_of_ten_thousand_once_while_a_thousand_arrive(api: &TestApi) {
    const EVENTS: &str = "/handoff-analytics/events";
    let tenant = api.tenant("Acme").await;
    ten_thousand(api, tenant.org).await;
    let mut seen = HashSet::new();
    let mut old = 0;
    let mut next = Some(format!("{EVENTS}?limit=100"));

    while let Some(path) = next {
        let arrive = api.at_once(10, |turn| {
            let new = json!({"session_id": format!("new {turn} after {old}")});
            api.post(EVENTS, &tenant.token, new)
        });
        let (page, arrived) = tokio::join!(api.get(&path, &tenant.token), arrive);
        assert_eq!(count(&arrived, 201), 10);
        pass(1);

        let page = page.with(200);
        for item in page["items"].as_array().expect("items") {
            let session = item["session_id"].as_str().expect("a session");
            old += usize::from(session.starts_with("old "));
            assert!(seen.insert(session.to_owned()), "{session} comes twice");
        }

        let cursor = page["next"].as_str();
        next = cursor.map(|cursor| format!("{EVENTS}?limit=100&cursor={cursor}"));
    }

    assert_eq!(old, 10_000, "of {} seen", seen.len());

    let page: Value = api.get(EVENTS, &tenant.token).await.with(200);
    let total = page["total"].as_u64().expect("a number");
    assert!(total >= 11_000, "{total}");
}

/// Runs each story on both databases.
macro_rules! on_both {
    ($($story:ident),* $(,)?) => {
        mod sqlite {
            use super::{TestDb, TestApi};

            $(#[tokio::test]
            async fn $story() {
                super::$story(&TestApi::built("", TestDb::sqlite()).await).await;
            })*
        }
        mod postgres {
            use super::{TestDb, TestApi};

            $(#[tokio::test]
            async fn $story() {
                if let Some(db) = TestDb::postgres().await {
                    super::$story(&TestApi::built("", db).await).await;
                }
            })*
        }
    };
}

on_both!(
    a_login_link_opens_one_session,
    an_external_id_is_one_orgs,
    an_agent_has_every_number_that_is_added_at_once,
    a_visitor_is_one_contact,
    an_idempotency_key_has_one_effect,
    a_version_is_replaced_once,
    a_form_is_saved_once_for_a_version,
    an_operators_form_is_saved_once_for_a_version,
    an_org_keeps_an_administrator,
    a_walk_meets_each_of_ten_thousand_once_while_a_thousand_arrive,
);
