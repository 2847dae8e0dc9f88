//! SIP over TLS, both ways, with a certificate authority of the test's own.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use trunkline_sip::wire::Method;

use crate::harness::process::free_port;
use crate::harness::{Authority, Baresip, Daemon, Deadline, House, Pbx, SecureRuntime, tools};

const PATIENCE: Duration = Duration::from_secs(10);

/// A daemon that listens on TLS and believes the authority.
pub(crate) fn secured(authority: &Authority, house: House) -> (House, SocketAddr) {
    authority.certify("daemon", "127.0.0.1");
    let listener = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let house = house
        .set("TRUNKLINE__SIP__TLS", &listener.to_string())
        .set(
            "TRUNKLINE__SIP__TLS_CERTIFICATE",
            &authority.path("daemon.pem"),
        )
        .set("TRUNKLINE__SIP__TLS_KEY", &authority.path("daemon.key"))
        .set("TRUNKLINE__SIP__TLS_CA", &authority.path("ca.pem"));
    (house, listener)
}

fn registrations(daemon: &Daemon) -> Vec<serde_json::Value> {
    let trunk = daemon.shown("/phone/sip/inbound-trunk");
    trunk["registrations"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

#[test]
fn a_pbx_registers_over_tls_and_sees_a_new_certificate_after_sighup() {
    let authority = Authority::new();
    let (house, listener) = secured(&authority, House::new());
    let daemon = house.serve();
    let mut pbx = Pbx::tls(&daemon, listener, &authority);
    let lines = format!("Contact: <sip:pbx@{};transport=tls>\r\n", pbx.address());
    assert_eq!(pbx.register(&lines).status, 200);
    assert_eq!(registrations(&daemon)[0]["transport"], "tls");

    let before = authority.seen_at(listener);
    authority.certify("daemon", "127.0.0.1");
    assert_eq!(
        authority.seen_at(listener),
        before,
        "nobody has asked for it"
    );
    daemon.process.signal("HUP");
    let renewed =
        Deadline::after(PATIENCE).poll(|| (authority.seen_at(listener) != before).then_some(()));
    assert!(renewed.is_some(), "{}", daemon.log());
    assert_eq!(pbx.register(&lines).status, 200, "the connection goes on");

    let after = authority.seen_at(listener);
    std::fs::write(authority.file("daemon.pem"), "no certificate").expect("it can be written");
    daemon.process.signal("HUP");
    let told =
        Deadline::after(PATIENCE).poll(|| daemon.log().contains("the old ones stay").then_some(()));
    assert!(told.is_some(), "{}", daemon.log());
    assert_eq!(authority.seen_at(listener), after);
}

#[test]
fn a_client_that_must_show_a_certificate_and_has_none_is_refused() {
    let authority = Authority::new();
    let (house, listener) = secured(&authority, House::new());
    let daemon = house
        .set("TRUNKLINE__SIP__TLS_CLIENT_CA", &authority.path("ca.pem"))
        .serve();
    let told = || daemon.log().contains("TLS was not agreed on");
    // TLS 1.3 tells the client only when it reads.
    drop(authority.connect(listener));
    assert!(
        Deadline::after(PATIENCE)
            .poll(|| told().then_some(()))
            .is_some()
    );
}

#[test]
fn a_call_reaches_a_runtime_over_tls_that_proves_its_name() {
    if !tools(&["sipp"]) {
        return;
    }
    let authority = Authority::new();
    authority.certify("runtime", "127.0.0.1");
    let runtime = SecureRuntime::start(&authority, "runtime");
    let (house, _) = secured(&authority, House::new());
    house.runtime(&house.first_agent, &runtime.uri());
    let daemon = house.serve();
    daemon.caller().play("caller_hangs_up").finish();
    let heard = runtime.finish();
    let methods: Vec<Method> = heard.requests.iter().map(|(method, _)| *method).collect();
    assert_eq!(
        methods,
        [Method::Invite, Method::Ack, Method::Bye],
        "{heard:?}"
    );
    assert!(heard.knows_client, "our certificate is shown to who asks");
    let invite = &heard.requests[0].1;
    assert!(invite.contains("Via: SIP/2.0/TLS 127.0.0.1:"), "{invite}");
    assert!(invite.contains(";transport=tls>"), "{invite}");
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn a_runtime_with_a_wrong_name_hears_nothing_and_the_caller_is_told() {
    if !tools(&["sipp"]) {
        return;
    }
    let authority = Authority::new();
    authority.certify("other", "127.0.0.2");
    let runtime = SecureRuntime::start(&authority, "other");
    let (house, _) = secured(&authority, House::new());
    house.runtime(&house.first_agent, &runtime.uri());
    let daemon = house.serve();
    let caller = daemon.caller().play("caller_is_refused").finish();
    assert!(caller.statuses("INVITE").contains(&480), "{caller}");
    let heard = runtime.finish();
    assert!(heard.requests.is_empty(), "{heard:?}");
    let call = daemon.record();
    assert_eq!(call["reason"], "runtime_unreachable", "{call}");
    assert!(daemon.log().contains("the peer was not verified"));
}

#[test]
fn baresip_registers_and_is_heard_over_tls() {
    if !tools(&["baresip"]) {
        return;
    }
    let authority = Authority::new();
    let (house, listener) = secured(&authority, House::new());
    let daemon = house.serve();
    let phone = Baresip::registered(listener, &daemon.credentials(), "tls");
    let there = Deadline::after(PATIENCE).poll(|| registrations(&daemon).pop());
    let there = there.unwrap_or_else(|| panic!("not registered:\n{}", daemon.log()));
    assert_eq!(there["transport"], "tls", "{there}");
    phone.leave();
}
