//! `/operator/orgs/{orgId}/tied-peers`: reserved and private peers that the operator allows an org to name.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_model::peer_pattern::PeerPattern;
use trunkline_store::{Kind, TiedPeer, tied_peers};
use uuid::Uuid;

use super::listed::{self, Listed};
use crate::api::body::{Body, Fields};
use crate::api::caller::{Operator, org_in};
use crate::api::field_type::Parsed;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::config;

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/orgs/{orgId}/tied-peers",
        list,
        "listTiedPeers",
        "Peers tied to the org",
        |op| op.gives::<Listed<TiedView>>(200),
    );

    of.post(
        "/orgs/{orgId}/tied-peers",
        tie,
        "tiePeer",
        "Lets the org name a reserved or private peer as runtime, outbound trunk or destination",
        |op| op.body(read_by(new_peer)).gives::<Listed<TiedView>>(200),
    );
    of.delete(
        "/orgs/{orgId}/tied-peers/{peer}",
        untie,
        "untiePeer",
        "Ends a tie: calls to the peer are refused from then on, and those that are up go on",
        |op| op.gives::<Listed<TiedView>>(200),
    );
}

const PEER: Parsed<PeerPattern> = Parsed::new("a host, an address or a CIDR block", |text| {
    config::peer(text).ok()
})
.example("carrier.example.com");

/// A peer that is tied to an org.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TiedPeer")]
pub(crate) struct TiedView {
    pub(crate) peer: String,
    org_id: Uuid,
    pub(crate) created_at: String,
}

impl From<TiedPeer> for TiedView {
    fn from(tied: TiedPeer) -> Self {
        Self {
            peer: tied.peer.to_string(),
            org_id: tied.org_id,
            created_at: written(tied.created_at),
        }
    }
}

/// `GET /operator/orgs/{orgId}/tied-peers`
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Listed<TiedView>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    query.finish()?;
    listed::all_of(&api, org, tied_peers::list).await
}

/// `POST /operator/orgs/{orgId}/tied-peers {peer}`: ties the peer, and lists the org's peers.
pub(super) async fn tie(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<Json<Listed<TiedView>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    let peer = new_peer(body.fields()?)?;
    api.write(move |tx, now| tied_peers::tie(tx, org, &peer, now))
        .await?;
    listed::all_of(&api, org, tied_peers::list).await
}

pub(super) fn new_peer(mut fields: Fields) -> Result<PeerPattern, ApiError> {
    let peer = fields.required("peer", PEER);
    fields.done(|| peer)
}

/// `DELETE /operator/orgs/{orgId}/tied-peers/{peer}`: ends the tie, and lists the org's peers.
pub(super) async fn untie(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Listed<TiedView>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    let peer = named.text("peer").and_then(|text| config::peer(text).ok());
    let peer = peer.ok_or_else(|| ApiError::absent(Kind::TiedPeer))?;
    query.finish()?;
    api.write(move |tx, now| tied_peers::untie(tx, org, &peer, now))
        .await?;
    listed::all_of(&api, org, tied_peers::list).await
}
