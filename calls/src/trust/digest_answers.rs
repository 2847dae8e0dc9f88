//! Our digest answers to a peer's 401 and 407, collected over the attempts of one request (RFC 3261 §22.1, §22.3): several servers on the path may
//! each challenge.
//!
//! A realm is answered again only if its nonce has become stale, and at most a few times: wrong credentials, and a peer that never accepts, end in
//! its refusal.

use smallvec::SmallVec;
use trunkline_model::view::PeerLogin;
use trunkline_sip::auth::client;
use trunkline_sip::auth::client::{ChallengedMessage, Login};
use trunkline_sip::header::text::unescape_pairs;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};

/// Realms on the way to one peer. A further one isn't answered.
const MAX_REALMS: usize = 4;
/// Answers to one realm for one request. A further challenge isn't answered.
const MAX_ANSWERS: u32 = 3;

/// A sent request inside a call, kept to repeat it with credentials or by another connection.
#[derive(Debug)]
pub(crate) struct RepeatableRequest {
    pub(crate) lines: Box<[u8]>,
    pub(crate) body: Box<[u8]>,
    pub(crate) digest_answers: DigestAnswers,
}

/// Challenges that have been answered so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct DigestAnswers(SmallVec<[DigestAnswer; 1]>);

#[derive(Clone)]
struct DigestAnswer {
    header: HeaderName,
    /// Without escapes.
    realm: Box<[u8]>,
    value: String,
    /// Number of answers to this realm.
    answers: u32,
}

impl DigestAnswers {
    /// Answers the challenge in a 401 or 407 to the request `challenged`, which is then sent again with [`Self::lines`]. False if it can't be answered,
    /// or was answered before.
    pub(crate) fn answer(
        &mut self,
        response: &Message<'_>,
        challenged: &ChallengedMessage<'_>,
        login: &PeerLogin,
        random: u128,
    ) -> bool {
        let Some((header, challenge)) = client::challenge(response) else {
            return false;
        };

        let Self(held) = self;
        let before = held
            .iter()
            .position(|proof| proof.header == header && proof.is_for(challenge.realm));
        let answers = before.map_or(0, |at| held[at].answers);
        let again = before.is_some();
        // RFC 3261 §22.1: no request again "with the credentials that have just been rejected", but for a stale nonce.
        if (again && !challenge.stale)
            || answers >= MAX_ANSWERS
            || (!again && held.len() >= MAX_REALMS)
        {
            return false;
        }

        let login = Login {
            user: &login.user,
            password: &login.password,
        };
        let cnonce = format!("{random:032x}");

        // A nonce is used for one request only, so the count is always 1.
        let Some(value) = client::answer(&challenge, challenged, &login, 1, &cnonce) else {
            return false;
        };

        let proof = DigestAnswer {
            header,
            realm: unescape_pairs(challenge.realm).into(),
            value,
            answers: answers + 1,
        };
        match before {
            Some(at) => held[at] = proof,
            None => held.push(proof),
        }

        true
    }

    /// Returns whether this realm was answered, to either status.
    pub(crate) fn has_answered(&self, realm: &[u8]) -> bool {
        self.0.iter().any(|proof| proof.is_for(realm))
    }

    /// Writes Authorization and Proxy-Authorization.
    pub(crate) fn lines(&self, head: &mut Head<'_>) {
        for proof in &self.0 {
            head.line(proof.header.as_str(), proof.value.as_bytes());
        }
    }
}

impl DigestAnswer {
    /// Returns whether it is for a realm as written in a challenge.
    fn is_for(&self, realm: &[u8]) -> bool {
        *self.realm == *unescape_pairs(realm)
    }
}

impl std::fmt::Debug for DigestAnswer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proof")
            .field("header", &self.header)
            .field("answers", &self.answers)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    fn answers(digest_answers: &mut DigestAnswers, status: &str, challenge: &str) -> bool {
        let octets = format!(
            "SIP/2.0 {status} No\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
             Call-ID: x\r\nCSeq: 1 INVITE\r\n{challenge}\r\nContent-Length: 0\r\n\r\n"
        );
        let response = lex(octets.as_bytes(), Framing::Datagram).unwrap();
        let challenged = ChallengedMessage {
            method: "INVITE",
            uri: b"sip:c@d",
            body: b"",
        };
        let login = PeerLogin {
            user: "u".into(),
            password: "p".into(),
        };
        digest_answers.answer(&response, &challenged, &login, 7)
    }

    fn www(rest: &str) -> String {
        format!("WWW-Authenticate: Digest {rest}")
    }

    fn lines(digest_answers: &DigestAnswers) -> String {
        let mut out = Vec::new();
        digest_answers.lines(&mut Head::new(&mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_realm_is_answered_once_and_again_only_when_stale() {
        let mut digest_answers = DigestAnswers::default();
        let first = www("realm=\"r\", nonce=\"1\", qop=\"auth\", algorithm=MD5");
        assert!(answers(&mut digest_answers, "401", &first));
        assert!(lines(&digest_answers).contains("nonce=\"1\""));
        let other_nonce = www("realm=\"r\", nonce=\"2\", qop=\"auth\"");
        assert!(
            !answers(&mut digest_answers, "401", &other_nonce),
            "wrong password"
        );
        for (nonce, taken) in [("3", true), ("4", true), ("5", false)] {
            let stale = www(&format!(
                "realm=\"r\", nonce=\"{nonce}\", qop=\"auth\", stale=true"
            ));
            assert_eq!(
                answers(&mut digest_answers, "401", &stale),
                taken,
                "{nonce}"
            );
        }
        assert!(lines(&digest_answers).contains("nonce=\"4\""));
        assert_eq!(lines(&digest_answers).matches("Authorization").count(), 1);
    }

    #[test]
    fn a_proxy_and_a_server_are_both_answered() {
        let mut digest_answers = DigestAnswers::default();
        assert!(answers(
            &mut digest_answers,
            "407",
            "Proxy-Authenticate: Digest realm=\"p\", nonce=\"1\""
        ));
        assert!(answers(
            &mut digest_answers,
            "401",
            &www("realm=\"r\", nonce=\"1\"")
        ));
        let lines = lines(&digest_answers);
        assert!(lines.contains("Proxy-Authorization: Digest"), "{lines}");
        assert!(lines.contains("\r\nAuthorization: Digest"), "{lines}");
    }

    #[test]
    fn what_cannot_be_answered_is_not() {
        for (case, challenge) in [
            ("none", "X-A: b".to_owned()),
            (
                "another scheme",
                "WWW-Authenticate: Basic realm=\"r\"".to_owned(),
            ),
            (
                "an unknown algorithm",
                www("realm=\"r\", nonce=\"1\", algorithm=X"),
            ),
        ] {
            let mut digest_answers = DigestAnswers::default();
            assert!(!answers(&mut digest_answers, "401", &challenge), "{case}");
            assert_eq!(lines(&digest_answers), "", "{case}");
        }
    }
}
