//! Each resource's life by the command line alone, over each way to the API: the address with a key, the control
//! socket of the daemon, and the router in the command's own process.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use trunkline_testkit::daemon::House;
use trunkline_testkit::shell::{Shell, text};

/// Runs a command, which must succeed, and returns its JSON.
fn json_of(house: &House, way: &[&str], arguments: &[&str]) -> Value {
    let output = house.output(&[arguments, way, &["--json"]].concat());
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {output:?}"))
}

fn refused(house: &House, way: &[&str], arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = house.output(&[arguments, way].concat());
    assert!(!status.success(), "{arguments:?} succeeded");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

/// Makes, lists, shows, changes and deletes one of each; names are taken for ids.
fn life(house: &House, way: &[&str]) {
    let run = |arguments: &[&str]| json_of(house, way, arguments);

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
    let agent = &house.first_agent;
    run(&["destination", "assign", agent, "Front desk"]);
    run(&["destination", "unassign", agent, "Front desk", "--yes"]);
    let (code, said) = refused(house, way, &["destination", "update", "Front desk"]);
    assert!(
        code == Some(2) && said.contains("nothing to change"),
        "{said}"
    );
    let (code, said) = refused(house, way, &["destination", "delete", "Front desk"]);
    assert!(code == Some(2) && said.contains("--yes"), "{said}");
    run(&["destination", "delete", "Front desk", "--yes"]);
    assert_eq!(run(&["destination", "list"]), json!([]));

    let password = house.folder.path().join("carrier.secret");
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
    let (code, said) = refused(house, way, &["call", "show", "--last"]);
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
    let (code, said) = refused(house, way, &faults);
    assert!(code == Some(1) && said.contains("E.164"), "{said}");
}

#[test]
fn each_resource_lives_in_the_commands_own_process() {
    let house = House::new();
    life(&house, &[]);
}

#[test]
fn each_resource_lives_over_the_control_socket() {
    let daemon = House::new().serve();
    let socket = daemon.house.folder.path().join("data/control.sock");
    let mode = std::fs::metadata(&socket)
        .expect("the socket")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    life(&daemon.house, &[]);

    // Who did it is in the audit log, and no request counted against the org.
    let entries = daemon.shown("/phone/audit");
    let entry = &entries["items"][0];
    assert_eq!(entry["actor"], "command", "{entry}");
    assert!(
        text(&entry["actor_name"]).starts_with("operator, uid "),
        "{entry}"
    );
    let link = json_of(
        &daemon.house,
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
    let daemon = House::new().serve();
    let url = format!("http://{}", daemon.house.http);
    life(&daemon.house, &["--url", &url, "--key", daemon.key()]);
}

#[test]
fn the_operators_requests_cost_the_org_none_of_its_limit() {
    let limit = ("TRUNKLINE__LIMITS__REQUESTS_PER_MINUTE", "2".to_owned());
    let daemon = House::told(std::net::Ipv4Addr::LOCALHOST.into(), vec![limit]).serve();
    for _ in 0..5 {
        json_of(&daemon.house, &[], &["call", "list"]);
    }
    let (status, _) = daemon.read("/phone/calls", daemon.key());
    assert_eq!(status, 200);
}

#[test]
fn the_operators_routes_and_header_are_nobodys_on_the_public_address() {
    let daemon = House::new().serve();
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

#[test]
fn a_context_names_an_installation_and_its_key() {
    let daemon = House::new().serve();
    let shell = Shell::new();
    let config = shell.path("config").display().to_string();
    let run = |arguments: &[&str], key: Option<&str>| {
        let mut command = shell.command(arguments);
        command.env("XDG_CONFIG_HOME", &config).stdin(Stdio::null());
        if let Some(key) = key {
            command.env("TRUNKLINE_API_KEY", key);
        }
        command.output().expect("the binary runs")
    };
    let url = format!("http://{}", daemon.house.http);
    let set = run(
        &["context", "set", "prod", "--url", &url],
        Some(daemon.key()),
    );
    assert!(set.status.success(), "{set:?}");
    let file = shell.path("config/trunkline/contexts.json");
    let mode = std::fs::metadata(&file)
        .expect("the file")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);

    let nowhere = run(&["call", "list", "--json"], None);
    assert_eq!(nowhere.status.code(), Some(2), "{nowhere:?}");
    let named = run(&["call", "list", "--json", "--context", "prod"], None);
    assert!(named.status.success(), "{named:?}");
    assert!(run(&["context", "use", "prod"], None).status.success());
    let current = run(&["call", "list", "--json"], None);
    assert_eq!(current.stdout, b"[]\n", "{current:?}");
    let listed = run(&["context", "list"], None);
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.contains("prod") && !listed.contains(daemon.key()),
        "{listed}"
    );

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).expect("the mode");
    let open = run(&["call", "list"], None);
    assert!(
        String::from_utf8_lossy(&open.stderr).contains("chmod 600"),
        "{open:?}"
    );
}
