//! Lists and blocks of an org's calls, by which filters find calls without reading the others.
//!
//! A list has the calls of one org with the same agent, trunk, direction and outcome. Most orgs have a few dozen lists, so that any
//! combination of these filters reads a few ranges of one index, each in the order of time, and a call costs one entry in it.
//!
//! A block has some [`BLOCK`] calls of one org that began about the same time. The indexes of numbers begin with the block: new entries fall
//! on the few pages of the present block, while an index of numbers alone gets each of them on a page of its own, which costs SQLite ten
//! times as much. A search for a number looks into each block.

use std::collections::{BTreeMap, HashMap};

use sha2::{Digest as _, Sha256};
use trunkline_model::record::{Started, Status};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::call_events::CallRow;
use crate::driver::error::Error;
use crate::driver::rows::Insert;
use crate::driver::tx::Tx;

/// Calls after which a new block begins, on average.
const BLOCK: u128 = 4_096;

/// Outcome of calls that aren't over.
pub(crate) const UP: &str = "up";

/// Converts a status column to the number of an outcome, which is in the last four bits of a list; 0: the call isn't over.
macro_rules! outcome_of {
    ($status:literal) => {
        concat!(
            "CASE ",
            $status,
            " WHEN 'completed' THEN 1 WHEN 'busy' THEN 2 WHEN 'no_answer' THEN 3 WHEN 'failed' THEN 4 WHEN 'canceled' THEN 5
              WHEN 'refused' THEN 6 WHEN 'transferred' THEN 7 WHEN 'lost' THEN 8 ELSE 0 END"
        )
    };
}
pub(crate) use outcome_of;

/// Returns the outcome of calls with this status.
pub(crate) fn outcome(status: Status) -> &'static str {
    match outcome_number(status) {
        0 => UP,
        _ => status.as_str(),
    }
}

/// Returns the same number as [`outcome_of`].
fn outcome_number(status: Status) -> i64 {
    let mut final_ones = (1..).zip(Status::FINAL);
    let found = final_ones.find(|(_, known)| *known == status);
    found.map_or(0, |(number, _)| number)
}

/// Calls that differ in nothing but their outcome, as far as lists are concerned.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
struct Group {
    org: Uuid,
    agent: Option<Uuid>,
    trunk: Option<Uuid>,
    direction: &'static str,
}

impl Group {
    const fn of(started: &Started) -> Self {
        Self {
            org: started.org,
            agent: started.agent,
            trunk: started.trunk,
            direction: started.direction.as_str(),
        }
    }

    /// Returns the list of its calls that are up. It follows from the group, so that no node has to look it up.
    fn list(self) -> i64 {
        let digest = Sha256::new()
            .chain_update(b"trunkline list\0")
            .chain_update(self.org)
            .chain_update(self.agent.unwrap_or_default())
            .chain_update(self.trunk.unwrap_or_default())
            .chain_update(self.direction)
            .finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        i64::from_be_bytes(first) & !0xf
    }
}

/// Lists and blocks of calls whose beginnings are projected together.
#[derive(Debug, Default)]
pub(crate) struct Assigned {
    groups: HashMap<Group, i64>,
    blocks: HashMap<Uuid, i64>,
}

/// List and block of a call. The list is that of an outcome.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) list: i64,
    pub(crate) block: i64,
}

impl Assigned {
    /// Returns the place of a call that has begun and, as far as is known, has this status.
    pub(crate) fn place(&mut self, started: &Started, status: Status) -> Option<Place> {
        let group = Group::of(started);
        let up = *self.groups.entry(group).or_insert_with(|| group.list());
        Some(Place {
            list: up | outcome_number(status),
            block: *self.blocks.get(&started.call)?,
        })
    }
}

/// Assigns the calls that begin, in their order, to lists and blocks. A call that was projected before keeps the block that it has.
pub(crate) fn place<'f>(
    tx: &mut Tx,
    begun: impl Iterator<Item = &'f Started>,
) -> Result<Assigned, Error> {
    let begun: Vec<&Started> = begun.collect();
    let mut newest = newest_blocks(tx, &begun)?;
    let mut places = Assigned::default();

    for started in begun {
        let newest = newest.entry(started.org).or_default();
        // By the call's id, which is random there, nothing needs to be counted.
        let begins_block = started.call.as_u128() % BLOCK == 0;
        let block = match *newest {
            Some(block) if !begins_block => block,
            earlier => begin_block(tx, started, earlier)?,
        };

        *newest = Some(block);
        places.blocks.insert(started.call, block);
    }

    Ok(places)
}

/// Begins a block behind the org's `earlier` one.
fn begin_block(tx: &mut Tx, started: &Started, earlier: Option<i64>) -> Result<i64, Error> {
    let mut block = first_block(started.org, started.at);
    block = block.max(earlier.map_or(i64::MIN, |earlier| earlier.saturating_add(1)));
    let sql =
        "INSERT INTO call_blocks (block, org_id) VALUES ($1, $2) ON CONFLICT (block) DO NOTHING";
    while tx.run(sql, &[&block, &started.org])? == 0 {
        // Another org's block of the same millisecond.
        block = block.saturating_add(1);
    }
    Ok(block)
}

/// Returns the number of a block that begins at this time: later ones are higher, so that their entries come last in the indexes.
fn first_block(org: Uuid, at: Moment) -> i64 {
    let millis = i64::try_from(at.as_millis()).unwrap_or_default() & ((1 << 41) - 1);
    let (_, random) = org.as_u64_pair();
    (millis << 21) | (random & 0x1f_ffff).cast_signed()
}

