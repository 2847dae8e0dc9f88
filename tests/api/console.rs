//! Pages of the console: forms that are older than their objects, and every page by every role.

use serde_json::json;

use crate::dashboard::session;
use crate::pages::{form_token, log_in, submit, visit};
use crate::test_api::{TestApi, pass};
use crate::test_org::{Asker, Of, TestOrg, rows};

/// Two people who edit one agent: the second is shown both values, and saves again or doesn't.
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

/// Every page by every role: a member is shown no credential, and changes nothing.
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
