//! Calls that are up now: the shards write, the API reads. A finished call stays until the store has its end, so that no list misses it.

use std::sync::Arc;

use trunkline_bounds::SharedIdTable;
use trunkline_model::attempt::Attempt;
use trunkline_model::media::CallMedia;
use trunkline_model::record::{Direction, Ended, Fact, Started, Status};
use trunkline_model::transfer::Transfer;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::parts::refusal::Reason;
use crate::parts::role::LegRole;
use crate::parts::wall_clock::{STEADY, WallClock, WallOffset, fact_on, transfer_on};

/// Hold of a call, as the client that requested a change sees it.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct HoldStatus {
    /// True if both sides are held.
    pub held: bool,
    /// Number of the last change that has ended.
    pub settled: u32,
    /// Its refusal, if it was refused.
    pub refused: Option<HoldRefusal>,
}

/// Refusal by one side.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HoldRefusal {
    /// Side that refused.
    pub role: LegRole,
    /// The SIP status.
    pub status: u16,
}

/// One live call as the API shows it.
#[derive(Clone, Debug)]
pub struct LiveCall {
    /// Facts from its INVITE.
    pub started: Arc<Started>,
    /// `queued`, `ringing` or `in_progress`, as it was before its end.
    pub status: Status,
    /// The contact, once known.
    pub contact: Option<Uuid>,
    /// Time at which the runtime began to ring; in an outbound call, the callee.
    pub ringing_at: Option<Moment>,
    /// Time at which the runtime answered; in an outbound call, the callee.
    pub answered_at: Option<Moment>,
    /// Call-ID of the runtime's leg, once answered.
    pub runtime_call_id: Option<Box<str>>,
    /// Its end, until the store has it.
    pub ended: Option<Box<Ended>>,
    /// Number of its facts, of beginning and end, that may not be on disk.
    pub unsynced: u8,
    /// Its last transfer.
    pub transfer: Option<Arc<Transfer>>,
    /// True if it is held, by the daemon or by its phone system.
    pub held: bool,
    /// Hold, with the outcome of the last change that was requested.
    pub hold: HoldStatus,
    /// Its attempts at targets, once one has failed.
    pub attempts: Vec<Attempt>,
    /// Key of its media, once this node terminates them.
    pub media_key: Option<u64>,
    /// Media statistics, once its own media are closed.
    pub media: Option<Arc<CallMedia>>,
    /// True once a bot was dialled for it.
    pub has_bot: bool,
    /// Offset of the wall clock at its beginning, on which all its times are.
    pub wall: WallOffset,
}

impl LiveCall {
    /// Returns whether it has ended.
    pub const fn is_over(&self) -> bool {
        self.ended.is_some()
    }

    /// Returns whether its beginning, and its end if it has one, are on disk.
    pub const fn is_synced(&self) -> bool {
        self.unsynced == 0
    }

    /// Applies a fact.
    fn follow(&mut self, fact: &Fact) {
        match fact {
            // `LiveCalls::begin` has made the call of it.
            Fact::Started(_) => {}

            Fact::Contact { contact, .. } => self.contact = Some(*contact),
            Fact::Ringing { at, .. } => {
                self.status = Status::Ringing;
                self.ringing_at = Some(*at);
            }
            Fact::Answered {
                at,
                runtime_call_id,
                ..
            } => {
                self.status = Status::InProgress;
                self.answered_at = Some(*at);
                self.runtime_call_id = Some(runtime_call_id.clone());
            }

            Fact::Joined {
                runtime_call_id, ..
            } => self.runtime_call_id = Some(runtime_call_id.clone()),
            Fact::Held { held, .. } => self.held = *held,
            Fact::Transfer(transfer) => self.transfer = Some(Arc::new((**transfer).clone())),
            Fact::Attempt(attempt) => self.attempts.push((**attempt).clone()),
            Fact::Media(media) => self.media = Some(Arc::new((**media).clone())),

            // Listed until the store has its end: see `LiveCalls::forget`.
            Fact::Ended(ended) => {
                self.ended = Some(ended.clone());
                self.unsynced += 1;
            }
        }
    }

