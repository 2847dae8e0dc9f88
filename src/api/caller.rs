//! Authenticates a request: an org's API key, or a session of the dashboard (see `dashboard_session`). A key needs a
//! valid signature and a row in the database.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use subtle::ConstantTimeEq as _;
use trunkline_calls::token as session;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Acting, Actor, ActorKind, Error, OrgLimit, Wrong, org_keys, org_limits, orgs,
};
use uuid::Uuid;

use super::connection_limiter::Proof;
use super::credentials::{CallerKey, KnownOrg, presented};
use super::error::ApiError;
use super::operator::Operator;
use super::quota::{CONSOLE_REQUESTS_PER_MINUTE, Policy, Tally};
use super::{Api, dashboard_session, default_limits, token};

/// Org that makes the request, with the permissions of its key.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) org: Uuid,
    known: Arc<KnownOrg>,
    party: Party,
}

/// Party that makes a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Party {
    Tenant,
    /// The operator of this machine. The bounds on tenants don't apply.
    Operator,
}

impl Caller {
    /// Id of the key that came with the request.
    pub(super) fn key_id(&self) -> Uuid {
        self.known.key.id
    }

    /// Returns true if the operator makes the request: the bounds on tenants don't apply.
    pub(super) fn is_operator(&self) -> bool {
        self.party == Party::Operator
    }

    /// Returns true if the key has the scope.
    pub(super) fn may(&self, scope: &str) -> bool {
        self.known.key.scopes.iter().any(|held| held == scope)
    }

    /// Time at which the key expires.
    pub(super) fn ends_at(&self) -> Option<Moment> {
        self.known.key.expires_at
    }

    /// Checks that the key has the scope.
    ///
    /// # Errors
    /// 403 naming the scope, if the key lacks it.
    pub(super) fn needs(&self, scope: &str) -> Result<(), ApiError> {
        if self.may(scope) {
            Ok(())
        } else {
            let message = format!("This API key lacks the scope {scope}");
            Err(ApiError::Forbidden(message).with_code("missing_scope"))
        }
    }
}

/// Like [`Caller`], for a request that is answered by a stream. It counts against a limit of its own, and is authorized
/// again while the stream lasts.
#[derive(Clone, Debug)]
pub(super) struct StreamCaller {
    pub(super) caller: Caller,
    opened_by: OpenedBy,
}

/// Credential that opened a stream.
#[derive(Clone, Debug)]
enum OpenedBy {
    Key { token: String },
    Operator,
}

impl StreamCaller {
    /// Key that opened the stream.
    pub(super) fn key(&self) -> Uuid {
        self.caller.known.key.id
    }

    /// Returns true if the operator opened the stream: it takes none of the org's places.
    pub(super) const fn is_operators(&self) -> bool {
        matches!(self.opened_by, OpenedBy::Operator)
    }

    /// Returns true if the key is still valid and its org isn't suspended. While the database is away, it counts as
    /// valid.
    pub(super) async fn is_good(&self, api: &Api) -> bool {
        let OpenedBy::Key { token } = &self.opened_by else {
            return true;
        };
        match known(api, token).await {
            Ok(Some(known)) => !known.suspended,
            Ok(None) | Err(ApiError::Unauthorized(_)) => false,
            Err(_) => true,
        }
    }
}

impl FromRequestParts<Api> for StreamCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        if Operator::of(parts).is_some() {
            let caller = Caller::from_request_parts(parts, api).await?;
            return Ok(Self {
                caller,
                opened_by: OpenedBy::Operator,
            });
        }

        // Only a header opens an event stream: the cookie of a session doesn't, since the console has streams of its
        // own.
        let token = credential(parts, REQUIRED)?.to_owned();
        let known = known(api, &token).await?.ok_or(REVOKED)?;
        Proof::note(parts);

        let org = known.key.org_id;
        let (limit, now) = (known.streams_per_minute, api.now());
        known.count(api, parts, (Policy::OrgStreams, limit))?;
        api.credentials().uses.note_org_key(known.key.id, now);

        let caller = Caller {
            org,
            known,
            party: Party::Tenant,
        };
        Ok(Self {
            caller,
            opened_by: OpenedBy::Key { token },
        })
    }
}

impl KnownOrg {
    /// Counts a request.
    ///
    /// # Errors
    /// 403 for a suspended org, also beyond its limit; 429 if there were too many.
    fn count(
        &self,
        api: &Api,
        parts: &Parts,
        (policy, limit): (Policy, u32),
    ) -> Result<(), ApiError> {
        let org = self.key.org_id;
        // By org, not by key: an org can't raise its limit by making more keys.
        let taken = api.quotas().take(policy, org, limit, api.monotonic());
        let counted = Tally::of(parts).note(taken);
        match self.suspended {
            true => Err(ApiError::suspended()),
            false => counted,
        }
    }
}

const REQUIRED: &str = "An API key is required: Authorization: Bearer <API key>";
const REVOKED: ApiError = ApiError::Unauthorized("The API key has been revoked");
const INVALID: ApiError = ApiError::Unauthorized("The API key is invalid");
const EXPIRED: ApiError = ApiError::Unauthorized("The API key has expired");

