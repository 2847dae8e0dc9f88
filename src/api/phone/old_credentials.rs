//! `/phone/sip/inbound-trunk/old-credentials`: credentials from before a rotation, which work for a day unless they are
//! ended.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::{OldPair, inbound_trunks, old_pairs};

use super::{READ, WRITE};
use crate::api::caller::Caller;
use crate::api::page::Page;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError, Success};

/// A pair from before a rotation.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "OldCredentials")]
pub(crate) struct OldPairView {
    auth_username: String,
    expires_at: String,
}

impl From<OldPair> for OldPairView {
    fn from(pair: OldPair) -> Self {
        Self {
            auth_username: pair.username,
            expires_at: written(pair.expires_at),
        }
    }
}

/// `GET /phone/sip/inbound-trunk/old-credentials`: all old credentials that still work.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
) -> Result<Page<OldPairView>, ApiError> {
    caller.needs(READ)?;
    api.read_inline(move |tx| inbound_trunks::of_org(tx, caller.org))
        .await?;
    query.finish()?;

    let now = api.now();
    let pairs = api
        .read_inline(move |tx| old_pairs::list(tx, caller.org, now))
        .await?;

    let items: Vec<_> = pairs.into_iter().map(OldPairView::from).collect();
    Ok(Page {
        total: items.len() as u64,
        next: None,
        items,
    })
}

/// `DELETE /phone/sip/inbound-trunk/old-credentials`: ends them at once. A PBX that still uses them is challenged
/// again.
pub(crate) async fn end(
    State(api): State<Api>,
    caller: Caller,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    caller.needs(WRITE)?;
    api.read_inline(move |tx| inbound_trunks::of_org(tx, caller.org))
        .await?;
    query.finish()?;
    api.write(move |tx, now| old_pairs::end(tx, caller.org, now))
        .await?;
    Ok(Json(Success::DONE))
}
