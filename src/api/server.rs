//! HTTP or HTTPS server on one address: it accepts a bounded number of connections and stops gracefully. See
//! `connection`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use trunkline_net::tls::Certificate;

use super::connection::Answers;
use super::connection_limiter::{ConnectionBounds, ConnectionLimiter};
use super::timeouts::TIMEOUTS;
use super::{Api, connection, follow, health_router, phone};
use crate::jobs;
use crate::telemetry::metrics;

/// Maximum number of connections from one source (in IPv6 a /64) that is no trusted proxy.
const CONNECTIONS_PER_SOURCE: usize = 128;
/// Time that requests in progress have to finish when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Binds the address, so that a taken port is reported before anything else starts.
///
/// # Errors
/// The address can't be listened on.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

/// A running server of `/healthz`, `/readyz` and `/metrics` only, on an address of its own. It can be reached while clients take all connections of
/// the API, and those clients can't reach it.
#[derive(Debug)]
pub struct HealthServer {
    end: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
}

impl HealthServer {
    /// Maximum number of connections: a few orchestrators and scrapers.
    const CONNECTIONS: usize = 64;

    /// Serves plain HTTP until [`Self::stop`].
    pub fn start(api: Api, listener: TcpListener) -> Self {
        let (end, ended) = watch::channel(false);
        let limiter = ConnectionLimiter::new(ConnectionBounds {
            total: Self::CONNECTIONS,
            per_source: Self::CONNECTIONS,
            trusted_proxies: Vec::new(),
        });
        let answers = Answers {
            router: health_router(api),
            timeouts: TIMEOUTS,
        };
        let serving = tokio::spawn(serve(answers, listener, None, limiter, ended));
        Self { end, serving }
    }

    /// Stops accepting, lets requests in progress finish for a few seconds, and returns.
    pub async fn stop(self) {
        // Both fail only if the task has ended by itself.
        let _ = self.end.send(true);
        let _ = self.serving.await;
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    end: watch::Sender<bool>,
    serving: tokio::task::JoinHandle<()>,
    api: Api,
    /// Background tasks: changed credentials, uses of keys, event streams, and commands of other nodes.
    followers: [tokio::task::JoinHandle<()>; 4],
}

impl Server {
    /// Serves `router` on `listener` until [`Self::stop`], with at most this many connections: HTTPS with a certificate, else HTTP.
    pub fn start(
        api: Api,
        router: Router,
        listener: TcpListener,
        certificate: Option<&Arc<Certificate>>,
        max_connections: usize,
    ) -> Self {
        let (end, ended) = watch::channel(false);
        let runtime = runtime::Handle::current();
        let followers = [
            jobs::CREDENTIALS.spawn(&runtime, follow::credentials(api.clone())),
            jobs::KEY_USES.spawn(&runtime, follow::uses(api.clone())),
            jobs::EVENT_FEED.spawn(&runtime, follow::events(api.clone())),
            jobs::OTHER_NODES.spawn(&runtime, phone::serve_others(api.clone())),
        ];

        let tls = certificate
            .map(|certificate| TlsAcceptor::from(certificate.server(&connection::PROTOCOLS)));

        let http = &api.config().http;
        let limiter = ConnectionLimiter::new(ConnectionBounds {
            total: http.max_connections.min(max_connections),
            per_source: CONNECTIONS_PER_SOURCE,
            trusted_proxies: http.trusted_proxies.clone(),
        });
        let answers = Answers {
            router,
            timeouts: TIMEOUTS,
        };
        let serving = tokio::spawn(serve(answers, listener, tls, limiter, ended));
        Self {
            end,
            serving,
            api,
            followers,
        }
    }

    /// Stops accepting, lets requests in progress finish for a few seconds, and returns.
    pub async fn stop(self) {
        // These fail only for a task that has ended by itself, or was aborted.
        let _ = self.end.send(true);
        // An open event stream never ends by itself: it would hold its connection for the whole of `SHUTDOWN_TIMEOUT`.
        self.api.streams().end();
        let _ = self.serving.await;
        // After the connections: a request that writes is answered once `follow::credentials` has applied its change.
        for task in self.followers {
            task.abort();
            let _ = task.await;
        }

        // Last, so that it stores the uses by requests that were answered during the shutdown.
        self.api.write_uses().await;
    }
}

async fn serve(
    answers: Answers,
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    limiter: ConnectionLimiter,
    mut ended: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = ended.changed() => break,
        };

        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "HTTP connection not accepted"
                );
                // Without free descriptors accept fails at once and the connection stays in the backlog: the loop would
                // spin.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };

        // Before TLS: a client beyond all limits costs no handshake. It gets no answer, its connection is just closed.
        let Some(permit) = limiter.enter(peer.ip()) else {
            metrics::http_connection_refused();
            continue;
        };
        // On a connection of the reserve, everything but health checks is refused.
        if permit.is_reserve() {
            metrics::http_connection_refused();
        }

        let connection = connection::serve(
            stream,
            peer,
            permit,
            tls.clone(),
            answers.clone(),
            ended.clone(),
        );

        tokio::spawn(connection);
    }

    drop(listener);
    // Connections that are still open then are cut when the process ends.
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, limiter.emptied()).await;
}
