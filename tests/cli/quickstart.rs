//! `quickstart`: one line with one JSON object, the same org and trunk on every run, and a screen with the next steps.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use serde_json::Value;

use trunkline_testkit::daemon::DaemonSetup;
use trunkline_testkit::process::trunkline;
use trunkline_testkit::shell::{Shell, text};

const FREE: [&str; 6] = [
    "--set",
    "http.listen=127.0.0.1:0",
    "--set",
    "sip.udp=127.0.0.1:0",
    "--set",
    "sip.tcp=127.0.0.1:0",
];

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
    let mut daemon = shell
        .command(&[&["quickstart", "--json"] as &[&str], &FREE].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");

    let mut line = String::new();
    BufReader::new(daemon.stdout.take().expect("a pipe"))
        .read_line(&mut line)
        .expect("a line");
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

    let signalled = std::process::Command::new("kill")
        .args(["-TERM", &daemon.id().to_string()])
        .status()
        .expect("kill runs");
    let ended = daemon.wait().expect("the daemon ends");

    assert!(
        answer.starts_with("HTTP/1.1 200 OK")
            && answer.ends_with(r#"{"items":[],"next":null,"total":0}"#),
        "{answer}"
    );
    assert!(signalled.success() && ended.success(), "{ended}");

    let [first, second] = &visits;
    assert!(
        first.starts_with("HTTP/1.1 303 ") && first.contains("set-cookie: "),
        "{first}"
    );
    assert!(second.starts_with("HTTP/1.1 410 "), "{second}");
}

#[test]
fn the_pasted_sipp_line_places_a_call() {
    if !crate::has("sipp") {
        return;
    }

    let shell = Shell::new();
    let mut daemon = shell
        .command(&[&["quickstart"] as &[&str], &FREE].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(daemon.stdout.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok);
    let line = lines.by_ref().find(|line| line.starts_with("sipp "));

    // The configured port is 0, so the address is the running daemon's.
    let pasted = shell.run(&[&["trunk", "paste", "sipp"] as &[&str], &FREE].concat());
    let called = line.as_deref().and_then(|line| line.rsplit(' ').next());
    assert_eq!(
        pasted.stdout.trim_end().rsplit(' ').next(),
        called,
        "{pasted:?}"
    );

    let call = line.map(|line| {
        let mut sipp = std::process::Command::new("sh");
        sipp.args([
            "-c",
            &format!("{line} -i 127.0.0.1 -nostdin -timeout 20 -timeout_error"),
        ])
        .current_dir(shell.path(""));
        sipp.stdin(Stdio::null()).output().expect("sh runs")
    });

    // Each step of the call is a line.
    let steps = [
        "sipp calls +12025550123 from 127.0.0.1:",
        "step 2 of 4 chose agent \"Echo\": it holds the dialled number",
        "answered after ",
        "ended by the caller after 2.",
    ];
    let seen = call.as_ref().filter(|call| call.status.success()).map(|_| {
        let told = steps.map(|step| lines.by_ref().find(|line| line.contains(step)));
        told.map(|line| line.is_some())
    });
    let killed = daemon.kill();
    let ended = daemon.wait();
    assert_eq!(seen, Some([true; 4]), "the steps of the call");

    let call = call.expect("a line for sipp");
    assert!(
        call.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&call.stdout),
        String::from_utf8_lossy(&call.stderr)
    );
    assert!(killed.is_ok() && ended.is_ok());
}

fn get(address: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the daemon listens");
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
    if !crate::has("sipp") {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let mut command = daemon.setup.program(&trunkline().display().to_string());
    let mut watching = command
        .arg("quickstart")
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut lines = BufReader::new(watching.stdout.take().expect("a pipe"))
        .lines()
        .map_while(Result::ok);
    let line = lines.by_ref().find(|line| line.starts_with("sipp "));

    let call = daemon
        .setup
        .program("sh")
        .args([
            "-c",
            &format!("{} -nostdin -timeout 20", line.unwrap_or_default()),
        ])
        .output()
        .expect("sh runs");

    let ended = lines
        .by_ref()
        .find(|line| line.contains("ended by the caller"));
    let signalled = std::process::Command::new("kill")
        .args(["-INT", &watching.id().to_string()])
        .status()
        .expect("kill runs");
    let status = watching.wait().expect("it ends");
    assert!(call.status.success(), "{call:?}");
    assert!(
        ended.is_some() && signalled.success() && status.success(),
        "{status}"
    );
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
