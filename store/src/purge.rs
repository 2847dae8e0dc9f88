//! Rows of a deleted org, and calls that are kept no longer, deleted a bounded number in each transaction, the oldest calls first. Usage of
//! calls that go is counted before, in the same transaction.

use std::collections::BTreeMap;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{from_row, maybe, micros, moment};
use super::error::Error;
use super::event::{EventType, repeatable_id};
use super::tx::Tx;
use super::usage::{MICROS_OF_DAY, whole_seconds};

/// Rows of calls that one transaction deletes.
const CALLS_AT_ONCE: i64 = 100;
/// Rows of anything else.
const ROWS_AT_ONCE: i64 = 500;

/// Places of calls among the ends that one transaction looks at: as calls go from the oldest on, so do these.
const ENDS_AT_ONCE: i64 = 4 * CALLS_AT_ONCE;

/// Forgets the oldest places whose calls are gone. Another that is left gives nothing away, and goes with a later call.
const FORGET_ENDS: &str = "DELETE FROM call_ends WHERE org_id = $1
    AND seq IN (SELECT seq FROM call_ends WHERE org_id = $1 ORDER BY seq LIMIT $2)
    AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.id = call_ends.call_id)";

/// A call that goes.
struct Going {
    id: Uuid,
    agent_id: Option<Uuid>,
    trunk_id: Option<Uuid>,
    direction: Option<String>,
    started_at: Option<Moment>,
    ringing_at: Option<Moment>,
    answered_at: Option<Moment>,
    ended_at: Option<Moment>,
}
from_row!(Going {
    id,
    agent_id,
    trunk_id,
    direction,
    started_at: maybe(moment),
    ringing_at: maybe(moment),
    answered_at: maybe(moment),
    ended_at: maybe(moment),
});

/// The oldest calls of an org but for those that are up; on PostgreSQL nobody may change them meanwhile.
macro_rules! oldest {
    ($since:literal, $locked:literal) => {
        concat!(
            "SELECT id, agent_id, trunk_id, direction, started_at, ringing_at, answered_at, ended_at FROM calls
             WHERE org_id = $1 AND ended_at IS NOT NULL ",
            $since,
            " ORDER BY started_at, id LIMIT $2",
            $locked
        )
    };
}

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

/// A group of usage: day, agent, trunk, direction.
type Group = (i64, Uuid, Uuid, String);

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
            call.trunk_id.unwrap_or_default(),
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

/// Deletes some rows of an org that is to be purged, but for those that go with its own row. Returns how many went; none, once nothing is
/// left but calls that are up.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn some(tx: &mut Tx, org: Uuid) -> Result<u64, Error> {
    let calls = delete_calls(tx, org, None)?;
    if calls > 0 {
        return Ok(calls);
    }
    for (sqlite, postgres) in PURGED {
        let rows = tx.run(tx.words(sqlite, postgres), &[&org, &ROWS_AT_ONCE])?;
        if rows > 0 {
            return Ok(rows);
        }
    }
    Ok(0)
}

/// Deletes some calls that ended and began before then. Returns how many went.
pub(super) fn delete_calls_before(tx: &mut Tx, org: Uuid, before: Moment) -> Result<u64, Error> {
    delete_calls(tx, org, Some(before))
}

/// Deletes the oldest calls that ended, with their attempts, transfers and events. Returns how many went.
fn delete_calls(tx: &mut Tx, org: Uuid, before: Option<Moment>) -> Result<u64, Error> {
    let going: Vec<Going> = match (before.map(micros), tx.is_shared()) {
        (None, false) => tx.all(oldest!("", ""), &[&org, &CALLS_AT_ONCE])?,
        (None, true) => tx.all(oldest!("", " FOR UPDATE"), &[&org, &CALLS_AT_ONCE])?,
        (Some(before), false) => {
            let sql = oldest!("AND started_at < $3", "");
            tx.all(sql, &[&org, &CALLS_AT_ONCE, &before])?
        }
        (Some(before), true) => {
            let sql = oldest!("AND started_at < $3", " FOR UPDATE");
            tx.all(sql, &[&org, &CALLS_AT_ONCE, &before])?
        }
    };
    for ((day, agent, trunk, direction), [calls, answered, seconds]) in counted(&going) {
        tx.run(
            "INSERT INTO usage_kept (org_id, partner_id, day, agent_id, trunk_id, direction, calls, answered_calls, answered_seconds)
             VALUES ($1, (SELECT partner_id FROM orgs WHERE id = $1), $2, $3, $4, $5, $6, $7, $8)
             ON CONFLICT (org_id, day, agent_id, trunk_id, direction) DO UPDATE SET calls = usage_kept.calls + excluded.calls,
                 answered_calls = usage_kept.answered_calls + excluded.answered_calls,
                 answered_seconds = usage_kept.answered_seconds + excluded.answered_seconds",
            &[&org, &day, &agent, &trunk, &direction, &calls, &answered, &seconds],
        )?;
    }

    for call in &going {
        let sql = "DELETE FROM call_attempts WHERE call_id = $1";
        tx.run(sql, &[&call.id])?;
        let sql = "DELETE FROM transfers WHERE org_id = $1 AND call_id = $2";
        tx.run(sql, &[&org, &call.id])?;
        for event in call.events() {
            let sql = "DELETE FROM events WHERE id = $1 AND org_id = $2";
            tx.run(sql, &[&event, &org])?;
        }
        let sql = "DELETE FROM calls WHERE org_id = $1 AND id = $2";
        tx.run(sql, &[&org, &call.id])?;
    }

    if !going.is_empty() {
        tx.run(FORGET_ENDS, &[&org, &ENDS_AT_ONCE])?;
    }

    Ok(going.len() as u64)
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

/// Places of calls among the ends.
const CALL_ENDS: &str = "DELETE FROM call_ends WHERE org_id = $1 AND seq IN (
    SELECT seq FROM call_ends WHERE org_id = $1 ORDER BY seq LIMIT $2)";

/// Rows that may be many, or that no foreign key deletes with the org.
const PURGED: [(&str, &str); 9] = [
    some_rows!("webhook_deliveries"),
    some_rows!("events"),
    (HANDOFFS, HANDOFFS),
    some_rows!("contacts"),
    some_rows!("auth_failures"),
    some_rows!("transfers"),
    some_rows!("number_codes"),
    some_rows!("asks"),
    (CALL_ENDS, CALL_ENDS),
];
