//! Explanations for the org: why a call was routed as it was, why a log-in failed, and the doctor's findings on their trunk.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::{
    Caller, Credentials, Daemon, DaemonSetup, Deadline, Message, Peer, Runtime, tools,
};

/// Time within which the facts of a call are written.
const WRITTEN: Duration = Duration::from_secs(10);

fn refusal(caller: &Caller) -> Message {
    caller.play("caller_is_refused").finish().outcome().clone()
}

/// Returns the failed log-ins once there are so many, newest first.
fn failures(daemon: &Daemon, count: u64) -> Vec<Value> {
    let shown = || {
        let page = daemon.shown("/phone/sip/inbound-trunk/auth-failures");
        (page["total"] == count).then(|| page["items"].as_array().cloned())
    };
    let found = Deadline::after(WRITTEN).poll(shown).flatten();
    found.unwrap_or_else(|| panic!("not {count} failed log-ins"))
}

#[test]
fn a_failed_log_in_says_which_part_was_wrong() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();
    let daemon = setup.serve();
    let right = daemon.credentials();
    let with = |username: &str, password: &str| Credentials {
        username: username.to_owned(),
        password: password.to_owned(),
    };
    let with_domain = format!("{}@pbx.example.com", right.username);
    let attempts = [
        (
            with(&right.username, "wrong"),
            "password",
            "password is wrong",
        ),
        (
            with(&with_domain, &right.password),
            "user",
            "without a domain",
        ),
    ];

    let mut answers = Vec::new();
    for (at, (credentials, part, sentence)) in attempts.into_iter().enumerate() {
        let username = credentials.username.clone();
        answers.push(refusal(&daemon.caller().with(credentials)));
        let newest = failures(&daemon, at as u64 + 1).remove(0);
        assert_eq!(newest["part"], part, "{newest}");
        assert_eq!(newest["username"], username, "{newest}");
        assert_eq!(newest["dialled"], daemon.setup.first_number, "{newest}");
        let said = newest["explanation"].as_str().expect("a sentence");
        assert!(said.contains(sentence), "{said}");
    }

    // An unknown user name is shown to no org, and the response on the wire shows nothing.
    answers.push(refusal(&daemon.caller().with(with("nobody", "wrong"))));
    let names: Vec<_> = answers.iter().map(Message::header_names).collect();
    assert!(names.windows(2).all(|pair| pair[0] == pair[1]), "{names:?}");

    for answer in &answers {
        assert_eq!(answer.status(), Some(401), "{answer:?}");
        assert_eq!(answer.header("Warning"), None, "{answer:?}");
    }

    failures(&daemon, 2);
}

/// An unknown user name from the address of one org's PBX is shown to that org.
#[test]
fn a_user_name_of_nobody_is_told_to_whom_the_address_belongs() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();
    setup.allow("127.0.0.0/8");
    let daemon = setup.serve();
    let nobody = Credentials {
        username: "nobody".to_owned(),
        password: "wrong".to_owned(),
    };
    let caller = daemon.caller().dials("+493099999999").with(nobody);
    assert_eq!(refusal(&caller).status(), Some(401));

    let newest = failures(&daemon, 1).remove(0);
    assert_eq!(
        (&newest["part"], &newest["username"]),
        (&json!("user"), &json!("nobody")),
        "{newest}"
    );
}

