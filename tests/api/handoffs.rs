//! `/handoff-analytics/events`.

use std::collections::HashSet;

use serde_json::{Value, json};
use trunkline_model::handoff::Report;
use trunkline_model::record::Fact;
use trunkline_model::settings::TransferTarget;
use trunkline_model::transfer::{State as TransferState, Transfer, TransferMethod};
use trunkline_sip::moment::Moment;
use trunkline_store::{NewHandoff, Reason, handoffs};
use uuid::Uuid;

use crate::test_api::{Tenant, TestApi, all_lack, done, pass, until_taken, walk};

const EVENTS: &str = "/handoff-analytics/events";

fn handoff(session: &str, reasons: &[Reason]) -> NewHandoff {
    NewHandoff {
        session_id: session.to_owned(),
        contact_id: None,
        summary: String::new(),
        explanation: None,
        reasons: reasons.to_vec(),
        sentiment: None,
    }
}

/// Records handoffs of these sessions, a second apart.
async fn record(api: &TestApi, tenant: &Tenant, sessions: &[&str], reasons: &[Reason]) {
    for session in sessions {
        let (org, new) = (tenant.org, handoff(session, reasons));
        done(&api.store, move |tx, now| {
            handoffs::record(tx, org, new, now)
        })
        .await;
        pass(1);
    }
}

fn sessions(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().expect("items");
    items
        .iter()
        .map(|item| item["session_id"].as_str().expect("a session"))
        .collect()
}

#[tokio::test]
async fn a_handoff_that_is_reported_is_listed() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let reported = json!({
        "session_id": "s-1",
        "summary": "Wants a refund.\nWas told no.",
        "explanation": "The refund policy says to",
        "reasons": ["based_on_instructions", "user_requested_human_assistance", "based_on_instructions"],
        "sentiment": "angry",
    });
    let made = api.post(EVENTS, &tenant.token, reported).await.with(201);
    insta::assert_json_snapshot!("a_handoff_with_everything", made);
    pass(1);

    let least = api
        .post(
            EVENTS,
            &tenant.token,
            json!({"session_id": "s-2", "reasons": []}),
        )
        .await;
    insta::assert_json_snapshot!("a_handoff_with_its_defaults", least.with(201));

    let page = api.get(EVENTS, &tenant.token).await.with(200);
    assert_eq!(
        page,
        json!({"items": [least.json(), made], "next": null, "total": 2})
    );
}

#[tokio::test]
async fn every_fault_of_a_report_is_named() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let wrong = json!({
        "session_id": "", "summary": 1, "explanation": [], "reasons": ["bored", 7], "sentiment": "sad", "created_at": "now",
    });
    insta::assert_json_snapshot!(api.post(EVENTS, &tenant.token, wrong).await.with(400));
    let nothing = api
        .post(EVENTS, &tenant.token, json!({"reasons": null}))
        .await;
    assert_eq!(nothing.with(400)["message"], "session_id: is required");
    assert_eq!(api.get(EVENTS, &tenant.token).await.with(200)["total"], 0);
}

#[tokio::test]
async fn a_reason_narrows_the_list() {
    use Reason::{InsufficientTools, ProhibitedTopic};
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    record(&api, &tenant, &["a", "b"], &[InsufficientTools]).await;
    record(&api, &tenant, &["c"], &[ProhibitedTopic, InsufficientTools]).await;
    record(&api, &tenant, &["d"], &[]).await;

    for (query, expected) in [
        ("", vec!["d", "c", "b", "a"]),
        ("?reason=insufficient_tools", vec!["c", "b", "a"]),
        ("?reason=prohibited_topic", vec!["c"]),
        ("?reason=ai_implied_handoff", vec!["d"]),
        ("?reason=instructions_not_clear", vec![]),
    ] {
        let page = api
            .get(&format!("{EVENTS}{query}"), &tenant.token)
            .await
            .with(200);
        assert_eq!(sessions(&page), expected, "{query}");
        assert_eq!(page["total"], expected.len(), "{query}");
    }

    let walked = walk_of(&api, &tenant, "reason=insufficient_tools&limit=1").await;
    assert_eq!(walked, ["c", "b", "a"]);
}

