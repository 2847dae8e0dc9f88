//! INVITEs over UDP with the address of a carrier that an org trusts by its address. The forger sees no answer: the carrier gets them all. The carrier
//! itself calls at the same time.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::torture::caller::OFFER;
use crate::torture::daemon_requests::until;
use trunkline_testkit::bot::BotServer;
use trunkline_testkit::http;
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{Daemon, DaemonSetup, Message, Responder};

const CARRIER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// A public address: the listeners are reached from the Internet.
const PUBLIC: &str = "203.0.113.5";
const RELIABLE: &str = "Supported: 100rel\r\n";
const REASON: &str = "unproven_source";

/// A carrier that answers whatever reaches it, and acknowledges what belongs to its own calls.
struct Carrier {
    socket: UdpSocket,
    responder: Responder,
    own: Arc<Mutex<HashSet<String>>>,
    node: SocketAddr,
}

impl Carrier {
    fn new(node: SocketAddr) -> Self {
        let socket = UdpSocket::bind((CARRIER, 0)).expect("a port");
        let own = Arc::<Mutex<HashSet<String>>>::default();
        let (calls, at) = (Arc::clone(&own), socket.local_addr().expect("an address"));
        let copy = socket.try_clone().expect("a handle");
        let responder = Responder::on(copy, move |message| {
            let call = message.value("Call-ID");
            let is_own = calls.lock().expect("nobody panics with it").contains(&call);
            match (message.method(), message.status()) {
                (Some(_), _) if !is_own && message.header("To").is_some_and(is_tagged) => {
                    Some(message.reply("481 Call/Transaction Does Not Exist", ""))
                }
                (Some(_), _) => Some(message.reply("200 OK", "")),
                (None, Some(101..200)) if is_own => {
                    let rseq = message.header("RSeq")?;
                    let rack = format!("RAck: {rseq} 1 INVITE\r\n");
                    Some(request(message, at, (2, "PRACK"), &rack))
                }
                (None, Some(200..300)) if is_own && message.answers("1 INVITE") => {
                    Some(request(message, at, (1, "ACK"), ""))
                }
                (None, _) => None,
            }
        });
        Self {
            socket,
            responder,
            own,
            node,
        }
    }

    /// The carrier calls.
    fn calls(&self, id: &str, daemon: &Daemon, lines: &str) {
        let mut own = self.own.lock().expect("nobody panics with it");
        own.insert(id.to_owned());
        drop(own);
        self.send(&self.invite(id, daemon, lines));
    }

    /// A forger sends an INVITE with the carrier's address.
    fn forges(&self, id: &str, daemon: &Daemon, lines: &str) {
        self.send(&self.invite(id, daemon, lines));
    }

    fn invite(&self, id: &str, daemon: &Daemon, lines: &str) -> String {
        let (at, node) = (self.responder.address, self.node);
        let number = &daemon.setup.first_number;
        format!(
            "INVITE sip:{number}@{node} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bK{id};rport\r\n\
             From: <sip:{id}@{at}>;tag={id}\r\nTo: <sip:{number}@{node}>\r\nCall-ID: {id}\r\nCSeq: 1 INVITE\r\n\
             Max-Forwards: 70\r\nContact: <sip:carrier@{at}>\r\n{lines}Content-Type: application/sdp\r\n\
             Content-Length: {}\r\n\r\n{OFFER}",
            OFFER.len()
        )
    }

    fn send(&self, text: &str) {
        self.socket
            .send_to(text.as_bytes(), self.node)
            .expect("a datagram leaves");
    }

    /// Messages of one call that reached the carrier.
    fn heard(&self, id: &str) -> Vec<Message> {
        let heard = self.responder.heard().into_iter();
        heard
            .filter(|message| message.header("Call-ID") == Some(id))
            .collect()
    }

    /// Waits for a response of that status to the INVITE of a call.
    fn gets(&self, id: &str, status: u16) -> Message {
        until(|| {
            let mut heard = self.heard(id).into_iter();
            heard.find(|message| message.status() == Some(status) && message.answers("1 INVITE"))
        })
    }

    /// The carrier ends a call of its own that is up.
    fn hangs_up(&self, id: &str) {
        let accepted = self.gets(id, 200);
        self.send(&request(&accepted, self.responder.address, (9, "BYE"), ""));
    }
}

fn is_tagged(value: &str) -> bool {
    value.contains(";tag=")
}

