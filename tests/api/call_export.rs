//! `GET /phone/calls` as CSV and as JSON lines.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::Request;
use serde_json::Value;
use trunkline_model::record::{Fact, Started, Status};
use uuid::Uuid;

use crate::calls::{TRUNK, ended, started, two_calls};
use crate::test_api::{Answer, TestApi};

const JSON_LINES: &str = "application/x-ndjson";

/// Requests the path in this media type.
pub(crate) async fn accepting(api: &TestApi, path: &str, token: &str, form: &str) -> Answer {
    let request = Request::get(path)
        .header("authorization", format!("Bearer {token}"))
        .header("accept", form);
    api.send(request.body(Body::empty())).await
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("content-type"), Some(JSON_LINES));
    let lines = answer.text.lines();
    lines
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn ids(lines: &[Value]) -> Vec<Uuid> {
    let ids = lines.iter().map(|line| line["id"].as_str().expect("an id"));
    ids.map(|id| id.parse().expect("an id")).collect()
}

#[tokio::test]
async fn a_reader_that_is_cut_off_goes_on_after_its_last_line() {
    const CALLS: u128 = 450;
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let facts: Vec<Fact> = (1..=CALLS)
        .flat_map(|call| {
            let status = [Status::Completed, Status::Busy][usize::from(call % 5 == 0)];
            [
                started(&tenant, call, 100),
                ended(&tenant, call, 300, status),
            ]
        })
        .collect();
    api.project(&facts).await;
    api.project(&[started(&tenant, 900, 400)]).await;

    let path = "/phone/calls";
    let all = lines(&accepting(&api, path, &tenant.token, JSON_LINES).await);
    let ended_calls: BTreeSet<Uuid> = (1..=CALLS).map(Uuid::from_u128).collect();
    assert_eq!(all.len(), CALLS as usize, "calls that are up aren't listed");
    assert_eq!(ids(&all).into_iter().collect::<BTreeSet<_>>(), ended_calls);

    let one = api
        .get(
            &format!("{path}/{}", all[0]["id"].as_str().expect("an id")),
            &tenant.token,
        )
        .await
        .with(200);
    for (name, value) in one.as_object().expect("a call") {
        assert_eq!(&all[0][name], value, "{name}");
    }

    let cursor = all[299]["cursor"].as_str().expect("a cursor");
    let rest = format!("{path}?cursor={cursor}");
    let rest = lines(&accepting(&api, &rest, &tenant.token, JSON_LINES).await);
    assert_eq!(ids(&rest), ids(&all[300..]));
    let some = format!("{path}?limit=7&cursor={cursor}");
    let some = lines(&accepting(&api, &some, &tenant.token, JSON_LINES).await);
    assert_eq!(ids(&some), ids(&all[300..307]));

    // This call began before all others and is projected last.
    let last = all[CALLS as usize - 1]["cursor"]
        .as_str()
        .expect("a cursor");
    let onward = format!("{path}?cursor={last}");
    assert!(lines(&accepting(&api, &onward, &tenant.token, JSON_LINES).await).is_empty());

    api.project(&[
        started(&tenant, 901, 1),
        ended(&tenant, 901, 2, Status::Completed),
    ])
    .await;
    let late = lines(&accepting(&api, &onward, &tenant.token, JSON_LINES).await);
    assert_eq!(ids(&late), [Uuid::from_u128(901)]);
}

#[tokio::test]
async fn a_cursor_of_an_export_carries_its_filters() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    two_calls(&api, &tenant).await;
    let path = "/phone/calls?status=completed";
    let found = lines(&accepting(&api, path, &tenant.token, JSON_LINES).await);
    assert_eq!(ids(&found), [Uuid::from_u128(1)]);

    let cursor = found[0]["cursor"].as_str().expect("a cursor");
    for query in ["", "&status=completed"] {
        let path = format!("/phone/calls?cursor={cursor}{query}");
        assert!(lines(&accepting(&api, &path, &tenant.token, JSON_LINES).await).is_empty());
    }

    for (path, form) in [
        (
            format!("/phone/calls?cursor={cursor}&status=refused"),
            JSON_LINES,
        ),
        (format!("/phone/calls?cursor={cursor}"), "application/json"),
        ("/phone/calls?cursor=x".to_owned(), "text/csv"),
        ("/phone/calls?colour=red".to_owned(), "text/csv"),
        ("/phone/calls?limit=0".to_owned(), "text/csv"),
    ] {
        let refused = accepting(&api, &path, &tenant.token, form).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
    }

    let other = api.tenant("Other").await;
    let path = format!("/phone/calls?cursor={cursor}");
    assert!(lines(&accepting(&api, &path, &other.token, JSON_LINES).await).is_empty());

    let (_, token) = api.key(tenant.org, &["phone:read"]).await;
    let refused = accepting(&api, "/phone/calls", &token, "text/csv").await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn calls_are_lines_of_csv() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let Fact::Started(call) = started(&tenant, 1, 100) else {
        panic!("a call begins with its start");
    };
    let call = Started {
        from: "=HYPERLINK(\"x\",1)".into(),
        from_e164: None,
        ..std::sync::Arc::unwrap_or_clone(call)
    };
    let end = ended(&tenant, 1, 300, Status::Completed);
    api.project(&[Fact::Started(call.into()), end]).await;

    let answer = accepting(&api, "/phone/calls", &tenant.token, "text/csv").await;
    assert_eq!(
        answer.header("content-type"),
        Some("text/csv; charset=utf-8")
    );

    let (names, line) = answer.text.split_once("\r\n").expect("a header");
    assert!(
        names.starts_with("id,session_id,agent_id,trunk_id,"),
        "{names}"
    );

    const LAST: &str = ",metadata,media_received_mos,media_sent_mos,media_round_trip_ms,media_first_word_ms,media_underruns,cursor";
    assert!(names.ends_with(LAST), "{names}");
    assert!(line.ends_with("\r\n"), "{line}");

    let begin = format!("{},", Uuid::from_u128(1));
    assert!(line.starts_with(&begin), "{line}");
    assert!(line.contains(&format!(",{TRUNK},")), "{line}");
    assert!(
        line.contains(",\"'=HYPERLINK(\"\"x\"\",1)\",02071838750,,+442071838750,"),
        "{line}"
    );
    assert!(
        line.contains(",200,0,200,,,caller,"),
        "lengths and the end: {line}"
    );
}
