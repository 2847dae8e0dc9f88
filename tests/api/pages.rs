//! The dashboard as a person uses it, without a browser.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use uuid::Uuid;

use crate::test_api::{Answer, Reseller, TestApi};

/// Makes an org of the reseller.
pub(crate) async fn org_of(api: &TestApi, reseller: &Reseller, name: &str) -> Uuid {
    let made = api
        .post("/partner/v1/orgs", &reseller.key, json!({"name": name}))
        .await;
    made.with(201)["id"]
        .as_str()
        .and_then(|id| id.parse().ok())
        .expect("an id")
}

/// Returns path and query of a new login link.
pub(crate) async fn link(api: &TestApi, reseller: &Reseller, org: Uuid, email: &str) -> String {
    let path = format!("/partner/v1/orgs/{org}/login-links");
    let made = api
        .post(&path, &reseller.key, json!({"email": email}))
        .await
        .with(201);
    let url = made["url"].as_str().expect("a text");
    url.strip_prefix("https://dashboard.example")
        .expect("the dashboard's")
        .to_owned()
}

pub(crate) async fn ask(
    api: &TestApi,
    method: &str,
    path: &str,
    cookie: &str,
    more: &[(&str, &str)],
    body: String,
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in [("Cookie", cookie)]
        .iter()
        .chain(more)
        .filter(|(_, value)| !value.is_empty())
    {
        request = request.header(*name, *value);
    }
    api.send(request.body(Body::from(body))).await
}

pub(crate) async fn visit(api: &TestApi, path: &str, cookie: &str) -> Answer {
    ask(api, "GET", path, cookie, &[], String::new()).await
}

pub(crate) async fn submit(api: &TestApi, path: &str, cookie: &str, fields: &str) -> Answer {
    let form = [
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Origin", "https://dashboard.example"),
    ];
    ask(api, "POST", path, cookie, &form, fields.to_owned()).await
}

/// Follows the link and returns the cookie to send back.
pub(crate) async fn log_in(api: &TestApi, link: &str) -> String {
    let opened = visit(api, link, "").await;
    assert_eq!(opened.status, 303, "{}", opened.text);
    let cookie = opened.header("Set-Cookie").expect("a cookie");
    cookie.split(';').next().expect("a pair").to_owned()
}

/// Returns the hidden token in a page's forms.
pub(crate) fn form_token(page: &Answer) -> String {
    let (_, rest) = page
        .text
        .split_once("name=\"form_token\" value=\"")
        .expect("a form");
    rest.split('"').next().expect("a value").to_owned()
}
