//! Search of an org's calls by a filter: the places of a page, and the number of matches, each from an index alone.
//!
//! Agent, trunk, direction and status select lists ([`call_lists`](super::call_lists)), and a number selects ranges in each block. All of
//! these are ordered by time, so that a page is merged from those whose newest calls are newest, and a count reads [`COUNT_LIMIT`] entries
//! at most.
//!
//! A number that more than [`FEW`] calls have, together with another filter, is the only search without a bound: it reads the calls of the
//! number or of the lists, whichever are fewer, until enough of them match.

use std::cmp::Reverse;

use trunkline_model::record::{Direction, Status};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::call_lists::outcome;
use crate::driver::column::{from_row, micros};
use crate::driver::error::Error;
use crate::driver::page::{COUNT_LIMIT, Position};
use crate::driver::tx::Tx;
use crate::driver::value::Param;

/// Calls of a number that are read and compared one by one.
const FEW: i64 = 1_000;

/// Start time and id of a call.
type Place = (i64, Uuid);

/// Filter for calls; `None` matches everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallFilter {
    /// Calls of this agent.
    pub agent: Option<Uuid>,
    /// Calls over this trunk.
    pub trunk: Option<Uuid>,
    /// Calls of this direction.
    pub direction: Option<Direction>,
    /// Calls of this status.
    pub status: Option<Status>,
    /// Calls from or to this number, as sent or as E.164.
    pub number: Option<String>,
    /// Started at this time or later.
    pub from: Option<Moment>,
    /// Started at this time or before.
    pub to: Option<Moment>,
}

impl CallFilter {
    /// Returns whether nothing but the time restricts the calls, so that an index alone finds them.
    pub(crate) const fn is_unrestricted(&self) -> bool {
        self.agent.is_none()
            && self.trunk.is_none()
            && self.direction.is_none()
            && self.status.is_none()
            && self.number.is_none()
    }
}

/// Result of a search.
#[derive(Debug)]
pub(crate) struct Found {
    /// Places of the page's calls, newest first.
    pub(crate) places: Vec<Place>,
    /// Number of all matches, up to [`COUNT_LIMIT`].
    pub(crate) total: i64,
}

/// Condition on `call_lists`, on `$1` to `$5`: the lists that agree with the filter.
macro_rules! lists {
    () => {
        "call_lists.org_id = $1 AND ($2 IS NULL OR call_lists.agent_id = $2) AND ($3 IS NULL OR call_lists.trunk_id = $3)
         AND ($4 IS NULL OR call_lists.direction = $4) AND ($5 IS NULL OR call_lists.outcome = $5)"
    };
}

/// Condition on `calls`, on `$2` to `$4`, `$8` and `$9`: what the source of a search doesn't tell.
const REST: &str = "($2 IS NULL OR calls.agent_id = $2) AND ($3 IS NULL OR calls.trunk_id = $3)
    AND ($4 IS NULL OR calls.direction = $4) AND ($8 IS NULL OR calls.status = $8)
    AND ($9 IS NULL OR $9 IN (calls.from_number, calls.to_number, calls.from_e164, calls.to_e164))";

/// Conditions on `calls` that `$9` is one of its numbers. Each call agrees with one at most, and each has its index: these have the same
/// conditions.
const NUMBERS: [&str; 4] = [
    "calls.from_e164 = $9",
    "calls.to_e164 = $9 AND (calls.from_e164 IS NULL OR calls.to_e164 <> calls.from_e164)",
    "calls.from_number = $9 AND (calls.from_e164 IS NULL OR calls.from_number <> calls.from_e164)
     AND (calls.to_e164 IS NULL OR calls.from_number <> calls.to_e164)",
    "calls.to_number = $9 AND (calls.from_e164 IS NULL OR calls.to_number <> calls.from_e164)
     AND (calls.to_e164 IS NULL OR calls.to_number <> calls.to_e164)
     AND (calls.from_number IS NULL OR calls.to_number <> calls.from_number)",
];

