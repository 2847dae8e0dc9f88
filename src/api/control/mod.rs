//! The API on the control socket: every route, and those that the operator alone has. See `operator` for what a request
//! may do.
//!
//! A route that the partner API has too has the same path here, with `/operator` in place of `/partner/v1`.

mod addresses;
mod audit;
mod console_links;
mod installation;
mod limits;
mod listed;
mod login_links;
mod media_addresses;
mod named_org;
mod networks;
mod numbers;
mod openapi;
mod orgs;
mod partner_keys;
mod partners;
mod retention;
mod server;
mod tied_peers;

use axum::routing::{delete, get, post};

use super::routes::Routes;

pub(crate) use login_links::operators_login_link;
pub(super) use openapi::describe;
pub(crate) use partner_keys::create_partner_key;
pub use server::{ControlServer, SOCKET};

/// Routes that only the operator has.
pub(super) fn routes() -> Routes {
    Routes::new()
        .route("/operator/addresses", get(addresses::show))
        .nest("/operator/orgs", of_orgs())
        .route("/operator/deleted-orgs", get(orgs::deleted))
        .route(
            "/operator/partners",
            get(partners::list).post(partners::create),
        )
        .route(
            "/operator/partners/{partnerId}",
            get(partners::show).patch(partners::update),
        )
        .route(
            "/operator/partners/{partnerId}/limits",
            get(limits::of_partner).patch(limits::limit_partner),
        )
        .route(
            "/operator/partners/{partnerId}/keys",
            get(partner_keys::list).post(partner_keys::create),
        )
        .route(
            "/operator/partners/{partnerId}/keys/{keyId}",
            delete(partner_keys::revoke),
        )
        .route("/operator/audit", get(audit::list))
        .route("/operator/nodes", get(installation::nodes))
        .route("/operator/health", get(installation::health))
        .route("/operator/sources", get(installation::sources))
        .route("/operator/console-links", post(console_links::create))
}

fn of_orgs() -> Routes {
    Routes::new()
        .route("/", get(orgs::list).post(orgs::create))
        .route(
            "/{orgId}",
            get(orgs::show).patch(orgs::update).delete(orgs::delete),
        )
        .route("/{orgId}/suspend", post(orgs::suspend))
        .route("/{orgId}/resume", post(orgs::resume))
        .route("/{orgId}/restore", post(orgs::restore))
        .route(
            "/{orgId}/rotate-widget-token",
            post(orgs::rotate_widget_token),
        )
        .route(
            "/{orgId}/limits",
            get(limits::of_org).patch(limits::limit_org),
        )
        .route(
            "/{orgId}/retention",
            get(retention::show).patch(retention::update),
        )
        .route(
            "/{orgId}/tied-peers",
            get(tied_peers::list).post(tied_peers::tie),
        )
        .route("/{orgId}/tied-peers/{peer}", delete(tied_peers::untie))
        .route(
            "/{orgId}/networks",
            get(networks::list).post(networks::create),
        )
        .route("/{orgId}/networks/{network}", delete(networks::delete))
        .route(
            "/{orgId}/media-addresses",
            get(media_addresses::list).post(media_addresses::add),
        )
        .route(
            "/{orgId}/media-addresses/{network}",
            delete(media_addresses::remove),
        )
        .route("/{orgId}/phone-numbers", get(numbers::list))
        .route(
            "/{orgId}/phone-numbers/{phoneNumberId}/verify",
            post(numbers::verify),
        )
        .route(
            "/{orgId}/phone-numbers/{phoneNumberId}/unverify",
            post(numbers::unverify),
        )
        .route("/{orgId}/login-links", post(login_links::create))
}
