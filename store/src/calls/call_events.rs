//! Events of calls: recorded from a call's row at each stage of the call. Their JSON is built from the row when it is read.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use trunkline_model::record::Status;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::anonymous::ANONYMOUS;
use super::usage::CallSeconds;
use crate::driver::column::{from_row, json, maybe, moment, written};
use crate::driver::event::{Event, EventType, NewEvent, body};
use crate::driver::value::Unreadable;

/// A call's row after some facts were projected; `None` where nothing is known yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CallRow {
    pub(crate) id: Uuid,
    pub(crate) org_id: Uuid,
    pub(crate) session_id: Option<Uuid>,
    pub(crate) agent_id: Option<Uuid>,
    pub(crate) trunk_id: Option<Uuid>,
    pub(crate) contact_id: Option<Uuid>,
    pub(crate) direction: Option<String>,
    pub(crate) status: String,
    pub(crate) from_number: Option<String>,
    pub(crate) to_number: Option<String>,
    pub(crate) from_e164: Option<String>,
    pub(crate) to_e164: Option<String>,
    pub(crate) started_at: Option<Moment>,
    pub(crate) ringing_at: Option<Moment>,
    pub(crate) answered_at: Option<Moment>,
    pub(crate) ended_at: Option<Moment>,
    pub(crate) sip_code: Option<i64>,
    pub(crate) reason: Option<String>,
    pub(crate) hangup_by: Option<String>,
    pub(crate) caller_call_id: Option<String>,
    /// `User-Agent` of the caller's INVITE.
    pub(crate) user_agent: Option<String>,
    /// Figures of its media, as JSON.
    pub(crate) media: Option<String>,
    /// The caller asked not to be named.
    pub(crate) caller_withheld: Option<bool>,
    /// For a call that was closed as lost: whether the event of its end has been recorded. `None` for any other call, and once the true end
    /// has come before that event.
    pub(crate) lost_told: Option<bool>,
    /// Its list; see [`call_lists`](super::call_lists).
    pub(crate) list: Option<i64>,
}

/// Columns of a [`CallRow`].
macro_rules! call_columns {
    () => {
        "id, org_id, session_id, agent_id, contact_id, direction, status, from_number, to_number, from_e164, to_e164,
            started_at, ringing_at, answered_at, ended_at, sip_code, reason, hangup_by, lost_told, trunk_id, caller_call_id,
            media, caller_withheld, list, asked AS user_agent"
    };
}
pub(crate) use call_columns;

from_row!(CallRow {
    id,
    org_id,
    session_id,
    agent_id,
    trunk_id,
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
    caller_call_id,
    user_agent: user_agent,
    media,
    caller_withheld,
    lost_told,
    list,
});

/// Reads the user agent out of the facts of an INVITE.
fn user_agent(facts: Option<&str>) -> Result<Option<String>, Unreadable> {
    #[derive(Deserialize)]
    struct Facts {
        user_agent: Option<String>,
    }
    let facts: Option<Facts> = facts.map(json).transpose()?;
    Ok(facts.and_then(|facts| facts.user_agent))
}

/// Reads figures as they were written, so that those of another version pass unchanged.
fn read(figures: &str) -> Option<Value> {
    serde_json::from_str(figures).ok()
}

/// Stages of a call that the present facts are about.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stages {
    pub(crate) started: bool,
    pub(crate) ringing: bool,
    pub(crate) answered: bool,
    pub(crate) ended: bool,
}

/// Form of the JSON of a call's event, as the event's row names it in place of its body. An event keeps its JSON octet by octet: a new field
/// needs a new form, and stays out of events that were recorded before.
pub(crate) const FORM: &str = "privacy";

/// Data of a call's events. Names are those of the call resource.
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
    /// Duration of the call, once it is over.
    duration_s: Option<u64>,
    answered_s: Option<u64>,
    trunk_id: Option<Uuid>,
    caller_call_id: Option<&'c str>,
    user_agent: Option<&'c str>,
    /// Figures of the media that this installation terminated, once the call is over.
    media: Option<Value>,
    /// The caller asked not to be named.
    caller_withheld: bool,
}

/// Stages between a call's beginning and its end.
const STAGES: [(EventType, Status); 3] = [
    (EventType::CallStarted, Status::Queued),
    (EventType::CallRinging, Status::Ringing),
    (EventType::CallAnswered, Status::InProgress),
];

