//! `trunk paste`, `console` and the fields that commands of trunks and agents set: from the shell to the daemon and back.

use std::process::{Command, Stdio};

use trunkline_testkit::Caller;
use trunkline_testkit::daemon::{Daemon, DaemonSetup};
use trunkline_testkit::http;
use trunkline_testkit::kamailio::Kamailio;
use trunkline_testkit::not_run;
use trunkline_testkit::shell::text;
use trunkline_testkit::tools;

fn pasted(setup: &DaemonSetup, program: &str) -> String {
    let output = setup.output(&["trunk", "paste", program]);
    assert!(output.status.success(), "{program}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// Runs a pasted line in a shell, with what a test adds to it.
fn run(daemon: &Daemon, pasted: &str, more: &str) {
    let home = daemon.setup.folder.path();
    let output = Command::new("sh")
        .args(["-c", &format!("{} {more}", pasted.trim_end())])
        .current_dir(home)
        .stdin(Stdio::null())
        .output()
        .expect("sh runs");
    assert!(output.status.success(), "{pasted}: {output:?}");
}

#[test]
fn the_line_for_sipp_places_a_call() {
    if !tools(&["sipp"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let line = pasted(&daemon.setup, "sipp");
    assert!(
        line.starts_with("# sipp:") && line.contains("Run against SIPp"),
        "{line}"
    );
    run(
        &daemon,
        &line,
        "-i 127.0.0.1 -nostdin -timeout 20 -timeout_error",
    );
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn the_line_for_baresip_places_a_call() {
    if !tools(&["baresip"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let line = pasted(&daemon.setup, "baresip");
    let folder = daemon.setup.folder.path().join("baresip");
    std::fs::create_dir(&folder).expect("the folder can be written");
    let config = "module_path /usr/lib/baresip/modules\nsip_listen 127.0.0.1:0\nnet_interface 127.0.0.1\n\
                  audio_source ausine,440\naudio_player aufile,/dev/null\nmodule g711.so\nmodule ausine.so\n\
                  module aufile.so\nmodule_tmp account.so\nmodule_app menu.so\n";
    std::fs::write(folder.join("config"), config).expect("the configuration can be written");
    run(&daemon, &line, &format!("-f '{}' -t 3", folder.display()));
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");

    // The command line reports the same call, through the control socket.
    let events = daemon.setup.output(&[
        "event",
        "follow",
        "--since",
        "0",
        "--types",
        "call.started",
        "--count",
        "1",
    ]);

    let said = String::from_utf8_lossy(&events.stdout).into_owned();
    assert!(
        events.status.success() && said.contains("call.started"),
        "{events:?}"
    );

    let shown = daemon.setup.run(&["call", "show", "--last", "--json"]);
    assert_eq!(shown["id"], record["id"]);
    let traced = daemon.setup.output(&["trace", "--once"]);
    assert!(
        String::from_utf8_lossy(&traced.stdout).contains("completed"),
        "{traced:?}"
    );
    assert!(record["answered_at"].is_string(), "{record}");
}

#[test]
fn the_lines_for_kamailio_bring_a_call_to_the_agent() {
    if !tools(&["kamailio", "sipp"]) {
        return;
    }
    let daemon = DaemonSetup::new().serve();
    let lines = pasted(&daemon.setup, "kamailio");
    let Some(kamailio) = Kamailio::including(&lines, "TRUNKLINE") else {
        return not_run::without("/etc/kamailio/kamailio.cfg (the package kamailio)");
    };
    let caller = Caller {
        daemon: kamailio.address,
        ..daemon.caller()
    };

    // The caller has no credentials: Kamailio answers the challenge.
    let caller = caller.play("caller_known_by_address").finish();
    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}\n{caller}");
    assert_eq!(record["hangup_by"], "caller", "{record}\n{caller}");
    let first = record["trunk_id"].as_str();
    assert!(first.is_some(), "{record}");
}

#[test]
fn each_phone_systems_lines_have_the_trunks_values_and_say_what_they_were_run_against() {
    let setup = DaemonSetup::new();
    let trunk = setup.run(&["trunk", "show", "--json"]);
    let values = [text(&trunk["auth_username"]), text(&trunk["auth_password"])];

    for (program, heading) in [
        ("asterisk", "Asterisk 22.10"),
        ("freeswitch", "FreeSWITCH 1.11.2"),
        ("freepbx", "untested"),
        ("3cx", "untested"),
        ("yeastar", "untested"),
        ("grandstream", "untested"),
        ("cisco", "untested"),
        ("kamailio", "Kamailio 5.6.3"),
    ] {
        let lines = pasted(&setup, program);
        let first = lines.lines().next().unwrap_or_default();
        assert!(first.contains(heading), "{program}: {first}");
        for value in values {
            assert!(lines.contains(value), "{program} lacks {value}: {lines}");
        }
    }
}

#[test]
fn the_console_prints_a_link_that_logs_in_once() {
    let daemon = DaemonSetup::new().serve();
    let output = daemon.setup.output(&["console"]);
    assert!(output.status.success(), "{output:?}");

    let link = String::from_utf8(output.stdout).expect("text");
    let (_, path) = link
        .trim_end()
        .split_once("/partner-login")
        .expect("a link");
    let path = format!("/partner-login{path}");
    let status = |path: &str| http::get(daemon.setup.http, path, None).map(|(status, _)| status);
    assert_eq!(status(&path), Some(303), "{link}");
    assert_eq!(status(&path), Some(410), "a second time");
    assert_eq!(status("/"), Some(303));
}

#[test]
fn the_operator_looks_at_nodes_and_logs_in_where_the_daemon_runs() {
    let setup = DaemonSetup::new();
    let without = setup.output(&["console", "--operator"]);
    let said = String::from_utf8_lossy(&without.stderr).into_owned();
    assert!(
        !without.status.success() && said.contains("the daemon has to run"),
        "{said}"
    );

    let daemon = setup.serve();
    let run = |arguments: &[&str]| daemon.setup.run(arguments);
    let nodes = run(&["node", "list", "--json"]);
    assert_eq!(nodes[0]["status"], "serving", "{nodes}");
    let health = run(&["node", "health", "--json"]);
    assert_eq!(
        (&health["journal"], &health["database_answers"]),
        (&"ok".into(), &true.into())
    );
    assert_eq!(run(&["node", "sources", "--json"]), serde_json::json!([]));

    let link = run(&["console", "--operator", "--json"]);
    let (_, path) = text(&link["url"])
        .split_once("/operator-console")
        .expect("a link");
    let looked = http::get(daemon.setup.http, &format!("/operator-console{path}"), None);
    assert_eq!(looked.map(|(status, _)| status), Some(200));
    let shut = http::get(daemon.setup.http, "/operator-console", None);
    assert_eq!(shut.map(|(status, _)| status), Some(401));
}

#[test]
fn a_trunks_way_of_transfers_is_set_and_an_echo_agent_has_no_user_name() {
    let setup = DaemonSetup::new();
    setup.run(&["trunk", "update", "--transfer-way", "auto", "--json"]);
    let agent = setup.first_agent.clone();
    let echo = setup.run(&[
        "agent",
        "update",
        &agent,
        "--runtime",
        "echo",
        "--runtime-username",
        "none",
        "--json",
    ]);
    assert_eq!(echo["runtime"]["type"], "echo");

    for noun in [
        &["trunk", "update"] as &[&str],
        &["agent", "update", &agent],
    ] {
        let output = setup.output(noun);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && said.contains("nothing to change"),
            "{said}"
        );
    }

    let daemon = setup.serve();
    let trunk = daemon.shown("/phone/sip/inbound-trunk");
    assert_eq!(trunk["transfer_way"], "auto", "{trunk}");
}
