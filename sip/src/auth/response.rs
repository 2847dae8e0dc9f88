//! The arithmetic of digest, the same for client and server (RFC 7616 §3.4.1 to §3.4.3, RFC 2069 §2.1.2).

use super::algorithm::Hash;
use super::secret::Ha1;

/// All parts of a response except the password.
pub(super) struct DigestInput<'a> {
    pub(super) nonce: &'a [u8],
    pub(super) method: &'a [u8],
    pub(super) uri: &'a [u8],
    pub(super) protection: Protection<'a>,
}

/// The quality of protection, with the values that it adds to the hash.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Protection<'a> {
    /// No `qop`: RFC 2069.
    None,
    /// `auth`: counts the uses of a nonce.
    Auth(NonceCount<'a>),
    /// `auth-int`: covers the body too.
    AuthInt(NonceCount<'a>, &'a [u8]),
}

/// The client's part of a response; `nc` and `qop` are hashed as they were sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct NonceCount<'a> {
    pub(super) qop: &'a [u8],
    pub(super) nc: &'a [u8],
    pub(super) cnonce: &'a [u8],
}

impl<'a> Protection<'a> {
    pub(super) const fn count(&self) -> Option<NonceCount<'a>> {
        match *self {
            Protection::None => None,
            Protection::Auth(count) | Protection::AuthInt(count, _) => Some(count),
        }
    }
}

impl DigestInput<'_> {
    /// Computes the response from the hash of the password.
    pub(super) fn response(&self, ha1: &Ha1) -> Hash {
        let secret = ha1.hash.hex();
        let request = self.request_hash(ha1).hex();
        let (secret, request) = (secret.as_bytes(), request.as_bytes());
        match self.protection.count() {
            None => ha1.algorithm.hash(&[secret, self.nonce, request]),
            Some(NonceCount { qop, nc, cnonce }) => ha1
                .algorithm
                .hash(&[secret, self.nonce, nc, cnonce, qop, request]),
        }
    }

    fn request_hash(&self, ha1: &Ha1) -> Hash {
        match self.protection {
            Protection::None | Protection::Auth(_) => ha1.algorithm.hash(&[self.method, self.uri]),
            Protection::AuthInt(_, body) => {
                let body = ha1.algorithm.hash(&[body]).hex();
                ha1.algorithm
                    .hash(&[self.method, self.uri, body.as_bytes()])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::Algorithm;
    use super::*;

    struct Case {
        name: &'static str,
        algorithm: Algorithm,
        login: (&'static str, &'static str, &'static str),
        request: (&'static str, &'static str),
        nonce: &'static str,
        cnonce: Option<&'static str>,
        body: Option<&'static str>,
        response: &'static str,
    }

    const MUFASA_7616: Case = Case {
        name: "RFC 7616 §3.9.1, MD5",
        algorithm: Algorithm::Md5,
        login: ("Mufasa", "http-auth@example.org", "Circle of Life"),
        request: ("GET", "/dir/index.html"),
        nonce: "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v",
        cnonce: Some("f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"),
        body: None,
        response: "8ca523f5e9506fed4657c9700eebdbec",
    };

    const BOB: Case = Case {
        name: "MD5, auth-int",
        algorithm: Algorithm::Md5,
        login: ("bob", "biloxi.com", "zanzibar"),
        request: ("INVITE", "sip:bob@biloxi.com"),
        nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093",
        cnonce: Some("0a4f113b"),
        body: Some("v=0\r\n"),
        response: "77226bb823dc077c1ad3537415667bae",
    };

    #[test]
    fn responses_are_those_of_the_rfcs() {
        for case in [
            Case {
                name: "RFC 2617 §3.5",
                login: ("Mufasa", "testrealm@host.com", "Circle Of Life"),
                nonce: "dcd98b7102dd2f0e8b11d0f600bfb0c093",
                cnonce: Some("0a4f113b"),
                response: "6629fae49393a05397450978507c4ef1",
                ..MUFASA_7616
            },
            MUFASA_7616,
            Case {
                name: "RFC 7616 §3.9.1, SHA-256",
                algorithm: Algorithm::Sha256,
                response: "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1",
                ..MUFASA_7616
            },
            Case {
                name: "RFC 7616 §3.9.2, as erratum 4897 corrects it",
                algorithm: Algorithm::Sha512_256,
                login: ("J\u{e4}s\u{f8}n Doe", "api@example.org", "Secret, or not?"),
                request: ("GET", "/doe.json"),
                nonce: "5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK",
                cnonce: Some("NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v"),
                body: None,
                response: "3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5",
            },
            Case {
                name: "RFC 2069, no qop",
                cnonce: None,
                body: None,
                response: "bf57e4e0d0bffc0fbaedce64d59add5e",
                ..BOB
            },
            BOB,
            Case {
                name: "SHA-256, auth-int",
                algorithm: Algorithm::Sha256,
                response: "554a9ffe79ce71c3cb6c9630deddd2787d8033f895e5cdef6a73c8e84ed4c979",
                ..BOB
            },
            Case {
                name: "SHA-512-256, auth-int",
                algorithm: Algorithm::Sha512_256,
                response: "e9a7fbc1c80a10421c59a0c982f28d40e0ddc7b62ef3dc4faf68f179c6e05922",
                ..BOB
            },
        ] {
            let count = |qop: &'static str, cnonce: &'static str| NonceCount {
                qop: qop.as_bytes(),
                nc: b"00000001",
                cnonce: cnonce.as_bytes(),
            };
            let answer = DigestInput {
                nonce: case.nonce.as_bytes(),
                method: case.request.0.as_bytes(),
                uri: case.request.1.as_bytes(),
                protection: match (case.cnonce, case.body) {
                    (None, _) => Protection::None,
                    (Some(cnonce), None) => Protection::Auth(count("auth", cnonce)),
                    (Some(cnonce), Some(body)) => {
                        Protection::AuthInt(count("auth-int", cnonce), body.as_bytes())
                    }
                },
            };

            let (user, realm, password) = case.login;
            let response = answer.response(&Ha1::new(case.algorithm, user, realm, password));
            assert_eq!(
                response.hex().as_bytes(),
                case.response.as_bytes(),
                "{}",
                case.name
            );
        }
    }
}
