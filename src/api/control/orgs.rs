//! `GET /operator/orgs`: orgs by name, or the only one that there is.

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use trunkline_store::orgs;
use uuid::Uuid;

use crate::api::operator::Operator;
use crate::api::query::Query;
use crate::api::{Api, ApiError};

/// Orgs that are returned: enough to tell that a name isn't unique, or to list the choice.
const MAX_ORGS: usize = 100;

/// Orgs that match.
#[derive(Debug, Serialize)]
pub(super) struct OrgNames {
    items: Vec<OrgName>,
    total: usize,
}

#[derive(Debug, Serialize)]
struct OrgName {
    id: Uuid,
    name: String,
}

/// `GET /operator/orgs?name`: newest first, 100 at most.
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    mut query: Query,
) -> Result<Json<OrgNames>, ApiError> {
    let name = query.text("name");
    query.finish()?;
    let all = api.read(orgs::list).await?.into_iter();
    let mut found: Vec<OrgName> = all
        .filter(|org| name.as_ref().is_none_or(|name| *name == org.name))
        .map(|org| OrgName {
            id: org.id,
            name: org.name,
        })
        .collect();
    let total = found.len();
    found.truncate(MAX_ORGS);
    Ok(Json(OrgNames {
        items: found,
        total,
    }))
}
