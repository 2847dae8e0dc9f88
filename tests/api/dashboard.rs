//! The dashboard without a browser: login links, sessions, forms, and sessions as credentials of the API.

use std::collections::HashSet;
use trunkline_store::org_keys;

use serde_json::json;
use trunkline_model::record::Fact;
use uuid::Uuid;

use crate::pages::{ask, form_token, link, log_in, org_of, submit, visit};
use crate::test_api::{Tenant, TestApi, found, pass};

/// Makes an org of a reseller and a session in it; returns also the path of its page.
pub(crate) async fn session(api: &TestApi) -> (Uuid, String, String) {
    let reseller = api.reseller("Reseller").await;
    let org = org_of(api, &reseller, "Acme").await;
    let cookie = log_in(api, &link(api, &reseller, org, "ada@example.org").await).await;
    (org, cookie, format!("/dashboard/{org}"))
}

#[tokio::test]
async fn a_link_opens_one_session_and_leads_to_the_orgs_page() {
    let api = TestApi::new().await;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(&api, &reseller, "<b>Acme & Sons</b>").await;
    let link = link(&api, &reseller, org, "ada@example.org").await;
    let head = ask(&api, "HEAD", &link, "", &[], String::new()).await;
    assert_eq!((head.status, head.header("Set-Cookie")), (200, None));

    let opened = visit(&api, &link, "").await;
    assert_eq!(opened.status, 303);
    assert_eq!(
        opened.header("Location"),
        Some(&*format!("/dashboard/{org}"))
    );

    let cookie = opened.header("Set-Cookie").expect("a cookie");
    let attributes: HashSet<_> = cookie.split("; ").skip(1).collect();
    let expected = [
        "Path=/",
        "Max-Age=43200",
        "HttpOnly",
        "SameSite=Lax",
        "Secure",
    ];
    assert_eq!(attributes, HashSet::from(expected));

    let cookie = cookie.split(';').next().expect("a pair");
    let test_org = visit(&api, "/dashboard", cookie).await;
    assert_eq!(
        (test_org.status, test_org.header("Location")),
        (303, Some(&*format!("/dashboard/{org}")))
    );

    let page = visit(&api, &format!("/dashboard/{org}"), cookie).await;
    assert_eq!(page.status, 200);
    assert!(
        page.text.contains("&lt;b&gt;Acme &amp; Sons&lt;/b&gt;"),
        "{}",
        page.text
    );
    // Script and style are separate files, and the policy allows nothing else to run.
    assert_eq!(page.text.matches("<script").count(), 1, "{}", page.text);
    assert!(!page.text.contains("<b>"), "{}", page.text);
    let policy = page.header("Content-Security-Policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; style-src 'self'; script-src 'self';"),
        "{policy}"
    );
    assert_eq!(page.header("Cache-Control"), Some("no-store"));
    for used in [&link, "/partner-login?token=unknown", "/partner-login"] {
        let refused = visit(&api, used, "").await;
        assert_eq!((refused.status, refused.header("Set-Cookie")), (410, None));
        assert!(refused.text.contains("This login link is no longer good"));
    }
    for (before, media_type) in [
        (
            "<link rel=\"stylesheet\" href=\"",
            "text/css; charset=utf-8",
        ),
        ("<script defer src=\"", "text/javascript; charset=utf-8"),
    ] {
        let (_, rest) = page.text.split_once(before).expect("a file");
        let asset = visit(&api, rest.split('"').next().expect("a path"), "").await;
        assert_eq!(
            (asset.status, asset.header("Content-Type")),
            (200, Some(media_type))
        );
        let kept = asset.header("Cache-Control").expect("a policy");
        assert!(kept.contains("immutable"), "{kept}");
    }
    let absent = visit(&api, "/dashboard/a/b/c", cookie).await;
    assert_eq!(absent.status, 404);
    assert!(absent.text.contains("<h1>There is no such page</h1>"));
    assert!(absent.header("Content-Security-Policy").is_some());
}

#[tokio::test]
async fn a_link_ends_after_a_quarter_of_an_hour_and_a_session_after_twelve_hours() {
    let api = TestApi::new().await;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(&api, &reseller, "Acme").await;
    let late = link(&api, &reseller, org, "ada@example.org").await;
    pass(15 * 60);
    assert_eq!(visit(&api, &late, "").await.status, 410);
    let in_time = link(&api, &reseller, org, "ada@example.org").await;
    pass(15 * 60 - 1);
    let cookie = log_in(&api, &in_time).await;
    let page = format!("/dashboard/{org}");
    pass(12 * 3600 - 1);
    assert_eq!(visit(&api, &page, &cookie).await.status, 200);
    pass(1);
    assert_eq!(visit(&api, &page, &cookie).await.status, 401);
    assert_eq!(visit(&api, "/phone", &cookie).await.status, 401);
}

