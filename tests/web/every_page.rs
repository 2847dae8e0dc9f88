//! Every page of the console, in every size and colour scheme: nothing is cut off, and people without a mouse, with a screen reader or with weak eyes
//! can use it.

use serde_json::{Value, json};
use trunkline_testkit::tools;

use crate::web::console::session;
use crate::web::webdriver::Browser;

/// Checks of our own, which need no other program.
const SOUND: &str = include_str!("sound.js");

/// Returns the script of axe-core, which `just axe` and CI fetch; `TRUNKLINE_TEST_AXE` is its path.
fn axe() -> Option<String> {
    let Some(path) = std::env::var_os("TRUNKLINE_TEST_AXE") else {
        eprintln!("TRUNKLINE_TEST_AXE isn't set: axe-core looks at no page (just axe)");
        return None;
    };
    Some(std::fs::read_to_string(path).expect("axe-core's script"))
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
        ("usage", "/usage".to_owned()),
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

    let operator = daemon.setup.run(&["console", "--operator", "--json"]);
    browser.open(operator["url"].as_str().expect("a link"));
    browser.click("main form button");
    browser.shows("h1", "Organizations");
    let installation = format!("http://{}/operator-console", daemon.setup.http);

    let partner = daemon.setup.run(&["partner", "list", "--json"]);
    let partner = partner[0]["id"].as_str().expect("an id");
    let operators = [
        ("operator-orgs", String::new()),
        ("operator-org", format!("/orgs/{}", daemon.setup.org)),
        ("operator-partners", "/partners".to_owned()),
        ("operator-partner", format!("/partners/{partner}")),
        ("operator-nodes", "/nodes".to_owned()),
        ("operator-sources", "/sources".to_owned()),
        ("operator-audit", "/audit".to_owned()),
        ("operator-login", "/login?token=x".to_owned()),
    ];

    let (axe, mut faults) = (axe(), Vec::new());
    let pages = pages
        .iter()
        .map(|(name, at)| (*name, format!("{home}{at}")));
    let operators = operators
        .iter()
        .map(|(name, at)| (*name, format!("{installation}{at}")));

    for (name, at) in pages.chain(operators) {
        for (size, place) in [([1280, 1000], "desktop"), ([390, 1400], "phone")] {
            for colours in ["light", "dark"] {
                browser.show_on(size, colours);
                browser.open(&at);
                let page = format!("{name}-{place}-{colours}");
                browser.screenshot(&page);
                is_sound(&browser, &page, axe.as_deref(), &mut faults);
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Adds the page's faults.
fn is_sound(browser: &Browser, page: &str, axe: Option<&str>, faults: &mut Vec<String>) {
    let mut note = |found: Value| {
        let found = found.as_array().expect("a list").clone();
        faults.extend(found.iter().map(|fault| format!("{page}: {fault}")));
    };
    note(browser.script(SOUND));

    let Some(axe) = axe else {
        return;
    };
    browser.script(axe);
    note(browser.script_async(
        "const done = arguments[arguments.length - 1];
         const of = fault => fault.nodes.map(node => `${fault.id}: ${fault.help}: ${node.html.slice(0, 160)} ${node.any.map(check => check.message).join('; ')}`);
         axe.run(document, {resultTypes: ['violations']}).then(found => done(found.violations.flatMap(of)));",
    ));
}
