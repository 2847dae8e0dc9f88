//! Unauthenticated peers: they can't find out which users exist, replay a digest, or fill the daemon's memory.

use std::net::{IpAddr, UdpSocket};
use std::ops::Range;
use std::time::Duration;

use crate::torture::caller::{Caller, Dialling};
use crate::torture::daemon_requests::{memory, metric, until};
use crate::torture::served_by_one;
use trunkline_testkit::digest::Challenge;
use trunkline_testkit::message::status_of;
use trunkline_testkit::process::Deadline;
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Message, Peer};

/// Rounds of a flood, and messages of one round: few enough for the socket's buffer.
const ROUNDS: u32 = 400;
const ROUND: u32 = 50;
/// Largest variation of the heap: less than 300 octets a message.
const SLACK_KIB: u64 = 4_096;
/// The database's page caches fill as failed log-ins are recorded.
const CACHES_KIB: u64 = 12_288;

/// Each stranger sends a part of the rounds: a source that proves nothing gets few answers a second.
fn flood(
    strangers: &[Peer],
    rounds: Range<u32>,
    message: &(impl Fn(u32) -> Vec<u8> + Sync),
) -> usize {
    let send = |stranger: &Peer, rounds: Range<u32>| -> usize {
        let rounds = rounds.map(|round| {
            for number in round * ROUND..(round + 1) * ROUND {
                stranger.send(message(number));
            }
            stranger.answers_until_probed().len()
        });
        rounds.sum()
    };
    let each = rounds.len() as u32 / strangers.len() as u32;
    std::thread::scope(|scope| {
        let senders = (rounds.step_by(each as usize)).zip(strangers);
        let senders = senders
            .map(|(first, stranger)| scope.spawn(move || send(stranger, first..first + each)));
        let senders: Vec<_> = senders.collect();
        let answers = senders.into_iter().map(|sender| sender.join());
        answers.map(|answers| answers.expect("no panic")).sum()
    })
}

/// Checks that a flood leaves neither memory nor transactions behind; returns the number of answers. A quarter of it comes before the measurement,
/// and fills the caches that are made once.
fn assert_leaves_nothing(
    daemon: &Daemon,
    strangers: &[Peer],
    slack: u64,
    message: impl Fn(u32) -> Vec<u8> + Sync,
) -> usize {
    flood(strangers, 0..ROUNDS / 4, &message);
    let before = memory(daemon);
    let answers = flood(strangers, ROUNDS / 4..ROUNDS, &message);
    // The allocator returns free memory only from time to time.
    until(|| (memory(daemon) <= before + slack).then_some(()));
    assert_eq!(metric(daemon, "trunkline_sip_transactions"), 0.0);
    assert!(daemon.calls().is_empty(), "strangers leave no call");
    answers
}

/// Strangers in networks of their own.
fn strangers(daemon: &Daemon) -> [Peer; 4] {
    let on = |network| Peer::on(IpAddr::from([127, 20, network, 1]), daemon.sip());
    [1, 2, 3, 4].map(on)
}

#[test]
fn a_flood_of_invites_leaves_nothing() {
    let daemon = served_by_one();
    let number = daemon.setup.first_number.clone();
    let answers = assert_leaves_nothing(&daemon, &strangers(&daemon), SLACK_KIB, |id| {
        let dialling = Dialling::new(&format!("flood-{id}"), &number, daemon.sip());
        dialling.invite(1, "127.0.0.1:9".parse().expect("an address"))
    });
    assert!(answers > 0);
}

#[test]
fn a_flood_of_guessed_passwords_leaves_nothing() {
    let daemon = served_by_one();
    let number = daemon.setup.first_number.clone();
    let wrong = Credentials {
        password: "guess".to_owned(),
        ..daemon.credentials()
    };
    let caller = Caller::new(daemon.sip(), wrong);
    let dialling = Dialling::new("guess", &number, daemon.sip());
    let challenge = caller.challenge(&dialling);
    let line = caller.authorization(&challenge, &dialling, 1);
    let answers = assert_leaves_nothing(&daemon, &[Peer::new(daemon.sip())], CACHES_KIB, |id| {
        let dialling = Dialling::new(&format!("guess-{id}"), &number, daemon.sip()).with(&line);
        dialling.invite(1, "127.0.0.1:9".parse().expect("an address"))
    });
    assert!(answers > 0);
}

