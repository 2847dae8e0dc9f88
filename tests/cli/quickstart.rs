//! `quickstart`: one line with one JSON object, the same org and trunk on every run, and a screen with the next steps.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;

use trunkline_testkit::daemon::DaemonSetup;
use trunkline_testkit::process::{Deadline, Process, trunkline};
use trunkline_testkit::shell::{Shell, text};
use trunkline_testkit::tools;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const FREE: [&str; 6] = [
    "--set",
    "http.listen=127.0.0.1:0",
    "--set",
    "sip.udp=127.0.0.1:0",
    "--set",
    "sip.tcp=127.0.0.1:0",
];

/// The command while it runs, and the lines that it prints.
struct Quickstart {
    process: Process,
    lines: Receiver<String>,
}

impl Quickstart {
    fn start(command: &mut Command) -> Self {
        let mut process = Process::start("quickstart", command.stdout(Stdio::piped()));
        let printed = BufReader::new(process.stdout()).lines();

        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in printed.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, lines }
    }

    /// Returns the next line that has this text; `None` if none comes in time.
    fn line(&self, part: &str) -> Option<String> {
        let limit = Deadline::after(PATIENCE);
        let next = || self.lines.recv_timeout(limit.left()).ok();
        std::iter::from_fn(next).find(|line| line.contains(part))
    }

    /// Ends it by this signal; returns whether it succeeded.
    fn ends_by(&mut self, signal: &str) -> bool {
        self.process.signal(signal);
        let status = self.process.wait(Deadline::after(PATIENCE));
        status.expect("it ends").success()
    }
}

#[test]
fn again_it_shows_the_same_org_trunk_and_keys() {
    let shell = Shell::new();
    let [first, second] = [(); 2].map(|()| {
        shell.json(&[
            "quickstart",
            "--no-serve",
            "--set",
            "sip.public_host=sip.example.com",
        ])
    });

    for same in [
        "org_id",
        "partner_id",
        "agent_id",
        "phone_number",
        "trunk",
        "http",
        "sip",
        "api_key",
        "partner_key",
    ] {
        assert_eq!(first[same], second[same], "{same}");
    }

    let trunk = shell.json(&["trunk", "show", "--org", "Quickstart"]);
    assert_eq!(trunk["transfer_way"], "auto", "{trunk}");

    let keys = || shell.json(&["key", "list", "--org", "Quickstart"]);
    let [only] = keys()
        .as_array()
        .cloned()
        .expect("keys")
        .try_into()
        .expect("one key");

    let kept = shell.path("trunkline-data/quickstart-keys");
    let sealed = std::fs::read(kept).expect("the keys are kept");
    let token = text(&first["api_key"]).as_bytes();
    assert!(
        !sealed.windows(20).any(|part| part == &token[..20]),
        "sealed"
    );

    // A revoked key isn't shown again.
    shell.json(&[
        "key",
        "revoke",
        text(&only["api_key_id"]),
        "--org",
        "Quickstart",
        "--yes",
    ]);

    let third = shell.json(&[
        "quickstart",
        "--no-serve",
        "--set",
        "sip.public_host=sip.example.com",
    ]);
    assert_ne!(third["api_key"], first["api_key"]);
    assert_eq!(third["partner_key"], first["partner_key"]);
    assert_eq!(keys().as_array().map(Vec::len), Some(1));

    assert_eq!(
        (text(&first["trunk"]["sip_endpoint"]), text(&first["sip"])),
        ("sip.example.com", "sip.example.com:5060")
    );
    assert_eq!(first["http"], "http://127.0.0.1:8080");

    let keys: Vec<_> = first
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    let mut named = [
        "org_id",
        "api_key",
        "partner_id",
        "partner_key",
        "agent_id",
        "phone_number",
        "trunk",
        "http",
        "login_link",
        "sip",
    ];
    named.sort_unstable();
    assert_eq!(keys, named);
}

