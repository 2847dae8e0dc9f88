//! Many at once, and lists that grow while they are read, on SQLite and on PostgreSQL.

use std::collections::HashSet;

use serde_json::{Value, json};
use uuid::Uuid;

use crate::idempotency::{ask, is_replay};
use crate::pages::{link, org_of, visit};
use crate::test_api::{Answer, NOW, TestApi, pass};
use crate::test_db::{TestDb, beside};

/// Number of requests at once.
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

    // Five are taken away while the others are added once more.
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

/// Ten thousand handoffs a second apart, the last of them a second ago.
async fn ten_thousand(api: &TestApi, org: Uuid) {
    const HANDOFFS: &str = "INSERT INTO handoffs (id, org_id, session_id, summary, reasons, position, created_at)
        WITH RECURSIVE turns (turn) AS (SELECT 1 UNION ALL SELECT turn + 1 FROM turns WHERE turn < 10000)
        SELECT gen_random_uuid(), $1, 'old ' || turn, '', '[\"ai_implied_handoff\"]', turn, $2 + turn * CAST(1000000 AS BIGINT) FROM turns";
    const ON_SQLITE: &str = "INSERT INTO handoffs (id, org_id, session_id, summary, reasons, position, created_at)
        WITH RECURSIVE turns (turn) AS (SELECT 1 UNION ALL SELECT turn + 1 FROM turns WHERE turn < 10000)
        SELECT randomblob(16), $1, 'old ' || turn, '', '[\"ai_implied_handoff\"]', turn, $2 + turn * CAST(1000000 AS BIGINT) FROM turns";
    let sql = if api.db.is_postgres() {
        HANDOFFS
    } else {
        ON_SQLITE
    };
    let before = i64::try_from(NOW.as_micros()).expect("a time") - 10_001 * 1_000_000;
    let mut connection = api.db.beside().await;
    let made = beside!(connection, to => sqlx::query(sql).bind(org).bind(before).execute(to).await.map(|done| done.rows_affected()));
    assert_eq!(made.expect("inserted"), 10_000);
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

/// Tells each story to both databases.
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
    a_walk_meets_each_of_ten_thousand_once_while_a_thousand_arrive,
);