#[tokio::test]
async fn a_key_is_made_shown_once_used_and_revoked() {
    let api = TestApi::new().await;
    let (_, cookie, page) = session(&api).await;
    let keys = format!("{page}/keys");
    let proof = form_token(&visit(&api, &keys, &cookie).await);
    let fields =
        format!("form_token={proof}&name=Night+shift&scopes=phone%3Aread&scopes=calls%3Aread");
    let made = submit(&api, &keys, &cookie, &fields).await;
    assert_eq!(made.status, 200, "{}", made.text);

    let (_, rest) = made
        .text
        .split_once("id=\"new-key\">")
        .expect("the key is shown");
    let key = rest.split('<').next().expect("a text").to_owned();
    api.get("/phone", &key).await.with(200);
    api.get("/api-keys", &key).await.with(403);

    let again = visit(&api, &keys, &cookie).await;
    assert!(again.text.contains("Night shift") && !again.text.contains(&key));

    let id = key.split('.').nth(1).expect("claims");
    let (_, rest) = again
        .text
        .split_once(&format!("{page}/keys/"))
        .expect("a form that revokes");
    let path = format!("{page}/keys/{}", rest.split('"').next().expect("a path"));
    let unproven = submit(&api, &path, &cookie, "form_token=x").await;
    assert_eq!(unproven.status, 403, "{id}");
    api.get("/phone", &key).await.with(200);

    let revoked = submit(&api, &path, &cookie, &format!("form_token={proof}")).await;
    assert_eq!(
        (revoked.status, revoked.header("Location")),
        (303, Some(&*keys))
    );
    api.get("/phone", &key).await.with(401);

    assert!(
        !visit(&api, &keys, &cookie)
            .await
            .text
            .contains("Night shift")
    );

    for fields in [
        format!("form_token={proof}&name=None"),
        format!("form_token={proof}&name=Past&scopes=phone%3Aread&expires_at=2001-01-31T00:00:00Z"),
        format!("form_token={proof}&name=Never&scopes=phone%3Aread&expires_at=tomorrow"),
        format!(
            "form_token={proof}&name={}&scopes=phone%3Aread",
            "x".repeat(300)
        ),
    ] {
        let refused = submit(&api, &keys, &cookie, &fields).await;
        assert_eq!(refused.status, 400, "{fields}: {}", refused.text);
        let name = fields
            .split("name=")
            .nth(1)
            .and_then(|rest| rest.split('&').next());
        let kept = format!("value=\"{}\"", name.expect("a name"));
        assert!(
            refused.text.contains(&kept),
            "the form keeps what was typed: {}",
            refused.text
        );
    }
}

#[tokio::test]
async fn a_key_is_made_with_its_last_day() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let proof = form_token(&visit(&api, &page, &cookie).await);
    let fields = format!(
        "form_token={proof}&name=Brief&scopes=phone%3Aread&expires_at=2099-01-31T23:59:59Z"
    );
    let made = submit(&api, &format!("{page}/keys"), &cookie, &fields).await;
    assert_eq!(made.status, 200, "{}", made.text);
    let ends = made.text.contains("2099-01-31 23:59:59 UTC");
    assert!(ends, "{}", made.text);

    let keys = found(&api.store, move |tx| org_keys::list(tx, org)).await;
    let brief = keys.iter().find(|key| key.name == "Brief").expect("a key");
    let end = brief.expires_at.map(|end| end.as_micros());
    assert_eq!(end, Some(4_073_587_199_000_000));
}