#[test]
fn a_flood_of_answers_leaves_nothing() {
    let daemon = served_by_one();
    let answers = assert_leaves_nothing(&daemon, &strangers(&daemon), SLACK_KIB, |id| {
        let status = [100, 180, 200, 486][id as usize % 4];
        format!(
            "SIP/2.0 {status} X\r\nVia: SIP/2.0/UDP {};branch=z9hG4bK00{id:027x}\r\nFrom: <sip:a>;tag=00{id:027x}\r\n\
             To: <sip:b>;tag={id}\r\nCall-ID: stray-{id}\r\nCSeq: 1 INVITE\r\nContact: <sip:b@127.0.0.1:9>\r\nContent-Length: 0\r\n\r\n",
            daemon.sip()
        )
        .into_bytes()
    });
    assert_eq!(answers, 0, "an answer is never answered");
}

/// Returns the lines of a challenge without random parts and the caller's own.
fn shape(challenge: &Message) -> Vec<String> {
    let text = challenge.text();
    let masked = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        match name {
            "Via" | "Call-ID" | "From" => name.to_owned(),
            "To" => format!(
                "{name} with a tag of {}",
                value.rsplit("tag=").next().map_or(0, str::len)
            ),
            "WWW-Authenticate" => {
                let (before, rest) = value.split_once("nonce=\"").expect("a nonce");
                let (nonce, behind) = rest.split_once('"').expect("a closed nonce");
                format!("{name}: {before}{}{behind}", nonce.len())
            }
            _ => line.to_owned(),
        }
    };

    text.lines().map(masked).collect()
}

/// An unknown user, a wrong password and no credentials get the same answer.
#[test]
fn nothing_tells_a_user_that_exists_from_one_that_does_not() {
    let daemon = served_by_one();
    let right = daemon.credentials();
    let number = daemon.setup.first_number.clone();
    let shape_for = |name: &str, credentials: Credentials| {
        let caller = Caller::new(daemon.sip(), credentials);
        shape(&caller.call(&Dialling::new(name, &number, daemon.sip())))
    };
    let wrong = shape_for(
        "wrong",
        Credentials {
            password: "guess".to_owned(),
            ..right.clone()
        },
    );

    let nobody = shape_for(
        "nobody",
        Credentials {
            username: "trunk-nobody".to_owned(),
            ..right.clone()
        },
    );

    let hostile = shape_for(
        "hostile",
        Credentials {
            username: "a\\\"b%00'--".to_owned(),
            ..right
        },
    );

    assert_eq!(wrong[0], "SIP/2.0 401 Unauthorized");
    assert!(
        wrong.iter().all(|line| !line.contains("stale=true")),
        "{wrong:?}"
    );
    assert_eq!(wrong, nobody);
    assert_eq!(wrong, hostile);
}

fn is_stale(answer: &Message) -> bool {
    assert_eq!(answer.status(), Some(401), "{answer}");
    Challenge::of(answer).stale
}

#[test]
fn an_answer_to_a_challenge_serves_once() {
    let mut daemon = served_by_one();
    let number = daemon.setup.first_number.clone();
    let caller = Caller::new(daemon.sip(), daemon.credentials());
    let first = Dialling::new("first", &number, daemon.sip());
    let challenge = caller.challenge(&first);
    let line = caller.authorization(&challenge, &first, 1);
    let answer = caller.ask(&first, &first.clone().with(&line));
    assert!(status_of(&answer) < 300, "{answer:?}");

    let answer_to = |id: &str, line: &str| {
        let dialling = Dialling::new(id, &number, daemon.sip());
        caller.ask(&dialling, &dialling.clone().with(line))
    };
    assert!(
        is_stale(&answer_to("replayed", &line)),
        "the same nonce and count"
    );

    let next = caller.authorization(&challenge, &first, 2);
    assert!(
        status_of(&answer_to("next", &next)) < 300,
        "the same nonce counts on"
    );
    let unused = caller.authorization(&challenge, &first, 3);

    // The second signal ends the calls as well.
    let ended = Deadline::after(Duration::from_secs(30)).poll(|| {
        daemon.process.terminate();
        daemon.process.exited()
    });
    assert!(ended.is_some(), "the daemon doesn't end");

    daemon.process = daemon.setup.start();
    let answer_to = |id: &str, line: &str| {
        let dialling = Dialling::new(id, &number, daemon.sip());
        caller.ask(&dialling, &dialling.clone().with(line))
    };
    assert!(
        is_stale(&answer_to("replayed-later", &line)),
        "the window is gone, and the nonce with it"
    );
    assert!(is_stale(&answer_to("late", &unused)));
}

