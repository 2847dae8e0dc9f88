//! Digest as a client: RFC 2617 §3.2.2 with MD5 and `qop=auth`, as phone systems use it.

use md5::{Digest, Md5};

use crate::message::{attributes, unquoted};
use crate::outbox::{Outbox, hex};

/// The parameters of a challenge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Challenge<'a> {
    /// Protection space.
    pub realm: &'a [u8],
    /// The server's nonce.
    pub nonce: &'a [u8],
    /// Value to send back unchanged.
    pub opaque: Option<&'a [u8]>,
}

impl<'a> Challenge<'a> {
    /// Reads a WWW-Authenticate value; `None` unless it is Digest with MD5 and `qop` has `auth`.
    pub fn read(value: &'a [u8]) -> Option<Self> {
        let (mut realm, mut nonce, mut opaque, mut auth) = (None, None, None, false);
        for (name, value) in attributes(value.strip_prefix(b"Digest ")?) {
            match name.to_ascii_lowercase().as_slice() {
                b"realm" => realm = Some(unquoted(value)),
                b"nonce" => nonce = Some(unquoted(value)),
                b"opaque" => opaque = Some(unquoted(value)),
                b"qop" => {
                    auth = unquoted(value)
                        .split(|octet| *octet == b',')
                        .any(|qop| qop.trim_ascii() == b"auth")
                }
                b"algorithm" if !unquoted(value).eq_ignore_ascii_case(b"MD5") => return None,
                _ => {}
            }
        }

        auth.then_some(Self {
            realm: realm?,
            nonce: nonce?,
            opaque,
        })
    }
}

/// The lower-case hex of MD5 over `parts`, joined by colons.
pub fn md5_hex(parts: &[&[u8]]) -> [u8; 32] {
    let mut md5 = Md5::new();
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            md5.update(b":");
        }
        md5.update(part);
    }
    let sum = md5.finalize();
    std::array::from_fn(|at| {
        b"0123456789abcdef"[usize::from(sum[at / 2] >> (4 * (1 - at % 2)) & 15)]
    })
}

/// One account in one realm, whose hashes are computed once.
#[derive(Debug, Default)]
pub struct Account {
    user: Vec<u8>,
    password: Vec<u8>,
    realm: Vec<u8>,
    opaque: Option<Vec<u8>>,
    ha1: [u8; 32],
}

impl Account {
    /// An account with the trunk's credentials.
    pub fn new(user: &str, password: &str) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
            ..Self::default()
        }
    }

    /// Takes realm and opaque from a challenge.
    pub fn learn(&mut self, challenge: &Challenge<'_>) {
        if self.realm != challenge.realm {
            self.realm = challenge.realm.to_vec();
            self.ha1 = md5_hex(&[&self.user, &self.realm, &self.password]);
        }
        if self.opaque.as_deref() != challenge.opaque {
            self.opaque = challenge.opaque.map(<[u8]>::to_vec);
        }
    }

    /// Writes the Authorization line for `uri`, whose `ha2` is MD5 of `method:uri`.
    pub fn put(
        &self,
        out: &mut Outbox,
        uri: &[u8],
        ha2: &[u8; 32],
        nonce: &[u8],
        count: u32,
        cnonce: u64,
    ) {
        let (count, cnonce) = (hex::<8>(u64::from(count)), hex::<16>(cnonce));
        let response = md5_hex(&[&self.ha1, nonce, &count, &cnonce, b"auth", ha2]);

        let parts: [&[u8]; 15] = [
            b"Authorization: Digest username=\"",
            &self.user,
            b"\", realm=\"",
            &self.realm,
            b"\", nonce=\"",
            nonce,
            b"\", uri=\"",
            uri,
            b"\", response=\"",
            &response,
            b"\", algorithm=MD5, cnonce=\"",
            &cnonce,
            b"\", qop=auth, nc=",
            &count,
            b"",
        ];

        parts.iter().for_each(|part| out.put(part));
        if let Some(opaque) = &self.opaque {
            out.put(b", opaque=\"");
            out.put(opaque);
            out.put(b"\"");
        }

        out.put(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_2617() {
        let ha1 = md5_hex(&[b"Mufasa", b"testrealm@host.com", b"Circle Of Life"]);
        let ha2 = md5_hex(&[b"GET", b"/dir/index.html"]);
        let nonce = b"dcd98b7102dd2f0e8b11d0f600bfb0c093";
        let response = md5_hex(&[&ha1, nonce, b"00000001", b"0a4f113b", b"auth", &ha2]);
        assert_eq!(&response, b"6629fae49393a05397450978507c4ef1");
    }

    #[test]
    fn challenges() {
        let some = Challenge {
            realm: b"pbx, east",
            nonce: b"a=b",
            opaque: None,
        };
        for (name, value, expected) in [
            (
                "plain",
                "Digest realm=\"pbx, east\", nonce=\"a=b\", qop=\"auth\", algorithm=MD5",
                Some(some),
            ),
            (
                "two qops",
                "Digest qop=\"auth-int, auth\",nonce=\"a=b\",realm=\"pbx, east\"",
                Some(some),
            ),
            (
                "opaque",
                "Digest realm=\"pbx, east\", nonce=\"a=b\", qop=auth, opaque=\"x\"",
                Some(Challenge {
                    opaque: Some(b"x"),
                    ..some
                }),
            ),
            (
                "another hash",
                "Digest realm=\"pbx, east\", nonce=\"a=b\", qop=\"auth\", algorithm=SHA-256",
                None,
            ),
            ("no qop", "Digest realm=\"pbx, east\", nonce=\"a=b\"", None),
            ("another scheme", "Basic realm=\"pbx\"", None),
        ] {
            assert_eq!(Challenge::read(value.as_bytes()), expected, "{name}");
        }
    }
}
