//! `/phone/outbound-call`: an agent calls a number through its outbound trunk, with that trunk's caller number.

use std::time::Duration;

use axum::extract::State;
use trunkline_calls::dial::outbound::NewOutboundCall;
use trunkline_routing::E164;
use trunkline_store::Kind;

use super::command_result::CommandResult;
use super::commands::outbound::{PlacedView, begin, caught_up};
use super::{OF_CALLS, remote};
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{Count, FreeObject, NUMBER, Text, id};
use crate::api::idempotency::call_once;
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::{Api, ApiError};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    of.post_once(
        "/phone/outbound-call",
        call_once(place),
        "placeCall",
        "Calls a number through the agent's trunk; the call shows its progress",
        |op| {
            let body = read_by(read_request);
            let op = op.makes::<PlacedView>(body);
            op.may_refuse(&[404, 503])
        },
    );
}

const RINGING: Count = Count::new(1..=600);
const DURATION: Count = Count::new(1..=604_800);
/// Maximum size of `metadata` as JSON, in octets.
const METADATA: FreeObject = FreeObject::new(16 * 1024);

/// Body of the request.
pub(super) struct OutboundCallRequest {
    agent: String,
    number: E164,
    ringing_timeout: Duration,
    max_duration: Duration,
    metadata: Option<Box<str>>,
}

/// `POST /phone/outbound-call {phone_agent_id, phone_number, ringing_timeout_s, max_duration_s, metadata}`: 201 at
/// once; the call shows its progress. 404 for an unknown agent, 409 for one that is disabled or has no outbound trunk,
/// 429 at a limit, 503 while this node takes no calls.
pub(crate) async fn place(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<CommandResult, ApiError> {
    let request = read_request(body.fields()?)?;
    // A malformed id gets the 404 of a foreign one, so it is no fault of the body.
    let agent = id(&request.agent).ok_or_else(|| ApiError::absent(Kind::Agent))?;
    let order = NewOutboundCall {
        org: caller.org,
        agent,
        number: request.number,
        ringing_timeout: request.ringing_timeout,
        max_duration: request.max_duration,
        metadata: request.metadata,
    };

    caught_up(&api).await;
    match node_for(&api, &order) {
        Some(node) => remote::place(&api, order, node).await,
        None => begin(&api, order).await,
    }
}

/// Returns the other node that alone can reach the PBX through which the agent dials.
fn node_for(api: &Api, order: &NewOutboundCall) -> Option<u8> {
    let view = api.directory().load();
    let org = view.org(order.org)?;
    // `None` leaves the call to this node, which also refuses it where the agent or its trunk is missing (`begin`).
    let way = org.outbound_routes.get(&order.agent)?;
    // A trunk with a `peer` has a host, which any node can call. The registered PBX may be reached only over the
    // connection, or through the NAT, that one node has.
    let trunk = org.trunk.as_ref().filter(|_| way.peer.is_none())?;
    api.engine()?.node_of_registration(trunk.id)
}

pub(super) fn read_request(mut fields: Fields) -> Result<OutboundCallRequest, ApiError> {
    let agent = fields.required("phone_agent_id", Text::line(1..=255));
    let number = fields.required("phone_number", NUMBER);
    let ringing = fields.optional("ringing_timeout_s", RINGING).unwrap_or(45);
    let duration = fields
        .optional("max_duration_s", DURATION)
        .unwrap_or(14_400);
    let metadata = fields.optional("metadata", METADATA);

    fields.done(|| {
        Some(OutboundCallRequest {
            agent: agent?,
            number: number?,
            ringing_timeout: Duration::from_secs(u64::from(ringing)),
            max_duration: Duration::from_secs(u64::from(duration)),
            metadata: metadata.map(|map| serde_json::Value::Object(map).to_string().into()),
        })
    })
}
