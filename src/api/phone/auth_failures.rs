//! `/phone/sip/inbound-trunk/auth-failures`: log-ins that failed under the trunk's user name.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use std::net::IpAddr;
use uuid::Uuid;

use super::{READ, inbound_trunk};
use crate::api::caller::Caller;
use crate::api::page::{Page, Paging};
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::store::AuthFailure;

/// A failed log-in as the API shows it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AuthFailureView {
    id: Uuid,
    at: String,
    /// The address that it came from.
    source: IpAddr,
    username: String,
    /// What was wrong: `password`, `uri`, `algorithm` or `malformed`.
    part: String,
}

impl From<AuthFailure> for AuthFailureView {
    fn from(failure: AuthFailure) -> Self {
        Self {
            id: failure.id,
            at: written(failure.at),
            source: failure.source,
            username: failure.username,
            part: failure.part,
        }
    }
}

/// `GET /phone/sip/inbound-trunk/auth-failures?limit&cursor`, newest first; the newest thousand are kept.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Json<Page<AuthFailureView>>, ApiError> {
    caller.needs(READ)?;
    inbound_trunk::find(&api, &caller).await?;
    let paging = Paging::read(&mut query, "auth-failures", ());
    query.finish()?;
    let failures = api.store().auth_failures();
    let page = failures
        .list(caller.org, paging.after, paging.limit)
        .await?;
    Ok(Json(paging.page(page, AuthFailureView::from)))
}
