//! SIP over TLS, both ways, with a certificate authority of the test's own.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use trunkline_sip::wire::frame::{Frame, Framer};
use trunkline_sip::wire::{Framing, Method, lex};

use trunkline_testkit::dns::{self, Record};
use trunkline_testkit::probe::Probe;
use trunkline_testkit::process::free_port;
use trunkline_testkit::tls;
use trunkline_testkit::{Authority, Baresip, Daemon, Deadline, House, Pbx, SecureRuntime, tools};

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

/// A PBX on TLS that is known by its address, and what it says and hears.
struct Line {
    stream: StreamOwned<ClientConnection, TcpStream>,
    framer: Framer,
    daemon: SocketAddr,
}

impl Line {
    /// A request of the call, to this URI.
    fn send(&mut self, method: &str, uri: &str, (cseq, tag): (u32, &str), body: &str) {
        let own = self.stream.sock.local_addr().expect("an address");
        let to = format!("sips:{}@{}", self.user(uri), self.daemon);
        let request = format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/TLS {own};branch=z9hG4bK{cseq}{method}\r\nMax-Forwards: 70\r\n\
             From: <sips:100@pbx.example>;tag=pbx\r\nTo: <{to}>{tag}\r\nCall-ID: secured@pbx.example\r\nCSeq: {cseq} {method}\r\n\
             Contact: <sips:100@{own}>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream
            .write_all(request.as_bytes())
            .expect("it is sent");
    }

    fn user<'u>(&self, uri: &'u str) -> &'u str {
        let behind = uri.split_once(':').map_or(uri, |(_, behind)| behind);
        behind.split_once('@').map_or(behind, |(user, _)| user)
    }

    /// The next final answer.
    fn answer(&mut self) -> String {
        self.next(|message| message.status() >= 200)
    }

    fn next(&mut self, is_wanted: impl Fn(&trunkline_sip::wire::Message<'_>) -> bool) -> String {
        let mut octets = [0; 4096];
        loop {
            while let Some(frame) = self.framer.next_frame().expect("SIP") {
                let Frame::Message(octets) = frame else {
                    continue;
                };
                let message = lex(octets, Framing::Stream).expect("a message");
                if is_wanted(&message) {
                    return String::from_utf8_lossy(octets).into_owned();
                }
            }
            let count = self.stream.read(&mut octets).expect("a message");
            assert!(count > 0, "the connection ended");
            self.framer.push(&octets[..count]);
        }
    }
}

fn header<'m>(message: &'m str, name: &str) -> &'m str {
    let mut lines = message.lines();
    let found = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no {name}: {message}"))
}

/// Who calls a `sips:` URI gets a Contact of that kind, by which the call goes on.
#[test]
fn a_call_to_a_sips_uri_has_a_contact_of_that_kind() {
    let authority = Authority::new();
    let (house, listener) = secured(&authority, House::new());
    house.dedicate("127.0.0.1/32");
    let daemon = house.serve();
    let mut line = Line {
        stream: authority.connect(listener).expect("TLS"),
        framer: Framer::new(),
        daemon: listener,
    };
    let uri = format!("sips:{}@{listener}", daemon.house.first_number);
    let offer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n";
    line.send("INVITE", &uri, (1, ""), offer);
    let answer = line.answer();
    assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
    let contact = format!("<sips:trunkline@{listener}>");
    assert_eq!(header(&answer, "Contact"), contact, "{answer}");
    let tag = header(&answer, "To")
        .split_once(";tag=")
        .map(|(_, tag)| tag);
    let tag = format!(";tag={}", tag.expect("a tag"));
    let ours = contact.trim_matches(['<', '>']);
    line.send("ACK", ours, (1, &tag), "");
    line.send("INVITE", ours, (2, &tag), offer);
    let answer = line.answer();
    assert_eq!(header(&answer, "Contact"), contact, "{answer}");
    line.send("ACK", ours, (2, &tag), "");
    line.send("BYE", ours, (3, &tag), "");
    assert!(line.answer().starts_with("SIP/2.0 200 "));
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
    let (house, listener) = secured(&authority, House::new());
    let uri = format!("sips:{{agent_id}}@{}", runtime.address);
    house.runtime(&house.first_agent, &uri);
    let daemon = house.serve();
    daemon.caller().play("caller_hangs_up").finish();
    let heard = runtime.finish();
    let invite = &heard.requests[0].1;
    let agent = &daemon.house.first_agent;
    assert!(
        invite.starts_with(&format!("INVITE sips:{agent}@")),
        "{invite}"
    );
    let contact = format!("<sips:trunkline@{listener}>");
    assert_eq!(header(invite, "Contact"), contact, "{invite}");
    assert_eq!(daemon.record()["status"], "completed");
}