/// A PBX that should be authenticated by its address and isn't: it doesn't answer the challenge.
#[test]
fn who_proves_nothing_is_named_by_its_address() {
    const LISTED: &str = "+12025550123";
    const UNLISTED: &str = "+12025550199";
    let setup = DaemonSetup::new();
    setup.run(&[
        "trunk",
        "update",
        "--org",
        &setup.org,
        "--country",
        "US",
        "--json",
    ]);
    setup.assign(UNLISTED, &setup.first_agent);
    setup.allow("127.0.0.1/32");
    let daemon = setup.serve();
    let calls = |from: &str, number: &str, call_id: &str| {
        let peer = Peer::on(from.parse::<Ipv4Addr>().expect("an address"), daemon.sip());
        let mut dialog =
            Dialog::calling(&format!("sip:{number}@{}", daemon.sip()), "100", "1", &peer);
        call_id.clone_into(&mut dialog.id);
        peer.send(dialog.request(&peer, (1, "INVITE"), "", ""));
        assert_eq!(peer.receive().status(), Some(401), "{call_id}");
    };

    let newest = |count: u64| {
        let newest = failures(&daemon, count).remove(0);
        assert_eq!(newest["username"], "", "{newest}");
        newest
    };
    calls("127.0.0.2", LISTED, "elsewhere");
    let found = newest(1);

    assert_eq!(
        [
            &found["part"],
            &found["source"],
            &found["dialled"],
            &found["sip_call_id"]
        ],
        ["address", "127.0.0.2", LISTED, "elsewhere"],
        "{found}"
    );

    // In the national format of the trunk's country, from another address again.
    calls("127.0.0.3", "2025550199", "national");
    let found = newest(2);
    assert_eq!(
        [&found["part"], &found["source"], &found["dialled"]],
        ["address", "127.0.0.3", UNLISTED],
        "{found}"
    );

    calls("127.0.0.1", UNLISTED, "another-number");
    let found = newest(3);
    assert_eq!(
        [&found["part"], &found["dialled"]],
        ["number", UNLISTED],
        "{found}"
    );

    // A number of no org, and a source seen before: nothing new is recorded.
    calls("127.0.0.2", "+442071838750", "nobody");
    calls("127.0.0.2", LISTED, "again");

    // A peer that answers the challenge isn't recorded.
    if tools(&["sipp"]) {
        daemon
            .caller()
            .dials(UNLISTED)
            .play("caller_hangs_up")
            .finish();
    }

    let (code, report) = daemon.setup.doctor();
    assert_eq!(code, Some(1), "{report}");

    let told = problems(&report);
    assert!(
        told.iter()
            .any(|text| text.contains("without credentials (number)")),
        "{told:?}"
    );

    // A caller that answers no challenge is recorded four seconds after it: by now each of the calls would be.
    std::thread::sleep(Duration::from_secs(6));
    failures(&daemon, 3);
}

/// The challenge has four seconds for an answer. A source that is allowed meanwhile is judged by the settings at the time of the call.
#[test]
fn who_proves_nothing_is_judged_by_the_settings_of_its_time() {
    let setup = DaemonSetup::new();
    setup.allow("127.0.0.1/32");
    let daemon = setup.serve();
    let number = &daemon.setup.first_number;
    let from = Ipv4Addr::new(127, 0, 0, 2);
    let peer = Peer::on(from, daemon.sip());
    let uri = format!("sip:{number}@{}", daemon.sip());
    let dialog = Dialog::calling(&uri, "100", "1", &peer);
    peer.send(dialog.request(&peer, (1, "INVITE"), "", ""));
    assert_eq!(peer.receive().status(), Some(401));

    daemon.setup.allow(&format!("{from}/32"));
    let found = failures(&daemon, 1).remove(0);
    assert_eq!(
        [&found["part"], &found["source"]],
        ["address", "127.0.0.2"],
        "{found}"
    );
}