/// Returns the sessions of all pages.
async fn walk_of(api: &TestApi, tenant: &Tenant, query: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut path = format!("{EVENTS}?{query}");
    loop {
        let page = api.get(&path, &tenant.token).await.with(200);
        found.extend(sessions(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else {
            return found;
        };
        path = format!("{EVENTS}?{query}&cursor={next}");
    }
}

#[tokio::test]
async fn dates_are_inclusive_and_dates_alone_are_whole_days() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;

    // 12:00:00, and 12:00:01 of 31 January; then 12:00:02 of 1 February.
    record(&api, &tenant, &["a", "b"], &[]).await;
    pass(24 * 3600);
    record(&api, &tenant, &["c"], &[]).await;

    for (query, expected) in [
        ("start_date=2026-01-31", vec!["c", "b", "a"]),
        ("start_date=2026-02-01", vec!["c"]),
        ("start_date=2026-01-31&end_date=2026-01-31", vec!["b", "a"]),
        ("end_date=2026-01-31", vec!["b", "a"]),
        ("end_date=2026-01-30", vec![]),
        (
            "start_date=2026-01-31T12:00:01Z&end_date=2026-02-01T12:00:02Z",
            vec!["c", "b"],
        ),
        (
            "start_date=2026-01-31T12:00:00.000Z&end_date=2026-01-31T12:00:00.000Z",
            vec!["a"],
        ),
        (
            "start_date=2026-01-31T14:00:01%2B02:00&end_date=2026-01-31",
            vec!["b"],
        ),
    ] {
        let page = api
            .get(&format!("{EVENTS}?{query}"), &tenant.token)
            .await
            .with(200);
        assert_eq!(sessions(&page), expected, "{query}");
        assert_eq!(page["total"], expected.len(), "{query}");
    }
}

#[tokio::test]
async fn a_list_without_dates_covers_thirty_days() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    record(&api, &tenant, &["old"], &[]).await;
    pass(30 * 24 * 3600 - 1);
    let page = api.get(EVENTS, &tenant.token).await.with(200);
    assert_eq!(sessions(&page), ["old"]);

    pass(1);
    let page = api.get(EVENTS, &tenant.token).await.with(200);
    assert_eq!(sessions(&page), Vec::<&str>::new());
    let page = api
        .get(&format!("{EVENTS}?start_date=2026-01-01"), &tenant.token)
        .await
        .with(200);
    assert_eq!(sessions(&page), ["old"]);
}

#[tokio::test]
async fn a_wrong_query_is_400_with_every_fault() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let between = "start_date: lies after end_date (defaults: 30 days ago, and now)";
    for (query, message) in [
        ("limit=0", "limit: expected a number from 1 to 100"),
        ("limit=101", "limit: expected a number from 1 to 100"),
        ("start_date=2026-02-01&end_date=2026-01-31", between),
        ("end_date=2025-12-31", between),
        ("start_date=2027-01-01", between),
        (
            "cursor=x&colour=red",
            "cursor: is no cursor of this list; colour: is no parameter of this endpoint",
        ),
        (
            "end_date=soon",
            "end_date: \"soon\" is not an ISO 8601 date or time",
        ),
    ] {
        let refused = api.get(&format!("{EVENTS}?{query}"), &tenant.token).await;
        assert_eq!(refused.with(400)["message"], message, "{query}");
    }

    insta::assert_json_snapshot!(
        api.get(&format!("{EVENTS}?reason=bored"), &tenant.token)
            .await
            .with(400)
    );
}

