//! Places an outbound call on this node.

use std::time::Duration;

use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use trunkline_calls::Reason;
use trunkline_calls::dial::outbound::NewOutboundCall;
use trunkline_calls::limits::outbound_limits::OutboundRefusal;
use trunkline_model::record::Status;
use trunkline_model::view::OrgView;
use trunkline_store::{Acting, Kind, feed};
use uuid::Uuid;

use super::super::command_result::CommandResult;
use crate::api::{Api, ApiError};

/// Time that the directory may take to show changes made before the request.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// `Retry-After` in seconds if other calls are in the way.
const RETRY_AFTER_S: u64 = 5;

/// Answer to the request; the call continues by itself.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "PlacedCall")]
pub(in crate::api::phone) struct PlacedView {
    call_id: Uuid,
    session_id: Uuid,
    status: Status,
}

/// Begins a call on this node.
pub(in crate::api::phone) async fn begin(
    api: &Api,
    order: NewOutboundCall,
) -> Result<CommandResult, ApiError> {
    // A client may create an agent on one node and call with it on another, before that node's directory shows it.
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
    api.begin_once().await?;
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

/// Waits until the directory shows changes made before. While the database is away, and after [`CATCH_UP_TIMEOUT`], the
/// known state decides, as for inbound calls.
pub(in crate::api::phone) async fn caught_up(api: &Api) {
    if let Ok(latest) = api.read_inline(feed::position).await {
        let _ = tokio::time::timeout(CATCH_UP_TIMEOUT, api.directory().reaches(latest)).await;
    }
}

fn is_there(org: &OrgView, agent: Uuid) -> bool {
    org.routing.agents.iter().any(|known| known.id == agent)
}

/// Checks what forbids any call by this agent.
fn check(org: &OrgView, agent: Uuid) -> Result<(), ApiError> {
    let enabled = |known: &trunkline_routing::Agent| known.id == agent && known.enabled;
    if !org.routing.agents.iter().any(enabled) {
        return Err(ApiError::Conflict("The agent is disabled".to_owned()));
    }
    match org.outbound_routes.get(&agent) {
        Some(_) => Ok(()),
        None => Err(refused(Reason::NoWayOut.into())),
    }
}

/// Converts the reason why no call began into an error.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other reasons are conflicts"
)]
pub(in crate::api::phone) fn refused(
    OutboundRefusal { reason, wait_s }: OutboundRefusal,
) -> ApiError {
    let wait_s = wait_s.unwrap_or(RETRY_AFTER_S);
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
        // Something changed between the check and the request to the shard.
        Reason::NoAgent => return ApiError::absent(Kind::Agent),
        _ => ApiError::Conflict(message),
    };

    error.with_code(reason.code())
}
