//! `/phone/outbound-call`: an agent calls somebody through its outbound trunk, with that trunk's caller number.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_calls::Reason;
use trunkline_calls::caps::Denied;
use trunkline_calls::outbound::Order;
use trunkline_model::record::Status;
use trunkline_model::view::OrgView;
use trunkline_routing::E164;
use trunkline_store::{Acting, Kind, feed};
use uuid::Uuid;

use super::remote::{self, CommandResult};
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::shape::{Count, Free, NUMBER, Text, id};
use crate::api::{Api, ApiError};

/// How long the live view may take to show what was changed before the order came.
const CATCH_UP: Duration = Duration::from_secs(1);
/// When to try again at what other calls stand in the way of, in seconds.
const RETRY: u64 = 5;
const RINGING: Count = Count::new(1..=600);
const DURATION: Count = Count::new(1..=604_800);
/// Octets of `metadata` as JSON.
const METADATA: Free = Free::new(16 * 1024);

/// What is answered: the call goes on by itself.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlacedCall")]
pub(crate) struct PlacedView {
    call_id: Uuid,
    session_id: Uuid,
    status: Status,
}

/// What is asked for.
pub(super) struct Asked {
    agent: String,
    number: E164,
    ringing_timeout: Duration,
    max_duration: Duration,
    metadata: Option<Box<str>>,
}

/// `POST /phone/outbound-call {phone_agent_id, phone_number, ringing_timeout_s, max_duration_s, metadata}`: 201 at once, and the call
/// shows its progress. 404 for an agent that isn't there, 409 for one that is disabled or dials through no trunk, 429 at a
/// limit, 503 while this node takes no calls.
pub(crate) async fn place(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<CommandResult, ApiError> {
    caller.needs("calls:write")?;
    let asked = asked(body.fields()?)?;
    let agent = id(&asked.agent).ok_or_else(|| ApiError::absent(Kind::Agent))?;
    let order = Order {
        org: caller.org,
        agent,
        number: asked.number,
        ringing_timeout: asked.ringing_timeout,
        max_duration: asked.max_duration,
        metadata: asked.metadata,
    };
    caught_up(&api).await;
    match node_for(&api, &order) {
        Some(node) => remote::place(&api, order, node).await,
        None => begin(&api, order).await,
    }
}

/// Begins a call at this node.
pub(super) async fn begin(api: &Api, order: Order) -> Result<CommandResult, ApiError> {
    caught_up(api).await;
    let view = api.directory().load();
    let org = view.org(order.org);
    let org = org.filter(|org| is_there(org, order.agent));
    check(
        org.ok_or_else(|| ApiError::absent(Kind::Agent))?,
        order.agent,
    )?;
    let Some(engine) = api.engine() else {
        return Err(refused(Reason::Draining.into()));
    };
    let placed = engine.place(order).await;
    let placed = placed
        .map_err(|fault| ApiError::Broke(Box::new(fault)))?
        .map_err(refused)?;
    Acting::about(placed.call);
    let view = PlacedView {
        call_id: placed.call,
        session_id: placed.session,
        status: Status::Queued,
    };
    CommandResult::new(StatusCode::CREATED, &view)
}

/// While the database is away, what is known decides, as it does for inbound calls.
async fn caught_up(api: &Api) {
    if let Ok(latest) = api.read_inline(feed::position).await {
        let _ = tokio::time::timeout(CATCH_UP, api.directory().reaches(latest)).await;
    }
}

/// The other node that alone can call the PBX by which the agent dials.
fn node_for(api: &Api, order: &Order) -> Option<u8> {
    let view = api.directory().load();
    let org = view.org(order.org)?;
    let way = org.ways_out.get(&order.agent)?;
    let trunk = org.trunk.as_ref().filter(|_| way.peer.is_none())?;
    api.engine()?.node_of_registration(trunk.id)
}

pub(super) fn asked(mut fields: Fields) -> Result<Asked, ApiError> {
    let agent = fields.required("phone_agent_id", Text::line(1..=255));
    let number = fields.required("phone_number", NUMBER);
    let ringing = fields.optional("ringing_timeout_s", RINGING).unwrap_or(45);
    let duration = fields
        .optional("max_duration_s", DURATION)
        .unwrap_or(14_400);
    let metadata = fields.optional("metadata", METADATA);
    fields.done(|| {
        Some(Asked {
            agent: agent?,
            number: number?,
            ringing_timeout: Duration::from_secs(u64::from(ringing)),
            max_duration: Duration::from_secs(u64::from(duration)),
            metadata: metadata.map(|map| serde_json::Value::Object(map).to_string().into()),
        })
    })
}

fn is_there(org: &OrgView, agent: Uuid) -> bool {
    org.routing.agents.iter().any(|known| known.id == agent)
}

/// What stands against a call by this agent, whoever is called.
fn check(org: &OrgView, agent: Uuid) -> Result<(), ApiError> {
    let enabled = |known: &trunkline_routing::Agent| known.id == agent && known.enabled;
    if !org.routing.agents.iter().any(enabled) {
        return Err(ApiError::Conflict("The agent is disabled".to_owned()));
    }
    match org.ways_out.get(&agent) {
        Some(_) => Ok(()),
        None => Err(refused(Reason::NoWayOut.into())),
    }
}

/// Why no call was begun.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all the others are told alike"
)]
pub(super) fn refused(Denied { reason, wait_s }: Denied) -> ApiError {
    let wait_s = wait_s.unwrap_or(RETRY);
    let message = reason.sentence().to_owned();
    let error = match reason {
        Reason::Overload | Reason::Draining => ApiError::Unavailable { message, wait_s },
        Reason::AgentBusy
        | Reason::TrunkBusy
        | Reason::OrgBusy
        | Reason::OutboundBusy
        | Reason::OutboundRate
        | Reason::TrunkRate => ApiError::AtLimit { message, wait_s },
        Reason::DestinationNotAllowed => ApiError::Forbidden(message),
        // Between the look and the order something was changed.
        Reason::NoAgent => return ApiError::absent(Kind::Agent),
        _ => ApiError::Conflict(message),
    };
    error.with_code(reason.code())
}