#[test]
fn a_call_says_what_it_came_close_to() {
    if !tools(&["sipp"]) {
        return;
    }

    let setup = DaemonSetup::new();
    let foreign = setup.foreign_agent();
    let sales = setup.agent("Sales", Runtime::new());
    setup.assign("+493012345601", &sales);
    setup.disable(&setup.first_agent);
    setup.disable(&sales);
    let daemon = setup.serve();
    let caller = daemon
        .caller()
        .dials("030 12345601".replace(' ', "").as_str());
    let answer = refusal(&caller.names_agent(&foreign));
    assert_eq!(answer.status(), Some(480), "{answer:?}");

    let call = daemon.record();
    let routing = daemon.routing(&call);
    assert_eq!(routing["log_in"]["by"], "digest", "{routing}");

    let near = routing["near_misses"].as_array().expect("near misses");
    assert_eq!(
        near[0],
        json!({"agent_id": {"header": foreign}}),
        "{routing}"
    );
    assert_eq!(
        near[1]["number"]["differs"],
        json!({"national_form": {"country": "DE"}}),
        "{routing}"
    );
    assert_eq!(near[1]["number"]["agent"], json!(sales), "{routing}");
    assert_eq!(near[2]["agent"]["state"], "disabled", "{routing}");

    let said = routing["explanation"].to_string();
    assert!(
        said.contains("set the trunk's default_country to DE"),
        "{said}"
    );
    assert!(
        !said.contains("Foreign") && !said.contains("Other Ltd"),
        "{said}"
    );

    let question = json!({"to": "03012345601", "from": "+441632960001", "agent_id": foreign});
    let (status, foreseen) = daemon.change("POST", "/phone/sip/route-test", &question);
    assert_eq!(status, 200, "{foreseen}");
    assert_eq!(foreseen["near_misses"], routing["near_misses"]);

    // The inputs of the routing are stored, so the call can be routed again.
    let germany = json!({"changes": {"trunk": {"default_country": "DE"}, "agents": [{"id": sales, "enabled": true}]}});
    let (status, replayed) = daemon.change("POST", "/phone/sip/route-replay", &germany);
    assert_eq!(status, 200, "{replayed}");

    let after = json!({"agent": {"id": sales, "step": "assigned_number"}});
    assert_eq!(replayed["items"][0]["after"], after, "{replayed}");

    // The command line and the API explain it in the same words.
    let change = daemon.setup.folder.path().join("change.json");
    std::fs::write(&change, germany["changes"].to_string()).expect("it can be written");
    let change = change.display().to_string();
    let org = daemon.setup.org.clone();
    let by_command =
        daemon
            .setup
            .run(&["route-replay", "--org", &org, "--change", &change, "--json"]);
    assert_eq!(by_command["items"], replayed["items"], "{by_command}");

    let tested = daemon.setup.run(&[
        "route-test",
        "--org",
        &org,
        "--to",
        "03012345601",
        "--from",
        "+441632960001",
        "--agent-id",
        &foreign,
        "--json",
    ]);

    assert_eq!(tested["explanation"], foreseen["explanation"], "{tested}");

    let said = routing["explanation"].as_array().expect("sentences");
    let foreseen = foreseen["explanation"].as_array().expect("sentences");
    let first = said.iter().position(|sentence| *sentence == foreseen[0]);
    let first = first.unwrap_or_else(|| panic!("other words: {said:?}, {foreseen:?}"));
    assert_eq!(said[first..first + foreseen.len()], foreseen[..]);
}

#[test]
fn the_doctor_reports_on_the_trunk() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let asks = daemon.caller().dials("doctor");
    let asks = asks.with_header("User-Agent: Asterisk PBX 20.5.0");
    let answer = refusal(&asks);
    assert_eq!(answer.status(), Some(480), "{answer:?}");
    assert_eq!(answer.header("X-Trunkline-Reason"), Some("examined"));

    let call = daemon.record();
    assert_eq!(call["reason"], "examined", "{call}");

    let report = daemon.shown("/phone/sip/inbound-trunk/doctor");
    assert_eq!(report["call_id"], call["id"], "{report}");
    assert_eq!(
        (&report["pbx"], &report["transport"]),
        (&json!("Asterisk"), &json!("udp")),
        "{report}"
    );

    let level = |check: &str| {
        let findings = report["findings"].as_array().expect("findings").iter();
        let mut found = findings.filter(|finding| finding["check"] == check);
        found.next().map(|finding| finding["level"].clone())
    };

    for (check, expected) in [
        ("authentication", "ok"),
        ("caller_id", "ok"),
        ("codecs", "ok"),
        ("dtmf", "ok"),
        // Asterisk loses the caller if an accepted REFER fails.
        ("refer", "warning"),
        ("session_timers", "warning"),
    ] {
        assert_eq!(level(check), Some(json!(expected)), "{check}: {report}");
    }

    let settings = report["settings"].as_str().expect("settings for Asterisk");
    let credentials = daemon.credentials();
    assert!(settings.contains(&credentials.username), "{settings}");
    assert!(
        !report.to_string().contains(&credentials.password),
        "{report}"
    );

    // With timers on, no problem is left.
    let fixed = daemon.caller().dials("doctor");
    refusal(&fixed.with_header("Supported: timer"));
    daemon.records(2);

    let report = daemon.shown("/phone/sip/inbound-trunk/doctor");
    assert!(
        !report["findings"].to_string().contains("warning"),
        "{report}"
    );
}

