//! The life of each resource by the command line, over each way to the API: the address with a key, the control socket of the daemon, and the router
//! in the command's own process.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use serde_json::{Value, json};
use trunkline_testkit::daemon::DaemonSetup;
use trunkline_testkit::shell::{Shell, text};

/// Runs a command, which must succeed, and returns its JSON.
pub(crate) fn json_of(setup: &DaemonSetup, way: &[&str], arguments: &[&str]) -> Value {
    let output = setup.output(&[arguments, way, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

/// Runs a command, which must succeed, and returns what it prints.
fn printed(setup: &DaemonSetup, way: &[&str], arguments: &[&str]) -> String {
    let output = setup.output(&[arguments, way].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

pub(crate) fn refused(
    setup: &DaemonSetup,
    way: &[&str],
    arguments: &[&str],
) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = setup.output(&[arguments, way].concat());
    assert!(!status.success(), "{arguments:?} succeeded");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Makes, lists, shows, changes and deletes one of each; commands accept names in place of ids.
fn life(setup: &DaemonSetup, way: &[&str]) {
    let run = |arguments: &[&str]| json_of(setup, way, arguments);

    let desk = run(&[
        "destination",
        "create",
        "--name",
        "Desk",
        "--type",
        "sip",
        "--value",
        "sip:desk@pbx.example.com",
    ]);

    let id = text(&desk["id"]);
    assert_eq!(run(&["destination", "show", "Desk"]), desk);
    assert_eq!(run(&["destination", "show", &id[24..]]), desk);
    assert_eq!(run(&["destination", "show", "--last"]), desk);
    assert_eq!(run(&["destination", "list"]), json!([desk]));

    let renamed = run(&["destination", "update", "Desk", "--name", "Front desk"]);
    assert_eq!(renamed["name"], "Front desk");
    let agent = &setup.first_agent;
    run(&["destination", "assign", agent, "Front desk"]);
    run(&["destination", "unassign", agent, "Front desk", "--yes"]);
    let (code, said) = refused(setup, way, &["destination", "update", "Front desk"]);
    assert!(
        code == Some(2) && said.contains("nothing to change"),
        "{said}"
    );

    let (code, said) = refused(setup, way, &["destination", "delete", "Front desk"]);
    assert!(code == Some(2) && said.contains("--yes"), "{said}");
    run(&["destination", "delete", "Front desk", "--yes"]);
    assert_eq!(run(&["destination", "list"]), json!([]));

    let password = setup.folder.path().join("carrier.secret");
    std::fs::write(&password, "a password\n").expect("the folder can be written");
    let password = password.display().to_string();
    let trunk = run(&[
        "outbound-trunk",
        "create",
        "--name",
        "Carrier",
        "--host",
        "192.0.2.1",
        "--caller-number",
        "+442071838750",
        "--username",
        "acme",
        "--password-file",
        &password,
        "--max-concurrent-calls",
        "3",
    ]);
    assert_eq!(
        (&trunk["username"], &trunk["max_concurrent_calls"]),
        (&json!("acme"), &json!(3))
    );

    let bridged = run(&[
        "outbound-trunk",
        "update",
        "Carrier",
        "--transfer-way",
        "bridge",
    ]);
    assert_eq!(bridged["transfer_way"], "bridge");
    let assigned = run(&["outbound-trunk", "assign", agent, "--trunk", "Carrier"]);
    assert_eq!(assigned["outbound_trunk"]["id"], trunk["id"], "{assigned}");
    run(&["outbound-trunk", "assign", agent, "--trunk", "none"]);
    run(&["outbound-trunk", "delete", "Carrier", "--yes"]);

    let hook = run(&["webhook", "create", "https://hooks.example.com/x"]);
    assert!(hook["secret"].is_string(), "{hook}");
    let off = run(&[
        "webhook",
        "update",
        "https://hooks.example.com/x",
        "--enabled",
        "false",
    ]);
    assert_eq!(off["enabled"], false);

    let rotated = run(&["webhook", "rotate-secret", "--last", "--yes"]);
    assert_ne!(rotated["secret"], hook["secret"]);
    assert_eq!(run(&["webhook", "deliveries", "--last"]), json!([]));
    run(&["webhook", "delete", "--last", "--yes"]);

    let contact = run(&[
        "contact",
        "create",
        "--external-id",
        "4711",
        "--name",
        "Ann",
    ]);

    let contact = text(&contact["contact"]["id"]).to_owned();
    let changed = run(&["contact", "update", &contact, "--name", "Ann B"]);
    assert_eq!(changed["name"], "Ann B", "{changed}");
    assert_eq!(run(&["contact", "show", &contact])["name"], "Ann B");

    let found = run(&["contact", "find", "--external-id", "4711"]);
    assert_eq!(found[0]["id"], contact.as_str(), "{found}");
    assert_eq!(run(&["contact", "show", "--last"])["id"], contact.as_str());

    let export = printed(setup, way, &["contact", "export", "Ann B"]);
    let export: Value = serde_json::from_str(&export).expect("JSON");
    assert_eq!(export["contact"]["id"], contact.as_str(), "{export}");
    assert_eq!(export["calls"], json!([]), "{export}");
    let erased = run(&["contact", "erase", &contact, "--yes", "--wait", "0"]);
    assert_eq!(erased["contact_id"], contact.as_str(), "{erased}");
    let receipt = run(&["contact", "receipt", text(&erased["id"])]);
    assert_eq!(receipt["id"], erased["id"], "{receipt}");
    assert_eq!(run(&["contact", "list"]), json!([]));
    explained(setup, way);

    run(&[
        "handoff",
        "report",
        "--session-id",
        "s",
        "--reasons",
        "prohibited_topic",
    ]);
    assert_eq!(run(&["handoff", "list"]).as_array().map(Vec::len), Some(1));
    assert!(run(&["voice", "list"]).is_array());
    assert!(run(&["usage", "show"])["items"].is_array());
    assert_eq!(run(&["call", "list"]), json!([]));
    assert_eq!(run(&["auth-failure", "list"]), json!([]));

    life_of_own(setup, way);
    let (code, said) = refused(setup, way, &["call", "show", "--last"]);
    assert!(
        code == Some(1) && said.contains("there is none yet"),
        "{said}"
    );

    let faults = [
        "destination",
        "create",
        "--name",
        "D",
        "--type",
        "phone",
        "--value",
        "0207",
    ];
    let (code, said) = refused(setup, way, &faults);
    assert!(code == Some(1) && said.contains("E.164"), "{said}");
}

/// Runs the commands that explain routing and print settings to paste.
fn explained(setup: &DaemonSetup, way: &[&str]) {
    let run = |arguments: &[&str]| json_of(setup, way, arguments);
    let routed = run(&["route", "test", "--to", &setup.first_number]);
    let agent = &routed["outcome"]["agent"]["id"];
    assert_eq!(agent, setup.first_agent.as_str(), "{routed}");
    let busy = ["route-test", "--to", &setup.first_number, "--busy", "Echo"];
    let busy = run(&busy);
    assert_eq!(&busy["outcome"]["agent_busy"]["id"], agent, "{busy}");
    let replayed = run(&["route", "replay", "--until", "2026-01-31"]);
    assert_eq!(replayed["calls"], 0, "{replayed}");

    let long = format!("{{{}}}", " ".repeat(1 << 20));
    std::fs::write(setup.folder.path().join("long.json"), long).expect("a file");
    let (_, said) = refused(setup, way, &["route", "replay", "--change", "long.json"]);
    assert!(said.contains("more than 1048576 octets"), "{said}");

    let capture = include_bytes!("../../fixtures/captures/refused.pcap");
    std::fs::write(setup.folder.path().join("refused.pcap"), capture).expect("a file");
    let said = run(&["explain", "refused.pcap"]);
    assert_eq!(said[0]["sip_code"], 480, "{said}");
    let sentences = said[0]["explanation"].as_array().map(Vec::len);
    assert!(sentences > Some(2), "{said}");
    let (code, said) = refused(setup, way, &["explain", "--last"]);
    assert!(
        code == Some(1) && said.contains("there is none yet"),
        "{said}"
    );

    let trunk = run(&["trunk", "show"]);
    for program in ["asterisk", "sipp"] {
        let lines = printed(setup, way, &["trunk", "paste", program]);
        assert!(lines.contains(text(&trunk["auth_password"])), "{lines}");
    }
}

/// The same for objects of an org: agents, numbers, keys, and the trunk that its PBX calls through.
fn life_of_own(setup: &DaemonSetup, way: &[&str]) {
    let run = |arguments: &[&str]| json_of(setup, way, arguments);
    let count = |noun: &str| run(&[noun, "list"]).as_array().map(Vec::len);

    let before = count("agent");
    let runtime = "sip:{agent_id}@192.0.2.7";

    let agent = run(&[
        "agent",
        "create",
        "--name",
        "Sales",
        "--runtime",
        runtime,
        "--fallback",
        "sip:192.0.2.8",
    ]);
    assert_eq!(
        (&agent["type"], &agent["runtime"]["uri"]),
        (&json!("inbound"), &json!(runtime)),
        "{agent}"
    );
    assert_eq!(run(&["agent", "show", "Sales"]), agent);
    assert_eq!(run(&["agent", "show", "--last"]), agent);

    let secret = setup.folder.path().join("runtime.secret");
    std::fs::write(&secret, "a password\n").expect("the folder can be written");
    let secret = secret.display().to_string();
    let login = [
        "--runtime-username",
        "bot",
        "--runtime-password-file",
        &secret,
    ];
    let changed = run(&[&["agent", "update", "Sales", "--disabled"], &login[..]].concat());
    assert_eq!(
        (
            &changed["enabled"],
            &changed["runtime"]["username"],
            &changed["runtime"]["fallbacks"]
        ),
        (&json!(false), &json!("bot"), &json!(["sip:192.0.2.8"])),
        "{changed}"
    );

    let mixed = [
        "--runtime",
        runtime,
        "--fallback",
        "wss://bot.example.com/ws",
        "--fallback",
        "builtin:",
    ];

    let changed = run(&[&["agent", "update", "Sales"], &mixed[..]].concat());
    assert_eq!(
        changed["runtime"]["fallbacks"],
        json!(["wss://bot.example.com/ws", "builtin:"]),
        "{changed}"
    );
    assert!(changed["runtime"]["flow"]["start"].is_string(), "{changed}");

    let changed = run(&[
        "agent",
        "update",
        "Sales",
        "--enabled",
        "--runtime",
        "default",
    ]);
    assert_eq!(
        (&changed["enabled"], &changed["runtime"]),
        (&json!(true), &Value::Null),
        "{changed}"
    );

    let (code, said) = refused(setup, way, &["agent", "update", "Sales"]);
    assert!(
        code == Some(2) && said.contains("nothing to change"),
        "{said}"
    );

    // An org's key can't verify a number; the operator does.
    let number = "+442071838751";
    let added = run(&["number", "add", number]);
    assert_eq!(run(&["number", "show", number]), added);
    if way.is_empty() {
        run(&["number", "verify", number]);
    } else {
        let (code, said) = refused(setup, way, &["number", "verify", number]);
        assert!(code == Some(2) && said.contains("operator"), "{said}");
        json_of(setup, &[], &["number", "verify", number]);
    }

    let assigned = run(&["number", "assign", number, "--agent", "Sales"]);
    assert_eq!(assigned["agent_id"], agent["id"], "{assigned}");

    let trunk = run(&["trunk", "add-number", number]);
    let listed = trunk["phone_numbers"].as_array().map(Vec::len);
    assert_eq!(listed, Some(2), "{trunk}");
    let trunk = run(&["trunk", "remove-number", number, "--yes"]);
    assert_eq!(trunk["phone_numbers"], json!([setup.first_number]));

    let freed = run(&["number", "unassign", number]);
    assert_eq!(freed["agent_id"], Value::Null, "{freed}");
    run(&["number", "delete", number, "--yes"]);
    assert_eq!(count("number"), Some(1));

    run(&["agent", "delete", "Sales", "--yes"]);
    assert_eq!(count("agent"), before);

    let key = run(&["key", "create", "--name", "CI", "--scopes", "calls:read"]);
    assert!(text(&key["api_key"]).split('.').count() == 3, "{key}");
    let listed = run(&["key", "list"]);
    assert_eq!(listed[0]["api_key_id"], key["api_key_id"], "{listed}");
    run(&["key", "delete", "CI", "--yes"]);
    assert_ne!(run(&["key", "list"])[0]["api_key_id"], key["api_key_id"]);

    let shown = run(&["trunk", "show"]);
    let changed = run(&[
        "trunk",
        "update",
        "--allow",
        "203.0.113.9",
        "--country",
        "GB",
    ]);
    assert_eq!(
        (&changed["allowed_addresses"], &changed["default_country"]),
        (&json!(["203.0.113.9/32"]), &json!("GB")),
        "{changed}"
    );

    let rotated = run(&["trunk", "rotate"]);
    assert_ne!(rotated["auth_password"], shown["auth_password"]);

    run(&["trunk", "delete", "--yes"]);
    let (code, said) = refused(setup, way, &["trunk", "show"]);
    assert!(code == Some(1) && said.contains("no such"), "{said}");
    let made = run(&["trunk", "create", "--allow-none"]);
    assert_eq!(made["phone_numbers"], json!([setup.first_number]));

    let entries = run(&["audit", "--limit", "5"]);
    assert_eq!(entries[0]["action"], "POST /phone/sip/inbound-trunk");
}

#[test]
fn what_destroys_something_needs_a_confirmation_without_a_terminal() {
    let shell = Shell::new();
    shell.json(&["org", "create", "--name", "Acme"]);
    shell.json(&["agent", "create", "--name", "Sales"]);
    for arguments in [
        &["agent", "delete", "Sales"] as &[&str],
        &["outbound-trunk", "delete", "Carrier"],
        &["org", "suspend", "Acme"],
        &["contact", "erase", "019a0000-0000-7000-8000-000000000000"],
    ] {
        let ran = shell.run(arguments);
        assert!(
            ran.code == Some(2) && ran.stderr.contains("--yes"),
            "{ran:?}"
        );
    }
    shell.json(&["agent", "delete", "Sales", "--yes"]);
}

/// Every command has its page, and the completions have every verb: both come from the definitions that the binary parses with.
#[test]
fn man_pages_and_completions_are_those_of_the_binary() {
    let shell = Shell::new();
    let ran = shell.run(&["man", "pages"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");

    let pages: Vec<String> = std::fs::read_dir(shell.path("pages"))
        .expect("the pages")
        .map(|page| {
            page.expect("a page")
                .file_name()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    assert!(pages.len() > 100, "{pages:?}");

    let scripts: Vec<String> = ["bash", "zsh", "fish"]
        .iter()
        .map(|kind| shell.run(&["completion", kind]).stdout)
        .collect();
    for page in &pages {
        let words = page.trim_end_matches(".1").strip_prefix("trunkline");
        let words = words.unwrap_or_else(|| panic!("{page}: is no page of trunkline"));
        let last = words.rsplit('-').next().unwrap_or_default();
        for script in &scripts {
            assert!(script.contains(last), "{page}: {last}");
        }
    }

    // Every verb in the help has its page, and every option of its help is on that page.
    for (noun, verb) in [("org", "limits"), ("agent", "create"), ("call", "follow")] {
        let help = shell.run(&[noun, "--help"]).stdout;
        assert!(help.contains(&format!("  {verb}")), "{help}");
        let page = std::fs::read_to_string(shell.path(&format!("pages/trunkline-{noun}-{verb}.1")));
        let page = page.expect("its page").replace('\\', "");
        let help = shell.run(&[noun, verb, "--help"]).stdout;
        let options = help
            .split_whitespace()
            .filter(|word| word.starts_with("--"));
        for option in options.map(|word| word.trim_end_matches([',', '.', '`', ':'])) {
            assert!(page.contains(option), "{noun} {verb}: {option}");
        }
    }
}

#[test]
fn each_resource_lives_in_the_commands_own_process() {
    let setup = DaemonSetup::new();
    life(&setup, &[]);
}

#[test]
fn each_resource_lives_over_the_control_socket() {
    let daemon = DaemonSetup::new().serve();
    let socket = daemon.setup.folder.path().join("data/control.sock");
    let mode = std::fs::metadata(&socket)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    life(&daemon.setup, &[]);

    // The audit log names the operator, and no request counted against the org.
    let entries = daemon.shown("/phone/audit");
    let entry = &entries["items"][0];
    assert_eq!(entry["actor"], "command", "{entry}");
    assert!(
        text(&entry["actor_name"]).starts_with("operator, uid "),
        "{entry}"
    );

    let link = json_of(
        &daemon.setup,
        &[],
        &["login-link", "create", "ann@example.com"],
    );
    assert!(
        text(&link["url"]).contains("/partner-login?token="),
        "{link}"
    );
    drop(daemon);
}

#[test]
fn each_resource_lives_by_address_and_key() {
    // `trunk paste sipp` writes its scenario into this folder.
    let setup = DaemonSetup::new();
    let folder = setup.folder.path().join("config").display().to_string();
    let daemon = setup.set("XDG_CONFIG_HOME", &folder).serve();
    let url = format!("http://{}", daemon.setup.http);
    life(&daemon.setup, &["--url", &url, "--key", daemon.key()]);
}

#[test]
fn the_operators_requests_cost_the_org_none_of_its_limit() {
    let limit = ("TRUNKLINE__LIMITS__REQUESTS_PER_MINUTE", "2".to_owned());
    let daemon = DaemonSetup::with(std::net::Ipv4Addr::LOCALHOST.into(), vec![limit]).serve();
    for _ in 0..5 {
        json_of(&daemon.setup, &[], &["call", "list"]);
    }
    let (status, _) = daemon.read("/phone/calls", daemon.key());
    assert_eq!(status, 200);
}

#[test]
fn the_operators_routes_and_header_are_nobodys_on_the_public_address() {
    let daemon = DaemonSetup::new().serve();
    let (status, _) = daemon.read("/operator/orgs", daemon.key());
    assert_eq!(status, 404);
    let (status, _) = daemon.read("/phone/calls", "no key");
    assert_eq!(status, 401);
}

#[test]
fn reading_makes_no_data_directory() {
    let shell = Shell::new();

    for arguments in [
        &["call", "list"] as &[&str],
        &["usage", "show"],
        &["org", "list"],
        &["agent", "list", "--org", "Acme"],
        &["audit"],
    ] {
        let ran = shell.run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
        assert!(
            shell.files().is_empty(),
            "{arguments:?}: {:?}",
            shell.files().keys()
        );
    }
}
