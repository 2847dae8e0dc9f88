//! What is deleted for its age, or with its org: a bounded number of rows in each transaction, the oldest first. Usage of calls that go is
//! counted before, in the same transaction.

use std::collections::BTreeMap;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Store;
use super::column::{from_row, maybe, micros, moment};
use super::error::Error;
use super::event::{EventType, repeatable_id};
use super::pool::{Writing, execute, fetch_all};
use super::usage::whole_seconds;

/// Rows of calls that one transaction deletes.
const CALLS_AT_ONCE: i64 = 100;
/// Rows of anything else.
const ROWS_AT_ONCE: i64 = 500;
const MICROS_OF_DAY: i64 = 86_400_000_000;

/// What deletes rows for their age.
#[derive(Copy, Clone, Debug)]
pub struct Retention<'s>(pub(super) &'s Store);

impl Store {
    /// What deletes rows for their age.
    pub fn retention(&self) -> Retention<'_> {
        Retention(self)
    }
}

/// A call that goes.
struct Going {
    id: Uuid,
    agent_id: Option<Uuid>,
    direction: Option<String>,
    started_at: Option<Moment>,
    ringing_at: Option<Moment>,
    answered_at: Option<Moment>,
    ended_at: Option<Moment>,
}
from_row!(Going {
    id,
    agent_id,
    direction,
    started_at: maybe(moment),
    ringing_at: maybe(moment),
    answered_at: maybe(moment),
    ended_at: maybe(moment),
});

/// The columns of a [`Going`], and which calls; on PostgreSQL nobody changes them meanwhile.
macro_rules! going {
    ($which:literal) => {
        (
            concat!(
                "SELECT id, agent_id, direction, started_at, ringing_at, answered_at, ended_at FROM calls WHERE ",
                $which
            ),
            concat!(
                "SELECT id, agent_id, direction, started_at, ringing_at, answered_at, ended_at FROM calls WHERE ",
                $which,
                " FOR UPDATE"
            ),
        )
    };
}

/// Calls of an org that ended, which started before a time.
const OLD: (&str, &str) = going!(
    "org_id = $1 AND started_at < $2 AND ended_at IS NOT NULL ORDER BY started_at, id LIMIT $3"
);
/// All calls of an org but those that are up.
const ALL: (&str, &str) =
    going!("org_id = $1 AND ended_at IS NOT NULL AND $2 = $2 ORDER BY started_at, id LIMIT $3");

/// Events that are told by the call's row, and go with it.
const TOLD_BY_CALL: [EventType; 5] = [
    EventType::CallStarted,
    EventType::CallRinging,
    EventType::CallAnswered,
    EventType::CallEnded,
    EventType::CallRefused,
];

impl Going {
    /// Ids of the events that the row tells.
    fn events(&self) -> impl Iterator<Item = Uuid> {
        TOLD_BY_CALL.into_iter().filter_map(|kind| {
            let at = match kind {
                EventType::CallStarted => self.started_at,
                EventType::CallRinging => self.ringing_at,
                EventType::CallAnswered => self.answered_at,
                EventType::CallEnded
                | EventType::CallRefused
                | EventType::TransferUpdated
                | EventType::TrunkRegistered
                | EventType::TrunkLost
                | EventType::HandoffCreated
                | EventType::KeyRevoked
                | EventType::NumberVerified => self.ended_at,
            };
            at.map(|at| repeatable_id(kind, self.id, at))
        })
    }
}

/// A group of usage: day, agent, direction.
type Group = (i64, Uuid, String);

/// Calls, answered calls and answered seconds of a group.
type Counts = [i64; 3];

fn counted(going: &[Going]) -> BTreeMap<Group, Counts> {
    let mut groups: BTreeMap<Group, Counts> = BTreeMap::new();
    for call in going {
        // Usage counts no call whose beginning isn't known.
        let Some(started_at) = call.started_at else {
            continue;
        };
        let group = (
            micros(started_at) / MICROS_OF_DAY,
            call.agent_id.unwrap_or_default(),
            call.direction.clone().unwrap_or_default(),
        );
        let seconds = match (call.answered_at, call.ended_at) {
            (Some(answered), Some(ended)) => whole_seconds(answered, ended),
            (Some(_) | None, _) => 0,
        };
        let counts = groups.entry(group).or_default();
        counts[0] += 1;
        counts[1] += i64::from(call.answered_at.is_some());
        counts[2] += seconds.cast_signed();
    }
    groups
}