/// The text of each finding that is a problem.
fn problems(report: &Value) -> Vec<String> {
    let findings = report["findings"].as_array().expect("findings").iter();
    let wrong =
        findings.filter(|finding| finding["level"] == "error" || finding["level"] == "warning");
    wrong
        .map(|finding| {
            assert!(finding["fix"].is_string(), "{finding}");
            format!("{}: {}", finding["check"], finding["text"])
        })
        .collect()
}

#[test]
fn a_deployment_is_examined() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let (code, report) = daemon.setup.doctor();
    assert_eq!((code, problems(&report)), (Some(0), Vec::new()), "{report}");

    // A runtime that isn't reachable, a PBX without session timers that dials another host, and a log-in that failed.
    let gone = Runtime::new();
    daemon.setup.agent("Gone", gone);

    let wrong = Credentials {
        password: "wrong".to_owned(),
        ..daemon.credentials()
    };
    refusal(&daemon.caller().with(wrong));
    failures(&daemon, 1);
    daemon.caller().play("caller_hangs_up").finish();
    daemon.record();

    let (code, report) = daemon.setup.doctor();
    assert_eq!(code, Some(1), "{report}");

    let found = problems(&report);
    for part in ["\"runtime\": ", "\"log_ins\": ", "\"session_timers\": "] {
        assert!(
            found.iter().any(|text| text.starts_with(part)),
            "{part}: {found:?}"
        );
    }

    assert_eq!(found.len(), 3, "{found:?}");
}

/// The doctor's findings on the DNS records of the advertised name, with and without SRV.
#[test]
fn names_are_looked_up_as_peers_look_them_up() {
    let found = |host: &str, records: &dyn Fn(u16) -> Vec<(&'static str, Record)>| {
        let setup = DaemonSetup::new();
        let names = dns::serve(records(setup.sip.port())).to_string();
        let setup = setup
            .set("TRUNKLINE__SIP__NAMESERVERS", &names)
            .set("TRUNKLINE__SIP__PUBLIC_HOST", host);
        let (_, report) = setup.doctor();
        let findings = report["findings"].as_array().expect("findings").clone();
        let dns = findings.into_iter().filter(|found| found["check"] == "dns");
        let mut told: Vec<(String, String)> = dns
            .map(|found| {
                [&found["level"], &found["text"]]
                    .map(|text| text.as_str().unwrap_or_default().to_owned())
            })
            .map(|[level, text]| (level, text))
            .collect();
        told.sort();
        (setup.sip.port(), told)
    };

    let here = Record::Address([192, 0, 2, 7].into());
    let (port, told) = found("sip.test", &|port| {
        vec![
            (
                "_sip._udp.sip.test",
                Record::Service(10, port, "a.sip.test"),
            ),
            (
                "_sip._tcp.sip.test",
                Record::Service(10, port, "a.sip.test"),
            ),
            ("a.sip.test", here.clone()),
        ]
    });

    let ok = |transport: &str| {
        let text = format!("sip.test leads to 192.0.2.7:{port} for {transport}.");
        ("ok".to_owned(), text)
    };
    assert_eq!(told, [ok("tcp"), ok("udp")]);

    // A port that nothing listens on, and a transport that has no record and falls back to 5060.
    let (_, told) = found("sip.test", &|_| {
        vec![
            ("_sip._udp.sip.test", Record::Service(10, 9, "a.sip.test")),
            ("a.sip.test", here.clone()),
            ("sip.test", here.clone()),
        ]
    });

    let wrong = |port: u16, transport: &str| {
        let text = format!(
            "sip.test leads to 192.0.2.7:{port} for {transport}, but no {transport} listener has that port."
        );
        ("error".to_owned(), text)
    };
    assert_eq!(told, [wrong(5060, "tcp"), wrong(9, "udp")]);

    let (_, told) = found("sip.test", &|_| vec![("other.test", here.clone())]);
    assert!(
        told.len() == 2
            && told.iter().all(
                |(level, text)| level == "error" && text.starts_with("sip.test has no address")
            ),
        "{told:?}"
    );
}
