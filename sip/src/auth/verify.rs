//! Verification of an answer to a challenge of ours (RFC 3261 §22, RFC 7616 §3.4.6, §3.6).
//!
//! The order matters. The response is computed before the nonce is judged, so that only a client that knows the password sees `stale`
//! and enters the window.

use subtle::ConstantTimeEq;

use super::algorithm::{Algorithm, unhex};
use super::nonce::{NonceSource, NonceState, Nonces};
use super::response::{DigestInput, NonceCount, Protection};
use super::secret::Secret;
use super::window::NonceWindow;
use crate::header::auth::Credentials;
use crate::header::uri::Uri;
use crate::moment::Moment;
use crate::wire::Message;

/// The answers that this side accepts.
#[derive(Copy, Clone, Debug)]
pub struct Policy<'a> {
    /// The algorithms that the challenge offered.
    pub algorithms: &'a [Algorithm],
    /// Source of the request: its nonce has to be one that was given to this source.
    pub source: NonceSource,
}

/// Outcome of the verification.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The password is right, for the first time with this nonce and count.
    Ok,
    /// The password is right, but the nonce has expired, was used up, or is another node's or another source's: challenge with `stale=true`.
    Stale,
    /// Refused: challenge again, and count a failed attempt.
    Wrong(WrongPart),
}

/// The wrong part of an answer. For logs and counters, never shown to the peer.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum WrongPart {
    /// The response doesn't follow from the password.
    Password,
    /// The hashed URI has another user part than the Request-URI.
    Uri,
    /// The challenge didn't offer this algorithm.
    Algorithm,
    /// `qop`, `nc` or `cnonce` is missing or unreadable, or the response isn't a hash.
    Malformed,
    /// No such user name. The caller, which looks users up, finds this and the reasons below; [`verify`] never returns them.
    User,
    /// The user name and password were replaced, and their grace period is over.
    Expired,
    /// The credentials are for another realm.
    Realm,
    /// A second answer within one call to a nonce that had expired: the client ignores the new nonce.
    Nonce,
}

/// Judges the credentials of `request` against the secret of their user. For an unknown user name pass [`Nonces::decoy`] as the secret, so
/// that the time taken doesn't show whether the name exists.
pub fn verify(
    credentials: &Credentials<'_>,
    request: &Message<'_>,
    secret: &Secret,
    nonces: &Nonces,
    window: &NonceWindow,
    policy: Policy<'_>,
    now: Moment,
) -> Verdict {
    let claim = match Claim::read(credentials, &CoveredParts::of(request), policy) {
        Ok(claim) => claim,
        Err(part) => return Verdict::Wrong(part),
    };

    let knows_password = claim.is_right(secret);
    let state = nonces.check(credentials.nonce, policy.source, now);
    if !knows_password {
        return Verdict::Wrong(WrongPart::Password);
    }

    match state {
        // The window comes last: only once password and nonce are right is the count used up, or anything remembered.
        NonceState::Fresh if window.accept(credentials.nonce, claim.nc, now) => Verdict::Ok,
        NonceState::Fresh | NonceState::Stale | NonceState::Foreign => Verdict::Stale,
    }
}

/// Returns whether credentials prove the password with a nonce that is still good and a count that isn't used. The count isn't used up:
/// [`verify`] does that.
pub fn proves_password(
    credentials: &Credentials<'_>,
    request: &Message<'_>,
    secret: &Secret,
    nonces: &Nonces,
    window: &NonceWindow,
    policy: Policy<'_>,
    now: Moment,
) -> bool {
    let is_fresh = nonces.check(credentials.nonce, policy.source, now) == NonceState::Fresh;
    let claim = Claim::read(credentials, &CoveredParts::of(request), policy);
    let is_right = claim
        .is_ok_and(|claim| claim.is_right(secret) && !window.has_used(credentials.nonce, claim.nc));
    is_fresh && is_right
}

/// The parts of a request that its credentials cover.
struct CoveredParts<'a> {
    method: &'a [u8],
    uri: &'a [u8],
    body: &'a [u8],
}

impl<'a> CoveredParts<'a> {
    fn of(request: &Message<'a>) -> Self {
        Self {
            method: request.method_token(),
            uri: request.request_uri(),
            body: request.body(),
        }
    }
}

/// Well-formed credentials, whose response is still to be checked.
struct Claim<'a> {
    answer: DigestInput<'a>,
    algorithm: Algorithm,
    response: &'a [u8],
    nc: u32,
}

impl<'a> Claim<'a> {
    fn read(
        credentials: &Credentials<'a>,
        asked: &CoveredParts<'a>,
        policy: Policy<'_>,
    ) -> Result<Self, WrongPart> {
        let algorithm = Algorithm::read(credentials.algorithm)
            // Only what the challenge offered, so that no peer chooses a weaker hash than the operator allows.
            .filter(|algorithm| policy.algorithms.contains(algorithm))
            .ok_or(WrongPart::Algorithm)?;
        if !is_same_user(credentials.uri, asked.uri) {
            return Err(WrongPart::Uri);
        }
        let protection = protection(credentials, asked.body).ok_or(WrongPart::Malformed)?;
        let nc = credentials.nonce_count().ok_or(WrongPart::Malformed)?;

        Ok(Self {
            answer: DigestInput {
                nonce: credentials.nonce,
                method: asked.method,
                uri: credentials.uri,
                protection,
            },
            algorithm,
            response: credentials.response,
            nc,
        })
    }

    fn is_right(&self, secret: &Secret) -> bool {
        let right = self.answer.response(&secret.ha1(self.algorithm));
        // Compared in constant time, so that the time taken doesn't show how much of a guess was right.
        unhex(self.response, right.octets().len())
            .is_some_and(|sent| bool::from(sent.octets().ct_eq(right.octets())))
    }
}

/// Returns the protection of an answer. `None` without `qop`: such an answer has no count, and its hash doesn't cover the client's own nonce.
fn protection<'a>(credentials: &Credentials<'a>, body: &'a [u8]) -> Option<Protection<'a>> {
    let qop = credentials.qop?;
    let count = NonceCount {
        qop,
        nc: credentials.nc?,
        cnonce: credentials.cnonce?,
    };

    if qop.eq_ignore_ascii_case(b"auth") {
        Some(Protection::Auth(count))
    } else if qop.eq_ignore_ascii_case(b"auth-int") {
        Some(Protection::AuthInt(count, body))
    } else {
        None
    }
}

/// Returns whether the hashed URI names the user of the Request-URI, or no user.
///
/// The URI is hashed as the client sent it, and a proxy may have changed its host since. The user part has to match, since the client proved
/// its password for a request to that user (RFC 7616 §3.4.6 lets the server decide which URIs are the same resource). Some clients, sipp among
/// them, hash the host alone. That names no other user, and a nonce count passes only once.
fn is_same_user(hashed: &[u8], asked: &[u8]) -> bool {
    if hashed == asked {
        return true;
    }
    match (Uri::parse(hashed), Uri::parse(asked)) {
        (Ok(hashed), Ok(asked)) => {
            hashed.user.is_none() || hashed.user_unescaped() == asked.user_unescaped()
        }
        (Ok(_), Err(_)) | (Err(_), Ok(_)) | (Err(_), Err(_)) => false,
    }
}
