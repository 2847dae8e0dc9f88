//! `/phone/sip/route-test`: tells which agent would take a call and why, by the function that decides live calls. No
//! call is placed.

use axum::Json;
use axum::extract::State;
use trunkline_routing::{Decision, Facts, Org, decide as decided};
use trunkline_store::Kind;
use uuid::Uuid;

use super::ASKS;
use super::commands::outbound::caught_up;
use crate::api::body::{Body, Fields};
use crate::api::caller::Caller;
use crate::api::field_type::{ID, ListOf, Text};
use crate::api::openapi::read_by;
use crate::api::operations::Operations;
use crate::api::{Api, ApiError};
use crate::explain::DecisionView;

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Inbound trunk", ASKS);
    of.post(
        "/phone/sip/route-test",
        decide,
        "testRoute",
        "Tells which agent would take a call, and why; places no call",
        |op| op.body(read_by(read_request)).gives::<DecisionView>(200),
    );
}

/// Request for a test.
pub(super) struct RouteTestRequest {
    facts: Facts,
    /// Agents to treat as busy, in addition to those that are.
    busy: Vec<Uuid>,
}

/// `POST /phone/sip/route-test {to, from, agent_id, busy}`: the dialled and the calling number as a PBX would send
/// them, the value of the header that selects an agent, and the ids of agents to treat as busy; all but `to` are
/// optional. Answers the decision with its trail, as `GET /phone/calls/{call_id}/routing` does for a call.
pub(crate) async fn decide(
    State(api): State<Api>,
    caller: Caller,
    body: Body,
) -> Result<Json<DecisionView>, ApiError> {
    let request = read_request(body.fields()?)?;
    caught_up(&api).await;
    let decision = answer(&api, caller.org, &request);
    let decision = decision.ok_or_else(|| ApiError::absent(Kind::Org))?;
    Ok(Json(decision.into()))
}

/// Returns the decision; `None` if the org was deleted just now.
fn answer(api: &Api, org: Uuid, request: &RouteTestRequest) -> Option<Decision> {
    let view = api.directory().load();
    let org = &view.org(org)?.routing;
    let busy = |agent: Uuid| request.busy.contains(&agent) || is_full(api, org, agent);
    Some(decided(&request.facts, org, &busy))
}

/// Returns true if an agent is at its limit on this node.
fn is_full(api: &Api, org: &Org, agent: Uuid) -> bool {
    let agent = org.agents.iter().find(|known| known.id == agent);
    let limit = agent.and_then(|agent| Some((agent.id, agent.max_concurrent_calls?)));
    limit
        .zip(api.engine())
        .is_some_and(|((agent, most), engine)| engine.live(agent) >= most)
}

pub(super) fn read_request(mut fields: Fields) -> Result<RouteTestRequest, ApiError> {
    const NUMBER: Text = Text::line(1..=255);
    let to = fields.required("to", NUMBER);
    let from = fields.optional("from", NUMBER);
    let agent_header = fields.optional("agent_id", NUMBER);
    let busy = fields.optional("busy", ListOf::new(ID, 0..=1_000));

    fields.done(|| {
        Some(RouteTestRequest {
            facts: Facts {
                agent_header,
                request_user: Some(to?),
                from_user: from,
                ..Facts::default()
            },
            busy: busy.unwrap_or_default(),
        })
    })
}