/// Whatever let it pass by UDP, it has broken the promise of the URI.
#[test]
fn a_call_to_a_sips_uri_without_tls_is_refused() {
    let house = House::new();
    house.dedicate("127.0.0.1/32");
    let daemon = house.serve();
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let own = socket.local_addr().expect("an address");
    let uri = format!("sips:{}@{}", daemon.house.first_number, daemon.sip());
    let invite = format!(
        "INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK1\r\nMax-Forwards: 70\r\n\
         From: <sips:100@pbx.example>;tag=pbx\r\nTo: <{uri}>\r\nCall-ID: open@{own}\r\nCSeq: 1 INVITE\r\n\
         Contact: <sips:100@{own}>\r\nContent-Length: 0\r\n\r\n"
    );
    socket
        .send_to(invite.as_bytes(), daemon.sip())
        .expect("it is sent");
    let mut octets = [0; 4096];
    loop {
        let count = socket.recv(&mut octets).expect("an answer");
        let answer = lex(&octets[..count], Framing::Datagram).expect("a message");
        if answer.status() >= 200 {
            assert_eq!(answer.status(), 480);
            break;
        }
    }
    assert_eq!(daemon.record()["reason"], "not_secured");
}

/// Tags that were read somewhere are of no use over a transport that anybody on the way can read and write.
#[test]
fn a_call_on_tls_is_closed_to_less_secure_transports() {
    let authority = Authority::new();
    let (house, listener) = secured(&authority, House::new());
    house.dedicate("127.0.0.1/32");
    let daemon = house.serve();
    let mut line = Line {
        stream: authority.connect(listener).expect("TLS"),
        framer: Framer::new(),
        daemon: listener,
    };
    let uri = format!("sips:{}@{listener}", daemon.house.first_number);
    let offer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n";
    line.send("INVITE", &uri, (1, ""), offer);
    let answer = line.answer();
    let to = header(&answer, "To").to_owned();
    let (_, tag) = to.split_once(";tag=").expect("a tag");
    let tag = format!(";tag={tag}");
    let ours = format!("sips:trunkline@{listener}");
    line.send("ACK", &ours, (1, &tag), "");

    let call_id = header(&answer, "Call-ID");
    for (cseq, method) in [(2, "INVITE"), (3, "UPDATE"), (4, "BYE")] {
        let request = |transport: &str, own: SocketAddr| {
            format!(
                "{method} sip:trunkline@{} SIP/2.0\r\nVia: SIP/2.0/{transport} {own};branch=z9hG4bK{transport}{cseq};rport\r\n\
                 Max-Forwards: 70\r\nFrom: <sips:100@pbx.example>;tag=pbx\r\nTo: {to}\r\nCall-ID: {call_id}\r\n\
                 CSeq: {cseq} {method}\r\nContact: <sip:100@{own}>\r\nContent-Length: 0\r\n\r\n",
                daemon.sip()
            )
        };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let own = socket.local_addr().expect("an address");
        let sent = socket.send_to(request("UDP", own).as_bytes(), daemon.sip());
        sent.expect("it is sent");
        let mut octets = [0; 4096];
        let count = socket.recv(&mut octets).expect("an answer");
        let refused = lex(&octets[..count], Framing::Datagram).expect("a message");
        assert_eq!(refused.status(), 403, "{method} over UDP");

        let mut stream = TcpStream::connect(daemon.sip()).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let own = stream.local_addr().expect("an address");
        let sent = stream.write_all(request("TCP", own).as_bytes());
        sent.expect("it is sent");
        let count = stream.read(&mut octets).expect("an answer");
        assert!(
            octets[..count].starts_with(b"SIP/2.0 403 "),
            "{method} over TCP"
        );
    }

    // Nor does a new leg over UDP take the caller's place (RFC 3891), which is admitted by its address.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let own = socket.local_addr().expect("an address");
    let dialog = format!("{call_id};to-tag={};from-tag=pbx", &tag[";tag=".len()..]);
    let number = &daemon.house.first_number;
    let uri = format!("sip:{number}@{}", daemon.sip());
    let replacing = format!(
        "INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bKplace;rport\r\nMax-Forwards: 70\r\n\
         From: <sip:100@pbx.example>;tag=place\r\nTo: <{uri}>\r\nCall-ID: place@pbx.example\r\nCSeq: 1 INVITE\r\n\
         Contact: <sip:100@{own}>\r\nRequire: replaces\r\nReplaces: {dialog}\r\nContent-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{offer}",
        offer.len()
    );
    let sent = socket.send_to(replacing.as_bytes(), daemon.sip());
    sent.expect("it is sent");
    let mut octets = [0; 4096];
    let refused = loop {
        let count = socket.recv(&mut octets).expect("an answer");
        let answer = lex(&octets[..count], Framing::Datagram).expect("a message");
        if answer.status() >= 200 {
            break answer.status();
        }
    };
    assert_eq!(refused, 481, "Replaces over UDP");

    // The call is what it was, also for another connection of its own.
    line.stream = authority.connect(listener).expect("TLS");
    line.send("INVITE", &ours, (2, &tag), offer);
    assert!(line.answer().starts_with("SIP/2.0 200 "));
    line.send("ACK", &ours, (2, &tag), "");
    line.send("BYE", &ours, (3, &tag), "");
    assert!(line.answer().starts_with("SIP/2.0 200 "));
    let records = daemon.records(2);
    let is_over = |record: &serde_json::Value| record["status"] == "completed";
    assert!(records.iter().any(is_over), "{records:?}");
}

