//! Where a tenant's agents may lead calls: private addresses only where the operator lists them, names judged by what they resolve to.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};

use crate::harness::dns::{self, Record};
use crate::harness::probe::{Busy, Probe};
use crate::harness::{Daemon, House};

/// A service of the operator's that the list of private peers doesn't name.
const INTERNAL: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

#[test]
fn a_runtime_on_the_operators_network_is_not_contacted() {
    let internal = TcpListener::bind((INTERNAL, 0)).expect("a port");
    internal.set_nonblocking(true).expect("a listener");
    let port = internal.local_addr().expect("an address").port();
    let honest = Busy::start();
    let names = dns::serve(vec![("internal.test", Record::Address(INTERNAL))]);
    let listed = "127.0.0.1,127.0.0.2".to_owned();
    let house = House::told(
        Ipv4Addr::LOCALHOST.into(),
        vec![
            ("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", listed),
            ("TRUNKLINE__SIP__NAMESERVERS", names.to_string()),
        ],
    );
    house.dedicate("127.0.0.2");
    let (own, agent) = (house.http, house.first_agent.clone());
    let daemon = house.serve();
    let probe = Probe::new(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    let call = |runtime: &str| {
        let change = serde_json::json!({ "runtime": { "type": "sip", "uri": runtime } });
        let (status, body) = daemon.change("PATCH", &format!("/phone/{agent}"), &change);
        assert_eq!(status, 200, "{runtime}: {body}");
        daemon.house.settle();
        probe.call("someone", &format!("X-PLATFORM-AGENT-ID: {agent}"))
    };

    for runtime in [
        format!("sip:x@{INTERNAL}:{port};transport=tcp"),
        format!("sip:x@internal.test:{port};transport=tcp"),
        format!("sip:x@[::ffff:{INTERNAL}]:{port};transport=tcp"),
        // The API of this node, at an address that is listed.
        format!("sip:x@{own};transport=tcp"),
        "sip:x@169.254.169.254:80;transport=tcp".to_owned(),
        "sip:x@224.0.0.1".to_owned(),
    ] {
        assert_eq!(call(&runtime), Some(480), "{runtime}");
    }
    let contacted = internal
        .accept()
        .expect_err("nobody connects to the service");
    assert_eq!(contacted.kind(), ErrorKind::WouldBlock);

    let runtime = format!("sip:x@{}", honest.address);
    assert_eq!(call(&runtime), Some(486), "the listed runtime is called");
    assert_eq!(honest.taken(), 1);
}

#[test]
fn a_tenant_cant_trust_the_whole_world() {
    let honest = Busy::start();
    let listed = "127.0.0.1,127.0.0.2".to_owned();
    let house = House::told(
        Ipv4Addr::LOCALHOST.into(),
        vec![("TRUNKLINE__SIP__ALLOW_PRIVATE_PEERS", listed)],
    );
    let number = house.first_number.clone();
    let allow = |daemon: &Daemon, networks: &[&str]| {
        let change = serde_json::json!({ "allowed_addresses": networks });
        daemon.change("PATCH", "/phone/sip/inbound-trunk", &change)
    };
    house.runtime(&house.first_agent, &format!("sip:x@{}", honest.address));
    // Of any size by the operator, and yet nothing of it is loopback.
    house.allow("0.0.0.0/0");
    let daemon = house.serve();
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
        // What the operator entered is the operator's alone once a tenant has taken it off.
        let expected = if networks[0] == "0.0.0.0/0" { 400 } else { 200 };
        assert_eq!(status, expected, "{networks:?}: {body}");
    }

    daemon.house.allow("127.0.0.2");
    daemon.house.settle();
    let peer = Probe::new(Ipv4Addr::new(127, 0, 0, 2), daemon.sip());
    assert_eq!(peer.call(&number, "X-A: 1"), Some(486), "an honest peer");
    assert_eq!(honest.taken(), 1);
}