#[tokio::test]
async fn a_walk_meets_every_handoff_once_while_new_ones_come_and_old_ones_age() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let names: Vec<String> = (0..25).map(|at| at.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    record(&api, &tenant, &names, &[]).await;
    let (mut seen, mut path) = (Vec::new(), format!("{EVENTS}?limit=4"));

    loop {
        let page = api.get(&path, &tenant.token).await.with(200);
        assert_eq!(page["total"], 25);
        seen.extend(sessions(&page).into_iter().map(str::to_owned));
        pass(1);
        record(&api, &tenant, &["new", "newer"], &[]).await;
        // Long enough for all of them to leave the usual window.
        pass(10 * 24 * 3600);
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("{EVENTS}?limit=4&cursor={next}");
    }

    let expected: Vec<_> = names.iter().rev().collect();
    assert_eq!(seen.iter().collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_cursor_is_good_for_its_filters_and_its_list() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    record(&api, &tenant, &["a", "b", "c"], &[Reason::ProhibitedTopic]).await;
    let first = api
        .get(
            &format!("{EVENTS}?limit=1&reason=prohibited_topic"),
            &tenant.token,
        )
        .await
        .with(200);
    let next = first["next"].as_str().expect("a cursor");

    for (query, expected) in [
        ("", Some("b")),
        ("&reason=prohibited_topic", Some("b")),
        ("&reason=insufficient_tools", None),
        ("&end_date=2026-01-31", None),
    ] {
        let page = api
            .get(
                &format!("{EVENTS}?limit=1&cursor={next}{query}"),
                &tenant.token,
            )
            .await;
        match expected {
            Some(session) => assert_eq!(sessions(&page.with(200)), [session], "{query}"),
            None => assert_eq!(
                page.with(400)["message"],
                "cursor: was made under other filters; give the same ones, or none",
                "{query}"
            ),
        }
    }

    let elsewhere = api
        .get(&format!("/phone/numbers?cursor={next}"), &tenant.token)
        .await;
    assert_eq!(
        elsewhere.with(400)["message"],
        "cursor: is no cursor of this list"
    );
}

#[tokio::test]
async fn many_at_one_moment_are_all_listed() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let report = async |at: usize| {
        let body = json!({"session_id": at.to_string()});
        until_taken(async || api.post(EVENTS, &tenant.token, body.clone()).await).await
    };
    let made = api.at_once(60, report).await;
    for answer in &made {
        assert_eq!(answer.status, 201, "{}", answer.text);
    }

    pass(1);
    let listed = walk(&api, EVENTS, &tenant.token, 7, "session_id").await;
    let listed: HashSet<_> = listed
        .iter()
        .map(|session| session.as_str().expect("a session").to_owned())
        .collect();
    assert_eq!(listed, (0..60).map(|at| at.to_string()).collect());
}

#[tokio::test]
async fn tenants_see_their_own() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    record(&api, &acme, &["ours"], &[]).await;
    let none = json!({"items": [], "next": null, "total": 0});
    assert_eq!(api.get(EVENTS, &other.token).await.with(200), none);
    assert_eq!(api.get(EVENTS, &acme.token).await.with(200)["total"], 1);
}

#[tokio::test]
async fn reading_and_reporting_need_their_scopes() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reader) = api.key(tenant.org, &["handoff:read"]).await;
    let (_, writer) = api.key(tenant.org, &["handoff:write"]).await;
    all_lack(
        &[api.post(EVENTS, &reader, json!([])).await],
        "handoff:write",
    );
    all_lack(
        &[api.get(&format!("{EVENTS}?x=1"), &writer).await],
        "handoff:read",
    );
}

/// A transfer of the call with this number, whose caller has been handed over.
fn handed_over(tenant: &Tenant, call: u128, state: TransferState, at: Moment) -> Fact {
    Fact::Transfer(
        Transfer {
            id: Uuid::from_u128(call * 100),
            call: Uuid::from_u128(call),
            org: tenant.org,
            session: Uuid::from_u128(call * 1000),
            destination: None,
            name: "human".into(),
            target: TransferTarget::Sip("sip:desk@pbx.example".into()),
            way: TransferMethod::Refer,
            state,
            sip_code: None,
            answer_confirmed: (state == TransferState::Completed).then_some(call % 2 == 1),
            caller_may_be_gone: false,
            report: Report::default(),
            requested_at: at,
            accepted_at: Some(at),
            ringing_at: None,
            ended_at: Some(at),
            handed_over: true,
            counted_at: None,
            kept_by: None,
            step: 3,
        }
        .into(),
    )
}

