//! The change feed: each change commits together with its row, and readers follow the rows by number.
//!
//! Numbers must become visible in their order, or a reader that has seen 8 would never see a 7 that commits later. SQLite has one writer at
//! a time. On PostgreSQL the number is drawn under an advisory lock that is held until the commit, as the last statement of the
//! transaction, so that no transaction waits for it while it blocks another.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::change::Change;
use super::column::from_row;
use super::error::Error;
use super::tx::Tx;

/// Time for which rows are kept; a reader that was away for longer has to start anew.
pub const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Lock that serialises the numbering on PostgreSQL.
const LOCK: i64 = 0x7472_756e_6b00_0002;
/// Channel of notifications to other nodes.
pub(crate) const CHANNEL: &str = "trunkline_changes";

/// Changes that one query reads.
macro_rules! at_once {
    () => {
        1000
    };
}

/// Changes for a reader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Number to read on from.
    pub seq: i64,
    /// Changes in the order of their commits.
    pub changes: Vec<Change>,
    /// Rows that this reader hasn't seen were pruned: it must read all its data anew.
    pub missed: bool,
    /// There are further changes.
    pub more: bool,
}

#[derive(Debug)]
struct Row {
    seq: i64,
    org_id: Option<Uuid>,
    kind: String,
    entity_id: Option<Uuid>,
}
from_row!(Row {
    seq,
    org_id,
    kind,
    entity_id
});

/// Adds rows to a transaction, as its last statements; returns the number of the last.
pub(crate) fn append(tx: &mut Tx, changes: &[Change], now: Moment) -> Result<i64, Error> {
    if tx.is_shared() {
        tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    }

    let mut last = 0;
    for change in changes {
        let (org, kind, entity) = change.columns();
        let sql = "INSERT INTO changes (org_id, kind, entity_id, at) VALUES ($1, $2, $3, $4) RETURNING seq";
        (last,) = tx.exactly_one(sql, &[&org, &kind, &entity, &now])?;
    }
    // The server delivers the notification when the transaction commits, and not at all if the commit fails.
    if tx.is_shared() {
        tx.run("SELECT pg_notify($1, '')", &[&CHANNEL])?;
    }
    Ok(last)
}

/// Returns the number of the last change. A new reader reads this, then all data, then follows from this number.
///
/// # Errors
/// [`Broke`](super::error::Broke): the database fails.
pub fn position(tx: &mut Tx) -> Result<i64, Error> {
    let sql = "SELECT COALESCE((SELECT MAX(seq) FROM changes), (SELECT seq FROM changes_pruned))";
    let (seq,) = tx.exactly_one(sql, &[])?;
    Ok(seq)
}

/// Returns the changes after `seq`.
///
/// # Errors
/// [`Broke`](super::error::Broke): the database fails.
pub fn since(tx: &mut Tx, seq: i64) -> Result<Changes, Error> {
    // Rows and mark must be of one state: a pruning between the two queries would count as missed by this reader.
    tx.snapshot()?;
    let sql = concat!(
        "SELECT seq, org_id, kind, entity_id FROM changes WHERE seq > $1 ORDER BY seq LIMIT ",
        at_once!()
    );

    let rows: Vec<Row> = tx.all(sql, &[&seq])?;
    let (pruned,): (i64,) = tx.exactly_one("SELECT seq FROM changes_pruned", &[])?;

    Ok(Changes {
        // Without further rows the reader goes on at the mark. Otherwise each call would report the pruned rows as missed again.
        seq: rows.last().map_or(seq.max(pruned), |row| row.seq),
        changes: rows.iter().filter_map(Row::change).collect(),
        missed: seq < pruned,
        more: rows.len() == at_once!(),
    })
}

/// Returns the time of the oldest change after `seq`; `None` if there is none.
///
/// # Errors
/// [`Broke`](super::error::Broke): the database fails.
pub fn oldest_after(tx: &mut Tx, seq: i64) -> Result<Option<Moment>, Error> {
    // The lowest number belongs to the oldest change, apart from differences between clocks, and needs no scan.
    let sql = "SELECT at FROM changes WHERE seq > $1 ORDER BY seq LIMIT 1";
    let oldest: Option<(i64,)> = tx.one(sql, &[&seq])?;
    let micros = oldest.and_then(|(micros,)| u64::try_from(micros).ok());
    Ok(micros.map(Moment::from_micros))
}

/// Deletes rows older than [`KEPT`].
///
/// # Errors
/// [`Broke`](super::error::Broke): the database fails.
pub fn prune(tx: &mut Tx, now: Moment) -> Result<(), Error> {
    let sql = "UPDATE changes_pruned SET seq = COALESCE((SELECT MAX(seq) FROM changes WHERE at < $1), seq)";
    // The mark is set first, and rows are deleted by its number. Where clocks differ, a younger row below an old one is
    // deleted too, and the mark covers it.
    tx.run(sql, &[&(now - KEPT)])?;
    tx.run(
        "DELETE FROM changes WHERE seq <= (SELECT seq FROM changes_pruned)",
        &[],
    )?;
    Ok(())
}

impl Row {
    /// Returns the change; `None` for a kind of a newer version, which this one needn't follow.
    fn change(&self) -> Option<Change> {
        match self.kind.as_str() {
            "org" => self.org_id.map(Change::Org),
            "org_key" => Some(Change::OrgKey {
                org: self.org_id?,
                key: self.entity_id?,
            }),
            "partner" => self.entity_id.map(Change::Partner),
            "partner_state" => self.entity_id.map(Change::PartnerState),
            "session" => self.org_id.map(Change::Session),
            "signing_keys" => Some(Change::SigningKeys),
            "contacts" => self.org_id.map(Change::Contacts),
            _ => None,
        }
    }
}
