//! Calls of an honest carrier whose address is forged at the same time. The forger sees none of the answers: the carrier gets them, and answers what a
//! real one does.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the peers know a few methods and facts, and treat all others alike"
)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use trunkline_model::record::Fact;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, Message, Method, lex};

use crate::dice::Dice;
use crate::network::Datagram;
use crate::node::{NODE, Node, RUNTIME_A, Wish, address, agent_id, resolve};
use crate::plan::Agent;

const START: Moment = Moment::from_secs(1_750_000_000);
const CARRIER: &str = "198.51.104.1:5060";
const NUMBER: &str = "+442071838750";
/// Half of a round trip to the carrier.
const ONE_WAY: Duration = Duration::from_millis(75);
/// Time for which the runtime rings.
const RINGING: Duration = Duration::from_millis(300);
/// Time for which an honest caller talks.
const TALK: Duration = Duration::from_secs(3);
const T1: Duration = Duration::from_millis(500);

/// Abilities of the carrier, and its answer to an OPTIONS for a dialog that it doesn't know.
#[derive(Copy, Clone, Debug)]
struct Habits {
    reliable: bool,
    denies: bool,
    /// Percent of the datagrams that are lost, each way.
    loss: u64,
}

/// Something that happens.
#[derive(Debug)]
enum Occasion {
    Arrives(Datagram),
    /// An honest caller sends again what has no answer: its call, the request, and how often it was sent.
    Repeats(String, Method, u32),
    HangsUp(String),
    Calls(String),
    Forges(usize),
    Answers(String),
}

/// A call of the carrier's own.
#[derive(Debug, Default)]
struct Own {
    /// To with our tag, once a response has brought it.
    to: Option<String>,
    invite: String,
    cseq: u32,
    heard: bool,
    rack: Option<String>,
    pracked: bool,
    answered: bool,
    hung_up: bool,
    /// Its BYE is answered.
    ended: bool,
    /// It was refused, or ended by us.
    failed: bool,
}

/// Everything around the node.
struct Field {
    node: Node,
    now: Moment,
    dice: Dice,
    habits: Habits,
    agent: Agent,
    due: BinaryHeap<Reverse<(Moment, u64)>>,
    occasions: HashMap<u64, Occasion>,
    next: u64,
    calls: HashMap<String, Own>,
    /// INVITEs to the runtime that are to be answered, by Call-ID.
    invited: HashMap<String, Datagram>,
    /// Times at which each user of From reached the runtime.
    reached: HashMap<String, Moment>,
    /// Messages and octets that the carrier got in calls that aren't its own, by Call-ID.
    unwanted: HashMap<String, (usize, usize)>,
    forged_octets: usize,
}

impl Field {
    fn new(agent: Agent, habits: Habits, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut node = Node::new(&mut dice, None, false, START);
        node.allow("198.51.104.0/24", NUMBER);
        Self {
            node,
            now: START,
            dice,
            habits,
            agent,
            due: BinaryHeap::new(),
            occasions: HashMap::new(),
            next: 0,
            calls: HashMap::new(),
            invited: HashMap::new(),
            reached: HashMap::new(),
            unwanted: HashMap::new(),
            forged_octets: 0,
        }
    }

    fn after(&mut self, wait: Duration, occasion: Occasion) {
        self.next += 1;
        self.due.push(Reverse((self.now + wait, self.next)));
        self.occasions.insert(self.next, occasion);
    }

    /// Runs until nothing is left to happen.
    fn run(&mut self) {
        loop {
            let next = self.due.peek().map(|Reverse((at, _))| *at);
            let timeout = self.node.next_timeout();
            let Some(at) = [next, timeout].into_iter().flatten().min() else {
                return;
            };
            self.now = self.now.max(at);
            if next == Some(at) {
                let Some(Reverse((_, number))) = self.due.pop() else {
                    return;
                };
                let occasion = self.occasions.remove(&number).expect("it is stored");
                self.happen(occasion);
            } else {
                self.node.timeouts(self.now);
            }
            self.settle();
        }
    }

