//! A person with a browser: logs in by the link, makes, uses and revokes a key, and logs out; reads calls with the keyboard alone.
//! `TRUNKLINE_TEST_API_ON=postgres` puts the daemon on PostgreSQL, as it does the API's tests.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::web::webdriver::Browser;
use trunkline_testkit::database::Database;
use trunkline_testkit::{Daemon, DaemonSetup, http, tools};

/// The database outlives the daemon.
fn setup() -> (DaemonSetup, Option<Database>) {
    match std::env::var("TRUNKLINE_TEST_API_ON").as_deref() {
        Ok("postgres") => {
            let database = Database::new().expect("the server is named");
            let setup = DaemonSetup::with(Ipv4Addr::LOCALHOST.into(), database.settings());
            (setup, Some(database))
        }
        Ok(other) => panic!("TRUNKLINE_TEST_API_ON is {other}, not postgres"),
        Err(_) => (DaemonSetup::new(), None),
    }
}

#[test]
fn a_person_makes_uses_and_revokes_a_key() {
    if !tools(&["chromium", "chromedriver"]) {
        return;
    }

    let (setup, _database) = setup();
    let partner = setup.run(&["partner", "create", "--name", "Reseller", "--json"]);
    let id = partner["id"].as_str().expect("an id");
    let made = setup.run(&["partner", "key", "create", "--partner", id, "--json"]);
    let partner_key = made["partner_key"].as_str().expect("a key").to_owned();
    let daemon = setup.serve();
    let at = daemon.setup.http;
    let post = |path: &str, key: &str, body: Value| http::change("POST", at, path, key, &body);
    let (status, org) = post(
        "/partner/v1/orgs",
        &partner_key,
        json!({"name": "Harbour Tours"}),
    );
    assert_eq!(status, 201, "{org}");

    let org = org["id"].as_str().expect("an id").to_owned();
    let keys = format!("/partner/v1/orgs/{org}/api-keys");
    let key = post(&keys, &partner_key, json!({})).1["api_key"]
        .as_str()
        .expect("a key")
        .to_owned();
    let agent = json!({"name": "Reception", "type": "inbound", "language": "en", "first_message": "Hello", "use_org_knowledgebase": true});
    assert_eq!(post("/phone", &key, agent).0, 201);

    let handoff = json!({"session_id": "s-1", "summary": "The guest wants to move a booking for twelve people and asks for a human.", "reasons": ["user_requested_human_assistance"], "sentiment": "neutral"});
    assert_eq!(post("/handoff-analytics/events", &key, handoff).0, 201);
    let links = format!("/partner/v1/orgs/{org}/login-links");
    let (_, link) = post(
        &links,
        &partner_key,
        json!({"email": "ada@example.org", "name": "Ada"}),
    );
    let link = link["url"].as_str().expect("a link");

    let browser = Browser::start();
    browser.open(link);
    let home = format!("http://{at}/dashboard/{org}");
    let page = |below: &str| format!("{home}/{below}");
    assert_eq!(browser.url(), home);

    browser.shows("h1", "Overview");
    assert!(browser.text("#handoffs").contains("move a booking"));
    assert!(browser.text("#steps").contains("Create the inbound trunk"));
    browser.screenshot("overview");
    assert_eq!(
        browser.script("return document.cookie"),
        "",
        "script reads the session"
    );
    browser.open(&page("agents"));
    assert!(browser.text("#agents").contains("Reception"));

    browser.open(&page("keys"));
    browser.fill("#field-name", "Night shift");
    // With the keyboard: Enter in the field.
    browser.fill("#field-name", "\u{e007}");
    let new = browser.appears("#new-key");
    browser.screenshot("key");
    let phone = |key: &str| http::get(at, "/phone", Some(key)).expect("an answer").0;
    assert_eq!(phone(&new), 200);

    browser.open(&page("keys"));
    assert_eq!(browser.count("#new-key"), 0);
    assert!(
        !browser
            .script("return document.documentElement.outerHTML")
            .to_string()
            .contains(&new)
    );

    fits_a_phone(&browser);
    browser.screenshot("narrow");
    browser.resize(1280, 900);
    assert!(browser.text("#keys tbody tr").contains("Night shift"));
    browser.click("#keys tbody tr details summary");
    browser.screenshot("revoke");
    browser.click("#keys tbody tr details button");
    browser.gone("#keys", "Night shift");
    assert_eq!(browser.url(), page("keys"));
    assert_eq!(phone(&new), 401);

    browser.click(".account form button");
    browser.shows("h1", "You are logged out");
    browser.open(&home);
    browser.shows("h1", "You are logged out");
    browser.open(link);
    browser.shows("h1", "This login link is no longer good");
    browser.screenshot("used");
    assert!(!daemon.log().contains(&new));
    drop(browser);
}

