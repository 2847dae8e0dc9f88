//! One POST whose whole answer is returned. The address is judged like that of a webhook's receiver.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use trunkline_bounds::Holder;
use uuid::Uuid;

use super::post::{DeliveryFault, MAX_HEAD, Poster};
use super::target::Target;

/// HTTP client without a timeout: the caller bounds the time.
#[derive(Clone)]
pub struct Fetcher(Poster);

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

impl Fetcher {
    /// Makes a client that trusts `roots` for TLS.
    pub fn new(roots: RootCertStore, private_allowed: bool) -> Self {
        Self(Poster::trusting(roots, private_allowed, Duration::MAX))
    }

    /// Sends `body` with `headers`; returns the status and the body of the answer, which may have `most` octets.
    ///
    /// # Errors
    /// A word for the reason.
    pub async fn post(
        &self,
        target: &Target,
        headers: HeaderMap,
        body: String,
        most: usize,
    ) -> Result<(StatusCode, Bytes), &'static str> {
        let mut request = Request::post(target.path.as_str())
            .header(header::HOST, &target.authority)
            .body(Full::new(Bytes::from(body)))
            .map_err(|_| DeliveryFault::Name.as_str())?;
        request.headers_mut().extend(headers);

        let stream = self
            .0
            // Its addresses are the operator's.
            .connect(Holder::alone(Uuid::nil()), target)
            .await
            .map_err(DeliveryFault::as_str)?;
        if !target.tls {
            return exchange(stream, request, most).await;
        }
        let name = ServerName::try_from(target.host.clone());
        let name = name.map_err(|_| DeliveryFault::Name.as_str())?;
        let stream = self.0.tls().connect(name, stream).await;
        exchange(
            stream.map_err(|_| DeliveryFault::Tls.as_str())?,
            request,
            most,
        )
        .await
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
    most: usize,
) -> Result<(StatusCode, Bytes), &'static str> {
    let failed = DeliveryFault::Answer.as_str();
    let mut connection = http1::Builder::new();
    connection.max_buf_size(MAX_HEAD);
    let connection = connection.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connection.map_err(|_| failed)?;

    // The connection ends with the exchange, whose result is what counts.
    let mut driving = pin!(async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    });
    let response = tokio::select! {
        response = sender.send_request(request) => response.map_err(|_| failed)?,
        never = &mut driving => match never {},
    };

    let status = response.status();
    let body = Limited::new(response.into_body(), most).collect();
    let body = tokio::select! {
        body = body => body.map_err(|_| "answer_cut_or_too_long")?,
        never = &mut driving => match never {},
    };
    Ok((status, body.to_bytes()))
}
