//! Pages of the console: forms that are older than their objects, and every page by every role.

use serde_json::json;

use crate::dashboard::session;
use crate::pages::{ask, form_token, link, log_in, org_of, submit, visit};
use crate::test_api::{TestApi, pass};
use crate::test_org::{Asker, Of, TestOrg, rows};

/// Two people edit one agent: the second is shown both values, and saves again or doesn't.
#[tokio::test]
async fn a_form_that_is_older_than_its_object_changes_nothing() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let agent = api.agent(org, "Reception").await;
    let page = format!("{page}/agents/{agent}");
    let shown = visit(&api, &page, &cookie).await;
    let field = |name: &str| {
        let (_, rest) = shown
            .text
            .split_once(&format!("name=\"{name}\" value=\""))
            .expect(name);
        rest.split('"').next().expect("a value").to_owned()
    };

    let proof = form_token(&shown);
    let version = field("version").replace(':', "%3A");
    let fields = |name: &str| {
        let language = field("language");
        format!(
            "form_token={proof}&version={version}&name={name}&enabled=on&type=inbound&language={language}"
        )
    };
    pass(1);

    let first = submit(&api, &page, &cookie, &fields("Day+shift")).await;
    assert_eq!(first.status, 303, "{}", first.text);

    let second = submit(&api, &page, &cookie, &fields("Night+shift")).await;
    assert_eq!(second.status, 409, "{}", second.text);

    let table = second
        .text
        .split_once("id=\"conflict\"")
        .expect("both values")
        .1;
    let table = table.split_once("</table>").expect("a table").0;
    assert!(
        table.contains("Night shift") && table.contains("Day shift"),
        "{table}"
    );

    let kept = visit(&api, &page, &cookie).await.text;
    assert!(kept.contains("value=\"Day shift\"") && !kept.contains("Night shift"));
}

/// Pages over plain HTTP are served to the daemon's own machine only, and a refused request uses no login link up.
#[tokio::test]
async fn pages_over_plain_http_are_for_this_machine() {
    let api = TestApi::new().await;
    let reseller = api.reseller("Reseller").await;
    let org = org_of(&api, &reseller, "Acme").await;
    let link = link(&api, &reseller, org, "ada@example.org").await;
    let from = async |peer: &str, path: &str, proto: Option<&str>, cookie: &str| {
        let peer: std::net::SocketAddr = peer.parse().expect("an address");
        let mut request = axum::http::Request::get(path).header("Cookie", cookie);
        if let Some(proto) = proto {
            request = request
                .header("X-Forwarded-For", "192.0.2.7")
                .header("X-Forwarded-Proto", proto);
        }
        let request = request.extension(axum::extract::ConnectInfo(peer));
        api.send(request.body(axum::body::Body::empty())).await
    };

    for (peer, proto) in [
        ("192.0.2.7:1000", None),
        ("192.0.2.7:1000", Some("https")),
        ("127.0.0.1:1000", Some("http")),
    ] {
        for path in [&*link, "/", "/dashboard", "/partner-login"] {
            let refused = from(peer, path, proto, "").await;
            assert_eq!(refused.status, 403, "{peer} {proto:?} {path}");
            assert!(refused.text.contains("The console needs HTTPS"), "{path}");
            assert_eq!(refused.header("Set-Cookie"), None);
        }
        let api = from(peer, "/healthz", proto, "").await;
        assert_eq!(api.status, 200, "the API is another matter");
    }

    let opened = from("127.0.0.1:1000", &link, Some("https"), "").await;
    assert_eq!(opened.status, 303, "{}", opened.text);
    let cookie = opened.header("Set-Cookie").expect("a cookie");
    let cookie = cookie.split(';').next().expect("a pair");
    let page = format!("/dashboard/{org}");
    assert_eq!(
        from("127.0.0.1:1000", &page, None, cookie).await.status,
        200
    );
    assert_eq!(
        from("192.0.2.7:1000", &page, None, cookie).await.status,
        403
    );

    let api = TestApi::with("[http]\nallow_plain_console = true\n").await;
    let request = axum::http::Request::get("/dashboard").extension(axum::extract::ConnectInfo(
        std::net::SocketAddr::from(([192, 0, 2, 7], 1)),
    ));
    let asked = api.send(request.body(axum::body::Body::empty())).await;
    assert_eq!(asked.status, 401, "{}", asked.text);
}

