//! Rules for every path: request ids, unknown paths and methods, internal errors.

use axum::body::Body;
use axum::http::Request;
use serde_json::json;

use crate::dashboard::session;
use crate::pages::{ask, form_token, visit};
use crate::test_api::TestApi;

#[tokio::test]
async fn an_unknown_path_is_404() {
    let api = TestApi::new().await;
    let answer = api.send(Request::get("/nowhere").body(Body::empty())).await;
    assert_eq!(
        answer.with(404),
        json!({"statusCode": 404, "message": "There is no such path", "error": "Not Found", "code": "not_found"})
    );
}

#[tokio::test]
async fn an_unknown_method_is_405_and_says_which_are_known() {
    let api = TestApi::new().await;
    let answer = api
        .send(Request::delete("/phone/calls").body(Body::empty()))
        .await;
    let expected = json!({"statusCode": 405, "message": "This path does not take this method; see Allow", "error": "Method Not Allowed", "code": "method_not_allowed"});
    assert_eq!(answer.with(405), expected);
    assert_eq!(answer.header("Allow"), Some("GET,HEAD"));
}

#[tokio::test]
async fn a_request_has_an_id() {
    let api = TestApi::new().await;

    for (name, given, kept) in [
        ("none", None, false),
        ("sane", Some("req-7_a.B"), true),
        ("empty", Some(""), false),
        ("blank inside", Some("a b"), false),
        ("too long", Some(&*"x".repeat(129)), false),
    ] {
        let mut request = Request::get("/healthz");
        if let Some(id) = given {
            request = request.header("X-Request-Id", id);
        }
        let answer = api.send(request.body(Body::empty())).await;
        let id = answer.header("X-Request-Id").unwrap_or_default();
        assert_eq!(Some(id) == given, kept, "{name}: {id}");
        assert!(kept || id.parse::<uuid::Uuid>().is_ok(), "{name}: {id}");
    }
}

#[tokio::test]
async fn ids_and_times_have_one_form() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let agent = json!({"name": "A", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": true});
    let made = api.post("/phone", &tenant.token, agent).await.with(201);
    let id = made["id"].as_str().expect("an id");
    let parsed: uuid::Uuid = id.parse().expect("a UUID");
    assert_eq!(
        (parsed.get_version_num(), parsed.to_string().as_str()),
        (7, id)
    );
    assert_eq!(made["created_at"], "2026-01-31T12:00:00.000Z");

    let absent = api.get("/phone/x", &tenant.token).await;
    for (name, given, status) in [
        ("as written", id.to_owned(), 200),
        ("in capitals", id.to_uppercase(), 200),
        ("without hyphens", id.replace('-', ""), 404),
        ("in braces", format!("%7B{id}%7D"), 404),
        ("as a URN", format!("urn:uuid:{id}"), 404),
    ] {
        let answer = api.get(&format!("/phone/{given}"), &tenant.token).await;
        assert_eq!(answer.status, status, "{name}");
        assert!(
            status == 200 || answer.text == absent.text,
            "{name}: {}",
            answer.text
        );
    }
}

#[tokio::test]
async fn a_fault_of_ours_shows_nothing_but_the_requests_id() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    api.get("/phone/calls", &tenant.token).await.with(200);
    api.break_by("ALTER TABLE calls RENAME TO calls_of_another_version")
        .await;
    let request = Request::get("/phone/calls")
        .header("Authorization", format!("Bearer {}", tenant.token))
        .header("X-Request-Id", "seven");
    let answer = api.send(request.body(Body::empty())).await;
    let expected = json!({
        "statusCode": 500, "message": "Something broke on our side; quote the request id seven", "error": "Internal Server Error", "code": "internal_error",
    });
    assert_eq!(answer.with(500), expected);
}

