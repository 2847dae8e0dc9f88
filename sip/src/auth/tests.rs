//! Client and server against each other: each test answers our own challenges, and tampers with the answers.

use std::time::Duration;

use super::client::{ChallengedMessage, Login, answer};
use super::*;
use crate::entropy::Entropy;
use crate::flow::{Flow, Transport};
use crate::moment::Moment;
use crate::wire::{Framing, lex};

const NOW: Moment = Moment::from_secs(1_790_000_000);
const REALM: &str = "trunk \"one\"";
const URI: &str = "sip:+14155550100@203.0.113.7:5060;transport=udp";

fn octets(method: &str, uri: &str, lines: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
         To: <sip:c@d>\r\nCall-ID: x\r\nCSeq: 2 {method}\r\nMax-Forwards: 70\r\n{lines}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

struct Server {
    nonces: Nonces,
    window: NonceWindow,
    algorithms: Vec<Algorithm>,
    secret: Secret,
    entropy: Entropy,
    /// Source of the next request.
    source: NonceSource,
}

fn source(peer: &str) -> NonceSource {
    let peer = peer.parse().unwrap();
    NonceSource::of(&Flow {
        transport: Transport::Udp,
        listener: 0,
        connection: 0,
        local: peer,
        peer,
    })
}

impl Server {
    fn new() -> Self {
        Self {
            nonces: Nonces::new(
                NonceKeys {
                    node: [7; 32],
                    deployment: [0; 32],
                },
                LIFETIME,
            ),
            window: NonceWindow::new(LIFETIME, 1000),
            algorithms: Algorithm::ALL.into(),
            secret: Secret::new("pbx\\1", REALM, "s3cret"),
            entropy: Entropy::from_seed([3; 32]),
            source: source("192.0.2.1:5060"),
        }
    }

    fn challenges(&mut self, stale: bool) -> String {
        let nonce = self
            .nonces
            .issue(5, source("192.0.2.1:5060"), &mut self.entropy, NOW);
        let mut lines = Vec::new();
        challenge(
            &mut Head::new(&mut lines),
            REALM,
            nonce.as_str(),
            stale,
            &self.algorithms,
        );
        String::from_utf8(lines).unwrap()
    }

    fn judge(&self, request: &[u8], now: Moment) -> Option<Verdict> {
        let message = lex(request, Framing::Datagram).unwrap();
        let credentials = credentials(&message, REALM)?;
        assert_eq!(&*credentials.username_unescaped(), br"pbx\1");
        Some(self.judge_as(&self.secret, &credentials, &message, now))
    }

    fn judge_as(
        &self,
        secret: &Secret,
        credentials: &Credentials<'_>,
        message: &Message<'_>,
        now: Moment,
    ) -> Verdict {
        let (nonces, window) = (&self.nonces, &self.window);
        verify(
            credentials,
            message,
            secret,
            nonces,
            window,
            self.policy(),
            now,
        )
    }

    fn policy(&self) -> Policy<'_> {
        Policy {
            algorithms: &self.algorithms,
            source: self.source,
        }
    }
}

fn response(challenges: &str) -> Vec<u8> {
    format!(
        "SIP/2.0 401 Unauthorized\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
         To: <sip:c@d>;tag=2\r\nCall-ID: x\r\nCSeq: 1 INVITE\r\n{challenges}Content-Length: 0\r\n\r\n"
    )
    .into_bytes()
}

/// The INVITE that answers the first challenge that can be answered.
fn answered(challenges: &str, password: &str, nc: u32) -> String {
    let response = response(challenges);
    let message = lex(&response, Framing::Datagram).unwrap();
    let (name, challenge) = client::challenge(&message).expect("a challenge");
    assert_eq!(name, HeaderName::Authorization);

    let challenged = ChallengedMessage {
        method: "INVITE",
        uri: URI.as_bytes(),
        body: b"v=0\r\n",
    };
    let login = Login {
        user: "pbx\\1",
        password,
    };

    let value = answer(&challenge, &challenged, &login, nc, "c0ffee").expect("an answer");
    String::from_utf8(octets(
        "INVITE",
        URI,
        &format!("Authorization: {value}\r\n"),
        "v=0\r\n",
    ))
    .unwrap()
}

#[test]
fn the_right_password_passes_once_under_each_algorithm() {
    for algorithm in Algorithm::ALL {
        let mut server = Server::new();
        server.algorithms = vec![algorithm];
        let challenges = server.challenges(false);
        assert!(
            challenges.contains(&format!("algorithm={algorithm}, qop=\"auth\"\r\n")),
            "{challenges}"
        );

        for (name, nc, verdict) in [
            ("first use", 1, Verdict::Ok),
            ("the same again", 1, Verdict::Stale),
            ("the next count", 2, Verdict::Ok),
            ("a hex digit", 10, Verdict::Ok),
        ] {
            let request = answered(&challenges, "s3cret", nc);
            assert_eq!(
                server.judge(request.as_bytes(), NOW),
                Some(verdict),
                "{algorithm}, {name}"
            );
        }
    }
}

