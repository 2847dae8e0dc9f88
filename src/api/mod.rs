//! REST API: routes, credentials, errors. Handlers contain no SQL and no SIP.
//!
//! There is a folder per area and a file per resource; `request` wraps every answer, `caller` authenticates.

mod accept;
pub(crate) mod api_keys;
pub(crate) mod audit;
mod audited_request;
mod body;
mod body_hash;
mod bot_calls;
pub(crate) mod caller;
pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod connection_limiter;
pub(crate) mod control;
pub(crate) mod credentials;
mod csv;
pub(crate) mod dashboard_session;
mod document;
pub(crate) mod email;
pub(crate) mod error;
mod export;
mod feed_page;
pub(crate) mod field_type;
mod follow;
pub(crate) mod gzip;
pub(crate) mod handoff_analytics;
mod health;
mod idempotency;
mod integrations;
mod json;
mod jwks;
mod language;
mod object;
mod openapi;
mod operations;
pub(crate) mod operator_sessions;
pub(crate) mod page;
mod parted_body;
pub(crate) mod path;
pub(crate) mod phone;
mod progress;
pub(crate) mod query;
pub(crate) mod quota;
mod replayed_secrets;
mod request;
pub(crate) mod routes;
mod scopes;
mod server;
mod state;
mod streams;
mod success;
pub(crate) mod tenants;
pub(crate) mod time;
mod timeouts;
pub mod token;
mod tracked_body;
pub(crate) mod usage;
mod version;
pub(crate) mod webhooks;
mod widget;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use tower_http::catch_panic::CatchPanicLayer;

use crate::config::Config;
use operations::Operations;
use routes::Routes;

pub(crate) use caller::{ORG, Operator, PARTNER_KEY};
pub(crate) use control::create_partner_key;
pub use control::{ControlServer, SOCKET};
pub use document::document;
pub use error::ApiError;
pub(crate) use field_type::{id_of, name};
pub use health::database_state;
pub(crate) use language::language_tag;
pub use operations::Audience;
pub(crate) use phone::prompts::LONGEST as LONGEST_PROMPT;
pub use scopes::SCOPES;
pub use server::{HealthServer, Server, bind};
pub use state::{Api, ApiDeps};
pub(crate) use state::{default_limits, default_retention};
pub(crate) use success::Success;
pub(crate) use tenants::operators_login_link;
pub(crate) use time::timestamp;

/// Declares every operation of the published document.
fn operations(api: &mut Operations<'_>) {
    shared_operations(api);
    tenants::operations(api, Audience::Partner);
}

/// Declares the operations that the operator has as well, in an org that it names.
fn shared_operations(api: &mut Operations<'_>) {
    document::operations(api);
    health::operations(api);
    jwks::operations(api);
    handoff_analytics::operations(api);
    api_keys::operations(api);
    phone::operations(api);
    webhooks::operations(api);
    widget::operations(api);
}

/// Makes the document of what the operator may do, for the command line: a partner has the same operations on its orgs.
pub(crate) fn operators_document(config: &Config) -> serde_json::Value {
    let mut api = Operations::described(config);
    shared_operations(&mut api);
    control::operations(&mut api);
    api.into_document()
}

/// Routes of the API for orgs and partners.
pub(crate) fn routes(config: &Config) -> Routes {
    let mut api = Operations::routes(config);
    operations(&mut api);
    // In Twilio's form, which the document doesn't describe.
    api.into_routes().merge(bot_calls::router())
}

/// Routes that only the operator has.
pub(crate) fn operators_routes(config: &Config) -> Routes {
    let mut api = Operations::routes(config);
    control::operations(&mut api);
    api.into_routes()
}

/// Every operation of the published document: method in lower case, path, and whose it is.
pub fn declared(config: &Config) -> Vec<(String, String, Audience)> {
    let mut api = Operations::routes(config);
    operations(&mut api);
    api.into_declared()
}

/// Adds what all routes share: answers to unknown paths and methods, the maximum length of bodies, and the outermost layer. `page` answers an unknown
/// path in place of the API.
pub(crate) fn served(routes: Routes, api: Api, page: fn(&str) -> Option<Response>) -> Router {
    routes
        .into_router()
        .fallback(async move |uri: Uri| page(uri.path()).unwrap_or_else(unknown_path))
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(body::LONGEST))
        // Within `request::wrap`, which is added last and so runs first: the 500 of a panic gets its id and body there.
        .layer(CatchPanicLayer::custom(
            |_: Box<dyn std::any::Any + Send>| error::panicked(),
        ))
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            request::wrap,
        ))
        .with_state(api)
}

/// Routes of `http.health_listen`.
fn health_router(api: Api) -> Router {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::rendered))
        .fallback(async || unknown_path())
        .method_not_allowed_fallback(unknown_method)
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            request::wrap,
        ))
        .with_state(api)
}

fn unknown_path() -> Response {
    ApiError::NotFound("There is no such path".to_owned()).into_response()
}

async fn unknown_method(uri: Uri) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let message = match uri.path() {
        "/phone/agents" => phone::NO_AGENTS,
        _ => routes::UNKNOWN_METHOD,
    };
    error::refusal(status, error::Refusal::new(message, error::code_of(status)))
}
