//! `Idempotency-Key` for requests that create something. The first request runs and its answer is kept for a day. A
//! repetition gets that answer with `Idempotent-Replayed: true`.
//!
//! Authentication and rate limits come first. If the client disconnects, the request still runs to its end, and the
//! client's next try finds the answer.

use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest as _, Request};
use axum::handler::Handler;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, header, response};
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;
use http_body_util::{BodyExt as _, Full, Limited};
use tracing::Instrument as _;
use trunkline_store::{
    Acting, Claim, Conflict, Effects, Error, RequestKey, StoredAnswer, Tx, idempotency,
    number_codes,
};
use uuid::Uuid;

use super::body::{KeyFault, is_late};
use super::caller::{Caller, Credential};
use super::error::{OUTCOME_UNKNOWN, Refusal, panicked, refusal};
use super::{Api, ApiError, body_hash, replayed_secrets};
use crate::engine::Handle;

/// Header of the request.
pub(super) const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Header of a replayed answer.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Maximum length of a key.
const MAX_KEY: usize = 255;
/// Interval between checks of the same request in progress on another connection or node.
const CHECK_INTERVAL: Duration = Duration::from_millis(25);
/// Maximum time to wait for that request, after which a repetition is answered 409. Counted in checks, so slow reads add to it.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between attempts to keep the answer to a command.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Time for all attempts. A command may take 25 seconds before the first one, and the claim holds for 120 seconds in all.
const KEEP_TIMEOUT: Duration = Duration::from_secs(80);

tokio::task_local! {
    /// Claim of the request whose handler this task runs, if it works on a call.
    static CLAIMED: RequestKey;
}

/// Handler whose answers are kept.
#[derive(Debug)]
pub(super) struct Idempotent<C, H> {
    handler: H,
    works_on: WorksOn,
    credential: PhantomData<fn() -> C>,
}

/// Kind of state that a handler changes.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum WorksOn {
    /// Rows, committed together with the kept answer.
    Rows,
    /// A call. Another node may have to carry the command out before there is an answer. That node reads it from the database, so the
    /// command must be committed at once.
    Call,
}

impl<C, H: Clone> Clone for Idempotent<C, H> {
    fn clone(&self) -> Self {
        Self {
            handler: self.handler.clone(),
            ..*self
        }
    }
}

/// Wraps a handler for org keys.
pub(super) const fn once<H>(handler: H) -> Idempotent<Caller, H> {
    once_for(handler)
}

/// Wraps a handler that places a call, for org keys.
pub(super) const fn call_once<H>(handler: H) -> Idempotent<Caller, H> {
    call_once_for(handler)
}

/// Wraps a handler that works on a call, for another kind of credential.
pub(super) const fn call_once_for<C, H>(handler: H) -> Idempotent<C, H> {
    Idempotent {
        handler,
        works_on: WorksOn::Call,
        credential: PhantomData,
    }
}

/// Wraps a handler for another kind of credential.
pub(super) const fn once_for<C, H>(handler: H) -> Idempotent<C, H> {
    Idempotent {
        handler,
        works_on: WorksOn::Rows,
        credential: PhantomData,
    }
}

