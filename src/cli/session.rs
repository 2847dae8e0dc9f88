//! Connection of a command to the API: by its address with a key, by the control socket of the daemon on this machine,
//! or, if none runs, the API's own router in this process on the data directory. All three give the same answers.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, RETRY_AFTER};
use axum::http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::UnixStream;
use tower_service::Service as _;
use trunkline_calls::core::live::LiveCalls;
use trunkline_net::tls;
use trunkline_store::Store;
use uuid::Uuid;

use super::credential::{Credential, Holder};
use super::{Failure, now, startup};
use crate::api::{self, Api};
use crate::config::{Config, DatabaseUrl};
use crate::console;
use crate::engine::clock;
use crate::telemetry::metrics;

/// Timeout of an answer's head and of its body, and the body's maximum length in octets.
const TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ANSWER: usize = 16 << 20;
/// Error for an answer that isn't JSON.
pub(super) const NOT_TRUNKLINE: &str = "this is not the answer of a Trunkline API";
/// Times that a request is repeated after 429, and the longest pause in seconds that is waited for.
const MAX_RETRIES: u32 = 3;
const MAX_RETRY_AFTER: u64 = 60;

/// Effect of a command on the installation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Intent {
    /// The command works on an installation, and must not create a data directory.
    Reads,
    /// The command may create the first object of an installation.
    Begins,
}

/// Connection to an API, with the org.
#[derive(Debug)]
pub(super) struct Session {
    transport: Transport,
    org: Option<Uuid>,
}

#[derive(Debug)]
enum Transport {
    Url {
        base: String,
        credential: Box<Credential>,
        hyper: Box<HttpClient>,
    },
    Socket(PathBuf),
    InProcess {
        router: Router,
        /// Store to be closed with the session; `None` if it is the daemon's.
        store: Option<Store>,
    },
}

/// A request that brought no answer, or a refusal.
#[derive(Debug)]
pub(super) struct Refusal {
    /// Status of the answer, if there was one.
    pub(super) status: Option<StatusCode>,
    /// Pause that the answer asks for.
    pub(super) retry_after: Option<Duration>,
    pub(super) failure: Failure,
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self {
            status: None,
            retry_after: None,
            failure,
        }
    }
}

/// Client of HTTP and HTTPS.
pub(super) type HttpClient = Hyper<HttpsConnector<HttpConnector>, Body>;

/// Makes a client that trusts the system's certificate authorities.
pub(super) fn http_client() -> HttpClient {
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::client(tls::system_roots(
            "nothing can be reached over https",
        )))
        .https_or_http()
        .enable_http1()
        .build();
    Hyper::builder(TokioExecutor::new()).build(connector)
}

/// Returns the address that callers of the running daemon send to; `None` if none runs on this data directory.
pub(super) async fn running_sip(config: &Config) -> Option<String> {
    let socket = config.data_dir.join(api::SOCKET);
    // A daemon that was killed leaves its socket file, on which nothing listens: this connection tells it from one that
    // runs.
    UnixStream::connect(&socket).await.ok()?;
    let session = Session::over_socket(socket);
    session.sip_address().await.ok()?
}

/// Checks that the installation exists, for a command that must not create one.
///
/// # Errors
/// The data directory has no database yet.
pub(super) fn must_exist(config: &Config) -> Result<(), Failure> {
    // A database that is gone from beside its keys is another fault, which the store names.
    let is_empty =
        std::fs::read_dir(&config.data_dir).map_or(true, |mut files| files.next().is_none());
    match &config.database.url {
        DatabaseUrl::Sqlite(path) if is_empty && !path.exists() => Err(Failure::Startup(format!(
            "nothing is set up in {}: run trunkline quickstart, or name another directory with --data-dir",
            config.data_dir.display()
        ))),
        DatabaseUrl::Sqlite(_) | DatabaseUrl::Postgres(_) => Ok(()),
    }
}

impl Session {
    /// Connection to the API at an address, with a key.
    pub(super) fn at(base: String, credential: Credential) -> Self {
        Self {
            transport: Transport::Url {
                base,
                credential: Box::new(credential),
                hyper: Box::new(http_client()),
            },
            org: None,
        }
    }

    /// Connection to the daemon that serves this control socket.
    pub(super) const fn over_socket(socket: PathBuf) -> Self {
        Self {
            transport: Transport::Socket(socket),
            org: None,
        }
    }

