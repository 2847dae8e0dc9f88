//! Clients that keep answering a challenge while its nonce is fresh, like those of pjsip: a wrong password is tried once.

use std::time::Duration;

use trunkline_testkit::dialog::Dialog;
use trunkline_testkit::digest::{Asking, Challenge};
use trunkline_testkit::message::SDP;
use trunkline_testkit::{Credentials, Daemon, DaemonSetup, Deadline, Message, Peer, http};

/// Time until failed log-ins are stored.
const WRITTEN: Duration = Duration::from_secs(10);
/// Bound on tries, far above what any client needs.
const MOST: u32 = 20;

/// Sends one kind of request repeatedly.
pub(crate) struct Client<'d> {
    end: Peer,
    daemon: &'d Daemon,
    method: &'static str,
    cseq: u32,
}

/// The last answer, and the request that it answered.
pub(crate) struct Outcome {
    pub(crate) answer: Message,
    tries: u32,
    authorization: String,
}

impl<'d> Client<'d> {
    pub(crate) fn new(daemon: &'d Daemon, method: &'static str) -> Self {
        Self {
            end: Peer::new(daemon.sip()),
            daemon,
            method,
            cseq: 0,
        }
    }

    fn uri(&self) -> String {
        match self.method {
            "REGISTER" => format!("sip:{}", self.daemon.sip()),
            _ => format!(
                "sip:{}@{}",
                self.daemon.setup.first_number,
                self.daemon.sip()
            ),
        }
    }

    /// Sends a new request with this line; returns the final answer.
    fn send(&mut self, line: &str) -> Message {
        self.send_copies(line, 1)
    }

    /// Sends a new request so many times, as if its answers were late; returns the last of them.
    fn send_copies(&mut self, line: &str, copies: u32) -> Message {
        self.cseq += 1;
        let (method, uri, cseq) = (self.method, self.uri(), self.cseq);
        let name = self.daemon.credentials().username;
        let mut dialog = Dialog::calling(&uri, &name, &cseq.to_string(), &self.end);
        let mut body = SDP;
        if method == "REGISTER" {
            (dialog.to, body) = (format!("<sip:{name}@{}>", self.end.own), "");
        }

        let request = dialog.request(&self.end, (cseq, method), line, body);
        (0..copies).for_each(|_| self.end.send(&request));
        let mut outcomes: Vec<Message> = (0..copies)
            .map(|_| self.end.outcome(&format!("{cseq} {method}")))
            .collect();
        let message = outcomes.pop().expect("an answer");
        if method == "INVITE" {
            self.end.send(dialog.ack(&self.end, cseq, &message));
        }
        message
    }

    fn answer_to(&self, refused: &Message, pair: &Credentials) -> (String, String) {
        let challenge = Challenge::of(refused);
        let asking = Asking {
            method: self.method,
            uri: &self.uri(),
            nc: 1,
        };
        let line = challenge.answer(&asking, pair);
        (format!("{line}\r\n"), challenge.nonce)
    }

    /// Answers challenges for as long as the nonce is new.
    pub(crate) fn tries(&mut self, pair: &Credentials) -> Outcome {
        let mut message = self.send("");
        let (mut tries, mut authorization, mut known) = (0, String::new(), String::new());
        while message.status() == Some(401) && tries < MOST {
            let (line, nonce) = self.answer_to(&message, pair);
            if nonce == known {
                break;
            }
            (known, authorization) = (nonce, line);
            tries += 1;
            message = self.send(&authorization);
        }

        Outcome {
            answer: message,
            tries,
            authorization,
        }
    }
}