impl<C, H, T> Handler<(C, T), Api> for Idempotent<C, H>
where
    C: Credential + Send + Sync + 'static,
    H: Handler<T, Api> + Sync,
    T: 'static,
{
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, mut request: Request, api: Api) -> Self::Future {
        let Self {
            handler, works_on, ..
        } = self;
        Box::pin(async move {
            // Without a key the handler runs as usual. With a malformed one it does too, and reports that with the faults of the body.
            let key = match key(&request) {
                Ok(Some(key)) => key,
                Ok(None) => return handler.call(request, api).await,
                Err(fault) => {
                    request.extensions_mut().insert(fault);
                    return handler.call(request, api).await;
                }
            };

            let (mut parts, body) = request.into_parts();
            let caller = match C::from_request_parts(&mut parts, &api).await {
                Ok(caller) => caller,
                Err(error) => return error.into_response(),
            };

            let (credential, org) = (caller.key_id(), caller.org());
            // The handler extracts the credential again; it must not count against the rate limit twice.
            parts.extensions.insert(caller);

            // The key is tied to the body, so the body is read before the claim: a slow one must not use up the claim's
            // time.
            let (request, body) = whole(parts, body).await;
            let Some(body) = body else {
                return handler.call(request, api).await;
            };

            let asked = RequestKey {
                credential,
                org,
                attempt: Uuid::new_v4(),
                // Only POST handlers are wrapped.
                method: "POST",
                // Without the query, which is a fault of a request with a body.
                path: request.uri().path().to_owned(),
                key,
                body,
            };

            match claimed(&api, &asked).await {
                Err(error) => error.into_response(),
                Ok(Some(kept)) => replayed(&kept),
                Ok(None) => {
                    let work = async move {
                        let effects = Effects::default();
                        let called = api.clone();
                        let work = async move { handler.call(request, called).await };
                        let work = AssertUnwindSafe(work).catch_unwind();
                        let response = match works_on {
                            WorksOn::Rows => effects.hold(work).await,
                            WorksOn::Call => CLAIMED.scope(asked.clone(), work).await,
                        };
                        // A panic is answered here, not by the layer around all routes, because the key has to be released.
                        let response = response.unwrap_or_else(|_| panicked());
                        let answered = Answered { works_on, response };
                        finished(&api, &asked, answered, &effects).await
                    };

                    // A task of its own, so that the request runs to its end even if the client disconnects.
                    let work = Acting::carried(Acting::current(), work);
                    let work = tokio::spawn(work.in_current_span());
                    work.await.unwrap_or_else(|_| panicked())
                }
            }
        })
    }
}

/// Returns the claim of the request of this task. The transaction that leaves what it does to another node marks it as begun.
pub(super) fn current_claim() -> Option<RequestKey> {
    CLAIMED.try_with(Clone::clone).ok()
}

impl Api {
    /// Marks the request of this task as begun, if it has an `Idempotency-Key`. Must be called before anything that can't be rolled back.
    ///
    /// # Errors
    /// 409 if another attempt may be making the request: this one must do nothing.
    pub(super) async fn begin_once(&self) -> Result<(), ApiError> {
        let Some(claim) = current_claim() else {
            return Ok(());
        };
        self.write(move |tx, now| idempotency::begin(tx, &claim, now))
            .await?;
        Ok(())
    }

    /// Deletes expired answers, and expired records of numbers that were called for verification.
    pub(super) async fn forget_answers(&self) {
        let now = self.now();
        let pruned = self.store().write(move |tx| idempotency::prune(tx, now));
        if let Err(error) = pruned.await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(error, "deleting expired answers failed; retrying later");
        }

        let now = self.now();
        if let Err(error) = self
            .store()
            .write(move |tx| number_codes::prune(tx, now))
            .await
        {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "deleting expired verification calls failed; retrying later"
            );
        }
    }
}

/// Reads the key, if there is one.
fn key(request: &Request) -> Result<Option<String>, KeyFault> {
    let mut keys = request.headers().get_all(KEY).iter();
    let Some(key) = keys.next() else {
        return Ok(None);
    };
    if keys.next().is_some() {
        return Err(KeyFault("Idempotency-Key: is given more than once"));
    }
    match key.to_str() {
        Ok(text) if (1..=MAX_KEY).contains(&text.len()) => Ok(Some(text.to_owned())),
        Ok(_) | Err(_) => Err(KeyFault(
            "Idempotency-Key: expected 1 to 255 visible characters",
        )),
    }
}

