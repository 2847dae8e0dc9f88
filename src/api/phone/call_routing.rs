//! `GET /phone/calls/{call_id}/routing`: explains how a call was routed.

use axum::Json;
use axum::extract::State;
use trunkline_calls::Reason;
use trunkline_model::attempt::Attempt;
use trunkline_routing::Decision;
use trunkline_store::{Call, Explained, Kind, attempts, explained};
use uuid::Uuid;

use super::OF_CALLS;
use super::calls::find;
use crate::api::caller::Caller;
use crate::api::operations::Operations;
use crate::api::path::Named;
use crate::api::query::Query;
use crate::api::time::written;
use crate::api::{Api, ApiError};
use crate::explain::call::{self, Explanation};
use crate::explain::log_in::{self, FailureView};

pub(super) fn operations(api: &mut Operations<'_>) {
    let mut of = api.area("Calls", OF_CALLS);
    of.get("/phone/calls/{call_id}/routing", routing, "showRouting", "Explains the routing of a call: the authentication, the decision with its trail and near misses, and all of it in sentences", |op| {
            op
                .note("For a call that was refused before routing, `outcome`, `dialled` and `caller` are `null`.")
                .gives::<Explanation>(200)
        });
}

/// `GET /phone/calls/{call_id}/routing`: the stored decision, the caller's authentication, and all of it in sentences.
pub(crate) async fn routing(
    State(api): State<Api>,
    caller: Caller,
    named: Named,
    query: Query,
) -> Result<Json<Explanation>, ApiError> {
    let id = named.id("call_id", Kind::Call)?;
    let call = find(&api, caller.org, id).await?;
    query.finish()?;
    Ok(Json(explained(&api, &call).await?))
}

/// Explains how a call was routed. A call that is up is explained even while the database is away.
pub(crate) async fn explained(api: &Api, call: &Call) -> Result<Explanation, ApiError> {
    let (org, id) = (call.org_id, call.id);
    let known = known(api, org, id).await?;
    let call_id = call.caller_call_id.clone();
    let failures = api.read(move |tx| explained::log_ins_failed(tx, org, &call_id));
    // While the database is away, the rest of a live call's explanation is shown without them.
    let failures = failures.await.unwrap_or_default();
    let failures = failures.into_iter().map(|failure| FailureView {
        at: written(failure.at),
        explanation: log_in::sentence(&failure.part).into(),
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

/// Returns decision and facts of a call, from memory while it is up.
async fn known(api: &Api, org: Uuid, id: Uuid) -> Result<Explained, ApiError> {
    match api.live().one(org, id) {
        Some(live) => Ok(Explained {
            decision: live.started.decision.as_deref().cloned(),
            asked: live.started.invite_facts.as_deref().cloned(),
        }),
        None => Ok(api
            .read_inline(move |tx| explained::of_call(tx, org, id))
            .await?),
    }
}

/// Returns what the offer of a call that ended for lack of common media lacks.
pub(super) async fn mismatch(api: &Api, call: &Call) -> Result<Option<String>, ApiError> {
    // No other call has to be read for it.
    if call.reason.as_deref() != Some(Reason::NoCommonMedia.code()) {
        return Ok(None);
    }
    let known = known(api, call.org_id, call.id).await?;
    let mismatch = call::mismatch(known.asked.as_ref(), call.reason.as_deref());
    Ok(mismatch.map(str::to_owned))
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
