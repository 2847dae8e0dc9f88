//! Toll fraud: no kind of transfer leads to a number that the operator forbids, or past the caps on outbound calls.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use trunkline_testkit::referred::Step::{self, Answer, Bye, ByeComes, Key, Notify, Pause, Refer};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Responder, Runtime, tools};

const PREMIUM: &str = "+19005550100";
const ALLOWED: &str = "+442071838751";

/// A PBX that accepts REFER and transfers its caller.
const TRANSFERS: [Step; 6] = [
    Refer,
    Answer("202 Accepted", ""),
    Notify("SIP/2.0 100 Trying", "active;expires=60"),
    Notify("SIP/2.0 183 Session Progress", "active;expires=60"),
    Notify("SIP/2.0 200 OK", "terminated;reason=noresource"),
    ByeComes,
];

fn setup() -> DaemonSetup {
    DaemonSetup::new().set("TRUNKLINE__PHONE__OUTBOUND_PREFIXES", "+44")
}

#[test]
fn a_runtime_refers_to_no_number_that_is_not_allowed() {
    if !tools(&["sipp"]) {
        return;
    }

    let replaces = "Replaces=asked%40runtime%3Bto-tag%3Dpbx%3Bfrom-tag%3Druntime";
    for headers in [None, Some(replaces)] {
        let (setup, runtime) = (setup(), Runtime::new());
        setup.runtime(&setup.first_agent, &runtime.uri());
        let daemon = setup.serve();
        daemon.destination("Premium", "phone", PREMIUM);
        let agent = match headers {
            Some(headers) => runtime.refers_with("premium", headers, "runtime_is_refused"),
            None => runtime.refers_to("premium", "runtime_is_refused"),
        };
        let pbx = daemon.caller().takes(&[Pause(3_000), Bye]).finish();
        agent.finish();
        assert!(pbx.requests("REFER").is_empty(), "{headers:?}: {pbx}");
        assert!(daemon.record()["transfer"].is_null(), "{headers:?}");
    }

    let (setup, runtime) = (setup(), Runtime::new());
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();
    daemon.destination("Sales", "phone", ALLOWED);
    let agent = runtime.refers_to("sales", "runtime_refers");
    let pbx = daemon.caller().takes(&TRANSFERS).finish();
    agent.finish();
    let to = pbx.request("REFER").header("Refer-To").expect("a Refer-To");
    assert!(
        to.contains(ALLOWED),
        "the honest transfer is asked for: {to}"
    );
}

#[test]
fn a_key_leads_to_no_number_that_is_not_allowed() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = setup().serve();
    daemon.destination("Premium", "phone", PREMIUM);
    daemon.destination("Phone", "sip", "sip:9005550100@198.51.100.9;user=phone");
    daemon.destination("Sales", "phone", ALLOWED);
    let keys = [Key('1'), Pause(300), Key('2'), Pause(300), Key('3')];
    let steps: Vec<_> = keys.into_iter().chain(TRANSFERS).collect();
    let pbx = daemon.caller().takes(&steps).finish();
    let referred = pbx.requests("REFER");
    let [refer] = referred.as_slice() else {
        panic!("one REFER: {pbx}");
    };

    let to = refer.header("Refer-To").expect("a Refer-To");
    assert!(to.contains(ALLOWED), "the allowed number alone: {to}");
}

#[test]
fn a_destination_redirects_to_no_number_that_is_not_allowed() {
    if !tools(&["sipp"]) {
        return;
    }

    let callee = Responder::busy();
    let redirecting = |user: &str, more: &str| -> SocketAddr {
        let line = format!("Contact: <sip:{user}@{}{more}>\r\n", callee.address);
        Responder::answering("302 Moved Temporarily", line.leak()).address
    };
    let daemon = setup().serve();

    for (case, user, more, reached) in [
        ("a number", PREMIUM, "", 0),
        ("its digits", "19005550100", "", 0),
        ("user=phone", "0190", ";user=phone", 0),
        ("an allowed number", ALLOWED, "", 1),
        ("a name", "desk", "", 1),
    ] {
        let desk = format!("sip:desk@{}", redirecting(user, more));
        daemon.destination(case, "sip", &desk);
        let before = (callee.taken(), daemon.calls().len());
        let steps = [Refer, Answer("405 Method Not Allowed", ""), ByeComes];
        let pbx = daemon.caller().takes(&steps);
        let call = daemon.answered_call();
        let path = format!("/phone/calls/{call}/transfer");
        let (status, body) = daemon.change("POST", &path, &json!({"destination": case}));
        assert_eq!(status, 202, "{case}: {body}");
        let failed = hang_up_once_it_failed(&daemon, &call);
        pbx.finish();
        daemon.records(before.1 + 1);
        let code = if reached == 1 { 486 } else { 302 };
        assert_eq!(failed["sip_code"], code, "{case}: {failed}");
        assert_eq!(callee.taken() - before.0, reached, "{case}");
    }
}

