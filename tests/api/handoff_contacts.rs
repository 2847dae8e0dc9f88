//! The contact of a handoff: named by its report, a filter of the list, part of the contact's export, and erased with it. Handoffs that are deleted.

use serde_json::{Value, json};
use trunkline_store::{RowsErased, erasing, erasures};
use uuid::Uuid;

use crate::idempotency::{ask, is_replay};
use crate::test_api::{Tenant, TestApi, all_absent, all_lack, done, found, id_of, now, pass};

const EVENTS: &str = "/handoff-analytics/events";

async fn visitor(api: &TestApi, tenant: &Tenant, external_id: &str) -> String {
    let path = "/widget/authenticate-user-by-external-id";
    let body = json!({"external_id": external_id, "name": "Ann"});
    let made = api.post(path, &tenant.token, body).await.with(200);
    id_of(&made["contact"])
}

async fn report(api: &TestApi, tenant: &Tenant, session: &str, contact: &str) -> Value {
    let body = json!({"session_id": session, "contact_id": contact, "summary": "Wants a refund"});
    let made = api.post(EVENTS, &tenant.token, body).await.with(201);
    pass(1);
    made
}

/// Returns the id of the newest handoff of a session.
async fn id_in(api: &TestApi, tenant: &Tenant, session: &str) -> String {
    let path = format!("{EVENTS}/by-session/{session}");
    id_of(&api.get(&path, &tenant.token).await.with(200)["items"][0])
}

#[tokio::test]
async fn handoffs_are_listed_and_exported_by_their_contact() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let (ann, bob) = (
        visitor(&api, &tenant, "1").await,
        visitor(&api, &tenant, "2").await,
    );
    let foreign = visitor(&api, &other, "1").await;

    let made = report(&api, &tenant, "chat-1", &ann).await;
    let fields: Vec<_> = made.as_object().expect("an object").keys().collect();
    let given = [
        "created_at",
        "explanation",
        "reasons",
        "sentiment",
        "session_id",
        "summary",
    ];
    assert_eq!(fields, given);
    report(&api, &tenant, "chat-2", &bob).await;
    report(&api, &tenant, "chat-3", &ann).await;

    // Another org's contact is refused as one that doesn't exist.
    let mut refusals = Vec::new();
    for absent in [&foreign, &Uuid::nil().to_string()] {
        let body = json!({"session_id": "chat", "contact_id": absent});
        let refused = api.post(EVENTS, &tenant.token, body).await.with(400);
        let message = refused["message"].as_str().expect("a message").to_owned();
        refusals.push(message.replace(absent, "<id>"));
    }
    assert_eq!(
        refusals,
        ["contact_id: <id> is not a contact of this org"; 2]
    );
    let body = json!({"session_id": "chat", "contact_id": "ann"});
    let refused = api.post(EVENTS, &tenant.token, body).await.with(400);
    assert!(
        refused["message"]
            .as_str()
            .is_some_and(|it| it.starts_with("contact_id: "))
    );

    for (contact, sessions) in [
        (&ann, vec!["chat-3", "chat-1"]),
        (&bob, vec!["chat-2"]),
        (&foreign, vec![]),
    ] {
        let path = format!("{EVENTS}?contact_id={contact}");
        let page = api.get(&path, &tenant.token).await.with(200);
        let items = page["items"].as_array().expect("items").iter();
        let listed: Vec<_> = items.map(|item| item["session_id"].clone()).collect();
        assert_eq!(json!(listed), json!(sessions), "{page}");
        assert_eq!(page["total"], sessions.len(), "{page}");
    }
    let first = api
        .get(&format!("{EVENTS}?contact_id={ann}&limit=1"), &tenant.token)
        .await;
    let next = first.with(200)["next"].as_str().expect("more").to_owned();
    let second = api
        .get(&format!("{EVENTS}?cursor={next}"), &tenant.token)
        .await
        .with(200);
    assert_eq!(second["items"][0]["session_id"], "chat-1");
    let mixed = format!("{EVENTS}?contact_id={bob}&cursor={next}");
    api.get(&mixed, &tenant.token).await.with(400);
    api.get(&format!("{EVENTS}?contact_id=ann"), &tenant.token)
        .await
        .with(400);

    let shown = api
        .get(&format!("{EVENTS}/by-session/chat-1"), &tenant.token)
        .await
        .with(200);
    assert_eq!(shown["items"][0]["contact_id"], json!(ann));

    // The export has them page by page, behind the calls.
    let path = format!("/widget/contacts/{ann}/export");
    let whole = api.get(&path, &tenant.token).await.with(200);
    assert_eq!(
        (whole["calls"].clone(), whole["next"].clone()),
        (json!([]), Value::Null)
    );
    assert_eq!(whole["handoffs"][1], made);
    let first = api
        .get(&format!("{path}?limit=1"), &tenant.token)
        .await
        .with(200);
    assert_eq!(first["handoffs"].as_array().map(Vec::len), Some(1));
    let next = first["next"].as_str().expect("more");
    let second = api
        .get(&format!("{path}?cursor={next}&limit=1"), &tenant.token)
        .await
        .with(200);
    assert_eq!(
        (second["handoffs"][0].clone(), second["next"].clone()),
        (made, Value::Null)
    );
}

