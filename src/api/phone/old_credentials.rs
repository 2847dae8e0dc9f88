//! `/phone/sip/inbound-trunk/old-credentials`: credentials from before a rotation, which work for a day unless they are
//! ended.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::{OldPair, Tx, Versioned, inbound_trunks, old_pairs};

use super::OF_ORG;
use crate::api::caller::Caller;
use crate::api::operations::Operations;
use crate::api::page::{Page, Paging};
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::version::IfMatch;
use crate::api::{Api, ApiError, Success};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Inbound trunk", OF_ORG);
    of.get(
        "/phone/sip/inbound-trunk/old-credentials",
        list,
        "listOldCredentials",
        "Old user names that still work after a rotation, with their expiry",
        |op| op.may_refuse(&[404]).lists::<OldPairView>(),
    );

    of.delete(
        "/phone/sip/inbound-trunk/old-credentials",
        end,
        "endOldCredentials",
        "Ends the credentials from before a rotation at once",
        |op| op.may_refuse(&[404]).of_version().deletes(),
    );
}

/// A pair from before a rotation.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "OldCredentials")]
pub(crate) struct OldPairView {
    pub(crate) auth_username: String,
    pub(crate) expires_at: String,
}

impl From<OldPair> for OldPairView {
    fn from(pair: OldPair) -> Self {
        Self {
            auth_username: pair.username,
            expires_at: written(pair.expires_at),
        }
    }
}

/// `GET /phone/sip/inbound-trunk/old-credentials?limit&cursor`: old credentials that still work.
pub(crate) async fn list(
    State(api): State<Api>,
    caller: Caller,
    mut query: Query,
) -> Result<Page<OldPairView>, ApiError> {
    api.read_inline(move |tx| inbound_trunks::of_org(tx, caller.org))
        .await?;
    let paging: Paging = Paging::read(&mut query, "old-credentials", ());
    query.finish()?;

    let now = api.now();
    let page =
        move |tx: &mut Tx, org, (): &(), after, limit| old_pairs::page(tx, org, now, after, limit);
    paging
        .find(api.store(), caller.org, page, OldPairView::from)
        .await
}

/// `DELETE /phone/sip/inbound-trunk/old-credentials`: ends them at once. A PBX that still uses them is challenged
/// again.
pub(crate) async fn end(
    State(api): State<Api>,
    caller: Caller,
    version: IfMatch,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    api.read_inline(move |tx| inbound_trunks::of_org(tx, caller.org))
        .await?;
    let version = version.versions()?;
    query.finish()?;
    let org = caller.org;
    let end = move |tx: &mut Tx, now| old_pairs::end(tx, org, now);
    api.change(org, Versioned::InboundTrunk, version, end)
        .await?;
    Ok(Json(Success::DONE))
}
