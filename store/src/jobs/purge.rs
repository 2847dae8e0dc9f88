//! Deletion of the rows of a deleted org, with the accounts of its people, and of calls beyond their retention: a bounded number in each
//! transaction, the oldest calls first. Usage of deleted calls is counted before, in the same transaction.

use std::collections::BTreeMap;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::calls::call_lists;
use crate::calls::usage::{MICROS_OF_DAY, whole_seconds};
use crate::driver::column::{from_row, maybe, micros, moment};
use crate::driver::error::Error;
use crate::driver::event::{EventType, lost_end_id, repeatable_id};
use crate::driver::tx::Tx;

/// Rows of calls that one transaction deletes.
const CALLS_AT_ONCE: i64 = 100;
/// Memberships that one transaction ends, with the accounts of people who belong to no other org.
const MEMBERS_AT_ONCE: i64 = 100;
/// Rows of anything else.
const ROWS_AT_ONCE: i64 = 500;

/// Sequence numbers of ends that one transaction examines: they are deleted from the oldest on, like the calls.
const ENDS_AT_ONCE: i64 = 4 * CALLS_AT_ONCE;

/// Deletes the oldest sequence numbers whose calls are gone. One that is left reveals nothing, and is deleted with a later call.
const FORGET_ENDS: &str = "DELETE FROM call_ends WHERE org_id = $1
    AND seq IN (SELECT seq FROM call_ends WHERE org_id = $1 ORDER BY seq LIMIT $2)
    AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.id = call_ends.call_id)";

/// A call to be deleted.
struct Going {
    id: Uuid,
    agent_id: Option<Uuid>,
    trunk_id: Option<Uuid>,
    direction: Option<String>,
    started_at: Option<Moment>,
    ringing_at: Option<Moment>,
    answered_at: Option<Moment>,
    ended_at: Option<Moment>,
    /// See [`CallRow`](crate::calls::call_events::CallRow).
    lost_told: Option<bool>,
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
    lost_told,
});

/// The oldest calls of an org except those that are up; on PostgreSQL the rows are locked.
macro_rules! oldest {
    ($since:literal, $locked:literal) => {
        concat!(
            "SELECT id, agent_id, trunk_id, direction, started_at, ringing_at, answered_at, ended_at, lost_told FROM calls
             WHERE org_id = $1 AND ended_at IS NOT NULL ",
            $since,
            " ORDER BY started_at, id LIMIT $2",
            $locked
        )
    };
}

/// Events whose JSON is built from the call's row, and which are deleted with it.
const BODY_FROM_CALL: [EventType; 5] = [
    EventType::CallStarted,
    EventType::CallRinging,
    EventType::CallAnswered,
    EventType::CallEnded,
    EventType::CallRefused,
];

impl Going {
    /// Returns the ids of the events that are built from the row, and that of its assumed end.
    fn events(&self) -> impl Iterator<Item = Uuid> {
        let lost = self.started_at.filter(|_| self.lost_told == Some(true));
        let lost = lost.map(|started_at| lost_end_id(self.id, started_at));

        let built = BODY_FROM_CALL.into_iter().filter_map(|kind| {
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
        });
        built.chain(lost)
    }
}

/// Key of a usage group: day, agent, trunk, direction.
type Group = (i64, Uuid, Uuid, String);

/// Calls, answered calls and answered seconds of a group.
type Counts = [i64; 3];