/// Each number is added and removed on its own, so that two people who change different numbers of one agent don't undo each other's changes.
#[tokio::test]
async fn numbers_of_an_agent_are_changed_one_by_one() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let agent = api.agent(org, "Reception").await;
    let other = api.agent(org, "Sales").await;
    let mut ids = Vec::new();

    let numbers = ["+442071838750", "+442071838751", "+442071838752"];
    for number in numbers {
        ids.push(api.number(org, number).await.id);
    }

    let page_of = |agent| format!("{page}/agents/{agent}");
    let proof = form_token(&visit(&api, &page_of(agent), &cookie).await);
    let send = async |agent, at: &str, field: String| {
        let at = format!("{}/inbound-numbers{at}", page_of(agent));
        let fields = format!("form_token={proof}&{field}").replace('+', "%2B");
        submit(&api, &at, &cookie, &fields).await
    };
    let add =
        async |agent, number: usize| send(agent, "", format!("number={}", numbers[number])).await;
    let remove = async |agent, number: usize| {
        send(agent, "/remove", format!("number_id={}", ids[number])).await
    };
    let own = async |agent| {
        let shown = visit(&api, &page_of(agent), &cookie).await.text;
        let is_own = |number: &str| shown.contains(&format!("aria-label=\"Remove {number}\""));
        (0..ids.len())
            .filter(|number| is_own(numbers[*number]))
            .collect::<Vec<_>>()
    };

    assert_eq!(add(agent, 0).await.status, 303);
    assert_eq!(own(agent).await, [0]);
    // Both have loaded the page with the first number: one adds the second, the other removes the first.
    assert_eq!(add(agent, 1).await.status, 303);
    assert_eq!(remove(agent, 0).await.status, 303);
    assert_eq!(own(agent).await, [1]);

    // A number that another agent has got meanwhile stays there.
    assert_eq!(add(other, 2).await.status, 303);
    let taken = add(agent, 2).await;
    assert_eq!(taken.status, 409, "{}", taken.text);
    assert_eq!(remove(agent, 2).await.status, 404);
    assert_eq!((own(agent).await, own(other).await), (vec![1], vec![2]));

    let foreign = api.tenant("Other").await;
    let foreign = api.number(foreign.org, "+442071838760").await;
    for (named, status) in [
        (foreign.id.to_string(), 400),
        (foreign.number.to_string(), 400),
        ("0207".to_owned(), 400),
    ] {
        let refused = send(agent, "", format!("number={named}")).await;
        assert_eq!(refused.status, status, "{named}: {}", refused.text);
    }
    assert_eq!(own(agent).await, [1]);
}

/// A destination is given to an agent and taken from it again.
#[tokio::test]
async fn a_destination_is_assigned_and_taken_away() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let agent = api.agent(org, "Reception").await;
    let proof = form_token(&visit(&api, &page, &cookie).await);
    let fields = format!("form_token={proof}&name=Desk&type=phone&value=%2B442071838751&via=pbx");
    let made = submit(&api, &format!("{page}/destinations"), &cookie, &fields).await;
    let made = made.header("Location").expect("its page");
    let destination = made.rsplit('/').next().expect("an id").to_owned();

    let page = format!("{page}/agents/{agent}");
    let fields = format!("form_token={proof}&destination_id={destination}");
    let own = async || {
        let shown = visit(&api, &page, &cookie).await.text;
        shown.contains("aria-label=\"Remove Desk\"")
    };
    assert!(!own().await);

    for (at, is_own) in [("destinations", true), ("destinations/remove", false)] {
        let done = submit(&api, &format!("{page}/{at}"), &cookie, &fields).await;
        assert_eq!(done.status, 303, "{at}: {}", done.text);
        assert_eq!(own().await, is_own, "{at}");
    }

    let again = submit(
        &api,
        &format!("{page}/destinations/remove"),
        &cookie,
        &fields,
    )
    .await;
    assert_eq!(again.status, 404);

    let wrong = format!("form_token={proof}&destination_id=..%2Fx");
    let wrong = submit(
        &api,
        &format!("{page}/destinations/remove"),
        &cookie,
        &wrong,
    )
    .await;
    assert_eq!(wrong.status, 404);
}

