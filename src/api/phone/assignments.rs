//! `/phone/sip/agents/{agent_id}/…`: assignments of an agent, which are its inbound numbers, its outbound trunk and its
//! transfer destinations.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_routing::E164;
use trunkline_store::{AgentConfig, Kind, Tx, Versioned, agent_config, numbers, outbound_trunks};
use uuid::Uuid;

use super::destinations::DestinationView;
use super::outbound_trunks::OutboundTrunkView;
use super::{OF_ORG, agents};
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{ID, ListOf};
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::version::{IfMatch, Tagged};
use crate::api::{Api, ApiError, Success};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Assignments", OF_ORG);
    of.get(
        "/phone/sip/agents/{agent_id}/config",
        config,
        "showAgentConfig",
        "Assignments of an agent",
        |op| op.gives_versioned::<ConfigView>(),
    );

    of.put(
        "/phone/sip/agents/{agent_id}/inbound-numbers",
        set_inbound_numbers,
        "setInboundNumbers",
        "Replaces the numbers that the agent answers",
        |op| {
            op.may_refuse(&[409])
                .of_version()
                .body(read_by(numbers))
                .gives_versioned::<ConfigView>()
        },
    );

    of.post(
        "/phone/sip/agents/{agent_id}/inbound-numbers",
        add_inbound_number,
        "addInboundNumber",
        "Adds a number to those that the agent answers",
        |op| {
            op.may_refuse(&[409])
                .of_version()
                .body(read_by(number))
                .gives_versioned::<ConfigView>()
        },
    );

    of.delete(
        "/phone/sip/agents/{agent_id}/inbound-numbers/{number_id}",
        remove_inbound_number,
        "removeInboundNumber",
        "Takes a number from the agent; its others stay",
        |op| op.of_version().deletes(),
    );

    of.put(
        "/phone/sip/agents/{agent_id}/outbound-trunk",
        set_outbound_trunk,
        "setOutboundTrunk",
        "Sets the trunk that the agent dials through; `null` for none",
        |op| {
            op.of_version()
                .body(read_by(trunk))
                .gives_versioned::<ConfigView>()
        },
    );
}

/// Assignments of an agent.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AgentAssignments")]
pub(crate) struct ConfigView {
    agent_id: Uuid,
    /// Oldest first.
    pub(crate) inbound_numbers: Vec<InboundNumber>,
    pub(crate) outbound_trunk: Option<OutboundTrunkView>,
    /// Newest first.
    pub(crate) transfer_destinations: Vec<DestinationView>,
}

/// A number that the agent answers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct InboundNumber {
    pub(crate) id: Uuid,
    pub(crate) phone_number: E164,
}

impl ConfigView {
    fn seen(api: &Api, config: AgentConfig) -> Self {
        let numbers = config.numbers.into_iter();
        let destinations = config.destinations.into_iter();
        Self {
            agent_id: config.agent.id,
            inbound_numbers: numbers
                .map(|number| InboundNumber {
                    id: number.id,
                    phone_number: number.number,
                })
                .collect(),
            outbound_trunk: config
                .outbound_trunk
                .map(|trunk| OutboundTrunkView::seen(api, trunk)),
            transfer_destinations: destinations.map(DestinationView::from).collect(),
        }
    }
}