    /// Carries what the node has sent and asked.
    fn settle(&mut self) {
        loop {
            for wish in std::mem::take(&mut self.node.wishes) {
                match wish {
                    Wish::Resolve(key, wanted) => {
                        let found = resolve(&wanted);
                        self.node.resolved(key, found, self.now);
                    }
                    Wish::FindContact(key) => self.node.contact_found(key, None, self.now),
                    Wish::DialBot(..) | Wish::PlaySound(..) | Wish::HandOff(_) => {}
                }
            }
            let sent = self.node.transmits();
            if sent.is_empty() && self.node.wishes.is_empty() {
                return;
            }
            for datagram in sent {
                let is_lost = datagram.to == address(CARRIER) && self.is_lost();
                if !is_lost {
                    let way = self.way(datagram.to);
                    self.after(way, Occasion::Arrives(datagram));
                }
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        let loss = self.habits.loss;
        self.dice.percent(loss)
    }

    fn way(&self, peer: SocketAddr) -> Duration {
        match peer == address(CARRIER) {
            true => ONE_WAY,
            false => Duration::from_millis(1),
        }
    }

    /// A peer sends to the node.
    fn send(&mut self, from: &str, text: String) {
        if from == CARRIER && self.is_lost() {
            return;
        }
        let from = address(from);
        let datagram = Datagram {
            from,
            to: address(NODE),
            connection: None,
            octets: text.into_bytes(),
        };
        let way = self.way(from);
        self.after(way, Occasion::Arrives(datagram));
    }

    fn happen(&mut self, occasion: Occasion) {
        match occasion {
            Occasion::Arrives(datagram) if datagram.to == address(NODE) => {
                self.node.receive(&datagram, self.now);
            }
            Occasion::Arrives(datagram) => {
                let octets = datagram.octets.clone();
                let message = lex(&octets, Framing::Datagram).expect("a message");
                match datagram.to == address(CARRIER) {
                    true => self.carrier_gets(&message),
                    false => self.runtime_gets(&datagram, &message),
                }
            }
            Occasion::Calls(id) => self.call(id),
            Occasion::Forges(number) => self.forge(number),
            Occasion::Answers(id) => {
                if let Some(invite) = self.invited.remove(&id) {
                    self.runtime_answers(&invite.octets, "200 OK");
                }
            }
            Occasion::HangsUp(id) => {
                let own = self.calls.get_mut(&id).expect("a call");
                if !own.failed {
                    own.hung_up = true;
                    own.cseq += 1;
                    self.request(&id, Method::Bye, "");
                    self.after(T1, Occasion::Repeats(id, Method::Bye, 1));
                }
            }
            Occasion::Repeats(id, method, sent) => self.repeat(id, method, sent),
        }
    }

    fn invite(&self, id: &str, number: usize) -> String {
        let sdp = "v=0\r\no=- 1 1 IN IP4 198.51.104.1\r\ns=-\r\nc=IN IP4 198.51.104.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n";
        let supported = match self.habits.reliable {
            true => "Supported: 100rel\r\n",
            false => "",
        };
        format!(
            "INVITE sip:{NUMBER}@{NODE} SIP/2.0\r\nVia: SIP/2.0/UDP {CARRIER};branch=z9hG4bK{id};rport\r\n\
             From: <sip:{id}@example.org>;tag={id}\r\nTo: <sip:{NUMBER}@{NODE}>\r\nCall-ID: {id}\r\nCSeq: 1 INVITE\r\n\
             Max-Forwards: 70\r\nContact: <sip:a@{CARRIER}>\r\n{supported}X-PLATFORM-AGENT-ID: {}\r\nX-Call: {number}\r\n\
             Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}",
            agent_id(self.agent),
            sdp.len()
        )
    }

    fn call(&mut self, id: String) {
        let own = Own {
            invite: self.invite(&id, self.calls.len()),
            cseq: 1,
            ..Own::default()
        };
        self.send(CARRIER, own.invite.clone());
        self.calls.insert(id.clone(), own);
        self.after(T1, Occasion::Repeats(id, Method::Invite, 1));
    }

    fn forge(&mut self, number: usize) {
        let text = self.invite(&format!("forged{number}"), number);
        self.forged_octets += text.len();
        // The forger is near, and no message of its own is lost.
        let datagram = Datagram {
            from: address(CARRIER),
            to: address(NODE),
            connection: None,
            octets: text.into_bytes(),
        };
        self.node.receive(&datagram, self.now);
    }

    fn repeat(&mut self, id: String, method: Method, sent: u32) {
        let own = self.calls.get(&id).expect("a call");
        let is_done = match method {
            Method::Invite => own.heard,
            Method::Prack => own.pracked || own.answered || own.failed,
            _ => own.failed || own.ended,
        };
        // Timers B and F.
        if is_done || sent >= 7 {
            return;
        }
        match method {
            Method::Invite => self.send(CARRIER, own.invite.clone()),
            Method::Prack => {
                let rack = own.rack.clone().unwrap_or_default();
                self.request(&id, Method::Prack, &rack);
            }
            _ => self.request(&id, method, ""),
        }
        self.after(T1 * (1 << sent), Occasion::Repeats(id, method, sent + 1));
    }

    /// Sends a request in a call of the carrier.
    fn request(&mut self, id: &str, method: Method, lines: &str) {
        let own = &self.calls[id];
        let to = own.to.clone().unwrap_or_default();
        let (name, cseq) = (method.as_str(), own.cseq);
        let cseq = if method == Method::Ack { 1 } else { cseq };
        self.send(
            CARRIER,
            format!(
                "{name} sip:{NUMBER}@{NODE} SIP/2.0\r\nVia: SIP/2.0/UDP {CARRIER};branch=z9hG4bK{id}{name}{cseq};rport\r\n\
                 From: <sip:{id}@example.org>;tag={id}\r\n{to}\r\nCall-ID: {id}\r\nCSeq: {cseq} {name}\r\n\
                 Max-Forwards: 70\r\n{lines}Content-Length: 0\r\n\r\n"
            ),
        );
    }

    fn carrier_gets(&mut self, message: &Message<'_>) {
        let id = String::from_utf8_lossy(message.call_id()).into_owned();
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        let is_own = self.calls.contains_key(&id);
        if message.is_request() {
            let is_in_dialog = message.to_tag().is_some();
            if is_in_dialog && !is_own {
                self.count_unwanted(&id, message);
            }
            let own = self.calls.get_mut(&id);
            let knows = own.as_ref().is_some_and(|own| own.to.is_some());
            let status = match message.method() {
                Method::Ack => return,
                // Outside of a dialog every carrier answers.
                Method::Options if !is_in_dialog || knows || !self.habits.denies => "200 OK",
                _ if !knows => "481 No Dialog",
                Method::Bye => {
                    if let Some(own) = own {
                        own.failed |= !own.hung_up;
                    }
                    "200 OK"
                }
                _ => "200 OK",
            };
            return self.send(CARRIER, reply(&text, status, "", ""));
        }
        let Some(own) = self.calls.get_mut(&id) else {
            // A response to no request of its own: nothing answers it.
            return self.count_unwanted(&id, message);
        };
        own.heard |= message.method() == Method::Invite;
        let status = message.status();
        match (message.method(), status) {
            (Method::Invite, 101..) => {
                own.to = line(&text, "To: ");
                match status {
                    101..200 => {
                        let rseq = line(&text, "RSeq: ");
                        if let Some(rseq) = rseq.filter(|_| own.rack.is_none()) {
                            own.cseq += 1;
                            let number = rseq.trim_start_matches("RSeq: ").to_owned();
                            let rack = format!("RAck: {number} 1 INVITE\r\n");
                            own.rack = Some(rack.clone());
                            self.request(&id, Method::Prack, &rack);
                            self.after(T1, Occasion::Repeats(id, Method::Prack, 1));
                        }
                    }
                    200..300 => {
                        let is_first = !std::mem::replace(&mut own.answered, true);
                        self.request(&id, Method::Ack, "");
                        if is_first {
                            self.after(TALK, Occasion::HangsUp(id));
                        }
                    }
                    _ => {
                        own.failed = true;
                        self.request(&id, Method::Ack, "");
                    }
                }
            }
            (Method::Prack, 200..300) => own.pracked = true,
            (Method::Bye, 200..) => own.ended = true,
            _ => {}
        }
    }

    fn count_unwanted(&mut self, id: &str, message: &Message<'_>) {
        let entry = self.unwanted.entry(id.to_owned()).or_default();
        entry.0 += 1;
        entry.1 += message.raw().len();
    }

    fn runtime_gets(&mut self, datagram: &Datagram, message: &Message<'_>) {
        let id = String::from_utf8_lossy(message.call_id()).into_owned();
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        match message.method() {
            Method::Invite if message.is_request() => {
                let from = line(&text, "From: ").unwrap_or_default();
                let user = from
                    .split(['<', ':', '@'])
                    .find(|part| part.starts_with("forged") || part.starts_with("honest"));
                self.reached
                    .entry(user.unwrap_or_default().to_owned())
                    .or_insert(self.now);
                if self.invited.contains_key(&id) {
                    return;
                }
                self.runtime_answers(&datagram.octets, "180 Ringing");
                self.invited.insert(id.clone(), datagram.clone());
                self.after(RINGING, Occasion::Answers(id));
            }
            Method::Ack => {}
            Method::Cancel if message.is_request() => {
                self.send(RUNTIME_A, reply(&text, "200 OK", ";tag=r", ""));
                if let Some(invite) = self.invited.remove(&id) {
                    self.runtime_answers(&invite.octets, "487 Request Terminated");
                }
            }
            _ if message.is_request() => self.send(RUNTIME_A, reply(&text, "200 OK", "", "")),
            _ => {}
        }
    }

    fn runtime_answers(&mut self, invite: &[u8], status: &str) {
        let text = String::from_utf8_lossy(invite).into_owned();
        let sdp = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n";
        let body = if status.starts_with("200") { sdp } else { "" };
        self.send(RUNTIME_A, reply(&text, status, ";tag=r", body));
    }

    /// Reasons and counts of ended calls whose From has that beginning.
    fn ends(&self, who: &str) -> HashMap<String, usize> {
        let started = self.node.facts.iter().filter_map(|fact| match fact {
            Fact::Started(started) if started.caller_call_id.starts_with(who) => Some(started.call),
            _ => None,
        });
        let calls: std::collections::HashSet<_> = started.collect();
        let mut ends = HashMap::new();
        for fact in &self.node.facts {
            if let Fact::Ended(ended) = fact
                && calls.contains(&ended.call)
            {
                let reason = ended.reason.as_deref().unwrap_or("-");
                *ends.entry(reason.to_owned()).or_default() += 1;
            }
        }
        ends
    }
}

/// The line that begins so.
fn line(text: &str, begins: &str) -> Option<String> {
    let mut lines = text.lines();
    lines
        .find(|line| line.starts_with(begins))
        .map(str::to_owned)
}

/// An answer to a request.
fn reply(request: &str, status: &str, tag: &str, body: &str) -> String {
    let kept = ["Via: ", "From: ", "Call-ID: ", "CSeq: ", "Record-Route: "];
    let lines: Vec<&str> = request
        .lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| kept.iter().any(|name| line.starts_with(name)))
        .collect();
    let to = line(request, "To: ").unwrap_or_default();
    let tag = if to.contains(";tag=") { "" } else { tag };
    let typed = match body {
        "" => "",
        _ => "Content-Type: application/sdp\r\n",
    };
    format!(
        "SIP/2.0 {status}\r\n{}\r\n{to}{tag}\r\nContact: <sip:r@{RUNTIME_A}>\r\n{typed}Content-Length: {}\r\n\r\n{body}",
        lines.join("\r\n"),
        body.len()
    )
}

/// Honest calls of a carrier, and forged ones a second beside them, for so many seconds.
fn honest_and_forged(field: &mut Field, honest: usize, forged: usize, seconds: u64) {
    let spread = |count: usize, number: usize| {
        Duration::from_micros(1_000_000 * seconds * number as u64 / count as u64)
    };
    let (honest, forged) = (honest * seconds as usize, forged * seconds as usize);
    for number in 0..honest {
        let at = spread(honest, number);
        field.after(at, Occasion::Calls(format!("honest{number}")));
    }
    for number in 0..forged {
        let at = spread(forged, number) + Duration::from_micros(137);
        field.after(at, Occasion::Forges(number));
    }
    field.run();
}

#[test]
fn an_honest_carriers_calls_succeed_beside_forged_ones() {
    for (agent, reliable, denies) in [
        (Agent::One, false, false),
        (Agent::One, false, true),
        (Agent::One, true, true),
        (Agent::Echo, false, true),
        (Agent::Echo, true, false),
    ] {
        let case = format!("{agent:?}, 100rel {reliable}, 481 {denies}");
        let habits = Habits {
            reliable,
            denies,
            loss: 0,
        };
        let mut field = Field::new(agent, habits, 1);
        honest_and_forged(&mut field, 50, 100, 10);

        let honest = 500;
        let ended = field.ends("honest");
        assert_eq!(ended, HashMap::from([("-".to_owned(), honest)]), "{case}");
        assert!(
            field.calls.values().all(|own| own.answered && !own.failed),
            "{case}"
        );

        let reached = field.reached.keys();
        let reached = reached.filter(|user| user.starts_with("forged")).count();
        let ended = field.ends("forged");
        // The first that come before the carrier has answered find no room to wait, and a forger doesn't repeat them.
        let forged = ended.get("unproven_source").copied().unwrap_or_default();
        assert!(ended.len() == 1 && forged > 990, "{case}: {ended:?}");
        match reliable {
            true => assert_eq!(reached, 0, "{case}: no agent is called for a forger"),
            false => assert_eq!(
                reached,
                if agent == Agent::Echo { 0 } else { forged },
                "{case}"
            ),
        }
        let (messages, octets): (Vec<usize>, Vec<usize>) = field.unwanted.values().copied().unzip();
        println!(
            "{case}: at most {:?} messages to the carrier for a forged INVITE, {} octets for {}",
            messages.iter().max(),
            octets.iter().sum::<usize>(),
            field.forged_octets,
        );
        assert!(
            messages.iter().all(|count| *count <= 24),
            "{case}: {messages:?}"
        );
        assert_eq!(field.node.left_over(), Vec::<String>::new(), "{case}");
    }
}

#[test]
fn lost_datagrams_end_next_to_no_honest_call() {
    for (agent, reliable, denies) in [
        (Agent::One, false, true),
        (Agent::One, true, true),
        (Agent::Echo, false, true),
    ] {
        let case = format!("{agent:?}, 100rel {reliable}");
        let habits = Habits {
            reliable,
            denies,
            loss: 20,
        };
        let mut field = Field::new(agent, habits, 2);
        honest_and_forged(&mut field, 50, 20, 60);

        let ended = field.ends("honest");
        let unproven = ended.get("unproven_source").copied().unwrap_or_default();
        let honest: usize = ended.values().sum();
        assert!(honest > 2_900, "{case}: {ended:?}");
        assert!(unproven * 1_000 < honest, "{case}: {ended:?}");
    }
}
