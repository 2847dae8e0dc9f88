//! `/healthz`, `/readyz`, `/metrics`: for those who run the daemon, without a key.

use axum::body::Body;
use axum::http::Request;

use crate::house::House;

async fn get(house: &House, path: &str) -> crate::house::Answer {
    house.send(Request::get(path).body(Body::empty())).await
}

#[tokio::test]
async fn it_lives_and_takes_calls() {
    let house = House::new().await;
    assert_eq!(get(&house, "/healthz").await.status, 200);
    assert_eq!(
        get(&house, "/readyz").await.with(200),
        serde_json::json!({"status": "ready", "database": "ok"})
    );
}

#[tokio::test]
async fn a_draining_node_is_not_ready_but_lives() {
    let house = House::new().await;
    house.api.drain();
    assert_eq!(get(&house, "/healthz").await.status, 200);
    assert_eq!(
        get(&house, "/readyz").await.with(503),
        serde_json::json!({"status": "draining", "database": "ok"})
    );
}

#[tokio::test]
async fn without_its_database_it_goes_on_and_says_so() {
    let house = House::new().await;
    house.store.close().await;
    assert_eq!(
        get(&house, "/readyz").await.with(200),
        serde_json::json!({"status": "degraded", "database": "unavailable"})
    );
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let house = House::new().await;
    get(&house, "/healthz").await;
    let answer = get(&house, "/metrics").await;
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
