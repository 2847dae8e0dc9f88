//! Current state of a call, and its view in the API. Memory has a call from its INVITE on, the store once its facts are
//! rows.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_calls::core::live::LiveCall;
use trunkline_model::media::MediaFigures;
use trunkline_model::record::{Direction, HangupBy, Status};
use trunkline_routing::E164;
use trunkline_store::{Call, CallSeconds, calls};
use uuid::Uuid;

use super::transfer_view::TransferView;
use crate::api::time::written;
use crate::api::{Api, ApiError};

/// Scope for reading calls.
pub(super) const SCOPE: &str = "calls:read";

/// A call as the API shows it.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Call")]
pub(crate) struct CallView {
    pub(crate) id: Uuid,
    pub(crate) session_id: Uuid,
    pub(crate) agent_id: Option<Uuid>,
    /// The inbound or outbound trunk; `null` for a call from the address of an org without an inbound trunk.
    pub(super) trunk_id: Option<Uuid>,
    pub(crate) contact_id: Option<Uuid>,
    pub(crate) direction: Direction,
    pub(crate) status: Status,
    pub(crate) from_number: String,
    pub(crate) to_number: String,
    pub(crate) from_e164: Option<E164>,
    pub(crate) to_e164: Option<E164>,
    pub(crate) started_at: String,
    pub(crate) ringing_at: Option<String>,
    pub(crate) answered_at: Option<String>,
    pub(crate) ended_at: Option<String>,
    /// Seconds from the start to the end, rounded up; `null` while the call is up.
    pub(super) duration_s: Option<u64>,
    /// Seconds from the answer to the end, rounded up: 0 for a call that was not answered, `null` while the call is up.
    pub(crate) answered_s: Option<u64>,
    pub(crate) sip_code: Option<u16>,
    pub(crate) reason: Option<String>,
    /// Details of the reason, for people: what the offer of a call that got 488 `no_common_media` lacks, as the `Warning` of the response says;
    /// `null` for any other call.
    pub(crate) reason_detail: Option<String>,
    pub(crate) hangup_by: Option<HangupBy>,
    pub(crate) caller_call_id: String,
    pub(crate) runtime_call_id: Option<String>,
    /// The last transfer.
    pub(crate) transfer: Option<TransferView>,
    /// The cause by Q.850 that a gateway named.
    pub(crate) q850_cause: Option<u16>,
    /// Metadata that the order for the call brought.
    pub(crate) metadata: Option<serde_json::Value>,
    /// True if it is held: by `hold`, or by the phone system or callee with an offer of its own.
    pub(crate) held: bool,
    /// True if the caller asked not to be named (Privacy, or an anonymous From). Events, the runtime and destinations of transfers don't
    /// get the number, which only this record keeps.
    pub(crate) caller_withheld: bool,
    /// Figures of the media that ended at Trunkline, as that of bots and of the echo agent does; `null` while it is up, and for media that
    /// passed directly.
    pub(crate) media: Option<MediaFigures>,
}

impl From<Call> for CallView {
    fn from(call: Call) -> Self {
        let seconds = CallSeconds::of(call.started_at, call.answered_at, call.ended_at);

        Self {
            id: call.id,
            session_id: call.session_id,
            agent_id: call.agent_id,
            trunk_id: call.trunk_id,
            contact_id: call.contact_id,
            direction: call.direction,
            status: call.status,
            from_number: call.from_number,
            to_number: call.to_number,
            from_e164: call.from_e164,
            to_e164: call.to_e164,
            started_at: written(call.started_at),
            ringing_at: call.ringing_at.map(written),
            answered_at: call.answered_at.map(written),
            ended_at: call.ended_at.map(written),
            duration_s: seconds.map(|seconds| seconds.duration),
            answered_s: seconds.map(|seconds| seconds.answered),
            sip_code: call.sip_code,
            reason: call.reason,
            reason_detail: call.reason_detail,
            hangup_by: call.hangup_by,
            caller_call_id: call.caller_call_id,
            // The built-in echo agent has no leg, so its Call-ID is empty.
            runtime_call_id: call.runtime_call_id.filter(|id| !id.is_empty()),
            transfer: call.transfer.map(TransferView::from),
            q850_cause: call.q850_cause,
            metadata: call
                .metadata
                .and_then(|json| serde_json::from_str(&json).ok()),
            held: call.ended_at.is_none() && call.held == Some(true),
            caller_withheld: call.caller_withheld == Some(true),
            media: call.media,
        }
    }
}

/// Error for a command to a call that should be up on this node but isn't.
pub(super) fn not_up(api: &Api, call: &Call) -> ApiError {
    let live = api.live().one(call.org_id, call.id);
    let sentence = match (live, call.ended_at) {
        (_, Some(_)) => "The call is over",
        (Some(live), None) if live.is_over() => "The call is over",
        (Some(_), None) => "The call is not with its agent any more",
        (None, None) => "The call is not up on this node",
    };
    ApiError::Conflict(sentence.to_owned())
}

