//! `GET /phone/calls/{call_id}/routing`: explains how a call was routed.

use axum::Json;
use axum::extract::State;
use trunkline_model::attempt::Attempt;
use trunkline_routing::Decision;
use trunkline_store::{Call, Explained, Kind, attempts, explained};
use uuid::Uuid;

use super::calls::{SCOPE, find};
use crate::api::caller::Caller;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::explain::call::Explanation;
use crate::explain::log_in::{self, FailureView};

/// `GET /phone/calls/{call_id}/routing`: the stored decision, the caller's authentication, and all of it in sentences.
pub(crate) async fn routing(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<Explanation>, ApiError> {
    caller.needs(SCOPE)?;
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    query.finish()?;
    Ok(Json(explained(&api, &call).await?))
}

/// Explains how a call was routed. A call that is up is explained even while the database is away.
pub(crate) async fn explained(api: &Api, call: &Call) -> Result<Explanation, ApiError> {
    let (org, id) = (call.org_id, call.id);
    let known = match api.live().one(org, id) {
        Some(live) => Explained {
            decision: live.started.decision.as_deref().cloned(),
            asked: live.started.invite_facts.as_deref().cloned(),
        },
        None => {
            api.read_inline(move |tx| explained::of_call(tx, org, id))
                .await?
        }
    };

    let call_id = call.caller_call_id.clone();
    let failures = api.read(move |tx| explained::log_ins_failed(tx, org, &call_id));
    // While the database is away, the rest of a live call's explanation is shown without them.
    let failures = failures.await.unwrap_or_default();
    let failures = failures.into_iter().map(|failure| FailureView {
        at: written(failure.at),
        explanation: log_in::sentence(&failure.part),
        part: failure.part,
    });

    Ok(Explanation::new(
        known.decision,
        known.asked.as_ref(),
        call.reason.as_deref(),
        failures.collect(),
        &attempts(api, call).await?,
    ))
}

/// Returns a call's attempts at its targets, from memory while the call is up.
pub(super) async fn attempts(api: &Api, call: &Call) -> Result<Vec<Attempt>, ApiError> {
    let (org, id) = (call.org_id, call.id);
    Ok(match api.live().one(org, id) {
        Some(live) => live.attempts,
        None => {
            api.read_inline(move |tx| attempts::of_call(tx, org, id))
                .await?
        }
    })
}

/// Returns the routing decision of a call, from memory while the call is up.
pub(super) async fn decision(api: &Api, org: Uuid, id: Uuid) -> Result<Option<Decision>, ApiError> {
    Ok(match api.live().one(org, id) {
        Some(live) => live.started.decision.as_deref().cloned(),
        None => {
            api.read_inline(move |tx| trunkline_store::calls::decision(tx, org, id))
                .await?
        }
    })
}