/// Condition that everything agrees with.
const ALL: &str = "TRUE";

/// Values of all statements: org, agent, trunk, direction, outcome, earliest and latest start, status and number. Further ones follow.
#[derive(Debug)]
struct Values {
    org: Uuid,
    agent: Option<Uuid>,
    trunk: Option<Uuid>,
    direction: Option<&'static str>,
    outcome: Option<&'static str>,
    from: i64,
    to: i64,
    status: Option<&'static str>,
    number: Option<String>,
}

impl Values {
    fn of(org: Uuid, filter: &CallFilter) -> Self {
        Self {
            org,
            agent: filter.agent,
            trunk: filter.trunk,
            direction: filter.direction.map(Direction::as_str),
            outcome: filter.status.map(outcome),
            from: filter.from.map_or(0, micros),
            to: filter.to.map_or(i64::MAX, micros),
            status: filter.status.map(Status::as_str),
            number: filter.number.clone(),
        }
    }

    fn with<'v>(&'v self, further: &[&'v dyn Param]) -> Vec<&'v dyn Param> {
        let mut values: Vec<&dyn Param> = vec![
            &self.org,
            &self.agent,
            &self.trunk,
            &self.direction,
            &self.outcome,
            &self.from,
            &self.to,
            &self.status,
            &self.number,
        ];
        values.extend(further);
        values
    }
}

/// Database that a statement is for.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    const fn of(tx: &Tx) -> Self {
        match tx.is_shared() {
            true => Self::Postgres,
            false => Self::Sqlite,
        }
    }
}

/// Ranges of an index that a search reads.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Source {
    /// Lists.
    Lists,
    /// In each block, the calls that agree with one of [`NUMBERS`].
    Number(usize),
}

impl Source {
    /// Every source of a number's calls.
    const NUMBERS: [Self; 4] = [
        Self::Number(0),
        Self::Number(1),
        Self::Number(2),
        Self::Number(3),
    ];

    /// Returns the table of ranges, its key, which is also a column of calls, and the condition on it.
    const fn ranges(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Lists => ("call_lists", "list", lists!()),
            Self::Number(_) => ("call_blocks", "block", "call_blocks.org_id = $1"),
        }
    }

    /// Returns the condition on the calls of a range.
    const fn condition(self) -> &'static str {
        match self {
            Self::Lists => ALL,
            Self::Number(which) => NUMBERS[which],
        }
    }

    /// Returns the text that selects columns of the matching calls in all ranges, in no order, `most` in all. On PostgreSQL the limit inside
    /// keeps the ranges apart, so that each is read from the index; SQLite reads them in the order in which they stand.
    fn select(self, dialect: Dialect, columns: &str, rest: &str, most: &str) -> String {
        let (table, key, wanted) = self.ranges();
        let condition = self.condition();
        let matching = format!(
            "calls.{key} = {table}.{key} AND {condition} AND calls.started_at BETWEEN $6 AND $7 AND {rest}"
        );
        match dialect {
            Dialect::Sqlite => {
                format!("SELECT {columns} FROM {table} CROSS JOIN calls ON {matching} WHERE {wanted}")
            }
            Dialect::Postgres => format!(
                "SELECT found.* FROM {table} CROSS JOIN LATERAL (SELECT {columns} FROM calls WHERE {matching} LIMIT {most}) AS found
                 WHERE {wanted}"
            ),
        }
    }

    /// Returns the statement for the ranges and, of each, the start of the newest call at or before `$10`.
    fn heads(self) -> String {
        let (table, key, wanted) = self.ranges();
        let condition = self.condition();
        format!(
            "SELECT {key}, (SELECT MAX(started_at) FROM calls WHERE calls.{key} = {table}.{key} AND {condition}
                 AND calls.started_at BETWEEN $6 AND $10) AS head FROM {table} WHERE {wanted}"
        )
    }

    /// Returns SQLite's statement for the newest `$14` places of the range `$10` from the time `$11` to the place `$12`, `$13`, without that.
    fn newest_of_range(self) -> String {
        let (_, key, _) = self.ranges();
        let condition = self.condition();
        format!(
            "SELECT started_at, id FROM calls WHERE {key} = $10 AND {condition} AND started_at BETWEEN $6 AND $7
             AND started_at BETWEEN $11 AND $12 AND (started_at, id) < ($12, $13) AND {REST}
             ORDER BY started_at DESC, id DESC LIMIT $14"
        )
    }

    /// Returns PostgreSQL's statement for the newest `$13` places of the ranges `$10`, which are one text, up to the place `$11`, `$12`,
    /// without that.
    fn newest_of_ranges(self) -> String {
        let (_, key, _) = self.ranges();
        let condition = self.condition();
        format!(
            "SELECT found.started_at, found.id FROM unnest(CAST(string_to_array($10, ',') AS BIGINT[])) AS wanted (key)
             CROSS JOIN LATERAL (
                 SELECT started_at, id FROM calls WHERE {key} = wanted.key AND {condition} AND started_at BETWEEN $6 AND $7
                 AND started_at <= $11 AND (started_at, id) < ($11, $12) AND {REST}
                 ORDER BY started_at DESC, id DESC LIMIT $13
             ) AS found ORDER BY found.started_at DESC, found.id DESC LIMIT $13"
        )
    }
}