/// Reads the whole body. Returns the request with it, and the hash of its meaning; `None` if it didn't arrive whole, which the
/// handler refuses.
async fn whole(parts: Parts, body: Body) -> (Request, Option<[u8; 32]>) {
    let rest = parts.clone();

    match Bytes::from_request(Request::from_parts(parts, body), &()).await {
        Ok(octets) => {
            let hash = body_hash::of(&octets);
            (Request::from_parts(rest, Body::from(octets)), Some(hash))
        }
        // The handler reads the body again, and must meet the same failure: a body beyond its limit, or one cut off.
        Err(rejection) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let too_long = Limited::new(Full::new(Bytes::from_static(b"  ")), 1);
            (Request::from_parts(rest, Body::new(too_long)), None)
        }
        Err(rejection) => {
            let fault = match is_late(&rejection) {
                true => std::io::ErrorKind::TimedOut.into(),
                false => std::io::Error::other("cut"),
            };
            let cut = futures_util::stream::iter([Err::<Bytes, _>(fault)]);
            (Request::from_parts(rest, Body::from_stream(cut)), None)
        }
    }
}

/// Returns the kept answer, or `None` if this request is the one that runs.
async fn claimed(api: &Api, asked: &RequestKey) -> Result<Option<StoredAnswer>, ApiError> {
    let node = api.engine().map(Handle::node);
    let claim = async || {
        let (asked, now) = (asked.clone(), api.now());
        let claimed = move |tx: &mut Tx| idempotency::claim(tx, &asked, node, now);
        api.store().write(claimed).await
    };

    // Repetitions only read, and don't queue with the writers.
    let look_up = async || {
        let (asked, now) = (asked.clone(), api.now());
        let known = move |tx: &mut Tx| idempotency::look_up(tx, &asked, now);
        api.read_inline(known).await
    };

    let mut claimed = match look_up().await? {
        Some(claimed) => claimed,
        None => claim().await?,
    };

    let mut checks_left = TIMEOUT.as_millis() / CHECK_INTERVAL.as_millis();
    loop {
        match claimed {
            Claim::New => return Ok(None),
            Claim::Done(kept) => {
                replayed_secrets::must_be_good(api, asked, &kept).await?;
                return Ok(Some(kept));
            }
            Claim::OtherBody => {
                return Err(ApiError::Unprocessable(
                    "This Idempotency-Key was used with another body",
                ));
            }
            Claim::Unknown => return Ok(Some(outcome_unknown())),
            Claim::InProgress if checks_left == 0 => {
                let message = "The request with this Idempotency-Key is still under way; try again";
                return Err(ApiError::Conflict(message.to_owned()));
            }
            Claim::InProgress => checks_left -= 1,
        }

        // The other request may run on another node, so the row is polled: no signal in this process would tell.
        tokio::time::sleep(CHECK_INTERVAL).await;
        claimed = match look_up().await? {
            Some(claimed) => claimed,
            // The other request kept no answer and released the key.
            None => claim().await?,
        };
    }
}

/// Answer of a handler.
struct Answered {
    works_on: WorksOn,
    response: Response,
}

