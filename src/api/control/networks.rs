//! `/operator/orgs/{orgId}/networks`: the operator's IP allow list. Calls from these networks belong to one org and need
//! no credentials.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_store::{Dedication, Kind, dedications};
use uuid::Uuid;

use super::listed::{self, Listed};
use crate::api::body::{Body, Fields};
use crate::api::caller::{Operator, org_in};
use crate::api::field_type::{Bool, NETWORK};
use crate::api::openapi::read_by;
use crate::api::operations::{Audience, Operations};
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError, Success};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Operator", Audience::Operator);
    of.get(
        "/orgs/{orgId}/networks",
        list,
        "listDedicatedNetworks",
        "Networks dedicated to the org",
        |op| op.gives::<Listed<NetworkView>>(200),
    );

    of.post(
        "/orgs/{orgId}/networks",
        create,
        "dedicateNetwork",
        "Takes every call from a network as the org's, without credentials",
        |op| op.body(read_by(new_network)).gives::<NetworkView>(201),
    );

    of.delete(
        "/orgs/{orgId}/networks/{network}",
        delete,
        "undedicateNetwork",
        "Ends a dedication",
        |op| op.deletes(),
    );
}

/// A network that is dedicated to an org.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DedicatedNetwork")]
pub(crate) struct NetworkView {
    #[schemars(with = "String")]
    pub(crate) network: IpNet,
    org_id: Uuid,
    /// The operator vouches for the source of calls from the network, which can be forged over UDP: they aren't asked to prove it.
    no_proof: bool,
    pub(crate) created_at: String,
}

impl From<Dedication> for NetworkView {
    fn from(dedication: Dedication) -> Self {
        Self {
            network: dedication.network,
            org_id: dedication.org_id,
            no_proof: dedication.no_proof,
            created_at: written(dedication.created_at),
        }
    }
}

/// `GET /operator/orgs/{orgId}/networks`
pub(super) async fn list(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Listed<NetworkView>>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    query.finish()?;
    listed::all_of(&api, org, dedications::list).await
}

/// `POST /operator/orgs/{orgId}/networks {network, no_proof}`: 201; 409 for a network of another org.
pub(super) async fn create(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    body: Body,
) -> Result<(StatusCode, Json<NetworkView>), ApiError> {
    let org = org_in(&api, &named).await?.id;
    let (network, no_proof) = new_network(body.fields()?)?;
    listed::create(&api, move |tx, now| {
        dedications::create(tx, org, network, no_proof, now)
    })
    .await
}

pub(super) fn new_network(mut fields: Fields) -> Result<(IpNet, Option<bool>), ApiError> {
    let network = fields.required("network", NETWORK);
    let no_proof = fields.optional("no_proof", Bool);
    fields.done(|| Some((network?, no_proof)))
}

/// Returns the network or address that the path names.
pub(super) fn network_in(named: &Named) -> Option<IpNet> {
    let text = named.text("network")?;
    let address = || text.parse::<std::net::IpAddr>().ok().map(IpNet::from);
    text.parse::<IpNet>().ok().or_else(address)
}

/// `DELETE /operator/orgs/{orgId}/networks/{network}`
pub(super) async fn delete(
    State(api): State<Api>,
    _: Operator,
    named: Named,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let org = org_in(&api, &named).await?.id;
    let network = network_in(&named).ok_or_else(|| ApiError::absent(Kind::Dedication))?;
    listed::delete(&api, query, move |tx, now| {
        dedications::delete(tx, org, network, now)
    })
    .await
}
