//! Authenticates a partner by its key. Checked in this order: the key, whether the partner is active, the source
//! address, the rate limit; then whether the org that the path or `Trunkline-Org` names is the partner's.
//!
//! A key is found by its SHA-256. The time of that look-up could reveal a prefix of a hash at most, which is of no use.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use trunkline_store::{
    Acting, Actor, ActorKind, Error, Org, Partner, Wrong, deleted_orgs, orgs, partners,
};
use uuid::Uuid;

use super::credential::{PARTNER_KEY, credential};
use super::operator::{ORG, named_org};
use crate::api::connection_limiter::Proof;
use crate::api::credentials::{CallerKey, KnownOrg, KnownPartner, presented};
use crate::api::field_type::id;
use crate::api::path::Named;
use crate::api::quota::{Policy, Tally};
use crate::api::{Api, ApiError, SCOPES, client};

/// Partner that makes the request.
#[derive(Clone, Debug)]
pub(crate) struct PartnerCaller {
    known: Arc<KnownPartner>,
    tally: Tally,
}

impl FromRequestParts<Api> for PartnerCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let key = credential(
            parts,
            "A partner key is required: Authorization: Bearer <partner key>",
        )?;
        let known = known(api, key).await?.ok_or_else(|| no_key(key))?;
        // At each request, although the look-up is cached: the address is the request's.
        let address = client::address(parts, &api.config().http.trusted_proxies);
        admitted(&known.partner, address)?;
        // After the address, before the limit: a stolen key at an address that isn't allowed neither counts as
        // authenticated nor uses up the partner's requests.
        Proof::note(parts);

        let (partner, tally, now) = (&known.partner, Tally::of(parts), api.now());
        let (id, key) = (partner.id, known.key.id);
        let caller = Self { known, tally };
        let limit = caller.requests_per_minute(api);
        let quotas = api.quotas();
        let taken = quotas.take(Policy::Partner, id, limit, api.monotonic());
        caller.tally.note(taken)?;
        api.credentials().uses.note_partner_key(key, now);

        let actor = Actor {
            kind: ActorKind::PartnerKey,
            id: Some(key),
            name: caller.known.key.name.clone(),
        };

        Acting::by(actor, None, Some(id));
        Ok(caller)
    }
}

/// Returns the partner of a key; `None` if no partner has it.
async fn known(api: &Api, key: &str) -> Result<Option<Arc<KnownPartner>>, ApiError> {
    let hash = presented(key);
    let look_up = async || {
        let found = api
            .read_inline(move |tx| partners::by_key(tx, hash))
            .await?;
        Ok(found.map(|(key, partner)| KnownPartner { key, partner }))
    };
    let partners = &api.credentials().partners;
    partners.or_look_up(hash, api.monotonic(), look_up).await
}

/// Returns the partner, and the org that its request names in `Trunkline-Org`, as if by a key of that org with every scope. It counts as a request of the
/// partner's.
///
/// # Errors
/// Those of [`PartnerCaller`]; 401 if no org is named; 403 for an org that isn't the partner's, and for one that is suspended.
pub(super) async fn in_org(
    parts: &mut Parts,
    api: &Api,
) -> Result<(Uuid, Arc<KnownOrg>), ApiError> {
    if !parts.headers.contains_key(ORG) {
        let message = "This is a partner key: name the org that the request is for in the header Trunkline-Org, or make a key of the org with \
                       POST /partner/v1/orgs/{orgId}/api-keys";
        return Err(ApiError::Unauthorized(message).with_code("partner_key"));
    }

    let caller = PartnerCaller::from_request_parts(parts, api).await?;
    let org = caller.must_own(api, named_org(parts)).await?;
    if org.is_suspended() {
        return Err(ApiError::suspended());
    }

    let (key, limit) = (&caller.known.key, caller.requests_per_minute(api));
    let known = KnownOrg {
        key: CallerKey {
            id: key.id,
            org_id: org.id,
            name: key.name.clone(),
            scopes: SCOPES.iter().map(|scope| (*scope).to_owned()).collect(),
            expires_at: None,
        },
        suspended: false,
        requests_per_minute: limit,
        streams_per_minute: limit,
    };
    Ok((caller.id(), Arc::new(known)))
}