#[test]
fn a_wrong_password_is_tried_once_and_its_nonce_lets_nobody_in_twice() {
    let daemon = DaemonSetup::new().serve();
    let right = daemon.credentials();
    let wrong = Credentials {
        password: "guess".to_owned(),
        ..right.clone()
    };
    let nobody = Credentials {
        username: "nobody".to_owned(),
        ..wrong.clone()
    };

    for method in ["INVITE", "REGISTER"] {
        let mut client = Client::new(&daemon, method);
        for (case, pair) in [("a wrong password", &wrong), ("no such user", &nobody)] {
            let outcome = client.tries(pair);
            assert_eq!(
                (outcome.answer.status(), outcome.tries),
                (Some(401), 1),
                "{method}, {case}"
            );
            assert!(!Challenge::of(&outcome.answer).stale, "{method}, {case}");
        }

        // The nonce that came back is good for one use, like a new one.
        let refused = client.tries(&wrong);
        let (line, _) = client.answer_to(&refused.answer, &right);
        let accepted = client.send(&line);
        assert_eq!(accepted.status(), Some(200), "{method}");
        let replayed = client.send(&line);
        assert_eq!(replayed.status(), Some(401), "{method}");
        assert!(Challenge::of(&replayed).stale, "{method}");
        let (_, nonce) = client.answer_to(&replayed, &right);
        assert!(!line.contains(&nonce), "{method}: {line}");

        // A client that has the password needs one try.
        let outcome = client.tries(&right);
        assert_eq!(
            (outcome.answer.status(), outcome.tries),
            (Some(200), 1),
            "{method}"
        );
        let replayed = client.send(&outcome.authorization);
        assert_eq!(replayed.status(), Some(401), "{method}");
    }
}

#[test]
fn a_guess_is_counted_once_however_often_it_is_sent() {
    let daemon = DaemonSetup::new().serve();
    let wrong = Credentials {
        password: "guess".to_owned(),
        ..daemon.credentials()
    };
    let noted = || {
        let shown = daemon.shown("/phone/sip/inbound-trunk/auth-failures");
        shown["total"].as_u64().expect("a number")
    };

    let mut guesses = 0;
    for method in ["INVITE", "REGISTER"] {
        let mut client = Client::new(&daemon, method);
        let mut refused = client.send("");
        for _ in 0..3 {
            let (line, _) = client.answer_to(&refused, &wrong);
            refused = client.send_copies(&line, 4);
            assert_eq!(refused.status(), Some(401));
            guesses += 1;
        }

        // Failures are stored in their order, and none of a copy can come after the last guess.
        let written = Deadline::after(WRITTEN).poll(|| (noted() >= guesses).then_some(()));
        assert!(written.is_some(), "{method}");
        assert_eq!(noted(), guesses, "{method}");
    }
}

/// A tenant that lists the PBX of another on its trunk learns nothing of that PBX's log-ins; the tenant whose number the PBX dials does.
#[test]
fn a_tenant_that_lists_anothers_pbx_sees_none_of_its_log_ins() {
    let setup = DaemonSetup::new();
    let attacker = setup.run(&["org", "create", "--name", "Attacker", "--json"]);
    let attacker = attacker["id"].as_str().expect("an id").to_owned();
    let number = "+493099999999";
    setup.run(&[
        "number",
        "add",
        number,
        "--org",
        &attacker,
        "--verified",
        "--json",
    ]);
    let key = setup.run(&["key", "create", "--org", &attacker, "--json"]);
    let key = key["api_key"].as_str().expect("a key").to_owned();
    let daemon = setup.serve();
    let (http, own) = (daemon.setup.http, daemon.setup.key.clone());

    let trunk = "/phone/sip/inbound-trunk";
    let listed = serde_json::json!({"allowed_addresses": ["127.0.0.1/32"]});
    let (status, made) = http::change("POST", http, trunk, &key, &listed);
    assert_eq!(status, 201, "{made}");
    daemon.setup.settle();

    let failures = |key: &str| {
        let page = http::json(http, &format!("{trunk}/auth-failures"), key);
        page["total"].as_u64().expect("a number")
    };
    let nobody = Credentials {
        username: "old-user".to_owned(),
        password: "old-password".to_owned(),
    };
    let log_in = || {
        for method in ["REGISTER", "INVITE"] {
            let mut client = Client::new(&daemon, method);
            let refused = client.send("");
            let (line, _) = client.answer_to(&refused, &nobody);
            assert_eq!(client.send(&line).status(), Some(401), "{method}");
        }
    };

    log_in();
    // Once the owner lists it too, the owner is told of the call to its own number, and nobody of the REGISTER.
    let (status, changed) = http::change("PATCH", http, trunk, &own, &listed);
    assert_eq!(status, 200, "{changed}");
    daemon.setup.settle();
    log_in();
    let told = Deadline::after(WRITTEN).poll(|| (failures(&own) == 1).then_some(()));
    assert!(told.is_some(), "{}", failures(&own));
    assert_eq!(failures(&key), 0);
}
