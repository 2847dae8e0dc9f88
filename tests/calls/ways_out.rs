//! Next hops of outbound calls: a registered PBX, over TLS, and the targets that a carrier or the DNS names.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;

use crate::calls::outbound::{CALLER_NUMBER, NUMBER, give_trunk, order};
use crate::calls::secured::secured;
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::process::free_port;
use trunkline_testkit::{
    Authority, Daemon, DaemonSetup, Deadline, Message, Pbx, Responder, Runtime, SecureRuntime,
    tools,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Has the built-in agent call the PBX that registered with this Contact; returns the messages that the PBX got.
fn called_back(daemon: &Daemon, pbx: &mut Pbx, contact: &str) -> Vec<Message> {
    let lines = format!("Contact: <{contact}>\r\n");
    assert_eq!(pbx.register(&lines).status(), Some(200));
    call_registered(daemon);

    let heard = pbx.take_call();
    let methods: Vec<_> = heard.iter().filter_map(Message::method).collect();
    assert_eq!(methods, ["INVITE", "ACK", "BYE"], "{heard:?}");

    let invite = heard[0].text();
    assert!(
        invite.starts_with(&format!("INVITE {contact} SIP/2.0\r\n")),
        "{invite}"
    );
    assert!(
        invite.contains(&format!("\r\nTo: <sip:{NUMBER}@")),
        "{invite}"
    );

    let record = daemon.record();
    assert_eq!(record["status"], "completed", "{record}");
    assert_eq!(record["direction"], "outbound", "{record}");
    heard
}

/// Orders a short call of the built-in agent to the registered PBX.
pub(crate) fn call_registered(daemon: &Daemon) {
    give_trunk(
        daemon,
        Runtime::new(),
        &json!({"to_registered": true, "host": null, "port": null, "transport": null}),
    );
    order(daemon, &json!({"max_duration_s": 1}));
}

#[test]
fn a_registered_pbx_is_called_over_udp_where_it_is() {
    let daemon = DaemonSetup::new().serve();
    let mut pbx = Pbx::udp(&daemon);
    let contact = format!("sip:pbx@{};rinstance=f00ba7", pbx.address());
    called_back(&daemon, &mut pbx, &contact);
    pbx.register("Contact: *\r\nExpires: 0\r\n");
    let order = json!({"phone_agent_id": daemon.setup.first_agent, "phone_number": NUMBER});
    let (status, refused) = daemon.change("POST", "/phone/outbound-call", &order);
    assert_eq!(status, 409, "nobody is registered any more: {refused}");
}

/// RFC 3327: an edge proxy puts itself into the path of a REGISTER, since nothing else reaches the PBX behind it.
#[test]
fn a_pbx_behind_a_proxy_is_called_by_the_path_of_its_register() {
    let daemon = DaemonSetup::new().serve();
    let mut edge = Pbx::udp(&daemon);
    let path = format!("<sip:edge@{};lr>", edge.address());
    let contact = "sip:pbx@10.9.8.7:5060";
    let lines =
        format!("Contact: <{contact}>\r\nPath: {path}\r\nSupported: path\r\nRequire: path\r\n");
    let answer = edge.register(&lines);
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    assert_eq!(answer.headers("Path"), [&*path]);
    call_registered(&daemon);

    let heard = edge.take_call();
    let invite = heard[0].text();
    assert!(
        invite.starts_with(&format!("INVITE {contact} SIP/2.0\r\n")),
        "{invite}"
    );
    assert_eq!(heard[0].headers("Route"), [&*path]);

    // The path of a stranger's proxy isn't taken: the PBX is called where it registered from.
    let elsewhere = "Path: <sip:192.0.2.99;lr>\r\n";
    let answer = edge.register(&format!("Contact: <{contact}>\r\n{elsewhere}"));
    assert_eq!(answer.status(), Some(200), "{answer:?}");
    assert!(answer.header("Path").is_none(), "{answer:?}");

    // A strict router would take our Request-URI for another one (RFC 3327 §4 requires lr).
    let strict = format!("Path: <sip:edge@{}>\r\n", edge.address());
    let answer = edge.register(&format!("Contact: <{contact}>\r\n{strict}"));
    assert_eq!(answer.status(), Some(400), "{answer:?}");
    let warning = answer.header("Warning").expect("a reason");
    assert!(warning.contains("no lr parameter"), "{warning}");
}

/// Some carriers refuse calls whose numbers aren't marked as such.
#[test]
fn a_trunk_marks_numbers_as_its_carrier_wants() {
    let carrier = Responder::busy();
    let daemon = DaemonSetup::new().serve();
    let trunk =
        json!({"port": carrier.address.port(), "user_phone": true, "p_asserted_identity": true});
    give_trunk(&daemon, Runtime::new(), &trunk);
    order(&daemon, &json!({}));

    let invite = Deadline::after(PATIENCE).poll(|| carrier.requests("INVITE").pop());
    let invite = invite.expect("an INVITE");
    let uri = format!("sip:{NUMBER}@{};user=phone", carrier.address);
    assert_eq!(invite.start_line(), format!("INVITE {uri} SIP/2.0"));
    assert_eq!(invite.header("To"), Some(&*format!("<{uri}>")));
    let own = format!("<sip:{CALLER_NUMBER}@{};user=phone>", daemon.sip().ip());
    assert_eq!(invite.header("P-Asserted-Identity"), Some(&*own));
    let from = invite.header("From").expect("a From");
    assert!(from.starts_with(&own), "{from}");
    carrier.stop();
}

#[test]
fn a_pbx_behind_nat_is_called_over_the_connection_that_it_registered_by() {
    let daemon = DaemonSetup::new().serve();
    let mut pbx = Pbx::tcp(&daemon);
    pbx.sent_by = "10.1.2.3:5060".to_owned();
    let heard = called_back(&daemon, &mut pbx, "sip:pbx@10.1.2.3:5060;transport=tcp");
    assert!(heard[0].text().contains("Via: SIP/2.0/TCP "), "{heard:?}");
}

#[test]
fn a_pbx_on_tls_is_called_over_its_own_connection() {
    let authority = Authority::new();
    let (setup, listener) = secured(&authority, DaemonSetup::new());
    let daemon = setup.serve();
    let mut pbx = Pbx::tls(&daemon, listener, &authority);
    pbx.sent_by = "10.1.2.3:5061".to_owned();
    let heard = called_back(&daemon, &mut pbx, "sip:pbx@10.1.2.3:5061;transport=tls");
    assert!(heard[0].text().contains("Via: SIP/2.0/TLS "), "{heard:?}");
}

/// Starts a daemon whose first agent dials through `carrier` over TLS.
fn over_tls(authority: &Authority, carrier: SocketAddr) -> Daemon {
    let (setup, _) = secured(authority, DaemonSetup::new());
    let daemon = setup.serve();
    give_trunk(
        &daemon,
        Runtime::new(),
        &json!({"transport": "tls", "port": carrier.port()}),
    );
    daemon
}

#[test]
fn a_carrier_on_tls_that_proves_its_name_is_called() {
    let authority = Authority::new();
    authority.certify("carrier", "127.0.0.1");
    let carrier = SecureRuntime::start(&authority, "carrier");
    let daemon = over_tls(&authority, carrier.address);
    order(&daemon, &json!({"max_duration_s": 1}));
    let heard = carrier.finish();
    let methods: Vec<_> = heard.requests.iter().filter_map(Message::method).collect();
    assert_eq!(methods, ["INVITE", "ACK", "BYE"], "{heard:?}");

    let invite = heard.requests[0].text();
    assert!(
        invite.contains("Via: SIP/2.0/TLS ") && invite.contains(";transport=tls"),
        "{invite}"
    );
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn a_carrier_with_a_wrong_name_hears_nothing() {
    let authority = Authority::new();
    authority.certify("other", "127.0.0.2");
    let carrier = SecureRuntime::start(&authority, "other");
    let daemon = over_tls(&authority, carrier.address);
    order(&daemon, &json!({}));
    let record = daemon.record();
    assert_eq!(record["status"], "failed", "{record}");
    assert_eq!(record["reason"], "trunk_unreachable", "{record}");
    let heard = carrier.finish();
    assert!(heard.requests.is_empty(), "{heard:?}");
    daemon.log_line(&["the peer was not verified"]);
}

/// By SRV, with fail-over: both targets have to prove the name that was looked up, not their own (RFC 5922 §4).
#[test]
fn a_carrier_on_tls_is_found_by_its_name_and_the_second_target_when_the_first_is_down() {
    let authority = Authority::new();
    authority.certify("carrier", "carrier.test");
    authority.certify("two", "two.carrier.test");

    for (certificate, reached) in [("carrier", true), ("two", false)] {
        let carrier = SecureRuntime::start(&authority, certificate);
        let local = Record::Address(Ipv4Addr::LOCALHOST);
        let names = dns::serve(vec![
            (
                "_sips._tcp.carrier.test",
                Record::Service(10, free_port(), "one.carrier.test"),
            ),
            (
                "_sips._tcp.carrier.test",
                Record::Service(20, carrier.address.port(), "two.carrier.test"),
            ),
            ("one.carrier.test", local.clone()),
            ("two.carrier.test", local),
        ]);
        let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
        let (setup, _) = secured(&authority, setup);
        let daemon = setup.serve();
        give_trunk(
            &daemon,
            Runtime::new(),
            &json!({"transport": "tls", "host": "carrier.test", "port": null}),
        );
        order(&daemon, &json!({"max_duration_s": 1}));
        let record = daemon.record();
        let heard = carrier.finish();
        if reached {
            let invite = heard.requests[0].text();
            let line = format!("INVITE sip:{NUMBER}@carrier.test;transport=tls SIP/2.0\r\n");
            assert!(invite.starts_with(&line), "{invite}");
            assert_eq!(record["status"], "completed", "{record}");
        } else {
            assert!(heard.requests.is_empty(), "{heard:?}");
            assert_eq!(record["reason"], "trunk_unreachable", "{record}");
        }
    }
}

/// Starts a daemon whose first agent dials through the first carrier, which redirects to `elsewhere`.
fn redirected(first: Runtime, elsewhere: &str) -> Daemon {
    let daemon = DaemonSetup::new().serve();
    give_trunk(&daemon, first, &json!({}));
    let says = first.refers_to(elsewhere, "carrier_redirects");
    order(&daemon, &json!({"max_duration_s": 1}));
    says.finish();
    daemon
}

#[test]
fn a_redirection_is_followed_within_the_carriers_own_hosts_alone() {
    if !tools(&["sipp"]) {
        return;
    }

    let (first, second) = (Runtime::new(), Runtime::new());
    let callee = second.play("carrier_answers");
    let daemon = redirected(first, &second.address().to_string());
    let callee = callee.finish();
    let line = callee.request("INVITE").start_line();
    assert_eq!(
        line,
        format!("INVITE sip:moved@{} SIP/2.0", second.address())
    );
    assert_eq!(daemon.record()["status"], "completed");

    let daemon = redirected(Runtime::new(), "127.0.0.2:5060");
    let record = daemon.record();
    assert_eq!(record["status"], "failed", "{record}");
    assert_eq!(record["sip_code"], 302, "{record}");
    assert_eq!(record["reason"], "trunk_refused", "{record}");
}

#[test]
fn a_carrier_that_wants_longer_sessions_is_given_them_and_may_challenge_again() {
    if !tools(&["sipp"]) {
        return;
    }

    let carrier = Runtime::new();
    let daemon = DaemonSetup::new().serve();
    give_trunk(
        &daemon,
        carrier,
        &json!({"username": "acme", "password": "wonder land"}),
    );

    let callee = carrier.play("carrier_wants_longer_sessions");
    order(&daemon, &json!({"max_duration_s": 1}));

    let callee = callee.finish();
    let invites = callee.requests("INVITE");
    let shown = |name: &str| -> Vec<Option<&str>> {
        invites.iter().map(|invite| invite.header(name)).collect()
    };
    assert_eq!(
        shown("Min-SE"),
        [Some("90"), Some("90"), Some("2400"), Some("2400")],
        "{callee}"
    );
    assert_eq!(shown("Session-Expires")[2], Some("2400"), "{callee}");

    let proofs: Vec<bool> = shown("Proxy-Authorization")
        .iter()
        .map(Option::is_some)
        .collect();

    assert_eq!(proofs, [false, true, false, true], "{callee}");
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn a_name_without_a_transport_is_reached_as_its_naptr_records_say() {
    if !tools(&["sipp"]) {
        return;
    }

    let runtime = Runtime::new().over_tcp();
    let local = Record::Address(Ipv4Addr::LOCALHOST);
    let port = runtime.address().port();
    let names = dns::serve(vec![
        (
            "agents.test",
            Record::Pointer(20, "SIP+D2U", "_sip._udp.agents.test"),
        ),
        (
            "agents.test",
            Record::Pointer(10, "SIP+D2T", "_sip._tcp.elsewhere.test"),
        ),
        (
            "_sip._tcp.elsewhere.test",
            Record::Service(10, port, "one.elsewhere.test"),
        ),
        // Nothing listens there.
        (
            "_sip._udp.agents.test",
            Record::Service(10, 9, "one.elsewhere.test"),
        ),
        ("one.elsewhere.test", local),
    ]);

    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
    setup.runtime(&setup.first_agent, "sip:{agent_id}@agents.test");

    let daemon = setup.serve();
    let agent = runtime.play("runtime_answers");
    daemon.caller().play("caller_hangs_up").finish();

    let agent = agent.finish();
    let invite = agent.request("INVITE");
    assert_eq!(
        invite.start_line(),
        format!(
            "INVITE sip:{}@agents.test SIP/2.0",
            daemon.setup.first_agent
        )
    );

    let via = invite.header("Via").unwrap_or_default();
    assert!(via.starts_with("SIP/2.0/TCP"), "{agent}");
    assert_eq!(daemon.record()["status"], "completed");
}