#[tokio::test]
async fn forms_of_other_sites_and_sessions_change_nothing() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let proof = form_token(&visit(&api, &page, &cookie).await);
    let reseller = api.reseller("Other").await;
    let elsewhere = org_of(&api, &reseller, "Elsewhere").await;
    let other = log_in(
        &api,
        &link(&api, &reseller, elsewhere, "eve@example.org").await,
    )
    .await;
    let keys = format!("{page}/keys");
    let fields = format!("form_token={proof}&scopes=phone%3Aread");
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    for (name, cookie, headers, status) in [
        (
            "another site",
            &cookie,
            [form, ("Origin", "https://evil.example")],
            403,
        ),
        ("a hidden site", &cookie, [form, ("Origin", "null")], 403),
        (
            "a site beside",
            &cookie,
            [form, ("Sec-Fetch-Site", "same-site")],
            403,
        ),
        (
            "another's form",
            &other,
            [form, ("Origin", "https://dashboard.example")],
            404,
        ),
        (
            "nobody",
            &String::new(),
            [form, ("Origin", "https://dashboard.example")],
            401,
        ),
        (
            "its own",
            &cookie,
            [form, ("Origin", "https://dashboard.example")],
            200,
        ),
    ] {
        let answer = ask(&api, "POST", &keys, cookie, &headers, fields.clone()).await;
        assert_eq!(answer.status, status, "{name}: {}", answer.text);
    }
    let kept = found(&api.store, move |tx| org_keys::list(tx, org)).await;
    assert_eq!(kept.len(), 1);
    let others_proof = form_token(&visit(&api, &format!("/dashboard/{elsewhere}"), &other).await);
    let fields = format!("form_token={others_proof}&scopes=phone%3Aread");
    assert_eq!(submit(&api, &keys, &other, &fields).await.status, 404);
    for path in [
        &*page,
        "/dashboard/7",
        &format!("/dashboard/{}", Uuid::nil()),
    ] {
        assert_eq!(visit(&api, path, &other).await.status, 404, "{path}");
    }
    assert_eq!(visit(&api, &page, "").await.status, 401);
}

#[tokio::test]
async fn a_session_is_a_credential_of_the_api_until_it_is_over() {
    let api = TestApi::new().await;
    let (_, cookie, page) = session(&api).await;
    let proof = form_token(&visit(&api, &page, &cookie).await);
    let agent = json!({"name": "A", "type": "inbound", "language": "en", "first_message": "", "use_org_knowledgebase": false});
    let json = ("Content-Type", "application/json");
    let made = ask(
        &api,
        "POST",
        "/phone",
        &cookie,
        &[json, ("Origin", "https://dashboard.example")],
        agent.to_string(),
    )
    .await;
    made.with(201);

    let stolen = ask(
        &api,
        "POST",
        "/phone",
        &cookie,
        &[json, ("Origin", "https://evil.example")],
        agent.to_string(),
    )
    .await;
    stolen.with(403);

    assert_eq!(visit(&api, "/phone", &cookie).await.with(200)["total"], 1);
    assert_eq!(
        visit(&api, "/phone", "__Host-trunkline_session=x")
            .await
            .status,
        401
    );

    let with_key = [("Authorization", "Bearer x")];
    assert_eq!(
        ask(&api, "GET", "/phone", &cookie, &with_key, String::new())
            .await
            .status,
        401
    );
    assert_eq!(visit(&api, "/partner/v1/orgs", &cookie).await.status, 401);

    let out = submit(
        &api,
        "/dashboard/logout",
        &cookie,
        &format!("form_token={proof}"),
    )
    .await;

    assert_eq!(out.status, 200);
    assert!(
        out.header("Set-Cookie")
            .is_some_and(|cookie| cookie.starts_with("__Host-trunkline_session=; ")
                && cookie.contains("Max-Age=0"))
    );
    for path in ["/phone", &page, "/dashboard"] {
        assert_eq!(visit(&api, path, &cookie).await.status, 401, "{path}");
    }
}

#[tokio::test]
async fn a_member_sees_everything_and_changes_nothing() {
    let api = TestApi::new().await;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(&api, &reseller, "Acme").await;
    link(&api, &reseller, org, "first@example.org").await;
    let cookie = log_in(
        &api,
        &link(&api, &reseller, org, "second@example.org").await,
    )
    .await;
    let page = format!("/dashboard/{org}");
    let shown = visit(&api, &page, &cookie).await;
    assert_eq!(shown.status, 200);
    assert!(!shown.text.contains("/keys"), "{}", shown.text);
    let targets = shown.text.split("href=\"").skip(1);
    let targets = targets.filter_map(|rest| rest.split('"').next());
    for target in targets.filter(|target| target.starts_with(&page)) {
        let status = visit(&api, target, &cookie).await.status;
        assert_eq!(status, 200, "a link of the page: {target}");
    }

    let fields = format!("form_token={}&scopes=phone%3Aread", form_token(&shown));
    assert_eq!(
        submit(&api, &format!("{page}/keys"), &cookie, &fields)
            .await
            .status,
        403
    );
    for (path, status) in [
        ("/phone", 200),
        ("/phone/calls", 200),
        ("/handoff-analytics/events", 200),
        ("/api-keys", 403),
    ] {
        assert_eq!(visit(&api, path, &cookie).await.status, status, "{path}");
    }
    let refused = ask(
        &api,
        "POST",
        "/phone",
        &cookie,
        &[("Content-Type", "application/json")],
        "{}".into(),
    )
    .await;
    assert_eq!(
        refused.with(403)["message"],
        "This API key lacks the scope phone:write"
    );
}

