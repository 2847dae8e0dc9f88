//! Digest authentication in the tests' own code (RFC 2617, RFC 7616): reads and answers challenges, and checks answers.

use std::collections::HashMap;

use md5::{Digest as _, Md5};
use sha2::Sha256;

use crate::Message;

/// A trunk's digest user.
#[derive(Debug, Clone)]
pub struct Credentials {
    pub username: String,
    pub password: String,
}

/// A challenge of a 401 or 407.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Challenge {
    /// The header that answers it: `Authorization` or `Proxy-Authorization`.
    pub answered_in: &'static str,
    pub realm: String,
    pub nonce: String,
    pub opaque: Option<String>,
    pub qop: Option<String>,
    pub stale: bool,
    sha256: bool,
}

/// The request that answers a challenge.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    pub method: &'a str,
    /// The Request-URI as sent.
    pub uri: &'a str,
    /// The count of uses of the nonce, from 1 on.
    pub nc: u32,
}

impl Challenge {
    /// The first challenge of a response.
    pub fn of(response: &Message) -> Self {
        let (asked_in, answered_in) = match response.status() {
            Some(401) => ("WWW-Authenticate", "Authorization"),
            Some(407) => ("Proxy-Authenticate", "Proxy-Authorization"),
            _ => panic!("no challenge: {}", response.start_line()),
        };

        let value = response.header(asked_in).expect("a challenge");
        let mut parts = parts(value);
        let mut part = |name: &str| parts.remove(name);
        let algorithm = part("algorithm").unwrap_or_default();

        Self {
            answered_in,
            realm: part("realm").unwrap_or_default(),
            nonce: part("nonce").unwrap_or_default(),
            opaque: part("opaque"),
            qop: part("qop"),
            stale: part("stale").is_some_and(|stale| stale.eq_ignore_ascii_case("true")),
            sha256: algorithm.eq_ignore_ascii_case("SHA-256"),
        }
    }

    /// The header line that answers the challenge with these credentials, without its line end.
    pub fn answer(&self, asking: &Asking<'_>, credentials: &Credentials) -> String {
        let Self { realm, nonce, .. } = self;
        let Asking { method, uri, nc } = asking;
        let user = &credentials.username;
        let secret = self.hash(&[user, realm, &credentials.password]);
        let asked = self.hash(&[method, uri]);

        let (response, count) = if self.qop.is_some() {
            let nc = format!("{nc:08x}");
            let response = self.hash(&[&secret, nonce, &nc, "c0", "auth", &asked]);
            (response, format!(", qop=auth, nc={nc}, cnonce=\"c0\""))
        } else {
            (self.hash(&[&secret, nonce, &asked]), String::new())
        };

        let algorithm = if self.sha256 { "SHA-256" } else { "MD5" };
        let opaque = self.opaque.as_ref();
        let opaque = opaque.map_or_else(String::new, |value| format!(", opaque=\"{value}\""));
        let name = self.answered_in;
        format!(
            "{name}: Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\", response=\"{response}\", \
             algorithm={algorithm}{count}{opaque}"
        )
    }

    fn hash(&self, parts: &[&str]) -> String {
        if self.sha256 {
            hex(&Sha256::digest(parts.join(":")))
        } else {
            md5(parts)
        }
    }
}

/// Returns true if this header proves that the sender has these credentials (RFC 2617 §3.2.2, MD5, with or without `qop`).
pub fn proves(request: &Message, header: &str, method: &str, credentials: &Credentials) -> bool {
    let parts = parts(request.header(header).unwrap_or_default());
    let part = |name: &str| parts.get(name).map_or("", String::as_str);
    let request_uri = request.start_line().split(' ').nth(1);
    let named = part("username") == credentials.username && request_uri == Some(part("uri"));

    let secret = md5(&[&credentials.username, part("realm"), &credentials.password]);
    let asked = md5(&[method, part("uri")]);
    let expected = match part("qop") {
        "" => md5(&[&secret, part("nonce"), &asked]),
        qop => md5(&[
            &secret,
            part("nonce"),
            part("nc"),
            part("cnonce"),
            qop,
            &asked,
        ]),
    };

    named && part("response") == expected
}