#[tokio::test]
async fn a_chat_is_erased_with_its_contact_and_no_answer_brings_it_back() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (ann, bob) = (
        visitor(&api, &tenant, "1").await,
        visitor(&api, &tenant, "2").await,
    );
    let body = json!({"session_id": "chat-1", "contact_id": ann, "summary": "Wants a refund"});
    let made = ask(&api, EVENTS, &tenant.token, "key-1", &body).await;
    made.with(201);
    report(&api, &tenant, "chat-2", &bob).await;

    let path = format!("/widget/contacts/{ann}");
    let erasure = id_of(&api.delete(&path, &tenant.token).await.with(200));
    let erasure: Uuid = erasure.parse().expect("an id");
    let open = found(&api.store, move |tx| erasures::open(tx, erasure)).await;
    let rows = erasing::erase_rows(&api.store, &open.expect("open"), now()).await;
    assert_eq!(rows.expect("erased"), RowsErased::All);
    done(&api.store, move |tx, now| {
        erasures::done(tx, erasure, 0, now)
    })
    .await;

    let receipt = api
        .get(&format!("/widget/erasures/{erasure}"), &tenant.token)
        .await
        .with(200);
    let erased = &receipt["erased"];
    let counts = ["handoffs", "events", "kept_answers"].map(|kind| erased[kind].clone());
    assert_eq!(json!(counts), json!([1, 1, 1]), "{receipt}");

    let listed = api.get(EVENTS, &tenant.token).await.with(200);
    assert_eq!(listed["total"], 2);
    let texts = |item: &Value| (item["session_id"].clone(), item["summary"].clone());
    assert_eq!(
        texts(&listed["items"][0]),
        (json!("chat-2"), json!("Wants a refund"))
    );
    assert_eq!(texts(&listed["items"][1]), (json!("anonymous"), json!("")));

    let replayed = ask(&api, EVENTS, &tenant.token, "key-1", &body).await;
    assert!(is_replay(&replayed));
    assert_eq!(texts(&replayed.json()), (json!("anonymous"), json!("")));
}

#[tokio::test]
async fn a_handoff_is_deleted_by_its_org_alone() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let ann = visitor(&api, &tenant, "1").await;
    for session in ["chat-1", "chat-2", "chat-3"] {
        report(&api, &tenant, session, &ann).await;
    }
    let path = format!("{EVENTS}/{}", id_in(&api, &tenant, "chat-2").await);

    let (_, reader) = api.key(tenant.org, &["handoff:read"]).await;
    all_lack(&[api.delete(&path, &reader).await], "handoff:write");
    api.delete(&format!("{path}?now=true"), &tenant.token)
        .await
        .with(400);
    let foreign = api.delete(&path, &other.token).await;
    assert_eq!(api.get(EVENTS, &tenant.token).await.with(200)["total"], 3);

    let deleted = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(deleted, json!({"success": true}));
    all_absent(
        &[
            foreign,
            api.delete(&path, &tenant.token).await,
            api.delete(&format!("{EVENTS}/{}", Uuid::nil()), &tenant.token)
                .await,
            api.delete(&format!("{EVENTS}/chat-2"), &tenant.token).await,
        ],
        "handoff",
    );
    for query in ["", "?confirmed=true", "?reason=ai_implied_handoff"] {
        let page = api
            .get(&format!("{EVENTS}{query}"), &tenant.token)
            .await
            .with(200);
        assert_eq!(page["total"], 2, "{query}: {page}");
    }
}