    /// Adds what the caller's offer lacks to the end of a call without common media, where the refusal itself was a peer's and didn't say it.
    fn add_detail(&self, fact: &mut Fact) {
        if let Fact::Ended(ended) = fact
            && ended.reason_detail.is_none()
            && ended.reason.as_deref() == Some(Reason::NoCommonMedia.code())
        {
            let facts = self.started.invite_facts.as_ref();
            ended.reason_detail = facts.and_then(|facts| facts.traits.mismatch.clone());
        }
    }
}

/// All live calls of this node.
#[derive(Debug)]
pub struct LiveCalls {
    /// Boxed, since a table that has just grown is half empty.
    calls: SharedIdTable<Uuid, Box<LiveCall>>,
    /// Wall clock of recorded facts.
    wall: &'static WallClock,
    /// The call of each session.
    sessions: SharedIdTable<Uuid, Uuid>,
}

impl LiveCalls {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Self::on(&STEADY)
    }

    /// None yet; times are those of this wall clock.
    pub fn on(wall: &'static WallClock) -> Arc<Self> {
        Arc::new(Self {
            calls: SharedIdTable::default(),
            wall,
            sessions: SharedIdTable::default(),
        })
    }

    /// Returns the wall-clock time of a moment on the clock of timers.
    pub(crate) fn wall_time(&self, now: Moment) -> Moment {
        self.wall.of(now)
    }

    /// Number of live calls.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Shrinks the tables of a node without calls.
    pub fn rest(&self) {
        self.calls.shrink_to_fit();
        self.sessions.shrink_to_fit();
    }

    /// One call, if it is live and of this org.
    pub fn one(&self, org: Uuid, call: Uuid) -> Option<LiveCall> {
        self.calls
            .get(&call)
            .filter(|live| live.started.org == org)
            .map(|live| LiveCall::clone(&live))
    }

    /// The call of a session, if it is live and of this org.
    pub fn of_session(&self, org: Uuid, session: Uuid) -> Option<LiveCall> {
        let call = *self.sessions.get(&session)?;
        self.one(org, call)
    }

    /// Returns whether the call of a session is up.
    pub(crate) fn is_up(&self, session: Uuid) -> bool {
        let call = self.sessions.get(&session).map(|call| *call);
        call.and_then(|call| self.calls.get(&call))
            .is_some_and(|live| !live.is_over())
    }

    /// The session of a call that is up.
    pub fn session_of(&self, call: Uuid) -> Option<Uuid> {
        let live = self.calls.get(&call)?;
        (!live.is_over()).then_some(live.started.session)
    }

    /// The live calls of an org, in no order.
    pub fn of_org(&self, org: Uuid) -> Vec<LiveCall> {
        self.calls
            .iter()
            .filter(|live| live.started.org == org)
            .map(|live| LiveCall::clone(&live))
            .collect()
    }

    /// Applies a fact, and returns it with wall-clock times, as it is recorded.
    #[must_use]
    pub fn note(&self, fact: Fact) -> Fact {
        // Looked up once, since a busy shard notes tens of thousands of facts a second.
        if let Some(mut live) = self.calls.get_mut(&fact.call()) {
            let mut fact = fact_on(fact, live.wall);
            live.add_detail(&mut fact);
            live.follow(&fact);
            return fact;
        }

        let wall = self.wall.offset();
        let fact = fact_on(fact, wall);
        if let Fact::Started(started) = &fact {
            self.begin(started, wall);
        }
        fact
    }

    /// Returns a transfer of a call with wall-clock times.
    #[must_use]
    pub fn transfer_on_wall(&self, transfer: Transfer) -> Transfer {
        let wall = self.offset_of(transfer.call);
        transfer_on(transfer, wall)
    }

    /// Returns the offset on which the times of a call are; that of now if it isn't live.
    pub fn offset_of(&self, call: Uuid) -> WallOffset {
        let begun = self.calls.get(&call).map(|live| live.wall);
        begun.unwrap_or_else(|| self.wall.offset())
    }

    /// Makes the live call of its first fact.
    fn begin(&self, started: &Arc<Started>, wall: WallOffset) {
        let live = LiveCall {
            started: Arc::clone(started),
            status: match started.direction {
                Direction::Inbound => Status::Ringing,
                Direction::Outbound => Status::Queued,
            },
            contact: None,
            ringing_at: None,
            answered_at: None,
            runtime_call_id: None,
            ended: None,
            unsynced: 1,
            transfer: None,
            held: false,
            hold: HoldStatus::default(),
            attempts: Vec::new(),
            media_key: None,
            media: None,
            has_bot: false,
            wall,
        };
        self.sessions.insert(started.session, started.call);
        self.calls.insert(started.call, Box::new(live));
    }

    /// Notes that the beginning of a call is on disk, or after that its end.
    pub fn note_synced(&self, call: Uuid) {
        self.change(call, |live| live.unsynced = live.unsynced.saturating_sub(1));
    }

    /// Notes the key of a call's media, by which their steps are found while they are in use.
    pub fn note_media(&self, call: Uuid, key: u64) {
        self.change(call, |live| live.media_key = Some(key));
    }

    /// Notes that a bot is dialled for a call.
    pub fn note_bot(&self, call: Uuid) {
        self.change(call, |live| live.has_bot = true);
    }

    /// Notes the hold status of a call.
    pub(crate) fn note_hold(&self, call: Uuid, status: HoldStatus) {
        self.change(call, |live| live.hold = status);
    }

    /// Forgets a call whose end is in the store.
    pub fn forget(&self, call: Uuid) {
        if let Some((_, live)) = self.calls.remove(&call) {
            self.sessions.remove(&live.started.session);
        }
    }

    fn change(&self, call: Uuid, change: impl FnOnce(&mut LiveCall)) {
        if let Some(mut live) = self.calls.get_mut(&call) {
            change(&mut live);
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_model::record::HangupBy;

    use super::*;

    fn started(call: Uuid, at: Moment, clock_offset: i64) -> Fact {
        Fact::Started(Arc::new(Started {
            call,
            org: Uuid::nil(),
            session: call,
            agent: None,
            trunk: None,
            direction: Direction::Inbound,
            from: "".into(),
            to: "".into(),
            from_e164: None,
            to_e164: None,
            caller_call_id: "".into(),
            at,
            decision: None,
            headers: Vec::new(),
            metadata: None,
            invite_facts: None,
            clock_offset,
        }))
    }

    fn ended(call: Uuid, at: Moment) -> Fact {
        Fact::Ended(Box::new(Ended {
            call,
            org: Uuid::nil(),
            at,
            status: Status::Completed,
            sip_code: 200,
            reason: None,
            reason_detail: None,
            hangup_by: HangupBy::Caller,
            cause: None,
        }))
    }

    #[test]
    fn a_clock_that_is_set_while_a_call_is_up_changes_no_duration() {
        static WALL: WallClock = WallClock::new();
        let live = LiveCalls::on(&WALL);
        let at = Moment::from_secs;
        let [first, second] = [1, 2].map(Uuid::from_u128);
        let answered = |call, at| Fact::Answered {
            call,
            org: Uuid::nil(),
            at,
            runtime_call_id: "".into(),
        };

        WALL.step(60_000_000);
        let fact = live.note(started(first, at(100), 0));
        assert_eq!(fact, started(first, at(160), 60_000_000));
        for (name, step) in [("forward", 3_600_000_000), ("back", -7_200_000_000)] {
            WALL.step(step);
            let fact = live.note(answered(first, at(102)));
            assert_eq!(fact, answered(first, at(162)), "{name}");
            let fact = live.note(ended(first, at(106)));
            assert_eq!(fact, ended(first, at(166)), "{name}");
        }

        // The next call begins on the clock as it is now.
        WALL.step(7_200_000_000);
        let fact = live.note(started(second, at(107), 0));
        assert_eq!(fact, started(second, at(3_767), 3_660_000_000));
        live.forget(first);
        assert_eq!(live.offset_of(first), WALL.offset(), "no longer live");
    }
}
