//! Forms of an answer: what `Accept` and `Accept-Encoding` choose, and how a client learns of a name that was replaced.

use std::io::Read as _;

use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt as _;

use crate::test_api::TestApi;

#[tokio::test]
async fn accept_chooses_by_its_weights() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for path in [
        "/phone/calls",
        "/usage",
        "/audit",
        "/phone/usage",
        "/phone/audit",
    ] {
        for (accept, kind) in [
            (None, "application/json"),
            (Some("*/*"), "application/json"),
            (Some("text/csv"), "text/csv; charset=utf-8"),
            (Some("TEXT/CSV"), "text/csv; charset=utf-8"),
            (
                Some("text/csv;q=0.2, application/json;q=0.9"),
                "application/json",
            ),
            (
                Some("application/json;q=0.2, text/csv;q=0.9"),
                "text/csv; charset=utf-8",
            ),
            (Some("text/csv;q=0, */*"), "application/json"),
            (Some("image/png"), "application/json"),
        ] {
            let request =
                Request::get(path).header("Authorization", format!("Bearer {}", tenant.token));
            let request = match accept {
                Some(accept) => request.header("Accept", accept),
                None => request,
            };

            let answer = api.send(request.body(Body::empty())).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text);
            assert_eq!(
                answer.header("Content-Type"),
                Some(kind),
                "{path} {accept:?}"
            );
            let varies = answer.headers.get_all("Vary").iter();
            let mut varies = varies.filter_map(|value| value.to_str().ok());
            assert!(varies.any(|name| name == "accept"), "{path} {accept:?}");
        }
    }
}

#[tokio::test]
async fn answers_come_in_gzip_where_it_is_taken() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    for turn in 0..20 {
        api.agent(tenant.org, &format!("Agent {turn}")).await;
    }

    for path in ["/phone", "/openapi.json", "/docs", "/metrics"] {
        let get = async |coding: &str| {
            let request = Request::get(path)
                .header("Authorization", format!("Bearer {}", tenant.token))
                .header("Accept-Encoding", coding);
            let (parts, body) = api.begin(request.body(Body::empty())).await.into_parts();
            let octets = body.collect().await.expect("a body").to_bytes();
            (parts.headers, octets)
        };

        let (headers, plain) = get("identity").await;
        assert_eq!(headers.get("Content-Encoding"), None, "{path}");
        for coding in ["gzip", "br;q=1.0, GZIP;q=0.8", "gzip, deflate, br"] {
            let (headers, packed) = get(coding).await;
            let packed_as = headers
                .get("Content-Encoding")
                .map(|coding| coding.as_bytes());
            assert_eq!(packed_as, Some(&b"gzip"[..]), "{path} {coding}");
            assert_eq!(headers["Vary"], "accept-encoding", "{path}");
            assert!(
                packed.len() < plain.len() / 2,
                "{path} {coding}: {} of {}",
                packed.len(),
                plain.len()
            );
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(&*packed)
                .read_to_end(&mut text)
                .expect("gzip");
            if path != "/metrics" {
                assert_eq!(text, plain, "{path}");
            }
        }
        let (headers, _) = get("gzip;q=0").await;
        assert_eq!(headers.get("Content-Encoding"), None, "{path}");
    }

    // A page with a form token beside what others may have chosen: its length in gzip would tell of the token.
    let (_, cookie, page) = crate::dashboard::session(&api).await;
    let request = Request::get(&page)
        .header("Cookie", cookie)
        .header("Accept-Encoding", "gzip");
    let answer = api.send(request.body(Body::empty())).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("Content-Encoding"), None);
}

#[tokio::test]
async fn who_uses_a_name_that_was_replaced_is_told_until_when_it_works() {
    let api = TestApi::new().await;
    let tenant = api.tenant("Acme").await;
    let old = api
        .get("/phone/calls?number=%2B442071838750", &tenant.token)
        .await;
    old.with(200);
    assert_eq!(old.header("Deprecation"), Some("@1795996800"));
    assert_eq!(old.header("Sunset"), Some("Tue, 30 Nov 2027 00:00:00 GMT"));
    let new = api
        .get("/phone/calls?phone_number=%2B442071838750", &tenant.token)
        .await;
    new.with(200);
    assert_eq!(new.header("Deprecation"), None);
}
