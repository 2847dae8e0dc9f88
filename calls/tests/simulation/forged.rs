//! Messages of an attacker who knows what this node has sent once.

use std::time::Duration;

use trunkline_calls::inbound::admission::InviteLane;
use trunkline_model::record::Fact;
use trunkline_sip::auth::client::{self, ChallengedMessage, Login};
use trunkline_sip::entropy::Entropy;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Node as NodeNumber, Slot};
use trunkline_sip::wire::{Framing, lex};

use crate::dice::Dice;
use crate::network::Datagram;
use crate::node::{NODE, Node, ORG, REALM, address, agent_id, flow_of};
use crate::plan::Agent;

const START: Moment = Moment::from_secs(1_750_000_000);
const ATTACKER: &str = "198.51.100.66:5060";
const VICTIM: &str = "192.0.2.99:5060";

/// Returns a 2xx to an INVITE of this node that is long over, with that To-tag.
fn stray(tag: usize, connection: Option<u32>) -> Datagram {
    let minter = Minter::new(NodeNumber(7), [7; 16]);
    let mut entropy = Entropy::from_seed([4; 32]);
    let slot = Slot::new(5).expect("a slot");
    let ours = minter.tag(slot, &mut entropy);
    let branch = minter.branch(slot, &mut entropy);
    let octets = format!(
        "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP {NODE};branch={branch};rport\r\nFrom: <sip:us@{NODE}>;tag={ours}\r\n\
         To: <sip:peer@example.org>;tag=forged-{tag}\r\nCall-ID: long-over\r\nCSeq: 1 INVITE\r\n\
         Record-Route: <sip:{VICTIM};lr>\r\nContact: <sip:x@{VICTIM};transport=tcp>\r\nContent-Length: 0\r\n\r\n"
    );
    Datagram {
        from: address(ATTACKER),
        to: address(NODE),
        connection,
        octets: octets.into_bytes(),
    }
}

fn sent(node: &mut Node) -> Vec<(String, String)> {
    let method = |sent: &Datagram| {
        let text = String::from_utf8_lossy(&sent.octets).into_owned();
        text.split(' ').next().unwrap_or_default().to_owned()
    };
    let messages = node.transmits();
    messages
        .iter()
        .map(|message| (message.to.to_string(), method(message)))
        .collect()
}

#[test]
fn a_stray_answer_is_ended_at_its_own_source_alone() {
    for connection in [None, Some(3)] {
        let mut node = Node::new(&mut Dice::new(1), None, false, START);
        node.receive(&stray(1, connection), START);
        let expected = ["ACK", "BYE"].map(|method| (ATTACKER.to_owned(), method.to_owned()));
        assert_eq!(sent(&mut node), expected, "{connection:?}");

        for second in 1..64 {
            let now = START + Duration::from_secs(second);
            node.timeouts(now);
            assert!(sent(&mut node).is_empty(), "{connection:?}: again");
        }
    }
}

#[test]
fn a_flood_of_stray_answers_brings_less_than_its_size() {
    let mut node = Node::new(&mut Dice::new(1), None, false, START);
    let (mut received, mut sent) = (0, 0);
    for tag in 0..5_000 {
        let stray = stray(tag, None);
        received += stray.octets.len();
        node.receive(&stray, START);
        let answers = node.transmits();
        sent += answers.iter().map(|sent| sent.octets.len()).sum::<usize>();
    }
    assert!(sent < received, "{sent} octets for {received}");
}

