//! Client of the tour-booking platform. It checks credentials, and lists the companies that they give access to.

use std::time::Duration;

use axum::body::Bytes;
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::RootCertStore;
use serde::Deserialize;
use trunkline_net::tls;

use crate::config;

/// Time for a whole answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of an answer, in octets.
const LONGEST_ANSWER: usize = 1 << 20;

/// Client of the platform.
#[derive(Clone, Debug)]
pub struct BookingPlatform {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    probe: Uri,
    app_key_header: HeaderName,
    user_key_header: HeaderName,
}

/// Credentials, as header values.
#[derive(Clone)]
pub struct Keys {
    app: HeaderValue,
    user: HeaderValue,
}

/// Reason why credentials can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BookingFault {
    /// The platform refuses them.
    #[error("the credentials are refused")]
    Rejected,
    /// They give no access to the company.
    #[error("the account can't see the company {0:?}")]
    UnknownCompany(String),
    /// The platform gave no answer that can be used: the reason.
    #[error("{0}")]
    Unanswered(&'static str),
}

/// Answer of the platform.
#[derive(Deserialize)]
struct CompaniesAnswer {
    companies: Vec<Company>,
}

#[derive(Deserialize)]
struct Company {
    shortname: String,
}

impl Keys {
    /// Makes the keys; `None` if a header can't carry them.
    pub fn new(app: &str, user: &str) -> Option<Self> {
        let secret = |text: &str| {
            let mut value = HeaderValue::from_str(text).ok()?;
            value.set_sensitive(true);
            Some(value)
        };
        Some(Self {
            app: secret(app)?,
            user: secret(user)?,
        })
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl BookingPlatform {
    /// Makes a client of the configured platform. For TLS it trusts the system's CAs.
    pub fn new(config: &config::BookingConfig) -> Self {
        let probe: Uri = config.probe().parse().expect("the configuration is sound");
        let roots = if probe.scheme_str() == Some("https") {
            tls::system_roots("the booking platform can't be reached")
        } else {
            RootCertStore::empty()
        };

        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client(roots))
            .https_or_http()
            .enable_http1()
            .build();
        let header = |name: &str| {
            HeaderName::from_bytes(name.as_bytes()).expect("the configuration is sound")
        };

        Self {
            client: Client::builder(TokioExecutor::new())
                // Requests are too rare to keep a connection open.
                .pool_max_idle_per_host(0)
                .build(connector),
            probe,
            app_key_header: header(&config.app_key_header),
            user_key_header: header(&config.user_key_header),
        }
    }

    /// Checks that the credentials are valid and, if a company is given, give access to it.
    ///
    /// # Errors
    /// [`BookingFault`].
    pub async fn check(&self, keys: Keys, company: Option<&str>) -> Result<(), BookingFault> {
        // One limit over connection, head and body, so that an answer in trickles can't hold the request.
        let answered = tokio::time::timeout(TIMEOUT, self.ask(keys));
        let answer = answered
            .await
            .unwrap_or(Err(BookingFault::Unanswered("it did not answer in time")))?;

        match company {
            Some(name) if !answer.companies.iter().any(|seen| seen.shortname == name) => {
                Err(BookingFault::UnknownCompany(name.to_owned()))
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn ask(&self, keys: Keys) -> Result<CompaniesAnswer, BookingFault> {
        let agent = concat!("trunkline/", env!("CARGO_PKG_VERSION"));
        let request = Request::get(self.probe.clone())
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, agent)
            .header(&self.app_key_header, keys.app)
            .header(&self.user_key_header, keys.user)
            .body(Empty::new())
            .expect("an address and headers make a request");

        let response = self.client.request(request).await.map_err(|error| {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the booking platform can't be reached"
            );
            BookingFault::Unanswered("it can't be reached")
        })?;

        let status = response.status();
        match status {
            StatusCode::OK => {}
            // Only these two blame the credentials. Any other status is the platform's trouble, and may pass.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(BookingFault::Rejected),
            other => {
                tracing::warn!(
                    http.status = other.as_u16(),
                    "unexpected answer of the booking platform"
                );
                return Err(BookingFault::Unanswered(
                    "it answered with a status other than 200",
                ));
            }
        }

        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect();
        let octets = body.await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                BookingFault::Unanswered("its answer is too long")
            } else {
                BookingFault::Unanswered("its answer ended early")
            }
        })?;

        serde_json::from_slice(&octets.to_bytes())
            .map_err(|_| BookingFault::Unanswered("its answer isn't the expected JSON"))
    }
}
