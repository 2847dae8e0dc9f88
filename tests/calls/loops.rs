//! Calls that loop back to the daemon: through a proxy, through another phone system, and through one that hides it.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trunkline_testkit::message::hop_request;
use trunkline_testkit::probe::Probe;
use trunkline_testkit::{DaemonSetup, Deadline, Message, Responder};

/// Kind of loop.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Way {
    /// The same INVITE: the public host is an address in front of the daemon, and a router sends it back in.
    Hairpin,
    /// The same INVITE with another Via, as a proxy sends it.
    Proxied,
    /// A proxy changes the Request-URI.
    Spiral,
    /// A new call that keeps our headers.
    Bridged,
    /// A new call without any trace of the first.
    Hidden,
}

/// A runtime at an address that the org's calls may come from. It sends each call back to where it came from.
struct Mirror {
    responder: Responder,
    way: Arc<Mutex<Way>>,
    /// Final answers to those INVITEs, in order.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Mirror {
    fn start(from: Ipv4Addr, daemon: SocketAddr) -> Self {
        let socket = UdpSocket::bind((from, 0)).expect("a port");
        let own = socket.local_addr().expect("an address");
        let (way, answers) = (
            Arc::new(Mutex::new(Way::Proxied)),
            Arc::<Mutex<Vec<u16>>>::default(),
        );
        let (goes, hears) = (Arc::clone(&way), Arc::clone(&answers));
        let mut turn = 0;
        let mut known = HashSet::new();

        // The INVITEs that came, each with the one that was sent back.
        let mut open: Vec<(Message, Message)> = Vec::new();
        let responder = Responder::on(socket, move |message| {
            if message.is_request("INVITE") {
                // A retransmission: the answer took longer than T1.
                if !known.insert(message.value("Via")) {
                    return vec![message.reply("100 Trying", "")];
                }
                turn += 1;
                let way = *goes.lock().expect("nobody panics with it");
                let back = sent_back(message, way, own, daemon, turn);
                open.push((message.clone(), Message::of(&back)));
                return vec![message.reply("100 Trying", ""), back];
            }
            if message.method().is_some() {
                return vec![message.reply("200 OK", "")];
            }
            if !message.is_final() {
                return Vec::new();
            }
            let status = message.status().expect("a response");
            hears.lock().expect("nobody panics with it").push(status);
            let is_of_it = |(_, back): &(Message, Message)| {
                back.header("Call-ID") == message.header("Call-ID")
            };
            let Some(at) = open.iter().position(is_of_it) else {
                return Vec::new();
            };
            let (invite, back) = open.remove(at);
            let ack = hop_request(&back.wire(), "ACK", &message.value("To"));
            vec![ack, invite.reply("486 Busy Here", "")]
        });

        Self {
            responder,
            way,
            answers,
        }
    }

    /// Returns the number of legs that came for one call, and the answers to the INVITEs sent back.
    fn play(&self, way: Way, call: impl FnOnce() -> Option<u16>) -> (usize, Vec<u16>) {
        *self.way.lock().expect("nobody panics with it") = way;
        let seen = || self.responder.taken();
        let before = seen();
        self.answers.lock().expect("nobody panics with it").clear();
        assert_eq!(call(), Some(486), "the circle has ended");
        let answers = self.answers.lock().expect("nobody panics with it");
        (seen() - before, answers.clone())
    }
}

fn sent_back(
    message: &Message,
    way: Way,
    own: SocketAddr,
    daemon: SocketAddr,
    turn: usize,
) -> String {
    let via = format!("Via: SIP/2.0/UDP {own};branch=z9hG4bK-mirror-{turn};rport\r\n");
    let text = message.text();
    match way {
        Way::Hairpin => text,
        Way::Proxied => text.replacen("Via:", &format!("{via}Via:"), 1),
        Way::Spiral => {
            let (_, rest) = text.split_once("\r\n").expect("a message");
            let rest = rest.replacen("Via:", &format!("{via}Via:"), 1);
            format!("INVITE sip:other-{turn}@{daemon} SIP/2.0\r\n{rest}")
        }
        Way::Bridged | Way::Hidden => {
            let kept = match way {
                Way::Bridged => "X-PLATFORM-SESSION-ID",
                Way::Hairpin | Way::Proxied | Way::Spiral | Way::Hidden => "X-Nothing",
            };
            let kept = message.header(kept).unwrap_or_default();
            let (_, body) = text.split_once("\r\n\r\n").expect("a message");
            format!(
                "INVITE sip:+12025550123@{daemon} SIP/2.0\r\n{via}Max-Forwards: 70\r\nFrom: <sip:+441632960007@{own}>;tag=m{turn}\r\n\
                 To: {}\r\nCall-ID: mirror-{turn}@{own}\r\nCSeq: 1 INVITE\r\nContact: <sip:mirror@{own}>\r\n\
                 X-PLATFORM-SESSION-ID: {kept}\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
                message.value("To"),
                body.len(),
            )
        }
    }
}

#[test]
fn calls_that_run_in_a_circle_end() {
    let setup = DaemonSetup::new();
    let mirror = Mirror::start(Ipv4Addr::new(127, 0, 0, 2), setup.sip);
    let honest = Responder::busy();
    setup.dedicate("127.0.0.0/30");
    setup.runtime(
        &setup.first_agent,
        &format!("sip:x@{}", mirror.responder.address),
    );
    let number = setup.first_number.clone();
    let daemon = setup.serve();
    let caller = Probe::new(Ipv4Addr::LOCALHOST, daemon.sip());
    let call = |line: &'static str| caller.call(&number, line);

    let (seen, answers) = mirror.play(Way::Hairpin, || call("X-A: 0"));
    assert_eq!((seen, answers), (1, vec![482]), "a router leads it back");

    let (seen, answers) = mirror.play(Way::Proxied, || call("X-A: 1"));
    assert_eq!((seen, answers), (1, vec![482]), "a proxy sends it back");

    // To another number and by a proxy: not the same INVITE. Its next leg carries the session.
    let (seen, answers) = mirror.play(Way::Spiral, || call("X-A: 2"));
    assert_eq!((seen, answers.first()), (4, Some(&482)), "a spiral");

    let (seen, answers) = mirror.play(Way::Bridged, || call("X-A: 3"));
    assert_eq!((seen, answers.first()), (4, Some(&482)), "four times back");

    let (seen, answers) = mirror.play(Way::Hidden, || call("X-A: 4"));
    assert!(seen <= 21, "{seen} calls of one");
    assert_eq!(answers.first(), Some(&480), "{answers:?}");

    for (reason, count) in [("loop_detected", 4), ("caller_busy", 1)] {
        let found = || {
            let log = daemon.log();
            (log.matches(&format!("reason={reason}")).count() == count).then_some(())
        };
        let seen = Deadline::after(Duration::from_secs(10)).poll(found);
        assert!(seen.is_some(), "{reason}: {}", daemon.log());
    }

    let to_honest = serde_json::json!({
        "runtime": { "type": "sip", "uri": format!("sip:x@{}", honest.address) }
    });
    let path = format!("/phone/{}", daemon.setup.first_agent);
    assert_eq!(daemon.change("PATCH", &path, &to_honest).0, 200);
    daemon.setup.settle();
    assert_eq!(call("X-A: 5"), Some(486), "another caller");
    assert_eq!(honest.taken(), 1);
}
