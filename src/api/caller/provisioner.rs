//! Caller that manages orgs: a partner its own, below `/partner/v1`, and the operator all of them, below `/operator`. The same handlers serve both; where
//! one may do more than the other, the handler asks for a permission here.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use trunkline_store::{Acting, Kind, LimitedBy, Org, Suspender};
use uuid::Uuid;

use super::credential::Credential;
use super::operator::{Operator, org_in};
use super::partner::{PartnerCaller, foreign};
use crate::api::path::Named;
use crate::api::{Api, ApiError};

/// Partner or operator that makes the request.
#[derive(Clone, Debug)]
pub(crate) enum Provisioner {
    Partner(PartnerCaller),
    Operator(Operator),
}

impl FromRequestParts<Api> for Provisioner {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        // `idempotency` has extracted it before, and counted the request.
        if let Some(known) = parts.extensions.get::<Self>() {
            return Ok(known.clone());
        }
        // On the control socket a partner's key is one too, below the partner's paths.
        if parts.uri.path().starts_with("/operator/") {
            return Ok(Self::Operator(
                Operator::from_request_parts(parts, api).await?,
            ));
        }
        let partner = PartnerCaller::from_request_parts(parts, api).await?;
        Ok(Self::Partner(partner))
    }
}

impl Credential for Provisioner {
    fn key_id(&self) -> Uuid {
        match self {
            Self::Partner(partner) => partner.key_id(),
            Self::Operator(operator) => operator.credential(),
        }
    }

    fn org(&self) -> Option<Uuid> {
        None
    }
}

impl Provisioner {
    /// Returns the partner; `None` for the operator.
    pub(crate) const fn partner(&self) -> Option<&PartnerCaller> {
        match self {
            Self::Partner(partner) => Some(partner),
            Self::Operator(_) => None,
        }
    }

    /// Returns the id of the partner whose orgs these are; `None`: of all.
    pub(crate) fn partner_id(&self) -> Option<Uuid> {
        self.partner().map(PartnerCaller::id)
    }

    /// Returns the org in the path.
    ///
    /// # Errors
    /// For a partner the same 403 for another partner's org, for an org that doesn't exist, and for a text that is no id; for the operator 404.
    pub(crate) async fn org(&self, api: &Api, named: &Named) -> Result<Org, ApiError> {
        match self {
            Self::Partner(partner) => partner.owned(api, named).await,
            Self::Operator(_) => org_in(api, named).await,
        }
    }

    /// Returns the id of the org in the path, which may be deleted but not yet purged.
    ///
    /// # Errors
    /// As of [`Provisioner::org`].
    pub(crate) async fn org_or_deleted(&self, api: &Api, named: &Named) -> Result<Uuid, ApiError> {
        match self {
            Self::Partner(partner) => partner.owned_or_deleted(api, named).await,
            Self::Operator(_) => {
                let id = named.id("orgId", Kind::Org)?;
                Acting::of_org(id);
                Ok(id)
            }
        }
    }

    /// Refusal for an org that is gone by the time that it is changed.
    pub(crate) fn absent_org(&self) -> ApiError {
        match self {
            Self::Partner(_) => foreign(),
            Self::Operator(_) => ApiError::absent(Kind::Org),
        }
    }

    /// Checks that the caller may verify numbers.
    ///
    /// # Errors
    /// 403 for a partner, unless the operator allows it to.
    pub(crate) fn may_verify_numbers(&self) -> Result<(), ApiError> {
        self.partner()
            .map_or(Ok(()), PartnerCaller::may_verify_numbers)
    }

    /// Returns the party that suspends an org at this request.
    pub(crate) const fn suspender(&self) -> Suspender {
        match self {
            Self::Partner(_) => Suspender::Partner,
            Self::Operator(_) => Suspender::Operator,
        }
    }

    /// Returns the party whose limits this request sets.
    pub(crate) const fn limited_by(&self) -> LimitedBy {
        match self {
            Self::Partner(_) => LimitedBy::Partner,
            Self::Operator(_) => LimitedBy::Operator,
        }
    }
}
