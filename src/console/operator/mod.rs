//! Pages of the operator: orgs, partners, nodes, sources whose log-ins fail, and the audit log of the installation. They read and change everything
//! by the requests of the control socket, so pages and commands can't disagree. A session comes from `trunkline console --operator`, and belongs to
//! no org.

mod allowed;
mod audit_log;
mod edited;
mod fields;
mod frame;
mod limits;
mod login;
mod nodes;
mod orgs;
mod partners;
mod visitor;

use std::convert::Infallible;

use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};

use super::login::LONGEST_FORM;
use crate::api::routes::Routes;

pub(super) use visitor::AT;

/// Paths below the console's.
pub(super) fn routes() -> Routes {
    Routes::new()
        .route("/", get(orgs::list).post(orgs::create))
        .route(
            "/login",
            get(login::show)
                .post(login::open)
                .layer::<_, Infallible>(DefaultBodyLimit::max(LONGEST_FORM)),
        )
        .route("/logout", post(login::log_out))
        .route("/orgs/{orgId}", get(orgs::show).post(orgs::update))
        .route("/orgs/{orgId}/limits", post(orgs::limit))
        .route("/orgs/{orgId}/retention", post(orgs::retain))
        .route("/orgs/{orgId}/networks", post(allowed::add_network))
        .route(
            "/orgs/{orgId}/networks/remove",
            post(allowed::remove_network),
        )
        .route("/orgs/{orgId}/tied-peers", post(allowed::add_peer))
        .route(
            "/orgs/{orgId}/tied-peers/remove",
            post(allowed::remove_peer),
        )
        .route("/orgs/{orgId}/suspend", post(orgs::suspend))
        .route("/orgs/{orgId}/resume", post(orgs::resume))
        .route("/orgs/{orgId}/delete", post(orgs::delete))
        .route("/orgs/{orgId}/restore", post(orgs::restore))
        .route("/orgs/{orgId}/console", post(orgs::open_console))
        .route("/partners", get(partners::list).post(partners::create))
        .route(
            "/partners/{partnerId}",
            get(partners::show).post(partners::update),
        )
        .route("/partners/{partnerId}/limits", post(partners::limit))
        .route("/partners/{partnerId}/keys", post(partners::create_key))
        .route(
            "/partners/{partnerId}/keys/{keyId}/revoke",
            post(partners::revoke_key),
        )
        .route("/nodes", get(nodes::show))
        .route("/sources", get(nodes::sources))
        .route("/audit", get(audit_log::show))
}
