//! `GET /operator/audit`: every entry of the audit log.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use trunkline_store::AuditScope;

use crate::api::operations::{Audience, Operations};
use crate::api::operator::Operator;
use crate::api::query::Query;
use crate::api::{Api, ApiError, audit};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/operator/audit",
        list,
        "listWholeAudit",
        "Every change, newest first",
        audit::describe,
    );
}

/// `GET /operator/audit?actor&actor_id&resource&resource_id&start_date&end_date&limit&cursor`
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    audit::answer(api, AuditScope::All, &headers, query).await
}
