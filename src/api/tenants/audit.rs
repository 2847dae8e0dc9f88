//! `/partner/v1/audit`: changes to the partner and to its orgs; for the operator every change.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use trunkline_store::AuditScope;

use crate::api::caller::Provisioner;
use crate::api::operations::{Audience, Operations};
use crate::api::query::Query;
use crate::api::{Api, ApiError, audit};

pub(super) fn operations(api: &mut Operations<'_>, by: Audience) {
    let mut of = api.provisioning(by);
    if by == Audience::Operator {
        of.get(
            "/audit",
            list,
            "listAudit",
            "Every change, newest first",
            audit::describe,
        );
        return;
    }
    of.get(
        "/audit",
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
    caller: Provisioner,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    let scope = caller
        .partner_id()
        .map_or(AuditScope::All, AuditScope::Partner);
    audit::answer(api, scope, &headers, query).await
}
