//! `/partner/v1/audit`: changes to the partner and to its orgs.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use trunkline_store::AuditScope;

use super::caller::PartnerCaller;
use crate::api::query::Query;
use crate::api::{Api, ApiError, audit};

/// `GET /partner/v1/audit?org_id&actor&actor_id&resource&resource_id&start_date&end_date&limit&cursor`
pub(super) async fn list(
    State(api): State<Api>,
    caller: PartnerCaller,
    headers: HeaderMap,
    query: Query,
) -> Result<Response, ApiError> {
    audit::answer(api, AuditScope::Partner(caller.id()), &headers, query).await
}