/// Keeps the answer together with the changes of the request, or rolls both back if the answer isn't one to keep.
async fn finished(
    api: &Api,
    asked: &RequestKey,
    Answered { works_on, response }: Answered,
    effects: &Effects,
) -> Response {
    let (parts, body) = response.into_parts();
    let status = parts.status;
    // A refusal has no body yet: `request` makes it, from the path and the request's id.
    let refused = parts.extensions.get::<Refusal>().cloned();
    let octets = match body.collect().await {
        Ok(octets) => octets.to_bytes(),
        Err(_) => {
            // In this order: the open transaction occupies SQLite's only writer, for which `release` would wait.
            effects.undo();
            release(api, asked).await;
            return StatusCode::INTERNAL_SERVER_ERROR.into_response();
        }
    };

    let kept = match works_on {
        WorksOn::Call if is_unknown(status, refused.as_ref()) => Some(outcome_unknown()),
        WorksOn::Call | WorksOn::Rows => answer_to_keep(&parts, refused.as_ref(), &octets),
    };
    let response = Response::from_parts(parts, Body::from(octets));

    let Some(kept) = kept else {
        effects.undo();
        release(api, asked).await;
        return response;
    };

    match (keep(api, asked, &kept, effects).await, works_on) {
        (Ok(()), _) => response,
        // The claim has ended, and another attempt may have done the same since: what this one did is rolled back.
        (Err(error @ Error::Conflict(Conflict::ClaimEnded)), WorksOn::Rows) => {
            done_meanwhile(api, asked)
                .await
                .unwrap_or_else(|| ApiError::from(error).into_response())
        }
        // The call was placed all the same, so its client has to learn of it. Another attempt's answer is kept.
        (Err(Error::Conflict(Conflict::ClaimEnded)), WorksOn::Call) => response,
        // The commit failed, so nothing was done, whatever the answer says.
        (Err(error), WorksOn::Rows) => {
            release(api, asked).await;
            ApiError::from(error).into_response()
        }
        // What was done to the call can't be rolled back. If the key were free again, a retry would do it a second time.
        (Err(error), WorksOn::Call) => {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                error,
                "keeping the answer to a command failed; trying again"
            );
            tokio::spawn(keep_later(api.clone(), asked.clone(), kept));
            response
        }
    }
}

/// Returns the answer that another attempt of the request has had, if there is one.
async fn done_meanwhile(api: &Api, asked: &RequestKey) -> Option<Response> {
    let (asked, now) = (asked.clone(), api.now());
    let known = api.read_inline(move |tx| idempotency::look_up(tx, &asked, now));
    match known.await {
        Ok(Some(Claim::Done(kept))) => Some(replayed(&kept)),
        Ok(Some(Claim::New | Claim::InProgress | Claim::OtherBody | Claim::Unknown) | None)
        | Err(_) => None,
    }
}

/// Returns true if a command to a call was begun, and its outcome isn't known.
fn is_unknown(status: StatusCode, refused: Option<&Refusal>) -> bool {
    // A 500 counts: the shard may have acted before the failure.
    status == StatusCode::INTERNAL_SERVER_ERROR
        || refused.is_some_and(Refusal::is_of_unknown_outcome)
}

/// Answer to a repetition of a command whose outcome isn't known: run again, it might place a second call.
fn outcome_unknown() -> StoredAnswer {
    let message = "The outcome of the first request with this Idempotency-Key isn't known: \
                   see whether it placed a call (GET /phone/calls lists all but verification calls), then use another key";
    StoredAnswer {
        status: StatusCode::CONFLICT.as_u16(),
        text: Refusal::new(message, OUTCOME_UNKNOWN).written(),
        refusal: true,
        etag: None,
    }
}

/// Tries to keep the answer while the claim holds.
async fn keep_later(api: Api, asked: RequestKey, kept: StoredAnswer) {
    let kept = async {
        loop {
            tokio::time::sleep(KEEP_INTERVAL).await;
            match keep(&api, &asked, &kept, &Effects::default()).await {
                Ok(()) | Err(Error::Conflict(Conflict::ClaimEnded)) => return,
                Err(_) => {}
            }
        }
    };
    // If the database stays away, the outcome of the request is unknown to a repetition, or of one that placed nothing the claim expires.
    let _ = tokio::time::timeout(KEEP_TIMEOUT, kept).await;
}

/// Commits the answer with the changes of the request.
async fn keep(
    api: &Api,
    asked: &RequestKey,
    kept: &StoredAnswer,
    effects: &Effects,
) -> Result<(), Error> {
    let (asked, kept, now) = (asked.clone(), kept.clone(), api.now());
    let kept = move |tx: &mut Tx| idempotency::keep(tx, &asked, &kept, now);
    api.store().write_held(effects, kept).await
}

/// Gives up the claim, so that the request may be made again.
async fn release(api: &Api, asked: &RequestKey) {
    let asked = asked.clone();
    let given_up = move |tx: &mut Tx| idempotency::give_up(tx, &asked);
    if let Err(error) = api.store().write(given_up).await {
        // Not tried again: the claim expires by itself, after 120 seconds.
        let error = &error as &dyn std::error::Error;
        tracing::warn!(error, "releasing an Idempotency-Key failed");
    }
}