#[tokio::test]
async fn a_handoff_says_whether_its_destination_answered() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let other = api.tenant("Other").await;
    record(&api, &tenant, &["reported"], &[Reason::ProhibitedTopic]).await;
    let now = crate::test_api::now();
    api.project(&[
        handed_over(&tenant, 1, TransferState::Completed, now),
        handed_over(&tenant, 2, TransferState::Completed, now),
        handed_over(&tenant, 3, TransferState::Unknown, now),
    ])
    .await;
    pass(1);

    let session = |call: u128| Uuid::from_u128(call * 1000).to_string();
    for (call, state, confirmed) in [
        (1, "completed", true),
        (2, "completed", false),
        (3, "unknown", false),
    ] {
        let path = format!("{EVENTS}/by-session/{}", session(call));
        let page = api.get(&path, &tenant.token).await.with(200);
        let items = page["items"].as_array().expect("items");
        assert_eq!(items.len(), 1, "{page}");
        let item = &items[0];
        assert_eq!(item["id"], json!(Uuid::from_u128(call * 100)), "{page}");
        assert_eq!(item["transfer_status"], state, "{page}");
        assert_eq!(item["confirmed"], confirmed, "{page}");
        assert_eq!(item["reasons"], json!(["ai_implied_handoff"]), "{page}");

        api.get(&path, &other.token).await.with(404);
    }
    let reported = api
        .get(&format!("{EVENTS}/by-session/reported"), &tenant.token)
        .await
        .with(200);
    let item = &reported["items"][0];
    assert_eq!(item["confirmed"], true, "{reported}");
    assert_eq!(item["transfer_status"], Value::Null, "{reported}");

    let none = format!("{EVENTS}/by-session/{}", session(9));
    api.get(&none, &tenant.token).await.with(404);
    api.project(&[crate::calls::started(&tenant, 9, 100)]).await;
    let session_of_9 = api.get("/phone/calls", &tenant.token).await.with(200);
    let session_of_9 = session_of_9["items"][0]["session_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let empty = api
        .get(
            &format!("{EVENTS}/by-session/{session_of_9}"),
            &tenant.token,
        )
        .await
        .with(200);
    assert_eq!(empty, json!({"items": []}));

    // Its cursor and its total belong to the filter.
    for (filter, sessions_of) in [
        ("confirmed=true", vec![session(1), "reported".to_owned()]),
        ("confirmed=false", vec![session(3), session(2)]),
        (
            "confirmed=true&reason=prohibited_topic",
            vec!["reported".to_owned()],
        ),
        ("confirmed=false&reason=prohibited_topic", vec![]),
    ] {
        let mut seen = Vec::new();
        let mut cursor = String::new();
        loop {
            let path = format!("{EVENTS}?limit=1&{filter}{cursor}");
            let page = api.get(&path, &tenant.token).await.with(200);
            assert_eq!(page["total"], sessions_of.len(), "{filter}: {page}");
            seen.extend(sessions(&page).into_iter().map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        seen.sort();
        let mut expected = sessions_of.clone();
        expected.sort();
        assert_eq!(seen, expected, "{filter}");
    }

    let page = api
        .get(&format!("{EVENTS}?limit=1&confirmed=true"), &tenant.token)
        .await
        .with(200);
    let next = page["next"].as_str().expect("another page");
    let other_filter = format!("{EVENTS}?confirmed=false&cursor={next}");
    api.get(&other_filter, &tenant.token).await.with(400);
    api.get(&format!("{EVENTS}?confirmed=maybe"), &tenant.token)
        .await
        .with(400);
}
