//! Calls that come back to the daemon that has just sent them: through a proxy, through another phone system, through one that hides it.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use trunkline_sip::wire::{Framing, HeaderName, Message, Method, lex};

use trunkline_testkit::answer::reply;
use trunkline_testkit::probe::{Busy, Probe};
use trunkline_testkit::{Deadline, House};

/// Which call the mirror sends back.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Way {
    /// The same INVITE, with another Via on it: a proxy.
    Proxied,
    /// The same to another Request-URI, by a proxy as well.
    Spiral,
    /// A call of its own, with our headers.
    Bridged,
    /// A call of its own that says nothing of the first.
    Hidden,
}

/// A runtime at an address that the org's calls may come from, which sends each call back to where it came from.
struct Mirror {
    address: SocketAddr,
    way: Arc<Mutex<Way>>,
    /// INVITEs that have come.
    seen: Arc<AtomicUsize>,
    /// Final answers to those that were sent back, as they came.
    answers: Arc<Mutex<Vec<u16>>>,
}

impl Mirror {
    fn start(from: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((from, 0)).expect("a port");
        let mirror = Self {
            address: socket.local_addr().expect("an address"),
            way: Arc::new(Mutex::new(Way::Proxied)),
            seen: Arc::default(),
            answers: Arc::default(),
        };
        let (way, seen, answers) = (
            Arc::clone(&mirror.way),
            Arc::clone(&mirror.seen),
            Arc::clone(&mirror.answers),
        );
        std::thread::spawn(move || {
            let own = socket.local_addr().expect("an address");
            let mut octets = [0; 16_384];
            let mut turn = 0;
            // Call-ID of what was sent back, the INVITE that it came of, and what was sent.
            let mut open: Vec<(Vec<u8>, String, String)> = Vec::new();
            while let Ok((count, from)) = socket.recv_from(&mut octets) {
                let text = String::from_utf8_lossy(&octets[..count]).into_owned();
                let message = lex(&octets[..count], Framing::Datagram).expect("a message");
                let send = |text: &str| drop(socket.send_to(text.as_bytes(), from));
                if message.is_request() && message.method() == Method::Invite {
                    send(&reply(&message, "100 Trying", ""));
                    seen.fetch_add(1, Ordering::SeqCst);
                    turn += 1;
                    let way = *way.lock().expect("nobody panics with it");
                    let back = sent_back(&message, &text, way, own, from, turn);
                    let sent = lex(back.as_bytes(), Framing::Datagram).expect("an INVITE");
                    open.push((sent.call_id().to_vec(), text, back.clone()));
                    send(&back);
                } else if message.is_request() && message.method() != Method::Ack {
                    send(&reply(&message, "200 OK", ""));
                } else if !message.is_request() && message.status() >= 200 {
                    answers
                        .lock()
                        .expect("nobody panics with it")
                        .push(message.status());
                    let of = open.iter().position(|(id, ..)| id == message.call_id());
                    let Some(at) = of else { continue };
                    let (_, invite, back) = open.remove(at);
                    send(&ack(&back, &message));
                    let invite = lex(invite.as_bytes(), Framing::Datagram).expect("an INVITE");
                    send(&reply(&invite, "486 Busy Here", ""));
                }
            }
        });
        mirror
    }

    /// INVITEs that came for one call, and the answers to what was sent back.
    fn play(&self, way: Way, call: impl FnOnce() -> Option<u16>) -> (usize, Vec<u16>) {
        *self.way.lock().expect("nobody panics with it") = way;
        self.seen.store(0, Ordering::SeqCst);
        self.answers.lock().expect("nobody panics with it").clear();
        assert_eq!(call(), Some(486), "the circle has ended");
        let answers = self.answers.lock().expect("nobody panics with it");
        (self.seen.load(Ordering::SeqCst), answers.clone())
    }
}