/// A request in the dialog of a response.
fn request(of: &Message, from: SocketAddr, (cseq, method): (u32, &str), lines: &str) -> String {
    let [caller, called, id] = ["From", "To", "Call-ID"].map(|name| of.value(name));
    format!(
        "{method} sip:trunkline@{PUBLIC} SIP/2.0\r\nVia: SIP/2.0/UDP {from};branch=z9hG4bK{id}{method}{cseq};rport\r\n\
         From: {caller}\r\nTo: {called}\r\nCall-ID: {id}\r\nCSeq: {cseq} {method}\r\nMax-Forwards: 70\r\n{lines}\
         Content-Length: 0\r\n\r\n"
    )
}

/// A runtime that rings, and answers the carrier's own calls.
fn runtime(setup: &DaemonSetup) -> Responder {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let own = socket.local_addr().expect("an address");
    let lines = format!("Contact: <sip:runtime@{own}>\r\nContent-Type: application/sdp\r\n");
    let runtime = Responder::on(socket, move |request| match request.method() {
        Some("INVITE") => {
            let mut answers = vec![request.answer("180 Ringing", "runtime", "", "")];
            if request.value("From").contains("honest") {
                answers.push(request.answer("200 OK", "runtime", &lines, OFFER));
            }
            answers
        }
        Some(_) => vec![request.reply("200 OK", "")],
        None => Vec::new(),
    });
    let uri = format!("sip:{{agent_id}}@{}", runtime.address);
    setup.runtime(&setup.first_agent, &uri);
    runtime
}

fn public() -> DaemonSetup {
    DaemonSetup::new().set("TRUNKLINE__SIP__PUBLIC_HOST", PUBLIC)
}

/// Users in From of the INVITEs that reached a runtime.
fn callers(runtime: &Responder) -> HashSet<String> {
    let invites = runtime.requests("INVITE");
    let user = |invite: &Message| {
        let from = invite.value("From");
        let user = from.split(['<', ':', '@']).nth(2);
        user.unwrap_or_default().to_owned()
    };
    invites.iter().map(user).collect()
}

/// Waits until the call of that caller has ended; returns its record.
fn ended(daemon: &Daemon, from: &str) -> Value {
    until(|| {
        let mut calls = daemon.calls().into_iter();
        calls.find(|call| call["from_number"] == from && call["ended_at"].is_string())
    })
}

/// Number of calls whose proof had that outcome.
fn outcomes(daemon: &Daemon, outcome: &str) -> u64 {
    let (_, text) = http::get(daemon.setup.http, "/metrics", None).expect("the metrics");
    let name = format!("trunkline_sip_proofs_total{{outcome=\"{outcome}\"}} ");
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(&name)?.parse().ok());
    value.unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn a_carrier_that_denies_a_forged_call_ends_it_before_its_answer() {
    let setup = public();
    let runtime = runtime(&setup);
    setup.dedicate(&CARRIER.to_string());
    let daemon = setup.serve();
    let carrier = Carrier::new(daemon.sip());

    carrier.calls("honest", &daemon, "");
    carrier.forges("forged", &daemon, "");
    carrier.gets("honest", 200);
    let refused = carrier.gets("forged", 504);
    assert!(
        refused.value("Warning").contains("the address"),
        "{refused:?}"
    );

    let record = ended(&daemon, "forged");
    assert_eq!(record["reason"], REASON, "{record}");
    assert_eq!(record["status"], "failed", "{record}");
    let asked = carrier.heard("forged");
    let asked = asked.iter().filter(|heard| heard.is_request("OPTIONS"));
    assert_eq!(asked.count(), 2);
    let canceled = until(|| runtime.requests("CANCEL").pop());
    assert!(canceled.value("From").contains("forged"), "{canceled:?}");

    // The honest call was asked too, or was answered before.
    carrier.hangs_up("honest");
    let record = ended(&daemon, "honest");
    assert_eq!(record["status"], "completed", "{record}");
    assert!(record["reason"].is_null(), "{record}");
    assert_eq!(
        (outcomes(&daemon, "denied"), outcomes(&daemon, "ack")),
        (1, 1)
    );
}

#[test]
fn a_peer_that_acknowledges_18x_proves_itself_before_its_agent_is_called() {
    let setup = public();
    let runtime = runtime(&setup);
    setup.dedicate(&CARRIER.to_string());
    let daemon = setup.serve();
    let carrier = Carrier::new(daemon.sip());

    carrier.forges("forged", &daemon, RELIABLE);
    let ringing = carrier.gets("forged", 180);
    assert_eq!(ringing.value("Require"), "100rel");
    assert!(ringing.body().is_empty(), "{ringing:?}");
    carrier.calls("honest", &daemon, RELIABLE);
    let accepted = carrier.gets("honest", 200);
    // One dialog: the runtime's answer has the tag of our own 180.
    assert_eq!(accepted.to_tag(), carrier.gets("honest", 180).to_tag());

    carrier.hangs_up("honest");
    assert_eq!(ended(&daemon, "honest")["status"], "completed");
    assert_eq!(callers(&runtime), HashSet::from(["honest".to_owned()]));
    assert_eq!(outcomes(&daemon, "prack"), 1);
}