/// Returns the answer to keep; `None` for one that isn't kept, after which the key is free again.
fn answer_to_keep(
    parts: &response::Parts,
    refused: Option<&Refusal>,
    octets: &Bytes,
) -> Option<StoredAnswer> {
    // The client may succeed with another body, with other headers (the body alone identifies the request), or later.
    let status = parts.status;
    let may_change =
        [400, 401, 403, 408, 412, 415, 429].contains(&status.as_u16()) || status.is_server_error();
    let etag = parts.headers.get(header::ETAG);
    let etag = etag.and_then(|etag| etag.to_str().ok());
    let text = match refused {
        Some(refused) => refused.written(),
        None => std::str::from_utf8(octets).ok()?.to_owned(),
    };

    (!may_change).then(|| StoredAnswer {
        status: status.as_u16(),
        text,
        refusal: refused.is_some(),
        etag: etag.map(str::to_owned),
    })
}

fn replayed(kept: &StoredAnswer) -> Response {
    let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = if kept.refusal {
        refusal(status, Refusal::read(&kept.text))
    } else {
        let json = [(header::CONTENT_TYPE, "application/json")];
        (status, json, kept.text.clone()).into_response()
    };
    let headers = response.headers_mut();
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    // A client that repeats its request can go on with `If-Match`, as after the first answer: the body is the object as it was made.
    let etag = kept.etag.as_deref().map(HeaderValue::from_str);
    if let Some(Ok(etag)) = etag {
        headers.insert(header::ETAG, etag);
    }
    response
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRequestParts;
    use std::sync::Arc;

    use axum::Router;
    use axum::routing::post;
    use tempfile::TempDir;
    use tower::ServiceExt as _;
    use trunkline_calls::core::live::LiveCalls;
    use trunkline_model::settings::Runtime;
    use trunkline_sip::moment::Moment;
    use trunkline_store::{Options, Store};

    use super::*;
    use crate::api::ApiDeps;
    use crate::config::{Config, Sources};
    use crate::directory::{Defaults, Directory};
    use crate::telemetry::metrics;

    const NOW: Moment = Moment::from_secs(1_769_860_800);

    /// Credential that every request has.
    #[derive(Clone, Debug)]
    struct Anyone;

    impl FromRequestParts<Api> for Anyone {
        type Rejection = ApiError;

        async fn from_request_parts(_: &mut Parts, _: &Api) -> Result<Self, ApiError> {
            Ok(Self)
        }
    }

    impl Credential for Anyone {
        fn key_id(&self) -> Uuid {
            Uuid::from_u128(7)
        }

        fn org(&self) -> Option<Uuid> {
            None
        }
    }

    async fn api() -> (Api, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let options = Options {
            data_dir: folder.path().to_owned(),
            url: None,
            master_key: None,
            max_connections: 2,
        };
        let store = Store::open(&options, NOW).await.unwrap();
        let defaults = Defaults {
            realm: "test".into(),
            runtime: Runtime::Echo,
            addresses: Default::default(),
        };
        let directory = Directory::start(store.clone(), defaults, || NOW)
            .await
            .unwrap();

        let api = Api::new(ApiDeps {
            config: Arc::new(Config::load(&Sources::default()).unwrap()),
            store,
            directory,
            live: LiveCalls::new(),
            engine: None,
            metrics: metrics::install(),
            sip_addresses: Vec::new(),
            base_url: "https://api.example".to_owned(),
            dashboard_url: "https://dashboard.example".to_owned(),
            clock: || NOW,
            monotonic: || NOW,
        });
        (api, folder)
    }

    /// Handler that panics unless the body is `{}`.
    async fn made(body: Bytes) -> (StatusCode, &'static str) {
        assert_eq!(&*body, b"{}", "a fault of the handler");
        (StatusCode::CREATED, "{}")
    }

    async fn post_to(router: &Router, path: &str, body: &'static str) -> Response {
        let request = Request::post(path).header(KEY, "k").body(Body::from(body));
        let answer = router.clone().oneshot(request.unwrap());
        answer.await.unwrap()
    }

    /// Routes whose handler is [`made`].
    fn router(api: &Api) -> Router {
        Router::new()
            .route("/rows", post(once_for::<Anyone, _>(made)))
            .route("/call", post(call_once_for::<Anyone, _>(made)))
            .with_state(api.clone())
    }

    /// A call may have been placed before the fault: the same request places no second one.
    #[tokio::test]
    async fn a_fault_after_which_the_outcome_is_unknown_keeps_the_key() {
        let (api, _folder) = api().await;
        let router = router(&api);
        let failed = post_to(&router, "/call", "").await;
        assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
        let again = post_to(&router, "/call", "").await;
        assert_eq!(again.status(), StatusCode::CONFLICT);
        let refused = again.extensions().get::<Refusal>();
        assert!(refused.is_some_and(Refusal::is_of_unknown_outcome));
    }

    #[tokio::test]
    async fn a_call_that_was_placed_is_answered_although_the_answer_cant_be_kept() {
        for (path, status) in [("/rows", 503), ("/call", 201)] {
            let (api, _folder) = api().await;
            let closing = api.clone();
            let placed = async move || {
                closing.store().close().await;
                (StatusCode::CREATED, "{}")
            };
            let router = Router::new()
                .route("/rows", post(once_for::<Anyone, _>(placed.clone())))
                .route("/call", post(call_once_for::<Anyone, _>(placed)))
                .with_state(api);
            let answer = post_to(&router, path, "{}").await;
            assert_eq!(answer.status().as_u16(), status, "{path}");
        }
    }

    /// The request took longer than its claim, and was done by another attempt meanwhile.
    #[tokio::test]
    async fn a_request_that_has_lost_its_key_is_answered_as_the_one_that_has_it() {
        let (api, _folder) = api().await;
        let store = api.store().clone();
        let late = async move || {
            let other = RequestKey {
                credential: Anyone.key_id(),
                org: None,
                attempt: Uuid::new_v4(),
                method: "POST",
                path: "/rows".to_owned(),
                key: "k".to_owned(),
                body: body_hash::of(b"{}"),
            };
            let kept = StoredAnswer {
                status: 201,
                text: "other".to_owned(),
                refusal: false,
                etag: None,
            };
            let done = tokio::spawn(async move {
                let claimed = store.write(move |tx| {
                    let later = NOW + Duration::from_secs(120);
                    let claim = idempotency::claim(tx, &other, None, later)?;
                    idempotency::keep(tx, &other, &kept, later)?;
                    Ok(claim)
                });
                claimed.await
            });
            assert_eq!(done.await.unwrap().unwrap(), Claim::New);
            (StatusCode::CREATED, "late")
        };

        let router = Router::new()
            .route("/rows", post(once_for::<Anyone, _>(late)))
            .with_state(api);
        let answer = post_to(&router, "/rows", "{}").await;
        assert_eq!(answer.status(), StatusCode::CREATED);
        assert!(answer.headers().contains_key(REPLAYED));
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&*text, b"other");
    }

    #[tokio::test]
    async fn a_panic_leaves_the_key_free() {
        let (api, _folder) = api().await;
        let router = router(&api);

        let failed = post_to(&router, "/rows", "").await;
        assert_eq!(failed.status(), StatusCode::INTERNAL_SERVER_ERROR);
        // Another body under the same key: 422 if the key were taken.
        let done = post_to(&router, "/rows", "{}").await;
        assert_eq!(done.status(), StatusCode::CREATED);
        let again = post_to(&router, "/rows", "{}").await;
        assert!(again.headers().contains_key(REPLAYED));
    }
}
