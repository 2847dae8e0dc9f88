//! Gauges read every few seconds, since no event updates them: the database, its change feed, the backlog of webhooks, and the certificates in use.

use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use trunkline_net::listener::tls::Security;
use trunkline_net::tls::Certificate;
use trunkline_sip::moment::Moment;
use trunkline_store::{Store, deliveries, feed};
use x509_parser::parse_x509_certificate;

use super::now;
use crate::directory::Directory;
use crate::telemetry::metrics;
use crate::{api, jobs};

/// Sources that the gauges are read from.
pub(super) struct Upkeep {
    pub(super) handle: PrometheusHandle,
    pub(super) store: Store,
    pub(super) directory: Arc<Directory>,
    /// Certificate for HTTP.
    pub(super) certificate: Option<Arc<Certificate>>,
    /// Certificate for SIP.
    pub(super) security: Arc<Security>,
}

impl Upkeep {
    /// Sets the gauges periodically; never returns.
    pub(super) async fn run(self) {
        let mut turns = jobs::GAUGES.ticks();
        let mut in_force = now();
        loop {
            turns.tick().await;
            self.handle.run_upkeep();
            self.certificates();
            if api::database_state(&self.store).await.answers() {
                self.backlog().await;
            }
            self.change_feed(&mut in_force).await;
        }
    }

    /// Sets when the certificates in use expire. They are replaced on SIGHUP.
    fn certificates(&self) {
        let (http, sip) = (self.certificate.as_ref(), self.security.certificate());
        for (purpose, certificate) in [("http", http), ("sip", sip)] {
            metrics::certificate_expiry(purpose, certificate.and_then(|used| expiry(used)));
        }
    }

    async fn backlog(&self) {
        if let Ok((count, oldest)) = self.store.read(deliveries::backlog).await {
            let age = oldest.map_or(Duration::ZERO, |oldest| now().since(oldest));
            metrics::webhook_backlog(count, age);
        }
    }

    /// Sets the age of the oldest change that isn't in force here. While the feed can't be read, it is the time since the last look that found every
    /// change in force.
    async fn change_feed(&self, in_force: &mut Moment) {
        // Read before the query: a change that comes into force between the two is reported late once, but none is
        // missed.
        let position = self.directory.position();
        let looked = now();
        let oldest = self
            .store
            .read(move |tx| feed::oldest_after(tx, position))
            .await;

        let lag = match oldest {
            Ok(None) => {
                *in_force = looked;
                Duration::ZERO
            }
            Ok(Some(oldest)) => looked.since(oldest),
            Err(_) => looked.since(*in_force),
        };
        metrics::change_feed_lag(lag);
    }
}

/// Returns the time at which the first certificate of the chain to expire does, in seconds of Unix time.
fn expiry(certificate: &Certificate) -> Option<i64> {
    let chain = &certificate.current().cert;
    let ends = chain.iter().filter_map(|der| {
        let (_, read) = parse_x509_certificate(der).ok()?;
        Some(read.validity().not_after.timestamp())
    });
    ends.min()
}
