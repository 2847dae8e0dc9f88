//! Our own message for each case of RFC 4475 and RFC 5118, with the RFC's name: the same trap in other words.
//!
//! The texts of the RFCs aren't part of this repository. Each function of `rfc4475` and `rfc5118` builds one message around the trap that
//! its comment names; everything else in it is plain. The tables of `fixtures/messages/README.md` list the expected results of both.

mod draft;
mod rfc4475;
mod rfc5118;

use draft::Build;

/// Returns our messages for the cases of `rfc4475` or `rfc5118`, with their names.
///
/// # Panics
/// `set` is neither.
pub fn messages(set: &str) -> Vec<(&'static str, Vec<u8>)> {
    let cases: &[(&'static str, Build)] = match set {
        "rfc4475" => &rfc4475::CASES,
        "rfc5118" => &rfc5118::CASES,
        other => panic!("no messages of {other}"),
    };
    cases
        .iter()
        .map(|(name, build)| (*name, build(name)))
        .collect()
}
