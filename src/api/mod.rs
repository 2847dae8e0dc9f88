//! The REST API: routes, credentials, errors. Handlers hold no SQL and no SIP.
//!
//! A folder per area, a file per resource; `request` wraps every answer, `caller` says who asks.

mod accept;
mod api_keys;
mod body;
mod caller;
mod client;
mod connection;
mod credentials;
mod dashboard;
mod email;
mod error;
mod handoff_analytics;
mod health;
mod idempotency;
mod integrations;
mod json;
mod jwks;
mod language;
mod meaning;
mod openapi;
mod page;
mod partner;
mod path;
mod phone;
mod query;
mod quota;
mod request;
mod room;
mod routes;
mod server;
mod shape;
mod streams;
mod time;
pub mod token;
mod usage;
mod visit;
mod webhooks;
mod widget;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tower_http::catch_panic::CatchPanicLayer;
use trunkline_calls::live::LiveCalls;
use trunkline_calls::token::SessionTokens;
use trunkline_sip::moment::Moment;
use trunkline_store::{DefaultLimits, Store};

use routes::Routes;
use trunkline_model::address::AddressPolicy;

use crate::config::Config;
use crate::directory::Directory;
use crate::engine;
use crate::integrations::Booking;
use quota::CountedBy;

pub use error::ApiError;
pub use health::database_answers;
pub(crate) use language::language_tag;
pub use openapi::document;
pub(crate) use phone::change_of;
pub use server::{Server, bind};
pub(crate) use shape::{id_of, name};
pub(crate) use time::{end as end_of, start as start_of};

/// All scopes of org keys; a key made without naming any holds all.
pub const SCOPES: [&str; 10] = [
    "widget:write",
    "handoff:read",
    "handoff:write",
    "phone:read",
    "phone:write",
    "calls:read",
    "calls:write",
    "webhooks:write",
    "keys:write",
    "integrations:read",
];

/// What handlers reach. Clones share it.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

/// What the API works with.
#[derive(Debug)]
pub struct Deps {
    /// The configuration.
    pub config: Arc<Config>,
    /// What is stored.
    pub store: Store,
    /// What routing knows.
    pub directory: Arc<Directory>,
    /// The calls that are up.
    pub live: Arc<LiveCalls>,
    /// The shards; `None` where none run and no call can be up.
    pub engine: Option<engine::Handle>,
    /// What has been measured.
    pub metrics: PrometheusHandle,
    /// The dashboard's base address, without a slash at the end.
    pub dashboard_url: String,
    /// Tells the time on the wall.
    pub clock: fn() -> Moment,
    /// Tells a time that never jumps, by which limits and caches run.
    pub monotonic: fn() -> Moment,
}

struct Inner {
    deps: Deps,
    credentials: credentials::Credentials,
    quotas: quota::Quotas,
    shelf: openapi::Shelf,
    streams: streams::Streams,
    booking: Option<Booking>,
    session_tokens: SessionTokens,
    addresses: Arc<AddressPolicy>,
    draining: AtomicBool,
}

/// Limits of orgs for which neither the operator nor a partner has set others.
pub(crate) fn default_limits(config: &Config) -> DefaultLimits {
    DefaultLimits {
        registrations: config.limits.registrations_per_org,
        requests_per_minute: config.limits.requests_per_minute,
        streaming_requests_per_minute: config.limits.streaming_requests_per_minute,
    }
}

impl Api {
    /// An API over what is stored and the calls that are up.
    pub fn new(deps: Deps) -> Self {
        let booking = deps.config.integrations.booking.as_ref();
        let booking = booking.map(Booking::new);
        let session_tokens = engine::session_tokens(deps.store.keyring());
        let addresses = match &deps.engine {
            Some(engine) => engine.addresses(),
            None => Arc::new(engine::configured_policy(&deps.config)),
        };
        let counted_by = match deps.store.is_shared() {
            true => CountedBy::Node,
            false => CountedBy::Deployment,
        };
        Self(Arc::new(Inner {
            deps,
            credentials: credentials::Credentials::default(),
            quotas: quota::Quotas::new(counted_by),
            shelf: openapi::Shelf::default(),
            streams: streams::Streams::default(),
            booking,
            session_tokens,
            addresses,
            draining: AtomicBool::new(false),
        }))
    }