#[test]
fn its_text_fits_a_screen_and_names_what_is_pasted() {
    let shell = Shell::new();
    let ran = shell.run(&[
        "quickstart",
        "--no-serve",
        "--set",
        "sip.public_host=192.0.2.1",
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");

    for part in [
        "/partner-login?token=",
        "trunkline trunk paste ",
        "trunkline console",
        "/docs",
        "sipp -sf ",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    assert!(shell.path("trunkline-data/quickstart-caller.xml").exists());

    let folder = shell.path("trunkline-data").display().to_string().len();
    let rows = |line: &str| {
        line.chars()
            .count()
            .saturating_sub(folder)
            .div_ceil(80)
            .max(1)
    };
    let rows: usize = ran.stdout.lines().map(rows).sum();
    assert!(
        rows < 24,
        "{rows} rows and the prompt are more than a screen has"
    );

    // The commands that it names print a PBX's settings, with the address that quickstart printed.
    for (program, part) in [
        ("asterisk", "contact=sip:192.0.2.1:5060"),
        ("freeswitch", "<gateway name=\"trunkline\">"),
        ("baresip", "baresip -e '/uanew <sip:trunk-"),
    ] {
        let host = ["--set", "sip.public_host=192.0.2.1"];
        let pasted = shell.run(&[&["trunk", "paste", program] as &[&str], &host].concat());
        assert_eq!(pasted.code, Some(0), "{pasted:?}");
        assert!(pasted.stdout.contains(part), "{part}: {}", pasted.stdout);
    }
}

#[test]
fn it_goes_on_serving_and_its_key_works() {
    let shell = Shell::new();
    let mut command = shell.command(&[&["quickstart", "--json"] as &[&str], &FREE].concat());
    let mut daemon = Quickstart::start(command.stderr(Stdio::null()));

    let line = daemon.line("").expect("a line");
    let made: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let address = text(&made["http"])
        .strip_prefix("http://")
        .expect("an HTTP address")
        .to_owned();
    let key = format!("Authorization: Bearer {}\r\n", text(&made["api_key"]));
    let answer = get(&address, "/phone/calls", &key);

    // Its login link works once.
    let (_, link) = text(&made["login_link"])
        .split_once("/partner-login")
        .expect("a link");
    let visit = || get(&address, &format!("/partner-login{link}"), "");
    let visits = [visit(), visit()];

    let has_succeeded = daemon.ends_by("TERM");

    assert!(
        answer.starts_with("HTTP/1.1 200 OK")
            && answer.ends_with(r#"{"items":[],"next":null,"total":0}"#),
        "{answer}"
    );
    assert!(has_succeeded, "its exit code is 0");

    let [first, second] = &visits;
    assert!(
        first.starts_with("HTTP/1.1 303 ") && first.contains("set-cookie: "),
        "{first}"
    );
    assert!(second.starts_with("HTTP/1.1 410 "), "{second}");
}

#[test]
fn the_pasted_sipp_line_places_a_call() {
    if !tools(&["sipp"]) {
        return;
    }

    let shell = Shell::new();
    let mut command = shell.command(&[&["quickstart"] as &[&str], &FREE].concat());
    let daemon = Quickstart::start(command.stderr(Stdio::null()));
    let line = daemon.line("sipp -sf ").expect("a line for sipp");

    // The configured port is 0, so the address is the running daemon's.
    let pasted = shell.run(&[&["trunk", "paste", "sipp"] as &[&str], &FREE].concat());
    assert_eq!(
        pasted.stdout.trim_end().rsplit(' ').next(),
        line.rsplit(' ').next(),
        "{pasted:?}"
    );

    let mut sipp = Command::new("sh");
    sipp.args([
        "-c",
        &format!("{line} -i 127.0.0.1 -nostdin -timeout 20 -timeout_error"),
    ])
    .current_dir(shell.path(""));
    let call = sipp.stdin(Stdio::null()).output().expect("sh runs");
    assert!(
        call.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&call.stdout),
        String::from_utf8_lossy(&call.stderr)
    );

    // Each step of the call is a line.
    for step in [
        "sipp calls +12025550123 from 127.0.0.1:",
        "step 2 of 4 chose agent \"Echo\": it holds the dialled number",
        "answered after ",
        "ended by the caller after 2.",
    ] {
        assert!(daemon.line(step).is_some(), "{step}");
    }
}

fn get(address: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the daemon listens");
    let limit = stream.set_read_timeout(Some(PATIENCE));
    limit.expect("a limit above zero");
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n");
    stream
        .write_all(head.as_bytes())
        .expect("a request is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer comes");
    answer
}

/// As after the installation of the package, whose service is running.
#[test]
fn beside_a_daemon_it_prints_the_calls_that_the_daemon_takes() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let mut command = daemon.setup.program(&trunkline().display().to_string());
    let mut watching = Quickstart::start(command.arg("quickstart"));
    let line = watching.line("sipp -sf ").expect("a line for sipp");

    let call = daemon
        .setup
        .program("sh")
        .args(["-c", &format!("{line} -nostdin -timeout 20")])
        .output()
        .expect("sh runs");

    assert!(call.status.success(), "{call:?}");
    let ended = watching.line("ended by the caller");
    assert!(ended.is_some(), "the call's end is printed");
    assert!(watching.ends_by("INT"), "its exit code is 0");
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn an_operator_who_trusts_no_runtime_keeps_that() {
    let shell = Shell::new();
    shell.write("trunkline.toml", "[sip]\ntrusted_runtimes = []\n");
    for _ in 0..3 {
        shell.json(&[&["quickstart", "--no-serve"] as &[&str], &FREE].concat());
    }
    let written = shell.path("trunkline-data/quickstart.toml");
    let written = std::fs::read_to_string(written).expect("quickstart's file");
    assert!(!written.contains("trusted_runtimes"), "{written}");
    assert_eq!(
        written.matches("allow_private_peers").count(),
        1,
        "{written}"
    );

    // Once the operator says nothing, the next run trusts this machine, and keeps what the file has.
    shell.write("trunkline.toml", "");
    for _ in 0..2 {
        shell.json(&[&["quickstart", "--no-serve"] as &[&str], &FREE].concat());
    }
    let written = shell.path("trunkline-data/quickstart.toml");
    let written = std::fs::read_to_string(written).expect("quickstart's file");
    assert!(
        written.starts_with("# Written by trunkline quickstart."),
        "{written}"
    );
    for key in ["allow_private_peers", "trusted_runtimes"] {
        assert_eq!(written.matches(key).count(), 1, "{written}");
    }
}
