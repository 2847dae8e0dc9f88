//! From a capture taken at a PBX to the reason and the fix, as the documents show it.

use serde_json::json;

use trunkline_testkit::shell::{Shell, text};

const REFUSED: &[u8] = include_bytes!("../../fixtures/captures/refused.pcap");
const LOCKED_OUT: &[u8] = include_bytes!("../../fixtures/captures/locked-out.pcap");
const DOCUMENT: &str = include_str!("../../docs/explain.md");

/// Makes the document's org, with one disabled agent that holds the number of the captures; returns its id.
fn acme(shell: &Shell) -> String {
    shell.json(&["org", "create", "--name", "Acme"]);
    let made = shell.json(&["agent", "create", "--org", "Acme", "--name", "Sales"]);
    let agent = text(&made["id"]).to_owned();
    let number = "+493012345601";
    shell.json(&["number", "add", number, "--org", "Acme", "--verified"]);
    shell.json(&[
        "number", "assign", number, "--org", "Acme", "--agent", &agent,
    ]);
    shell.json(&["agent", "update", &agent, "--org", "Acme", "--disabled"]);
    shell.json(&["trunk", "create", "--org", "Acme"]);
    shell.write("refused.pcap", REFUSED);
    shell.write("locked-out.pcap", LOCKED_OUT);
    agent
}

/// Returns the document's commands with their output, with the agent's id put in.
fn shown(agent: &str) -> Vec<(Vec<String>, String)> {
    let blocks = DOCUMENT.split("```console\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("```").next());
    let newcomers = blocks.filter(|block| block.contains("refused.pcap"));
    let commands = newcomers.flat_map(|block| block.split("$ trunkline ").skip(1));
    let today =
        commands.map(|command| command.replace("01a1ff09-ecfe-7e2e-af44-03d514d75f04", agent));
    today
        .map(|command| {
            let (line, output) = command.split_once('\n').expect("a command and its output");
            let words = line.split_whitespace().map(str::to_owned).collect();
            (words, output.trim_end().to_owned())
        })
        .collect()
}

#[test]
fn the_documents_commands_say_what_the_document_says() {
    let shell = Shell::new();
    let agent = acme(&shell);
    let commands = shown(&agent);
    assert_eq!(
        commands.len(),
        3,
        "the reason, the fix, and the proof: {commands:?}"
    );

    for (words, expected) in commands {
        let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        let ran = shell.run(&arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {ran:?}");
        // The document leaves out the output of an update: a table with times in it.
        if expected != "…" {
            assert_eq!(ran.stdout.trim_end(), expected, "{arguments:?}");
        }
    }
}

#[test]
fn a_caller_who_is_locked_out_is_told_apart_from_one_without_credentials() {
    // Realm of the installation where the capture was taken.
    let shell = Shell::new().with("TRUNKLINE__SIP__REALM", "trunkline");
    acme(&shell);

    let explained = shell.json(&["explain", "locked-out.pcap", "--org", "Acme"]);
    let call = &explained[0];
    assert_eq!(call["sip_code"], 401, "{call}");

    let said = text(&call["explanation"][0]);
    assert!(said.starts_with("There is no such user name"), "{said}");
    assert_eq!(
        call["suggested_commands"],
        json!(["trunkline trunk show --org Acme"])
    );

    // The same without the retry that answers the challenge.
    let flow = "locked-out.flow";
    let imported = shell.run(&["capture", "import", "locked-out.pcap", "-o", flow]);
    assert_eq!(imported.code, Some(0), "{imported:?}");

    let text_of_flow = std::fs::read_to_string(shell.path(flow)).expect("a flow");
    let (first, _) = text_of_flow
        .split_once("CSeq: 1 ACK")
        .expect("the ACK of the challenge");
    let cut = first.rfind("\n---").expect("a message");
    shell.write("silent.flow", &first[..cut]);

    let explained = shell.json(&["explain", "silent.flow", "--org", "Acme"]);
    let fix = &explained[0]["suggested_commands"][0];
    assert_eq!(
        fix, "trunkline trunk update --org Acme --allow 127.0.0.1",
        "{explained}"
    );
}

#[test]
fn what_is_no_capture_is_exit_code_1() {
    let shell = Shell::new();
    acme(&shell);
    shell.write("notes.txt", "nothing of SIP\n".repeat(9));
    for file in ["nowhere.pcap", "notes.txt"] {
        let ran = shell.run(&["explain", file, "--org", "Acme"]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(
            ran.stderr.starts_with(&format!("trunkline: {file}: ")),
            "{ran:?}"
        );
    }
}

/// A deployment that was never started: the doctor finds a problem and changes nothing.
#[test]
fn the_doctor_looks_and_changes_nothing() {
    let shell = Shell::new();
    let free = [
        "--set",
        "http.listen=127.0.0.1:9",
        "--set",
        "sip.udp=127.0.0.1:0",
        "--set",
        "sip.tcp=127.0.0.1:0",
        "--set",
        "sip.public_host=127.0.0.1",
    ];

    let doctor = |more: &[&'static str]| shell.run(&[&free[..], &["doctor"], more].concat());
    let before = shell.files();
    let ran = doctor(&["--json"]);

    assert_eq!(ran.code, Some(1), "{ran:?}");

    let report: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(report["problems"], 1, "{report}");

    let first = &report["findings"][0];
    assert_eq!(
        (&first["check"], &first["level"]),
        (&json!("daemon"), &json!("error")),
        "{report}"
    );
    assert_eq!(first["fix"], "Start it: trunkline serve.");

    let told = doctor(&["--quiet"]);
    assert_eq!(told.stdout.lines().count(), 2, "{}", told.stdout);
    assert_eq!(told.stderr, "trunkline: 1 error and 0 warnings found\n");
    assert!(before == shell.files(), "something on disk has changed");

    let faulty = shell.run(&["--set", "sip.shards=x", "doctor"]);
    assert_eq!(faulty.code, Some(2), "{faulty:?}");
}

#[test]
fn recorded_calls_are_replayed_from_the_shell() {
    let shell = Shell::new();
    let agent = acme(&shell);
    shell.write(
        "change.json",
        format!(r#"{{"agents": [{{"id": "{agent}", "enabled": true}}]}}"#),
    );
    let replayed = shell.json(&["route-replay", "--org", "Acme", "--change", "change.json"]);
    assert_eq!(
        (&replayed["calls"], &replayed["elsewhere"]),
        (&json!(0), &json!(0)),
        "{replayed}"
    );

    shell.write(
        "wrong.json",
        r#"{"agents": [{"id": "x"}], "trunk": {"colour": 1}}"#,
    );
    let ran = shell.run(&["route-replay", "--org", "Acme", "--change", "wrong.json"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr.contains("agents[0].id: \"x\" is not an id"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr.contains("trunk.colour: is no field"),
        "{}",
        ran.stderr
    );
    let ran = shell.run(&["route-replay", "--org", "Acme", "--from", "2020-01-01"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
}
