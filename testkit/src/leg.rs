//! The sides of a call as bare sockets: the PBX that has logged in, the runtime or carrier that was called, and what they send inside the call.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;
use trunkline_sip::wire::{Framing, lex};

use crate::answer::{answer, reply};
use crate::digest::{Asking, Challenge};
use crate::end::{End, SDP};
use crate::{Credentials, Daemon, Deadline, House, Message};

pub const PATIENCE: Duration = Duration::from_secs(20);
/// An address of this machine that is nobody's but the attacker's.
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
pub const ALLOW: &str = "Allow: INVITE, ACK, CANCEL, BYE, INFO, OPTIONS, UPDATE\r\n";
/// In place of the lines of an ACK: it is that of a refusal.
pub const REFUSED: &str = "refused";
/// The challenge of an honest peer, and the same without `qop`.
pub const HONEST: &str = "realm=\"pbx.example\", nonce=\"made-up\", qop=\"auth\"";
pub const WITHOUT_QOP: &str = "realm=\"pbx.example\", nonce=\"made-up\"";

/// One side of a call, in its dialog with the daemon.
#[derive(Debug)]
pub struct Leg {
    pub end: End,
    pub local: String,
    pub remote: String,
    pub id: String,
    pub target: String,
    pub cseq: Cell<u32>,
    /// Requests that have come, by CSeq.
    pub seen: RefCell<HashSet<String>>,
}

impl Leg {
    /// The side that this INVITE has called.
    pub fn called(end: &End, invite: &Message) -> Self {
        let of = |name: &str| invite.header(name).expect("it is there").to_owned();
        let contact = of("Contact");
        Self {
            end: end.same(),
            local: format!("{};tag=peer", of("To")),
            remote: of("From"),
            id: of("Call-ID"),
            target: uri_of(&contact),
            cseq: Cell::new(100),
            seen: RefCell::default(),
        }
    }

    /// A request of this side, sent by `end`.
    pub fn send_by(&self, end: &End, method: &str, lines: &str, body: &str) -> u32 {
        let number = match method {
            "ACK" => self.cseq.get(),
            _ => self.cseq.get() + 1,
        };
        // The ACK of a refusal is of its INVITE's transaction; that of a 2xx is one of its own.
        let transaction = match (method, lines) {
            ("ACK", REFUSED) => "INVITE",
            _ => method,
        };
        let lines = if lines == REFUSED { "" } else { lines };
        self.cseq.set(number);
        let Self {
            local,
            remote,
            id,
            target,
            ..
        } = self;
        let (own, length) = (end.own, body.len());
        end.send(&format!(
            "{method} {target} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{number}-{transaction}-{};rport\r\nMax-Forwards: 70\r\n\
             From: {local}\r\nTo: {remote}\r\nCall-ID: {id}\r\nCSeq: {number} {method}\r\nContact: <sip:{own}>\r\n{lines}\
             Content-Length: {length}\r\n\r\n{body}",
            own.port()
        ));
        number
    }

    /// A request that crosses to the other side.
    pub fn ask(&self, method: &str) -> u32 {
        let sdp = format!("{ALLOW}Content-Type: application/sdp\r\n");
        match method {
            "INVITE" | "UPDATE" => self.send_by(&self.end, method, &sdp, SDP),
            "INFO" => self.send_by(&self.end, method, "Content-Type: text/plain\r\n", "x"),
            _ => self.send_by(&self.end, method, "", ""),
        }
    }

    pub fn is_new(&self, request: &Message) -> bool {
        let cseq = request.header("CSeq").expect("it is there");
        self.seen.borrow_mut().insert(cseq.to_owned())
    }
}

pub fn uri_of(address: &str) -> String {
    let uri = address.split(['<', '>']).nth(1);
    uri.expect("a URI in brackets").to_owned()
}

pub fn with_sdp(end: &End, request: &[u8], lines: &str) {
    let request = lex(request, Framing::Datagram).expect("a request");
    let lines = format!("{ALLOW}{lines}Content-Type: application/sdp\r\n");
    end.send(&answer(&request, "200 OK", "peer", &lines, SDP));
}

pub fn refuse(end: &End, request: &[u8], challenge: &str) {
    let request = lex(request, Framing::Datagram).expect("a request");
    let line = format!("WWW-Authenticate: Digest {challenge}\r\n");
    end.send(&reply(&request, "401 Unauthorized", &line));
}

/// What the daemon challenges everybody with: its realm and a nonce.
#[derive(Debug)]
pub struct Harvest {
    pub realm: String,
    pub nonce: String,
}

impl Harvest {
    pub fn fetched(daemon: &Daemon) -> Self {
        let end = End::on(ATTACKER, daemon.sip());
        let (own, sip) = (end.own, daemon.sip());
        let ask = format!(
            "INVITE sip:1@{sip} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-fetch;rport\r\nMax-Forwards: 70\r\n\
             From: <sip:x@{own}>;tag=x\r\nTo: <sip:1@{sip}>\r\nCall-ID: fetch@{own}\r\nCSeq: 1 INVITE\r\n\
             Contact: <sip:{own}>\r\nContent-Length: 0\r\n\r\n"
        );
        end.send(&ask);
        let Challenge { realm, nonce, .. } = Challenge::of(&end.answer("1 INVITE"));
        Self { realm, nonce }
    }

    /// Challenges of whoever wants a digest that is good here, or that it can work on.
    pub fn reflections(&self) -> [String; 4] {
        let Self { realm, nonce } = self;
        [
            format!("realm=\"pbx.example\", nonce=\"{nonce}\", qop=\"auth\""),
            format!("realm=\"{realm}\", nonce=\"{nonce}\", qop=\"auth\""),
            format!("realm=\"{realm}\", nonce=\"made-up\", qop=\"auth\""),
            WITHOUT_QOP.to_owned(),
        ]
    }
}

