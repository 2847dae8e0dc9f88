//! Digest as a client: the library's, but MD5 alone, as phone systems use it.

use trunkline_sip::auth::client::{ChallengedMessage, Login, answer};
use trunkline_sip::auth::{Algorithm, Challenge};
use trunkline_sip::wire::{HeaderName, Message};

/// Returns the challenge of a 401 that asks for MD5.
pub fn challenge<'m>(response: &Message<'m>) -> Option<Challenge<'m>> {
    response
        .all(HeaderName::WwwAuthenticate)
        .filter_map(|value| Challenge::parse(value).ok())
        .find(|challenge| Algorithm::read(challenge.algorithm) == Some(Algorithm::Md5))
}

/// A user name and its password.
#[derive(Clone, Debug)]
pub struct Account {
    /// Digest user name.
    pub user: String,
    /// Digest password.
    pub password: String,
}

impl Account {
    /// Returns the value of Authorization for a request without a body that counts. Every challenge has a nonce of its own, so that the
    /// count is always 1.
    pub fn authorization(
        &self,
        challenge: &Challenge<'_>,
        method: &str,
        uri: &[u8],
        cnonce: &str,
    ) -> Option<String> {
        let challenged = ChallengedMessage {
            method,
            uri,
            body: b"",
        };
        let login = Login {
            user: &self.user,
            password: &self.password,
        };
        answer(challenge, &challenged, &login, 1, cnonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::read;

    #[test]
    fn md5_is_answered_whatever_is_offered_first() {
        let response = "SIP/2.0 401 Unauthorized\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=c1\r\n\
            To: <sip:b@c>;tag=u\r\nCall-ID: 1@a\r\nCSeq: 7 INVITE\r\n\
            WWW-Authenticate: Digest realm=\"r\", nonce=\"n1\", algorithm=SHA-256, qop=\"auth\"\r\n\
            WWW-Authenticate: Digest realm=\"r\", nonce=\"n2\", algorithm=MD5, qop=\"auth\"\r\nContent-Length: 0\r\n\r\n";
        let message = read(response.as_bytes()).expect("a response");
        let challenge = challenge(&message).expect("MD5");
        assert_eq!(challenge.nonce, b"n2");

        let account = Account {
            user: "ada".to_owned(),
            password: "secret".to_owned(),
        };
        let value = account.authorization(&challenge, "INVITE", b"sip:b@c", "1");
        let value = value.expect("an answer");
        assert!(value.contains("nc=00000001") && value.contains("nonce=\"n2\""));
    }
}
