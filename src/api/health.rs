//! `/healthz`, `/readyz` and `/metrics`.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::Store;
use trunkline_store::journal;

use super::operations::{Audience, Operations};
use super::{Api, ApiError};
use crate::telemetry::metrics;

/// Time after which the database counts as away.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(2);

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Readiness")]
struct ReadyView {
    status: &'static str,
    database: &'static str,
    /// State of the journal; absent where no calls can be up.
    #[serde(skip_serializing_if = "Option::is_none")]
    journal: Option<&'static str>,
}

/// `GET /readyz`: 200 while new calls are taken, 503 while draining.
///
/// If the database is away, can't be written or takes no facts, or the journal can't be written, the node is `degraded` but ready,
/// because it still places and answers calls.
pub(super) async fn readyz(State(api): State<Api>) -> Response {
    let database = database_state(api.store()).await;

    let journal = api.engine().map(|engine| match engine.journal() {
        journal::State::Ok => "ok",
        journal::State::Waiting => "waiting",
        journal::State::Failing => "failing",
    });

    let is_well = database == DatabaseState::Ok && journal.is_none_or(|journal| journal == "ok");
    let (code, status) = match (api.is_draining(), is_well) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        (false, true) => (StatusCode::OK, "ready"),
        (false, false) => (StatusCode::OK, "degraded"),
    };

    let view = ReadyView {
        status,
        database: database.as_str(),
        journal,
    };

    (code, Json(view)).into_response()
}

/// State of the database.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DatabaseState {
    /// It answers, and takes what is written.
    Ok,
    /// It can be read, but its disk is full, read-only, failing or damaged.
    Failing,
    /// It doesn't answer in time.
    Unavailable,
}

impl DatabaseState {
    /// Returns whether it answers, though it may not be writable.
    pub const fn answers(self) -> bool {
        match self {
            Self::Ok | Self::Failing => true,
            Self::Unavailable => false,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failing => "failing",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Asks the database whether it answers in time, and the store whether its last write succeeded; sets the metric too.
pub async fn database_state(store: &Store) -> DatabaseState {
    let answers = match tokio::time::timeout(DATABASE_TIMEOUT, store.check()).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the database does not answer"
            );
            false
        }
        Err(_) => {
            tracing::warn!(
                timeout_s = DATABASE_TIMEOUT.as_secs(),
                "the database does not answer in time"
            );
            false
        }
    };

    let state = match (answers, store.disk_fault()) {
        (_, Some(_)) => DatabaseState::Failing,
        (true, None) => DatabaseState::Ok,
        (false, None) => DatabaseState::Unavailable,
    };
    metrics::database_up(state == DatabaseState::Ok);
    state
}

/// `GET /metrics` where the API is served, unless metrics have an address of their own.
pub(super) async fn rendered_beside_the_api(state: State<Api>) -> Result<Response, ApiError> {
    if state.config().http.health_listen.is_some() {
        return Err(ApiError::NotFound(
            "Metrics are at http.health_listen".to_owned(),
        ));
    }
    Ok(rendered(state).await)
}

/// `GET /metrics`: Prometheus' text format.
pub(super) async fn rendered(State(api): State<Api>) -> Response {
    (
        [(
            header::CONTENT_TYPE,
            "text/plain; version=0.0.4; charset=utf-8",
        )],
        api.rendered_metrics(),
    )
        .into_response()
}

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Service", Audience::Public);
    of.get(
        "/healthz",
        healthz,
        "showHealth",
        "Liveness of the process",
        |op| op.gives_text(200, "text/plain; charset=utf-8"),
    );

    of.get(
        "/readyz",
        readyz,
        "showReadiness",
        "Readiness for new calls: 503 while draining",
        |op| op.gives::<ReadyView>(200).gives::<ReadyView>(503),
    );

    of.get(
        "/metrics",
        rendered_beside_the_api,
        "showMetrics",
        "Metrics in Prometheus' text format",
        |op| op.gives_text(200, "text/plain; version=0.0.4; charset=utf-8"),
    );
}
