//! Traces under attack by another tenant: equal Call-IDs, and texts that name the other's session. Each org is shown, and erases, the messages of
//! its own calls alone.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::Duration;

use serde_json::Value;

use crate::torture::caller::OFFER;
use crate::torture::daemon_requests::{Neighbour, accepting, until};
use crate::torture::one_shard;
use trunkline_testkit::digest::{Asking, Challenge};
use trunkline_testkit::message::status_of;
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Message, Peer, http};

const THEIRS: &str = "+493099999999";
/// Call-ID of the victim's caller, which the attacker uses too.
const SAME: &str = "same@pbx.invalid";
const PCAP: &str = "application/vnd.tcpdump.pcap";

/// PBX of one org. Its number is in every message of its calls, on both legs.
struct Pbx<'d> {
    peer: Peer,
    daemon: &'d Daemon,
    credentials: Credentials,
    number: &'static str,
    dials: String,
}

/// Call of a PBX. Its tag is the same in calls of one PBX, so that only Call-ID and our tag tell them apart.
struct Leg<'p> {
    pbx: &'p Pbx<'p>,
    call_id: String,
    /// Further header lines of its INVITEs.
    lines: String,
    body: String,
    to_tag: RefCell<String>,
}

impl<'p> Leg<'p> {
    fn new(pbx: &'p Pbx<'p>, call_id: &str) -> Self {
        Self {
            pbx,
            call_id: call_id.to_owned(),
            lines: String::new(),
            body: OFFER.to_owned(),
            to_tag: RefCell::default(),
        }
    }

    /// Puts a line that names a session into headers and body.
    fn naming(mut self, session: &str) -> Self {
        let line = format!("X-PLATFORM-SESSION-ID: {session}\r\n");
        self.lines.push_str(&line);
        self.lines
            .push_str(&format!("Subject: a\r\n {line}X-Note: b\r\n"));
        self.body.push_str(&line);
        self
    }

    fn send(&self, method: &str, cseq: u32, lines: &str, body: &str) {
        let Pbx {
            peer,
            daemon,
            number,
            dials,
            ..
        } = self.pbx;
        let (own, at) = (peer.own, daemon.sip());
        let branch = match method {
            "ACK" => "INVITE",
            method => method,
        };
        let to_tag = self.to_tag.borrow();
        let to_tag = match &**to_tag {
            "" => String::new(),
            tag => format!(";tag={tag}"),
        };
        // Branch and From-tag are those of the other PBX too.
        peer.send(format!(
            "{method} sip:{dials}@{at} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{branch}-{cseq};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:{number}@pbx.invalid>;tag=f\r\nTo: <sip:{dials}@{at}>{to_tag}\r\nCall-ID: {}\r\nCSeq: {cseq} {method}\r\n\
             Contact: <sip:{number}@{own}>\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            self.call_id,
            body.len()
        ));
    }

    fn answer(&self) -> Message {
        self.pbx.peer.next("answer", |message| {
            message.status().is_some() && message.header("Call-ID") == Some(&self.call_id)
        })
    }

    fn final_answer(&self) -> Message {
        loop {
            let answer = self.answer();
            if status_of(&answer) >= 200 {
                return answer;
            }
        }
    }

    /// Dials from this CSeq on, through the challenge.
    fn dial(&self, cseq: u32) {
        let lines = format!("{}Content-Type: application/sdp\r\n", self.lines);
        self.send("INVITE", cseq, &lines, &self.body);
        let challenge = self.final_answer();
        assert_eq!(challenge.status(), Some(401), "{challenge:?}");
        self.to_tag.replace(challenge.to_tag());
        self.send("ACK", cseq, "", "");
        self.to_tag.take();

        let uri = format!("sip:{}@{}", self.pbx.dials, self.pbx.daemon.sip());
        let asking = Asking {
            method: "INVITE",
            uri: &uri,
            nc: 1,
        };
        let proof = Challenge::of(&challenge).answer(&asking, &self.pbx.credentials);
        self.send(
            "INVITE",
            cseq + 1,
            &format!("{proof}\r\n{lines}"),
            &self.body,
        );
    }

    /// Takes the 200 and acknowledges it.
    fn connect(&self, cseq: u32) {
        let answer = self.final_answer();
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        self.to_tag.replace(answer.to_tag());
        self.send("ACK", cseq, "", "");
    }

