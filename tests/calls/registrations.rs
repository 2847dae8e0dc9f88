//! PBXs that register with the inbound trunk: baresip, and a PBX of the test with chosen REGISTER contents.

use std::time::Duration;

use serde_json::{Value, json};

use trunkline_testkit::{Baresip, Credentials, Daemon, DaemonSetup, Deadline, Pbx, tools};

const PATIENCE: Duration = Duration::from_secs(10);

fn trunk(daemon: &Daemon) -> Value {
    daemon.shown("/phone/sip/inbound-trunk")
}

/// Returns the trunk once it has so many registrations.
fn trunk_with(daemon: &Daemon, count: usize) -> Value {
    let there = Deadline::after(PATIENCE).poll(|| {
        let trunk = trunk(daemon);
        let registrations = trunk["registrations"].as_array().map(Vec::len);
        (registrations == Some(count)).then_some(trunk)
    });
    there.unwrap_or_else(|| panic!("not {count} registrations: {}", trunk(daemon)))
}

#[test]
fn a_pbx_that_registers_is_seen_on_its_trunk_until_it_leaves() {
    let daemon = DaemonSetup::new().serve();
    assert_eq!(trunk(&daemon)["registered"], false);
    let mut pbx = Pbx::udp(&daemon);
    let contact = format!("sip:pbx@{};rinstance=f00ba7", pbx.address());
    let answer = pbx.register(&format!(
        "Contact: <{contact}>\r\nExpires: 120\r\nUser-Agent: 3CXPhoneSystem 20\r\n"
    ));
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    assert_eq!(
        answer.headers("Contact"),
        [format!("<{contact}>;expires=120")]
    );

    let seen = trunk_with(&daemon, 1);
    assert_eq!(seen["registered"], true, "{seen}");
    let registration = &seen["registrations"][0];
    assert_eq!(registration["contact"], json!(contact));
    assert_eq!(registration["source"], json!(pbx.address().to_string()));
    assert_eq!(registration["transport"], "udp");
    assert_eq!(registration["user_agent"], "3CXPhoneSystem 20");
    assert!(
        registration["expires_at"].as_str() > registration["registered_at"].as_str(),
        "{registration}"
    );

    let brief = pbx.register(&format!("Contact: <{contact}>\r\nExpires: 5\r\n"));
    assert_eq!(
        (brief.status(), brief.header("Min-Expires")),
        (Some(423), Some("30"))
    );
    let gone = pbx.register("Contact: *\r\nExpires: 0\r\n");
    assert_eq!(
        (gone.status(), gone.headers("Contact").len()),
        (Some(200), 0)
    );
    assert_eq!(trunk(&daemon)["registered"], false);
    assert!(daemon.stop());
}

#[test]
fn a_pair_from_before_a_rotation_registers_until_it_is_ended() {
    let daemon = DaemonSetup::new().serve();
    let trunk = "/phone/sip/inbound-trunk";
    let (status, rotated) =
        daemon.change("POST", &format!("{trunk}/rotate-credentials"), &json!({}));
    assert_eq!(status, 200, "{rotated}");
    let new = |field: &str| rotated[field].as_str().expect("a text").to_owned();
    let (username, password) = (new("auth_username"), new("auth_password"));

    let mut old = Pbx::udp(&daemon);
    let mut renewed = Pbx::udp_to(daemon.sip(), Credentials { username, password });
    let contact = |pbx: &Pbx| format!("Contact: <sip:pbx@{}>\r\n", pbx.address());
    for pbx in [&mut old, &mut renewed] {
        let contact = contact(pbx);
        assert_eq!(pbx.register(&contact).status(), Some(200));
    }

    let path = format!("{trunk}/old-credentials");
    let (status, body) = daemon.change("DELETE", &path, &Value::Null);
    assert_eq!(status, 200, "{body}");
    let line = contact(&old);
    assert_eq!(old.register(&line).status(), Some(401), "the old pair");
    let line = contact(&renewed);
    assert_eq!(renewed.register(&line).status(), Some(200), "the new one");
}