fn sent_back(
    message: &Message<'_>,
    text: &str,
    way: Way,
    own: SocketAddr,
    daemon: SocketAddr,
    turn: usize,
) -> String {
    let via = format!("Via: SIP/2.0/UDP {own};branch=z9hG4bK-mirror-{turn};rport\r\n");
    let line = |name: HeaderName| {
        String::from_utf8_lossy(message.first(name).unwrap_or_default()).into_owned()
    };
    match way {
        Way::Proxied => text.replacen("Via:", &format!("{via}Via:"), 1),
        Way::Spiral => {
            let (_, rest) = text.split_once("\r\n").expect("a message");
            let rest = rest.replacen("Via:", &format!("{via}Via:"), 1);
            format!("INVITE sip:other-{turn}@{daemon} SIP/2.0\r\n{rest}")
        }
        Way::Bridged | Way::Hidden => {
            let kept = match way {
                Way::Bridged => "X-PLATFORM-SESSION-ID",
                Way::Proxied | Way::Spiral | Way::Hidden => "X-Nothing",
            };
            let kept = message.other(kept).unwrap_or_default();
            let body = message.body();
            format!(
                "INVITE sip:+12025550123@{daemon} SIP/2.0\r\n{via}Max-Forwards: 70\r\nFrom: <sip:+441632960007@{own}>;tag=m{turn}\r\n\
                 To: {}\r\nCall-ID: mirror-{turn}@{own}\r\nCSeq: 1 INVITE\r\nContact: <sip:mirror@{own}>\r\n\
                 X-PLATFORM-SESSION-ID: {}\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{}",
                line(HeaderName::To),
                String::from_utf8_lossy(kept),
                body.len(),
                String::from_utf8_lossy(body),
            )
        }
    }
}

/// The ACK of a refusal (RFC 3261 §17.1.1.3).
fn ack(invite: &str, answer: &Message<'_>) -> String {
    let first = invite.lines().next().expect("a start line");
    let uri = first.split(' ').nth(1).expect("a Request-URI");
    let line = |name: &str| {
        let of = |line: &&str| line.starts_with(name);
        invite.lines().find(of).unwrap_or_default().to_owned()
    };
    let to = String::from_utf8_lossy(answer.first(HeaderName::To).unwrap_or_default());
    format!(
        "ACK {uri} SIP/2.0\r\n{}\r\nMax-Forwards: 70\r\n{}\r\nTo: {to}\r\n{}\r\nCSeq: {} ACK\r\nContent-Length: 0\r\n\r\n",
        line("Via:"),
        line("From:"),
        line("Call-ID:"),
        answer.cseq().number,
    )
}

#[test]
fn calls_that_run_in_a_circle_end() {
    let (mirror, honest) = (Mirror::start(Ipv4Addr::new(127, 0, 0, 2)), Busy::start());
    let house = House::new();
    house.dedicate("127.0.0.0/30");
    house.runtime(&house.first_agent, &format!("sip:x@{}", mirror.address));
    let number = house.first_number.clone();
    let daemon = house.serve();
    let caller = Probe::new(Ipv4Addr::LOCALHOST, daemon.sip());
    let call = |line: &'static str| caller.call(&number, line);

    let (seen, answers) = mirror.play(Way::Proxied, || call("X-A: 1"));
    assert_eq!((seen, answers), (1, vec![482]), "a proxy sends it back");

    // To another number, and by a proxy: not the same INVITE. Its next leg brings the session back.
    let (seen, answers) = mirror.play(Way::Spiral, || call("X-A: 2"));
    assert_eq!((seen, answers.first()), (4, Some(&482)), "a spiral");

    let (seen, answers) = mirror.play(Way::Bridged, || call("X-A: 3"));
    assert_eq!((seen, answers.first()), (4, Some(&482)), "four times back");

    let (seen, answers) = mirror.play(Way::Hidden, || call("X-A: 4"));
    assert!(seen <= 21, "{seen} calls of one");
    assert_eq!(answers.first(), Some(&482), "{answers:?}");

    for (reason, count) in [("loop_detected", 3), ("setups_repeat", 1)] {
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
    let path = format!("/phone/{}", daemon.house.first_agent);
    assert_eq!(daemon.change("PATCH", &path, &to_honest).0, 200);
    daemon.house.settle();
    assert_eq!(call("X-A: 5"), Some(486), "another caller");
    assert_eq!(honest.taken(), 1);
}
