//! Calls whose every message a test writes: a caller over UDP, and a runtime on a TCP connection. No clock runs but the test's.

use std::time::Duration;

use trunkline_calls::core::live::HoldRefusal;
use trunkline_calls::core::live::LiveCall;
use trunkline_model::record::{Ended, Fact};
use trunkline_sip::fault::Fault;
use trunkline_sip::moment::Moment;

use crate::dice::Dice;
use crate::network::Datagram;
use crate::node::{NODE, Node, ORG, RUNTIME_A, address, agent_id, flow_of};
use crate::plan::Agent;

pub(crate) const START: Moment = Moment::from_secs(1_750_000_000);
/// An address that the org's trunk is admitted by.
pub(crate) const CALLER: &str = "198.51.101.10:5060";
/// The phone that takes the caller's place.
pub(crate) const SUCCESSOR: &str = "198.51.101.11:5060";
/// The connection to the runtime.
pub(crate) const CONNECTION: u32 = 1;
/// Lines of the runtime's 200.
pub(crate) const HERE: &str = "Contact: <sip:runtime@192.0.2.1;transport=tcp>\r\nAllow: INVITE, ACK, BYE, CANCEL, UPDATE, INFO\r\n";

pub(crate) const AUDIO: &str = "m=audio 4000 RTP/AVP 0\r\n";
pub(crate) const VIDEO: &str = "m=video 4002 RTP/AVP 96\r\n";
pub(crate) const SECURE: &str =
    "m=audio 4000 RTP/SAVP 0\r\na=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:K\r\n";

/// A description with these media.
pub(crate) fn sdp(session: u32, media: &str) -> String {
    format!(
        "v=0\r\no=- {session} 1 IN IP4 192.0.2.80\r\ns=-\r\nc=IN IP4 192.0.2.80\r\nt=0 0\r\n{media}"
    )
}