/// Returns the current state of a call. A call that is up is found even while the database is away.
pub(crate) async fn find(api: &Api, org: Uuid, id: Uuid) -> Result<Call, ApiError> {
    // Before the store is read: a call that ends in between is a row by then. The other order could miss it in both.
    let mut live = api.live().one(org, id);
    if live.as_ref().is_some_and(LiveCall::is_over) {
        kept(api, org, live.iter()).await;
        // Read again: while this waited, memory may have dropped the call.
        live = api.live().one(org, id);
    }

    Ok(
        match (
            api.read_inline(move |tx| calls::by_id(tx, org, id)).await,
            live,
        ) {
            // Memory is ahead of the store, but for an end that the store has.
            (Ok(call), Some(live)) if call.ended_at.is_none() => from_memory(live),
            (Ok(call), _) => call,
            // The database is away, or has no row of the call yet.
            (Err(_), Some(live)) => from_memory(live),
            (Err(error), None) => return Err(error.into()),
        },
    )
}

/// Interval of checks whether a call's beginning or end is on disk, and its end a row. After [`SYNCED_CHECKS`] or
/// [`STORED_CHECKS`] checks the call is shown anyway, so that a failing disk or an absent database hides no call.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);
const SYNCED_CHECKS: u32 = 200;
const STORED_CHECKS: u32 = 60;

/// Waits until the beginnings of these calls are on disk, so that a crash can't undo what was shown. Waits also until their ends are rows, so that
/// a client that sees a call end finds its handoff, events and explanation too. Calls themselves don't wait: only clients wait, if they read a call
/// in its first milliseconds or just after its end.
pub(super) async fn kept<'l>(api: &Api, org: Uuid, calls: impl Iterator<Item = &'l LiveCall>) {
    let unsafe_yet = |live: &LiveCall, looks: u32| {
        !live.is_synced() && looks < SYNCED_CHECKS || live.is_over() && looks < STORED_CHECKS
    };
    let waiting = calls.filter(|live| unsafe_yet(live, 0));
    let mut waiting: Vec<Uuid> = waiting.map(|live| live.started.call).collect();

    for looks in 1.. {
        if waiting.is_empty() {
            return;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
        // A call that left memory is a row.
        waiting.retain(|call| {
            let live = api.live().one(org, *call);
            live.is_some_and(|live| unsafe_yet(&live, looks))
        });
    }
}

/// Converts a live call. Memory knows everything about it, and its end until that is a row.
pub(crate) fn from_memory(live: LiveCall) -> Call {
    let started = live.started;
    let ended = live.ended;

    Call {
        id: started.call,
        org_id: started.org,
        session_id: started.session,
        agent_id: started.agent,
        trunk_id: started.trunk,
        contact_id: live.contact,
        direction: started.direction,
        status: ended.as_ref().map_or(live.status, |ended| ended.status),
        from_number: started.from.to_string(),
        to_number: started.to.to_string(),
        from_e164: started.from_e164,
        to_e164: started.to_e164,
        started_at: started.at,
        ringing_at: live.ringing_at,
        answered_at: live.answered_at,
        ended_at: ended.as_ref().map(|ended| ended.at),
        sip_code: ended.as_ref().map(|ended| ended.sip_code),
        reason: ended
            .as_ref()
            .and_then(|ended| ended.reason.as_deref().map(str::to_owned)),
        reason_detail: ended
            .as_ref()
            .and_then(|ended| ended.reason_detail.as_deref().map(str::to_owned)),
        hangup_by: ended.as_ref().map(|ended| ended.hangup_by),
        caller_call_id: started.caller_call_id.to_string(),
        runtime_call_id: live.runtime_call_id.map(String::from),
        transfer: live.transfer.as_deref().map(Into::into),
        q850_cause: ended.and_then(|ended| ended.cause.map(u16::from)),
        metadata: started.metadata.as_deref().map(str::to_owned),
        held: Some(live.held),
        caller_withheld: Some(started.withholds_caller()),
        media: live.media.as_ref().map(|media| media.figures.clone()),
    }
}

/// Returns an inbound call in progress, for tests.
#[cfg(test)]
pub(crate) fn call_that_is_up(id: u128, started_at: trunkline_sip::moment::Moment) -> Call {
    Call {
        id: Uuid::from_u128(id),
        org_id: Uuid::from_u128(2),
        session_id: Uuid::from_u128(3),
        agent_id: None,
        trunk_id: None,
        contact_id: None,
        direction: Direction::Inbound,
        status: Status::InProgress,
        from_number: String::new(),
        to_number: String::new(),
        from_e164: None,
        to_e164: None,
        started_at,
        ringing_at: None,
        answered_at: None,
        ended_at: None,
        sip_code: None,
        reason: None,
        reason_detail: None,
        hangup_by: None,
        caller_call_id: "caller 0".to_owned(),
        runtime_call_id: None,
        transfer: None,
        q850_cause: None,
        metadata: None,
        held: None,
        caller_withheld: None,
        media: None,
    }
}
