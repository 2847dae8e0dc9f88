//! HTTP client for the commands that query a running daemon.

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

/// Timeout of an answer, and its maximum length.
const TIMEOUT: Duration = Duration::from_secs(10);
const MAX_ANSWER: usize = 16 << 20;

/// Address of the API, and the key.
#[derive(Debug, clap::Args)]
pub(super) struct Access {
    /// Address of the API; http.listen on this machine if absent.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// API key of the org with the scope `calls:read`. Prefer the environment variable: `ps` shows arguments.
    #[arg(
        long,
        value_name = "KEY",
        env = "TRUNKLINE_API_KEY",
        hide_env_values = true
    )]
    key: String,
}

/// Client with a key.
#[derive(Debug)]
pub(super) struct Client {
    base: String,
    authorization: HeaderValue,
    hyper: Hyper<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

impl Access {
    /// Makes a client.
    ///
    /// # Errors
    /// The URL or the key is malformed.
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
                "--url: {base:?} is not the address of an API: try http://127.0.0.1:8080"
            )));
        }

        let mut authorization = HeaderValue::try_from(format!("Bearer {}", self.key))
            .map_err(|_| Failure::Startup("--key: this is not an API key".to_owned()))?;
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

/// Returns the address of the daemon with this configuration: its public URL, or the way to it on this machine.
fn own(config: &Config) -> String {
    let http = &config.http;
    match (&http.public_url, &http.tls) {
        (Some(public), Some(_)) => public.to_string(),
        (_, Some(_)) => format!("https://{}", near(http.listen)),
        (_, None) => format!("http://{}", near(http.listen)),
    }
}

impl Client {
    /// Returns the answer to a GET as text.
    ///
    /// # Errors
    /// The API can't be reached, or refuses; then the message is the API's.
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
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            let body = body.map_err(|fault| fault.to_string())?.to_bytes();
            Ok::<_, String>((status, String::from_utf8_lossy(&body).into_owned()))
        };

        let (status, body) = tokio::time::timeout(TIMEOUT, asked)
            .await
            .map_err(|_| failed(format!("no answer within {} s", TIMEOUT.as_secs())))?
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

    /// Returns the answer to a GET as JSON.
    ///
    /// # Errors
    /// As [`Client::text`], or the answer isn't JSON: something else listens there.
    pub(super) async fn json(&self, path: &str) -> Result<Value, Failure> {
        let body = self.text(path, "application/json").await?;
        serde_json::from_str(&body).map_err(|_| {
            Failure::Command(format!("{}: what answers here is no Trunkline", self.base))
        })
    }
}

/// Text of an error with its causes.
fn chain(fault: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(fault), |fault| fault.source());
    let words: Vec<String> = causes.map(ToString::to_string).collect();
    words.join(": ")
}
