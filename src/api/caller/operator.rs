//! The operator of this machine, who reaches the API by the control socket or runs it in a process of their own. Each
//! request names an org in `Trunkline-Org` and may do in it what every key may.
//!
//! Requests count against the operator's own limit, not against the org's. Bounds on tenants don't apply to the operator.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderName;
use axum::http::request::Parts;
use trunkline_store::{Acting, Actor, ActorKind, Error, Kind, Org, Wrong, orgs};
use uuid::Uuid;

use crate::api::connection_limiter::Proof;
use crate::api::credentials::{CallerKey, KnownOrg};
use crate::api::field_type::id;
use crate::api::path::Named;
use crate::api::quota::{Policy, Tally};
use crate::api::{Api, ApiError, SCOPES};

/// Header that names the org by its id.
pub(crate) const ORG: HeaderName = HeaderName::from_static("trunkline-org");

/// Maximum number of an operator's requests per minute: enough for a terminal that refreshes a hundred times a second.
const REQUESTS_PER_MINUTE: u32 = 6_000;
/// Event streams that an operator may have open in one org.
pub(crate) const STREAMS: usize = 16;

impl FromRequestParts<Api> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        Self::required(api, parts)
    }
}

/// The operator, as an extension of a request. Only the transports that know the user set it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Operator {
    uid: u32,
    /// Session of the operator's pages; `None` for a command.
    session: Option<Uuid>,
}

impl Operator {
    /// The user with this id on this machine.
    pub(crate) const fn new(uid: u32) -> Self {
        Self { uid, session: None }
    }

    /// The user who is logged in to the operator's pages.
    pub(crate) const fn on_pages(uid: u32, session: Uuid) -> Self {
        Self {
            uid,
            session: Some(session),
        }
    }

    pub(crate) const fn uid(self) -> u32 {
        self.uid
    }

    /// Returns the operator who makes the request.
    pub(crate) fn of(parts: &Parts) -> Option<Self> {
        parts.extensions.get::<Self>().copied()
    }

    /// Counts a request, and names its actor for the audit log.
    ///
    /// # Errors
    /// 429 if there were too many.
    fn admit(self, api: &Api, parts: &Parts) -> Result<(), ApiError> {
        let taken = api.quotas().take(
            Policy::Operator,
            Uuid::from_u128(self.uid.into()),
            REQUESTS_PER_MINUTE,
            api.monotonic(),
        );
        Tally::of(parts).note(taken)?;
        Proof::note(parts);

        let actor = Actor {
            kind: ActorKind::Command,
            id: self.session,
            name: match self.session {
                Some(_) => format!("operator, uid {}, on the console", self.uid),
                None => format!("operator, uid {}", self.uid),
            },
        };

        Acting::by(actor, None, None);
        Ok(())
    }

    /// Returns the operator of a request to a route that no key can use.
    ///
    /// # Errors
    /// 401 for a request that came another way, 429 after too many requests.
    pub(crate) fn required(api: &Api, parts: &Parts) -> Result<Self, ApiError> {
        let operator = Self::of(parts).ok_or(ApiError::Unauthorized(
            "Only the operator of this machine may do this",
        ))?;
        operator.admit(api, parts)?;
        Ok(operator)
    }

    /// Returns the org that the request names, as if by a key with every scope. The operator may read and
    /// change a suspended org.
    ///
    /// # Errors
    /// 400 without the org's id, 404 if there is no such org, 429 after too many requests.
    pub(super) async fn in_org(self, api: &Api, parts: &Parts) -> Result<Arc<KnownOrg>, ApiError> {
        self.admit(api, parts)?;

        let org = named_org(parts).ok_or_else(|| {
            ApiError::bad("Trunkline-Org: the id of an org is required".to_owned())
        })?;

        match api.read_inline(move |tx| orgs::by_id(tx, org)).await {
            Ok(_) => {}
            Err(Error::Wrong(Wrong::Absent(_))) => {
                return Err(ApiError::NotFound("There is no such org".to_owned()));
            }
            Err(error) => return Err(error.into()),
        }

        Acting::of_org(org);
        Ok(Arc::new(KnownOrg {
            key: CallerKey {
                id: self.credential(),
                org_id: org,
                name: "operator".to_owned(),
                scopes: SCOPES.iter().map(|scope| (*scope).to_owned()).collect(),
                expires_at: None,
            },
            suspended: false,
            requests_per_minute: REQUESTS_PER_MINUTE,
            streams_per_minute: REQUESTS_PER_MINUTE,
        }))
    }

    /// Returns an id in place of a key's, so that the operator's idempotency keys are separate.
    pub(super) const fn credential(self) -> Uuid {
        // Plus one, so that root's isn't nil.
        Uuid::from_u128((self.uid as u128 + 1) << 64)
    }
}

/// Returns the org that a request names in `Trunkline-Org`.
pub(super) fn named_org(parts: &Parts) -> Option<Uuid> {
    let named = parts.headers.get(ORG)?.to_str().ok()?;
    id(named)
}

/// Returns the org in the path of a request of the operator's, and names it for the audit log's entry.
///
/// # Errors
/// 404.
pub(crate) async fn org_in(api: &Api, named: &Named) -> Result<Org, ApiError> {
    let id = named.id("orgId", Kind::Org)?;
    let org = api.read_inline(move |tx| orgs::by_id(tx, id)).await?;
    Acting::of_org(org.id);
    Ok(org)
}
