//! `/operator/orgs/{orgId}/retention`: the days for which an org's data is kept.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::{OrgChange, Retained, RetentionChange, Tx, Versioned, aged};
use uuid::Uuid;

use super::listed::Listed;
use super::named_org::org_in;
use crate::api::body::{Body, Fields};
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::operator::Operator;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::version::IfMatch;
use crate::api::{Api, ApiError, default_retention, partner};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/operator/orgs/{orgId}/retention",
        show,
        "showOrgRetention",
        "Days for which an org's data is kept",
        |op| op.gives::<Listed<RetentionRow>>(200),
    );

    of.patch(
        "/operator/orgs/{orgId}/retention",
        update,
        "updateOrgRetention",
        "Shows for how many days an org's data is kept, and sets those that are given",
        |op| {
            op.of_version()
                .body(read_by(changed_days))
                .gives::<Listed<RetentionRow>>(200)
        },
    );
}

/// Days of one kind of data.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "RetentionRow")]
pub(super) struct RetentionRow {
    /// Kind of data.
    data: &'static str,
    /// Days set for the org; `null` if the operator's apply.
    days: Option<u32>,
    /// Days in force; `null`: until it is deleted otherwise.
    days_in_force: Option<u32>,
}

/// `GET /operator/orgs/{orgId}/retention`
pub(super) async fn show(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Listed<RetentionRow>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    query.finish()?;
    view(&api, org).await
}

/// `PATCH /operator/orgs/{orgId}/retention {calls_days, sessions_days, contacts_days, handoffs_days}`: absent days are
/// unchanged, `null` restores the operator's. The version is the org's.
pub(super) async fn update(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Json<Listed<RetentionRow>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    let version = version.versions()?;
    let change = OrgChange {
        retention: changed_days(body.fields()?)?,
        ..OrgChange::default()
    };
    let update = move |tx: &mut Tx, now| trunkline_store::orgs::update(tx, org, &change, now);
    api.change(org, Versioned::Org, version, update).await?;
    view(&api, org).await
}

pub(super) fn changed_days(mut fields: Fields) -> Result<RetentionChange, ApiError> {
    let days = partner::retention(&mut fields);
    fields.done(|| days)
}

async fn view(api: &Api, org: Uuid) -> Result<Json<Listed<RetentionRow>>, ApiError> {
    let own = api.read_inline(move |tx| aged::days_of(tx, org)).await?;
    let in_force = own.or(default_retention(api.config()));
    let rows = Retained::ALL.map(|kind| RetentionRow {
        data: kind.as_str(),
        days: own.of(kind),
        days_in_force: in_force.of(kind),
    });
    Ok(Json(Listed { items: rows.into() }))
}