/// The pages show what the org has, and no agent of another org.
#[tokio::test]
async fn the_pages_show_agents_numbers_trunk_and_handoffs() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let (key, token) = api.key(org, &trunkline::api::SCOPES).await;
    let tenant = Tenant { org, key, token };
    api.agent(org, "Reception").await;
    api.number(org, "+442071838750").await;
    let trunk = api
        .post("/phone/sip/inbound-trunk", &tenant.token, json!({}))
        .await
        .with(201);
    let handoff = json!({"session_id": "s1", "summary": "Wants a person", "reasons": ["user_requested_human_assistance"]});
    api.post("/handoff-analytics/events", &tenant.token, handoff)
        .await
        .with(201);
    let other = api.tenant("Other").await;
    api.agent(other.org, "Foreign").await;
    let username = trunk["auth_username"].as_str().expect("a text");
    for (at, part) in [
        ("", "Acme"),
        ("", "ada@example.org"),
        ("/agents", "Reception"),
        ("/numbers", "+442071838750"),
        ("/trunk", username),
        ("", "Wants a person"),
        ("", "user requested human assistance"),
    ] {
        let shown = visit(&api, &format!("{page}{at}"), &cookie).await.text;
        assert!(shown.contains(part), "{part} is missing from {shown}");
        assert!(!shown.contains("Foreign"));
    }
}

/// The page of a call explains its routing in the words of the API; a call of another org has no page.
#[tokio::test]
async fn a_calls_page_says_why_it_went_there() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let other = api.tenant("Other").await;
    let started = |id: u128, org: Uuid| {
        let facts = trunkline_routing::Facts {
            request_user: Some("<b>030".to_owned()),
            ..trunkline_routing::Facts::default()
        };
        let started = crate::calls::bare(Uuid::from_u128(id), org, &facts);
        Fact::Started(crate::test_api::arc(started))
    };
    api.project(&[started(1, org), started(2, other.org)]).await;
    let list = visit(&api, &page, &cookie).await;
    let path = format!("{page}/calls/{}", Uuid::from_u128(1));
    assert!(list.text.contains(&path), "{}", list.text);
    let shown = visit(&api, &path, &cookie).await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    for part in [
        "The caller at 198.51.100.7 logged in with the trunk&#39;s credentials.",
        "What was dialled is no phone number.",
        "No agent is available: the call is refused.",
        "&lt;b&gt;030",
    ] {
        let text = shown.text.replace("'", "&#39;");
        assert!(text.contains(part), "{part}: {}", shown.text);
    }
    assert!(!shown.text.contains("<b>030"));
    for absent in [
        Uuid::from_u128(2).to_string(),
        Uuid::from_u128(3).to_string(),
        "x".to_owned(),
    ] {
        let answer = visit(&api, &format!("{page}/calls/{absent}"), &cookie).await;
        assert_eq!(answer.status, 404, "{absent}");
    }
    assert_eq!(visit(&api, &path, "").await.status, 401);
}

/// A program that fetches links ahead logs nobody in, and the link still works for the person.
#[tokio::test]
async fn a_login_link_is_not_consumed_by_what_fetches_it_ahead() {
    let api = TestApi::new().await;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(&api, &reseller, "Acme").await;
    let link = link(&api, &reseller, org, "ada@example.org").await;
    for (method, name, value) in [
        ("HEAD", "Accept", "*/*"),
        ("GET", "Sec-Purpose", "prefetch"),
        ("GET", "Sec-Purpose", "prefetch;prerender"),
        ("GET", "Purpose", "prefetch"),
        ("GET", "X-Moz", "prefetch"),
        ("GET", "Sec-Fetch-Dest", "image"),
        ("GET", "Sec-Fetch-Dest", "empty"),
    ] {
        let request = axum::http::Request::builder()
            .method(method)
            .uri(&*link)
            .header(name, value)
            .body(axum::body::Body::empty());
        let ahead = api.send(request).await;
        assert_eq!(ahead.header("Set-Cookie"), None, "{method} {name}: {value}");
        assert_ne!(ahead.status, 303, "{method} {name}: {value}");
    }
    let request = axum::http::Request::get(&*link)
        .header("Sec-Fetch-Dest", "document")
        .body(axum::body::Body::empty());
    let opened = api.send(request).await;
    assert_eq!(opened.status, 303);
    assert_eq!(
        visit(&api, &link, "").await.status,
        410,
        "a link works once"
    );
}

