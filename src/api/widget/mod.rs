//! The chat widget: `/widget`.

mod authenticate;
mod me;

use axum::Router;
use axum::routing::{get, post};

use super::Api;

pub(super) fn router() -> Router<Api> {
    Router::new()
        .route("/authenticate-user", post(authenticate::by_addresses))
        .route(
            "/authenticate-user-by-external-id",
            post(authenticate::by_external_id),
        )
        .route("/me", get(me::show))
}