fn counted(going: &[Going]) -> BTreeMap<Group, Counts> {
    let mut groups: BTreeMap<Group, Counts> = BTreeMap::new();

    for call in going {
        // Usage counts no call whose start isn't known.
        let Some(started_at) = call.started_at else {
            continue;
        };

        // Nil and empty mean none: these columns are part of the key, in which NULL would equal nothing.
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

/// Deletes a portion of the rows of an org that is due to be purged, except those that are deleted with the org's own row. Returns the
/// number of rows; 0 once nothing is left but calls that are up.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn delete_some(tx: &mut Tx, org: Uuid) -> Result<u64, Error> {
    let calls = delete_calls(tx, org, None)?;
    if calls > 0 {
        return Ok(calls);
    }
    for (sqlite, postgres) in PURGED {
        let rows = tx.run(tx.by_dialect(sqlite, postgres), &[&org, &ROWS_AT_ONCE])?;
        if rows > 0 {
            return Ok(rows);
        }
    }
    delete_members(tx, org)
}

/// Deletes a portion of the ended calls that began before `before`. Returns the number of rows.
pub(crate) fn delete_calls_before(tx: &mut Tx, org: Uuid, before: Moment) -> Result<u64, Error> {
    delete_calls(tx, org, Some(before))
}

/// Deletes the oldest ended calls, with their attempts, transfers and events. Returns the number of rows.
fn delete_calls(tx: &mut Tx, org: Uuid, before: Option<Moment>) -> Result<u64, Error> {
    // On PostgreSQL the rows are locked, so that each call is counted as it is deleted: otherwise a late fact could change it in between.
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
        // Events are found by their ids, which follow from type, call and time: no index finds the events of a call.
        for event in call.events() {
            let sql = "DELETE FROM events WHERE id = $1 AND org_id = $2";
            tx.run(sql, &[&event, &org])?;
        }
        let sql = "DELETE FROM calls WHERE org_id = $1 AND id = $2";
        tx.run(sql, &[&org, &call.id])?;
    }

    if !going.is_empty() {
        tx.run(FORGET_ENDS, &[&org, &ENDS_AT_ONCE])?;
        if let Some(before) = before {
            call_lists::forget_blocks(tx, org, before)?;
        }
    }

    Ok(going.len() as u64)
}

/// Accounts of an org's members; on PostgreSQL the rows are locked.
macro_rules! accounts {
    ($locked:literal) => {
        concat!(
            "SELECT id FROM users WHERE id IN (SELECT user_id FROM memberships WHERE org_id = $1 ORDER BY user_id LIMIT $2) ORDER BY id",
            $locked
        )
    };
}

/// Ends the memberships of some members, and deletes the accounts of those who belong to no other org. Returns the number of members.
fn delete_members(tx: &mut Tx, org: Uuid) -> Result<u64, Error> {
    // On PostgreSQL a login link for the same account in another org may be on its way. It locks the account's row before it adds the
    // membership, so that the statements after the lock see either that membership or none; a link that comes later makes the account anew.
    let sql = tx.by_dialect(accounts!(""), accounts!(" FOR UPDATE"));
    let accounts: Vec<(Uuid,)> = tx.all(sql, &[&org, &MEMBERS_AT_ONCE])?;

    for (account,) in &accounts {
        // Takes the membership with it.
        let sql = "DELETE FROM users WHERE id = $1
                   AND NOT EXISTS (SELECT 1 FROM memberships WHERE user_id = $1 AND org_id <> $2)";
        tx.run(sql, &[account, &org])?;
        let sql = "DELETE FROM memberships WHERE org_id = $1 AND user_id = $2";
        tx.run(sql, &[&org, account])?;
    }

    Ok(accounts.len() as u64)
}

/// Statement that deletes a portion of a table's rows by key.
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

/// Deletes the oldest handoffs: positions require that the list loses only its end.
const HANDOFFS: &str = "DELETE FROM handoffs WHERE org_id = $1 AND created_at IN (
    SELECT created_at FROM handoffs WHERE org_id = $1 ORDER BY created_at LIMIT $2)";

/// Deletes sequence numbers of ends.
const CALL_ENDS: &str = "DELETE FROM call_ends WHERE org_id = $1 AND seq IN (
    SELECT seq FROM call_ends WHERE org_id = $1 ORDER BY seq LIMIT $2)";

/// Tables with many rows, or that no foreign key deletes with the org.
const PURGED: [(&str, &str); 10] = [
    some_rows!("webhook_deliveries"),
    some_rows!("events"),
    (HANDOFFS, HANDOFFS),
    some_rows!("contacts"),
    some_rows!("auth_failures"),
    some_rows!("transfers"),
    some_rows!("asks"),
    (CALL_ENDS, CALL_ENDS),
    some_rows!("call_lists"),
    some_rows!("call_blocks"),
];