/// The WebSocket of a bot isn't opened for a forged call either.
#[test]
fn no_bot_is_dialled_for_a_call_that_owes_a_prack() {
    let setup = public();
    let bot = BotServer::start();
    setup.runtime(&setup.first_agent, &bot.url);
    setup.dedicate(&CARRIER.to_string());
    let daemon = setup.serve();
    let carrier = Carrier::new(daemon.sip());

    carrier.forges("forged", &daemon, RELIABLE);
    carrier.gets("forged", 180);
    carrier.calls("honest", &daemon, RELIABLE);
    let call = bot.accepted();
    let start = call.event("start");
    let parameters = &start["start"]["customParameters"];
    assert_eq!(parameters["from_number"], "honest", "{start}");
    assert_eq!(bot.dialled(), 1);
}

/// Echo answers at once: the carrier hears nothing of a forged call but its answer.
#[test]
fn an_answer_that_nobody_acknowledges_is_ended_after_eight_seconds() {
    let setup = public();
    setup.dedicate(&CARRIER.to_string());
    let daemon = setup.serve();
    let carrier = Carrier::new(daemon.sip());

    carrier.calls("honest", &daemon, "");
    carrier.forges("forged", &daemon, "");
    carrier.gets("honest", 200);
    let record = ended(&daemon, "forged");
    assert_eq!(record["reason"], REASON, "{record}");
    assert_eq!(record["status"], "failed", "{record}");

    let heard = carrier.heard("forged");
    let answers = heard.iter().filter(|heard| heard.status() == Some(200));
    assert_eq!(answers.count(), 8);
    until(|| {
        let heard = carrier.heard("forged");
        heard.into_iter().find(|heard| heard.is_request("BYE"))
    });
    assert_eq!(outcomes(&daemon, "silent"), 1);

    let honest = daemon.calls().into_iter();
    let mut honest = honest.filter(|call| call["from_number"] == "honest");
    assert!(honest.any(|call| call["ended_at"].is_null()), "it goes on");
    carrier.hangs_up("honest");
    assert_eq!(ended(&daemon, "honest")["status"], "completed");
}

#[test]
fn the_operator_may_vouch_for_a_network() {
    let setup = public();
    let runtime = runtime(&setup);
    let network = CARRIER.to_string();
    let marked = setup.run(&[
        "trunk",
        "dedicate",
        &network,
        "--no-proof",
        "--org",
        &setup.org,
        "--json",
    ]);
    assert_eq!(marked["no_proof"], true, "{marked}");
    let (_, report) = setup.doctor();
    let findings = report["findings"].as_array().expect("findings");
    let named = findings
        .iter()
        .find(|found| found["check"] == "without_proof");
    let named = named.unwrap_or_else(|| panic!("{report}"));
    let text = named["text"].as_str().expect("text");
    assert!(
        text.contains("127.0.0.2/32") && text.contains("--no-proof false"),
        "{text}"
    );

    let daemon = setup.serve();
    let carrier = Carrier::new(daemon.sip());
    carrier.forges("vouched", &daemon, RELIABLE);
    let invite = until(|| runtime.requests("INVITE").pop());
    assert!(invite.value("From").contains("vouched"), "{invite:?}");

    // Dedicating it again without the mark leaves it as it is; the proof has to be asked for.
    let again = |more: &[&str]| {
        let command = [
            "trunk",
            "dedicate",
            &network,
            "--org",
            &daemon.setup.org,
            "--json",
        ];
        daemon.setup.run(&[&command, more].concat())
    };
    assert_eq!(again(&[])["no_proof"], true);
    assert_eq!(again(&["--no-proof", "false"])["no_proof"], false);
}

/// The digest of its REGISTER has proven the flow by which it calls.
#[test]
fn a_registered_phone_system_owes_no_other_proof() {
    let setup = public();
    let busy = Responder::busy();
    let uri = format!("sip:{{agent_id}}@{}", busy.address);
    setup.runtime(&setup.first_agent, &uri);
    setup.dedicate(&CARRIER.to_string());
    let daemon = setup.serve();

    let probe = Probe::new(CARRIER, daemon.sip());
    assert_eq!(probe.register(&daemon.credentials()), Some(200));
    // It acknowledges no 18x: with a proof to give it would get no further.
    assert_eq!(probe.call("someone", RELIABLE.trim_end()), Some(486));
}