    /// The API in this process, on the data directory.
    ///
    /// # Errors
    /// There is no installation, or its database can't be opened.
    pub(super) async fn in_process(config: &Config, intent: Intent) -> Result<Self, Failure> {
        if intent == Intent::Reads {
            must_exist(config)?;
        }
        let store = startup::open_store(config).await?;
        let config = startup::with_known_realm(config, &store).await?;
        let directory = startup::open_directory(&config, &store).await?;
        let api = Api::new(api::ApiDeps {
            base_url: config.http.base_url(config.http.listen),
            dashboard_url: config.http.dashboard_url(config.http.listen),
            config: Arc::new(config),
            store: store.clone(),
            directory,
            live: LiveCalls::on(clock::wall()),
            engine: None,
            metrics: metrics::install(),
            sip_addresses: Vec::new(),
            clock: now,
            monotonic: clock::now,
        });

        // As the control socket does with the uid of its peer: the audit log names the user who ran the command.
        let router = console::router_of_operator(api, rustix::process::geteuid().as_raw());
        Ok(Self {
            transport: Transport::InProcess {
                router,
                store: Some(store),
            },
            org: None,
        })
    }

    /// The API that this process serves, as its operator.
    pub(super) fn of_daemon(api: Api) -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self::on(console::router_of_operator(api, uid))
    }

    /// Connection to a router of this process, which lives on without it.
    pub(super) const fn on(router: Router) -> Self {
        let store = None;
        Self {
            transport: Transport::InProcess { router, store },
            org: None,
        }
    }

    /// Sends requests in the name of this org from now on.
    pub(super) const fn choose(&mut self, org: Uuid) {
        self.org = Some(org);
    }

    /// Returns the org that was chosen, if requests are the operator's or a partner's.
    pub(super) const fn operators_org(&self) -> Option<Uuid> {
        self.org
    }

    /// Returns the org that was chosen, for a request that names one.
    ///
    /// # Errors
    /// None was chosen: requests are sent with an org's key.
    pub(super) fn chosen_org(&self) -> Result<Uuid, Failure> {
        match (self.org, &self.transport) {
            (Some(org), _) => Ok(org),
            (None, Transport::Url { credential, .. }) => Err(credential.is_no_operator()),
            (None, Transport::Socket(_) | Transport::InProcess { .. }) => {
                Err(Failure::Startup("name the org with --org".to_owned()))
            }
        }
    }

    /// Returns true if requests concern more than one org: the operator's and a partner's.
    pub(super) fn reaches_all(&self) -> bool {
        !matches!(self.holder(), Some(Holder::Org(_)))
    }

    /// Returns the holder of the key; `None` for the operator.
    pub(super) fn holder(&self) -> Option<Holder> {
        match &self.transport {
            Transport::Url { credential, .. } => Some(credential.holder),
            Transport::Socket(_) | Transport::InProcess { .. } => None,
        }
    }

    /// Checks that requests are the operator's.
    ///
    /// # Errors
    /// They are sent with a key.
    pub(super) fn must_be_operators(&self) -> Result<(), Failure> {
        match &self.transport {
            Transport::Url { credential, .. } => Err(credential.is_no_operator()),
            Transport::Socket(_) | Transport::InProcess { .. } => Ok(()),
        }
    }

    /// Returns the address that callers of the daemon on this machine send to; `None` if none runs.
    ///
    /// # Errors
    /// As [`Session::json`].
    pub(super) async fn sip_address(&self) -> Result<Option<String>, Failure> {
        let addresses = self.json("/operator/addresses").await?;
        Ok(addresses["sip"][0].as_str().map(str::to_owned))
    }

    /// Returns true if a daemon on this machine answers.
    pub(super) const fn is_running_daemon(&self) -> bool {
        matches!(self.transport, Transport::Socket(_))
    }

    /// Returns true if requests are the operator's.
    pub(super) const fn is_operators(&self) -> bool {
        !matches!(self.transport, Transport::Url { .. })
    }

    /// Returns the path for the holder of the key: below `/partner/v1` a partner has what the operator has below
    /// `/operator`.
    ///
    /// # Errors
    /// Only the operator has this path.
    fn place<'p>(&self, path: &'p str) -> Result<Cow<'p, str>, Failure> {
        let Transport::Url { credential, .. } = &self.transport else {
            return Ok(Cow::Borrowed(path));
        };
        match (path.strip_prefix("/operator/"), credential.holder) {
            (None, _) => Ok(Cow::Borrowed(path)),
            (Some(rest), Holder::Partner) => Ok(Cow::Owned(format!("/partner/v1/{rest}"))),
            (Some(_), Holder::Org(_)) => Err(credential.is_no_operator()),
        }
    }

    /// Sends a request and returns the answer's head, with its body to be read.
    ///
    /// # Errors
    /// The API can't be reached, or refuses; then the message is the API's.
    pub(super) async fn send(
        &self,
        method: &Method,
        path: &str,
        accept: &'static str,
        body: Option<&Value>,
    ) -> Result<Response<Body>, Failure> {
        let mut retries = 0;
        loop {
            let refusal = match self.send_once(method, path, accept, body).await {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusal,
            };

            match refusal.retry_after {
                Some(pause)
                    // A 429 alone: the rate limit refuses a request before it has any effect, so a repeated POST
                    // creates nothing twice.
                    if refusal.status == Some(StatusCode::TOO_MANY_REQUESTS)
                        && pause.as_secs() <= MAX_RETRY_AFTER
                        && retries < MAX_RETRIES =>
                {
                    retries += 1;
                    let seconds = pause.as_secs();
                    eprintln!("trunkline: too many requests: trying again in {seconds} s");
                    tokio::time::sleep(pause).await;
                }
                Some(_) | None => return Err(refusal.failure),
            }
        }
    }

    /// Sends a request once.
    ///
    /// # Errors
    /// As [`Session::send`], with the time after which the API says that another try may succeed.
    pub(super) async fn send_once(
        &self,
        method: &Method,
        path: &str,
        accept: &'static str,
        body: Option<&Value>,
    ) -> Result<Response<Body>, Refusal> {
        let request = self.request(method, path, accept, body)?;
        // For the head alone: an event stream has no end, and `read_body` has a limit for any other body.
        let sent = tokio::time::timeout(TIMEOUT, self.exchange(request));
        let answer = sent
            .await
            .map_err(|_| self.failed(&format!("no answer within {} s", TIMEOUT.as_secs())))?
            .map_err(|fault| self.failed(&fault))?;
        if answer.status().is_success() {
            return Ok(answer);
        }

        let pause = answer.headers().get(RETRY_AFTER);
        let pause: Option<u64> = pause.and_then(|value| value.to_str().ok()?.parse().ok());
        Err(Refusal {
            status: Some(answer.status()),
            retry_after: pause.map(Duration::from_secs),
            failure: self.refused(answer).await,
        })
    }

    fn request(
        &self,
        method: &Method,
        path: &str,
        accept: &'static str,
        body: Option<&Value>,
    ) -> Result<Request<Body>, Failure> {
        let path = self.place(path)?;
        let mut request = Request::builder().method(method).header(ACCEPT, accept);
        request = match &self.transport {
            Transport::Url {
                base, credential, ..
            } => request
                .uri(format!("{base}{path}"))
                .header(AUTHORIZATION, credential.authorization.clone()),
            Transport::Socket(_) | Transport::InProcess { .. } => {
                // RFC 9110 §7.2: a request has a Host, and the path of a socket gives none.
                request.uri(&*path).header(HOST, "localhost")
            }
        };
        if let Some(org) = self.org {
            request = request.header(api::ORG, org.to_string());
        }

        let body = match body {
            Some(body) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        request
            .body(body)
            .map_err(|fault| Failure::Startup(fault.to_string()))
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Response<Body>, String> {
        match &self.transport {
            Transport::Url { hyper, .. } => {
                let answer = hyper.request(request).await;
                answer
                    .map(|answer| answer.map(Body::new))
                    .map_err(|fault| chain(&fault))
            }
            Transport::Socket(path) => through_socket(path, request).await,
            Transport::InProcess { router, .. } => {
                // A router doesn't fail: its errors are answers.
                let Ok(answer) = router.clone().call(request).await;
                Ok(answer)
            }
        }
    }

    /// Makes the failure of a refusal: the API's sentence, and each fault with its path.
    async fn refused(&self, answer: Response<Body>) -> Failure {
        let status = answer.status();
        // Without a readable body the status has to do.
        let body = self.read_body(answer).await.unwrap_or_default();
        let said: Value = serde_json::from_slice(&body).unwrap_or_default();
        let message = said["message"].as_str();
        let faults = said["errors"].as_array().map_or(&[][..], Vec::as_slice);
        let faults: Vec<String> = faults
            .iter()
            .map(|fault| {
                let part = |name: &str| fault[name].as_str().unwrap_or_default().to_owned();
                format!("\n  {}: {}", part("path"), part("message"))
            })
            .collect();

        let message = match (message, faults.is_empty()) {
            (Some(message), true) => message.to_owned(),
            (_, false) => format!("the request has faults:{}", faults.concat()),
            (None, true) => "no reason given".to_owned(),
        };
        match &self.transport {
            Transport::Url { .. } => self.failed(&format!("{status}: {message}")),
            Transport::Socket(_) | Transport::InProcess { .. } => {
                Failure::Command(uncapitalized(&message))
            }
        }
    }

    fn failed(&self, fault: &str) -> Failure {
        match &self.transport {
            Transport::Url { base, .. } => Failure::Command(format!("{base}: {fault}")),
            Transport::Socket(path) => Failure::Command(format!("{}: {fault}", path.display())),
            Transport::InProcess { .. } => Failure::Command(fault.to_owned()),
        }
    }

    /// Sends a request and returns the answer as text.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub(super) async fn text(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<String, Failure> {
        let answer = self.send(method, path, "application/json", body).await?;
        let octets = self.read_body(answer).await?;
        Ok(String::from_utf8_lossy(&octets).into_owned())
    }

    /// Reads the whole body of an answer.
    ///
    /// # Errors
    /// The connection breaks, or the answer is too long or too slow.
    pub(super) async fn read_body(&self, answer: Response<Body>) -> Result<Bytes, Failure> {
        let body = Limited::new(answer.into_body(), MAX_ANSWER).collect();
        let body = tokio::time::timeout(TIMEOUT, body)
            .await
            .map_err(|_| self.failed("the answer doesn't end"))?
            .map_err(|fault| self.failed(&fault.to_string()))?;
        Ok(body.to_bytes())
    }

    /// Returns the answer to a GET as JSON.
    ///
    /// # Errors
    /// As [`Session::send`], or the answer isn't JSON: something else listens there.
    pub(super) async fn json(&self, path: &str) -> Result<Value, Failure> {
        self.answer(&Method::GET, path, None).await
    }

    /// Returns the answer to a request as JSON.
    ///
    /// # Errors
    /// As [`Session::json`].
    pub(super) async fn answer(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Failure> {
        let text = self.text(method, path, body).await?;
        serde_json::from_str(&text).map_err(|_| self.failed(NOT_TRUNKLINE))
    }

    /// Ends a session that was shared, if this is its last handle.
    pub(super) async fn close_shared(self: Arc<Self>) {
        if let Some(session) = Arc::into_inner(self) {
            session.close().await;
        }
    }

    /// Ends the session; work in this process is on disk then.
    pub(super) async fn close(self) {
        if let Transport::InProcess { store, router } = self.transport {
            drop(router);
            if let Some(store) = store {
                store.close().await;
            }
        }
    }
}

/// Writes pairs as a query.
pub(super) fn encoded(pairs: &[(&str, &str)]) -> Result<String, Failure> {
    serde_urlencoded::to_string(pairs).map_err(|fault| Failure::Startup(fault.to_string()))
}

async fn through_socket(path: &Path, request: Request<Body>) -> Result<Response<Body>, String> {
    let stream = UnixStream::connect(path).await;
    let stream = TokioIo::new(stream.map_err(|fault| fault.to_string())?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(|fault| chain(&fault))?;
    // This task moves the octets of request and answer. An error of it reaches both, so that its own result is not
    // needed.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    answer
        .map(|answer| answer.map(Body::new))
        .map_err(|fault| chain(&fault))
}

/// Text with a small first letter, as every message of the command line has; names in capitals stay.
fn uncapitalized(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            let first = first.to_lowercase();
            first.chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

/// Text of an error with its causes.
pub(super) fn chain(fault: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(fault), |fault| fault.source());
    let words: Vec<String> = causes.map(ToString::to_string).collect();
    words.join(": ")
}