#[test]
fn a_pbx_on_tcp_is_lost_with_its_connection_where_nothing_else_leads_to_it() {
    let daemon = DaemonSetup::new().serve();
    let mut pbx = Pbx::tcp(&daemon);
    pbx.sent_by = "10.1.2.3:5060".to_owned();
    let answer = pbx.register("Contact: <sip:pbx@10.1.2.3:5060;transport=tcp>\r\n");
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    assert_eq!(
        answer.headers("Contact"),
        ["<sip:pbx@10.1.2.3:5060;transport=tcp>;expires=600"]
    );
    assert_eq!(
        trunk_with(&daemon, 1)["registrations"][0]["transport"],
        "tcp"
    );
    drop(pbx);
    trunk_with(&daemon, 0);
}

#[test]
fn a_wrong_password_registers_nothing_and_is_noted() {
    let daemon = DaemonSetup::new().serve();
    let mut pbx = Pbx::udp(&daemon);
    pbx.password = "wrong".to_owned();
    let answer = pbx.register("Contact: <sip:pbx@127.0.0.1>\r\n");
    assert_eq!(answer.status(), Some(401), "{answer:?}");
    assert_eq!(trunk(&daemon)["registered"], false);
    let noted = Deadline::after(PATIENCE).poll(|| {
        let failures = daemon.shown("/phone/sip/inbound-trunk/auth-failures");
        let first = failures["items"][0]["part"].as_str().map(str::to_owned);
        first.filter(|part| part == "password")
    });
    assert!(noted.is_some());
}

/// To may hold another trunk's user name, whose address of record that is; a number or a name of the PBX's own is no address of record.
#[test]
fn nobody_registers_anothers_address() {
    let setup = DaemonSetup::new();
    let org = setup.run(&["org", "create", "--name", "Other", "--json"])["id"].clone();
    let org = org.as_str().expect("an id");
    let number = "+442071838799";
    setup.run(&[
        "number",
        "add",
        number,
        "--org",
        org,
        "--verified",
        "--json",
    ]);
    let other = setup.run(&["trunk", "create", "--org", org, "--json"]);
    let others = other["auth_username"].as_str().expect("a name").to_owned();
    let daemon = setup.serve();
    let mut pbx = Pbx::udp(&daemon);
    let own = pbx.registers.clone();
    let lines = format!("Contact: <sip:pbx@{}>\r\nExpires: 120\r\n", pbx.address());

    for (registers, status, count) in [
        (others.clone(), 403, 0),
        (own, 200, 1),
        (daemon.setup.first_number.clone(), 200, 1),
        ("front-desk".to_owned(), 200, 1),
        (others, 403, 1),
    ] {
        pbx.registers.clone_from(&registers);
        assert_eq!(pbx.register(&lines).status(), Some(status), "{registers}");
        let trunk = trunk_with(&daemon, count);
        assert_eq!(trunk["registered"], count > 0, "{trunk}");
    }
}

#[test]
fn baresip_registers_comes_back_from_another_port_and_leaves() {
    if !tools(&["baresip"]) {
        return;
    }

    let daemon = DaemonSetup::new().serve();
    let first = Baresip::registered(daemon.sip(), &daemon.credentials(), "udp");
    let seen = trunk_with(&daemon, 1);
    let contact = |trunk: &Value| {
        trunk["registrations"][0]["contact"]
            .as_str()
            .map(str::to_owned)
    };
    let agent = seen["registrations"][0]["user_agent"]
        .as_str()
        .unwrap_or_default();
    assert!(agent.starts_with("baresip"), "{seen}");

    // A killed PBX can't unregister.
    let before = contact(&seen);
    first.kill();

    let second = Baresip::registered(daemon.sip(), &daemon.credentials(), "tcp");
    let moved = Deadline::after(PATIENCE).poll(|| {
        let trunk = trunk(&daemon);
        (contact(&trunk) != before).then_some(trunk)
    });
    let moved = moved.expect("the new place comes first");
    assert_eq!(moved["registrations"][0]["transport"], "tcp", "{moved}");

    let count = moved["registrations"].as_array().map_or(0, Vec::len);
    second.leave();
    trunk_with(&daemon, count - 1);
}

#[test]
fn many_refreshes_leave_one_binding() {
    let daemon = DaemonSetup::new().serve();
    let mut pbx = Pbx::udp(&daemon);
    let lines = format!("Contact: <sip:pbx@{}>\r\n", pbx.address());
    for _ in 0..200 {
        assert_eq!(pbx.register(&lines).status(), Some(200));
    }
    trunk_with(&daemon, 1);
}