    fn hang_up(&self, cseq: u32) {
        self.send("BYE", cseq, "", "");
        assert_eq!(status_of(&self.final_answer()), 200);
    }
}

/// An org, its runtime and its key.
struct Org {
    id: String,
    runtime: Peer,
    key: String,
}

impl Org {
    fn invited(&self) -> Message {
        self.runtime.request("INVITE")
    }

    /// Answers an INVITE, with a line in headers and body that names a session.
    fn accept(&self, invite: &Message, session: &str) {
        let line = format!("X-PLATFORM-SESSION-ID: {session}\r\n");
        let lines = format!("{}{line}", accepting(&self.runtime));
        self.runtime
            .answer(invite, "200 OK", &lines, &format!("{OFFER}{line}"));
        self.runtime.request("ACK");
    }

    /// Answers the BYE that ends a call.
    fn ended(&self) {
        let bye = self.runtime.request("BYE");
        self.runtime.answer(&bye, "200 OK", "", "");
    }

    /// Returns the org's calls once they have ended.
    fn calls(&self, daemon: &Daemon, count: usize) -> Vec<Value> {
        until(|| {
            let page = http::json(daemon.setup.http, "/phone/calls", &self.key);
            let calls = page["items"].as_array()?.clone();
            let is_over =
                |call: &Value| call["ended_at"].is_string() && call["contact_id"].is_string();
            (calls.len() == count && calls.iter().all(is_over)).then_some(calls)
        })
    }
}

