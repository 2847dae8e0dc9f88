//! Answering a challenge (RFC 3261 §22.2, §22.3; RFC 7616 §3.4; RFC 8760 §2.4).

use super::algorithm::Algorithm;
use super::response::{DigestInput, NonceCount, Protection};
use super::secret::Ha1;
use crate::header::auth::{Challenge, Credentials};
use crate::header::text;
use crate::wire::{HeaderName, Message};

/// The request that is sent again with credentials.
#[derive(Copy, Clone, Debug)]
pub struct ChallengedMessage<'a> {
    /// The method, as in the start line.
    pub method: &'a str,
    /// The Request-URI, octet for octet as sent.
    pub uri: &'a [u8],
    /// The body, which `auth-int` covers.
    pub body: &'a [u8],
}

/// The account whose credentials answer a challenge.
#[derive(Copy, Clone)]
pub struct Login<'a> {
    /// The user name.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
}

/// Returns the first challenge of a 401 or 407 that can be answered, and the name of the header that carries the answer. The peer lists
/// the challenge that it prefers first (RFC 8760 §2.4).
pub fn challenge<'m>(response: &Message<'m>) -> Option<(HeaderName, Challenge<'m>)> {
    let (asked_in, answered_in) = match response.status() {
        401 => (HeaderName::WwwAuthenticate, HeaderName::Authorization),
        407 => (
            HeaderName::ProxyAuthenticate,
            HeaderName::ProxyAuthorization,
        ),
        _ => return None,
    };

    response
        .all(asked_in)
        // A challenge that can't be read, or isn't Digest, doesn't keep us from answering another one.
        .filter_map(|value| Challenge::parse(value).ok())
        .find(is_answerable)
        .map(|challenge| (answered_in, challenge))
}

fn is_answerable(challenge: &Challenge<'_>) -> bool {
    // Only the kind of protection is asked for here, so the values that it would hash don't matter.
    Algorithm::read(challenge.algorithm).is_some() && protection(challenge, "", "", b"").is_some()
}

/// Returns the value of the Authorization header that answers a challenge. `nc` counts the answers to this nonce from 1 on; `cnonce` is
/// fresh randomness without quotes. `None` if the challenge asks for an unsupported algorithm or quality of protection.
pub fn answer(
    challenge: &Challenge<'_>,
    challenged: &ChallengedMessage<'_>,
    login: &Login<'_>,
    nc: u32,
    cnonce: &str,
) -> Option<String> {
    let algorithm = Algorithm::read(challenge.algorithm)?;
    let nc = format!("{nc:08x}");
    let protection = protection(challenge, &nc, cnonce, challenged.body)?;
    let computed = DigestInput {
        nonce: challenge.nonce,
        method: challenged.method.as_bytes(),
        uri: challenged.uri,
        protection,
    };

    // RFC 7616 §3.4.2 hashes user name and realm unquoted, while the header repeats the realm as it came.
    let realm = text::unescape_pairs(challenge.realm);
    let ha1 = Ha1::of_octets(
        algorithm,
        login.user.as_bytes(),
        &realm,
        login.password.as_bytes(),
    );

    let count = protection.count();
    let credentials = Credentials {
        username: &text::escape_pairs(login.user.as_bytes()),
        realm: challenge.realm,
        nonce: challenge.nonce,
        uri: challenged.uri,
        response: computed.response(&ha1).hex().as_bytes(),
        // Repeated as the challenge spelt it, and left out where the challenge had none.
        algorithm: challenge.algorithm,
        cnonce: count.map(|count| count.cnonce),
        qop: count.map(|count| count.qop),
        nc: count.map(|count| count.nc),
        opaque: challenge.opaque,
        userhash: false,
    }
    .to_string();
    Some(credentials)
}

/// Returns the protection to answer with: `auth` before `auth-int`, because a proxy may rewrite the body. `None` if neither is offered.
fn protection<'a>(
    challenge: &Challenge<'_>,
    nc: &'a str,
    cnonce: &'a str,
    body: &'a [u8],
) -> Option<Protection<'a>> {
    let count = |qop: &'static str| NonceCount {
        qop: qop.as_bytes(),
        nc: nc.as_bytes(),
        cnonce: cnonce.as_bytes(),
    };
    if challenge.qop.is_none() {
        Some(Protection::None)
    } else if challenge.offers("auth") {
        Some(Protection::Auth(count("auth")))
    } else if challenge.offers("auth-int") {
        Some(Protection::AuthInt(count("auth-int"), body))
    } else {
        None
    }
}

impl std::fmt::Debug for Login<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}
