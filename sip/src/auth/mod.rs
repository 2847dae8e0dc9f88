//! Digest authentication, as server and as client (RFC 3261 §22, RFC 7616, RFC 8760).
//!
//! An unauthenticated peer costs no memory: a nonce carries its own proof, and only a peer that has proved a password enters the
//! window of used nonces. The caller of this module keeps the passwords.

mod algorithm;
pub mod client;
mod nonce;
mod response;
mod secret;
mod verify;
mod window;

pub use algorithm::Algorithm;
pub use nonce::{ChallengeCause, LIFETIME, Nonce, NonceKeys, NonceSource, NonceState, Nonces};
pub use secret::{Ha1, Secret};
pub use verify::{Policy, Verdict, WrongPart, proves_password, verify};
pub use window::NonceWindow;

pub use crate::header::auth::{Challenge, Credentials};
use crate::header::text;
use crate::wire::print::Head;
use crate::wire::{HeaderName, Message};

/// Writes one WWW-Authenticate line for each algorithm, `qop="auth"`.
pub fn challenge(
    head: &mut Head<'_>,
    realm: &str,
    nonce: &str,
    stale: bool,
    algorithms: &[Algorithm],
) {
    let realm = text::escape_pairs(realm.as_bytes());
    let stale: &[u8] = if stale { b", stale=true" } else { b"" };

    for algorithm in algorithms {
        head.concat(
            "WWW-Authenticate",
            &[
                b"Digest realm=\"",
                &realm,
                b"\", nonce=\"",
                nonce.as_bytes(),
                b"\"",
                stale,
                b", algorithm=",
                algorithm.as_str().as_bytes(),
                b", qop=\"auth\"",
            ],
        );
    }
}

/// Returns the first readable credentials for `realm`.
pub fn credentials<'m>(message: &Message<'m>, realm: &str) -> Option<Credentials<'m>> {
    // Line by line, since commas separate parameters: several values "MUST NOT be combined into a single header field
    // row" (RFC 3261 §7.3.1).
    message
        .all(HeaderName::Authorization)
        .filter_map(|value| Credentials::parse(value).ok())
        .find(|credentials| *text::unescape_pairs(credentials.realm) == *realm.as_bytes())
}

/// Returns the first readable credentials if none are for `realm`: the client made them for another realm.
pub fn foreign_credentials<'m>(message: &Message<'m>, realm: &str) -> Option<Credentials<'m>> {
    if credentials(message, realm).is_some() {
        return None;
    }
    message
        .all(HeaderName::Authorization)
        .find_map(|value| Credentials::parse(value).ok())
}

#[cfg(test)]
mod tests;
