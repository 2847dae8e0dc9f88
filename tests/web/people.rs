//! People at the console while calls are up: a transfer from a call's page, a wrong password as it is typed, two editors of one agent, more tabs than
//! a browser has connections, and texts of hostile peers.

use std::time::Duration;

use serde_json::json;
use trunkline_testkit::referred::Step::{Answer, ByeComes, Notify, Pause, Refer};
use trunkline_testkit::{Credentials, tools};

use crate::web::browser::link_to;
use crate::web::console::session;
use crate::web::webdriver::Browser;

const NUMBER: &str = "+442071838751";

#[test]
fn a_transfer_from_the_page_arrives_at_the_phone_system() {
    if !tools(&["chromium", "chromedriver", "sipp"]) {
        return;
    }
    let (daemon, browser, home) = session();
    daemon.destination("Sales", "phone", NUMBER);
    let pbx = daemon.caller().takes(&[
        Refer,
        Answer("202 Accepted", ""),
        Pause(1_000),
        Notify("SIP/2.0 200 OK", "terminated;reason=noresource"),
        ByeComes,
    ]);
    let call = daemon.answered_call();

    browser.open(&format!("{home}/live"));
    browser.changes_to("#up tbody tr", |text| text.contains("in progress"));
    browser.click("#up a.button");
    assert_eq!(browser.appears("form.transfer select"), "Sales");
    browser.click("form.transfer button");
    let trace = pbx.finish();
    let to = trace.request("REFER").header("Refer-To").expect("a target");
    assert!(to.starts_with(&format!("<sip:{NUMBER}@")), "{trace}");

    browser.open(&format!("{home}/calls/{call}"));
    browser.changes_to("#outcome", |text| text.contains("transferred"));
    assert!(browser.text("#transfer").contains("Sales"));
}

#[test]
fn a_wrong_password_shows_on_the_trunks_page_without_a_reload() {
    if !tools(&["chromium", "chromedriver", "sipp"]) {
        return;
    }
    let (daemon, browser, home) = session();
    browser.open(&format!("{home}/trunk"));
    assert!(browser.text("#failures").contains("No log-in has failed."));
    browser.script(
        "window.isStillHere = true;
         const shows = () => document.querySelector('#failures tbody tr');
         const look = () => { if (shows()) window.seen ??= Date.now(); };
         new MutationObserver(look).observe(document.querySelector('[data-stream]'), {childList: true, subtree: true});",
    );

    let mut caller = daemon.caller();
    caller.credentials = Credentials {
        password: "guess".to_owned(),
        ..caller.credentials
    };
    let caller = caller.play("caller_hangs_up");
    let row = browser.changes_to("#failures tbody tr", |text| !text.is_empty());
    drop(caller);
    assert!(row.contains("password"), "{row}");
    assert_eq!(browser.script("return window.isStillHere"), true);

    let after = browser.script(
        "return window.seen - new Date(document.querySelector('#failures tbody tr:last-child time').dateTime)",
    );
    println!("it shows {after} ms after the log-in");
}

#[test]
fn two_people_who_edit_one_agent_see_the_conflict() {
    if !tools(&["chromium", "chromedriver"]) {
        return;
    }
    let (daemon, ada, home) = session();
    let bob = Browser::start();
    bob.open(&link_to(&daemon));
    let page = format!("{home}/agents/{}", daemon.setup.first_agent);
    for browser in [&ada, &bob] {
        browser.open(&page);
    }

    let named = |browser: &Browser, name: &str| {
        browser.script("document.querySelector('#field-name').value = ''");
        browser.fill("#field-name", name);
        browser.click("form.card button[type=submit]");
    };
    named(&ada, "Day shift");
    ada.appears(".banner.good");
    named(&bob, "Night shift");
    let both = bob.appears("#conflict");
    assert!(
        both.contains("Day shift") && both.contains("Night shift"),
        "{both}"
    );
    bob.screenshot("conflict");

    // The form that is shown again has what Bob has typed, and replaces Ada's.
    bob.click("form.card button[type=submit]");
    bob.appears(".banner.good");
    ada.open(&page);
    ada.shows("h1", "Night shift");
}

/// A browser opens six connections to a server without TLS, for all of its tabs.
#[test]
fn six_tabs_with_live_pages_do_not_block_a_seventh() {
    if !tools(&["chromium", "chromedriver"]) {
        return;
    }

    let (_daemon, browser, home) = session();
    browser.open(&format!("{home}/live"));
    browser.changes_to("#stream-state", |text| text == "Live");
    for _ in 0..6 {
        browser.open_tab();
        browser.open(&format!("{home}/live"));
        browser.changes_to("#stream-state", |text| text == "Live");
    }
    browser.open(&format!("{home}/agents"));
    browser.shows("h1", "Agents");
}

#[test]
fn texts_of_a_hostile_peer_stay_text_on_every_page_that_shows_them() {
    if !tools(&["chromium", "chromedriver", "sipp"]) {
        return;
    }
    const HOSTILE: &str =
        "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script>";
    let (daemon, browser, home) = session();
    let mut caller = daemon.caller();
    caller.extra_header = format!("User-Agent: {HOSTILE}");
    let caller = caller.talks(Duration::from_secs(30));
    let caller = caller.play("caller_hangs_up");
    let call = daemon.answered_call();

    let quiet = |at: &str| {
        let title = browser.script("return document.title");
        assert!(title.as_str().is_some_and(|title| title != "run"), "{at}");
        assert_eq!(browser.count("main img, main script"), 0, "{at}");
    };

    for at in ["", "/live", "/calls", "/trunk", "/route-test"] {
        browser.open(&format!("{home}{at}"));
        quiet(at);
    }

    let page = format!("/calls/{call}");
    browser.open(&format!("{home}{page}"));
    quiet(&page);
    assert!(
        browser.text("main").contains("<img src=x onerror="),
        "{}",
        browser.text("main")
    );
    daemon.hang_up(&call);
    drop(caller);

    let csv = browser.script_async(&format!(
        "const done = arguments[arguments.length - 1]; fetch({}).then(answer => Promise.all([answer.text(), answer.headers.get('content-type')])).then(done)",
        json!(format!("{home}/calls.csv"))
    ));
    let kind = csv[1].as_str().unwrap_or_default();
    assert!(kind.starts_with("text/csv"), "{csv}");
}
