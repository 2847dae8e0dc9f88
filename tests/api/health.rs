//! `/healthz`, `/readyz`, `/metrics`: for those who run the daemon, without a key.

use axum::body::Body;
use axum::http::Request;

use crate::test_api::TestApi;

async fn get(api: &TestApi, path: &str) -> crate::test_api::Answer {
    api.send(Request::get(path).body(Body::empty())).await
}

#[tokio::test]
async fn it_lives_and_takes_calls() {
    let api = TestApi::new().await;
    assert_eq!(get(&api, "/healthz").await.status, 200);
    assert_eq!(
        get(&api, "/readyz").await.with(200),
        serde_json::json!({"status": "ready", "database": "ok"})
    );
}

#[tokio::test]
async fn a_draining_node_is_not_ready_but_lives() {
    let api = TestApi::new().await;
    api.state.drain();
    assert_eq!(get(&api, "/healthz").await.status, 200);
    assert_eq!(
        get(&api, "/readyz").await.with(503),
        serde_json::json!({"status": "draining", "database": "ok"})
    );
}

#[tokio::test]
async fn without_its_database_it_goes_on_and_says_so() {
    let api = TestApi::new().await;
    api.store.close().await;
    assert_eq!(
        get(&api, "/readyz").await.with(200),
        serde_json::json!({"status": "degraded", "database": "unavailable"})
    );
}

/// A table whose root page the file doesn't have, as after a write that was lost.
#[tokio::test]
async fn a_damaged_database_says_so_and_is_no_fault_of_the_request() {
    let api = TestApi::new().await;
    if api.store.is_shared() {
        return;
    }
    let tenant = api.tenant("Acme").await;
    api.break_by_all(&[
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET rootpage = 1000000 WHERE name = 'destinations'",
        "PRAGMA schema_version = 1000000",
    ])
    .await;

    let destination =
        serde_json::json!({"name": "Sales", "type": "phone", "value": "+442071838750"});
    let path = "/phone/sip/transfer-destinations";
    let refused = api.post(path, &tenant.token, destination).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    assert!(refused.header("Retry-After").is_some(), "{}", refused.text);
    assert_eq!(
        get(&api, "/readyz").await.with(200),
        serde_json::json!({"status": "degraded", "database": "failing"})
    );
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let api = TestApi::new().await;
    get(&api, "/healthz").await;
    let answer = get(&api, "/metrics").await;
    assert_eq!(
        (answer.status, answer.header("Content-Type")),
        (200, Some("text/plain; version=0.0.4; charset=utf-8"))
    );

    let counted = r#"trunkline_http_requests_total{method="GET",route="/healthz",status="200"}"#;
    assert!(
        answer.text.lines().any(|line| line.starts_with(counted)),
        "{}",
        answer.text
    );
}