#[test]
fn each_part_that_is_wrong_is_named() {
    let mut server = Server::new();
    let challenges = server.challenges(false);
    let right = answered(&challenges, "s3cret", 1);
    let port_changed = right.replacen(":5060;transport=udp", "", 1);

    for (name, request, verdict) in [
        (
            "wrong password",
            answered(&challenges, "secret", 1),
            Verdict::Wrong(WrongPart::Password),
        ),
        (
            "another method",
            right.replace("INVITE", "UPDATE"),
            Verdict::Wrong(WrongPart::Password),
        ),
        (
            "another user asked for",
            right.replacen("+14155550100", "+14155550199", 1),
            Verdict::Wrong(WrongPart::Uri),
        ),
        (
            "an unreadable uri",
            right.replacen("uri=\"sip:", "uri=\"sip:@", 1),
            Verdict::Wrong(WrongPart::Uri),
        ),
        (
            "an algorithm not offered",
            right.replace("=MD5", "=MD5-sess"),
            Verdict::Wrong(WrongPart::Algorithm),
        ),
        (
            "a response too short",
            right.replace("response=\"", "response=\"0"),
            Verdict::Wrong(WrongPart::Password),
        ),
        (
            "no count",
            right.replace(", nc=00000001", ""),
            Verdict::Wrong(WrongPart::Malformed),
        ),
        (
            "a count that is none",
            right.replace("nc=00000001", "nc=x"),
            Verdict::Wrong(WrongPart::Malformed),
        ),
        (
            "no client nonce",
            right.replace("cnonce", "dnonce"),
            Verdict::Wrong(WrongPart::Malformed),
        ),
        (
            "unknown protection",
            right.replace("qop=auth", "qop=conf"),
            Verdict::Wrong(WrongPart::Malformed),
        ),
        (
            "no qop",
            right.replace("qop=auth", "pop=auth"),
            Verdict::Wrong(WrongPart::Malformed),
        ),
        (
            "a nonce made up",
            right.replace("nonce=\"A", "nonce=\"B"),
            Verdict::Wrong(WrongPart::Password),
        ),
        ("a proxy changed the host", port_changed, Verdict::Ok),
    ] {
        assert_ne!(request, right, "{name}: nothing was changed");
        assert_eq!(
            server.judge(request.as_bytes(), NOW),
            Some(verdict),
            "{name}"
        );
    }

    assert_eq!(
        server.window.len(),
        1,
        "only the right answer entered the window"
    );
}

#[test]
fn an_old_or_foreign_nonce_is_stale_to_who_knows_the_password_alone() {
    let mut server = Server::new();
    let challenges = server.challenges(false);
    let late = NOW + LIFETIME + Duration::from_secs(1);
    let right = answered(&challenges, "s3cret", 1);
    let wrong = answered(&challenges, "secret", 1);
    assert_eq!(server.judge(right.as_bytes(), late), Some(Verdict::Stale));
    assert_eq!(
        server.judge(wrong.as_bytes(), late),
        Some(Verdict::Wrong(WrongPart::Password))
    );

    server.nonces = Nonces::new(
        NonceKeys {
            node: [8; 32],
            deployment: [0; 32],
        },
        LIFETIME,
    );

    assert_eq!(server.judge(right.as_bytes(), NOW), Some(Verdict::Stale));
    assert!(server.window.is_empty());
    assert!(
        server
            .challenges(true)
            .contains(", stale=true, algorithm=MD5")
    );
}

#[test]
fn a_nonce_of_another_source_is_stale() {
    let mut server = Server::new();
    let challenges = server.challenges(false);
    let right = answered(&challenges, "s3cret", 1);
    server.source = source("198.51.100.9:5060");
    assert_eq!(server.judge(right.as_bytes(), NOW), Some(Verdict::Stale));
    assert!(server.window.is_empty(), "its count isn't used up");
    server.source = source("192.0.2.7:1024");
    assert_eq!(server.judge(right.as_bytes(), NOW), Some(Verdict::Ok));
}

