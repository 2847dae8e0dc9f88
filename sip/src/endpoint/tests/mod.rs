//! A test bench for an endpoint: one peer, a clock that jumps, and a log of all messages, each line with its millisecond.

mod client_invite;
mod client_other;
mod limits;
mod random;
mod server_invite;
mod server_other;
mod stateless;

use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::flow::Transport;
use crate::slot::Node;
use crate::wire::{Framing, Method, lex};

const START: Moment = Moment::from_secs(1_750_000_000);
const OWNER: Owner = Owner(77);

/// A request that arrives, by its differences from the usual one.
#[derive(Copy, Clone)]
struct Arrival<'a> {
    method: &'a str,
    branch: &'a str,
    /// Text after the address in To.
    to: &'a str,
}

const fn arrival(method: &str) -> Arrival<'_> {
    Arrival {
        method,
        branch: "z9hG4bKone",
        to: "",
    }
}

impl Arrival<'_> {
    /// An ACK and a CANCEL have the CSeq number of their INVITE.
    fn print(self) -> Vec<u8> {
        let Self { method, branch, to } = self;
        format!(
            "{method} sip:us@example.com SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1:5070;branch={branch};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:peer@example.org>;tag=peer\r\nTo: <sip:us@example.com>{to}\r\n\
             Call-ID: call@192.0.2.1\r\nCSeq: 1 {method}\r\nContent-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }
}

/// A step of a case.
#[derive(Copy, Clone)]
enum Do {
    /// A request arrives; one that is new is accepted.
    Arrive(Arrival<'static>),
    /// We answer it.
    Respond(u16),
    /// We answer it with a header of our own.
    RespondWith(u16, &'static str),
    /// We have matched the ACK of our 2xx.
    Acknowledged,
    /// We send a request.
    Send(Method),
    /// We cancel it.
    Cancel,
    /// The peer answers it, with that To-tag.
    Answer(u16, &'static str),
    /// The peer answers our CANCEL.
    AnswerCancel(u16),
    /// We acknowledge the 2xx with that tag.
    Ack(&'static str),
    /// The flow is gone.
    Lose,
    /// The next INVITE is accepted as one whose source may be forged.
    Doubt,
    /// Its source isn't forged.
    Trust,
    /// Our last provisional response is repeated.
    RingAgain,
}

struct Bench {
    endpoint: Endpoint,
    flow: Flow,
    now: Moment,
    log: Vec<String>,
    /// The octets of each message sent.
    sent: Vec<Vec<u8>>,
    server: Option<ServerTx>,
    client: Option<ClientTx>,
    /// The Via of our last request with a transaction.
    via: String,
    method: Method,
    doubts: bool,
}

fn config(max_transactions: usize) -> Config {
    Config {
        minter: Minter::new(Node(1), [9; 16]),
        t1: Duration::from_millis(500),
        t2: Duration::from_secs(4),
        t4: Duration::from_secs(5),
        server: "trunkline".into(),
        sent_by: vec!["198.51.100.1:5060".into()],
        max_transactions,
    }
}

fn flow(transport: Transport) -> Flow {
    let connection = if transport.is_reliable() { 12 } else { 0 };
    Flow {
        transport,
        listener: 0,
        connection,
        local: SocketAddr::from(([198, 51, 100, 1], 5060)),
        peer: SocketAddr::from(([192, 0, 2, 1], 5070)),
    }
}

impl Bench {
    fn new(transport: Transport) -> Self {
        Self {
            endpoint: Endpoint::new(config(1000), Entropy::from_seed([5; 32])),
            flow: flow(transport),
            now: START,
            log: Vec::new(),
            sent: Vec::new(),
            server: None,
            client: None,
            via: String::new(),
            method: Method::Invite,
            doubts: false,
        }
    }

    /// Lets time pass, each timer at its moment.
    fn run_until(&mut self, millis: u64) {
        let until = START + Duration::from_millis(millis);
        while let Some(next) = self.endpoint.next_timeout().filter(|next| *next <= until) {
            self.now = self.now.max(next);
            self.endpoint.handle_timeout(self.now);
            self.note_output();

            let later = self.endpoint.next_timeout();
            assert!(
                later.is_none_or(|later| later > self.now),
                "the clock stands still"
            );
        }
        self.now = until;
    }

    fn perform(&mut self, action: Do) {
        let now = self.now;
        match action {
            Do::Arrive(arrival) => self.arrive(&arrival.print()),
            Do::Respond(status) => self.respond(&Response::bare(status)),
            Do::RespondWith(status, head) => {
                self.respond(&Response {
                    head: head.as_bytes(),
                    ..Response::bare(status)
                });
            }
            Do::Acknowledged => {
                self.endpoint
                    .acknowledged(self.server.expect("a request was accepted"));
            }
            Do::Send(method) => self.send(method),
            Do::Cancel => {
                let tx = self.client.expect("a request was sent");
                self.endpoint.cancel(tx, b"Reason: SIP;cause=487\r\n", now);
            }
            Do::Answer(status, tag) => self.answer(status, tag, self.method),
            Do::AnswerCancel(status) => self.answer(status, "cancel", Method::Cancel),
            Do::Ack(tag) => {
                let (tx, flow) = (self.client.expect("a request was sent"), self.flow);
                let head = our_head("ACK");
                self.endpoint.ack(
                    tx,
                    tag.as_bytes(),
                    flow,
                    &our_request(Method::Ack, &head),
                    now,
                );
            }
            Do::Lose => self
                .endpoint
                .handle_flow_lost(&self.flow, &Fault::Closed, now),
            Do::Doubt => self.doubts = true,
            Do::Trust => self
                .endpoint
                .trust(self.server.expect("a request was accepted"), now),
            Do::RingAgain => self
                .endpoint
                .repeat_provisional(self.server.expect("a request was accepted"), now),
        }

        self.note_output();
    }

    fn respond(&mut self, response: &Response<'_>) {
        let tx = self.server.expect("a request was accepted");
        self.endpoint.respond(tx, response, self.now);
    }

    fn send(&mut self, method: Method) {
        let head = our_head(method.as_str());
        let request = our_request(method, &head);
        let tx = self.endpoint.request(self.flow, &request, OWNER, self.now);
        self.client = Some(tx.expect("the table has room"));
        self.method = method;

        let (_, sent) = self
            .endpoint
            .transmits()
            .last()
            .expect("a request is sent at once");
        let sent = String::from_utf8(sent.to_vec()).expect("all of it is text");

        let via = sent
            .lines()
            .find(|line| line.starts_with("Via: "))
            .expect("it has a Via");
        self.via = via.into();
    }

    fn answer(&mut self, status: u16, tag: &str, method: Method) {
        let octets = self.answer_text(status, tag, method);
        self.arrive(octets.as_bytes());
    }

    fn answer_text(&self, status: u16, tag: &str, method: Method) -> String {
        format!(
            "SIP/2.0 {status} Whatever\r\n{}\r\nFrom: <sip:us@example.com>;tag=us\r\n\
             To: <sip:peer@example.org>;tag={tag}\r\nCall-ID: ours\r\nCSeq: 3 {}\r\nContent-Length: 0\r\n\r\n",
            self.via,
            method.as_str()
        )
    }

    fn arrive(&mut self, octets: &[u8]) {
        self.arrive_by(self.flow, octets);
    }

    fn arrive_by(&mut self, flow: Flow, octets: &[u8]) {
        let now = self.now;
        match self.endpoint.receive(octets, flow, now) {
            Received::Handled => {}
            Received::Request(message) => {
                note(&mut self.log, now, '<', &message);
                let tx = match self.doubts {
                    true => self.endpoint.accept_unproven(&message, flow, OWNER, now),
                    false => self.endpoint.accept(&message, flow, OWNER, now),
                };
                self.server = Some(tx.expect("the table has room"));
            }
            Received::Ack(message) => note(&mut self.log, now, '<', &message),
            Received::Cancel {
                invite,
                owner,
                message,
            } => {
                assert_eq!((Some(invite), owner), (self.server, OWNER));
                note(&mut self.log, now, '<', &message);
            }
            Received::Response { tx, owner, message } => {
                assert_eq!((Some(tx), owner), (self.client, OWNER));
                note(&mut self.log, now, '<', &message);
            }
            Received::ForeignResponse { owner, tx, message } => {
                assert_eq!((Some(tx), owner), (self.client, OWNER));
                note(&mut self.log, now, '~', &message);
            }
            Received::StrayResponse(message) => note(&mut self.log, now, '?', &message),
        }
    }

    /// Logs what was sent and what happened.
    fn note_output(&mut self) {
        for (flow, octets) in self.endpoint.transmits() {
            let message = lex(octets, Framing::Stream).expect("what we print is in order");
            let sign = if flow.connection == self.flow.connection {
                '>'
            } else {
                '}'
            };
            note(&mut self.log, self.now, sign, &message);
            self.sent.push(octets.to_vec());
        }
        self.endpoint.clear_transmits();

        while let Some(event) = self.endpoint.poll_event() {
            let (what, owner) = match event {
                Event::Timeout { owner, .. } => ("timeout", owner),
                Event::TransportError { owner, .. } => ("transport error", owner),
                Event::Unreadable { owner, .. } => ("unreadable", owner),
                Event::NoAck { owner, .. } => ("no ack", owner),
            };
            assert_eq!(owner, OWNER);
            self.log.push(format!("{} ! {what}", millis(self.now)));
        }
    }

    fn counts(&self) -> Counts {
        self.endpoint.counts()
    }
}

fn millis(now: Moment) -> u128 {
    now.since(START).as_millis()
}

/// `>` sent, `}` sent by another flow, `<` handed out, `?` handed out as stray, `~` as foreign.
fn note(log: &mut Vec<String>, now: Moment, sign: char, message: &Message<'_>) {
    let what = if message.is_request() {
        message.method().as_str().to_owned()
    } else {
        format!("{} {}", message.status(), message.method().as_str())
    };
    log.push(format!("{} {sign} {what}", millis(now)));
}

fn our_head(method: &str) -> String {
    format!(
        "Max-Forwards: 70\r\nFrom: <sip:us@example.com>;tag=us\r\nTo: <sip:peer@example.org>\r\n\
         Call-ID: ours\r\nCSeq: 3 {method}\r\n"
    )
}

fn our_request(method: Method, head: &str) -> Request<'_> {
    Request {
        method,
        token: method.as_str(),
        uri: b"sip:peer@192.0.2.1",
        head: head.as_bytes(),
        body: b"",
    }
}

/// A name, the steps with their times in milliseconds, and the expected log.
type Case<'a> = (&'static str, &'a [(u64, Do)], &'static str);

/// Runs each case, and then on until all of its state must have expired.
fn check(transport: Transport, cases: &[Case<'_>]) {
    for (name, steps, expected) in cases {
        let mut bench = Bench::new(transport);
        for (at, action) in *steps {
            bench.run_until(*at);
            bench.perform(*action);
        }
        bench.run_until(1_000_000);
        let expected: Vec<&str> = expected.split(',').map(str::trim).collect();
        assert_eq!(bench.log, expected, "{name} on {transport}");
        assert_eq!(bench.counts(), Counts::default(), "{name} on {transport}");
        assert_eq!(bench.endpoint.next_timeout(), None, "{name} on {transport}");
    }
}
