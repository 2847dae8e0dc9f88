//! `/partner/v1/audit`: changes to the partner and to its orgs.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use trunkline_store::AuditScope;

use super::TAG;
use super::caller::PartnerCaller;
use crate::api::operations::{Audience, Operations};
use crate::api::query::Query;
use crate::api::{Api, ApiError, audit};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area(TAG, Audience::Partner);
    of.get(
        "/partner/v1/audit",
        list,
        "listPartnerAudit",
        "Changes to the partner and its orgs, newest first; by `Accept` as CSV or JSON lines",
        |op| {
            let org = serde_json::json!({"type": "string", "format": "uuid"});
            let op = op.query("org_id", org, "Only changes to this org.");
            audit::describe(op)
        },
    );
}

/// `GET /partner/v1/audit?org_id&actor&actor_id&resource&resource_id&start_date&end_date&limit&cursor`
pub(super) async fn list(
    State(api): State<Api>,
    caller: PartnerCaller,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    audit::answer(api, AuditScope::Partner(caller.id()), &headers, query).await
}
