//! Pages of the console: forms that are older than their objects, and every page by every role.

use serde_json::json;

use crate::dashboard::session;
use crate::home::{Asker, Home, Of, rows};
use crate::house::{House, pass};
use crate::pages::{form_token, log_in, submit, visit};

/// Two people who edit one agent: the second is shown both values, and saves again or doesn't.
#[tokio::test]
async fn a_form_that_is_older_than_its_object_changes_nothing() {
    let house = House::new().await;
    let (org, cookie, page) = session(&house).await;
    let agent = house.agent(org, "Reception").await;
    let page = format!("{page}/agents/{agent}");
    let shown = visit(&house, &page, &cookie).await;
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

    let first = submit(&house, &page, &cookie, &fields("Day+shift")).await;
    assert_eq!(first.status, 303, "{}", first.text);

    let second = submit(&house, &page, &cookie, &fields("Night+shift")).await;
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

    let kept = visit(&house, &page, &cookie).await.text;
    assert!(kept.contains("value=\"Day shift\"") && !kept.contains("Night shift"));
}

/// Every page by every role: a member is shown no credential, and changes nothing.
#[tokio::test]
async fn pages_keep_to_the_role_of_the_session() {
    let house = House::new().await;
    let home = Home::new(&house, 7).await;
    let org = &home.ids["org_id"];
    let (_, partner) = home.partner.header.as_ref().expect("a key");
    let links = format!("/partner/v1/orgs/{org}/login-links");
    let partner = partner.trim_start_matches("Bearer ").to_owned();
    let body = json!({"email": "member@example.org"});
    let made = house.post(&links, &partner, body).await.with(201);
    let url = made["url"].as_str().expect("a text");
    let link = url.strip_prefix("https://dashboard.example").expect("ours");
    let cookie = log_in(&house, link).await;
    let proof = form_token(&visit(&house, &format!("/dashboard/{org}"), &cookie).await);
    let member = Asker::cookie(&cookie, proof);

    let trunk = home.get(&house, "/phone/sip/inbound-trunk").await.with(200);
    let password = trunk["auth_password"].as_str().expect("a password");
    let rows = rows();
    let pages = rows.iter().filter(|row| row.of == Of::Page);
    for row in pages {
        let answer = row.ask(&house, &home, &member).await;
        let is_administrators = ["/webhooks", "/keys", "/audit", "/new"]
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
