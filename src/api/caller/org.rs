//! Caller that works in one org. A key of the org needs a valid signature and a row in the database.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use trunkline_calls::trust::token as session;
use trunkline_sip::moment::Moment;
use trunkline_store::{
    Acting, Actor, ActorKind, Error, OrgLimit, Wrong, org_keys, org_limits, orgs,
};
use uuid::Uuid;

use super::credential::{Credential, PARTNER_KEY, credential};
use super::operator::{ORG, Operator, named_org};
use super::partner;
use crate::api::connection_limiter::Proof;
use crate::api::credentials::{CallerKey, KnownOrg, presented};
use crate::api::quota::{CONSOLE_REQUESTS_PER_MINUTE, Policy, Tally};
use crate::api::{Api, ApiError, dashboard_session, default_limits, token};

/// Org that makes the request, with the permissions of its key.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) org: Uuid,
    pub(super) known: Arc<KnownOrg>,
    pub(super) party: Party,
}

/// Party that makes a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Party {
    /// The org itself, by a key or a session.
    Org,
    /// The partner with this id, whose org it is. It may do in the org what every key may.
    Partner(Uuid),
    /// The operator of this machine, who may do what every key may. The bounds on tenants don't apply.
    Operator,
}

/// Scopes that an operation asks of an org's key: an extension of its requests, which the declaration sets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct RequiredScopes(pub(crate) &'static [&'static str]);

impl RequiredScopes {
    /// Checks that the caller's key has the scopes that the operation asks for.
    ///
    /// # Errors
    /// 403 naming the first scope that it lacks.
    pub(super) fn check(parts: &Parts, caller: &Caller) -> Result<(), ApiError> {
        let Some(Self(scopes)) = parts.extensions.get() else {
            return Ok(());
        };
        scopes.iter().try_for_each(|scope| caller.needs(scope))
    }
}

impl Caller {
    /// Returns true if the operator makes the request: the bounds on tenants don't apply.
    pub(crate) fn is_operator(&self) -> bool {
        self.party == Party::Operator
    }

    /// Returns true if the key has the scope.
    pub(crate) fn may(&self, scope: &str) -> bool {
        self.known.key.scopes.iter().any(|held| held == scope)
    }

    /// Time at which the key expires.
    pub(crate) fn ends_at(&self) -> Option<Moment> {
        self.known.key.expires_at
    }

    /// Checks that the key has the scope.
    ///
    /// # Errors
    /// 403 naming the scope, if the key lacks it.
    pub(crate) fn needs(&self, scope: &str) -> Result<(), ApiError> {
        if self.may(scope) {
            Ok(())
        } else {
            let message = format!("This API key lacks the scope {scope}");
            Err(ApiError::Forbidden(message).with_code("missing_scope"))
        }
    }
}

impl KnownOrg {
    /// Counts a request.
    ///
    /// # Errors
    /// 403 for a suspended org, also beyond its limit; 429 if there were too many.
    pub(super) fn count(
        &self,
        api: &Api,
        parts: &Parts,
        policy: Policy,
        limit: u32,
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

pub(super) const REQUIRED: &str = "An API key is required: Authorization: Bearer <API key>";
pub(super) const REVOKED: ApiError = ApiError::Unauthorized("The API key has been revoked");
const INVALID: ApiError = ApiError::Unauthorized("The API key is invalid");
const EXPIRED: ApiError = ApiError::Unauthorized("The API key has expired");

/// Returns the key of the token; `None` if it was revoked.
///
/// # Errors
/// 401 for a token that is no key's, and for a key that has expired.
pub(super) async fn known(api: &Api, token: &str) -> Result<Option<Arc<KnownOrg>>, ApiError> {
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
        let caller = Self::authenticated(parts, api).await?;
        RequiredScopes::check(parts, &caller)?;
        Ok(caller)
    }
}

impl Caller {
    async fn authenticated(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let of = |known: Arc<KnownOrg>, party| Self {
            org: known.key.org_id,
            known,
            party,
        };

        // The transport has proved who this is, so a credential in the headers isn't read.
        if let Some(operator) = Operator::of(parts) {
            let known = operator.in_org(api, parts).await?;
            return Ok(of(known, Party::Operator));
        }

        let now = api.now();
        if let Some(session) = dashboard_session::of(parts, api).await? {
            let known = session.as_key(parts, api)?;
            must_be_named(parts, known.key.org_id)?;
            known.count(api, parts, Policy::Console, CONSOLE_REQUESTS_PER_MINUTE)?;
            return Ok(of(known, Party::Org));
        }

        let token = credential(parts, REQUIRED)?;
        if token.starts_with(PARTNER_KEY) {
            let (partner, known) = partner::in_org(parts, api).await?;
            return Ok(of(known, Party::Partner(partner)));
        }

        let known = known(api, token).await?.ok_or(REVOKED)?;
        // Before the limit: a client beyond it has authenticated all the same.
        Proof::note(parts);

        let org = known.key.org_id;
        must_be_named(parts, org)?;
        known.count(api, parts, Policy::Org, known.requests_per_minute)?;
        api.credentials().uses.note_org_key(known.key.id, now);

        let actor = Actor {
            kind: ActorKind::OrgKey,
            id: Some(known.key.id),
            name: known.key.name.clone(),
        };

        Acting::by(actor, Some(org), None);
        Ok(of(known, Party::Org))
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
    if token.starts_with(session::PREFIX) {
        let message =
            "This is a session token, for GET /phone/sessions/{session_id} and for its own call";
        return ApiError::Unauthorized(message).with_code("session_token");
    }
    INVALID
}

impl Credential for Caller {
    fn key_id(&self) -> Uuid {
        let key = self.known.key.id;
        match self.party {
            Party::Org => key,
            // One credential works in many orgs, and an `Idempotency-Key` in each of them is another.
            Party::Partner(_) | Party::Operator => in_org(key, self.org),
        }
    }

    fn org(&self) -> Option<Uuid> {
        Some(self.org)
    }
}

/// Checks that a request which names an org names that of its key.
///
/// # Errors
/// 403: it would be carried out in another org than its client means.
pub(super) fn must_be_named(parts: &Parts, own: Uuid) -> Result<(), ApiError> {
    if !parts.headers.contains_key(ORG) || named_org(parts) == Some(own) {
        return Ok(());
    }
    let message = "Trunkline-Org names another org than that of the key";
    Err(ApiError::Forbidden(message.to_owned()).with_code("foreign_org"))
}

/// Id for a credential of a partner or of the operator in one org.
fn in_org(key: Uuid, org: Uuid) -> Uuid {
    let hash = Sha256::new_with_prefix(key).chain_update(org).finalize();
    let mut id = [0; 16];
    id.copy_from_slice(&hash[..16]);
    Uuid::from_bytes(id)
}