/// Returns an INVITE to our number, with these header lines.
fn invite(cseq: u32, lines: &str) -> Vec<u8> {
    format!(
        "INVITE sip:+442071838750@{NODE} SIP/2.0\r\nVia: SIP/2.0/UDP {ATTACKER};branch=z9hG4bK{cseq};rport\r\n\
         From: <sip:a@example.org>;tag=a\r\nTo: <sip:+442071838750@{NODE}>\r\nCall-ID: forged\r\nCSeq: {cseq} INVITE\r\n\
         Max-Forwards: 70\r\nContact: <sip:a@{ATTACKER}>\r\n{lines}Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// Has the node challenge an INVITE of the attacker, and answers with this password.
fn answered(node: &mut Node, password: &str) -> Vec<u8> {
    let bare = Datagram {
        from: address(ATTACKER),
        to: address(NODE),
        connection: None,
        octets: invite(1, ""),
    };
    node.receive(&bare, START);
    let sent = node.transmits();
    let challenged = lex(&sent[0].octets, Framing::Datagram).expect("an answer");
    let (_, challenge) = client::challenge(&challenged).expect("a challenge");
    let uri = format!("sip:+442071838750@{NODE}");
    let request = ChallengedMessage {
        method: "INVITE",
        uri: uri.as_bytes(),
        body: b"",
    };
    let login = Login {
        user: "trunk-user",
        password,
    };
    let value = client::answer(&challenge, &request, &login, 1, "c0ffee").expect("an answer");
    invite(2, &format!("Authorization: {value}\r\n"))
}

/// A tenant who has the password forges the source of its INVITEs.
#[test]
fn a_nonce_brings_a_forged_source_nothing_but_a_challenge() {
    for (source, answers) in [
        (ATTACKER, &["100"][..]),
        ("198.51.100.7:1024", &["100"]),
        (VICTIM, &["401"]),
    ] {
        let mut node = Node::new(&mut Dice::new(1), None, false, START);
        let octets = answered(&mut node, "secret");
        let forged = Datagram {
            from: address(source),
            to: address(NODE),
            connection: None,
            octets,
        };
        node.receive(&forged, START);
        let sent = node.transmits();
        let to_source = sent.iter().filter(|sent| sent.to == address(source));
        let statuses: Vec<_> = to_source
            .map(|sent| String::from_utf8_lossy(&sent.octets[8..11]).into_owned())
            .collect();
        assert_eq!(statuses[..1], *answers, "{source}");

        let text = String::from_utf8_lossy(&sent[0].octets);
        assert_eq!(text.contains("stale=true"), source == VICTIM, "{source}");
    }
}

#[test]
fn only_a_password_sets_an_invite_apart_under_load() {
    let unproven = |network: &str| InviteLane::Unproven(network.parse().expect("an address"));
    for (password, source, expected) in [
        ("secret", ATTACKER, None),
        ("a guess", ATTACKER, Some(unproven("198.51.100.0"))),
        ("secret", VICTIM, Some(unproven("192.0.2.0"))),
    ] {
        let mut node = Node::new(&mut Dice::new(1), None, false, START);
        let octets = answered(&mut node, password);
        let lane = lane_of(&node, &octets, source);
        let of_org = InviteLane::Org(ORG);
        assert_eq!(lane, expected.unwrap_or(of_org), "{password} from {source}");
    }
}

fn lane_of(node: &Node, octets: &[u8], source: &str) -> InviteLane {
    let message = lex(octets, Framing::Datagram).expect("an INVITE");
    let flow: Flow = flow_of(address(source), None);
    node.calls.lane_of(node.view(), &flow, &message, START)
}

#[test]
fn what_was_proved_once_sets_nothing_else_apart() {
    let mut node = Node::new(&mut Dice::new(1), None, false, START);
    let octets = answered(&mut node, "secret");
    let proven = lane_of(&node, &octets, ATTACKER);
    assert!(matches!(proven, InviteLane::Org(_)), "{proven:?}");
    assert_eq!(
        lane_of(&node, &octets, ATTACKER),
        proven,
        "nothing is used up"
    );

    let invite = Datagram {
        from: address(ATTACKER),
        to: address(NODE),
        connection: None,
        octets: octets.clone(),
    };
    node.receive(&invite, START);
    let replayed = lane_of(&node, &octets, ATTACKER);
    assert!(matches!(replayed, InviteLane::Unproven(_)), "{replayed:?}");
}

#[test]
fn an_address_that_an_org_has_named_has_a_lane_of_its_own() {
    let node = Node::new(&mut Dice::new(1), None, false, START);
    let invite = format!(
        "INVITE sip:1@{NODE} SIP/2.0\r\nVia: SIP/2.0/UDP x;branch=z9hG4bK1;rport\r\nFrom: <sip:a@x>;tag=a\r\nTo: <sip:1@x>\r\n\
         Call-ID: 1\r\nCSeq: 1 INVITE\r\nMax-Forwards: 70\r\nContact: <sip:a@x>\r\nContent-Length: 0\r\n\r\n"
    );
    let own = lane_of(&node, invite.as_bytes(), PBX);
    let named = address(PBX).ip();
    let is_own = matches!(own, InviteLane::Source { source, .. } if source == named);
    assert!(is_own, "{own:?}");
    // Credentials are judged before the address, as they are when the INVITE's turn has come.
    let credentials = format!(
        "Authorization: Digest username=\"trunk-user\", realm=\"{REALM}\", nonce=\"x\", uri=\"sip:1@x\", response=\"00\"\r\n"
    );
    let claimed = invite.replace("Max-Forwards", &format!("{credentials}Max-Forwards"));
    let other = lane_of(&node, claimed.as_bytes(), PBX);
    let network = "198.51.101.0".parse().expect("an address");
    assert_eq!(other, InviteLane::Unproven(network));
}

/// A call to the echo agent from an address that its org has named.
struct Admitted {
    node: Node,
    to: String,
}

const PBX: &str = "198.51.101.10:5060";

impl Admitted {
    fn new() -> Self {
        let mut call = Self {
            node: Node::new(&mut Dice::new(1), None, false, START),
            to: format!("<sip:1@{NODE}>"),
        };
        let sdp = "v=0\r\no=- 1 1 IN IP4 198.51.101.10\r\ns=-\r\nc=IN IP4 198.51.101.10\r\nt=0 0\r\nm=audio 4000 RTP/AVP 0\r\n";
        let agent = agent_id(Agent::Echo);
        let lines = format!("X-PLATFORM-AGENT-ID: {agent}\r\nContent-Type: application/sdp\r\n");
        let answers = call.send("INVITE", 1, &lines, sdp);
        let accepted = answers
            .iter()
            .find(|answer| answer.starts_with("SIP/2.0 200"));
        let accepted = accepted.unwrap_or_else(|| panic!("{answers:?}"));
        let to = accepted.lines().find_map(|line| line.strip_prefix("To: "));
        call.to = to.expect("it has To").to_owned();
        call.send("ACK", 1, "", "");
        call
    }

    /// Sends a request in the call; returns the answers.
    fn send(&mut self, method: &str, cseq: u32, lines: &str, body: &str) -> Vec<String> {
        let octets = format!(
            "{method} sip:1@{NODE} SIP/2.0\r\nVia: SIP/2.0/UDP {PBX};branch=z9hG4bK{method}{cseq};rport\r\n\
             From: <sip:a@example.org>;tag=a\r\nTo: {}\r\nCall-ID: admitted\r\nCSeq: {cseq} {method}\r\n\
             Max-Forwards: 70\r\nContact: <sip:a@{PBX}>\r\n{lines}Content-Length: {}\r\n\r\n{body}",
            self.to,
            body.len()
        );
        let request = Datagram {
            from: address(PBX),
            to: address(NODE),
            connection: None,
            octets: octets.into_bytes(),
        };
        self.node.receive(&request, START);
        let sent = self.node.transmits();
        sent.iter()
            .map(|sent| String::from_utf8_lossy(&sent.octets).into_owned())
            .collect()
    }
}

#[test]
fn a_leg_that_sends_without_end_can_only_hang_up() {
    let mut call = Admitted::new();
    let answers: Vec<String> = (2..1_000)
        .flat_map(|cseq| call.send("OPTIONS", cseq, "", ""))
        .collect();
    let of = |status: &'static str| answers.iter().filter(move |text| text.starts_with(status));
    assert_eq!(of("SIP/2.0 200").count(), 200);
    assert_eq!(of("SIP/2.0 503").count(), answers.len() - 200);
    assert!(of("SIP/2.0 503").all(|busy| busy.contains("Retry-After: ")));
    assert!(call.node.endpoint.counts().server_other <= 200);

    let ended = call.send("BYE", 1_000, "", "");
    assert!(ended[0].starts_with("SIP/2.0 200"), "{ended:?}");
}

/// Returns an INVITE of the PBX that is refused with 483.
fn refused(number: usize, text: &str) -> Datagram {
    let octets = format!(
        "INVITE sip:{text}@{NODE} SIP/2.0\r\nVia: SIP/2.0/UDP {PBX};branch=z9hG4bKrefused{number};rport\r\n\
         From: <sip:{text}@example.org>;tag=a\r\nTo: <sip:1@{NODE}>\r\nCall-ID: {number}-{text}\r\n\
         CSeq: 1 INVITE\r\nMax-Forwards: 0\r\nContact: <sip:a@{PBX}>\r\nContent-Length: 0\r\n\r\n"
    );
    Datagram {
        from: address(PBX),
        to: address(NODE),
        connection: None,
        octets: octets.into_bytes(),
    }
}

#[test]
fn a_flood_of_refused_calls_is_recorded_within_bounds() {
    let mut node = Node::new(&mut Dice::new(1), None, false, START);
    for number in 0..10_500 {
        node.receive(&refused(number, "1"), START);
        let sent = node.transmits();
        let is_refused = |sent: &Datagram| sent.octets.starts_with(b"SIP/2.0 483 ");
        // A UDP source gets no more stateless answers than it pays for.
        assert!(number >= 10_000 || sent.iter().any(is_refused), "{number}");
    }
    let records = node
        .facts
        .iter()
        .filter(|fact| matches!(fact, Fact::Started(_)));
    assert_eq!(records.count(), 10_000);
    assert_eq!(node.endpoint.counts().server_invite, 10_000);
}

#[test]
fn the_texts_of_a_record_are_cut() {
    let mut node = Node::new(&mut Dice::new(1), None, false, START);
    let long = "é".repeat(1_000);
    node.receive(&refused(1, &long), START);
    let Some(Fact::Started(started)) = node.facts.first() else {
        panic!("{:?}", node.facts);
    };
    for text in [&started.from, &started.to, &started.caller_call_id] {
        assert!((250..=255).contains(&text.len()), "{text}");
    }
}

/// An INVITE from an allowed address waits for the proof of its source, and is cancelled meanwhile.
#[test]
fn an_invite_that_waits_for_its_source_can_be_canceled() {
    const ALLOWED: &str = "198.51.104.1:5060";
    let mut node = Node::new(&mut Dice::new(1), None, false, START);
    node.allow("198.51.104.0/24", "+442071838750");

    let octets = invite(1, &format!("X-Padding: {}\r\n", "x".repeat(300)));
    let from_allowed = |octets: Vec<u8>| Datagram {
        from: address(ALLOWED),
        to: address(NODE),
        connection: None,
        octets,
    };
    let text = String::from_utf8_lossy(&octets).into_owned();
    node.receive(&from_allowed(octets), START);
    let probe = node.transmits();
    assert!(probe[0].octets.starts_with(b"OPTIONS "), "{probe:?}");

    let canceling = text
        .replace("INVITE sip", "CANCEL sip")
        .replace("1 INVITE", "1 CANCEL");
    let message = lex(canceling.as_bytes(), Framing::Datagram).expect("a CANCEL");
    let mut cancel = |source: &str| {
        let flow = flow_of(address(source), None);
        node.calls
            .cancel_waiting(&mut node.endpoint, flow, &message)
    };
    assert!(!cancel(ATTACKER), "from another source");
    assert!(cancel(ALLOWED));
    assert!(!cancel(ALLOWED), "it waits no more");

    let answers: Vec<String> = node
        .transmits()
        .iter()
        .map(|sent| String::from_utf8_lossy(&sent.octets).into_owned())
        .collect();
    let has = |at: usize, status: &str, cseq: &str| {
        answers[at].starts_with(status) && answers[at].contains(cseq)
    };
    assert!(has(0, "SIP/2.0 200 ", "CSeq: 1 CANCEL"), "{answers:?}");
    assert!(has(1, "SIP/2.0 487 ", "CSeq: 1 INVITE"), "{answers:?}");

    let asked = String::from_utf8_lossy(&probe[0].octets).into_owned();
    let named = ["Via", "From", "To", "Call-ID", "CSeq"];
    let lines = asked
        .lines()
        .filter(|line| named.iter().any(|name| line.starts_with(name)));
    let lines: Vec<&str> = lines.collect();
    let proof = format!("SIP/2.0 200 OK\r\n{}\r\n\r\n", lines.join("\r\n"));
    node.receive(&from_allowed(proof.into_bytes()), START);
    assert!(node.facts.is_empty(), "no call begins: {:?}", node.facts);
}