/// A kind of transfer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Way {
    /// `POST /phone/calls/{call_id}/transfer`.
    Api,
    /// The caller presses the destination's digit.
    Digit,
    /// The agent's runtime sends REFER.
    Referral,
    /// The same with Replaces in Refer-To.
    Replacing,
    /// The API, to a destination that redirects.
    Redirect,
}

const WAYS: [Way; 5] = [
    Way::Api,
    Way::Digit,
    Way::Referral,
    Way::Replacing,
    Way::Redirect,
];

/// Starts a daemon with this setting, and one destination that leads to `callee`.
fn bounded(variable: &'static str, most: &str, way: Way, callee: &Responder) -> (Daemon, Runtime) {
    let (setup, runtime) = (DaemonSetup::new().set(variable, most), Runtime::new());
    if matches!(way, Way::Referral | Way::Replacing) {
        setup.runtime(&setup.first_agent, &runtime.uri());
    }
    let daemon = setup.serve();
    let line = format!("Contact: <sip:desk@{}>\r\n", callee.address);
    let address = match way {
        Way::Redirect => Responder::answering("302 Moved Temporarily", line.leak()).address,
        Way::Api | Way::Digit | Way::Referral | Way::Replacing => callee.address,
    };
    daemon.destination("Desk", "sip", &format!("sip:desk@{address}"));
    (daemon, runtime)
}

/// Plays a transfer of this kind, at a PBX without REFER; returns the code that ended it.
fn hand_over(daemon: &Daemon, runtime: Runtime, way: Way) -> Value {
    let before = daemon.calls().len();
    let replaces = "Replaces=asked%40runtime%3Bto-tag%3Dpbx%3Bfrom-tag%3Druntime";
    let agent = match way {
        Way::Referral => Some(runtime.refers_to("desk", "runtime_refers_in_vain")),
        Way::Replacing => Some(runtime.refers_with("desk", replaces, "runtime_refers_in_vain")),
        Way::Api | Way::Digit | Way::Redirect => None,
    };
    let digit = (way == Way::Digit).then_some(Key('1'));
    let refused = Answer("405 Method Not Allowed", "");
    let steps: Vec<_> = digit
        .into_iter()
        .chain([Refer, refused, ByeComes])
        .collect();
    let pbx = daemon.caller().takes(&steps);
    let call = daemon.answered_call();
    if matches!(way, Way::Api | Way::Redirect) {
        let path = format!("/phone/calls/{call}/transfer");
        let (status, body) = daemon.change("POST", &path, &json!({"destination": "desk"}));
        assert_eq!(status, 202, "{way:?}: {body}");
    }

    let failed = hang_up_once_it_failed(daemon, &call);
    pbx.finish();
    if let Some(agent) = agent {
        agent.finish();
    }

    daemon.records(before + 1);
    failed["sip_code"].clone()
}

/// Ends a call by API once its transfer has failed, which it returns. A PBX that hung up after some seconds could come before that outcome.
fn hang_up_once_it_failed(daemon: &Daemon, call: &str) -> Value {
    let path = format!("/phone/calls/{call}");
    let transfer = || {
        let transfer = daemon.shown(&path)["transfer"].take();
        (transfer["status"] == "failed").then_some(transfer)
    };
    let failed = Deadline::after(Duration::from_secs(60)).poll(transfer);
    let failed = failed.unwrap_or_else(|| panic!("no failed transfer: {}", daemon.shown(&path)));

    let (status, body) = daemon.change("POST", &format!("{path}/hangup"), &json!({}));
    assert!(matches!(status, 200 | 202), "{status} {body}");
    failed
}

#[test]
fn each_way_of_handing_over_is_bounded_by_the_daily_cap() {
    if !tools(&["sipp"]) {
        return;
    }
    for way in WAYS {
        let callee = Responder::busy();
        let day = "TRUNKLINE__LIMITS__OUTBOUND_CALLS_PER_DAY";
        let (daemon, runtime) = bounded(day, "1", way, &callee);
        let honest = hand_over(&daemon, runtime, way);
        assert_eq!((honest, callee.taken()), (json!(486), 1), "{way:?}");
        let beyond = hand_over(&daemon, runtime, way);
        assert_eq!((beyond, callee.taken()), (json!(480), 1), "{way:?}");
    }
}

#[test]
fn each_way_of_handing_over_is_bounded_by_the_concurrent_cap() {
    if !tools(&["sipp"]) {
        return;
    }

    for way in WAYS {
        for (most, code, taken) in [("0", 480, 0), ("1", 486, 1)] {
            let callee = Responder::busy();
            let at_once = "TRUNKLINE__LIMITS__OUTBOUND_CALLS";
            let (daemon, runtime) = bounded(at_once, most, way, &callee);
            let ended = hand_over(&daemon, runtime, way);
            assert_eq!(
                (ended, callee.taken()),
                (json!(code), taken),
                "{way:?} {most}"
            );
        }
    }
}
