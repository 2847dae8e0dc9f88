//! One POST to a receiver: the name is resolved, its addresses are checked, and the connection goes to a checked
//! address. Redirects aren't followed.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use trunkline_bounds::Holder;
use trunkline_net::tls;

use super::lookup::Lookups;
use super::target::{Target, may_receive};
use crate::config;

/// Addresses of a name that are tried.
const MAX_TRIED: usize = 4;
/// Maximum length of an answer's head, in octets.
pub(super) const MAX_HEAD: usize = 32 * 1024;
/// Octets read of an answer's body, so that the receiver isn't cut off while it writes.
const MAX_BODY: usize = 16 * 1024;
/// Time for reading the body.
const BODY_TIMEOUT: Duration = Duration::from_secs(1);

/// HTTP client for receivers.
#[derive(Clone)]
pub(super) struct Poster {
    tls: TlsConnector,
    private_allowed: bool,
    timeout: Duration,
    lookups: Lookups,
}

/// Answer of a receiver.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct WebhookAnswer {
    pub(super) status: StatusCode,
    /// Delay that the receiver asks for.
    pub(super) retry_after: Option<Duration>,
}

/// Reason why there is no answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum DeliveryFault {
    /// The name has no address.
    Name,
    /// All its addresses are private.
    Private,
    /// No address accepts a connection.
    Connect,
    /// TLS fails, or the certificate isn't trusted.
    Tls,
    /// The answer takes too long.
    Timeout,
    /// The answer isn't HTTP.
    Answer,
}

impl DeliveryFault {
    /// Stable word of the reason for the owner of the receiver. It must not say which names exist in the operator's network, so a name that
    /// leads only there has the word of one that leads nowhere.
    pub(super) const fn shown(self) -> &'static str {
        match self {
            Self::Name | Self::Private => Self::Name.as_str(),
            Self::Connect | Self::Tls | Self::Timeout | Self::Answer => self.as_str(),
        }
    }

    /// Stable word of the reason for the operator.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Name => "name_not_resolved",
            Self::Private => "private_address",
            Self::Connect => "not_connected",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Answer => "no_http_answer",
        }
    }
}

/// Trust anchors for receivers: the system's CAs and the configured ones.
///
/// # Errors
/// The configured file can't be used.
pub fn trusted(config: &config::Webhooks) -> Result<RootCertStore, tls::CertificateFault> {
    let roots = tls::system_roots("webhooks over https can't be sent; set webhooks.tls_ca");
    match &config.tls_ca {
        Some(file) => tls::authorities(file, roots),
        None => Ok(roots),
    }
}

impl Poster {
    /// Makes a client that trusts `roots` for TLS.
    pub(super) fn new(config: &config::Webhooks, roots: RootCertStore) -> Self {
        Self::trusting(roots, config.allow_private_addresses, config.timeout)
    }

    pub(super) fn trusting(roots: RootCertStore, private_allowed: bool, timeout: Duration) -> Self {
        Self {
            tls: Arc::new(tls::client(roots)).into(),
            private_allowed,
            timeout,
            lookups: Lookups::default(),
        }
    }

    pub(super) const fn tls(&self) -> &TlsConnector {
        &self.tls
    }

    /// Returns true if receivers on private networks are allowed.
    pub(super) const fn private_allowed(&self) -> bool {
        self.private_allowed
    }

    /// Sends `body` with `headers` on behalf of an org, and waits for the answer's head.
    pub(super) async fn post(
        &self,
        holder: Holder,
        target: &Target,
        headers: HeaderMap,
        body: String,
    ) -> Result<WebhookAnswer, DeliveryFault> {
        let head = OnceLock::new();
        let sent = self.send(holder, target, headers, body, &head);
        match tokio::time::timeout(self.timeout, sent).await {
            Ok(answer) => answer,
            // The head was in time; only the body is missing.
            Err(_) => head.into_inner().ok_or(DeliveryFault::Timeout),
        }
    }

    async fn send(
        &self,
        holder: Holder,
        target: &Target,
        headers: HeaderMap,
        body: String,
        head: &OnceLock<WebhookAnswer>,
    ) -> Result<WebhookAnswer, DeliveryFault> {
        let mut request = Request::post(target.path.as_str())
            .header(header::HOST, &target.authority)
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| DeliveryFault::Name)?;
        request.headers_mut().extend(headers);
        let stream = self.connect(holder, target).await?;
        if !target.tls {
            return exchange(stream, request, head).await;
        }
        let name = ServerName::try_from(target.host.clone()).map_err(|_| DeliveryFault::Name)?;
        let stream = self.tls.connect(name, stream).await;
        exchange(stream.map_err(|_| DeliveryFault::Tls)?, request, head).await
    }

    /// Resolves and connects. A name may resolve differently each time, so the addresses that were checked are the ones
    /// connected to.
    pub(super) async fn connect(
        &self,
        holder: Holder,
        target: &Target,
    ) -> Result<TcpStream, DeliveryFault> {
        let found = self.lookups.find(holder, &target.host, target.port).await;
        let found = found.map_err(|_| DeliveryFault::Name)?;
        if found.is_empty() {
            return Err(DeliveryFault::Name);
        }

        let allowed = |address: &&SocketAddr| self.private_allowed || may_receive(address.ip());
        // The fault if none of the addresses is allowed.
        let mut fault = DeliveryFault::Private;
        for address in found.iter().filter(allowed).take(MAX_TRIED) {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(_) => fault = DeliveryFault::Connect,
            }
        }

        Err(fault)
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    head: &OnceLock<WebhookAnswer>,
) -> Result<WebhookAnswer, DeliveryFault> {
    let mut connection = http1::Builder::new();
    // A receiver is no trusted peer: it may send a head without an end.
    connection.max_buf_size(MAX_HEAD);
    let connection = connection.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connection.map_err(|_| DeliveryFault::Answer)?;

    // The connection ends with the exchange, whose result is returned.
    let mut driving = pin!(async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    });
    let response = tokio::select! {
        response = sender.send_request(request) => response.map_err(|_| DeliveryFault::Answer)?,
        never = &mut driving => match never {},
    };

    let answer = WebhookAnswer {
        status: response.status(),
        retry_after: retry_after(response.headers()),
    };
    let answer = *head.get_or_init(|| answer);
    let body = Limited::new(response.into_body(), MAX_BODY).collect();
    tokio::select! {
        // The content of the body doesn't matter, nor whether it ends.
        _ = tokio::time::timeout(BODY_TIMEOUT, body) => {}
        never = &mut driving => match never {},
    }

    Ok(answer)
}

/// Parses seconds; a date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(header::RETRY_AFTER)?.to_str().ok()?;
    value.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use axum::http::uri::PathAndQuery;

    use super::*;

    /// The owner of a receiver doesn't learn whether a name exists here.
    #[tokio::test]
    async fn a_name_that_leads_here_looks_like_one_that_leads_nowhere() {
        let poster = Poster::trusting(RootCertStore::empty(), false, Duration::from_secs(5));
        let target = Target {
            host: "localhost".to_owned(),
            port: 9,
            tls: true,
            authority: "localhost:9".to_owned(),
            path: PathAndQuery::from_static("/"),
        };
        let nobody = Holder::alone(uuid::Uuid::nil());
        let found = poster.connect(nobody, &target).await.map(|_| ());
        assert_eq!(found, Err(DeliveryFault::Private));
        assert_eq!(DeliveryFault::Private.shown(), DeliveryFault::Name.shown());
    }
}
