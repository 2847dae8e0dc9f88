//! Calls that the command line controls and follows on a running daemon, and events that it forwards.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use trunkline_testkit::process::{Deadline, Process, trunkline};
use trunkline_testkit::referred::Step::{Answer, ByeComes, Notify, Refer, Turned};
use trunkline_testkit::shell::{Shell, text};
use trunkline_testkit::{Daemon, DaemonSetup, Runtime, assert_handed_over, tools};

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a command on the daemon's control socket, which must succeed; returns its JSON.
fn run(daemon: &Daemon, arguments: &[&str]) -> Value {
    let output = daemon.setup.output(&[arguments, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

/// Starts a command that keeps running.
fn start(daemon: &Daemon, shell: &Shell, arguments: &[&str]) -> Child {
    let data = daemon.setup.folder.path().join("data");
    let mut command = shell.command(arguments);
    command
        .args(["--data-dir", &data.display().to_string()])
        .stdout(Stdio::piped());
    command.spawn().expect("the binary runs")
}

#[test]
fn a_call_is_followed_held_and_transferred() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    daemon.destination("Sales", "phone", "+442071838751");
    let pbx = daemon.caller().takes(&[
        Turned("recvonly"),
        Turned("sendrecv"),
        Refer,
        Answer("202 Accepted", ""),
        Notify("SIP/2.0 100 Trying", "active;expires=60"),
        Notify("SIP/2.0 200 OK", "terminated;reason=noresource"),
        ByeComes,
    ]);

    let call = daemon.answered_call();
    let shell = Shell::new();
    let follow = start(&daemon, &shell, &["call", "follow", "--last", "--json"]);
    let listed = run(&daemon, &["call", "list"]);
    assert_eq!(listed[0]["id"], call, "{listed}");

    let end = &call[24..];
    assert_eq!(run(&daemon, &["call", "show", end])["id"], call);
    run(&daemon, &["call", "hold", "--last"]);
    daemon.setup.settle();
    assert_eq!(run(&daemon, &["call", "show", "--last"])["held"], true);

    run(&daemon, &["call", "resume", end]);
    daemon.setup.settle();
    assert_eq!(run(&daemon, &["call", "show", "--last"])["held"], false);
    run(
        &daemon,
        &["call", "transfer", "--last", "--destination", "Sales"],
    );
    pbx.finish();

    let followed = follow.wait_with_output().expect("it ends with the call");
    assert!(followed.status.success(), "{followed:?}");
    let lines = String::from_utf8_lossy(&followed.stdout).into_owned();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let types: Vec<&str> = lines.iter().map(|line| text(&line["type"])).collect();
    assert!(types.contains(&"decision"), "{types:?}");
    assert_eq!(types.last(), Some(&"call.ended"), "{types:?}");
    assert_handed_over(&daemon.record());

    // For a call that has ended, its decisions and its end are printed.
    let again = daemon.setup.output(&["call", "follow", &call]);
    let printed = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(
        again.status.success() && printed.contains("ended by the "),
        "{again:?}"
    );
}

#[test]
fn a_number_is_dialled_and_hung_up_on() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let carrier = Runtime::new();
    let address = carrier.address();
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    run(
        &daemon,
        &[
            "outbound-trunk",
            "create",
            "--name",
            "Carrier",
            "--host",
            &host,
            "--port",
            &port,
            "--transport",
            "udp",
            "--caller-number",
            "+442071838750",
        ],
    );
    run(
        &daemon,
        &["outbound-trunk", "assign", "Echo", "--trunk", "Carrier"],
    );
    let callee = carrier.takes(&[ByeComes]);
    let placed = run(
        &daemon,
        &["call", "dial", "+14155550100", "--agent", "Echo"],
    );
    daemon.wait_for_status(&placed["call_id"], "in_progress");
    let shown = run(&daemon, &["call", "show", "--last"]);
    assert_eq!(
        (&shown["id"], &shown["direction"]),
        (&placed["call_id"], &json!("outbound")),
        "{shown}"
    );

    run(&daemon, &["call", "hangup", "--last"]);
    callee.finish();
    assert_eq!(daemon.record()["status"], "completed");
}

/// A follower's process, and the first line that it has printed.
fn followed(daemon: &Daemon, arguments: &[&str]) -> (Process, BufReader<ChildStdout>) {
    let mut command = daemon.setup.program(&trunkline().display().to_string());
    let command = command.args(arguments).stdout(Stdio::piped());
    let mut process = Process::start("follower", command);
    let mut printed = BufReader::new(process.stdout());
    let mut line = String::new();
    printed.read_line(&mut line).expect("a line");
    assert!(line.contains("key.revoked"), "{line}");
    (process, printed)
}

#[test]
fn a_follower_ends_when_it_is_interrupted_or_nobody_reads_it() {
    let daemon = DaemonSetup::new().serve();
    let revoke = || {
        run(&daemon, &["key", "create", "--name", "CI"]);
        run(&daemon, &["key", "delete", "CI", "--yes"]);
    };
    revoke();

    let arguments = ["event", "follow", "--since", "0", "--types", "key.revoked"];
    let (mut interrupted, _printed) = followed(&daemon, &arguments);
    interrupted.signal("INT");
    let ended = interrupted.wait(Deadline::after(PATIENCE));
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");

    let (mut unread, printed) = followed(&daemon, &arguments);
    drop(printed);
    revoke();
    let ended = unread.wait(Deadline::after(PATIENCE));
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

/// Takes one request, answers 204, and returns it.
fn receive(listener: &TcpListener) -> String {
    let (mut stream, _) = listener.accept().expect("a request");
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let read = reader.read_line(&mut head).expect("a line");
        assert!(read > 0, "{head}");
    }

    let length = head
        .lines()
        .find_map(|line| {
            line.to_ascii_lowercase()
                .strip_prefix("content-length: ")
                .map(str::to_owned)
        })
        .and_then(|length| length.parse().ok())
        .expect("a length");

    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    stream
        .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
        .expect("the answer is sent");
    head.make_ascii_lowercase();
    head + &String::from_utf8_lossy(&body)
}

#[test]
fn events_are_forwarded_to_a_receiver_under_development() {
    let daemon = DaemonSetup::new().serve();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let receiver = format!("http://{}/events", listener.local_addr().expect("bound"));
    let shell = Shell::new();
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let arguments = [
        "webhook",
        "listen",
        "--forward-to",
        &receiver,
        "--secret",
        secret,
        "--types",
        "key.revoked",
        "--count",
        "1",
        "--json",
    ];

    let mut listening = start(&daemon, &shell, &arguments);
    let mut printed = BufReader::new(listening.stdout.take().expect("its output"));
    let mut line = String::new();
    printed.read_line(&mut line).expect("it has begun");
    assert_eq!(line.trim_end(), json!({"secret": secret}).to_string());

    let key = run(&daemon, &["key", "create", "--name", "CI"]);
    run(&daemon, &["key", "delete", "CI", "--yes"]);
    let request = receive(&listener);
    for header in [
        "webhook-id: ",
        "webhook-timestamp: ",
        "webhook-signature: v1,",
    ] {
        assert!(request.contains(header), "{request}");
    }
    assert!(request.contains(text(&key["api_key_id"])), "{request}");

    line.clear();
    printed.read_line(&mut line).expect("the answer");
    let answered: Value = serde_json::from_str(&line).expect("JSON");
    assert_eq!(
        (&answered["status"], &answered["event"]["type"]),
        (&json!(204), &json!("key.revoked")),
        "{answered}"
    );
    assert!(listening.wait().expect("it ends").success());
}
