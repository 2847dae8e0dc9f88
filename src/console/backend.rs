//! Requests of a page to the API in this process, with the session of the page. So rules, messages, limits and audit entries are those of the API.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::header::{
    ACCEPT, CONTENT_DISPOSITION, CONTENT_TYPE, COOKIE, HOST, IF_MATCH, ORIGIN,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_service::Service as _;

use crate::api::caller::Operator;
use crate::api::connection::Encrypted;
use crate::api::connection_limiter::Proof;
use crate::api::error::RefusalView;
use crate::api::operator_sessions::OperatorSession;
use crate::api::page::Page;
use crate::config::{Config, Http};

/// Form of every answer that is read here.
const JSON: &str = "application/json";

/// Longest answer that is read into memory; a longer one counts as unreadable.
const MAX_ANSWER: usize = 16 << 20;

/// Most items of a list that a page reads whole: ten requests to the API.
const MOST_ITEMS: usize = 1_000;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Headers that identify the client and its address.
const CARRIED: [HeaderName; 6] = [
    COOKIE,
    HOST,
    ORIGIN,
    SEC_FETCH_SITE,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-proto"),
];

/// The API's routes without those of the console, and the configuration that pages need before the session is known.
#[derive(Clone, Debug)]
pub(super) struct Backend {
    router: Router,
    /// The same with the operator's routes.
    operator: Router,
    pub(super) http: Arc<Http>,
}

impl Backend {
    pub(super) fn new(router: Router, operator: Router, config: &Config) -> Self {
        Self {
            router,
            operator,
            http: Arc::new(config.http.clone()),
        }
    }
}

/// Sends requests on behalf of the request that came in.
#[derive(Clone, Debug)]
pub(super) struct Client {
    router: Router,
    headers: HeaderMap,
    peer: Option<ConnectInfo<SocketAddr>>,
    encrypted: Option<Encrypted>,
    proof: Option<Proof>,
    operator: Option<Operator>,
}

/// Refusal of the API.
#[derive(Clone, Debug)]
pub(super) struct BackendRefusal {
    pub(super) status: StatusCode,
    pub(super) message: String,
    /// Faults, each with the field that it is about.
    pub(super) faults: Vec<(Option<String>, String)>,
}

impl Client {
    /// Returns a client for the request; `None` where the router was made without a backend.
    pub(super) fn of(parts: &Parts) -> Option<Self> {
        let Backend { router, .. } = parts.extensions.get::<Backend>()?.clone();
        let mut headers = HeaderMap::new();
        // `Authorization` isn't among them: a page acts by its session alone.
        for name in CARRIED {
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }

        Some(Self {
            router,
            headers,
            peer: parts.extensions.get().copied(),
            encrypted: parts.extensions.get().copied(),
            proof: parts.extensions.get().cloned(),
            operator: None,
        })
    }

    /// Returns a client for the operator's request. It has the operator's routes, and sends no cookie.
    pub(super) fn of_operator(parts: &Parts, session: &OperatorSession) -> Option<Self> {
        let router = parts.extensions.get::<Backend>()?.operator.clone();
        let mut client = Self::of(parts)?;
        client.headers.remove(COOKIE);
        let operator = Operator::on_pages(session.uid, session.id);
        Some(Self {
            router,
            operator: Some(operator),
            ..client
        })
    }

