//! `/operator/nodes`, `/operator/health` and `/operator/sources`: state of the installation, as the operator's pages and commands show it.

use std::borrow::Cow;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::nodes::{self, NodeState, NodeStatus};
use trunkline_store::{auth_failures, journal};
use uuid::Uuid;

use super::listed::Listed;
use crate::api::caller::Operator;
use crate::api::health::database_state;
use crate::api::operations::{Audience, Operations};
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::engine::skew::Off;
use crate::explain::certificates;
use crate::explain::finding::Finding;

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/nodes",
        nodes,
        "listNodes",
        "Nodes that share the database, and which of them serve",
        |op| op.gives::<Listed<NodeView>>(200),
    );

    of.get(
        "/health",
        health,
        "showNodeHealth",
        "Health of the node that answers: journal, database, clock, certificates",
        |op| op.gives::<HealthView>(200),
    );

    of.get(
        "/sources",
        sources,
        "listFailingSources",
        "Addresses from which log-ins failed in the last 24 hours, the most frequent first",
        |op| op.gives::<Listed<SourceView>>(200),
    );
}

/// Time over which failed log-ins are counted.
const SOURCES_WINDOW: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of sources in the list.
const MOST_SOURCES: u32 = 100;

/// A node, as the database knows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Node")]
pub(crate) struct NodeView {
    pub(crate) node: u8,
    pub(crate) host: String,
    /// `serving`, `draining`, `ended`, or `silent`: the node neither renews its lease nor reported its end.
    #[schemars(with = "String")]
    pub(crate) status: NodeState,
    pub(crate) started_at: String,
    /// End of the node's lease.
    pub(crate) lease_expires_at: String,
    /// Calls that are up on the node, as far as the database knows.
    pub(crate) calls: u32,
}

impl From<NodeStatus> for NodeView {
    fn from(node: NodeStatus) -> Self {
        Self {
            node: node.node,
            host: node.host,
            status: node.state,
            started_at: written(node.started_at),
            lease_expires_at: written(node.lease_expires_at),
            calls: node.calls,
        }
    }
}

/// `GET /operator/nodes`: all nodes, ordered by number.
pub(super) async fn nodes(
    State(api): State<Api>,
    _: Operator,
    query: Query,
) -> Result<Json<Listed<NodeView>>, ApiError> {
    query.finish()?;
    let found = api.read(nodes::all).await?;
    let items = found.into_iter().map(NodeView::from).collect();
    Ok(Json(Listed { items }))
}

/// State of the node that answers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "NodeHealth")]
pub(crate) struct HealthView {
    /// Number of the node; `null` where no daemon runs.
    pub(crate) node: Option<u8>,
    pub(crate) version: Cow<'static, str>,
    pub(crate) draining: bool,
    /// `sqlite` or `postgresql`.
    pub(crate) database: Cow<'static, str>,
    /// True if the database answers in time.
    pub(crate) database_answers: bool,
    /// Seconds by which this machine's clock is ahead of the database's; `null` for an embedded database.
    pub(crate) clock_ahead_seconds: Option<f64>,
    /// `ok`, `waiting` for the database, or `failing`: the disk takes no facts. `null` where no daemon runs.
    #[schemars(with = "Option<String>")]
    pub(crate) journal: Option<journal::State>,
    /// Addresses that SIP peers reach.
    pub(crate) sip_addresses: Vec<String>,
    /// Result of the checks of each configured certificate.
    pub(crate) certificates: Vec<Finding>,
}

/// `GET /operator/health`
pub(super) async fn health(
    State(api): State<Api>,
    _: Operator,
    query: Query,
) -> Result<Json<HealthView>, ApiError> {
    query.finish()?;

    let store = api.store();
    let answers = database_state(store).await.answers();
    // A database that hasn't answered in time would only be waited for once more.
    let off = match answers {
        true => Off::measure(store).await.ok().flatten(),
        false => None,
    };

    let engine = api.engine();
    Ok(Json(HealthView {
        node: engine.map(|engine| engine.node()),
        version: env!("CARGO_PKG_VERSION").into(),
        draining: api.is_draining(),
        database: if store.is_shared() {
            "postgresql"
        } else {
            "sqlite"
        }
        .into(),
        database_answers: answers,
        clock_ahead_seconds: off.map(Off::seconds),
        journal: engine.map(|engine| engine.journal()),
        sip_addresses: api.sip_addresses().to_vec(),
        certificates: api
            .config()
            .certificates()
            .map(|(key, file, host)| certificates::examine(key, file, host, api.now()))
            .collect(),
    }))
}

/// Address from which log-ins fail.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "FailingSource")]
pub(crate) struct SourceView {
    pub(crate) source: String,
    /// Failed log-ins of the last 24 hours. An org keeps its newest thousand.
    pub(crate) failures: u32,
    /// Existing user names that the source tried.
    pub(crate) usernames: u32,
    pub(crate) org_id: Uuid,
    pub(crate) org_name: String,
    pub(crate) last_at: String,
}

/// `GET /operator/sources`: addresses from which log-ins failed in the last 24 hours, for each org, the most frequent first.
pub(super) async fn sources(
    State(api): State<Api>,
    _: Operator,
    query: Query,
) -> Result<Json<Listed<SourceView>>, ApiError> {
    query.finish()?;
    let now = api.now();
    let since = now - SOURCES_WINDOW;
    let found = api.read(move |tx| auth_failures::sources(tx, since, MOST_SOURCES));
    let items = found.await?.into_iter().map(|source| SourceView {
        source: source.source,
        failures: source.failures,
        usernames: source.usernames,
        org_id: source.org_id,
        org_name: source.org_name,
        last_at: written(source.last_at),
    });

    Ok(Json(Listed {
        items: items.collect(),
    }))
}