    /// From now on `/readyz` says that no new calls are taken.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
        crate::telemetry::metrics::ready(false);
    }

    fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    fn config(&self) -> &Config {
        &self.0.deps.config
    }

    fn store(&self) -> &Store {
        &self.0.deps.store
    }

    fn directory(&self) -> &Directory {
        &self.0.deps.directory
    }

    fn live(&self) -> &LiveCalls {
        &self.0.deps.live
    }

    fn engine(&self) -> Option<&engine::Handle> {
        self.0.deps.engine.as_ref()
    }

    /// The rule for addresses that tenants name.
    fn addresses(&self) -> &AddressPolicy {
        &self.0.addresses
    }

    fn credentials(&self) -> &credentials::Credentials {
        &self.0.credentials
    }

    fn booking(&self) -> Option<&Booking> {
        self.0.booking.as_ref()
    }

    fn session_tokens(&self) -> &SessionTokens {
        &self.0.session_tokens
    }

    fn dashboard_url(&self) -> &str {
        &self.0.deps.dashboard_url
    }

    fn quotas(&self) -> &quota::Quotas {
        &self.0.quotas
    }

    fn streams(&self) -> &streams::Streams {
        &self.0.streams
    }

    fn shelf(&self) -> &openapi::Shelf {
        &self.0.shelf
    }

    fn now(&self) -> Moment {
        (self.0.deps.clock)()
    }

    /// Now, on the clock that never jumps.
    fn monotonic(&self) -> Moment {
        (self.0.deps.monotonic)()
    }

    fn rendered_metrics(&self) -> String {
        self.0.deps.metrics.render()
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("draining", &self.is_draining())
            .finish_non_exhaustive()
    }
}

/// The answer to what leaves nothing to show.
#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
pub(crate) struct Success {
    success: bool,
}

impl Success {
    pub(crate) const DONE: Self = Self { success: true };
}

/// Every route.
fn routes() -> Routes {
    Routes::new()
        .route("/openapi.json", get(openapi::show))
        .route("/docs", get(openapi::docs))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(health::rendered))
        .route("/.well-known/jwks.json", get(jwks::show))
        .nest("/handoff-analytics", handoff_analytics::router())
        .nest("/api-keys", api_keys::router())
        .nest("/partner/v1", partner::router())
        .nest("/phone", phone::router())
        .nest("/webhooks", webhooks::router())
        .nest("/widget", widget::router())
        .merge(dashboard::router())
}

/// Every path, its parameters in braces.
pub fn paths() -> Vec<String> {
    routes().into_paths()
}

/// The API as a service.
pub fn router(api: Api) -> Router {
    routes()
        .into_router()
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
        .layer(DefaultBodyLimit::max(body::LONGEST))
        .layer(CatchPanicLayer::custom(
            |_: Box<dyn std::any::Any + Send>| panicked(),
        ))
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            request::follow,
        ))
        .with_state(api)
}

async fn unknown_path() -> ApiError {
    ApiError::NotFound("There is no such path".to_owned())
}

async fn unknown_method(uri: Uri) -> Response {
    let status = StatusCode::METHOD_NOT_ALLOWED;
    let message = match uri.path() {
        "/phone/agents" => phone::NO_AGENTS,
        _ => "This path does not take this method; see Allow",
    };
    error::refusal(status, error::Refusal::new(message, error::code_of(status)))
}

/// The panic's text went to standard error by the panic hook; `request` makes the body.
fn panicked() -> Response {
    axum::response::IntoResponse::into_response(StatusCode::INTERNAL_SERVER_ERROR)
}