/// A nonce of another node, of another time, or made up: only a peer with the password learns that it is stale.
#[test]
fn a_foreign_nonce_is_stale_for_those_who_know_the_password() {
    let daemon = served_by_one();
    let number = daemon.setup.first_number.clone();
    let elsewhere = served_by_one();
    let dialling = Dialling::new("elsewhere", &number, daemon.sip());
    let foreign = Caller::new(elsewhere.sip(), daemon.credentials()).challenge(&dialling);
    let realm = daemon.sip().ip();
    let made_up = format!(
        "SIP/2.0 401 X\r\nVia: SIP/2.0/UDP h\r\nFrom: <sip:a>\r\nTo: <sip:b>\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\n\
        WWW-Authenticate: Digest realm=\"{realm}\", nonce=\"made-up\", qop=\"auth\"\r\n\r\n"
    );
    let wrong = Credentials {
        password: "guess".to_owned(),
        ..daemon.credentials()
    };

    for (case, nonce_of) in [("foreign", &foreign), ("made-up", &Message::of(made_up))] {
        for (credentials, stale) in [(daemon.credentials(), true), (wrong.clone(), false)] {
            let caller = Caller::new(daemon.sip(), credentials);
            let line = caller.authorization(nonce_of, &dialling, 1);
            let id = format!("{case}-{stale}");
            let dialling = Dialling::new(&id, &number, daemon.sip()).with(&line);
            caller.peer.send(dialling.invite(1, caller.peer.own));
            assert_eq!(is_stale(&caller.peer.receive()), stale, "{case}");
        }
    }
    assert!(daemon.calls().is_empty());
}

/// The smallest requests that are complete. An answer may have twice their size, and a challenge is larger than that unless it is shortened.
#[test]
fn a_small_request_is_challenged_too() {
    let daemon = DaemonSetup::new()
        .set("TRUNKLINE__SIP__REALM", "sip.example-voice.com")
        .set("TRUNKLINE__SIP__DIGEST_SHA256", "true")
        .serve();
    let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    socket.connect(daemon.sip()).expect("connected");
    let limit = Some(Duration::from_secs(5));
    socket.set_read_timeout(limit).expect("a limit");
    let own = socket.local_addr().expect("an address");

    for method in ["INVITE", "REGISTER"] {
        let asked = format!(
            "{method} sip:a@b SIP/2.0\r\nv:SIP/2.0/UDP {own};branch=z9hG4bK{method}\r\nf:<sip:a@b>;tag=1\r\nt:<sip:a@b>\r\ni:1\r\n\
             CSeq:1 {method}\r\nMax-Forwards:70\r\nm:<sip:a@{own}>\r\n\r\n"
        );
        assert!(asked.len() < 200, "{}", asked.len());
        socket.send(asked.as_bytes()).expect("sent");
        let mut octets = [0; 4_096];
        let count = socket.recv(&mut octets).expect("an answer");
        let answer = String::from_utf8_lossy(&octets[..count]).into_owned();
        assert!(answer.starts_with("SIP/2.0 401 "), "{answer}");
        assert!(
            answer.contains("qop=\"auth\"") && answer.contains("nonce="),
            "{answer}"
        );
        assert!(count <= 2 * asked.len(), "{count}: {answer}");
    }
}