/// Returns the statement for up to `$10` calls of a number.
fn few(dialect: Dialect) -> String {
    let columns = "calls.started_at AS started_at, calls.id AS id, calls.agent_id AS agent_id, calls.trunk_id AS trunk_id,
        calls.direction AS direction, calls.status AS status";
    let each = Source::NUMBERS.map(|source| source.select(dialect, columns, ALL, "$10"));
    format!("{} LIMIT $10", each.join(" UNION ALL "))
}

/// Returns the statement that counts up to `$10` calls of these sources which agree with `rest`.
fn counted(dialect: Dialect, sources: &[Source], rest: &str) -> String {
    let each = sources.iter();
    let each = each.map(|source| source.select(dialect, "1 AS one", rest, "$10"));
    let each = each.collect::<Vec<_>>().join(" UNION ALL ");
    format!("SELECT COUNT(*) FROM ({each} LIMIT $10) AS matching")
}

/// Finds the page of `limit` calls after a position.
pub(crate) fn search(
    tx: &mut Tx,
    org: Uuid,
    filter: &CallFilter,
    after: Position,
    limit: i64,
) -> Result<Found, Error> {
    let values = Values::of(org, filter);
    if values.number.is_none() {
        let total = count(tx, &values, &[Source::Lists], values.rest_of_lists())?;
        let places = merged(tx, &values, &[Source::Lists], after, limit)?;
        return Ok(Found { places, total });
    }

    if let Some(mut few) = few_of_number(tx, &values)? {
        few.retain(|call| call.matches(&values));
        let total = few.len() as i64;
        let mut places: Vec<Place> = few.iter().map(|call| (call.started_at, call.id)).collect();
        places.retain(|place| *place < (after.at_micros(), after.id));
        newest(&mut places, limit);
        return Ok(Found { places, total });
    }

    if !values.narrows_lists() {
        let total = count(tx, &values, &Source::NUMBERS, ALL)?;
        let places = merged(tx, &values, &Source::NUMBERS, after, limit)?;
        return Ok(Found { places, total });
    }

    let of_number = count(tx, &values, &Source::NUMBERS, ALL)?;
    let of_lists = count(tx, &values, &[Source::Lists], ALL)?;
    let sources: &[Source] = match of_number < of_lists {
        true => &Source::NUMBERS,
        false => &[Source::Lists],
    };
    let total = count(tx, &values, sources, REST)?;
    let places = merged(tx, &values, sources, after, limit)?;
    Ok(Found { places, total })
}

impl Values {
    /// Returns whether anything but the number and the time restricts the calls.
    const fn narrows_lists(&self) -> bool {
        self.agent.is_some()
            || self.trunk.is_some()
            || self.direction.is_some()
            || self.status.is_some()
    }