/// Returns the key of the token; `None` if it was revoked.
///
/// # Errors
/// 401 for a token that is no key's, and for a key that has expired.
async fn known(api: &Api, token: &str) -> Result<Option<Arc<KnownOrg>>, ApiError> {
    let orgs = &api.credentials().orgs;
    // Boxed because it is large and seldom needed.
    let look_up = async || Box::pin(look_up(api, token)).await;
    let known = orgs
        .or_look_up(presented(token), api.monotonic(), look_up)
        .await?;

    // A key may expire while its cached look-up is still in use.
    let end = known.as_ref().and_then(|known| known.key.expires_at);
    match end {
        Some(end) if end <= api.now() => Err(EXPIRED),
        Some(_) | None => Ok(known),
    }
}

impl FromRequestParts<Api> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        // `idempotency` has extracted the credential before, and counted the request.
        if let Some(known) = parts.extensions.get::<Self>() {
            return Ok(known.clone());
        }

        // The transport has proved who this is, so a credential in the headers isn't read.
        if let Some(operator) = Operator::of(parts) {
            let known = operator.in_org(api, parts).await?;
            let org = known.key.org_id;
            return Ok(Self {
                org,
                known,
                party: Party::Operator,
            });
        }

        let now = api.now();
        if let Some(session) = dashboard_session::of(parts, api).await? {
            let known = session.as_key(parts, api)?;
            known.count(api, parts, (Policy::Console, CONSOLE_REQUESTS_PER_MINUTE))?;
            return Ok(Self {
                org: known.key.org_id,
                known,
                party: Party::Tenant,
            });
        }

        let token = credential(parts, REQUIRED)?;
        let known = known(api, token).await?.ok_or(REVOKED)?;
        // Before the limit: a client beyond it has authenticated all the same.
        Proof::note(parts);

        let org = known.key.org_id;
        known.count(api, parts, (Policy::Org, known.requests_per_minute))?;
        api.credentials().uses.note_org_key(known.key.id, now);

        let actor = Actor {
            kind: ActorKind::OrgKey,
            id: Some(known.key.id),
            name: known.key.name.clone(),
        };

        Acting::by(actor, Some(org), None);
        Ok(Self {
            org,
            known,
            party: Party::Tenant,
        })
    }
}

async fn look_up(api: &Api, token: &str) -> Result<Option<KnownOrg>, ApiError> {
    // Another node may have signed the token with a key that this node hasn't read yet.
    api.follow_key_of(token).await;
    let claims = token::read_key(api.store().keyring(), token);
    let claims = claims.ok_or_else(|| no_key(token))?;

    let Some(key) = api
        .read_inline(move |tx| org_keys::by_id(tx, claims.org, claims.sub))
        .await?
    else {
        return Ok(None);
    };

    // The row decides, whichever key signed: API keys outlive the signing key, and only the token that was issued fits the hash.
    if !bool::from(key.token_hash.ct_eq(&presented(token))) {
        return Err(INVALID);
    }

    match api.read_inline(move |tx| orgs::by_id(tx, claims.org)).await {
        Ok(org) => {
            let (limits, defaults) = (
                api.read_inline(move |tx| org_limits::of_org(tx, org.id))
                    .await?,
                default_limits(api.config()),
            );
            Ok(Some(KnownOrg {
                key: CallerKey {
                    id: key.id,
                    org_id: key.org_id,
                    name: key.name,
                    scopes: key.scopes,
                    expires_at: key.expires_at,
                },
                suspended: org.is_suspended(),
                requests_per_minute: limits.in_force(OrgLimit::Requests, defaults),
                streams_per_minute: limits.in_force(OrgLimit::Streams, defaults),
            }))
        }
        // The org was deleted: its keys count as revoked.
        Err(Error::Wrong(Wrong::Absent(_))) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Explains a credential that is no org's key, by the kind of credential that it looks like.
fn no_key(token: &str) -> ApiError {
    if token.starts_with(PARTNER_KEY) {
        let message = "This is a partner key, for paths below /partner/v1. Make a key of the org with \
                       POST /partner/v1/orgs/{orgId}/api-keys";
        return ApiError::Unauthorized(message).with_code("partner_key");
    }
    if token.starts_with(session::PREFIX) {
        let message =
            "This is a session token, for GET /phone/sessions/{session_id} and for its own call";
        return ApiError::Unauthorized(message).with_code("session_token");
    }
    INVALID
}

/// Prefix of partner keys.
pub(crate) const PARTNER_KEY: &str = "tlp_";

/// Returns the credential that came with the request; `required` is the message if it is missing.
pub(super) fn credential<'r>(
    parts: &'r Parts,
    required: &'static str,
) -> Result<&'r str, ApiError> {
    let value = parts.headers.get(AUTHORIZATION);
    let value = value.ok_or(ApiError::Unauthorized(required))?;
    let credential = value.to_str().ok().and_then(bearer);
    credential.ok_or(ApiError::Unauthorized(
        "The Authorization header is not a Bearer credential",
    ))
}

/// Credential in `Bearer <credential>`; the scheme ignores case (RFC 9110 §11.1).
fn bearer(value: &str) -> Option<&str> {
    let (scheme, credential) = value.split_once(' ')?;
    scheme
        .eq_ignore_ascii_case("bearer")
        .then(|| credential.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bearer_credential_is_found() {
        for (value, credential) in [
            ("Bearer a.b.c", Some("a.b.c")),
            ("bearer  x ", Some("x")),
            ("Basic eDp5", None),
            ("Bearer", None),
        ] {
            assert_eq!(bearer(value), credential, "{value}");
        }
    }
}