/// Returns the trace of a call in one form.
fn trace(daemon: &Daemon, key: &str, call: &str, form: &str) -> Vec<u8> {
    let http = daemon.setup.http;
    let mut stream = TcpStream::connect(http).expect("the API listens");
    let request = format!(
        "GET /phone/calls/{call}/trace HTTP/1.0\r\nHost: {http}\r\nAuthorization: Bearer {key}\r\nAccept: {form}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).expect("it is read");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    assert!(
        answer.starts_with(b"HTTP/1.0 200") || answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n");
    answer.split_off(end.expect("a head") + 4)
}

/// Returns the messages of a trace as legs, directions, summaries and texts.
fn messages(shown: &[u8]) -> Vec<[String; 4]> {
    let shown: Value = serde_json::from_slice(shown).expect("JSON");
    assert_eq!(shown["complete"], true, "{shown}");
    let items = shown["items"].as_array().expect("items").iter();
    let messages = items.filter(|item| item["type"] == "message");
    let texts = messages.map(|item| {
        ["leg", "direction", "summary", "text"]
            .map(|name| item[name].as_str().expect("text").to_owned())
    });
    texts.collect()
}

fn holds(octets: &[u8], text: &str) -> bool {
    octets
        .windows(text.len())
        .any(|some| some == text.as_bytes())
}

/// Messages of a call, as leg, direction and summary.
const WHOLE: [[&str; 3]; 16] = [
    ["caller", "received", "INVITE"],
    ["caller", "sent", "401 Unauthorized (INVITE)"],
    ["caller", "received", "ACK"],
    ["caller", "received", "INVITE"],
    ["caller", "sent", "100 Trying (INVITE)"],
    ["runtime", "sent", "INVITE"],
    ["runtime", "received", "180 Ringing (INVITE)"],
    ["caller", "sent", "180 Ringing (INVITE)"],
    ["runtime", "received", "200 OK (INVITE)"],
    ["runtime", "sent", "ACK"],
    ["caller", "sent", "200 OK (INVITE)"],
    ["caller", "received", "ACK"],
    ["caller", "received", "BYE"],
    ["caller", "sent", "200 OK (BYE)"],
    ["runtime", "sent", "BYE"],
    ["runtime", "received", "200 OK (BYE)"],
];

/// Checks that the trace of a call has all its own messages, once each, and none with the other's number.
fn assert_own(daemon: &Daemon, org: &Org, call: &str, [own, other]: [&str; 2]) {
    let key = &org.key;
    let json = trace(daemon, key, call, "application/json");
    let messages = messages(&json);
    let mut seen: Vec<[&str; 3]> = messages
        .iter()
        .map(|[leg, way, summary, _]| [&**leg, &**way, &**summary])
        .collect();
    // Each of them, and none that isn't; on a busy machine some are sent again.
    for rung in WHOLE {
        let count = |of: &[[&str; 3]]| of.iter().filter(|other| **other == rung).count();
        assert!(
            count(&seen) >= count(&WHOLE),
            "{own}: {rung:?}: {messages:?}"
        );
    }
    seen.retain(|rung| !WHOLE.contains(rung));
    assert_eq!(seen, Vec::<[&str; 3]>::new(), "{own}");

    for [.., text] in &messages {
        assert!(text.contains(own) && !text.contains(other), "{own}: {text}");
    }
    for form in ["text/plain", PCAP] {
        assert!(
            !holds(&trace(daemon, key, call, form), other),
            "{own}: {form}"
        );
    }

    let pcap = trace(daemon, key, call, PCAP);
    assert!(holds(&pcap, own), "{own}");
    let file = daemon.setup.folder.path().join(format!("{call}.pcap"));
    std::fs::write(&file, pcap).expect("it can be written");
    let explained = daemon.setup.run(&[
        "explain",
        &file.display().to_string(),
        "--org",
        &org.id,
        "--json",
    ]);
    let explained = explained.to_string();
    assert!(!explained.contains(other), "{own}: {explained}");
}

/// Returns correlation id and text of the copies that have come.
fn copies(collector: &UdpSocket) -> Vec<(String, String)> {
    let mut copies = Vec::new();
    let mut envelope = vec![0; 65_536];
    while let Ok(length) = collector.recv(&mut envelope) {
        let mut chunks = HashMap::new();
        let mut rest = &envelope[6..length];
        while rest.len() >= 6 {
            let word = |at: usize| u16::from_be_bytes([rest[at], rest[at + 1]]);
            let (kind, size) = (word(2), usize::from(word(4)));
            let text = String::from_utf8_lossy(&rest[6..size]).into_owned();
            chunks.insert(kind, text);
            rest = &rest[size..];
        }
        let [correlation, text] = [17, 15].map(|kind| chunks.remove(&kind).unwrap_or_default());
        copies.push((correlation, text));
    }
    copies
}

/// Victim and attacker side by side. The attacker's caller has the victim's Call-ID, From-tag and branches, its second call has the Call-ID of the
/// victim's leg to its runtime, and headers and bodies of both name the other's session, in INVITEs and in answers.
#[test]
fn a_tenant_sees_and_erases_the_messages_of_its_own_calls_alone() {
    let collector = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let wait = Some(Duration::from_secs(2));
    collector.set_read_timeout(wait).expect("a timeout");
    let address = collector.local_addr().expect("an address").to_string();
    let setup = one_shard(DaemonSetup::new()).set("TRUNKLINE__TRACES__HEP", &address);
    let neighbour = Neighbour::of(&setup, THEIRS);
    setup.run(&[
        "number",
        "assign",
        THEIRS,
        "--org",
        &neighbour.org,
        "--agent",
        &neighbour.agent,
        "--json",
    ]);
    let runtimes = [
        (&setup.org, &setup.first_agent, "victims-runtime"),
        (&neighbour.org, &neighbour.agent, "attackers-runtime"),
    ];
    let [victim, attacker] = runtimes.map(|(org, agent, tag)| {
        let peer = Peer::new(setup.sip).tagged(tag);
        let uri = format!("sip:bot@{}", peer.own);
        setup.run(&[
            "agent",
            "update",
            agent,
            "--org",
            org,
            "--runtime",
            &uri,
            "--json",
        ]);
        peer
    });
    let daemon = setup.serve();
    let victim = Org {
        id: daemon.setup.org.clone(),
        runtime: victim,
        key: daemon.key().to_owned(),
    };
    let attacker = Org {
        id: neighbour.org.clone(),
        runtime: attacker,
        key: neighbour.key.clone(),
    };
    let victims = Pbx {
        peer: Peer::new(daemon.sip()),
        daemon: &daemon,
        credentials: daemon.credentials(),
        number: "+441632960111",
        dials: daemon.setup.first_number.clone(),
    };
    let attackers = Pbx {
        peer: Peer::new(daemon.sip()),
        daemon: &daemon,
        credentials: neighbour.credentials.clone(),
        number: "+441632960222",
        dials: THEIRS.to_owned(),
    };
    let session = |invite: &Message| invite.value("X-PLATFORM-SESSION-ID");

    // The attacker's call rings while the victim's begins, which a caller of the victim makes name the attacker's session.
    let first = Leg::new(&attackers, SAME);
    first.dial(11);
    let of_first = attacker.invited();
    attacker.runtime.answer(&of_first, "180 Ringing", "", "");
    let theirs = session(&of_first);
    let call = Leg::new(&victims, SAME).naming(&theirs);
    call.dial(21);
    let of_call = victim.invited();
    let ours = session(&of_call);
    assert_ne!(ours, theirs);
    victim.runtime.answer(&of_call, "180 Ringing", "", "");
    // The attacker begins another with the Call-ID of the victim's runtime, and names the victim's session.
    let second = Leg::new(&attackers, &of_call.value("Call-ID")).naming(&ours);
    second.dial(11);
    let of_second = attacker.invited();
    attacker.runtime.answer(&of_second, "180 Ringing", "", "");

    attacker.accept(&of_first, &ours);
    first.connect(12);
    victim.accept(&of_call, &theirs);
    call.connect(22);
    attacker.accept(&of_second, &ours);
    second.connect(12);

    // A stranger sends inside of the victim's dialog, but for its tags.
    let stranger = Pbx {
        peer: Peer::new(daemon.sip()),
        daemon: &daemon,
        credentials: daemon.credentials(),
        number: "+441632960333",
        dials: daemon.setup.first_number.clone(),
    };
    let stray = Leg::new(&stranger, SAME);
    stray.to_tag.replace(call.to_tag.borrow().replace('0', "1"));
    stray.send("BYE", 90, "", "");
    assert_eq!(status_of(&stray.final_answer()), 481);

    for (leg, org, cseq) in [
        (&first, &attacker, 13),
        (&second, &attacker, 13),
        (&call, &victim, 23),
    ] {
        leg.hang_up(cseq);
        org.ended();
    }

    let text = |value: &Value| value.as_str().expect("text").to_owned();
    let of_victim = victim.calls(&daemon, 1);
    let of_attacker = attacker.calls(&daemon, 2);
    let number = victims.number;
    let id = text(&of_victim[0]["id"]);
    let theirs: Vec<String> = of_attacker.iter().map(|call| text(&call["id"])).collect();

    let unharmed = || assert_own(&daemon, &victim, &id, [number, attackers.number]);
    unharmed();
    for call in &theirs {
        assert_own(&daemon, &attacker, call, [attackers.number, number]);
    }

    // The copies of each call have its own id, and those of no call have a Call-ID.
    let copies = copies(&collector);
    for (correlation, text) in &copies {
        let is_of = |number: &str| text.contains(number);
        if is_of(stranger.number) {
            assert_eq!(correlation, SAME, "{text}");
        } else if *correlation == id {
            assert!(is_of(number), "{text}");
        } else if theirs.contains(correlation) {
            assert!(is_of(attackers.number), "{text}");
        }
    }
    for call in theirs.iter().chain([&id]) {
        let of_call = copies.iter().filter(|(correlation, _)| correlation == call);
        assert!(of_call.count() >= 13, "{call}: {copies:?}");
    }

    // The attacker erases its contact: all messages of its calls go, and none of the victim's.
    let before = trace(&daemon, &victim.key, &id, "application/json");
    let contact = text(&of_attacker[0]["contact_id"]);
    erase(&daemon, &attacker.key, &contact);
    for call in &theirs {
        let shown = trace(&daemon, &attacker.key, call, "application/json");
        assert_eq!(messages(&shown), Vec::<[String; 4]>::new());
    }
    assert_eq!(
        messages(&before),
        messages(&trace(&daemon, &victim.key, &id, "application/json"))
    );
    unharmed();

    // The victim's own erasure takes them.
    erase(&daemon, &victim.key, &text(&of_victim[0]["contact_id"]));
    let shown = trace(&daemon, &victim.key, &id, "application/json");
    assert_eq!(messages(&shown), Vec::<[String; 4]>::new());
}

/// Erases a contact, and waits for the receipt.
fn erase(daemon: &Daemon, key: &str, contact: &str) {
    let http = daemon.setup.http;
    let path = format!("/widget/contacts/{contact}");
    let (status, asked) = http::change("DELETE", http, &path, key, &Value::Null);
    assert_eq!(status, 200, "{asked}");
    let id = asked["id"].as_str().expect("an id");
    let path = format!("/widget/erasures/{id}");
    until(|| {
        let receipt = http::json(http, &path, key);
        (receipt["status"] == "complete").then_some(())
    });
}