/// Newest block of each org of these calls, on PostgreSQL in one round trip.
fn newest_blocks(tx: &mut Tx, begun: &[&Started]) -> Result<BTreeMap<Uuid, Option<i64>>, Error> {
    let mut newest: BTreeMap<Uuid, Option<i64>> =
        begun.iter().map(|started| (started.org, None)).collect();
    if newest.is_empty() {
        return Ok(newest);
    }

    if tx.is_shared() {
        let orgs: Vec<String> = newest.keys().map(Uuid::to_string).collect();
        let sql =
            "SELECT wanted.org, (SELECT MAX(block) FROM call_blocks WHERE org_id = wanted.org)
                   FROM unnest(CAST(string_to_array($1, ',') AS UUID[])) AS wanted (org)";
        newest.extend(tx.all::<(Uuid, Option<i64>)>(sql, &[&orgs.join(",")])?);
        return Ok(newest);
    }

    for (org, newest) in &mut newest {
        let sql = "SELECT MAX(block) FROM call_blocks WHERE org_id = $1";
        (*newest,) = tx.exactly_one(sql, &[org])?;
    }
    Ok(newest)
}

/// Lists of the rows that a transaction writes.
#[derive(Debug, Default)]
pub(crate) struct WrittenLists(BTreeMap<i64, ListRow>);

#[derive(Debug)]
struct ListRow {
    org: Uuid,
    agent: Option<Uuid>,
    trunk: Option<Uuid>,
    direction: String,
    outcome: &'static str,
}

const LISTS: Insert = Insert {
    into: "call_lists (list, org_id, agent_id, trunk_id, direction, outcome)",
    ending: " ON CONFLICT (list) DO NOTHING",
};

impl WrittenLists {
    /// Adds the lists of these rows.
    pub(crate) fn add(&mut self, rows: &[CallRow]) {
        for row in rows {
            let (Some(list), Some(direction)) = (row.list, &row.direction) else {
                continue;
            };
            self.0.entry(list).or_insert_with(|| ListRow {
                org: row.org_id,
                agent: row.agent_id,
                trunk: row.trunk_id,
                direction: direction.clone(),
                outcome: outcome_of_list(list),
            });
        }
    }

    /// Writes those that don't exist yet, in the order of their numbers: no two transactions wait for each other.
    pub(crate) fn write(self, tx: &mut Tx) -> Result<(), Error> {
        let rows: Vec<_> = self
            .0
            .iter()
            .map(|(list, row)| {
                [
                    (*list).into(),
                    row.org.into(),
                    row.agent.into(),
                    row.trunk.into(),
                    row.direction.as_str().into(),
                    row.outcome.into(),
                ]
            })
            .collect();
        for some in tx.portions(&rows) {
            tx.insert(LISTS, some)?;
        }
        Ok(())
    }
}

/// Returns the outcome of a list's calls.
fn outcome_of_list(list: i64) -> &'static str {
    let number = usize::try_from(list & 0xf).unwrap_or_default();
    let ended = number.checked_sub(1).and_then(|at| Status::FINAL.get(at));
    ended.map_or(UP, |status| status.as_str())
}

/// Adds the lists of the calls of `node` that were closed as lost in its runs before `boot`, and whose ends aren't recorded yet.
pub(crate) fn add_lost(tx: &mut Tx, node: u8, boot: i64) -> Result<(), Error> {
    tx.run(
        "INSERT INTO call_lists (list, org_id, agent_id, trunk_id, direction, outcome)
         SELECT DISTINCT list, org_id, agent_id, trunk_id, direction, status FROM calls
         WHERE node = $1 AND boot < $2 AND lost_told = FALSE AND list IS NOT NULL
         ORDER BY list ON CONFLICT (list) DO NOTHING",
        &[&node, &boot],
    )?;
    Ok(())
}

/// Deletes the oldest blocks of the org that began before `before`, days ago, and have no calls any more.
pub(crate) fn forget_blocks(tx: &mut Tx, org: Uuid, before: Moment) -> Result<(), Error> {
    let before = first_block(Uuid::nil(), before);
    // The newest stays: calls are added to it.
    tx.run(
        "DELETE FROM call_blocks WHERE org_id = $1 AND block < $2
         AND block IN (SELECT block FROM call_blocks WHERE org_id = $1 ORDER BY block LIMIT 2)
         AND block < (SELECT MAX(block) FROM call_blocks WHERE org_id = $1)
         AND NOT EXISTS (SELECT 1 FROM calls WHERE calls.block = call_blocks.block)",
        &[&org, &before],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_has_the_same_number_everywhere() {
        let sql = outcome_of!("status")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        for status in Status::FINAL {
            let number = outcome_number(status);
            let name = status.as_str();
            assert!(
                sql.contains(&format!("WHEN '{name}' THEN {number} ")),
                "{name}"
            );
            assert_eq!(outcome(status), name);
            assert_eq!(outcome_of_list(160 | number), name);
        }
        for status in [Status::Queued, Status::Ringing, Status::InProgress] {
            assert_eq!((outcome_number(status), outcome(status)), (0, UP));
        }
    }

    #[test]
    fn blocks_are_in_the_order_of_time() {
        let at = [1, 2, 4_000_000_000_000].map(Moment::from_micros);
        let orgs = [Uuid::max(), Uuid::from_u128(7), Uuid::nil()];
        let blocks: Vec<i64> = orgs
            .into_iter()
            .zip([at[0], at[2], Moment::from_secs(4_000_000_000)])
            .map(|(org, at)| first_block(org, at))
            .collect();
        assert!(blocks.is_sorted() && blocks[0] >= 0, "{blocks:?}");
    }
}