#[tokio::test]
async fn a_link_with_a_button_before_it_is_consumed_by_the_button() {
    let api = TestApi::new().await;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(&api, &reseller, "Acme").await;
    let path = format!("/partner/v1/orgs/{org}/login-links");
    let body = serde_json::json!({"email": "ada@example.org", "confirm": true});
    let made = api.post(&path, &reseller.key, body).await.with(201);
    let url = made["url"].as_str().expect("a text");
    let link = url.strip_prefix("https://dashboard.example").expect("ours");
    // Link scanners use GET too and consume nothing.
    assert_eq!(
        ask(&api, "HEAD", link, "", &[], String::new()).await.status,
        200
    );
    for _ in 0..2 {
        let page = visit(&api, link, "").await;
        assert_eq!((page.status, page.header("Set-Cookie")), (200, None));
        assert!(page.text.contains("<button>"), "{}", page.text);
    }
    let (to, token) = link.split_once('?').expect("a token");
    assert!(!token.is_empty());
    let press = async |origin: &str| {
        let more = [
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Origin", origin),
        ];
        ask(&api, "POST", to, "", &more, token.to_owned()).await
    };
    assert_eq!(press("https://evil.example").await.status, 403);
    assert_eq!(press("http://dashboard.example").await.status, 403);
    let opened = press("https://dashboard.example").await;
    assert_eq!(opened.status, 303);
    let place = format!("/dashboard/{org}");
    assert_eq!(opened.header("Location"), Some(&*place));
    let cookie = opened.header("Set-Cookie").expect("a cookie");
    let cookie = cookie.split(';').next().expect("a pair");
    assert_eq!(visit(&api, &place, cookie).await.status, 200);
    assert_eq!(press("https://dashboard.example").await.status, 410);
    assert_eq!(visit(&api, link, "").await.status, 410);
}

#[tokio::test]
async fn a_partner_sees_who_is_logged_in_and_logs_them_out() {
    let api = TestApi::new().await;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(&api, &reseller, "Acme").await;
    let mut cookies = Vec::new();
    for email in ["ada@example.org", "bob@example.org", "cy@example.org"] {
        pass(1);
        let link = link(&api, &reseller, org, email).await;
        cookies.push(log_in(&api, &link).await);
    }
    let sessions = format!("/partner/v1/orgs/{org}/sessions");
    let listed = api.get(&sessions, &reseller.key).await.with(200);
    let emails = listed["items"].as_array().expect("items").iter();
    let emails: Vec<_> = emails.map(|item| item["email"].clone()).collect();
    assert_eq!(
        emails,
        ["cy@example.org", "bob@example.org", "ada@example.org"]
    );
    assert_eq!(listed["total"], 3);
    let ada = format!("{sessions}?email=Ada@example.org");
    let ada = api.get(&ada, &reseller.key).await.with(200);
    assert_eq!(
        (&ada["total"], &ada["items"][0]["email"]),
        (&1.into(), &"ada@example.org".into())
    );
    let pages = crate::test_api::walk(&api, &sessions, &reseller.key, 1, "email").await;
    assert_eq!(pages, emails);

    let page = format!("/dashboard/{org}");
    let bob = listed["items"][1]["id"].as_str().expect("an id");
    api.delete(&format!("{sessions}/{bob}"), &reseller.key)
        .await
        .with(200);
    api.delete(&format!("{sessions}/{bob}"), &reseller.key)
        .await
        .with(404);
    let foreign = api.reseller("Other").await;
    let other = org_of(&api, &foreign, "Other").await;
    let ada = listed["items"][2]["id"].as_str().expect("an id");
    let theirs = format!("/partner/v1/orgs/{other}/sessions/{ada}");
    api.delete(&theirs, &foreign.key).await.with(404);
    let ours = format!("{sessions}/{ada}");
    api.delete(&ours, &foreign.key).await.with(403);
    let seen = async |cookie: &str| visit(&api, &page, cookie).await.status;
    assert_eq!(seen(&cookies[1]).await, 401);
    assert_eq!(seen(&cookies[0]).await, 200);
    api.delete(&sessions, &reseller.key).await.with(200);
    for cookie in &cookies {
        assert_eq!(seen(cookie).await, 401);
    }
    assert_eq!(
        api.get(&sessions, &reseller.key).await.with(200)["total"],
        0
    );
}
