//! Sides of a call as raw peers: the PBX that has authenticated, and the runtime or carrier that was called, with their requests in the call.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::json;

use crate::dialog::{ALLOW, Dialog};
use crate::digest::{Asking, Challenge};
use crate::message::SDP;
use crate::{Credentials, Daemon, DaemonSetup, Deadline, Message, Peer};

pub const PATIENCE: Duration = Duration::from_secs(20);
/// An address of this machine that only the attacker uses.
pub const ATTACKER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);
/// The challenge of an honest peer.
pub const HONEST: &str = "realm=\"pbx.example\", nonce=\"made-up\", qop=\"auth\"";
/// The same without `qop`.
pub const WITHOUT_QOP: &str = "realm=\"pbx.example\", nonce=\"made-up\"";

/// One side of a call, in its dialog with the daemon.
#[derive(Debug)]
pub struct Leg {
    pub end: Peer,
    pub dialog: Dialog,
    cseq: Cell<u32>,
    /// CSeqs of the requests that have come.
    seen: RefCell<HashSet<String>>,
}

impl Leg {
    fn new(end: &Peer, dialog: Dialog, cseq: u32) -> Self {
        Self {
            end: end.clone(),
            dialog,
            cseq: Cell::new(cseq),
            seen: RefCell::default(),
        }
    }

    /// Makes the leg of the peer that received this INVITE.
    pub fn called(end: &Peer, invite: &Message) -> Self {
        Self::new(end, Dialog::called(invite, end.tag), 100)
    }

    /// Sends a request in this dialog from the socket of `end`, which may be an attacker's; returns its CSeq.
    pub fn send_by(&self, end: &Peer, method: &str, lines: &str, body: &str) -> u32 {
        let number = self.cseq.get() + 1;
        self.cseq.set(number);
        let request = self.dialog.request(end, (number, method), lines, body);
        end.send(request);
        number
    }

    /// Acknowledges the final answer to its last request.
    pub fn acknowledge(&self, answer: &Message) {
        let ack = self.dialog.ack(&self.end, self.cseq.get(), answer);
        self.end.send(ack);
    }

    /// Sends a request that Trunkline relays to the other side; returns its CSeq.
    pub fn ask(&self, method: &str) -> u32 {
        match method {
            "INVITE" | "UPDATE" => self.send_by(&self.end, method, ALLOW, SDP),
            "INFO" => self.send_by(&self.end, method, "Content-Type: text/plain\r\n", "x"),
            _ => self.send_by(&self.end, method, "", ""),
        }
    }

    /// Returns true if no request with this CSeq has come before: a retransmission isn't new.
    pub fn is_new(&self, request: &Message) -> bool {
        self.seen.borrow_mut().insert(request.value("CSeq"))
    }
}

/// Answers a request with 200, an SDP and these lines.
pub fn with_sdp(end: &Peer, request: &Message, lines: &str) {
    let lines = format!("{ALLOW}{lines}Content-Type: application/sdp\r\n");
    end.answer(request, "200 OK", &lines, SDP);
}

/// Answers a request with 401 and this challenge.
pub fn refuse(end: &Peer, request: &Message, challenge: &str) {
    let line = format!("WWW-Authenticate: Digest {challenge}\r\n");
    end.answer(request, "401 Unauthorized", &line, "");
}

/// Challenge of the daemon: its realm and a nonce.
#[derive(Debug)]
pub struct Harvest {
    pub realm: String,
    pub nonce: String,
}

impl Harvest {
    /// Has an INVITE without credentials challenged.
    pub fn fetched(daemon: &Daemon) -> Self {
        let end = Peer::on(ATTACKER, daemon.sip());
        let uri = format!("sip:1@{}", daemon.sip());
        let dialog = Dialog::calling(&uri, "x", "fetch", &end);
        end.send(dialog.request(&end, (1, "INVITE"), "", ""));
        let Challenge { realm, nonce, .. } = Challenge::of(&end.outcome("1 INVITE"));
        Self { realm, nonce }
    }

    /// Challenges of an attacker who wants a digest that is valid at the daemon, or one to try passwords on.
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

/// The runtime of the first agent.
#[derive(Debug)]
pub struct Agent {
    pub end: Peer,
    /// The Call-IDs of its calls so far.
    calls: RefCell<HashSet<String>>,
}

impl Agent {
    pub fn new(end: Peer) -> Self {
        Self {
            end,
            calls: RefCell::default(),
        }
    }