impl Retention<'_> {
    /// Deletes calls of an org that started before a time, and with them their attempts, transfers and events; calls that are up stay. Gives
    /// how many of them went; fewer than [`Retention::is_all`] says were the last.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone; those at hand stayed then.
    pub async fn calls(self, org: Uuid, before: Option<Moment>) -> Result<u64, Error> {
        let (which, before) = match before {
            Some(before) => (OLD, micros(before)),
            None => (ALL, 0),
        };
        let mut writing = self.0.pool().write().await?;
        let sql = match writing {
            Writing::Sqlite(..) | Writing::Nearby(..) => which.0,
            Writing::Postgres(_) => which.1,
        };
        let going: Vec<Going> = fetch_all!(writing, sql, org, before, CALLS_AT_ONCE)?;
        for ((day, agent, direction), [calls, answered, seconds]) in counted(&going) {
            execute!(
                writing,
                "INSERT INTO usage_kept (org_id, partner_id, day, agent_id, direction, calls, answered_calls, answered_seconds)
                 VALUES ($1, (SELECT partner_id FROM orgs WHERE id = $1), $2, $3, $4, $5, $6, $7)
                 ON CONFLICT (org_id, day, agent_id, direction) DO UPDATE SET calls = usage_kept.calls + excluded.calls,
                     answered_calls = usage_kept.answered_calls + excluded.answered_calls,
                     answered_seconds = usage_kept.answered_seconds + excluded.answered_seconds",
                org,
                day,
                agent,
                direction,
                calls,
                answered,
                seconds,
            )?;
        }
        for call in &going {
            let sql = "DELETE FROM call_attempts WHERE call_id = $1";
            execute!(writing, sql, call.id)?;
            let sql = "DELETE FROM transfers WHERE org_id = $1 AND call_id = $2";
            execute!(writing, sql, org, call.id)?;
            for event in call.events() {
                let sql = "DELETE FROM events WHERE id = $1 AND org_id = $2";
                execute!(writing, sql, event, org)?;
            }
            let sql = "DELETE FROM calls WHERE org_id = $1 AND id = $2";
            execute!(writing, sql, org, call.id)?;
        }
        writing.commit().await?;
        Ok(going.len() as u64)
    }

    /// Whether so many calls are as many as one transaction deletes, so that more may be left.
    pub const fn is_all(self, calls: u64) -> bool {
        calls < CALLS_AT_ONCE.unsigned_abs()
    }

    /// Deletes something of an org that is to be purged, and that isn't deleted with its row. Gives how many rows went; none, once nothing
    /// is left.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn purge(self, org: Uuid) -> Result<u64, Error> {
        let calls = self.calls(org, None).await?;
        if calls > 0 {
            return Ok(calls);
        }
        for (sqlite, postgres) in PURGED {
            let mut writing = self.0.pool().write().await?;
            let sql = match writing {
                Writing::Sqlite(..) | Writing::Nearby(..) => sqlite,
                Writing::Postgres(_) => postgres,
            };
            let rows = execute!(writing, sql, org, ROWS_AT_ONCE)?;
            writing.commit().await?;
            if rows > 0 {
                return Ok(rows);
            }
        }
        Ok(0)
    }
}

/// Rows of a table, found by its key.
macro_rules! some_rows {
    ($table:literal) => {
        (
            concat!(
                "DELETE FROM ",
                $table,
                " WHERE rowid IN (SELECT rowid FROM ",
                $table,
                " WHERE org_id = $1 LIMIT $2)"
            ),
            concat!(
                "DELETE FROM ",
                $table,
                " WHERE ctid = ANY (ARRAY(SELECT ctid FROM ",
                $table,
                " WHERE org_id = $1 LIMIT $2))"
            ),
        )
    };
}

/// The oldest handoffs: their list may lose nothing but its end.
const HANDOFFS: &str = "DELETE FROM handoffs WHERE org_id = $1 AND created_at IN (
    SELECT created_at FROM handoffs WHERE org_id = $1 ORDER BY created_at LIMIT $2)";

/// What may be much, or that no foreign key deletes with its org.
const PURGED: [(&str, &str); 8] = [
    some_rows!("webhook_deliveries"),
    some_rows!("events"),
    (HANDOFFS, HANDOFFS),
    some_rows!("contacts"),
    some_rows!("auth_failures"),
    some_rows!("transfers"),
    some_rows!("number_codes"),
    some_rows!("asks"),
];
