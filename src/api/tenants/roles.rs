//! `GET /partner/v1/orgs/{orgId}/roles`: roles that a new member of the org can get.

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use trunkline_store::{Access, Role, logins};
use uuid::Uuid;

use crate::api::caller::Provisioner;
use crate::api::operations::{Audience, Operations};
use crate::api::page::{Page, Paging};
use crate::api::path::Named;
use crate::api::query::{Query, text_schema};
use crate::api::time::written;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let mut of = api.provisioning(by);
    of.get(
        "/orgs/{orgId}/roles",
        list,
        "listRoles",
        "Roles for members of the org",
        |op| {
            op.query(
                "access",
                json!({"type": "string", "enum": ["write", "read"]}),
                "Only roles of this access.",
            )
            .query("name", text_schema(), "Only roles of this name.")
            .paged()
            .gives::<Page<RoleView>>(200)
        },
    );
}

/// A role.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Role")]
pub(super) struct RoleView {
    id: Uuid,
    name: String,
    /// `write`: everything; `read`: sees everything, changes nothing.
    access: Access,
    created_at: String,
}

impl From<Role> for RoleView {
    fn from(role: Role) -> Self {
        Self {
            id: role.id,
            name: role.name,
            access: role.access,
            created_at: written(role.created_at),
        }
    }
}

/// `GET /partner/v1/orgs/{orgId}/roles?limit&cursor`
pub(super) async fn list(
    State(api): State<Api>,
    caller: Provisioner,
    named: Named,
    mut query: Query,
) -> Result<Page<RoleView>, ApiError> {
    let org = caller.org(&api, &named).await?.id;
    let narrow = [
        query.one_of("access", &["write", "read"]),
        query.text("name"),
    ];
    let paging = Paging::read(&mut query, "roles", narrow);
    query.finish()?;
    paging
        .find(api.store(), org, logins::roles, RoleView::from)
        .await
}