/// A call's page has the handoffs of its session, and last week's calls are routed again as if something were changed.
#[tokio::test]
async fn handoffs_and_supposed_changes_are_shown() {
    let api = TestApi::new().await;
    let test_org = TestOrg::new(&api, 7).await;
    let (org, call) = (&test_org.ids["org_id"], &test_org.ids["call_id"]);
    let (_, cookie) = test_org.session.header.as_ref().expect("a cookie");

    let record = test_org.get(&api, &format!("/phone/calls/{call}")).await;
    let session = record.with(200)["session_id"].clone();
    let shown = format!("/dashboard/{org}/calls/{call}");
    assert!(
        !visit(&api, &shown, cookie)
            .await
            .text
            .contains("A plumber is wanted")
    );

    let handoff = json!({"session_id": session, "summary": "A plumber is wanted", "reasons": ["prohibited_topic"]});
    let (_, key) = test_org.key.header.as_ref().expect("a key");
    let key = key.trim_start_matches("Bearer ").to_owned();
    api.post("/handoff-analytics/events", &key, handoff)
        .await
        .with(201);
    let page = visit(&api, &shown, cookie).await.text;
    assert!(
        page.contains("A plumber is wanted") && page.contains("prohibited topic"),
        "{page}"
    );

    let agent = &test_org.ids["agent_id"];
    let supposed = format!(
        "/dashboard/{org}/route-test?replay=week&agent={agent}&enabled=false&number=&holder=none"
    );

    for at in [format!("/dashboard/{org}/route-test?replay=week"), supposed] {
        let replayed = visit(&api, &at, cookie).await;
        assert_eq!(replayed.status, 200, "{}", replayed.text);
        assert!(
            replayed.text.contains("would have gone to another agent."),
            "{}",
            replayed.text
        );
    }
    let wrong = format!("/dashboard/{org}/route-test?replay=week&agent=x&enabled=false");
    let refused = visit(&api, &wrong, cookie).await;
    assert!(refused.text.contains("role=\"alert\""), "{}", refused.text);
}

/// A colleague's link in a web mail opens the page, which decides although its own request to the API is a `POST`.
#[tokio::test]
async fn a_link_of_another_site_opens_a_decision() {
    let api = TestApi::new().await;
    let test_org = TestOrg::new(&api, 7).await;
    let org = &test_org.ids["org_id"];
    let (_, cookie) = test_org.session.header.as_ref().expect("a cookie");
    let from = [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "navigate"),
    ];

    for (query, shown) in [
        ("to=%2B442071838750", "id=\"decision\""),
        ("replay=week", "would have gone to another agent."),
    ] {
        let page = format!("/dashboard/{org}/route-test?{query}");
        let opened = ask(&api, "GET", &page, cookie, &from, String::new()).await;
        assert_eq!(opened.status, 200, "{}", opened.text);
        assert!(opened.text.contains(shown), "{}", opened.text);
    }
}

/// Every page by every role: a member sees no credential and changes nothing.
#[tokio::test]
async fn pages_keep_to_the_role_of_the_session() {
    let api = TestApi::new().await;
    let test_org = TestOrg::new(&api, 7).await;
    let org = &test_org.ids["org_id"];
    let (_, partner) = test_org.partner.header.as_ref().expect("a key");
    let links = format!("/partner/v1/orgs/{org}/login-links");
    let partner = partner.trim_start_matches("Bearer ").to_owned();
    let body = json!({"email": "member@example.org"});
    let made = api.post(&links, &partner, body).await.with(201);
    let url = made["url"].as_str().expect("a text");
    let link = url.strip_prefix("https://dashboard.example").expect("ours");
    let cookie = log_in(&api, link).await;
    let proof = form_token(&visit(&api, &format!("/dashboard/{org}"), &cookie).await);
    let member = Asker::cookie(&cookie, proof);

    let trunk = test_org
        .get(&api, "/phone/sip/inbound-trunk")
        .await
        .with(200);
    let password = trunk["auth_password"].as_str().expect("a password");
    let rows = rows();
    let pages = rows.iter().filter(|row| row.of == Of::Page);

    for row in pages {
        let answer = row.ask(&api, &test_org, &member).await;
        let is_administrators = ["/webhooks", "/keys", "/audit", "/new", "/phone"]
            .iter()
            .any(|part| row.path.contains(part));
        let expected = match row.method {
            "get" if !is_administrators => 200,
            _ => 403,
        };
        assert_eq!(
            answer.status,
            expected,
            "{}: {}",
            row.operation(),
            answer.text
        );
        assert!(!answer.text.contains(password), "{}", row.operation());
    }
}

