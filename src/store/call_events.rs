//! What a call's row tells at each stage of the call: the data of its events.

use serde::Serialize;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{from_row, maybe, moment, written};
use super::event::{EventType, NewEvent};
use crate::calls::record::Status;

/// A call's row once some facts were projected; what isn't known yet is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CallRow {
    pub(super) id: Uuid,
    pub(super) org_id: Uuid,
    pub(super) session_id: Option<Uuid>,
    pub(super) agent_id: Option<Uuid>,
    pub(super) contact_id: Option<Uuid>,
    pub(super) direction: Option<String>,
    pub(super) status: String,
    pub(super) from_number: Option<String>,
    pub(super) to_number: Option<String>,
    pub(super) from_e164: Option<String>,
    pub(super) to_e164: Option<String>,
    pub(super) started_at: Option<Moment>,
    pub(super) ringing_at: Option<Moment>,
    pub(super) answered_at: Option<Moment>,
    pub(super) ended_at: Option<Moment>,
    pub(super) sip_code: Option<i64>,
    pub(super) reason: Option<String>,
    pub(super) hangup_by: Option<String>,
}
from_row!(CallRow {
    id,
    org_id,
    session_id,
    agent_id,
    contact_id,
    direction,
    status,
    from_number,
    to_number,
    from_e164,
    to_e164,
    started_at: maybe(moment),
    ringing_at: maybe(moment),
    answered_at: maybe(moment),
    ended_at: maybe(moment),
    sip_code,
    reason,
    hangup_by,
});

/// Which stages of a call the facts at hand are about.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Stages {
    pub(super) started: bool,
    pub(super) ringing: bool,
    pub(super) answered: bool,
    pub(super) ended: bool,
}

/// The data of a call's events. Names are those of the call resource.
#[derive(Serialize)]
struct Data<'c> {
    call_id: Uuid,
    session_id: Option<Uuid>,
    agent_id: Option<Uuid>,
    contact_id: Option<Uuid>,
    direction: Option<&'c str>,
    status: &'c str,
    from_number: Option<&'c str>,
    to_number: Option<&'c str>,
    from_e164: Option<&'c str>,
    to_e164: Option<&'c str>,
    started_at: Option<String>,
    ringing_at: Option<String>,
    answered_at: Option<String>,
    ended_at: Option<String>,
    sip_code: Option<i64>,
    reason: Option<&'c str>,
    hangup_by: Option<&'c str>,
}

impl CallRow {
    /// The events of these stages, in their order. Each shows the call as it stood then, however late it is told.
    pub(super) fn events(&self, stages: Stages) -> Vec<NewEvent> {
        let Some(started_at) = self.started_at else {
            // Its first fact is missing, and with it whose call this is: lists don't show it either.
            return Vec::new();
        };
        let queued = stages.started.then_some(started_at);
        let ringing = self.ringing_at.filter(|_| stages.ringing);
        let answered = self.answered_at.filter(|_| stages.answered);
        let ended = self.ended_at.filter(|_| stages.ended);
        let end = if self.status == Status::Refused.as_str() {
            EventType::CallRefused
        } else {
            EventType::CallEnded
        };
        [
            (EventType::CallStarted, Status::Queued.as_str(), queued),
            (EventType::CallRinging, Status::Ringing.as_str(), ringing),
            (
                EventType::CallAnswered,
                Status::InProgress.as_str(),
                answered,
            ),
            (end, &*self.status, ended),
        ]
        .into_iter()
        .filter_map(|(kind, status, at)| {
            let at = at?;
            let data = self.at_stage(kind, status);
            Some(NewEvent::of(self.org_id, kind, self.id, &data, at))
        })
        .collect()
    }

    fn at_stage<'c>(&'c self, kind: EventType, status: &'c str) -> Data<'c> {
        let (ringing, answered, ended) = match kind {
            EventType::CallStarted => (false, false, false),
            EventType::CallRinging => (true, false, false),
            EventType::CallAnswered => (true, true, false),
            EventType::CallEnded
            | EventType::CallRefused
            | EventType::TransferUpdated
            | EventType::TrunkRegistered
            | EventType::TrunkLost
            | EventType::HandoffCreated
            | EventType::KeyRevoked => (true, true, true),
        };
        Data {
            call_id: self.id,
            session_id: self.session_id,
            agent_id: self.agent_id,
            contact_id: self.contact_id,
            direction: self.direction.as_deref(),
            status,
            from_number: self.from_number.as_deref(),
            to_number: self.to_number.as_deref(),
            from_e164: self.from_e164.as_deref(),
            to_e164: self.to_e164.as_deref(),
            started_at: self.started_at.map(written),
            ringing_at: self.ringing_at.filter(|_| ringing).map(written),
            answered_at: self.answered_at.filter(|_| answered).map(written),
            ended_at: self.ended_at.filter(|_| ended).map(written),
            sip_code: self.sip_code.filter(|_| ended),
            reason: self.reason.as_deref().filter(|_| ended),
            hangup_by: self.hangup_by.as_deref().filter(|_| ended),
        }
    }
}
