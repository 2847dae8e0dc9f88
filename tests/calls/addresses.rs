//! Private addresses and names as targets of a tenant's agents: allowed only where the operator lists them, and names are judged by what they resolve
//! to.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Responder, http};

/// A service of the operator that the list of private peers doesn't name.
const INTERNAL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
/// A peer that authenticates this node by its address.
const RESERVED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 4);

#[test]
fn a_runtime_on_the_operators_network_is_not_contacted() {
    let internal = TcpListener::bind((INTERNAL, 0)).expect("a port");
    internal.set_nonblocking(true).expect("a listener");
    let port = internal.local_addr().expect("an address").port();
    let honest = Responder::busy();
    let names = dns::serve(vec![
        ("internal.test", Record::Address(INTERNAL)),
        ("alias.test", Record::Address(RESERVED)),
    ]);
    let listed = "127.0.0.1,127.0.0.2,127.0.0.4".to_owned();
    let setup = DaemonSetup::with(
        Ipv4Addr::LOCALHOST.into(),
        vec![
            ("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", listed),
            ("TRUNKLINE__SIP__NAMESERVERS", names.to_string()),
            (
                "TRUNKLINE__SIP__RESERVED_PEERS",
                format!("carrier.test,{RESERVED}"),
            ),
        ],
    );
    setup.dedicate("127.0.0.2");
    let (own, agent) = (setup.http, setup.first_agent.clone());
    let daemon = setup.serve();
    let probe = Probe::new(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    let call = |runtime: &str| {
        let change = serde_json::json!({ "runtime": { "type": "sip", "uri": runtime } });
        let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
        assert_eq!(status, 200, "{runtime}: {body}");
        daemon.setup.settle();
        probe.call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"))
    };

    for literal in [
        format!("sip:x@{INTERNAL}:{port};transport=tcp"),
        format!("sip:x@[::ffff:{INTERNAL}]:{port};transport=tcp"),
        // The API of this node, at a listed address.
        format!("sip:x@{own};transport=tcp"),
        "sip:x@169.254.169.254:80;transport=tcp".to_owned(),
        "sip:x@224.0.0.1".to_owned(),
        "sip:x@2130706435".to_owned(),
        "sip:x@0x7f.0.0.3".to_owned(),
        format!("sip:x@198.51.100.1;maddr={INTERNAL}"),
    ] {
        let change = serde_json::json!({ "runtime": { "type": "sip", "uri": literal } });
        let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
        assert_eq!(status, 400, "{literal}: {body}");
        let destination = serde_json::json!({ "name": "x", "type": "sip", "value": literal });
        let path = "/phone/sip/transfer-destinations";
        let (status, body) = daemon.change("POST", path, &destination);
        assert_eq!(status, 400, "{literal}: {body}");
    }

    for name in ["internal.test", "carrier.test"] {
        let runtime = format!("sip:x@{name}:{port};transport=tcp");
        let change = serde_json::json!({ "runtime": { "type": "sip", "uri": runtime } });
        let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
        let expected = if name == "carrier.test" { 400 } else { 200 };
        assert_eq!(status, expected, "{name}: {body}");
    }

    // A name is judged by the addresses that it resolves to.
    for name in ["internal.test", "alias.test"] {
        let runtime = format!("sip:x@{name}:{port};transport=tcp");
        assert_eq!(call(&runtime), Some(480), "{runtime}");
    }
    let contacted = internal
        .accept()
        .expect_err("nobody connects to the service");
    assert_eq!(contacted.kind(), ErrorKind::WouldBlock);

    let runtime = format!("sip:x@{}", honest.address);
    assert_eq!(call(&runtime), Some(486), "the listed runtime is called");
    assert_eq!(honest.taken(), 1);

    // A runtime that the operator sets isn't judged.
    let there = format!("sip:x@{INTERNAL}:{port};transport=tcp");
    daemon.setup.runtime(&agent, &there);
    daemon.setup.settle();
    let (status, body) = daemon.change(
        "PATCH",
        &format!("/phone/{agent}"),
        &serde_json::json!({ "name": "Same" }),
    );
    assert_eq!(status, 200, "{body}");

    daemon.setup.settle();
    let _ringing = std::thread::spawn({
        let probe = Probe::new(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
        let line = format!("X-PLATFORM-AGENT-ID: {agent}");
        move || probe.call("someone", &line)
    });
    let reached = Deadline::after(Duration::from_secs(10)).poll(|| internal.accept().ok());
    assert!(reached.is_some(), "the operator's runtime is called");
}

#[test]
fn a_peer_that_is_reserved_by_name_is_reserved_at_its_addresses() {
    let (reserved, honest) = (Responder::busy_at(RESERVED), Responder::busy());
    let port = reserved.address.port();
    let names = dns::Faulty::serve(
        vec![
            (
                "_sip._udp.carrier.test",
                Record::Service(0, port, "edge.carrier.test"),
            ),
            ("edge.carrier.test", Record::Address(RESERVED)),
            ("alias.test", Record::Address(RESERVED)),
            ("honest.test", Record::Address(Ipv4Addr::LOCALHOST)),
        ],
        dns::Fault::Silent,
    );

    let listed = "127.0.0.1,127.0.0.2,127.0.0.4".to_owned();
    let setup = DaemonSetup::with(
        Ipv4Addr::LOCALHOST.into(),
        vec![
            ("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", listed),
            ("TRUNKLINE__SIP__NAMESERVERS", names.address.to_string()),
            ("TRUNKLINE__SIP__RESERVED_PEERS", "carrier.test".to_owned()),
        ],
    );
    setup.dedicate("127.0.0.2");
    let agent = setup.first_agent.clone();
    let daemon = setup.serve();
    let probe = Probe::new(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    let set = |runtime: &str| {
        let change = serde_json::json!({ "runtime": { "type": "sip", "uri": runtime } });
        daemon.change("PATCH", &format!("/phone/{agent}"), &change)
    };
    let call = |runtime: &str| {
        let (status, body) = set(runtime);
        assert_eq!(status, 200, "{runtime}: {body}");
        probe.call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"))
    };

    let literal = format!("sip:x@{RESERVED}:{port}");
    let (status, body) = set(&literal);
    assert_eq!(status, 400, "{body}");

    let trunk = serde_json::json!({
        "name": "Carrier", "host": RESERVED.to_string(), "port": port, "caller_number": "+442071838750", "transport": "udp",
    });
    let destination = serde_json::json!({ "name": "x", "type": "sip", "value": literal });

    for (path, body) in [
        ("/phone/sip/outbound-trunks", trunk),
        ("/phone/sip/transfer-destinations", destination),
    ] {
        let (status, body) = daemon.change("POST", path, &body);
        assert_eq!(status, 400, "{path}: {body}");
        let said = body["message"].as_str().unwrap_or_default();
        assert!(said.contains("sip.reserved_peers"), "{said}");
    }

    let alias = format!("sip:x@alias.test:{port}");
    let honest_port = honest.address.port();
    assert_eq!(call(&alias), Some(480), "another name of the peer");
    let other = format!("sip:x@honest.test:{honest_port}");
    assert_eq!(call(&other), Some(486), "a name of another peer");
    // Cached addresses stay in use while no server answers for the name.
    names.begin_to_fail();
    assert_eq!(call(&alias), Some(480), "its name server is silent");
    assert_eq!((reserved.taken(), honest.taken()), (0, 1));

    daemon.setup.runtime(&agent, &literal);
    daemon.setup.settle();
    let line = format!("X-PLATFORM-AGENT-ID: {agent}");
    assert_eq!(probe.call("someone", &line), Some(486), "the operator's");
    assert_eq!(reserved.taken(), 1);
}

#[test]
fn what_an_upgrade_refuses_is_logged_once_and_the_doctor_says_what_to_list() {
    let honest = Responder::busy();
    let names = dns::serve(vec![("internal.test", Record::Address(INTERNAL))]);
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
    let agent = setup.first_agent.clone();
    let mut before = setup.start();
    let change = |method: &str, path: &str, body: serde_json::Value| {
        let (status, body) = http::change(method, setup.http, path, &setup.key, &body);
        assert!(matches!(status, 200 | 201), "{path}: {body}");
    };
    change(
        "PATCH",
        &format!("/phone/{agent}"),
        serde_json::json!({"runtime": {
            "type": "sip", "uri": "sip:x@internal.test:5070", "fallbacks": [format!("sip:x@{}", honest.address)],
        }}),
    );
    change(
        "POST",
        "/phone/sip/outbound-trunks",
        serde_json::json!({"name": "Carrier", "host": INTERNAL.to_string(), "port": 5071, "caller_number": "+442071838750",
            "transport": "udp"}),
    );
    before.terminate();
    before.wait(Deadline::after(Duration::from_secs(30)));

    let setup = setup.set("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", "127.0.0.1");
    let (_, report) = setup.doctor();
    let findings = report["findings"].as_array().expect("findings");
    let refused: Vec<_> = findings
        .iter()
        .filter(|finding| finding["check"] == "addresses")
        .collect();
    assert_eq!(refused.len(), 2, "{report}");

    for finding in refused {
        let text = finding["text"].as_str().unwrap_or_default();
        assert!(text.contains("127.0.0.3"), "{finding}");
        let fix = finding["fix"].as_str().unwrap_or_default();
        let line = "sip.allow_private_peers = [\"127.0.0.1/32\", \"127.0.0.3\"]";
        assert!(fix.contains(line), "{finding}");
    }

    let daemon = setup.serve();
    let logged = || daemon.log().matches("a peer isn't contacted").count();
    let is_logged = Deadline::after(Duration::from_secs(10)).poll(|| (logged() == 2).then_some(()));
    assert!(is_logged.is_some(), "{}", daemon.log());
    assert!(
        !daemon.log().contains(&honest.address.to_string()),
        "the honest one isn't named"
    );
    drop(daemon);

    let (_, report) = {
        let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
        setup.doctor()
    };
    let findings = report["findings"].as_array().expect("findings");
    let is_well = |finding: &&serde_json::Value| finding["check"] == "addresses";
    let well = findings.iter().find(is_well).expect("a finding");
    assert_eq!(well["level"], "ok", "{well}");
}

#[test]
fn a_tenant_cant_trust_the_whole_world() {
    let honest = Responder::busy();
    let listed = "127.0.0.1,127.0.0.2".to_owned();
    let setup = DaemonSetup::with(
        Ipv4Addr::LOCALHOST.into(),
        vec![("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", listed)],
    );
    let number = setup.first_number.clone();
    let allow = |daemon: &Daemon, networks: &[&str]| {
        let change = serde_json::json!({ "allowed_addresses": networks });
        daemon.change("PATCH", "/phone/sip/inbound-trunk", &change)
    };
    setup.runtime(&setup.first_agent, &format!("sip:x@{}", honest.address));

    // The operator's list may be of any size, but loopback is never part of it.
    setup.allow("0.0.0.0/0");
    let daemon = setup.serve();
    let attacker = Probe::new(INTERNAL, daemon.sip());
    assert_eq!(attacker.call(&number, "X-A: 1"), Some(401));
    assert_eq!(honest.taken(), 0);

    for networks in [
        &["::/0"][..],
        &["10.0.0.0/21"],
        &["198.51.100.0/22", "203.0.113.1"],
        &["2001:db8::/47"],
        &["127.0.0.0/8"],
        &["127.0.0.3"],
        &["::ffff:127.0.0.3"],
        &["169.254.0.0/24"],
        &["fe80::/64"],
        &["224.0.1.75"],
    ] {
        let (status, body) = allow(&daemon, networks);
        assert_eq!(status, 400, "{networks:?}: {body}");
        let said = body["message"].as_str().unwrap_or_default();
        assert!(said.starts_with("allowed_addresses"), "{said}");
    }

    for networks in [
        &["198.51.100.0/22", "2001:db8::/48"][..],
        &["0.0.0.0/0", "198.51.100.7"],
    ] {
        let (status, body) = allow(&daemon, networks);
        // Once a tenant has removed an entry of the operator's, only the operator can add it again.
        let expected = if networks[0] == "0.0.0.0/0" { 400 } else { 200 };
        assert_eq!(status, expected, "{networks:?}: {body}");
    }

    daemon.setup.allow("127.0.0.2");
    daemon.setup.settle();
    let peer = Probe::new(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    assert_eq!(peer.call(&number, "X-A: 1"), Some(486), "an honest peer");
    assert_eq!(honest.taken(), 1);
}

#[test]
fn a_source_that_can_be_forged_is_believed_once_it_answers() {
    let honest = Responder::busy();
    let setup = DaemonSetup::new();
    let number = setup.first_number.clone();
    setup.runtime(&setup.first_agent, &format!("sip:x@{}", honest.address));
    let daemon = setup.serve();
    let change = serde_json::json!({ "allowed_addresses": ["127.0.0.2", "127.0.0.3"] });
    let (status, body) = daemon.change("PATCH", "/phone/sip/inbound-trunk", &change);
    assert_eq!(status, 200, "{body}");
    daemon.setup.settle();

    let forged = Probe::forged(INTERNAL, daemon.sip());
    assert_eq!(forged.call(&number, "X-A: 1"), Some(401), "a forged source");
    assert_eq!(forged.call(&number, "X-A: 2"), Some(401), "at once now");
    assert_eq!(honest.taken(), 0);

    let peer = Probe::new(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    // The source has a second to answer its OPTIONS, and is trusted from then on.
    let is_taken = || (peer.call(&number, "X-A: 3") == Some(486)).then_some(());
    let taken = Deadline::after(Duration::from_secs(30)).poll(is_taken);
    assert!(taken.is_some(), "one that answers");
    // The source is cached now: the daemon sends it no further OPTIONS.
    let silent = Probe::forged(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    assert_eq!(silent.call(&number, "X-A: 4"), Some(486));
    assert_eq!(honest.taken(), 2);

    daemon.setup.allow("127.0.0.3");
    daemon.setup.settle();
    assert_eq!(forged.call(&number, "X-A: 5"), Some(486), "the operator's");
}
