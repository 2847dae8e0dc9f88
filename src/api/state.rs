//! State that every handler has access to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics_exporter_prometheus::PrometheusHandle;
use trunkline_calls::core::live::LiveCalls;
use trunkline_calls::trust::token::SessionTokens;
use trunkline_model::address::AddressPolicy;
use trunkline_sip::moment::Moment;
use trunkline_store::{DefaultLimits, Error, RetentionDays, Store, Tx};
use uuid::Uuid;

use super::credentials::Credentials;
use super::openapi::RenderedDocs;
use super::operator_sessions::OperatorSessions;
use super::quota::{CountedBy, Quotas};
use super::streams::Streams;
use crate::config::Config;
use crate::directory::Directory;
use crate::engine;
use crate::integrations::BookingPlatform;
use crate::telemetry::{metrics, process};

/// Shared state of the API. Clones share it.
#[derive(Clone)]
pub struct Api(Arc<Inner>);

/// Everything the API is given at its start.
#[derive(Debug)]
pub struct ApiDeps {
    /// The configuration.
    pub config: Arc<Config>,
    /// Database.
    pub store: Store,
    /// Directory of orgs, agents, trunks and numbers.
    pub directory: Arc<Directory>,
    /// Calls that are up.
    pub live: Arc<LiveCalls>,
    /// Access to the shards; `None` if none run and no call can be up.
    pub engine: Option<engine::Handle>,
    /// Metrics of this process.
    pub metrics: PrometheusHandle,
    /// Base URL of the API, without a trailing slash: the issuer of widget tokens.
    pub base_url: String,
    /// Base URL of the dashboard, without a trailing slash.
    pub dashboard_url: String,
    /// Advertised host and port of each SIP listener; empty if this process serves none.
    pub sip_addresses: Vec<String>,
    /// Wall clock.
    pub clock: fn() -> Moment,
    /// Monotonic clock, used by limits and caches.
    pub monotonic: fn() -> Moment,
}

struct Inner {
    deps: ApiDeps,
    credentials: Credentials,
    quotas: Quotas,
    rendered_docs: RenderedDocs,
    streams: Streams,
    booking: Option<BookingPlatform>,
    session_tokens: SessionTokens,
    addresses: Arc<AddressPolicy>,
    operator_sessions: OperatorSessions,
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

/// Retention of orgs without one of their own, in days.
pub(crate) fn default_retention(config: &Config) -> RetentionDays {
    RetentionDays {
        calls: config.retention.calls_days,
        sessions: config.retention.sessions_days,
        contacts: config.retention.contacts_days,
        handoffs: config.retention.handoffs_days,
    }
}

impl Api {
    /// Makes the API over a store and the live calls.
    pub fn new(deps: ApiDeps) -> Self {
        let booking = deps.config.integrations.booking.as_ref();
        let booking = booking.map(BookingPlatform::new);
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
            credentials: Credentials::default(),
            quotas: Quotas::new(counted_by),
            rendered_docs: RenderedDocs::default(),
            streams: Streams::default(),
            booking,
            session_tokens,
            addresses,
            operator_sessions: OperatorSessions::default(),
            draining: AtomicBool::new(false),
        }))
    }

    /// Makes `/readyz` say that no new calls are taken.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
        metrics::ready(false);
    }

    /// Links to the operator's pages, and their sessions.
    pub(crate) fn operator_sessions(&self) -> &OperatorSessions {
        &self.0.operator_sessions
    }

    /// Makes a link that lets this user of the machine into the operator's pages, once.
    pub fn operators_link(&self, uid: u32) -> String {
        let token = self.operator_sessions().link(uid, self.monotonic());
        format!(
            "{}/operator-console/login?token={token}",
            self.dashboard_url()
        )
    }

    pub(super) fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    pub(crate) fn config(&self) -> &Config {
        &self.0.deps.config
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.deps.store
    }

    /// [`Store::read`].
    pub(crate) fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        self.store().read(work)
    }

    /// [`Store::read_of`].
    pub(crate) fn read_of<T: Send + 'static>(
        &self,
        org: Uuid,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        self.store().read_of(org, work)
    }

    /// [`Store::read_inline`].
    pub(crate) fn read_inline<T: Send + 'static, W>(
        &self,
        work: W,
    ) -> impl Future<Output = Result<T, Error>> + Send + use<T, W>
    where
        W: FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    {
        self.store().read_inline(work)
    }

    /// [`Store::write`], with the time.
    pub(crate) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx, Moment) -> Result<T, Error> + Send + 'static,
    ) -> impl Future<Output = Result<T, Error>> + Send {
        let now = self.now();
        self.store().write(move |tx| work(tx, now))
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.0.deps.directory
    }

    pub(crate) fn live(&self) -> &LiveCalls {
        &self.0.deps.live
    }

    pub(crate) fn engine(&self) -> Option<&engine::Handle> {
        self.0.deps.engine.as_ref()
    }

    /// Address policy for what tenants configure.
    pub(super) fn addresses(&self) -> &AddressPolicy {
        &self.0.addresses
    }

    pub(crate) fn credentials(&self) -> &Credentials {
        &self.0.credentials
    }

    pub(super) fn booking(&self) -> Option<&BookingPlatform> {
        self.0.booking.as_ref()
    }

    pub(super) fn session_tokens(&self) -> &SessionTokens {
        &self.0.session_tokens
    }

    /// Advertised host and port of each SIP listener.
    pub(super) fn sip_addresses(&self) -> &[String] {
        &self.0.deps.sip_addresses
    }

    pub(super) fn base_url(&self) -> &str {
        &self.0.deps.base_url
    }

    pub(crate) fn dashboard_url(&self) -> &str {
        &self.0.deps.dashboard_url
    }

    pub(crate) fn quotas(&self) -> &Quotas {
        &self.0.quotas
    }

    pub(crate) fn streams(&self) -> &Streams {
        &self.0.streams
    }

    pub(super) fn rendered_docs(&self) -> &RenderedDocs {
        &self.0.rendered_docs
    }

    pub(crate) fn now(&self) -> Moment {
        (self.0.deps.clock)()
    }

    /// Monotonic time.
    pub(crate) fn monotonic(&self) -> Moment {
        (self.0.deps.monotonic)()
    }

    pub(super) fn rendered_metrics(&self) -> String {
        // The writer of the log counts by itself: its count is copied before each rendering.
        metrics::log_lines_dropped();
        self.0.deps.metrics.render() + &process::rendered()
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api")
            .field("draining", &self.is_draining())
            .finish_non_exhaustive()
    }
}