/// `GET /phone/sip/agents/{agent_id}/config`
pub(crate) async fn config(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Tagged<ConfigView>, ApiError> {
    let agent = agents::find(&api, &caller, &named).await?;
    query.finish()?;
    view(&api, &caller, agent.id).await
}

/// `PUT /phone/sip/agents/{agent_id}/inbound-numbers {phone_number_ids}`: replaces them; 400 for an id that is no
/// verified number of the org, 409 for a number that another agent has.
pub(crate) async fn set_inbound_numbers(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<ConfigView>, ApiError> {
    let agent = agents::find(&api, &caller, &named).await?;
    let version = version.versions()?;
    let ids = numbers(body.fields()?)?;
    let (org, object) = (caller.org, Versioned::Agent(agent.id));
    let assign = move |tx: &mut Tx, now| numbers::assign(tx, org, agent.id, &ids, now);
    api.change(org, object, version, assign)
        .await
        .map_err(ApiError::in_field(NUMBERS))?;
    view(&api, &caller, agent.id).await
}

/// `POST /phone/sip/agents/{agent_id}/inbound-numbers {phone_number_id}`: adds a number to the agent's; 400 for an id that is no verified number of
/// the org, 409 for a number that another agent has.
pub(crate) async fn add_inbound_number(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<ConfigView>, ApiError> {
    let agent = agents::find(&api, &caller, &named).await?;
    let version = version.versions()?;
    let id = number(body.fields()?)?;
    let (org, object) = (caller.org, Versioned::Agent(agent.id));
    let assign = move |tx: &mut Tx, now| numbers::assign_one(tx, org, agent.id, id, now);
    api.change(org, object, version, assign)
        .await
        .map_err(ApiError::in_field(ONE_NUMBER))?;
    view(&api, &caller, agent.id).await
}

/// `DELETE /phone/sip/agents/{agent_id}/inbound-numbers/{number_id}`: the agent's other numbers stay. 404 for a number that the agent doesn't have.
pub(crate) async fn remove_inbound_number(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    query: Query,
) -> Result<Json<Success>, ApiError> {
    let agent = agents::find(&api, &caller, &named).await?;
    let id = named.id("number_id", Kind::Number)?;
    let version = version.versions()?;
    query.finish()?;
    let (org, object) = (caller.org, Versioned::Agent(agent.id));
    let unassign = move |tx: &mut Tx, now| numbers::unassign_one(tx, org, agent.id, id, now);
    api.change(org, object, version, unassign).await?;
    Ok(Json(Success::DONE))
}

/// `PUT /phone/sip/agents/{agent_id}/outbound-trunk {trunk_id}`: `null` for none; 400 for an id that is no outbound
/// trunk of the org.
pub(crate) async fn set_outbound_trunk(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    version: IfMatch,
    body: Body,
) -> Result<Tagged<ConfigView>, ApiError> {
    let agent = agents::find(&api, &caller, &named).await?;
    let version = version.versions()?;
    let trunk = trunk(body.fields()?)?;
    let (org, object) = (caller.org, Versioned::Agent(agent.id));
    let assign = move |tx: &mut Tx, now| outbound_trunks::assign(tx, org, agent.id, trunk, now);
    api.change(org, object, version, assign)
        .await
        .map_err(ApiError::in_field(TRUNK))?;
    view(&api, &caller, agent.id).await
}

const NUMBERS: &str = "phone_number_ids";
/// Maximum number of phone numbers of one agent. So many ids fill less than half of the largest body.
const MAX_NUMBERS: usize = 10_000;

pub(super) fn numbers(mut fields: Fields) -> Result<Vec<Uuid>, ApiError> {
    let ids = fields.required(NUMBERS, ListOf::new(ID, 0..=MAX_NUMBERS));
    fields.done(|| ids)
}

const ONE_NUMBER: &str = "phone_number_id";

pub(super) fn number(mut fields: Fields) -> Result<Uuid, ApiError> {
    let id = fields.required(ONE_NUMBER, ID);
    fields.done(|| id)
}

const TRUNK: &str = "trunk_id";

pub(super) fn trunk(mut fields: Fields) -> Result<Option<Uuid>, ApiError> {
    // `clearable` alone would take an absent field for "unchanged", and a `PUT` without it would unassign nothing
    // and yet answer 200.
    let given = fields.has(TRUNK);
    let trunk = fields.clearable(TRUNK, ID);
    if !given {
        fields.refuse(TRUNK, "is required");
    }
    fields.amend_schema(|schema| schema["required"] = serde_json::json!([TRUNK]));
    fields.done(|| trunk)
}

async fn view(api: &Api, caller: &Caller, agent: Uuid) -> Result<Tagged<ConfigView>, ApiError> {
    let org = caller.org;
    let config = api
        .read_inline(move |tx| agent_config::of_agent(tx, org, agent))
        .await?;
    let changed_at = config.agent.updated_at;
    Ok(Tagged::at(ConfigView::seen(api, config), changed_at))
}