    /// Waits for the INVITE of the next call.
    pub fn next(&self) -> Message {
        let next = Deadline::after(PATIENCE).poll(|| self.try_next());
        next.expect("a new call")
    }

    pub fn try_next(&self) -> Option<Message> {
        let message = self.end.soon()?;
        let is_new = message.is_request("INVITE")
            && self.calls.borrow_mut().insert(message.value("Call-ID"));
        is_new.then_some(message)
    }

    /// Answers the next call; returns its INVITE.
    pub fn answers(&self) -> Message {
        let invite = self.next();
        with_sdp(&self.end, &invite, &contact_of(&self.end));
        invite
    }
}

pub fn contact_of(end: &Peer) -> String {
    format!("Contact: <sip:{}>\r\n", end.own)
}

/// The Record-Route line of a proxy at this address; empty without a proxy.
pub fn recorded(route: Option<SocketAddr>) -> String {
    route.map_or_else(String::new, |at| format!("Record-Route: <sip:{at};lr>\r\n"))
}

/// Sets up a call of the PBX with these credentials; returns the PBX's side and the runtime's. `places` are the address in its Contact, if it
/// isn't the PBX's own, and the proxy in its Record-Route, if there is one.
pub fn inbound(
    daemon: &Daemon,
    agent: &Agent,
    pair: &Credentials,
    places: (Option<SocketAddr>, Option<SocketAddr>),
) -> (Leg, Leg) {
    let accept = |invite: Message| {
        with_sdp(&agent.end, &invite, &contact_of(&agent.end));
        invite
    };
    inbound_by(daemon, agent, Some(pair), places, accept)
}

/// Like [`inbound`], with `accept` in the place of the runtime: it gets the INVITE, and returns the one that it has answered with 200. Without
/// `pair` the INVITE carries no credentials.
pub fn inbound_by(
    daemon: &Daemon,
    agent: &Agent,
    pair: Option<&Credentials>,
    (contact, route): (Option<SocketAddr>, Option<SocketAddr>),
    accept: impl FnOnce(Message) -> Message,
) -> (Leg, Leg) {
    let end = Peer::new(daemon.sip());
    let uri = format!("sip:{}@{}", daemon.setup.first_number, daemon.sip());
    let (contact, route) = (contact.unwrap_or(end.own), recorded(route));
    let mut dialog = Dialog::calling(&uri, "+441632960001", "pbx", &end);
    dialog.lines = format!("Contact: <sip:pbx@{contact}>\r\n{route}{ALLOW}");

    let proof = pair.map(|pair| {
        end.send(dialog.request(&end, (1, "INVITE"), "", SDP));
        let refused = end.response(401);
        end.send(dialog.ack(&end, 1, &refused));
        let asking = Asking {
            method: "INVITE",
            uri: &uri,
            nc: 1,
        };
        let proof = Challenge::of(&refused).answer(&asking, pair);
        format!("{proof}\r\n")
    });
    let proof = proof.unwrap_or_default();

    end.send(dialog.request(&end, (2, "INVITE"), &proof, SDP));

    // The daemon's side is read meanwhile, so that a refusal fails the test at once and not by a time-out.
    let called = Deadline::after(PATIENCE).poll(|| {
        if let Some(message) = end.soon() {
            assert!(message.status() < Some(300), "{message:?}");
        }
        agent.try_next()
    });
    let invite = accept(called.expect("the agent is called"));
    let accepted = end.outcome("2 INVITE");
    assert_eq!(accepted.status(), Some(200), "{accepted:?}");
    dialog.accepted(&accepted);
    dialog.lines.clear();

    let pbx = Leg::new(&end, dialog, 2);
    pbx.acknowledge(&accepted);
    // The answer to this OPTIONS shows that the ACK has arrived before it.
    let number = pbx.send_by(&pbx.end, "OPTIONS", "", "");
    pbx.end.outcome(&format!("{number} OPTIONS"));
    (pbx, Leg::called(&agent.end, &invite))
}

/// The daemon, and the runtime of its first agent.
pub fn with_runtime() -> (Daemon, Agent) {
    let setup = DaemonSetup::new();
    let agent = Agent::new(Peer::new(setup.sip));
    let uri = format!("sip:agent@{}", agent.end.own);
    setup.runtime(&setup.first_agent, &uri);
    (setup.serve(), agent)
}

/// Waits until changes made through the API apply to calls.
pub fn in_force(daemon: &Daemon) {
    let (status, decision) = daemon.change("POST", "/phone/sip/route-test", &json!({"to": "1"}));
    assert_eq!(status, 200, "{decision}");
}
