//! Peers that know a call's tags and send malformed requests inside it: the daemon answers or ignores them, without a fault of its own.
//! `PROPTEST_CASES` sets the number of messages per test, rounded up to whole calls; the default is a thousand.

use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use trunkline_sip::wire::{Framing, lex};

use crate::torture::caller::{Caller, Dialling, OFFER};
use crate::torture::daemon_requests::{metric, runtime, until};
use crate::torture::{one_shard, served_by_one};
use trunkline_testkit::change::{Change, change, changed};
use trunkline_testkit::message::status_of;
use trunkline_testkit::{Daemon, DaemonSetup, Message, Peer};

/// Messages between two health checks of the daemon.
const BATCH: usize = 20;
/// Messages inside one call.
const CALL: usize = 250;
/// The highest CSeq (RFC 3261 §8.1.1.5).
const HIGHEST: u32 = (1 << 31) - 1;

fn messages() -> usize {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.map_or(1_000, |cases| {
        cases.parse().expect("PROPTEST_CASES is a number")
    })
}

/// Changes that are the same in each run.
struct Changes {
    runner: TestRunner,
}

impl Changes {
    fn new() -> Self {
        Self {
            runner: TestRunner::deterministic(),
        }
    }

    fn of(&mut self, octets: Vec<u8>) -> Vec<u8> {
        let changes: Vec<Change> = vec(change(), 0..4)
            .new_tree(&mut self.runner)
            .expect("a strategy without filters")
            .current();
        changed(octets, &changes)
    }
}

fn assert_well(daemon: &Daemon) {
    assert!(Peer::new(daemon.sip()).answers_until_probed().is_empty());
    assert_eq!(metric(daemon, "trunkline_panics_total"), 0.0);
}

/// Method, further lines, body.
const REQUESTS: [(&str, &str, &str); 14] = [
    ("INVITE", "Content-Type: application/sdp\r\n", OFFER),
    (
        "INVITE",
        "Session-Expires: 4294967295;refresher=uac\r\nMin-SE: 4294967295\r\n",
        "",
    ),
    (
        "INVITE",
        "Contact: <sip:[::1]:0>\r\nSession-Expires: 1\r\n",
        OFFER,
    ),
    ("UPDATE", "Content-Type: application/sdp\r\n", OFFER),
    (
        "UPDATE",
        "Session-Expires: 90;refresher=uas\r\nSupported: timer\r\n",
        "",
    ),
    ("PRACK", "RAck: 4294967295 4294967295 INVITE\r\n", ""),
    ("PRACK", "RAck: 1 2 INVITE\r\n", OFFER),
    (
        "INFO",
        "Content-Type: application/dtmf-relay\r\n",
        "Signal=5\r\nDuration=160\r\n",
    ),
    ("MESSAGE", "Content-Type: text/plain\r\n", "hello"),
    ("OPTIONS", "Require: \r\n", ""),
    (
        "REFER",
        "Refer-To: <sip:x@y?Replaces=a%3Bto-tag%3Db%3Bfrom-tag%3Dc>\r\n",
        "",
    ),
    (
        "NOTIFY",
        "Event: refer\r\nSubscription-State: active;expires=0\r\n",
        "SIP/2.0 200 OK",
    ),
    ("ACK", "Content-Type: application/sdp\r\n", OFFER),
    ("CANCEL", "Reason: SIP;cause=200;text=\"\\\r\n \"\r\n", ""),
];

/// Returns a request of `dialling` with the kind's lines before its own, so that the kind's come first.
fn request(dialling: &Dialling, kind: usize, cseq: u32, tag: &str, caller: &Caller) -> Vec<u8> {
    let (method, lines, body) = REQUESTS[kind % REQUESTS.len()];
    let bare = dialling.request(method, cseq, tag, caller.peer.own);
    with_lines(&bare, lines, body)
}

fn with_lines(bare: &[u8], lines: &str, body: &str) -> Vec<u8> {
    let bare = String::from_utf8_lossy(bare);
    let (start, head) = bare.split_once("\r\n").expect("a start line");
    let head = head.replace(
        "Content-Length: 0\r\n\r\n",
        &format!("Content-Length: {}\r\n\r\n{body}", body.len()),
    );
    format!("{start}\r\n{lines}{head}").into_bytes()
}

/// Sends changed requests inside a call that is up. A CSeq may get so high that no later one counts; the next call then goes on.
fn babble(
    caller: &Caller,
    changes: &mut Changes,
    (dialling, tag): (&Dialling, &str),
    mut between: impl FnMut(),
) {
    for number in 0..CALL {
        let cseq = 10 + u32::try_from(number).expect("a small number");
        let request = request(dialling, number, cseq, tag, caller);
        caller.peer.send(changes.of(request));
        if number % BATCH == 0 {
            for answer in caller.peer.answers_until_probed() {
                acknowledge(caller, dialling, &answer);
            }
            between();
        }
    }

    caller.send(dialling, "BYE", HIGHEST, tag);
    caller.peer.answers_until_probed();
    between();
}

#[test]
fn a_caller_may_babble_at_the_echo_agent() {
    let daemon = served_by_one();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let mut changes = Changes::new();
    for call in 0..messages().div_ceil(CALL) {
        let id = format!("babble-{call}");
        let dialling = Dialling::new(&id, &daemon.setup.first_number, daemon.sip());
        let tag = caller.connect(&dialling);
        babble(&caller, &mut changes, (&dialling, &tag), || {});
    }
    assert_well(&daemon);
    let left = until(|| Some(metric(&daemon, "trunkline_sip_dialogs")).filter(|left| *left == 0.0));
    assert_eq!(left, 0.0);
}