/// Whoever breaks the connection of a call on TLS, or stands behind a proxy that records its route, reads nothing of what comes next: a URI that names
/// no transport is reached by TLS, one that names a less secure one isn't used.
#[test]
fn a_call_on_tls_is_never_continued_by_a_less_secure_transport() {
    let authority = Authority::new();
    authority.certify("pbx", "127.0.0.1");
    let (house, listener) = secured(&authority, House::new());
    house.dedicate("127.0.0.1/32");
    let daemon = house.serve();
    let offer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 0\r\n";
    for (case, parameter, is_recorded, breaks) in [
        ("a Contact, the connection broken", "", false, true),
        ("a route, the connection alive", "", true, false),
        ("a route over UDP", ";transport=udp", true, false),
    ] {
        let pbx = SecureRuntime::start(&authority, "pbx");
        let plain = UdpSocket::bind(pbx.address).expect("the same port");
        let limit = Duration::from_secs(1);
        plain.set_read_timeout(Some(limit)).expect("a limit");
        let mut line = Line {
            stream: authority.connect(listener).expect("TLS"),
            framer: Framer::new(),
            daemon: listener,
        };
        let own = line.stream.sock.local_addr().expect("an address");
        let at = format!("{}{parameter}", pbx.address);
        let route = match is_recorded {
            true => format!("Record-Route: <sip:{at};lr>\r\n"),
            false => String::new(),
        };
        let uri = format!("sip:{}@{listener}", daemon.house.first_number);
        let send = |line: &mut Line, method: &str, tag: &str, body: &str| {
            let request = format!(
                "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/TLS {own};branch=z9hG4bK{method}\r\nMax-Forwards: 70\r\n\
                 From: <sip:100@pbx.example>;tag=pbx\r\nTo: <{uri}>{tag}\r\nCall-ID: {own}\r\nCSeq: 1 {method}\r\n\
                 Contact: <sip:100@{at}>\r\n{route}Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            line.stream.write_all(request.as_bytes()).expect("sent");
        };
        send(&mut line, "INVITE", "", offer);
        let answer = line.answer();
        assert!(answer.starts_with("SIP/2.0 200 "), "{case}: {answer}");
        let (_, tag) = header(&answer, "To").split_once(";tag=").expect("a tag");
        send(&mut line, "ACK", &format!(";tag={tag}"), "");

        let mut octets = [0; 4096];
        let kept = (!breaks).then_some(line);
        let call = daemon.calls()[0]["id"].as_str().expect("an id").to_owned();
        let path = format!("/phone/calls/{call}/hangup");
        let (status, body) = daemon.change("POST", &path, &serde_json::json!({}));
        assert!(status < 300, "{case}: {body}");
        let heard = plain.recv(&mut octets).ok();
        let heard = heard.map(|count| String::from_utf8_lossy(&octets[..count]).into_owned());
        assert_eq!(heard, None, "{case}: in the clear");
        match kept {
            Some(mut line) => {
                line.next(|message| message.method() == Method::Bye && message.is_request());
            }
            None => {
                let requests = pbx.finish().requests;
                assert_eq!(requests[0].0, Method::Bye, "{case}: {requests:?}");
            }
        }
    }
}

/// No certificate is for the bare address in a Contact: who is there in the place of a connection that has ended has to prove the name that was
/// proved on it.
#[test]
fn a_call_over_tls_outlives_its_connection_where_the_contact_is_an_address() {
    let authority = Authority::new();
    authority.certify("runtime", "bot.test");
    let (runtime, requests) = tls::closing(&authority, "runtime");
    let names = dns::serve(vec![("bot.test", Record::Address(Ipv4Addr::LOCALHOST))]);
    let house = House::new().set("TRUNKLINE__SIP__NAMESERVERS", &names.to_string());
    let (house, _) = secured(&authority, house);
    let caller = Ipv4Addr::new(127, 0, 0, 2);
    house.dedicate(&caller.to_string());
    let uri = format!("sip:x@bot.test:{};transport=tls", runtime.port());
    house.runtime(&house.first_agent, &uri);
    let daemon = house.serve();
    let probe = Probe::new(caller, daemon.sip());
    let line = format!("X-PLATFORM-AGENT-ID: {}", daemon.house.first_agent);
    assert_eq!(probe.call("someone", &line), Some(200), "{}", daemon.log());
    let heard = |wanted: Method| {
        let came = std::iter::from_fn(|| requests.recv_timeout(PATIENCE).ok());
        let mut came = came.filter(|method| *method != Method::Options);
        assert_eq!(came.next(), Some(wanted), "{}", daemon.log());
    };
    heard(Method::Invite);
    heard(Method::Ack);
    let call = daemon.calls()[0]["id"].as_str().expect("an id").to_owned();
    let path = format!("/phone/calls/{call}/hangup");
    let (status, body) = daemon.change("POST", &path, &serde_json::json!({}));
    assert!(status < 300, "{body}");
    heard(Method::Bye);
}
