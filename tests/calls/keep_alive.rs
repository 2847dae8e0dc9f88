//! Peers behind NAT over UDP: a registered PBX is called after the NAT's mapping would have expired, and one that stops answering is shown as lost.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::calls::{outbound, ways_out};
use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::talker::{Talker, offer};
use trunkline_testkit::{Daemon, DaemonSetup, Deadline, Message, Pbx, Peer, Responder, Runtime};

const PATIENCE: Duration = Duration::from_secs(20);
/// Lifetime of a NAT mapping after the last packet from inside.
const REMEMBERED: Duration = Duration::from_secs(3);
/// Address that a PBX behind the NAT writes into Via.
const INSIDE: &str = "10.9.8.7:5060";

/// A NAT of one port: packets from inside open a way to the daemon and keep it open; packets from outside don't (RFC 4787, REQ-6).
struct Nat {
    inside: SocketAddr,
    is_blocked: Arc<AtomicBool>,
}

impl Nat {
    fn before(daemon: SocketAddr) -> Self {
        let inside = unblocked(Ipv4Addr::LOCALHOST);
        let nat = Self {
            inside: inside.local_addr().expect("an address"),
            is_blocked: Arc::default(),
        };
        let is_blocked = Arc::clone(&nat.is_blocked);

        std::thread::spawn(move || {
            let mut octets = vec![0; 65_536];
            let mut pbx = None;
            let mut mapping: Option<(UdpSocket, Deadline)> = None;
            loop {
                mapping = mapping.take().filter(|(_, end)| !end.is_over());
                while let Ok((count, from)) = inside.recv_from(&mut octets) {
                    pbx = Some(from);
                    let remembered = || Deadline::after(REMEMBERED);
                    let open = || (unblocked(Ipv4Addr::LOCALHOST), remembered());
                    let (outside, end) = mapping.get_or_insert_with(open);
                    *end = remembered();
                    if !is_blocked.load(Ordering::SeqCst) {
                        outside
                            .send_to(&octets[..count], daemon)
                            .expect("it is sent");
                    }
                }
                if let (Some((outside, _)), Some(pbx)) = (&mapping, pbx) {
                    while let Ok(count) = outside.recv(&mut octets) {
                        if !is_blocked.load(Ordering::SeqCst) {
                            inside.send_to(&octets[..count], pbx).expect("it is sent");
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        nat
    }

    fn block(&self, is_blocked: bool) {
        self.is_blocked.store(is_blocked, Ordering::SeqCst);
    }
}

fn unblocked(ip: Ipv4Addr) -> UdpSocket {
    let socket = UdpSocket::bind((ip, 0)).expect("a port");
    socket.set_nonblocking(true).expect("a socket");
    socket
}

/// Starts a node that sends keep-alives often, and gives up within four seconds.
fn node() -> DaemonSetup {
    DaemonSetup::new()
        .set("TRUNKLINE__SIP__KEEP_ALIVE_S", "1")
        .set("TRUNKLINE__SIP__T1_MS", "60")
}

fn registration(daemon: &Daemon) -> Value {
    daemon.shown("/phone/sip/inbound-trunk")["registrations"][0].take()
}

fn until_reachable(daemon: &Daemon, is_reachable: bool) {
    let seen = Deadline::after(PATIENCE)
        .poll(|| (registration(daemon)["reachable"] == is_reachable).then_some(()));
    assert!(seen.is_some(), "{}\n{}", registration(daemon), daemon.log());
}

#[test]
fn a_pbx_behind_nat_is_called_after_the_nat_would_have_forgotten_it() {
    let daemon = node().serve();
    let nat = Nat::before(daemon.sip());
    let mut pbx = Pbx::behind(&daemon, nat.inside);
    pbx.sent_by = INSIDE.to_owned();
    let contact = format!("Contact: <sip:pbx@{INSIDE}>\r\nExpires: 600\r\n");
    assert_eq!(pbx.register(&contact).status(), Some(200));
    assert_eq!(registration(&daemon)["reachable"], true);

    let taken = std::thread::spawn(move || pbx.take_call());
    std::thread::sleep(REMEMBERED * 2);
    ways_out::call_registered(&daemon);
    let heard = taken.join().expect("the call is taken");
    let came = |method| {
        heard
            .iter()
            .filter(|heard| heard.is_request(method))
            .count()
    };
    assert!(came("OPTIONS") >= 3, "{heard:?}");
    assert_eq!((came("INVITE"), came("BYE")), (1, 1), "{heard:?}");
}

#[test]
fn a_registered_pbx_that_no_longer_answers_is_shown_so() {
    let daemon = node().serve();
    let nat = Nat::before(daemon.sip());
    let mut pbx = Pbx::behind(&daemon, nat.inside);
    pbx.sent_by = INSIDE.to_owned();
    let contact = format!("Contact: <sip:pbx@{INSIDE}>\r\nExpires: 600\r\n");
    assert_eq!(pbx.register(&contact).status(), Some(200));

    // The PBX answers OPTIONS for as long as the test lasts.
    pbx.answer_options();
    let is_told = || {
        daemon
            .log()
            .contains("a registered PBX behind NAT no longer answers")
    };
    std::thread::sleep(Duration::from_secs(3));
    assert!(!is_told(), "{}", daemon.log());

    nat.block(true);
    until_reachable(&daemon, false);
    let told = Deadline::after(PATIENCE).poll(|| is_told().then_some(()));
    assert!(told.is_some(), "{}", daemon.log());
    assert_eq!(daemon.shown("/phone/sip/inbound-trunk")["registered"], true);

    // A new REGISTER makes the PBX reachable again, on a new mapping.
    nat.block(false);
    let mut back = Pbx::behind(&daemon, nat.inside);
    back.sent_by = INSIDE.to_owned();
    assert_eq!(back.register(&contact).status(), Some(200));
    until_reachable(&daemon, true);
}

#[test]
fn a_caller_behind_nat_is_asked_while_its_call_is_up() {
    let setup = DaemonSetup::new().set("TRUNKLINE__SIP__KEEP_ALIVE_S", "1");
    let from = Ipv4Addr::new(127, 0, 0, 2);
    setup.dedicate(&from.to_string());
    let daemon = setup.serve();
    let number = daemon.setup.first_number.clone();
    let sdp = offer(SocketAddr::from((from, 4_000)));

    // No NAT is in front of this caller.
    let (direct, answer) = Talker::call(from.into(), daemon.sip(), &number, &sdp);
    assert_eq!(answer.status(), Some(200), "{answer:?}");

    let hidden = Peer::on(from, daemon.sip());
    let via = |request: String| {
        let own = format!("SIP/2.0/UDP {}", hidden.own);
        request.replace(&own, &format!("SIP/2.0/UDP {INSIDE}"))
    };
    let uri = format!("sip:{number}@{}", daemon.sip());
    let mut dialog = Dialog::calling(&uri, "+441632960002", "nat", &hidden)
        .with(&format!("Contact: <sip:pbx@{INSIDE}>"));
    let mut asked = 0;
    let until = Deadline::after(PATIENCE);
    let enough = until.poll(|| {
        if asked == 0 {
            hidden.send(via(dialog.request(&hidden, (1, "INVITE"), "", &sdp)));
        }
        while let Some(message) = hidden.receive_within(Duration::from_millis(500)) {
            if message.is_request("OPTIONS") {
                asked += 1;
                hidden.answer(&message, "404 Not Found", "", "");
            } else if message.status() == Some(200) {
                dialog.accepted(&message);
                hidden.send(via(dialog.ack(&hidden, 1, &message)));
            }
            if asked >= 3 {
                return Some(());
            }
        }
        None
    });
    assert!(enough.is_some(), "{asked} OPTIONS:\n{}", daemon.log());

    let up = daemon
        .calls()
        .into_iter()
        .filter(|call| call["status"] == "in_progress");
    assert_eq!(up.count(), 2, "an answer of any kind ends nothing");
    let asked = direct.asked("OPTIONS");
    assert_eq!(asked, None, "where nothing stands between, nothing is sent");
}

/// Starts a callee that answers with this Contact; `None`: with its own address.
fn answering(contact: Option<&str>) -> Responder {
    let sdp = offer(SocketAddr::from((Ipv4Addr::LOCALHOST, 4_004)));
    Responder::accepting(Ipv4Addr::LOCALHOST, contact, sdp)
}

/// Returns the number of OPTIONS that have come, without retransmissions.
fn asked(callee: &Responder) -> usize {
    let options = callee.requests("OPTIONS").into_iter();
    let which = |options: Message| (options.value("Call-ID"), options.value("CSeq"));
    options.map(which).collect::<HashSet<_>>().len()
}

/// Returns a node that sends no OPTIONS but keep-alives; callers at 127.0.0.2 need no credentials.
fn only_keep_alives() -> DaemonSetup {
    let setup = DaemonSetup::new()
        .set("TRUNKLINE__SIP__KEEP_ALIVE_S", "1")
        .set("TRUNKLINE__SIP__HEALTH_INTERVAL_S", "0");
    setup.dedicate("127.0.0.2");
    setup
}

#[test]
fn a_runtime_behind_nat_is_asked_while_its_call_is_up() {
    let from = Ipv4Addr::new(127, 0, 0, 2);
    let (hidden, open) = (answering(Some(INSIDE)), answering(None));
    for (runtime, is_asked) in [(&open, false), (&hidden, true)] {
        let setup = only_keep_alives();
        let uri = format!("sip:agent@{}", runtime.address);
        setup.runtime(&setup.first_agent, &uri);
        let daemon = setup.serve();
        let number = daemon.setup.first_number.clone();
        let sdp = offer(SocketAddr::from((from, 4_000)));
        let (_talker, answer) = Talker::call(from.into(), daemon.sip(), &number, &sdp);
        assert_eq!(answer.status(), Some(200), "{answer:?}");

        let id = daemon.answered_call();
        if is_asked {
            let enough = Deadline::after(PATIENCE).poll(|| (asked(runtime) >= 3).then_some(()));
            assert!(
                enough.is_some(),
                "{} OPTIONS:\n{}",
                asked(runtime),
                daemon.log()
            );
        } else {
            std::thread::sleep(REMEMBERED + REMEMBERED / 2);
            assert_eq!(asked(runtime), 0, "{}", daemon.log());
        }

        // No OPTIONS follow the end of the call, except one that was under way.
        let path = format!("/phone/calls/{id}/hangup");
        let (status, ended) = daemon.change("POST", &path, &json!({}));
        assert!(status < 300, "{ended}");
        daemon.record();
        let count = asked(runtime);
        std::thread::sleep(REMEMBERED);
        let more = asked(runtime) - count;
        assert!(more <= 1, "{more} OPTIONS:\n{}", daemon.log());
    }
}

#[test]
fn a_callee_behind_nat_is_asked_while_its_call_is_up() {
    let callee = answering(Some(INSIDE));
    let daemon = only_keep_alives().serve();
    let port = callee.address.port();
    outbound::give_trunk(&daemon, Runtime::new(), &json!({"port": port}));
    outbound::order(&daemon, &json!({}));
    let enough = Deadline::after(PATIENCE).poll(|| (asked(&callee) >= 3).then_some(()));
    assert!(enough.is_some(), "{} OPTIONS", asked(&callee));
    assert_eq!(daemon.calls()[0]["status"], "in_progress");
}