#[test]
fn a_caller_may_babble_at_a_runtime() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let contact = format!(
        "Contact: <sip:agent@{}>\r\nContent-Type: application/sdp\r\n",
        runtime.own
    );
    let (mut changes, mut relayed) = (Changes::new(), 0);

    for call in 0..messages().div_ceil(CALL) {
        let id = format!("babble-{call}");
        let dialling = Dialling::new(&id, &daemon.setup.first_number, daemon.sip());
        let (tag, _) = caller.connect_to(&runtime, &dialling, (&contact, OFFER));
        babble(&caller, &mut changes, (&dialling, &tag), || {
            relayed += accept_all(&runtime, &contact);
        });
    }

    assert_well(&daemon);
    assert!(relayed > messages() / 20, "only {relayed} requests crossed");
}

/// Sends the ACK of a 2xx to a re-INVITE.
fn acknowledge(caller: &Caller, dialling: &Dialling, answer: &Message) {
    // A response to a request without Call-ID has none either.
    let Ok(message) = lex(answer.as_ref(), Framing::Datagram) else {
        return;
    };
    if (200..300).contains(&message.status()) && message.cseq_method_token() == b"INVITE" {
        // If the runtime made an offer, the ACK holds the answer.
        let ack = with_lines(
            &dialling.request(
                "ACK",
                message.cseq().number,
                &answer.to_tag(),
                caller.peer.own,
            ),
            "Content-Type: application/sdp
",
            OFFER,
        );
        caller.peer.send(&ack);
    }
}

/// Answers requests that have crossed with 200; returns their number.
fn accept_all(runtime: &Peer, lines: &str) -> usize {
    let came = runtime.answers_until_probed();
    let asked = came
        .iter()
        .filter(|message| message.method().is_some_and(|method| method != "ACK"));
    asked
        .map(|request| runtime.answer(request, "200 OK", lines, OFFER))
        .count()
}

/// Status line, further lines and body of a runtime's answers.
const ANSWERS: [(&str, &str, &str); 12] = [
    ("100 Trying", "", ""),
    ("180 Ringing", "", ""),
    ("183 Progress", "Content-Type: application/sdp\r\n", OFFER),
    (
        "183 Progress",
        "Require: 100rel\r\nRSeq: 4294967295\r\nContent-Type: application/sdp\r\n",
        OFFER,
    ),
    ("180 Ringing", "Require: 100rel\r\nRSeq: 1\r\n", ""),
    (
        "200 OK",
        "Session-Expires: 4294967295;refresher=uac\r\nContent-Type: application/sdp\r\n",
        OFFER,
    ),
    ("200 OK", "Session-Expires: 0;refresher=nobody\r\n", ""),
    (
        "302 Moved",
        "Contact: <sip:x@127.0.0.1:9>, <sip:y@elsewhere.invalid>\r\n",
        "",
    ),
    ("422 Brief", "Min-SE: 4294967295\r\n", ""),
    (
        "401 No",
        "WWW-Authenticate: Digest realm=\"x\", nonce=\"y\"\r\n",
        "",
    ),
    ("486 Busy", "Retry-After: 4294967296\r\n", ""),
    ("699 Beyond", "Warning: 399 x \"\\\r\n \"\r\n", ""),
];

#[test]
fn a_runtime_may_babble_at_a_call_that_is_set_up() {
    let setup = one_shard(DaemonSetup::new());
    let runtime = runtime(&setup);
    let daemon = setup.serve();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let mut changes = Changes::new();

    for call in 0..messages().div_ceil(BATCH) {
        let rel = if call % 2 == 0 {
            "Supported: 100rel, timer"
        } else {
            "Require: 100rel"
        };
        let mut dialling = Dialling::new(
            &format!("babble-{call}"),
            &daemon.setup.first_number,
            daemon.sip(),
        )
        .with(rel);
        dialling.from = format!("<sip:+44163296{call:04}@pbx.invalid>");
        caller.dial(&dialling);
        let invite = runtime.request("INVITE");
        for number in 0..BATCH {
            let (status, lines, body) = ANSWERS[(call * 7 + number * 5) % ANSWERS.len()];
            let lines = format!("Contact: <sip:agent@{}>\r\n{lines}", runtime.own);
            let tag = format!("fork-{}", number % 3);
            runtime.send(changes.of(invite.answer(status, &tag, &lines, body).into_bytes()));
        }
        runtime.send(invite.answer("486 Busy", "last", "", ""));
        runtime.answers_until_probed();
        caller.send(&dialling, "CANCEL", 2, "");
        let answers = caller.peer.answers_until_probed();
        end(&caller, &dialling, &answers);
    }

    assert_well(&daemon);
}

/// Acknowledges the final answer, which must have come, and hangs up if it was a 2xx.
fn end(caller: &Caller, dialling: &Dialling, answers: &[Message]) {
    let is_final = |message: &&Message| message.is_final() && message.answers("INVITE");
    let last = answers.iter().find(is_final);
    let last = last.unwrap_or_else(|| panic!("{} has no final answer: {answers:?}", dialling.id));
    caller.send(dialling, "ACK", 2, &last.to_tag());
    if status_of(last) < 300 {
        caller.send(dialling, "BYE", 3, &last.to_tag());
    }
}