impl CallRow {
    /// Returns the events of these stages, in order. Each shows the call as it was then, however late its fact is projected.
    pub(crate) fn events(&self, stages: Stages) -> Vec<NewEvent> {
        let Some(started_at) = self.started_at else {
            // The first fact, which names the org, is missing. Lists don't show such a call either.
            return Vec::new();
        };

        let queued = stages.started.then_some(started_at);
        let ringing = self.ringing_at.filter(|_| stages.ringing);
        let answered = self.answered_at.filter(|_| stages.answered);

        // An assumed end waits for the true one, since the end of a call is recorded as an event only once: see [`crate::calls::lost`].
        let ended = self
            .ended_at
            .filter(|_| stages.ended && self.lost_told.is_none());
        let between = STAGES.into_iter().zip([queued, ringing, answered]);

        between
            .filter_map(|((kind, _), at)| Some(self.event(kind, at?)))
            .chain(ended.map(|at| self.end(started_at, at)))
            .collect()
    }

    /// Builds the event of a stage. It stores the contact alone, the only field that the row may still change after the stage is reached.
    fn event(&self, kind: EventType, at: Moment) -> NewEvent {
        NewEvent::of_call(self.org_id, kind, self.id, self.contact_id, at)
    }

    /// Returns the event for the end of a call that was closed as lost and whose true end never came.
    pub(crate) fn lost(self) -> Vec<NewEvent> {
        let end = Stages {
            ended: true,
            ..Stages::default()
        };
        // `events` holds an assumed end back unless `lost_told` is `None`.
        let settled = Self {
            lost_told: None,
            ..self
        };
        settled.events(end)
    }

    fn end(&self, started_at: Moment, at: Moment) -> NewEvent {
        if self.status == Status::Lost.as_str() {
            // The end is an assumption that the row may later correct, while the recorded event stays.
            let data = self.at(EventType::CallEnded.as_str());
            return NewEvent::lost_end(self.org_id, self.id, started_at, &data, at);
        }
        let kind = if self.status == Status::Refused.as_str() {
            EventType::CallRefused
        } else {
            EventType::CallEnded
        };
        self.event(kind, at)
    }

    /// Returns the JSON of an event of this call, with the contact that the call had then.
    pub(crate) fn event_json(&self, event: &Event, contact: Option<Uuid>, at: Moment) -> String {
        let data = Data {
            contact_id: contact,
            ..self.at(&event.kind)
        };
        body(event.id, &event.kind, at, &data)
    }

    /// Returns the call as it was when an event of this type happened.
    fn at(&self, kind: &str) -> Data<'_> {
        let stage = STAGES.iter().position(|(stage, _)| stage.as_str() == kind);
        let [ringing, answered, ended] =
            [1, 2, 3].map(|reached| stage.is_none_or(|stage| stage >= reached));

        let withheld = self.caller_withheld == Some(true);
        let seconds = self
            .started_at
            .filter(|_| ended)
            .and_then(|started| CallSeconds::of(started, self.answered_at, self.ended_at));

        Data {
            call_id: self.id,
            session_id: self.session_id,
            agent_id: self.agent_id,
            contact_id: self.contact_id,
            direction: self.direction.as_deref(),
            status: stage.map_or(&*self.status, |stage| STAGES[stage].1.as_str()),
            from_number: match withheld {
                true => Some(ANONYMOUS),
                false => self.from_number.as_deref(),
            },
            to_number: self.to_number.as_deref(),
            from_e164: self.from_e164.as_deref().filter(|_| !withheld),
            to_e164: self.to_e164.as_deref(),
            started_at: self.started_at.map(written),
            ringing_at: self.ringing_at.filter(|_| ringing).map(written),
            answered_at: self.answered_at.filter(|_| answered).map(written),
            ended_at: self.ended_at.filter(|_| ended).map(written),
            sip_code: self.sip_code.filter(|_| ended),
            reason: self.reason.as_deref().filter(|_| ended),
            hangup_by: self.hangup_by.as_deref().filter(|_| ended),
            duration_s: seconds.map(|seconds| seconds.duration),
            answered_s: seconds.map(|seconds| seconds.answered),
            trunk_id: self.trunk_id,
            caller_call_id: self.caller_call_id.as_deref(),
            user_agent: self.user_agent.as_deref(),
            media: self.media.as_deref().filter(|_| ended).and_then(read),
            caller_withheld: withheld,
        }
    }
}
