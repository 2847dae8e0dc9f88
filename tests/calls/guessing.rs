//! Clients that answer a challenge for as long as its nonce is new, as those of pjsip do: a wrong password is tried once.

use trunkline_testkit::digest::{Asking, Challenge};
use trunkline_testkit::end::{End, SDP};
use trunkline_testkit::{Credentials, Daemon, House, Message};

/// More tries than that nobody needs.
const MOST: u32 = 20;

/// Sends one kind of request again and again.
struct Client<'d> {
    end: End,
    daemon: &'d Daemon,
    method: &'static str,
    cseq: u32,
}

/// The last answer, and what it answered.
struct Outcome {
    answer: Message,
    tries: u32,
    authorization: String,
}

impl<'d> Client<'d> {
    fn new(daemon: &'d Daemon, method: &'static str) -> Self {
        Self {
            end: End::new(daemon.sip()),
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
                self.daemon.house.first_number,
                self.daemon.sip()
            ),
        }
    }

    /// Sends a request of its own with this line: the final answer.
    fn send(&mut self, line: &str) -> Message {
        self.cseq += 1;
        let (method, uri, cseq, own) = (self.method, self.uri(), self.cseq, self.end.own);
        let name = self.daemon.credentials().username;
        let text = |method: &str, to: &str, rest: &str| {
            format!(
                "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{cseq};rport\r\nMax-Forwards: 70\r\n\
                 From: <sip:{name}@{own}>;tag=c{cseq}\r\nTo: {to}\r\nCall-ID: {cseq}@{own}\r\nCSeq: {cseq} {method}\r\n\
                 Contact: <sip:{own}>\r\n{rest}"
            )
        };
        let to = match method {
            "REGISTER" => format!("<sip:{name}@{own}>"),
            _ => format!("<{uri}>"),
        };
        let body = match method {
            "REGISTER" => "Content-Length: 0\r\n\r\n".to_owned(),
            _ => format!(
                "Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{SDP}",
                SDP.len()
            ),
        };
        self.end.send(&text(method, &to, &format!("{line}{body}")));
        let wanted = format!("{cseq} {method}");
        let is_final = |message: &Message| {
            let is_final = message.status().is_some_and(|status| status >= 200);
            is_final && message.header("CSeq") == Some(&wanted)
        };
        let (message, _) = self.end.next(&wanted, is_final);
        if method == "INVITE" {
            let to = message.header("To").expect("it is there").to_owned();
            self.end
                .send(&text("ACK", &to, "Content-Length: 0\r\n\r\n"));
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

    /// Answers for as long as the nonce is new.
    fn tries(&mut self, pair: &Credentials) -> Outcome {
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
    let daemon = House::new().serve();
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

        // The nonce that came back is as good as a new one, once.
        let refused = client.tries(&wrong);
        let (line, _) = client.answer_to(&refused.answer, &right);
        let accepted = client.send(&line);
        assert_eq!(accepted.status(), Some(200), "{method}");
        let replayed = client.send(&line);
        assert_eq!(replayed.status(), Some(401), "{method}");
        assert!(Challenge::of(&replayed).stale, "{method}");
        let (_, nonce) = client.answer_to(&replayed, &right);
        assert!(!line.contains(&nonce), "{method}: {line}");

        // Who knows the password needs one try.
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
