//! `/phone`, `/phone/{agent_id}`.

use serde_json::{Value, json};
use trunkline_store::numbers;

use crate::test_api::{TestApi, all_absent, all_lack, done, found, id_of, masked, pass, walk};

const VOICES: &str = "[phone]\nvoices = [\"nova\"]";

fn anna() -> Value {
    json!({
        "name": "Anna",
        "type": "inbound",
        "language": "en",
        "first_message": "Hello, how can I help?",
        "use_org_knowledgebase": true,
    })
}

fn with(fields: Value) -> Value {
    let mut body = anna();
    let Value::Object(fields) = fields else {
        panic!("an object")
    };
    body.as_object_mut().expect("an object").extend(fields);
    body
}

#[tokio::test]
async fn an_agent_is_made_shown_changed_and_deleted() {
    let api = TestApi::with(VOICES).await;
    let tenant = api.tenant("Acme").await;
    let full = with(json!({
        "voice_id": "nova",
        "handoff_phone_number": "+442071838750",
        "actionIds": ["look-up", "book"],
        "enabled": false,
        "max_concurrent_calls": 3,
        "runtime": {"type": "sip", "uri": "sip:{agent_id}@runtime.example.com", "fallbacks": ["sip:b.example.com"]},
    }));

    let made = api.post("/phone", &tenant.token, full).await.with(201);
    insta::assert_json_snapshot!("an_agent_with_everything", masked(made.clone()));
    let path = format!("/phone/{}", id_of(&made));
    assert_eq!(api.get(&path, &tenant.token).await.with(200), made);

    pass(60);
    let change = json!({
        "name": "Bea", "type": "outbound", "enabled": true, "actionIds": [],
        "voice_id": null, "handoff_phone_number": null, "max_concurrent_calls": null, "runtime": null,
    });
    let changed = api.patch(&path, &tenant.token, change).await.with(200);
    insta::assert_json_snapshot!("an_agent_changed", masked(changed.clone()));

    // What changes nothing leaves the version as it is.
    for same in [json!({"enabled": true}), json!({})] {
        let again = api.patch(&path, &tenant.token, same).await.with(200);
        assert_eq!(again, changed);
    }

    let gone = api.delete(&path, &tenant.token).await.with(200);
    assert_eq!(gone, json!({"success": true}));
    api.get(&path, &tenant.token).await.with(404);
    api.delete(&path, &tenant.token).await.with(404);
}

#[tokio::test]
async fn what_is_not_said_has_its_default() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let made = api.post("/phone", &tenant.token, anna()).await.with(201);
    insta::assert_json_snapshot!(masked(made));
}

#[tokio::test]
async fn agents_are_listed_newest_first() {
    let api = TestApi::new().await;
    let (tenant, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    for name in ["one", "two", "three"] {
        pass(1);
        let body = with(json!({"name": name}));
        api.post("/phone", &tenant.token, body).await.with(201);
    }

    let names = walk(&api, "/phone", &tenant.token, 2, "name").await;
    assert_eq!(names, ["three", "two", "one"]);

    let none = json!({"items": [], "next": null, "total": 0});
    assert_eq!(api.get("/phone", &other.token).await.with(200), none);

    let page = api.get("/phone?limit=2", &tenant.token).await.with(200);
    assert_eq!(page["total"], 3);

    let cursor = page["next"].as_str().expect("a second page");
    let elsewhere = format!("/phone/numbers?cursor={cursor}");
    let refused = api.get(&elsewhere, &tenant.token).await.with(400);
    assert_eq!(refused["message"], "cursor: is no cursor of this list");
}

#[tokio::test]
async fn every_fault_of_a_new_agent_is_named() {
    let api = TestApi::with(VOICES).await;
    let tenant = api.tenant("Acme").await;
    let wrong = json!({
        "name": " ", "type": "both", "language": "", "use_org_knowledgebase": "yes", "voice_id": "tenor",
        "handoff_phone_number": "0207", "actionIds": ["a", 1, ""], "enabled": 1, "max_concurrent_calls": 0,
        "runtime": {"type": "sip", "uri": "https://x"}, "colour": "red",
    });
    let refused = api.post("/phone?draft=1", &tenant.token, wrong).await;
    insta::assert_json_snapshot!(refused.with(400));

    for (name, body, message) in [
        (
            "nothing",
            json!({}),
            "name: is required; type: is required; language: is required; first_message: is required; use_org_knowledgebase: is required",
        ),
        ("no object", json!([]), "the body is not a JSON object"),
        (
            "a long name",
            with(json!({"name": "x".repeat(201)})),
            "name: expected 1 to 200 characters, not 201",
        ),
        (
            "a voice of no kind",
            with(json!({"voice_id": 7})),
            "voice_id: expected the id of a voice",
        ),
    ] {
        let refused = api.post("/phone", &tenant.token, body).await.with(400);
        assert_eq!(refused["message"], message, "{name}");
    }

    assert_eq!(api.get("/phone", &tenant.token).await.with(200)["total"], 0);
}

#[tokio::test]
async fn a_change_is_judged_as_a_new_agent_is() {
    let api = TestApi::with(VOICES).await;
    let tenant = api.tenant("Acme").await;
    let made = api.post("/phone", &tenant.token, anna()).await.with(201);
    let path = format!("/phone/{}", id_of(&made));
    let wrong = json!({
        "name": null, "type": null, "language": null, "first_message": null, "use_org_knowledgebase": null,
        "actionIds": null, "enabled": null, "max_concurrent_calls": -1, "runtime": {}, "id": 1,
    });
    let refused = api.patch(&path, &tenant.token, wrong).await;
    insta::assert_json_snapshot!(refused.with(400));
    assert_eq!(api.get(&path, &tenant.token).await.with(200), made);
}

#[tokio::test]
async fn an_agent_of_another_tenant_is_as_one_that_is_not_there() {
    let api = TestApi::new().await;
    let (acme, other) = (api.tenant("Acme").await, api.tenant("Other").await);
    let made = api.post("/phone", &acme.token, anna()).await.with(201);
    let nobody = uuid::Uuid::nil().to_string();

    for id in [&*id_of(&made), &nobody, "no-id", "%ff"] {
        let path = format!("/phone/{id}");
        // The id is judged before the rest of the request.
        let answers = [
            api.get(&format!("{path}?colour=red"), &other.token).await,
            api.patch(&path, &other.token, json!({"colour": 1})).await,
            api.delete(&path, &other.token).await,
        ];
        all_absent(&answers, "agent");
    }

    let path = format!("/phone/{}", id_of(&made));
    assert_eq!(api.get(&path, &acme.token).await.with(200), made);
}

#[tokio::test]
async fn reading_and_writing_need_their_scopes_before_anything_else() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reader) = api.key(tenant.org, &["phone:read"]).await;
    let (_, writer) = api.key(tenant.org, &["phone:write"]).await;
    let writing = [
        api.post("/phone", &reader, json!([])).await,
        api.patch("/phone/no-id", &reader, json!([])).await,
        api.delete("/phone/no-id", &reader).await,
    ];
    all_lack(&writing, "phone:write");
    let reading = [
        api.get("/phone?limit=0", &writer).await,
        api.get("/phone/no-id", &writer).await,
    ];
    all_lack(&reading, "phone:read");
}

