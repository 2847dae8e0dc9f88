//! A caller whose INVITEs are assembled from parts, with or without credentials.

use std::net::SocketAddr;

use trunkline_testkit::digest::{Asking, Challenge};
use trunkline_testkit::message::status_of;
use trunkline_testkit::peer::{TRIES, is_shed};
use trunkline_testkit::{Credentials, Message, Peer};

/// SDP in an INVITE's offer.
pub(crate) const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 40000 RTP/AVP 8\r\n";

/// Requests of one call. `id` is in its Call-ID, its From-tag and its branches.
#[derive(Debug, Clone)]
pub(crate) struct Dialling {
    pub(crate) id: String,
    pub(crate) uri: String,
    pub(crate) from: String,
    pub(crate) to: String,
    /// Further header lines.
    pub(crate) extra: String,
    pub(crate) body: String,
}

impl Dialling {
    pub(crate) fn new(id: &str, number: &str, daemon: SocketAddr) -> Self {
        Self {
            id: id.to_owned(),
            uri: format!("sip:{number}@{daemon}"),
            from: "<sip:+441632960001@pbx.invalid>".to_owned(),
            to: format!("<sip:{number}@{daemon}>"),
            extra: String::new(),
            body: OFFER.to_owned(),
        }
    }

    pub(crate) fn with(mut self, line: &str) -> Self {
        self.extra.push_str(line);
        self.extra.push_str("\r\n");
        self
    }

    /// Returns the INVITE with that CSeq.
    pub(crate) fn invite(&self, cseq: u32, caller: SocketAddr) -> Vec<u8> {
        let body = &self.body;
        let type_of_body = if body.is_empty() {
            ""
        } else {
            "Content-Type: application/sdp\r\n"
        };
        let head = self.head("INVITE", cseq, "", caller);
        format!(
            "{head}{}{type_of_body}Content-Length: {}\r\n\r\n{body}",
            self.extra,
            body.len()
        )
        .into_bytes()
    }

    /// Returns another request without a body. ACK and CANCEL have the branch of the INVITE with their CSeq.
    pub(crate) fn request(
        &self,
        method: &str,
        cseq: u32,
        to_tag: &str,
        caller: SocketAddr,
    ) -> Vec<u8> {
        let tag = if to_tag.is_empty() {
            String::new()
        } else {
            format!(";tag={to_tag}")
        };
        format!(
            "{}Content-Length: 0\r\n\r\n",
            self.head(method, cseq, &tag, caller)
        )
        .into_bytes()
    }

    fn head(&self, method: &str, cseq: u32, to_tag: &str, caller: SocketAddr) -> String {
        let Self {
            id, uri, from, to, ..
        } = self;
        let of = if matches!(method, "ACK" | "CANCEL") {
            "INVITE"
        } else {
            method
        };
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {caller};branch=z9hG4bK-{id}-{of}-{cseq};rport\r\nMax-Forwards: 70\r\n\
             From: {from};tag=f-{id}\r\nTo: {to}{to_tag}\r\nCall-ID: {id}@pbx.invalid\r\nCSeq: {cseq} {method}\r\n\
             Contact: <sip:caller@{caller}>\r\n"
        )
    }
}

/// A PBX.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) peer: Peer,
    credentials: Credentials,
}

impl Caller {
    pub(crate) fn new(daemon: SocketAddr, credentials: Credentials) -> Self {
        Self {
            peer: Peer::new(daemon),
            credentials,
        }
    }

    /// Returns the challenge to an INVITE without credentials.
    pub(crate) fn challenge(&self, dialling: &Dialling) -> Message {
        let challenge = self.ask(dialling, dialling);
        assert_eq!(challenge.status(), Some(401), "{challenge:?}");
        challenge
    }

    /// Sends an INVITE of `dialling` as `written`; returns the first response.
    pub(crate) fn ask(&self, dialling: &Dialling, written: &Dialling) -> Message {
        let cseq = if written.extra.contains("Authorization: ") {
            2
        } else {
            1
        };

        for _ in 0..TRIES {
            self.peer.send(written.invite(cseq, self.peer.own));
            let answer = self.answer(dialling);
            if !is_shed(&answer) {
                return answer;
            }
        }
        panic!("no turn for a new INVITE");
    }

    /// Returns the header that answers a challenge to `dialling`, with the nonce count `nc`.
    pub(crate) fn authorization(
        &self,
        challenge: &Message,
        dialling: &Dialling,
        nc: u32,
    ) -> String {
        let asking = Asking {
            method: "INVITE",
            uri: &dialling.uri,
            nc,
        };
        Challenge::of(challenge).answer(&asking, &self.credentials)
    }

    /// Returns the next response to a request of `dialling`; skips those of other calls.
    pub(crate) fn answer(&self, dialling: &Dialling) -> Message {
        let call_id = format!("{}@pbx.invalid", dialling.id);
        self.peer.next("answer", |message| {
            message.status().is_some() && message.header("Call-ID") == Some(&call_id)
        })
    }

    /// Returns `came` if it is final, else the next final response.
    pub(crate) fn final_answer(&self, dialling: &Dialling, came: Message) -> Message {
        let mut came = came;
        while status_of(&came) < 200 {
            came = self.answer(dialling);
        }
        came
    }

    /// Sends an INVITE with the answer to a challenge; returns the first response.
    pub(crate) fn dial(&self, dialling: &Dialling) -> Message {
        let challenge = self.challenge(dialling);
        let line = self.authorization(&challenge, dialling, 1);
        self.ask(dialling, &dialling.clone().with(&line))
    }

    /// Dials and returns the final response.
    pub(crate) fn call(&self, dialling: &Dialling) -> Message {
        let came = self.dial(dialling);
        self.final_answer(dialling, came)
    }

    /// Dials and acknowledges the 2xx that must come; returns the To-tag of the call.
    pub(crate) fn connect(&self, dialling: &Dialling) -> String {
        let answer = self.call(dialling);
        self.acknowledge(dialling, &answer)
    }

    /// Dials to a runtime that answers with these lines and this SDP; returns the To-tag of the call, and the INVITE that the runtime got.
    pub(crate) fn connect_to(
        &self,
        runtime: &Peer,
        dialling: &Dialling,
        (lines, sdp): (&str, &str),
    ) -> (String, Message) {
        let came = self.dial(dialling);
        let invite = runtime.request("INVITE");
        runtime.answer(&invite, "200 OK", lines, sdp);
        let tag = self.acknowledge(dialling, &self.final_answer(dialling, came));
        runtime.request("ACK");
        (tag, invite)
    }

    /// Acknowledges a 2xx; returns its To-tag.
    fn acknowledge(&self, dialling: &Dialling, answer: &Message) -> String {
        assert_eq!(answer.status(), Some(200), "{answer:?}");
        self.send(dialling, "ACK", 2, &answer.to_tag());
        answer.to_tag()
    }

    pub(crate) fn send(&self, dialling: &Dialling, method: &str, cseq: u32, to_tag: &str) {
        self.peer
            .send(dialling.request(method, cseq, to_tag, self.peer.own));
    }

    /// Hangs up; returns the status of the response.
    pub(crate) fn hang_up(&self, dialling: &Dialling, cseq: u32, to_tag: &str) -> u16 {
        self.send(dialling, "BYE", cseq, to_tag);
        status_of(&self.answer(dialling))
    }
}
