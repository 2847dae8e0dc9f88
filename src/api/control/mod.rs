//! The API on the control socket: every route, and a few for the operator alone. See `operator` for what a request
//! may do.

mod addresses;
mod login_links;
mod orgs;
mod server;

use axum::routing::{get, post};

use super::routes::Routes;

pub use server::{ControlServer, SOCKET};

/// Routes that only the operator has.
pub(super) fn routes() -> Routes {
    Routes::new()
        .route("/operator/addresses", get(addresses::show))
        .route("/operator/orgs", get(orgs::list))
        .route(
            "/operator/orgs/{orgId}/login-links",
            post(login_links::create),
        )
}
