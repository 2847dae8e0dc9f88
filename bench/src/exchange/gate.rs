//! The gate takes the daemon's place in a run without one: it challenges an INVITE and checks the answer, so that the generator can be
//! measured, and tested, against itself.

use std::net::SocketAddrV4;

use super::callee_print::put_response_head;
use crate::digest::md5_hex;
use crate::message::{Message, attributes, unquoted};
use crate::outbox::{Outbox, hex};

const REALM: &[u8] = b"trunkline-bench";

/// A verifier for one account. Every challenge has a new nonce, and the nonce used last accepts only rising counts.
#[derive(Debug)]
pub struct Gate {
    ha1: [u8; 32],
    /// Number of the newest nonce.
    issued: u32,
    /// Number of the nonce used last, and its highest count.
    last: (u32, u32),
}

impl Gate {
    /// A gate for one account.
    pub fn new(user: &str, password: &str) -> Self {
        Self {
            ha1: md5_hex(&[user.as_bytes(), REALM, password.as_bytes()]),
            issued: 0,
            last: (0, 0),
        }
    }

    /// Returns true if the request's credentials are right and, with the nonce used last, their count is a new highest one.
    pub(super) fn admits(&mut self, request: &Message<'_>) -> bool {
        let Some((nonce, count)) = self.check(request.authorization) else {
            return false;
        };
        if nonce == self.last.0 && count <= self.last.1 {
            return false;
        }
        self.last = (nonce, count);
        true
    }

    /// Returns the number of the nonce and the nonce count (`nc`), if the nonce is ours and the response is right.
    fn check(&self, authorization: &[u8]) -> Option<(u32, u32)> {
        let list = authorization.strip_prefix(b"Digest ")?;
        let value = |wanted: &[u8]| {
            attributes(list)
                .find(|(name, _)| *name == wanted)
                .map(|(_, value)| unquoted(value))
        };
        let number =
            |digits: &[u8]| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let (nonce, count, cnonce) = (value(b"nonce")?, value(b"nc")?, value(b"cnonce")?);
        let issued = number(nonce.get(..8)?)?;
        let ha2 = md5_hex(&[b"INVITE", value(b"uri")?]);
        let expected = md5_hex(&[&self.ha1, nonce, count, cnonce, b"auth", &ha2]);
        (issued <= self.issued && nonce == nonce_of(issued) && value(b"response")? == expected)
            .then_some((issued, number(count)?))
    }

    pub(super) fn put_challenge(
        &mut self,
        out: &mut Outbox,
        request: &Message<'_>,
        to: SocketAddrV4,
    ) {
        self.issued += 1;
        put_response_head(out, b"401 Unauthorized", request);
        let parts: [&[u8]; 5] = [
            b"WWW-Authenticate: Digest realm=\"",
            REALM,
            b"\", nonce=\"",
            &nonce_of(self.issued),
            b"\", qop=\"auth\", algorithm=MD5\r\nContent-Length: 0\r\n\r\n",
        ];
        parts.iter().for_each(|part| out.put(part));
        out.end(to);
    }
}

fn nonce_of(number: u32) -> [u8; 40] {
    let digits = hex::<8>(u64::from(number));
    let rest = md5_hex(&[b"nonce", &digits]);
    std::array::from_fn(|at| if at < 8 { digits[at] } else { rest[at - 8] })
}