pub fn is_final(message: &Message) -> bool {
    message.status().is_some_and(|status| status >= 200)
}

/// The runtime of the first agent.
#[derive(Debug)]
pub struct Agent {
    pub end: End,
    /// The Call-IDs that it has had.
    pub calls: RefCell<HashSet<String>>,
}

impl Agent {
    pub fn new(end: End) -> Self {
        Self {
            end,
            calls: RefCell::default(),
        }
    }

    /// The next call.
    pub fn next(&self) -> (Message, Vec<u8>) {
        let next = Deadline::after(PATIENCE).poll(|| self.try_next());
        next.expect("a new call")
    }

    pub fn try_next(&self) -> Option<(Message, Vec<u8>)> {
        let (message, octets) = self.end.receive()?;
        let id = message.header("Call-ID").unwrap_or_default().to_owned();
        let is_new = message.is_request("INVITE") && self.calls.borrow_mut().insert(id);
        is_new.then_some((message, octets))
    }

    /// Takes the next call, whose INVITE this is.
    pub fn answers(&self) -> Message {
        let (invite, octets) = self.next();
        with_sdp(&self.end, &octets, &contact_of(&self.end));
        invite
    }
}

pub fn contact_of(end: &End) -> String {
    format!("Contact: <sip:{}>\r\n", end.own)
}

pub fn recorded(route: Option<SocketAddr>) -> String {
    route.map_or_else(String::new, |at| format!("Record-Route: <sip:{at};lr>\r\n"))
}

/// A call of the PBX with this pair, up; the PBX's side and the runtime's. Requests to the PBX go to another Contact than itself or along a
/// route where these are given.
pub fn inbound(
    daemon: &Daemon,
    agent: &Agent,
    pair: &Credentials,
    places: (Option<SocketAddr>, Option<SocketAddr>),
) -> (Leg, Leg) {
    let accept = |invite: Message, octets: &[u8]| {
        with_sdp(&agent.end, octets, &contact_of(&agent.end));
        invite
    };
    inbound_by(daemon, agent, Some(pair), places, accept)
}

/// The same without credentials where there is no pair; `accept` gets the INVITE to the runtime, and gives the one that it has accepted.
pub fn inbound_by(
    daemon: &Daemon,
    agent: &Agent,
    pair: Option<&Credentials>,
    (contact, route): (Option<SocketAddr>, Option<SocketAddr>),
    accept: impl FnOnce(Message, &[u8]) -> Message,
) -> (Leg, Leg) {
    let end = End::new(daemon.sip());
    let own = end.own;
    let uri = format!("sip:{}@{}", daemon.house.first_number, daemon.sip());
    let (contact, route) = (contact.unwrap_or(own), recorded(route));
    let text = |number: u32, method: &str, to: &str, lines: &str, body: &str| {
        let length = body.len();
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{number};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:+441632960001@{own}>;tag=pbx\r\nTo: {to}\r\nCall-ID: call@{own}\r\nCSeq: {number} {method}\r\n\
             Contact: <sip:pbx@{contact}>\r\n{route}{ALLOW}{lines}Content-Length: {length}\r\n\r\n{body}"
        )
    };
    let to = format!("<{uri}>");
    let content = "Content-Type: application/sdp\r\n";
    let proof = pair.map(|pair| {
        end.send(&text(1, "INVITE", &to, content, SDP));
        let (refused, _) = end.next("401", |message| message.status() == Some(401));
        let refused_to = refused.header("To").expect("it is there");
        end.send(&text(1, "ACK", refused_to, "", ""));
        let asking = Asking {
            method: "INVITE",
            uri: &uri,
            nc: 1,
        };
        let proof = Challenge::of(&refused).answer(&asking, pair);
        format!("{proof}\r\n")
    });
    let lines = format!("{}{content}", proof.unwrap_or_default());
    end.send(&text(2, "INVITE", &to, &lines, SDP));

    let called = Deadline::after(PATIENCE).poll(|| {
        if let Some((message, _)) = end.receive() {
            assert!(message.status() < Some(300), "{message:?}");
        }
        agent.try_next()
    });
    let (invite, octets) = called.expect("the agent is called");
    let invite = accept(invite, &octets);
    let accepted = end.answer("2 INVITE");
    assert_eq!(accepted.status(), Some(200), "{accepted:?}");
    let pbx = Leg {
        local: format!("<sip:+441632960001@{own}>;tag=pbx"),
        remote: accepted.header("To").expect("it is there").to_owned(),
        id: format!("call@{own}"),
        target: uri_of(accepted.header("Contact").expect("it is there")),
        cseq: Cell::new(2),
        seen: RefCell::default(),
        end,
    };
    pbx.send_by(&pbx.end, "ACK", "", "");
    // What answers this has had the ACK before.
    let number = pbx.send_by(&pbx.end, "OPTIONS", "", "");
    pbx.end.answer(&format!("{number} OPTIONS"));
    (pbx, Leg::called(&agent.end, &invite))
}

/// The daemon, and the runtime of its first agent.
pub fn with_runtime() -> (Daemon, Agent) {
    let house = House::new();
    let agent = Agent::new(End::new(house.sip));
    let uri = format!("sip:agent@{}", agent.end.own);
    house.runtime(&house.first_agent, &uri);
    (house.serve(), agent)
}

/// Waits until calls go by what was changed through the API.
pub fn in_force(daemon: &Daemon) {
    let (status, decision) = daemon.change("POST", "/phone/sip/route-test", &json!({"to": "1"}));
    assert_eq!(status, 200, "{decision}");
}