/// The operator's session: its link works once, it opens the operator's pages only, commands see its changes, and the audit log has them.
#[tokio::test]
async fn the_operator_has_pages_of_the_installation() {
    let api = TestApi::new().await;
    let (org, admin, _) = session(&api).await;
    let link = api.state.operators_link(7);
    let path = link
        .strip_prefix("https://dashboard.example")
        .expect("ours");
    let (at, token) = path.split_once('?').expect("a token");

    // GET doesn't consume the link.
    for _ in 0..2 {
        let looked = visit(&api, path, "").await;
        assert_eq!((looked.status, looked.header("Set-Cookie")), (200, None));
    }

    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let evil = [form, ("Origin", "https://evil.example")];
    let foreign = ask(&api, "POST", at, "", &evil, token.to_owned()).await;
    assert_eq!(foreign.status, 403);

    let opened = submit(&api, at, "", token).await;
    assert_eq!(opened.header("Location"), Some("/operator-console"));
    let cookie = opened.header("Set-Cookie").expect("a cookie").to_owned();
    for part in [
        "Path=/operator-console;",
        "HttpOnly",
        "SameSite=Strict",
        "Secure",
    ] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert_eq!(
        submit(&api, at, "", token).await.status,
        410,
        "a link works once"
    );

    let cookie = cookie.split(';').next().expect("a pair");
    let home = visit(&api, "/operator-console", cookie).await;
    assert!(home.text.contains("Acme"), "{}", home.text);

    let page = format!("/operator-console/orgs/{org}");
    let proof = form_token(&home);
    let foreign = [form, ("Origin", "https://dashboard.example")];
    let unproven = ask(
        &api,
        "POST",
        &format!("{page}/suspend"),
        cookie,
        &foreign,
        "form_token=x".into(),
    )
    .await;
    assert_eq!(unproven.status, 403);

    let own_page = visit(&api, &format!("/dashboard/{org}"), &admin).await;
    let own_proof = form_token(&own_page);
    let suspended = submit(
        &api,
        &format!("{page}/suspend"),
        cookie,
        &format!("form_token={proof}"),
    )
    .await;
    assert_eq!(suspended.status, 303, "{}", suspended.text);
    let shown = visit(&api, &page, cookie).await.text;
    assert!(shown.contains("suspended by operator"), "{shown}");
    let refused = visit(&api, &format!("/dashboard/{org}"), &admin).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let own_proof = format!("form_token={own_proof}");
    let out = submit(&api, "/dashboard/logout", &admin, &own_proof).await;
    assert_eq!(out.status, 200, "a suspended org's people can log out");

    let wrong = format!("form_token={proof}&agents=many&was_agents=1000");
    let wrong = submit(&api, &format!("{page}/limits"), cookie, &wrong).await;
    assert_eq!(wrong.status, 400);
    assert!(wrong.text.contains("agents"), "{}", wrong.text);

    let log = visit(&api, "/operator-console/audit", cookie).await.text;
    assert!(log.contains("operator, uid 7, on the console"), "{log}");
    assert!(log.contains("POST /operator/orgs/{orgId}/suspend"), "{log}");

    // Neither session opens the other's pages, and the operator's doesn't open the API.
    assert_eq!(visit(&api, "/operator-console", &admin).await.status, 401);
    assert_eq!(
        visit(&api, &format!("/dashboard/{org}"), cookie)
            .await
            .status,
        401
    );

    for path in ["/phone", "/partner/v1/orgs"] {
        assert_eq!(visit(&api, path, cookie).await.status, 401, "{path}");
    }
    for path in ["/operator/orgs", "/operator/audit"] {
        assert_eq!(visit(&api, path, cookie).await.status, 404, "{path}");
    }

    pass(4 * 3600);
    assert_eq!(visit(&api, "/operator-console", cookie).await.status, 401);
    let late = api.state.operators_link(7);
    pass(5 * 60);
    let (_, token) = late.split_once('?').expect("a token");
    assert_eq!(
        submit(&api, at, "", token).await.status,
        410,
        "five minutes"
    );
}

