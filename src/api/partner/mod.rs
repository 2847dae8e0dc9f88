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

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/orgs", get(orgs::list).post(orgs::create))
        .route(
            "/orgs/by-external-id/{externalId}",
            get(orgs::by_external_id),
        )
        .route("/orgs/{orgId}/api-keys", post(api_keys::create))
        .route(
            "/orgs/{orgId}/api-keys/{apiKeyId}",
            delete(api_keys::revoke),
        )
        .route("/orgs/{orgId}/login-links", post(login_links::create))
        .route("/orgs/{orgId}/roles", get(roles::list))
}