    /// Returns whether the calls of the ranges that are read are matches, whatever else they are.
    fn are_told_by_ranges(&self) -> bool {
        match self.number {
            Some(_) => !self.narrows_lists(),
            None => self.rest_of_lists() == ALL,
        }
    }

    /// Returns the condition that calls of the right lists need not agree with: calls that are up have one outcome and several statuses.
    fn rest_of_lists(&self) -> &'static str {
        match self.outcome == self.status {
            true => ALL,
            false => "calls.status = $8",
        }
    }
}

/// A call of a number.
struct OfNumber {
    started_at: i64,
    id: Uuid,
    agent_id: Option<Uuid>,
    trunk_id: Option<Uuid>,
    direction: Option<String>,
    status: String,
}
from_row!(OfNumber {
    started_at,
    id,
    agent_id,
    trunk_id,
    direction,
    status,
});

impl OfNumber {
    fn matches(&self, values: &Values) -> bool {
        values
            .agent
            .is_none_or(|agent| self.agent_id == Some(agent))
            && values
                .trunk
                .is_none_or(|trunk| self.trunk_id == Some(trunk))
            && values
                .direction
                .is_none_or(|direction| self.direction.as_deref() == Some(direction))
            && values.status.is_none_or(|status| self.status == status)
    }
}

/// Returns the calls of the number, unless there are more than [`FEW`].
fn few_of_number(tx: &mut Tx, values: &Values) -> Result<Option<Vec<OfNumber>>, Error> {
    let sql = few(Dialect::of(tx));
    let calls: Vec<OfNumber> = tx.all(sql, &values.with(&[&(FEW + 1)]))?;
    Ok((calls.len() as i64 <= FEW).then_some(calls))
}

/// Returns the number of calls of these sources that agree with `rest`, up to [`COUNT_LIMIT`].
fn count(tx: &mut Tx, values: &Values, sources: &[Source], rest: &str) -> Result<i64, Error> {
    let sql = counted(Dialect::of(tx), sources, rest);
    let (total,) = tx.exactly_one(sql, &values.with(&[&COUNT_LIMIT]))?;
    Ok(total)
}

/// Sorts places, newest first, and leaves as many as fit on a page.
fn newest(places: &mut Vec<Place>, limit: i64) {
    places.sort_unstable_by_key(|place| Reverse(*place));
    places.truncate(usize::try_from(limit).unwrap_or_default());
}

/// Returns the newest matching places after a position: merged from the ranges, those with the newest calls first, until the rest of them
/// have older ones only.
fn merged(
    tx: &mut Tx,
    values: &Values,
    sources: &[Source],
    after: Position,
    limit: i64,
) -> Result<Vec<Place>, Error> {
    let mut ranges = Vec::new();
    for source in sources {
        let heads = heads(tx, values, *source, after)?;
        ranges.extend(heads.into_iter().map(|(key, head)| (head, *source, key)));
    }
    ranges.sort_unstable_by_key(|(head, ..)| Reverse(*head));

    if tx.is_shared() {
        return merged_at_once(tx, values, &ranges, after, limit);
    }

    let mut places: Vec<Place> = Vec::new();
    for (head, source, key) in ranges {
        let is_full = places.len() as i64 == limit;
        let oldest = places.last().filter(|_| is_full).map_or(0, |(at, _)| *at);
        if is_full && head < oldest {
            break;
        }

        let sql = source.newest_of_range();
        let at = after.at_micros();
        let further: [&dyn Param; 5] = [&key, &oldest, &at, &after.id, &limit];
        places.extend(tx.all::<Place>(sql, &values.with(&further))?);
        newest(&mut places, limit);
    }

    Ok(places)
}