#[tokio::test]
async fn a_deleted_agents_numbers_are_free() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let made = api.post("/phone", &tenant.token, anna()).await.with(201);
    let agent = id_of(&made).parse().expect("an id");
    let number = api.number(tenant.org, "+442071838750").await;

    done(&api.store, move |tx, now| {
        numbers::assign(tx, tenant.org, agent, &[number.id], now)
    })
    .await;
    api.delete(&format!("/phone/{agent}"), &tenant.token)
        .await
        .with(200);

    let number = found(&api.store, move |tx| {
        numbers::by_id(tx, tenant.org, number.id)
    })
    .await;

    assert_eq!(number.agent_id, None);
}

/// A runtime's headers tell it whose call comes, so each value may be a credential: a key that only reads sees the names.
#[tokio::test]
async fn values_of_a_runtimes_headers_are_for_keys_that_may_set_them() {
    const SECRET: &str = "hunter2-of-the-crm";
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let (_, reads) = api.key(tenant.org, &["phone:read"]).await;
    let runtime = |value: &str| json!({"type": "sip", "uri": "sip:a@192.0.2.1", "headers": {"X-Account": value, "X-Call": "{called}"}});

    let body = with(json!({ "runtime": runtime(SECRET) }));
    let made = api.post("/phone", &tenant.token, body).await.with(201);
    assert_eq!(made["runtime"]["headers"]["X-Account"], SECRET);
    let path = format!("/phone/{}", id_of(&made));
    let renamed = json!({"name": "Bea"});
    api.patch(&path, &tenant.token, renamed).await.with(200);

    let shown = api.get(&path, &tenant.token).await.with(200);
    let listed = api.get("/phone", &tenant.token).await.with(200);
    for agent in [&shown, &listed["items"][0]] {
        assert_eq!(agent["runtime"]["headers"]["X-Account"], SECRET);
    }
    let shown = api.get(&path, &reads).await.with(200);
    let listed = api.get("/phone", &reads).await.with(200);
    for agent in [&shown, &listed["items"][0]] {
        let masked = json!({"X-Account": "***", "X-Call": "***"});
        assert_eq!(agent["runtime"]["headers"], masked);
        assert!(!agent.to_string().contains(SECRET), "{agent}");
    }

    let stored = api.rows("SELECT runtime FROM agents").await;
    assert!(stored[0].contains("X-Account"), "{stored:?}");
    assert!(!stored[0].contains(SECRET), "{stored:?}");

    // What a reader was shown doesn't replace the value.
    let sent_back = json!({ "runtime": runtime("***") });
    let refused = api.patch(&path, &tenant.token, sent_back).await.with(400);
    let message = refused["message"].to_string();
    assert!(message.contains("runtime.headers.X-Account"), "{message}");
    let shown = api.get(&path, &tenant.token).await.with(200);
    assert_eq!(shown["runtime"]["headers"]["X-Account"], SECRET);
}