#[test]
fn a_password_is_proved_without_using_up_the_count() {
    let mut server = Server::new();
    let challenges = server.challenges(false);
    let right = answered(&challenges, "s3cret", 1);
    let wrong = answered(&challenges, "secret", 1);
    let late = NOW + LIFETIME + Duration::from_secs(1);
    let proves = |server: &Server, secret: &Secret, request: &str, now: Moment| {
        let message = lex(request.as_bytes(), Framing::Datagram).unwrap();
        let credentials = credentials(&message, REALM).unwrap();
        let (nonces, window, policy) = (&server.nonces, &server.window, server.policy());
        proves_password(&credentials, &message, secret, nonces, window, policy, now)
    };

    assert!(proves(&server, &server.secret, &right, NOW));
    for (case, secret, request, now) in [
        ("a nonce and another password", &server.secret, &*wrong, NOW),
        ("an unknown user", server.nonces.decoy(), &right, NOW),
        ("an old nonce", &server.secret, &right, late),
        (
            "a nonce made up",
            &server.secret,
            &right.replace("nonce=\"A", "nonce=\"B"),
            NOW,
        ),
        (
            "no count",
            &server.secret,
            &right.replace(", nc=00000001", ""),
            NOW,
        ),
    ] {
        assert!(!proves(&server, secret, request, now), "{case}");
    }
    assert_eq!(server.judge(right.as_bytes(), NOW), Some(Verdict::Ok));

    server.source = source("198.51.100.9:5060");
    assert!(!proves(&server, &server.secret, &right, NOW), "forged");
}

#[test]
fn an_answer_without_qop_is_refused() {
    let mut server = Server::new();
    let challenges = server.challenges(false).replace(", qop=\"auth\"", "");
    let request = answered(&challenges, "s3cret", 1);
    assert!(!request.contains("qop"));
    assert_eq!(
        server.judge(request.as_bytes(), NOW),
        Some(Verdict::Wrong(WrongPart::Malformed))
    );
}

#[test]
fn auth_int_covers_the_body() {
    let mut server = Server::new();
    let challenges = server
        .challenges(false)
        .replace("qop=\"auth\"", "qop=\"auth-int\"");
    let request = answered(&challenges, "s3cret", 1);
    let tampered = request.replace("\r\n\r\nv=0", "\r\n\r\nv=1");
    assert_eq!(
        server.judge(tampered.as_bytes(), NOW),
        Some(Verdict::Wrong(WrongPart::Password))
    );
    assert_eq!(server.judge(request.as_bytes(), NOW), Some(Verdict::Ok));
}

#[test]
fn an_unknown_user_meets_the_same_checks_and_never_passes() {
    let mut server = Server::new();
    let challenges = server.challenges(false);
    let right = answered(&challenges, "s3cret", 1);

    for (request, part) in [
        (right.clone(), WrongPart::Password),
        (right.replace("=MD5", "=SHA-3"), WrongPart::Algorithm),
        (right.replace("qop=auth", "qop=conf"), WrongPart::Malformed),
    ] {
        let message = lex(request.as_bytes(), Framing::Datagram).unwrap();
        let credentials = credentials(&message, REALM).unwrap();
        let verdict = server.judge_as(server.nonces.decoy(), &credentials, &message, NOW);
        assert_eq!(verdict, Verdict::Wrong(part));
    }

    assert!(server.window.is_empty());
}

#[test]
fn credentials_for_another_realm_or_unreadable_ones_are_passed_over() {
    let mut server = Server::new();
    let ours = answered(&server.challenges(false), "s3cret", 1);
    let foreign = ours.replace("trunk ", "another ");
    let message = lex(foreign.as_bytes(), Framing::Datagram).unwrap();
    assert!(credentials(&message, REALM).is_none());
    let both = ours.replace(
        "Max-Forwards: 70\r\n",
        "Authorization: Digest x\r\nAuthorization: Basic eDp5\r\n",
    );
    assert_eq!(server.judge(both.as_bytes(), NOW), Some(Verdict::Ok));
}

#[test]
fn a_client_takes_the_first_challenge_it_can_answer() {
    let unknown =
        "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", algorithm=SHA-3, qop=\"auth\"\r\n";
    let conf = "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", qop=\"conf\"\r\n";
    let sha =
        "WWW-Authenticate: Digest realm=\"r\", nonce=\"n\", algorithm=SHA-256, qop=\"auth\"\r\n";
    let md5 = "WWW-Authenticate: Digest realm=\"r\", nonce=\"m\"\r\n";

    for (name, status, lines, nonce) in [
        ("best first", "401", [unknown, sha, md5].concat(), Some("n")),
        ("no known quality", "401", [conf, md5].concat(), Some("m")),
        ("none to answer", "401", [unknown, conf].concat(), None),
        ("a proxy's", "407", md5.replace("WWW", "Proxy"), Some("m")),
        (
            "a proxy's in a 401",
            "401",
            md5.replace("WWW", "Proxy"),
            None,
        ),
        ("no challenge at all", "403", md5.into(), None),
    ] {
        let octets = String::from_utf8(response(&lines))
            .unwrap()
            .replace("401", status)
            .into_bytes();
        let message = lex(&octets, Framing::Datagram).unwrap();

        let chosen = client::challenge(&message);
        assert_eq!(
            chosen.map(|(_, challenge)| challenge.nonce),
            nonce.map(str::as_bytes),
            "{name}"
        );
        if let Some((header, _)) = chosen {
            assert_eq!(
                header == HeaderName::ProxyAuthorization,
                status == "407",
                "{name}"
            );
        }
    }
}
