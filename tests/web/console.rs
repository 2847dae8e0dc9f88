//! The console in a browser: calls that are up appear without a reload; hostile texts do no harm.

use std::time::Duration;

use trunkline_testkit::{Daemon, DaemonSetup, tools};

use crate::web::browser::link_to;
use crate::web::webdriver::Browser;

/// A daemon, a browser with a session of its org, and the address of the org's pages.
pub(crate) fn session() -> (Daemon, Browser, String) {
    let daemon = DaemonSetup::new().serve();
    let browser = Browser::start();
    browser.open(&link_to(&daemon));
    let home = format!(
        "http://{}/dashboard/{}",
        daemon.setup.http, daemon.setup.org
    );
    (daemon, browser, home)
}

#[test]
fn a_call_appears_changes_and_ends_on_the_live_page_without_a_reload() {
    if !tools(&["chromium", "chromedriver", "sipp"]) {
        return;
    }
    let (daemon, browser, home) = session();
    browser.open(&format!("{home}/live"));
    browser.shows("#up", "No call is up.");
    browser.changes_to("#stream-state", |text| text == "Live");
    browser.script("window.isStillHere = true");

    let caller = daemon.caller().talks(Duration::from_secs(30));
    let caller = caller.play("caller_hangs_up");
    let row = browser.changes_to("#up tbody tr", |text| text.contains("in progress"));
    assert!(row.contains("+441632960001"), "{row}");
    assert!(
        browser
            .text("#counters")
            .replace('\n', " ")
            .contains("Up 1")
    );
    browser.screenshot("live-one");

    let call = daemon.answered_call();
    daemon.hang_up(&call);
    browser.shows("#up", "No call is up.");
    assert_eq!(
        browser.script("return window.isStillHere"),
        true,
        "the page was loaded again"
    );
    drop(caller);

    // From the page itself as well.
    let caller = daemon.caller().talks(Duration::from_secs(30));
    let caller = caller.play("caller_hangs_up");
    browser.changes_to("#up tbody tr", |text| text.contains("in progress"));
    browser.click("#up details.danger summary");
    browser.click("#up details.danger button");
    browser.changes_to("#up", |text| text == "No call is up.");
    let ended = daemon.records(2);
    assert_eq!(ended[0]["reason"], "operator", "{ended:?}");
    drop(caller);
}

#[test]
fn what_a_peer_writes_stays_text() {
    if !tools(&["chromium", "chromedriver", "sipp"]) {
        return;
    }
    let (daemon, browser, home) = session();
    let mut caller = daemon.caller();
    caller.extra_header =
        "X-Hostile: <img src=x onerror=document.title='run'><script>document.title='run'</script>"
            .to_owned();
    caller.play("caller_hangs_up").finish();
    let call = daemon.record()["id"].as_str().expect("an id").to_owned();

    browser.open(&format!("{home}/calls/{call}"));
    browser.click(".ladder summary.request");
    let shown = browser.text(".ladder details[open] pre");
    assert!(shown.contains("<img src=x onerror="), "{shown}");
    assert_eq!(browser.count("main img, main script"), 0);
    let title = browser.script("return document.title");
    assert!(
        title.as_str().is_some_and(|title| title != "run"),
        "{title}"
    );
}
