//! The API, asked from the shell by the commands that look at a running daemon.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use hyper::{Request, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use trunkline_net::tls;

use super::Failure;
use super::sockets::near;
use crate::config::Config;

/// How long an answer may take, and how long it may be.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST: usize = 16 << 20;

/// Where the API is, and who asks.
#[derive(Debug, clap::Args)]
pub(super) struct Access {
    /// Where the API is; at http.listen on this machine unless given.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// An API key of the org with the scope `calls:read`. Better left to the environment, where `ps` doesn't show it.
    #[arg(
        long,
        value_name = "KEY",
        env = "TRUNKLINE_API_KEY",
        hide_env_values = true
    )]
    key: String,
}

/// Asks.
#[derive(Debug)]
pub(super) struct Client {
    base: String,
    authorization: HeaderValue,
    hyper: Hyper<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

impl Access {
    /// Someone who asks.
    ///
    /// # Errors
    /// A URL or key that can't be one.
    pub(super) fn client(&self, config: &Config) -> Result<Client, Failure> {
        let base = match &self.url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => own(config),
        };

        let is_http = ["http://", "https://"]
            .iter()
            .any(|scheme| base.starts_with(scheme));
        if !is_http || base.parse::<Uri>().is_err() {
            return Err(Failure::Startup(format!(
                "--url: {base:?} is no address of an API: try http://127.0.0.1:8080"
            )));
        }

        let mut authorization = HeaderValue::try_from(format!("Bearer {}", self.key))
            .map_err(|_| Failure::Startup("--key: this is no API key".to_owned()))?;
        authorization.set_sensitive(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client(tls::system_roots(
                "nothing can be reached over https",
            )))
            .https_or_http()
            .enable_http1()
            .build();

        Ok(Client {
            base,
            authorization,
            hyper: Hyper::builder(TokioExecutor::new()).build(connector),
        })
    }
}

/// The API of the daemon that runs with this configuration, as it is known to be reached or from this machine.
fn own(config: &Config) -> String {
    let http = &config.http;
    match (&http.public_url, &http.tls) {
        (Some(public), Some(_)) => public.to_string(),
        (_, Some(_)) => format!("https://{}", near(http.listen)),
        (_, None) => format!("http://{}", near(http.listen)),
    }
}

impl Client {
    /// What the API answers to a GET, as text.
    ///
    /// # Errors
    /// It can't be reached, or refuses; then its own words.
    pub(super) async fn text(&self, path: &str, accept: &'static str) -> Result<String, Failure> {
        let failed = |fault: String| Failure::Command(format!("{}: {fault}", self.base));
        let request = Request::get(format!("{}{path}", self.base))
            .header(AUTHORIZATION, self.authorization.clone())
            .header(ACCEPT, accept)
            .body(Empty::new())
            .map_err(|fault| failed(fault.to_string()))?;
        let asked = async {
            let answer = self
                .hyper
                .request(request)
                .await
                .map_err(|fault| chain(&fault))?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), LONGEST).collect().await;
            let body = body.map_err(|fault| fault.to_string())?.to_bytes();
            Ok::<_, String>((status, String::from_utf8_lossy(&body).into_owned()))
        };

        let (status, body) = tokio::time::timeout(PATIENCE, asked)
            .await
            .map_err(|_| failed(format!("no answer within {} s", PATIENCE.as_secs())))?
            .map_err(failed)?;
        if status.is_success() {
            return Ok(body);
        }

        let said: Option<Value> = serde_json::from_str(&body).ok();
        let said = said.as_ref().and_then(|said| said["message"].as_str());
        Err(failed(format!(
            "{status}: {}",
            said.unwrap_or("no reason given")
        )))
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// As [`Client::text`], or the answer is no JSON: something else listens there.
    pub(super) async fn json(&self, path: &str) -> Result<Value, Failure> {
        let body = self.text(path, "application/json").await?;
        serde_json::from_str(&body).map_err(|_| {
            Failure::Command(format!("{}: what answers here is no Trunkline", self.base))
        })
    }
}

/// An error with its causes.
fn chain(fault: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(fault), |fault| fault.source());
    let words: Vec<String> = causes.map(ToString::to_string).collect();
    words.join(": ")
}