/// A node, and what it has sent that no test has taken yet.
pub(crate) struct Script {
    pub(crate) node: Node,
    pub(crate) now: Moment,
    sent: Vec<Datagram>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self {
            node: Node::new(&mut Dice::new(1), None, false, START),
            now: START,
            sent: Vec::new(),
        }
    }

    /// Lets time pass.
    pub(crate) fn after(&mut self, wait: Duration) {
        let end = self.now + wait;
        while let Some(at) = self.node.next_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.node.timeouts(self.now);
            self.collect();
        }
        self.now = end;
    }

    /// Has the node get a message, by UDP or by that connection.
    pub(crate) fn say(&mut self, from: &str, connection: Option<u32>, message: &str) {
        let datagram = Datagram {
            from: address(from),
            to: address(NODE),
            connection,
            octets: message.as_bytes().to_vec(),
        };
        self.node.receive(&datagram, self.now);
        self.collect();
    }

    /// No connection could be opened to that address.
    pub(crate) fn refuse(&mut self, peer: &str) {
        self.end_flow(peer, 9, &Fault::Refused);
    }

    /// The connection to that address breaks.
    pub(crate) fn break_connection(&mut self, peer: &str, connection: u32) {
        self.end_flow(peer, connection, &Fault::Closed);
    }

    fn end_flow(&mut self, peer: &str, connection: u32, fault: &Fault) {
        let flow = flow_of(address(peer), Some(connection));
        let Node {
            endpoint, calls, ..
        } = &mut self.node;
        endpoint.handle_flow_lost(&flow, fault, self.now);
        calls.handle_unreachable(endpoint, &flow, fault, self.now);
        calls.handle_flow_lost(&flow, 0);
        self.node.settle(self.now);
        self.collect();
    }

    fn collect(&mut self) {
        for wish in std::mem::take(&mut self.node.wishes) {
            if let crate::node::Wish::FindContact(key) = wish {
                self.node.contact_found(key, None, self.now);
            }
        }
        let sent = self.node.transmits();
        self.sent.extend(sent);
    }

    /// Takes the first message to that address which begins like this, and its connection. Those before it are dropped.
    pub(crate) fn take(&mut self, to: &str, start: &str) -> (String, Option<u32>) {
        let text = |sent: &Datagram| String::from_utf8_lossy(&sent.octets).into_owned();
        let is_it = |sent: &Datagram| sent.to == address(to) && text(sent).starts_with(start);
        let at = self.sent.iter().position(is_it).unwrap_or_else(|| {
            let all: Vec<_> = self.sent.iter().map(|sent| (sent.to, text(sent))).collect();
            panic!("no {start:?} to {to}: {all:#?}")
        });
        let found = self.sent.drain(..=at).next_back().expect("it is there");
        (text(&found), found.connection)
    }

    /// Returns whether such a message waits.
    pub(crate) fn has(&self, to: &str, start: &str) -> bool {
        self.sent
            .iter()
            .any(|sent| sent.to == address(to) && sent.octets.starts_with(start.as_bytes()))
    }

    /// The end of the call, once it is recorded.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.node.facts.iter().rev().find_map(|fact| {
            let Fact::Ended(ended) = fact else {
                return None;
            };
            Some(&**ended)
        })
    }

    /// A call that is up. `lines`: those of the runtime's 200. Returns the caller's 200, and the INVITE to the runtime.
    pub(crate) fn up(lines: &str, offer: &str, answer: &str) -> (Self, String, String) {
        let mut script = Self::new();
        let invite = script.invite(CALLER, "call", "", offer);
        script.say(CALLER, None, &invite);
        let (to_runtime, _) = script.take(RUNTIME_A, "INVITE ");
        let ok = reply(&to_runtime, "200 OK", "runtime", lines, answer);
        script.say(RUNTIME_A, Some(CONNECTION), &ok);
        let (ok, _) = script.take(CALLER, "SIP/2.0 200");
        let ack = script.request(&ok, CALLER, "ACK 1", "", "");
        script.say(CALLER, None, &ack);
        (script, ok, to_runtime)
    }

    /// An INVITE of a PBX to the agent whose runtime is on TCP.
    pub(crate) fn invite(&self, from: &str, id: &str, lines: &str, offer: &str) -> String {
        let agent = agent_id(Agent::Stream);
        with_body(
            &format!(
                "INVITE sip:+442071838750@{NODE} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK{id};rport\r\n\
                 From: <sip:pbx@example.org>;tag={id}\r\nTo: <sip:+442071838750@{NODE}>\r\nCall-ID: {id}\r\nCSeq: 1 INVITE\r\n\
                 Max-Forwards: 70\r\nContact: <sip:pbx@{from}>\r\nX-PLATFORM-AGENT-ID: {agent}\r\n{lines}"
            ),
            offer,
        )
    }

    /// A request in the dialog that this 200 of the node has made. `method`: with its CSeq number, such as `INFO 2`.
    pub(crate) fn request(
        &self,
        ok: &str,
        from: &str,
        method: &str,
        lines: &str,
        body: &str,
    ) -> String {
        let (name, cseq) = method.split_once(' ').expect("a method and a number");
        let [own, to, call_id] = ["From", "To", "Call-ID"].map(|name| header(ok, name));
        with_body(
            &format!(
                "{name} sip:trunkline@{NODE} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK{name}{cseq}{from};rport\r\n\
                 From: {own}\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: {cseq} {name}\r\nMax-Forwards: 70\r\n\
                 Contact: <sip:pbx@{from}>\r\n{lines}"
            ),
            body,
        )
    }

    /// A request of the runtime in the dialog that the node's INVITE has begun.
    pub(crate) fn runtime_request(
        &self,
        invite: &str,
        method: &str,
        lines: &str,
        body: &str,
    ) -> String {
        let (name, cseq) = method.split_once(' ').expect("a method and a number");
        let [own, from, call_id] = ["To", "From", "Call-ID"].map(|name| header(invite, name));
        with_body(
            &format!(
                "{name} sip:trunkline@{NODE} SIP/2.0\r\nVia: SIP/2.0/TCP {RUNTIME_A};branch=z9hG4bKr{name}{cseq}\r\n\
                 From: {own};tag=runtime\r\nTo: {from}\r\nCall-ID: {call_id}\r\nCSeq: {cseq} {name}\r\nMax-Forwards: 70\r\n\
                 Contact: <sip:runtime@{RUNTIME_A};transport=tcp>\r\n{lines}"
            ),
            body,
        )
    }

    /// Orders a transfer of the call's caller to the destination of this number.
    pub(crate) fn hand_over(&mut self, destination: usize) {
        let call = self.live().started.call;
        self.node.hand_over(call, destination, self.now);
        self.collect();
    }

    /// Orders a hold of the call.
    pub(crate) fn hold(&mut self) {
        let call = self.live().started.call;
        self.node.hold(call, true, self.now).expect("it begins");
        self.collect();
    }

    /// The refusal of the last change that has ended, if it was refused.
    pub(crate) fn hold_refusal(&self) -> Option<HoldRefusal> {
        self.live().hold.refused
    }

    fn live(&self) -> LiveCall {
        let live = self.node.live.of_org(ORG);
        live.into_iter().next().expect("a live call")
    }
}

/// The answer of a peer to a request of the node, with the To-tag `tag` unless it has one.
pub(crate) fn reply(request: &str, status: &str, tag: &str, lines: &str, body: &str) -> String {
    let [via, from, to, call_id, cseq] =
        ["Via", "From", "To", "Call-ID", "CSeq"].map(|name| header(request, name));
    let to = match to.contains(";tag=") {
        true => to,
        false => format!("{to};tag={tag}"),
    };
    let head = format!(
        "SIP/2.0 {status}\r\nVia: {via}\r\nFrom: {from}\r\nTo: {to}\r\nCall-ID: {call_id}\r\nCSeq: {cseq}\r\n{lines}"
    );
    with_body(&head, body)
}

fn with_body(head: &str, body: &str) -> String {
    let kind = match body.is_empty() || head.contains("\r\nContent-Type: ") {
        true => "",
        false => "Content-Type: application/sdp\r\n",
    };
    format!("{head}{kind}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// The value of a header field.
pub(crate) fn header(message: &str, name: &str) -> String {
    let start = format!("{name}: ");
    let line = message.lines().find(|line| line.starts_with(&start));
    line.unwrap_or_else(|| panic!("no {name} in {message}"))[start.len()..].to_owned()
}

/// The media lines in a message's body.
pub(crate) fn media(message: &str) -> Vec<&str> {
    message
        .lines()
        .filter(|line| line.starts_with("m="))
        .collect()
}
