//! `GET /phone/calls/{call_id}/trace`: the messages of all legs, as JSON, ladder, picture and pcap, without credentials; and
//! `trunkline trace`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::replay::flows::{Stage, folder};
use trunkline_testkit::process::Deadline;
use trunkline_testkit::{DaemonSetup, tools};

/// Returns the status and the body of a GET, which needn't be text.
fn get(http: SocketAddr, path: &str, key: &str, accept: &str) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(http).expect("the API listens");
    let request = format!(
        "GET {path} HTTP/1.0\r\nHost: {http}\r\nAuthorization: Bearer {key}\r\nAccept: {accept}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is read");

    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");

    let end = answer
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .expect("a head");
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    (status, answer.split_off(end + 4))
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// A call that was played, and the path of its trace.
pub(crate) struct Traced {
    stage: Stage,
    key: String,
    path: String,
}

impl Traced {
    /// Plays the call of this flow.
    fn new(flow: &str) -> Self {
        Self::on(Stage::new(), flow)
    }

    pub(crate) fn on(stage: Stage, flow: &str) -> Self {
        let flow = folder().join(flow).display().to_string();
        let ran = stage.replay(&flow, &["--speed", "max"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");

        let setup = &stage.daemon.setup;
        let key = text(&setup.run(&["key", "create", "--org", &setup.org, "--json"])["api_key"])
            .to_owned();

        // The first call was the stage's own.
        let call = stage.daemon.records(2).remove(0);
        let path = format!("/phone/calls/{}/trace", text(&call["id"]));
        Self { stage, key, path }
    }

    pub(crate) fn get(&self, accept: &str) -> Vec<u8> {
        let (status, body) = get(self.stage.daemon.setup.http, &self.path, &self.key, accept);
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        body
    }
}

#[test]
fn a_call_shows_both_legs_in_three_forms() {
    let traced = Traced::new("answered.flow");
    let shown: Value = serde_json::from_slice(&traced.get("application/json")).expect("JSON");
    let items = shown["items"].as_array().expect("items");
    let messages: Vec<&Value> = items
        .iter()
        .filter(|item| item["type"] == "message")
        .collect();

    let of = |leg: &str| -> Vec<(&str, &str)> {
        let leg = messages.iter().filter(|message| message["leg"] == leg);
        leg.map(|message| (text(&message["direction"]), text(&message["summary"])))
            .collect()
    };

    assert_eq!(
        of("caller")[..5],
        [
            ("received", "INVITE"),
            ("sent", "401 Unauthorized (INVITE)"),
            ("received", "ACK"),
            ("received", "INVITE"),
            ("sent", "100 Trying (INVITE)"),
        ],
        "{shown}"
    );
    assert_eq!(of("caller").len(), 10, "{shown}");
    assert_eq!(
        of("runtime"),
        [
            ("sent", "INVITE"),
            ("received", "180 Ringing (INVITE)"),
            ("received", "200 OK (INVITE)"),
            ("sent", "ACK"),
            ("sent", "BYE"),
            ("received", "200 OK (BYE)"),
        ],
        "{shown}"
    );
    assert_eq!(
        (&shown["complete"], items.len()),
        (&Value::Bool(true), 18),
        "{shown}"
    );
    assert!(
        items.iter().any(|item| item["type"] == "decision"
            && text(&item["text"]).contains("call ended: completed")),
        "{shown}"
    );

    let login = messages
        .iter()
        .find(|message| text(&message["text"]).contains("\nAuthorization:"))
        .expect("the log-in");
    assert!(
        text(&login["text"]).contains("response=\"[hidden]\""),
        "{login}"
    );
    let to_runtime = messages
        .iter()
        .find(|message| message["leg"] == "runtime")
        .expect("the runtime's INVITE");
    assert!(
        text(&to_runtime["text"]).contains("-SESSION-TOKEN: [hidden]"),
        "{to_runtime}"
    );

    let ladder = String::from_utf8(traced.get("text/plain")).expect("text");
    assert!(
        ladder.contains("---> INVITE")
            && ladder.contains("<--- 401 Unauthorized")
            && ladder.contains("* call ended"),
        "{ladder}"
    );
    assert_eq!(ladder.lines().count(), 19, "{ladder}");

    // Another org's key, or an unknown call: the same 404.
    let setup = &traced.stage.daemon.setup;
    let other = setup.run(&["org", "create", "--name", "Other", "--json"]);
    let other = setup.run(&["key", "create", "--org", text(&other["id"]), "--json"]);
    let (status, _) = get(setup.http, &traced.path, text(&other["api_key"]), "*/*");
    assert_eq!(status, 404);

    if !tools(&["tshark"]) {
        return;
    }

    let file = traced.stage.shell.path("trace.pcap");
    std::fs::write(&file, traced.get("application/vnd.tcpdump.pcap")).expect("it can be written");

    let read = Command::new("tshark")
        .arg("-r")
        .arg(&file)
        .args(["-Y", "sip"])
        .output()
        .expect("tshark runs");
    let lines = String::from_utf8_lossy(&read.stdout).into_owned();
    assert_eq!(
        lines.lines().count(),
        16,
        "{lines}{}",
        String::from_utf8_lossy(&read.stderr)
    );
    assert!(!lines.contains("Malformed"), "{lines}");
}

#[test]
fn a_refused_call_shows_the_runtime_that_refused_it() {
    let traced = Traced::new("refused-by-the-runtime.flow");
    let ladder = String::from_utf8(traced.get("text/plain")).expect("text");
    assert_eq!(
        ladder.matches("486 Busy Here (INVITE)").count(),
        2,
        "{ladder}"
    );
    assert!(ladder.contains("* call ended: busy"), "{ladder}");
}

/// A PBX without REFER: the destination that the daemon called is in the ladder beside caller and runtime.
#[test]
fn a_destination_that_is_called_from_here_is_shown() {
    let traced = Traced::new("kamailio-knows-no-refer-udp.flow");
    let shown: Value = serde_json::from_slice(&traced.get("application/json")).expect("JSON");
    let items = shown["items"].as_array().expect("items").iter();
    let passed: Vec<(&str, &str, &str)> = items
        .filter(|item| item["type"] == "message")
        .map(|item| {
            let [leg, way, summary] = ["leg", "direction", "summary"].map(|name| text(&item[name]));
            (leg, way, summary)
        })
        .collect();

    for expected in [
        ("caller", "sent", "REFER"),
        ("caller", "received", "501 Not Implemented (REFER)"),
        ("destination", "sent", "INVITE"),
        ("destination", "received", "200 Answering (INVITE)"),
        ("destination", "sent", "ACK"),
        ("destination", "received", "BYE"),
        ("runtime", "sent", "BYE"),
        ("caller", "sent", "INVITE"),
    ] {
        assert!(passed.contains(&expected), "{expected:?}: {passed:?}");
    }

    let ladder = String::from_utf8(traced.get("text/plain")).expect("text");
    assert!(ladder.contains("---> INVITE  [destination]"), "{ladder}");

    let file = traced.get("application/vnd.tcpdump.pcap");
    let invites = file.windows(12).filter(|octets| *octets == b"INVITE sip:d");
    assert_eq!(invites.count(), 1, "the desk was called once");

    let setup = &traced.stage.daemon.setup;
    let id = traced.path.split('/').nth(3).expect("an id");
    let ran = Command::new(env!("CARGO_BIN_EXE_trunkline"))
        .args([
            "trace",
            "--once",
            "--url",
            &format!("http://{}", setup.http),
            id,
        ])
        .env("TRUNKLINE_API_KEY", &traced.key)
        .output()
        .expect("it runs");
    let printed = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(
        printed.contains("trunkline --> destination INVITE"),
        "{printed}"
    );
}

/// After a restart the messages come from disk.
#[test]
fn a_restarted_daemon_shows_the_same_trace() {
    let mut traced = Traced::new("answered.flow");
    let before = traced.get("text/plain");

    let daemon = &mut traced.stage.daemon;
    daemon.process.terminate();
    let ended = daemon
        .process
        .wait(Deadline::after(Duration::from_secs(30)));
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");

    let folder = daemon.setup.folder.path().join("data/traces");
    let files: Vec<_> = std::fs::read_dir(&folder).expect("traces").collect();
    assert_eq!(files.len(), 1, "{files:?}");

    // The operator reads the file itself, with the messages of all calls.
    let file = files[0].as_ref().expect("an entry").path();
    let flow = traced.stage.shell.path("operator.flow");
    let paths = [&file, &flow].map(|path| path.display().to_string());
    let read = ["capture", "import", &paths[0], "-o", &paths[1], "--json"];
    let summary = daemon.setup.run(&read);
    assert!(summary["messages"].as_u64() >= Some(16), "{summary}");
    let read = std::fs::read_to_string(&flow).expect("a flow");
    assert!(read.contains("INVITE sip:"), "{read}");

    daemon.process = daemon.setup.start();
    assert_eq!(
        String::from_utf8_lossy(&traced.get("text/plain")),
        String::from_utf8_lossy(&before)
    );

    let shown: Value = serde_json::from_slice(&traced.get("application/json")).expect("JSON");
    let items = shown["items"].as_array().expect("items");
    assert_eq!(items.len(), 18, "{shown}");
}

/// `trunkline trace` without a terminal lists calls, filters them, and prints one to its end.
#[test]
fn calls_are_listed_and_printed() {
    let traced = Traced::new("answered.flow");
    let trace = |arguments: &[&str]| -> (Option<i32>, String, String) {
        let setup = &traced.stage.daemon.setup;
        let ran = Command::new(env!("CARGO_BIN_EXE_trunkline"))
            .args(["trace", "--url", &format!("http://{}", setup.http)])
            .args(arguments)
            .env("TRUNKLINE_API_KEY", &traced.key)
            .output()
            .expect("it runs");
        let text = |octets| String::from_utf8(octets).expect("UTF-8");
        (ran.status.code(), text(ran.stdout), text(ran.stderr))
    };

    let (code, out, fault) = trace(&["--once"]);
    assert_eq!((code, &*fault), (Some(0), ""), "{out}");
    assert_eq!(out.lines().count(), 2, "{out}");
    assert!(out.lines().all(|line| line.contains("inbound")), "{out}");
    assert!(
        out.contains("completed") && out.contains("canceled"),
        "{out}"
    );

    let (_, out, _) = trace(&["--once", "--json", "--status", "completed"]);
    let call: Value = serde_json::from_str(&out).expect("one object");
    let id = text(&call["id"]);

    // The call has ended: following it without --once shows it and exits.
    let (code, out, fault) = trace(&[id]);
    assert_eq!((code, &*fault), (Some(0), ""), "{out}");
    assert_eq!(out.lines().count(), 18, "{out}");
    assert!(
        out.contains("trunkline <-- caller  INVITE")
            && out.contains("trunkline --> runtime INVITE"),
        "{out}"
    );

    let (_, out, _) = trace(&[id, "--messages"]);
    assert!(
        out.contains("    CSeq: 1 INVITE") && out.contains("udp 127.0.0.1:"),
        "{out}"
    );

    let (code, _, fault) = trace(&["--once", "--status", "asleep"]);
    assert_eq!(code, Some(1));
    assert!(
        fault.contains("400 Bad Request: ") && fault.contains("status"),
        "{fault}"
    );

    let (code, _, fault) = trace(&["--key", "nobody's", "--once"]);
    assert_eq!(code, Some(1));
    assert!(
        fault.contains("401") && !fault.contains("nobody's"),
        "{fault}"
    );
}

/// Returns the tags of From and To in a message, in order.
fn tags(message: &str) -> Vec<String> {
    let lines = message.split("\r\n").filter(|line| {
        let (name, _) = line.split_once(':').unwrap_or_default();
        ["From", "To", "f", "t"].contains(&name)
    });
    let tag = |line: &str| Some(line.split_once(";tag=")?.1.split(';').next()?.to_owned());
    lines.filter_map(tag).collect()
}

/// A key that may read calls but not end them gets every form without tags; the pcap can still be explained and replayed.
#[test]
fn tags_are_hidden_from_keys_that_may_not_end_calls() {
    let traced = Traced::new("answered.flow");
    let setup = &traced.stage.daemon.setup;
    let scopes = ["--scopes", "calls:read", "--json"];
    let key = setup.run(&[&["key", "create", "--org", &setup.org][..], &scopes].concat());
    let hidden = |accept: &str| {
        let (status, body) = get(setup.http, &traced.path, text(&key["api_key"]), accept);
        assert_eq!(status, 200);
        body
    };

    let messages = |body: &[u8]| -> Vec<String> {
        let shown: Value = serde_json::from_slice(body).expect("JSON");
        let items = shown["items"].as_array().expect("items").iter();
        let messages = items.filter(|item| item["type"] == "message");
        messages
            .map(|item| text(&item["text"]).to_owned())
            .collect()
    };

    // JSON: each tag is replaced by letters, the same in every message and of the same length.
    let whole = messages(&traced.get("application/json"));
    let shown = messages(&hidden("application/json"));
    assert_eq!(shown.len(), whole.len());

    let mut known = std::collections::BTreeMap::new();
    for (shown, whole) in shown.iter().zip(&whole) {
        assert_eq!(shown.len(), whole.len(), "{shown}");
        for (hidden, tag) in tags(shown).into_iter().zip(tags(whole)) {
            assert_eq!(hidden.len(), tag.len());
            assert_eq!(known.entry(tag).or_insert_with(|| hidden.clone()), &hidden);
        }
    }

    let distinct: std::collections::BTreeSet<_> = known.values().collect();
    assert!(
        known.len() >= 4 && distinct.len() == known.len(),
        "{known:?}"
    );
    assert_eq!(
        shown,
        messages(&hidden("application/json")),
        "a second request hides each tag in the same way"
    );

    let forms = [
        "application/json",
        "text/plain",
        "application/vnd.tcpdump.pcap",
    ];
    for form in forms {
        let body = hidden(form);
        let holds = |tag: &String| {
            body.windows(tag.len())
                .any(|octets| octets == tag.as_bytes())
        };
        let long = known.keys().filter(|tag| tag.len() >= 8);
        let found: Vec<_> = long.filter(|tag| holds(tag)).collect();
        assert!(found.is_empty(), "{form} shows {found:?}");
        if form != "application/json" {
            assert_eq!(body.len(), traced.get(form).len(), "{form}");
        }
    }

    // The masked pcap works for import and replay like the full one.
    let files = [
        ("whole.pcap", traced.get(forms[2])),
        ("hidden.pcap", hidden(forms[2])),
    ];
    let mut explained = Vec::new();
    for (name, octets) in files {
        let file = traced.stage.shell.path(name);
        std::fs::write(&file, octets).expect("it can be written");
        let file = file.display().to_string();
        explained.push(setup.run(&["explain", &file, "--org", &setup.org, "--json"]));
        let ran = traced.stage.replay(&file, &["--speed", "max"]);
        assert_eq!(ran.code, Some(0), "{name}: {ran:?}");
    }
    assert_eq!(explained[0], explained[1]);
    assert!(explained[0].to_string().contains("200"), "{}", explained[0]);
}

/// A daemon that listens on every address sends its first messages from an address that only the system knows.
#[test]
fn a_trace_of_a_daemon_on_every_address_is_one_call_that_can_be_played() {
    let setup = DaemonSetup::new();
    let any = format!("0.0.0.0:{}", setup.sip.port());
    let setup = setup
        .set("TRUNKLINE__SIP__UDP", &any)
        .set("TRUNKLINE__SIP__TCP", &any);
    let traced = Traced::on(Stage::within(setup), "answered.flow");
    let octets = traced.get("application/vnd.tcpdump.pcap");

    // Source and target of each packet are in its IPv4 header, behind those of the file and the packet.
    let mut rest = &octets[24..];
    let mut count = 0;
    while let Some((head, packets)) = rest.split_at_checked(16) {
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let (packet, next) = packets.split_at(length as usize);
        let ip = packet
            .iter()
            .position(|octet| *octet == 0x45)
            .expect("IPv4");
        for address in [&packet[ip + 12..ip + 16], &packet[ip + 16..ip + 20]] {
            assert_ne!(address, [0, 0, 0, 0], "packet {count}");
        }
        (rest, count) = (next, count + 1);
    }
    assert!(count > 5, "{count} packets");

    let file = traced.stage.shell.path("own.pcap");
    std::fs::write(&file, octets).expect("it can be written");
    let file = file.display().to_string();
    let setup = &traced.stage.daemon.setup;
    let explained = setup.run(&["explain", &file, "--org", &setup.org, "--json"]);
    assert!(explained.to_string().contains("200"), "{explained}");
    let ran = traced.stage.replay(&file, &["--speed", "max"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
