//! Messages of an attacker who knows what this node has sent once.

use std::time::Duration;

use trunkline_sip::entropy::Entropy;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Node as NodeNumber, Slot};

use crate::dice::Dice;
use crate::network::Datagram;
use crate::node::{NODE, Node, address};

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
