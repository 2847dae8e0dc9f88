//! The console in a browser: calls that are up, without a reload; hostile texts; every page in every size and colour.

use std::time::Duration;

use serde_json::json;
use trunkline_testkit::{Daemon, DaemonSetup, tools};

use crate::browser::link_to;
use crate::webdriver::Browser;

/// A daemon, a browser with a session of its org, and the address of the org's pages.
fn session() -> (Daemon, Browser, String) {
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

    // And from the page itself.
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

#[test]
fn every_page_is_sound_in_every_size_and_colour() {
    if !tools(&["chromium", "chromedriver", "sipp"]) {
        return;
    }
    let (daemon, browser, home) = session();
    let made = |path: &str, body| {
        let (status, made) = daemon.change("POST", path, &body);
        assert_eq!(status, 201, "{path}: {made}");
        made["id"].as_str().unwrap_or_default().to_owned()
    };
    daemon.destination("Sales", "phone", "+442071838751");
    let webhook = made(
        "/webhooks",
        json!({"url": "https://hooks.example.com/calls", "description": "CRM"}),
    );
    let trunk = json!({"name": "Carrier", "host": "192.0.2.1", "username": "acme", "password": "s3cret-enough",
        "caller_number": daemon.setup.first_number});
    let trunk = made("/phone/sip/outbound-trunks", trunk);
    daemon.caller().play("caller_hangs_up").finish();
    let answered = daemon.record()["id"].as_str().expect("an id").to_owned();
    daemon.setup.disable(&daemon.setup.first_agent);
    daemon.setup.settle();
    daemon.caller().play("caller_is_refused").finish();
    let refused = daemon.records(2)[0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();

    let pages = [
        ("overview", String::new()),
        ("live", "/live?window=hour".to_owned()),
        ("phone", "/phone".to_owned()),
        ("calls", "/calls".to_owned()),
        ("call-answered", format!("/calls/{answered}")),
        ("call-refused", format!("/calls/{refused}")),
        (
            "route-test",
            format!(
                "/route-test?to={}",
                daemon.setup.first_number.replace('+', "%2B")
            ),
        ),
        ("agents", "/agents".to_owned()),
        ("agent", format!("/agents/{}", daemon.setup.first_agent)),
        ("agent-new", "/agents/new".to_owned()),
        ("numbers", "/numbers".to_owned()),
        ("trunk", "/trunk".to_owned()),
        ("outbound-trunks", "/outbound-trunks".to_owned()),
        ("outbound-trunk", format!("/outbound-trunks/{trunk}")),
        ("destinations", "/destinations".to_owned()),
        ("webhooks", "/webhooks".to_owned()),
        ("webhook", format!("/webhooks/{webhook}")),
        ("keys", "/keys".to_owned()),
        ("members", "/members".to_owned()),
        ("audit", "/audit".to_owned()),
        ("absent", "/absent/page".to_owned()),
    ];
    for (name, at) in &pages {
        for (size, place) in [([1280, 1000], "desktop"), ([390, 1400], "phone")] {
            for colours in ["light", "dark"] {
                browser.show_on(size, colours);
                browser.open(&format!("{home}{at}"));
                is_sound(&browser, name, size[0]);
                browser.screenshot(&format!("{name}-{place}-{colours}"));
            }
        }
    }
}

/// That the page is no wider than its window, has each id once, one heading of the first order, and a name for each input.
fn is_sound(browser: &Browser, name: &str, width: u32) {
    let found = browser.script(
        "const ids = [...document.querySelectorAll('[id]')].map(element => element.id);
         const twice = ids.filter((id, at) => ids.indexOf(id) !== at);
         const named = input => input.labels?.length || input.getAttribute('aria-label') || input.type === 'hidden';
         const unnamed = [...document.querySelectorAll('input, select, textarea')].filter(input => !named(input)).map(input => input.name);
         return [document.documentElement.scrollWidth, twice, document.querySelectorAll('h1').length, unnamed]",
    );
    assert!(
        found[0]
            .as_u64()
            .is_some_and(|shown| shown <= u64::from(width)),
        "{name} is {} wide, not {width}",
        found[0]
    );
    assert_eq!(
        (&found[1], &found[2], &found[3]),
        (&json!([]), &json!(1), &json!([])),
        "{name}"
    );
}
