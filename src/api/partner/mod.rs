//! The partner API: `/partner/v1`. Resellers make orgs for their customers.

mod api_keys;
mod caller;
mod integrations;
mod login_links;
mod orgs;
mod roles;

use axum::Router;
use axum::routing::{delete, get, post};

use super::Api;
use super::idempotency::{Idempotent, once_for};
use caller::PartnerCaller;

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/orgs", get(orgs::list).post(once(orgs::create)))
        .route(
            "/orgs/by-external-id/{externalId}",
            get(orgs::by_external_id),
        )
        .route("/orgs/{orgId}/api-keys", post(once(api_keys::create)))
        .route(
            "/orgs/{orgId}/api-keys/{apiKeyId}",
            delete(api_keys::revoke),
        )
        .route("/orgs/{orgId}/login-links", post(once(login_links::create)))
        .route("/orgs/{orgId}/roles", get(roles::list))
}

/// A handler that takes `Idempotency-Key`.
const fn once<H>(handler: H) -> Idempotent<PartnerCaller, H> {
    once_for(handler)
}