/// Returns true if a key is still a partner's that may use it from this address, and this org is still that partner's and not suspended.
///
/// # Errors
/// The database is away.
pub(super) async fn is_still_in(
    api: &Api,
    key: &str,
    address: Option<IpAddr>,
    org: Uuid,
) -> Result<bool, ApiError> {
    let known = known(api, key).await?;
    let Some(known) = known.filter(|known| admitted(&known.partner, address).is_ok()) else {
        return Ok(false);
    };
    match api.read_inline(move |tx| orgs::by_id(tx, org)).await {
        Ok(org) => Ok(org.partner_id == Some(known.partner.id) && !org.is_suspended()),
        Err(Error::Wrong(Wrong::Absent(_))) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Explains a credential that is no partner's key.
fn no_key(key: &str) -> ApiError {
    // Three parts with dots between them: a signed token (RFC 7515 §7.1), as org keys are.
    if !key.starts_with(PARTNER_KEY) && key.split('.').count() == 3 {
        let message =
            "This is a token of an org: below /partner/v1 a partner key (tlp_…) is required";
        return ApiError::Unauthorized(message).with_code("org_key");
    }
    ApiError::Unauthorized("The partner key is invalid or has been revoked")
}

/// Checks that the partner is active and may call from this address.
///
/// # Errors
/// 401 for an inactive partner; 403 for an address that isn't on the partner's IP allow list.
fn admitted(partner: &Partner, address: Option<IpAddr>) -> Result<(), ApiError> {
    if !partner.active {
        return Err(
            ApiError::Unauthorized("The partner account is inactive").with_code("partner_inactive")
        );
    }

    let Some(networks) = &partner.allowed_networks else {
        return Ok(());
    };

    // An address that isn't known is on no list, so it is refused as well.
    if address.is_some_and(|address| client::within(networks, address)) {
        Ok(())
    } else {
        let message = "Requests from this address are not allowed";
        Err(ApiError::Forbidden(message.to_owned()).with_code("address_not_allowed"))
    }
}

impl PartnerCaller {
    pub(super) fn key_id(&self) -> Uuid {
        self.known.key.id
    }

    pub(crate) fn id(&self) -> Uuid {
        self.known.partner.id
    }

    /// Requests per minute for all keys of the partner together.
    pub(crate) fn requests_per_minute(&self, api: &Api) -> u32 {
        let own = self.known.partner.requests_per_minute;
        own.unwrap_or(api.config().limits.partner_requests_per_minute)
    }

    /// Login links per minute that the partner may create.
    pub(crate) fn login_links_per_minute(&self, api: &Api) -> u32 {
        let own = self.known.partner.login_links_per_minute;
        own.unwrap_or(api.config().limits.login_links_per_minute)
    }

    /// Checks that the partner may verify numbers.
    ///
    /// # Errors
    /// 403 unless the operator allows the partner to verify numbers.
    pub(crate) fn may_verify_numbers(&self) -> Result<(), ApiError> {
        if self.known.partner.verifies_numbers {
            return Ok(());
        }
        let message =
            "The operator has not let this partner verify numbers (trunkline partner let-verify)";
        Err(ApiError::Forbidden(message.to_owned()).with_code("verification_not_granted"))
    }

    /// Counts a login link.
    ///
    /// # Errors
    /// 429 if there were too many.
    pub(crate) fn takes_login_link(&self, api: &Api) -> Result<(), ApiError> {
        let limit = self.login_links_per_minute(api);
        let taken = api
            .quotas()
            .take(Policy::LoginLinks, self.id(), limit, api.monotonic());
        self.tally.note(taken)
    }

    /// Returns the org in the path.
    ///
    /// # Errors
    /// The same 403 for another partner's org, for an org that doesn't exist, and for a text that is no id.
    pub(crate) async fn owned(&self, api: &Api, named: &Named) -> Result<Org, ApiError> {
        self.must_own(api, named.text("orgId").and_then(id)).await
    }

    /// Returns the org of this id.
    ///
    /// # Errors
    /// As of [`PartnerCaller::owned`].
    async fn must_own(&self, api: &Api, org: Option<Uuid>) -> Result<Org, ApiError> {
        // Judged before anything else of the request, and with one answer, so that a partner can't find out which ids
        // are orgs of others.
        let org = org.ok_or_else(foreign)?;
        match api.read_inline(move |tx| orgs::by_id(tx, org)).await {
            Ok(org) if org.partner_id == Some(self.id()) => {
                Acting::of_org(org.id);
                Ok(org)
            }
            Ok(_) | Err(Error::Wrong(Wrong::Absent(_))) => Err(foreign()),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the id of the org in the path, which may be deleted but not yet purged.
    ///
    /// # Errors
    /// As of [`PartnerCaller::owned`].
    pub(crate) async fn owned_or_deleted(
        &self,
        api: &Api,
        named: &Named,
    ) -> Result<Uuid, ApiError> {
        let id = named.text("orgId").and_then(id).ok_or_else(foreign)?;
        let now = api.now();
        match api
            .read_inline(move |tx| deleted_orgs::partner_of_restorable(tx, id, now))
            .await
        {
            Ok(partner) if partner == Some(self.id()) => {
                Acting::of_org(id);
                Ok(id)
            }
            Ok(_) | Err(Error::Wrong(Wrong::Absent(_))) => Err(foreign()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Refusal for an org that isn't the partner's.
pub(crate) fn foreign() -> ApiError {
    ApiError::Forbidden("The org does not belong to this partner".to_owned())
        .with_code("foreign_org")
}
