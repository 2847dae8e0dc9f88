//! `GET /partner/v1/deleted-orgs`: orgs that were deleted and can be restored.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::{DeletedOrg, deleted_orgs};
use uuid::Uuid;

use crate::api::caller::Provisioner;
use crate::api::operations::{Audience, Operations};
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let mut of = api.provisioning(by);
    of.get(
        "/deleted-orgs",
        list,
        "listDeletedOrgs",
        "Deleted orgs that can be restored, the last deleted first",
        |op| op.gives::<DeletedOrgsView>(200),
    );
}

/// Deleted orgs that can be restored.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DeletedOrgs")]
pub(crate) struct DeletedOrgsView {
    /// At most 1,000, the last deleted first.
    pub(crate) items: Vec<DeletedOrgView>,
}

/// A deleted org that can be restored.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DeletedOrg")]
pub(crate) struct DeletedOrgView {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    /// The partner that made it; `null` if the operator did.
    partner_id: Option<Uuid>,
    /// The external id that it had. Another org may have it by now.
    external_id: Option<String>,
    /// Time at which it was deleted.
    pub(crate) deleted_at: Option<String>,
    /// Time at which it is deleted for good.
    pub(crate) purge_at: Option<String>,
}

impl From<DeletedOrg> for DeletedOrgView {
    fn from(org: DeletedOrg) -> Self {
        Self {
            id: org.id,
            name: org.name,
            partner_id: org.partner_id,
            external_id: org.deleted_external_id,
            deleted_at: org.deleted_at.map(written),
            purge_at: org.purge_at.map(written),
        }
    }
}

/// `GET /partner/v1/deleted-orgs`
async fn list(
    State(api): State<Api>,
    caller: Provisioner,
    query: Query,
) -> Result<Json<DeletedOrgsView>, ApiError> {
    query.finish()?;
    let (partner, now) = (caller.partner_id(), api.now());
    let deleted = api.read(move |tx| deleted_orgs::deleted(tx, partner, now));
    let items = deleted.await?.into_iter().map(DeletedOrgView::from);
    Ok(Json(DeletedOrgsView {
        items: items.collect(),
    }))
}
