//! SIP over TLS in both directions, with a certificate authority of the test.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::message::SDP;
use trunkline_testkit::probe::Probe;
use trunkline_testkit::process::free_port;
use trunkline_testkit::{
    Authority, Baresip, Daemon, DaemonSetup, Deadline, Message, Pbx, Peer, SecureRuntime, tls,
    tools,
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Returns a setup that listens on TLS and trusts the authority, and the address.
pub(crate) fn secured(authority: &Authority, setup: DaemonSetup) -> (DaemonSetup, SocketAddr) {
    authority.certify("daemon", "127.0.0.1");
    let listener = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let setup = setup
        .set("TRUNKLINE__SIP__TLS", &listener.to_string())
        .set(
            "TRUNKLINE__SIP__TLS_CERTIFICATE",
            &authority.path("daemon.pem"),
        )
        .set("TRUNKLINE__SIP__TLS_KEY", &authority.path("daemon.key"))
        .set("TRUNKLINE__SIP__TLS_CA", &authority.path("ca.pem"));
    (setup, listener)
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
    let (setup, listener) = secured(&authority, DaemonSetup::new());
    let daemon = setup.serve();
    let mut pbx = Pbx::tls(&daemon, listener, &authority);
    let lines = format!("Contact: <sip:pbx@{};transport=tls>\r\n", pbx.address());
    assert_eq!(pbx.register(&lines).status(), Some(200));
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
    assert_eq!(
        pbx.register(&lines).status(),
        Some(200),
        "the connection goes on"
    );

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
    let (setup, listener) = secured(&authority, DaemonSetup::new());
    let daemon = setup
        .set("TRUNKLINE__SIP__TLS_CLIENT_CA", &authority.path("ca.pem"))
        .serve();
    let has_failed = || daemon.log().contains("TLS handshake with a client failed");

    // With TLS 1.3 the client learns of the refusal only when it reads.
    drop(authority.connect(listener));
    assert!(
        Deadline::after(PATIENCE)
            .poll(|| has_failed().then_some(()))
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
    let (setup, _) = secured(&authority, DaemonSetup::new());
    setup.runtime(&setup.first_agent, &runtime.uri());

    let daemon = setup.serve();
    daemon.caller().play("caller_hangs_up").finish();

    let heard = runtime.finish();
    let methods: Vec<_> = heard.requests.iter().filter_map(Message::method).collect();
    assert_eq!(methods, ["INVITE", "ACK", "BYE"], "{heard:?}");
    assert!(heard.knows_client, "our certificate is shown to who asks");

    let invite = heard.requests[0].text();
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
    let (setup, _) = secured(&authority, DaemonSetup::new());
    setup.runtime(&setup.first_agent, &runtime.uri());
    let daemon = setup.serve();
    let caller = daemon.caller().play("caller_is_refused").finish();
    assert!(caller.statuses("INVITE").contains(&480), "{caller}");

    let heard = runtime.finish();
    assert!(heard.requests.is_empty(), "{heard:?}");

    let call = daemon.record();
    assert_eq!(call["reason"], "runtime_unreachable", "{call}");
    daemon.log_line(&["the peer was not verified"]);
}

/// RFC 5922 §7.1: a certificate may prove a SIP domain by a URI.
#[test]
fn a_runtime_whose_certificate_names_a_sip_uri_is_called() {
    for (uri, expected) in [
        ("sip:bot.test", Some(200)),
        ("sip:other.test", Some(480)),
        ("sip:agent@bot.test", Some(480)),
        ("https://bot.test", Some(480)),
    ] {
        let authority = Authority::new();
        authority.certify_uri("runtime", uri);
        let (runtime, _requests) = tls::closing(&authority, "runtime");
        let names = dns::serve(vec![("bot.test", Record::Address(Ipv4Addr::LOCALHOST))]);
        let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
        let (setup, _) = secured(&authority, setup);
        let caller = Ipv4Addr::new(127, 0, 0, 2);
        setup.dedicate(&caller.to_string());
        let target = format!("sip:x@bot.test:{};transport=tls", runtime.port());
        setup.runtime(&setup.first_agent, &target);

        let daemon = setup.serve();
        let probe = Probe::new(caller, daemon.sip());
        let line = format!("X-PLATFORM-AGENT-ID: {}", daemon.setup.first_agent);
        let status = probe.call("someone", &line);
        assert_eq!(status, expected, "{uri}: {}", daemon.log());
    }
}

#[test]
fn baresip_registers_and_is_heard_over_tls() {
    if !tools(&["baresip"]) {
        return;
    }
    let authority = Authority::new();
    let (setup, listener) = secured(&authority, DaemonSetup::new());
    let daemon = setup.serve();
    let phone = Baresip::registered(listener, &daemon.credentials(), "tls");
    let there = Deadline::after(PATIENCE).poll(|| registrations(&daemon).pop());
    let there = there.unwrap_or_else(|| panic!("not registered:\n{}", daemon.log()));
    assert_eq!(there["transport"], "tls", "{there}");
    phone.leave();
}

/// A PBX on TLS that is authenticated by its address, and its call.
struct Line {
    peer: Peer,
    dialog: Dialog,
}

impl Line {
    fn new(authority: &Authority, listener: SocketAddr, number: &str) -> Self {
        let uri = format!("sips:{number}@{listener}");
        let peer = authority.peer(listener);
        let mut dialog = Dialog::calling(&uri, "100", "secured", &peer);
        dialog.from = "<sips:100@pbx.example>;tag=pbx".to_owned();
        dialog.lines = format!("Contact: <sips:100@{}>\r\n", peer.own);
        Self { peer, dialog }
    }

    fn send(&self, cseq: u32, method: &str, body: &str) {
        let request = self.dialog.request(&self.peer, (cseq, method), "", body);
        self.peer.send(request);
    }

    /// Returns the next final answer, which must be a 200.
    fn accepted(&self) -> Message {
        let answer = self.peer.next("a final answer", Message::is_final);
        assert_eq!(answer.status(), Some(200), "{answer}");
        answer
    }
}

/// A caller of a `sips:` URI gets a `sips:` Contact, and the call continues on it.
#[test]
fn a_call_to_a_sips_uri_has_a_contact_of_that_kind() {
    let authority = Authority::new();
    let (setup, listener) = secured(&authority, DaemonSetup::new());
    setup.dedicate("127.0.0.1/32");

    let daemon = setup.serve();
    let mut line = Line::new(&authority, listener, &daemon.setup.first_number);
    line.send(1, "INVITE", SDP);

    let answer = line.accepted();
    let contact = format!("<sips:trunkline@{listener}>");
    assert_eq!(answer.value("Contact"), contact, "{answer}");

    line.dialog.accepted(&answer);
    line.send(1, "ACK", "");
    line.send(2, "INVITE", SDP);

    let answer = line.accepted();
    assert_eq!(answer.value("Contact"), contact, "{answer}");

    line.send(2, "ACK", "");
    line.send(3, "BYE", "");
    line.accepted();
    assert_eq!(daemon.record()["status"], "completed");
}

#[test]
fn a_runtime_by_a_sips_uri_gets_a_contact_of_that_kind() {
    if !tools(&["sipp"]) {
        return;
    }

    let authority = Authority::new();
    authority.certify("runtime", "127.0.0.1");

    let runtime = SecureRuntime::start(&authority, "runtime");
    let (setup, listener) = secured(&authority, DaemonSetup::new());
    let uri = format!("sips:{{agent_id}}@{}", runtime.address);
    setup.runtime(&setup.first_agent, &uri);

    let daemon = setup.serve();
    daemon.caller().play("caller_hangs_up").finish();

    let heard = runtime.finish();
    let invite = &heard.requests[0];
    let begin = format!("INVITE sips:{}@", daemon.setup.first_agent);
    assert!(invite.start_line().starts_with(&begin), "{invite}");

    let contact = format!("<sips:trunkline@{listener}>");
    assert_eq!(invite.value("Contact"), contact, "{invite}");
    assert_eq!(daemon.record()["status"], "completed");
}

/// A `sips:` URI requires TLS on every hop (RFC 3261 §26.2.2), and this INVITE comes over UDP.
#[test]
fn a_call_to_a_sips_uri_without_tls_is_refused() {
    let setup = DaemonSetup::new();
    setup.dedicate("127.0.0.1/32");
    let daemon = setup.serve();
    let peer = Peer::new(daemon.sip());
    let uri = format!("sips:{}@{}", daemon.setup.first_number, daemon.sip());
    let dialog = Dialog::calling(&uri, "100", "open", &peer)
        .with(&format!("Contact: <sips:100@{}>", peer.own));
    peer.send(dialog.request(&peer, (1, "INVITE"), "", ""));
    assert_eq!(peer.outcome("INVITE").status(), Some(480));
    assert_eq!(daemon.record()["reason"], "not_secured");
}

/// Tags are no proof over a transport that anybody on the path can read and write.
#[test]
fn a_call_on_tls_is_closed_to_less_secure_transports() {
    let authority = Authority::new();
    let (setup, listener) = secured(&authority, DaemonSetup::new());
    setup.dedicate("127.0.0.1/32");
    let daemon = setup.serve();
    let mut line = Line::new(&authority, listener, &daemon.setup.first_number);
    line.send(1, "INVITE", SDP);
    let answer = line.accepted();
    line.dialog.accepted(&answer);
    line.send(1, "ACK", "");

    for (cseq, method) in [(2, "INVITE"), (3, "UPDATE"), (4, "BYE")] {
        for peer in [
            Peer::new(daemon.sip()),
            Peer::tcp(Ipv4Addr::LOCALHOST, daemon.sip()),
        ] {
            let mut foreign = line.dialog.clone();
            foreign.uri = format!("sip:trunkline@{}", daemon.sip());
            foreign.lines = format!("Contact: <sip:100@{}>\r\n", peer.own);
            peer.send(foreign.request(&peer, (cseq, method), "", ""));
            let refused = peer.receive().status();
            assert_eq!(refused, Some(403), "{method} over {:?}", peer.transport);
        }
    }

    // A new leg over UDP that is admitted by its address can't replace the caller either (RFC 3891).
    let thief = Peer::new(daemon.sip());
    let (id, tag) = (&line.dialog.id, answer.to_tag());
    let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
    let place = Dialog::calling(&uri, "100", "place", &thief)
        .with("Require: replaces")
        .with(&format!("Replaces: {id};to-tag={tag};from-tag=pbx"));
    let refused = place.status(&thief, (1, "INVITE"), SDP);
    assert_eq!(refused, 481, "Replaces over UDP");

    // The call is unchanged, also for another connection of the caller.
    line.peer = authority.peer(listener);
    line.send(2, "INVITE", SDP);
    line.accepted();
    line.send(2, "ACK", "");
    line.send(3, "BYE", "");
    line.accepted();
    let records = daemon.records(2);
    let is_over = |record: &serde_json::Value| record["status"] == "completed";
    assert!(records.iter().any(is_over), "{records:?}");
}

/// An attacker who breaks the connection of a call on TLS, or is behind a proxy on the recorded route, reads nothing that follows: a URI without a
/// transport is reached by TLS, and a URI with a less secure one isn't used.
#[test]
fn a_call_on_tls_is_never_continued_by_a_less_secure_transport() {
    let authority = Authority::new();
    authority.certify("pbx", "127.0.0.1");
    let (setup, listener) = secured(&authority, DaemonSetup::new());
    setup.dedicate("127.0.0.1/32");
    let daemon = setup.serve();

    for (case, parameter, is_recorded, breaks) in [
        ("a Contact, the connection broken", "", false, true),
        ("a route, the connection alive", "", true, false),
        ("a route over UDP", ";transport=udp", true, false),
    ] {
        // Another test may hold the port for UDP.
        let (pbx, plain) = loop {
            let pbx = SecureRuntime::start(&authority, "pbx");
            if let Ok(plain) = UdpSocket::bind(pbx.address) {
                break (pbx, Peer::bound(plain, None));
            }
        };
        let mut line = Line::new(&authority, listener, &daemon.setup.first_number);
        line.dialog.uri = line.dialog.uri.replace("sips:", "sip:");
        line.dialog.to = format!("<{}>", line.dialog.uri);
        line.dialog.from = "<sip:100@pbx.example>;tag=pbx".to_owned();
        let at = format!("{}{parameter}", pbx.address);
        let route = match is_recorded {
            true => format!("Record-Route: <sip:{at};lr>\r\n"),
            false => String::new(),
        };
        line.dialog.lines = format!("Contact: <sip:100@{at}>\r\n{route}");
        line.send(1, "INVITE", SDP);
        line.dialog.to = line.accepted().value("To");
        line.send(1, "ACK", "");

        let kept = (!breaks).then_some(line);
        let call = daemon.calls()[0]["id"].as_str().expect("an id").to_owned();
        let path = format!("/phone/calls/{call}/hangup");
        let (status, body) = daemon.change("POST", &path, &serde_json::json!({}));
        assert!(status < 300, "{case}: {body}");
        let heard = plain.receive_within(Duration::from_secs(1));
        assert_eq!(heard, None, "{case}: in the clear");
        match kept {
            Some(line) => drop(line.peer.request("BYE")),
            None => {
                let requests = pbx.finish().requests;
                assert!(requests[0].is_request("BYE"), "{case}: {requests:?}");
            }
        }
    }
}

/// No certificate names the bare address in a Contact: the peer of a new connection has to prove the name that was proved on the old one.
#[test]
fn a_call_over_tls_outlives_its_connection_where_the_contact_is_an_address() {
    let authority = Authority::new();
    authority.certify("runtime", "bot.test");

    let (runtime, requests) = tls::closing(&authority, "runtime");
    let names = dns::serve(vec![("bot.test", Record::Address(Ipv4Addr::LOCALHOST))]);
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
    let (setup, _) = secured(&authority, setup);
    let caller = Ipv4Addr::new(127, 0, 0, 2);
    setup.dedicate(&caller.to_string());

    let uri = format!("sip:x@bot.test:{};transport=tls", runtime.port());
    setup.runtime(&setup.first_agent, &uri);

    let daemon = setup.serve();
    let probe = Probe::new(caller, daemon.sip());
    let line = format!("X-PLATFORM-AGENT-ID: {}", daemon.setup.first_agent);
    assert_eq!(probe.call("someone", &line), Some(200), "{}", daemon.log());

    let heard = |wanted: &str| {
        let came = std::iter::from_fn(|| requests.recv_timeout(PATIENCE).ok());
        let mut came = came.filter(|request| !request.is_request("OPTIONS"));
        let next = came.next();
        let method = next.as_ref().and_then(Message::method);
        assert_eq!(method, Some(wanted), "{}", daemon.log());
    };
    heard("INVITE");
    heard("ACK");

    let call = daemon.calls()[0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/phone/calls/{call}/hangup");
    let (status, body) = daemon.change("POST", &path, &serde_json::json!({}));
    assert!(status < 300, "{body}");

    heard("BYE");
}
