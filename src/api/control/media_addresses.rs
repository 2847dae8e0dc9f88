//! `/operator/orgs/{orgId}/media-addresses`: networks in which an org's PBX or carrier has its media, to which audio goes before any has come from
//! there.

use axum::Json;
use axum::extract::State;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_store::{Kind, MediaAddress, media_addresses};
use uuid::Uuid;

use super::listed::{self, Listed};
use super::networks::network_in;
use crate::api::body::{Body, Fields};
use crate::api::caller::{Operator, org_in};
use crate::api::field_type::NETWORK;
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/orgs/{orgId}/media-addresses",
        list,
        "listMediaAddresses",
        "Networks in which the org's PBX or carrier has its media",
        |op| op.gives::<Listed<MediaAddressView>>(200),
    );

    of.post("/orgs/{orgId}/media-addresses", add, "addMediaAddress", "Lists a network in which the org's PBX or carrier has its media: audio goes there before any has come from there", |op| {
            op.body(read_by(new_network))
                .gives::<Listed<MediaAddressView>>(200)
        });
    of.delete(
        "/orgs/{orgId}/media-addresses/{network}",
        remove,
        "removeMediaAddress",
        "Takes a network of media off the org's list",
        |op| op.gives::<Listed<MediaAddressView>>(200),
    );
}

/// A network in which an org's PBX or carrier has its media.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "MediaAddress")]
pub(super) struct MediaAddressView {
    #[schemars(with = "String")]
    network: IpNet,
    org_id: Uuid,
    created_at: String,
}

impl From<MediaAddress> for MediaAddressView {
    fn from(listed: MediaAddress) -> Self {
        Self {
            network: listed.network,
            org_id: listed.org_id,
            created_at: written(listed.created_at),
        }
    }
}

/// `GET /operator/orgs/{orgId}/media-addresses`
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Listed<MediaAddressView>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    query.finish()?;
    listed::all_of(&api, org, media_addresses::list).await
}

/// `POST /operator/orgs/{orgId}/media-addresses {network}`: lists the network, and returns the list.
pub(super) async fn add(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<Json<Listed<MediaAddressView>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    let network = new_network(body.fields()?)?;
    api.write(move |tx, now| media_addresses::add(tx, org, network, now))
        .await?;
    listed::all_of(&api, org, media_addresses::list).await
}

pub(super) fn new_network(mut fields: Fields) -> Result<IpNet, ApiError> {
    let network = fields.required("network", NETWORK);
    fields.done(|| network)
}

/// `DELETE /operator/orgs/{orgId}/media-addresses/{network}`: takes the network off the list, and returns the list.
pub(super) async fn remove(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Listed<MediaAddressView>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    let network = network_in(&named).ok_or_else(|| ApiError::absent(Kind::MediaAddress))?;
    query.finish()?;
    api.write(move |tx, now| media_addresses::remove(tx, org, network, now))
        .await?;
    listed::all_of(&api, org, media_addresses::list).await
}