#[tokio::test]
async fn a_body_is_json_of_at_most_a_mebibyte() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let long = format!("{{\"name\": \"{}\"}}", "x".repeat(1 << 20));

    for (name, content_type, body, status, message) in [
        (
            "no type",
            None,
            "{}",
            415,
            "A body must be JSON in UTF-8: Content-Type: application/json",
        ),
        (
            "another type",
            Some("text/plain"),
            "{}",
            415,
            "A body must be JSON in UTF-8: Content-Type: application/json",
        ),
        (
            "too long",
            Some("application/json"),
            &*long,
            413,
            "A body may have at most 1 MiB",
        ),
        (
            "malformed",
            Some("application/json"),
            "{\"name\": ",
            400,
            "the body is not well-formed JSON: EOF while parsing a value at line 1 column 9",
        ),
        (
            "nothing at all",
            None,
            "",
            400,
            "name: is required; type: is required; language: is required; first_message: is required; use_org_knowledgebase: is required",
        ),
    ] {
        let mut request =
            Request::post("/phone").header("Authorization", format!("Bearer {}", tenant.token));
        if let Some(content_type) = content_type {
            request = request.header("Content-Type", content_type);
        }

        let answer = api.send(request.body(Body::from(body.to_owned()))).await;
        assert_eq!(answer.with(status)["message"], message, "{name}");
    }
}

/// Two readers could take different values of a duplicate key: the proxy that checks it, and the API that acts on it.
#[tokio::test]
async fn a_key_that_is_given_twice_is_400() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for (body, message) in [
        (
            r#"{"url": "https://a.example", "url": "https://b.example"}"#,
            "url is given twice",
        ),
        (
            r#"{"user": {"data": [{"a": 1, "a": 2}]}}"#,
            "user.data[0].a is given twice",
        ),
    ] {
        let request = Request::post("/webhooks")
            .header("Authorization", format!("Bearer {}", tenant.token))
            .header("Content-Type", "application/json")
            .body(Body::from(body));
        let refused = api.send(request).await.with(400);
        assert_eq!(refused["message"], message);
    }
}

#[tokio::test]
async fn answers_say_how_browsers_and_caches_are_to_treat_them() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let made = api.post("/api-keys", &tenant.token, json!({})).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.header("Cache-Control"), Some("no-store"));
    let open = api.get("/healthz", "").await;
    let unknown = api.get("/nowhere", "").await;
    for answer in [&made, &open, &unknown] {
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
    }
}

/// HTTP/2 names the host in `:authority`, without `Host`; it may be another name than `http.dashboard_url`.
#[tokio::test]
async fn a_console_takes_forms_under_the_name_that_was_asked() {
    let api = TestApi::new().await;
    let (_, cookie, page) = session(&api).await;
    let proof = form_token(&visit(&api, &page, &cookie).await);
    let fields = format!("form_token={proof}&scopes=phone%3Aread");
    let path = format!("https://console.example{page}/keys");
    for (origin, status) in [
        ("https://console.example", 200),
        ("http://console.example", 403),
        ("https://evil.example", 403),
    ] {
        let headers = [
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Origin", origin),
            ("X-Forwarded-Proto", "https"),
        ];
        let answer = ask(&api, "POST", &path, &cookie, &headers, fields.clone()).await;
        assert_eq!(answer.status, status, "{origin}: {}", answer.text);
    }
}

/// A proxy that reads the first of two credentials and a server that reads the second differ on who asks.
#[tokio::test]
async fn two_authorization_headers_are_refused() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let bearer = |token: &str| format!("Bearer {token}");
    for (path, second) in [
        ("/phone", bearer("another")),
        ("/phone", bearer(&tenant.token)),
        ("/widget/me", bearer("another")),
        ("/partner/v1/orgs", "Basic eDp5".to_owned()),
    ] {
        let request = Request::get(path)
            .header("Authorization", bearer(&tenant.token))
            .header("Authorization", second);
        let refused = api.send(request.body(Body::empty())).await;
        let message = refused.with(400)["message"].to_string();
        assert!(
            message.contains("Authorization: is given more than once"),
            "{path}: {message}"
        );
    }
    api.get("/phone", &tenant.token).await.with(200);
}