/// The parameters of a challenge or of credentials, without their quotes.
pub(crate) fn parts(value: &str) -> HashMap<String, String> {
    let mut rest = value.strip_prefix("Digest ").unwrap_or_default();
    let mut parts = HashMap::new();
    while let Some((name, after)) = rest.split_once('=') {
        let quoted = after.strip_prefix('"');
        let (value, behind) = match quoted {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_once(',').unwrap_or((after, "")),
        };
        let name = name.trim_matches([' ', ',']);
        parts.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        rest = behind;
    }
    parts
}

/// MD5 of the parts, joined by colons, in hexadecimal digits.
fn md5(parts: &[&str]) -> String {
    hex(&Md5::digest(parts.join(":")))
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mufasa() -> Credentials {
        Credentials {
            username: "Mufasa".to_owned(),
            password: "Circle Of Life".to_owned(),
        }
    }

    /// The example of RFC 2617 §3.5, and a wrong answer to it.
    #[test]
    fn an_answer_is_believed_only_if_it_is_right() {
        for (response, right) in [
            ("6629fae49393a05397450978507c4ef1", true),
            ("6629fae49393a05397450978507c4ef2", false),
        ] {
            let request = Message::of(format!(
                "GET /dir/index.html HTTP/1.1\nAuthorization: Digest username=\"Mufasa\", realm=\"testrealm@host.com\", \
                 nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", uri=\"/dir/index.html\", qop=auth, nc=00000001, \
                 cnonce=\"0a4f113b\", response=\"{response}\"\n\n"
            ));
            assert_eq!(proves(&request, "Authorization", "GET", &mufasa()), right);
        }
    }

    /// Our own answer to a challenge is accepted: with commas in quotes, with qop and without, by MD5.
    #[test]
    fn an_answer_to_a_challenge_proves_its_sender() {
        for qop in ["", ", qop=\"auth,auth-int\""] {
            let challenged = Message::of(format!(
                "SIP/2.0 407 Who\nProxy-Authenticate: Digest realm=\"a, b\", nonce=\"n=1\", opaque=\"o\"{qop}, algorithm=MD5, stale=TRUE\n\n"
            ));
            let challenge = Challenge::of(&challenged);
            assert!(challenge.stale);
            assert_eq!((&*challenge.realm, &*challenge.nonce), ("a, b", "n=1"));

            let asking = Asking {
                method: "INVITE",
                uri: "sip:1@x",
                nc: 1,
            };
            let line = challenge.answer(&asking, &mufasa());
            let request = Message::of(format!("INVITE sip:1@x SIP/2.0\n{line}\n\n"));
            assert!(proves(&request, "Proxy-Authorization", "INVITE", &mufasa()));
            assert!(!proves(&request, "Proxy-Authorization", "BYE", &mufasa()));
            assert!(line.contains("opaque=\"o\""), "{line}");
        }
    }

    /// The example of RFC 7616 §3.9.1 has another cnonce, so this test compares its SHA-256 sums alone.
    #[test]
    fn sha_256_is_spoken_where_it_is_asked_for() {
        let challenged = Message::of(
            "SIP/2.0 401 Who\nWWW-Authenticate: Digest realm=\"http-auth@example.org\", nonce=\"7\", algorithm=SHA-256\n\n",
        );
        let challenge = Challenge::of(&challenged);
        let secret = challenge.hash(&["Mufasa", "http-auth@example.org", "Circle of Life"]);
        assert_eq!(
            secret,
            "7987c64c30e25f1b74be53f966b49b90f2808aa92faf9a00262392d7b4794232"
        );
    }
}