/// Returns the ranges of a source that have calls at or before a position, each with the start of the newest of these.
fn heads(
    tx: &mut Tx,
    values: &Values,
    source: Source,
    after: Position,
) -> Result<Vec<(i64, i64)>, Error> {
    let sql = source.heads();
    let until = values.to.min(after.at_micros());
    let rows: Vec<(i64, Option<i64>)> = tx.all(sql, &values.with(&[&until]))?;
    Ok(rows
        .into_iter()
        .filter_map(|(key, head)| Some((key, head?)))
        .collect())
}

/// Does the same as the end of [`merged`], in one round trip a source.
fn merged_at_once(
    tx: &mut Tx,
    values: &Values,
    ranges: &[(i64, Source, i64)],
    after: Position,
    limit: i64,
) -> Result<Vec<Place>, Error> {
    let ranges = match values.are_told_by_ranges() {
        // Each head is a match, unless it is as old as the position: so many ranges have as many matches, and those with older heads have
        // older calls only.
        true => {
            let as_old = ranges
                .iter()
                .filter(|(head, ..)| *head == after.at_micros());
            let needed = as_old.count() + usize::try_from(limit).unwrap_or_default();
            let oldest = ranges.get(needed).map_or(0, |(head, ..)| *head);
            &ranges[..ranges.partition_point(|(head, ..)| *head >= oldest)]
        }
        false => ranges,
    };

    let mut places: Vec<Place> = Vec::new();
    for source in [Source::Lists].into_iter().chain(Source::NUMBERS) {
        let keys = ranges.iter().filter(|(_, of, _)| *of == source);
        let keys: Vec<String> = keys.map(|(.., key)| key.to_string()).collect();
        if keys.is_empty() {
            continue;
        }

        let sql = source.newest_of_ranges();
        let at = after.at_micros();
        let keys = keys.join(",");
        let further: [&dyn Param; 4] = [&keys, &at, &after.id, &limit];
        places.extend(tx.all::<Place>(sql, &values.with(&further))?);
    }

    newest(&mut places, limit);
    Ok(places)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// Returns the steps of SQLite's plan that read calls.
    fn reads(database: &Connection, sql: &str) -> Vec<String> {
        let mut explained = database
            .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
            .unwrap();
        let mut rows = explained.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            steps.push(row.get::<_, String>("detail").unwrap());
        }
        let is_table = |step: &String| step.contains(" calls") || step.starts_with("SCAN call_");
        steps.into_iter().filter(is_table).collect()
    }

    #[test]
    fn each_search_reads_ranges_of_its_own_index() {
        let database = Connection::open_in_memory().unwrap();
        let schema = include_str!("../../../migrations/sqlite/0001_schema.sql");
        database.execute_batch(schema).unwrap();
        let indexes = [
            "calls_from",
            "calls_to",
            "calls_from_as_sent",
            "calls_to_as_sent",
        ];
        let numbers = ["from_e164", "to_e164", "from_number", "to_number"];

        for source in [Source::Lists].into_iter().chain(Source::NUMBERS) {
            let searched = match source {
                Source::Lists => "calls_of_list (list=?".to_owned(),
                Source::Number(which) => {
                    format!("{} (block=? AND {}=?", indexes[which], numbers[which])
                }
            };
            for (sql, range) in [
                (source.heads(), " AND started_at>? AND started_at<?)"),
                (
                    source.newest_of_range(),
                    " AND started_at>? AND started_at<?)",
                ),
                (
                    counted(Dialect::Sqlite, &[source], ALL),
                    " AND started_at>? AND started_at<?)",
                ),
                (
                    counted(Dialect::Sqlite, &[source], REST),
                    " AND started_at>? AND started_at<?)",
                ),
            ] {
                let steps = reads(&database, &sql);
                let [step] = &*steps else {
                    panic!("{steps:?}: {sql}");
                };
                assert!(
                    step.contains(&format!("{searched}{range}")),
                    "{step}: {sql}"
                );
            }
        }

        let all = few(Dialect::Sqlite);
        for (step, index) in reads(&database, &all).iter().zip(indexes) {
            assert!(step.contains(&format!("{index} (block=?")), "{step}");
        }
    }
}