/// Makes a login link for the org that `quickstart` made.
pub(crate) fn link_to(daemon: &Daemon) -> String {
    let partners = daemon.setup.run(&["partner", "list", "--json"]);
    let id = partners[0]["id"].as_str().expect("an id");
    let key = ["partner", "key", "create", "--partner", id, "--json"];
    let key = daemon.setup.run(&key);
    let (at, key) = (
        daemon.setup.http,
        key["partner_key"].as_str().expect("a key"),
    );
    let org = format!("/partner/v1/orgs/{}", daemon.setup.org);

    // The operator's account, which `quickstart` makes, is the org's first: a later account needs a role to change anything.
    let roles = http::json(at, &format!("{org}/roles"), key);
    let mut roles = roles["items"].as_array().expect("a list").iter();
    let admin = roles
        .find(|role| role["name"] == "admin")
        .expect("the role");
    let person = json!({"email": "ada@example.org", "name": "Ada", "role_ids": [admin["id"]]});
    let (status, link) = http::change("POST", at, &format!("{org}/login-links"), key, &person);
    assert_eq!(status, 201, "{link}");
    link["url"].as_str().expect("a link").to_owned()
}

/// Checks that the page is no wider than a phone.
fn fits_a_phone(browser: &Browser) {
    // Browser windows have a minimum width above a phone's.
    browser.resize(500, 844);
    browser.script("document.documentElement.style.width = '390px'");
    let widest = browser.script("return document.body.scrollWidth");
    assert!(
        widest.as_u64().is_some_and(|width| width <= 390),
        "wider than a phone: {widest}"
    );
}

#[test]
fn a_person_reads_of_calls_without_a_mouse() {
    if !tools(&["chromium", "chromedriver", "sipp"]) {
        return;
    }

    let (setup, _database) = setup();
    let daemon = setup.serve();
    let link = link_to(&daemon);
    let browser = Browser::start();
    browser.open(&link);
    assert!(browser.text("#calls").contains("There was no call yet."));
    assert!(
        browser
            .text("#handoffs")
            .contains("Nothing was handed to a human yet.")
    );

    let caller = daemon.caller().talks(Duration::from_secs(20));
    let caller = caller.play("caller_hangs_up");
    let call = daemon.answered_call();
    browser.open(&format!("http://{}/dashboard", daemon.setup.http));
    let up = browser.text("#calls tbody tr");
    assert!(up.contains("in progress"), "{up}");
    assert!(up.contains("+441632960001"), "{up}");
    daemon.hang_up(&call);
    drop(caller);

    const ENTER: char = '\u{e007}';
    browser.open(&format!("http://{}/dashboard", daemon.setup.http));
    // The first focusable element skips the rest of the head.
    browser.tab_to("a.skip");
    browser.screenshot("skip");
    browser.press(ENTER);
    browser.tab_to(&format!("#calls a[href$='{call}']"));
    browser.press(ENTER);
    let title = format!("Call from +441632960001 to {}", daemon.setup.first_number);
    browser.shows("h1", &title);
    assert!(browser.text("main").contains("completed"));
    assert!(browser.count(".ladder summary") >= 4);

    // A message opens to its text without a mouse.
    browser.tab_to(".ladder summary");
    browser.press(ENTER);
    assert!(browser.text("#m0 pre").starts_with("INVITE sip:"));
    browser.screenshot("call");
    fits_a_phone(&browser);
    browser.screenshot("call-narrow");
    browser.resize(1280, 900);
    browser.open(&format!("http://{}/dashboard", daemon.setup.http));
    fits_a_phone(&browser);
    browser.script("document.querySelector('#calls').scrollIntoView()");
    browser.screenshot("calls-narrow");
}