    /// Returns the view at a path.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, BackendRefusal> {
        let response = self.accepted(Method::GET, path, JSON, None).await?;
        view_of(path, response).await
    }

    /// Returns the first [`MOST_ITEMS`] items of the list at a path without a query.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn all<T: DeserializeOwned>(
        &self,
        path: &str,
    ) -> Result<Vec<T>, BackendRefusal> {
        let mut all = Vec::new();
        let mut next = String::new();
        loop {
            let asked = query(&[("limit", "100"), ("cursor", &next)]);
            let page: Page<T> = self.get(&format!("{path}{asked}")).await?;
            all.extend(page.items);
            match page.next {
                Some(cursor) if all.len() < MOST_ITEMS => next = cursor,
                Some(_) | None => return Ok(all),
            }
        }
    }

    /// Sends a request of whose answer nothing is shown.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(), BackendRefusal> {
        self.accepted(method, path, JSON, body).await.map(drop)
    }

    /// Sends a `POST`, and returns the view of its answer.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, BackendRefusal> {
        let response = self.accepted(Method::POST, path, JSON, Some(body)).await?;
        view_of(path, response).await
    }

    /// Sends a `POST` that changes nothing, and returns the view of its answer. A page that a link of another site opened may send it too.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<T, BackendRefusal> {
        let mut asking = self.clone();
        // The API lets a session send a `POST` from the console's own pages alone, and judges that by these two.
        asking.headers.remove(ORIGIN);
        asking.headers.remove(SEC_FETCH_SITE);
        asking.post(path, body).await
    }

    /// Returns the answer at a path in another form than JSON.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn octets(
        &self,
        path: &str,
        accept: &'static str,
    ) -> Result<Response, BackendRefusal> {
        self.accepted(Method::GET, path, accept, None).await
    }

    /// Changes the object at a path, unless it has another version by now: the API then refuses with 412.
    ///
    /// # Errors
    /// The API's refusal.
    pub(super) async fn change(
        &self,
        path: &str,
        version: &str,
        body: &Value,
    ) -> Result<(), BackendRefusal> {
        let mut versioned = self.clone();
        // A text that no header can hold is no version of ours, so it must match none.
        let tag = HeaderValue::try_from(format!("\"{version}\""))
            .unwrap_or(HeaderValue::from_static("\"\""));
        versioned.headers.insert(IF_MATCH, tag);
        versioned.send(Method::PATCH, path, Some(body)).await
    }

    /// Returns the API's CSV, to be kept as a file; `disposition` is its `Content-Disposition`.
    pub(super) async fn csv(&self, path: &str, disposition: &'static str) -> Response {
        let mut response = self.response(Method::GET, path, "text/csv", None).await;
        if response.status().is_success() {
            let headers = response.headers_mut();
            headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static(disposition));
        }
        response
    }

    /// Sends a request, and returns its answer if it is a success.
    async fn accepted(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<&Value>,
    ) -> Result<Response, BackendRefusal> {
        let response = self.response(method, path, accept, body).await;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(BackendRefusal::of(response).await),
        }
    }

    /// Sends a request, and returns its answer unchanged.
    pub(super) async fn response(
        &self,
        method: Method,
        path: &str,
        accept: &'static str,
        body: Option<&Value>,
    ) -> Response {
        let octets = body.map(Value::to_string);
        let mut request = Request::new(octets.map_or_else(Body::empty, Body::from));
        *request.method_mut() = method;

        // Paths are made of ids and encoded pairs, so they parse.
        *request.uri_mut() = path.parse().unwrap_or_default();
        *request.headers_mut() = self.headers.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
        }

        if let Some(peer) = self.peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(encrypted) = self.encrypted {
            request.extensions_mut().insert(encrypted);
        }
        // The API's extractors then mark the browser's own connection as authenticated.
        if let Some(proof) = &self.proof {
            request.extensions_mut().insert(proof.clone());
        }

        if let Some(operator) = self.operator {
            request.extensions_mut().insert(operator);
        }

        let mut router = self.router.clone();
        match router.call(request).await {
            Ok(response) => response,
        }
    }
}

/// View in an answer. One that its type can't read is a mistake of the type: a build with assertions panics, as the tests' is, which open every page.
async fn view_of<T: DeserializeOwned>(path: &str, response: Response) -> Result<T, BackendRefusal> {
    let octets = to_bytes(response.into_body(), MAX_ANSWER).await;
    let octets = octets.map_err(|_| BackendRefusal::unreadable())?;
    let view = serde_json::from_slice(&octets);
    if let Err(fault) = &view {
        debug_assert!(false, "{path}: {fault}");
        tracing::error!(path, %fault, "answer of the API not read");
    }
    view.map_err(|_| BackendRefusal::unreadable())
}

impl BackendRefusal {
    fn unreadable() -> Self {
        Self {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: "The API's answer could not be read.".to_owned(),
            faults: Vec::new(),
        }
    }

    /// Reads the answer of a request that was refused.
    async fn of(response: Response) -> Self {
        let status = response.status();
        let octets = to_bytes(response.into_body(), MAX_ANSWER).await;
        let octets = octets.unwrap_or_default();
        let Ok(body) = serde_json::from_slice::<RefusalView<'_>>(&octets) else {
            return Self::unreadable();
        };

        let faults = body.errors.into_iter().map(|fault| {
            let path = fault.path.map(Cow::into_owned);
            (path, fault.message.into_owned())
        });
        Self {
            status,
            message: body.message.into_owned(),
            faults: faults.collect(),
        }
    }
}

/// Makes a query of the pairs that have a value.
pub(super) fn query(pairs: &[(&str, &str)]) -> String {
    let given: Vec<_> = pairs
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    match serde_urlencoded::to_string(given) {
        Ok(text) if !text.is_empty() => format!("?{text}"),
        Ok(_) | Err(_) => String::new(),
    }
}

/// Value of a parameter of the query.
pub(super) fn parameter(raw: Option<&str>, wanted: &str) -> String {
    // A query that can't be read counts as empty: a broken link still shows its page.
    let pairs: Vec<(String, String)> =
        serde_urlencoded::from_str(raw.unwrap_or_default()).unwrap_or_default();
    let found = pairs.into_iter().find(|(name, _)| name == wanted);
    found.map(|(_, value)| value).unwrap_or_default()
}