/// A bot is attached, its token made and rotated, old credentials are ended, and usage and changes are found, all on the pages.
#[tokio::test]
async fn a_person_needs_no_key_for_a_bot_and_its_figures() {
    let api = TestApi::new().await;
    let (org, cookie, page) = session(&api).await;
    let agent = api.agent(org, "Reception").await;
    let proof = form_token(&visit(&api, &page, &cookie).await);
    let done = async |at: &str, fields: &str| {
        let fields = format!("form_token={proof}&{fields}");
        submit(&api, &format!("{page}/{at}"), &cookie, &fields).await
    };

    let typed = "name=Bot&type=inbound&language=en&first_message=Hello&runtime.type=websocket&runtime.uri=wss%3A%2F%2Fbot.example.com%2F";
    let made = done("agents", typed).await;
    assert_eq!(made.status, 303, "{}", made.text);
    let bot = made.header("Location").expect("its page").to_owned();
    let shown = visit(&api, bot.split('?').next().expect("a path"), &cookie).await;
    assert!(
        shown.text.contains("value=\"wss://bot.example.com/\""),
        "{}",
        shown.text
    );

    let first = done("keys/bot-token", "").await;
    assert!(first.text.contains("shown this once"), "{}", first.text);
    let keys = visit(&api, &format!("{page}/keys"), &cookie).await.text;
    assert!(keys.contains("Signs since") && !keys.contains("Let the next token sign"));
    assert_eq!(done("keys/bot-token/promote", "").await.status, 409);
    assert_eq!(done("keys/bot-token", "").await.status, 200);
    let keys = visit(&api, &format!("{page}/keys"), &cookie).await.text;
    assert!(keys.contains("Let the next token sign"), "{keys}");
    assert_eq!(done("keys/bot-token/promote", "").await.status, 303);
    assert_eq!(done("keys/bot-token/delete", "").await.status, 303);

    api.number(org, "+12025550123").await;
    assert_eq!(done("trunk/create", "").await.status, 303);
    assert_eq!(done("trunk/rotate-credentials", "").await.status, 303);
    let trunk = visit(&api, &format!("{page}/trunk"), &cookie).await.text;
    assert!(trunk.contains("Still good"), "{trunk}");
    assert_eq!(done("trunk/end-old-credentials", "").await.status, 303);
    let trunk = visit(&api, &format!("{page}/trunk"), &cookie).await.text;
    assert!(!trunk.contains("Still good"), "{trunk}");

    let usage = visit(&api, &format!("{page}/usage?group_by=agent"), &cookie).await;
    assert!(usage.text.contains("There was no call"), "{}", usage.text);
    let csv = visit(&api, &format!("{page}/usage.csv"), &cookie).await;
    assert!(csv.text.starts_with("day,"), "{}", csv.text);

    let of_people = visit(&api, &format!("{page}/audit?actor=dashboard"), &cookie).await;
    assert!(of_people.text.contains("rotate-credentials"));
    let of_keys = visit(&api, &format!("{page}/audit?actor=org_key"), &cookie).await;
    assert!(
        of_keys.text.contains("No change matches"),
        "{}",
        of_keys.text
    );

    let of_agent = visit(&api, &format!("{page}/audit?resource_id={agent}"), &cookie).await;
    assert!(!of_agent.text.contains("rotate-credentials"));
    let wrong = visit(&api, &format!("{page}/audit?start_date=today"), &cookie).await;
    assert!(
        wrong.text.contains("is not an ISO 8601 date or time"),
        "{}",
        wrong.text
    );
    assert!(
        csv.header("Content-Disposition")
            .expect("a file")
            .contains("usage.csv")
    );
}
