//! Nodes: the run of each node, and its lease, by the clock of the database.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;

use crate::driver::clock::{by_its_clock, length};
use crate::driver::column::{count, from_row, moment};
use crate::driver::error::{Conflict, Error};
use crate::driver::tx::Tx;
use crate::journal::Origin;

/// Lock that serialises starts on PostgreSQL.
const LOCK: i64 = 0x7472_756e_6b00_0004;

/// Process that ran last as a node, and whether its lease is still valid.
struct Holder {
    boot: i64,
    host: String,
    is_held: bool,
}
from_row!(Holder {
    boot,
    host,
    is_held
});

/// State of a node.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It renews its lease.
    Serving,
    /// It serves its last calls, and still renews its lease.
    Draining,
    /// It was draining, and its lease has ended: it reported its end, or was killed while it drained.
    Ended,
    /// Its lease has expired, and it wasn't draining: it was killed, hangs, or can't reach the database.
    Silent,
}

impl NodeState {
    /// Returns the name as the API has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Draining => "draining",
            Self::Ended => "ended",
            Self::Silent => "silent",
        }
    }
}

/// A node as the database knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeStatus {
    /// The node.
    pub node: u8,
    /// Host of its process.
    pub host: String,
    /// State.
    pub state: NodeState,
    /// Start of its last run.
    pub started_at: Moment,
    /// End of its lease.
    pub lease_expires_at: Moment,
    /// Calls that are up on it, as far as the database knows.
    pub calls: u32,
}

struct Known {
    node: u8,
    host: String,
    is_held: bool,
    drains: bool,
    started_at: Moment,
    lease_expires_at: Moment,
    calls: u32,
}
from_row!(Known {
    node: |node: i64| Ok(u8::try_from(node)?),
    host,
    is_held,
    drains,
    started_at: moment,
    lease_expires_at: moment,
    calls: count,
});

impl From<Known> for NodeStatus {
    fn from(known: Known) -> Self {
        Self {
            node: known.node,
            host: known.host,
            state: match (known.is_held, known.drains) {
                (true, false) => NodeState::Serving,
                (true, true) => NodeState::Draining,
                (false, true) => NodeState::Ended,
                (false, false) => NodeState::Silent,
            },
            started_at: known.started_at,
            lease_expires_at: known.lease_expires_at,
            calls: known.calls,
        }
    }
}

/// A node whose lease has expired although it wasn't draining, and the time at which it did.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SilentNode {
    /// The node.
    pub node: u8,
    /// Time at which its lease expired.
    pub since: Moment,
}
from_row!(SilentNode {
    node: |node: i64| Ok(u8::try_from(node)?),
    since: moment,
});

struct Row {
    node: i64,
    boot: i64,
    sees: Option<String>,
    sip_hosts: Option<String>,
}
from_row!(Row {
    node,
    boot,
    sees,
    sip_hosts
});

struct Run {
    node: i64,
    boot: i64,
}
from_row!(Run { node, boot });

struct Lease {
    until: Moment,
}
from_row!(Lease { until: moment });

/// Result of renewing a lease.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The lease had not expired.
    Held,
    /// The lease had expired: other nodes may have taken over this one's work.
    Lapsed,
    /// Another run of the node has begun, and has the lease.
    Replaced,
}

/// A node that serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Serving {
    /// The node's run.
    pub run: Origin,
    /// Runs that the node has seen: it counts them in when work is divided, and has registered its own share of the outbound trunks.
    pub sees: Vec<Origin>,
    /// Host and port of each of its SIP listeners, as its Contacts name them.
    pub sip_hosts: Vec<String>,
}

/// Begins the node's next run. `host` identifies the process's host: the same host may start the node again at once, another host only when
/// the lease has expired.
///
/// # Errors
/// [`Conflict::NodeServed`] if another host serves as this node.
pub fn begin(tx: &mut Tx, node: u8, host: &str, lease: Duration) -> Result<Origin, Error> {
    if tx.is_shared() {
        // A node that never ran has no row that could be locked.
        tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    }

    let sql = by_its_clock!(
        tx,
        "SELECT boot, host, lease_expires_at >= ",
        " AS is_held FROM nodes WHERE node = $1"
    );
    let before: Option<Holder> = tx.one(sql, &[&node])?;
    if let Some(other) = &before
        && other.host != host
        && other.is_held
    {
        return Err(Conflict::NodeServed {
            node,
            host: other.host.clone(),
        }
        .into());
    }

    // Counted up with each run, so that calls and facts name the run that they belong to.
    let boot = before.map_or(0, |before| before.boot) + 1;

    let sql = by_its_clock!(
        tx,
        "INSERT INTO nodes (node, boot, host, started_at, lease_expires_at) VALUES ($1, $2, $3, ",
        ", ",
        " + $4)
         ON CONFLICT (node) DO UPDATE SET boot = excluded.boot, host = excluded.host,
             started_at = excluded.started_at, lease_expires_at = excluded.lease_expires_at, drains_since = NULL,
             sees = NULL"
    );

    tx.run(sql, &[&node, &boot, &host, &length(lease)])?;
    Ok(Origin { node, boot })
}

/// Returns the time until which the last run of a node counted as alive: calls that it left open, and of which nothing better is known, ended no
/// later. Must be called before the next run begins.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn trusted_until(tx: &mut Tx, node: u8) -> Result<Option<Moment>, Error> {
    let sql = "SELECT lease_expires_at AS until FROM nodes WHERE node = $1";
    let lease: Option<Lease> = tx.one(sql, &[&node])?;
    Ok(lease.map(|lease| lease.until))
}

/// Marks the run as draining: it accepts nothing new, and leaves tasks that one node does for all to another.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn drain(tx: &mut Tx, run: Origin) -> Result<(), Error> {
    let sql = by_its_clock!(
        tx,
        "UPDATE nodes SET drains_since = ",
        " WHERE node = $1 AND boot = $2"
    );
    tx.run(sql, &[&run.node, &run.boot])?;
    Ok(())
}

/// Extends the lease from now on; a length of zero ends it.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn renew(tx: &mut Tx, run: Origin, lease: Duration) -> Result<Renewal, Error> {
    let sql = by_its_clock!(
        tx,
        "SELECT boot, host, lease_expires_at >= ",
        " AS is_held FROM nodes WHERE node = $1"
    );
    // Read first: the update hides whether the lease had expired.
    let before: Option<Holder> = tx.one(sql, &[&run.node])?;

    let sql = by_its_clock!(
        tx,
        "UPDATE nodes SET lease_expires_at = ",
        " + $3 WHERE node = $1 AND boot = $2"
    );
    // The condition on `boot` decides if another run begins after the query: nothing is extended then.
    let renewed = tx.run(sql, &[&run.node, &run.boot, &length(lease)])?;
    Ok(match before {
        Some(before) if renewed == 1 && before.is_held => Renewal::Held,
        Some(_) if renewed == 1 => Renewal::Lapsed,
        Some(_) | None => Renewal::Replaced,
    })
}

/// Notes that the run is alive, at this time of its clock of timers: the calls that it leaves open if it dies end no earlier.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn note_alive(tx: &mut Tx, run: Origin, at: Moment) -> Result<(), Error> {
    let sql = "UPDATE nodes SET alive_boot = $2, alive_at = $3 WHERE node = $1 AND boot = $2";
    tx.run(sql, &[&run.node, &run.boot, &at])?;
    Ok(())
}

/// Returns every node that ever served, in the order of their numbers.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn all(tx: &mut Tx) -> Result<Vec<NodeStatus>, Error> {
    let sql = by_its_clock!(
        tx,
        "SELECT node, host, started_at, lease_expires_at, drains_since IS NOT NULL AS drains, lease_expires_at >= ",
        " AS is_held, (SELECT COUNT(*) FROM calls WHERE calls.node = nodes.node AND calls.ended_at IS NULL) AS calls
         FROM nodes ORDER BY node"
    );
    let rows: Vec<Known> = tx.all(sql, &[])?;
    Ok(rows.into_iter().map(NodeStatus::from).collect())
}

/// Returns the nodes whose lease has expired, no longer than `within` ago, and that weren't draining.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn silent(tx: &mut Tx, within: Duration) -> Result<Vec<SilentNode>, Error> {
    let sql = by_its_clock!(
        tx,
        "SELECT node, lease_expires_at AS since FROM nodes WHERE drains_since IS NULL AND lease_expires_at < ",
        " AND lease_expires_at > ",
        " - $1 ORDER BY node"
    );
    tx.all(sql, &[&length(within)])
}

/// Returns the nodes that serve now and aren't draining, in the order of their numbers.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn serving(tx: &mut Tx) -> Result<Vec<Serving>, Error> {
    let sql = by_its_clock!(
        tx,
        "SELECT node, boot, sees, sip_hosts FROM nodes WHERE lease_expires_at >= ",
        " AND drains_since IS NULL ORDER BY node"
    );
    let rows: Vec<Row> = tx.all(sql, &[])?;
    let nodes = rows.iter().filter_map(|row| {
        let run = origin(row.node, row.boot)?;
        let sees = row.sees.as_deref().map(seen).unwrap_or_default();
        let hosts = row.sip_hosts.as_deref().unwrap_or_default();
        let sip_hosts = hosts.split_whitespace().map(str::to_owned).collect();
        Some(Serving {
            run,
            sees,
            sip_hosts,
        })
    });
    Ok(nodes.collect())
}

/// Stores the runs that a run has seen, and its own SIP hosts.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn see(tx: &mut Tx, run: Origin, sees: &[Origin], sip_hosts: &[String]) -> Result<(), Error> {
    let sees: Vec<String> = sees
        .iter()
        .map(|run| format!("{}.{}", run.node, run.boot))
        .collect();
    let sql = "UPDATE nodes SET sees = $3, sip_hosts = $4 WHERE node = $1 AND boot = $2";
    let (sees, hosts) = (sees.join(" "), sip_hosts.join(" "));
    tx.run(sql, &[&run.node, &run.boot, &sees, &hosts])?;
    Ok(())
}

/// Returns the runs whose lease has expired while calls of theirs are open; other nodes close these.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn expired(tx: &mut Tx) -> Result<Vec<Origin>, Error> {
    let sql = by_its_clock!(
        tx,
        "SELECT node, boot FROM nodes WHERE lease_expires_at < ",
        " AND EXISTS (
            SELECT 1 FROM calls WHERE calls.node = nodes.node AND calls.boot <= nodes.boot AND calls.ended_at IS NULL
        ) ORDER BY node"
    );
    let rows: Vec<Run> = tx.all(sql, &[])?;
    Ok(runs(&rows))
}

/// Returns the runs whose lease expired more than `grace` ago, and of whose lost calls no end has been recorded yet.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn given_up(tx: &mut Tx, grace: Duration) -> Result<Vec<Origin>, Error> {
    let sql = by_its_clock!(
        tx,
        "SELECT node, boot FROM nodes WHERE lease_expires_at < ",
        " - $1 AND EXISTS (
            SELECT 1 FROM calls WHERE calls.node = nodes.node AND calls.boot <= nodes.boot AND calls.lost_told = FALSE
        ) ORDER BY node"
    );
    let rows: Vec<Run> = tx.all(sql, &[&length(grace)])?;
    Ok(runs(&rows))
}

/// Returns other nodes than `own` whose lease expired more than `grace` ago while PBXs are still registered with them.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn left_registered(tx: &mut Tx, own: u8, grace: Duration) -> Result<Vec<u8>, Error> {
    let sql = by_its_clock!(
        tx,
        "SELECT node, boot FROM nodes WHERE lease_expires_at < ",
        " - $1 AND node <> $2 AND EXISTS (
            SELECT 1 FROM registrations WHERE registrations.node = nodes.node AND registrations.expires_at > ",
        ") ORDER BY node"
    );
    let rows: Vec<Run> = tx.all(sql, &[&length(grace), &own])?;
    Ok(runs(&rows).into_iter().map(|run| run.node).collect())
}

fn runs(rows: &[Run]) -> Vec<Origin> {
    rows.iter()
        .filter_map(|row| origin(row.node, row.boot))
        .collect()
}

fn origin(node: i64, boot: i64) -> Option<Origin> {
    let node = u8::try_from(node).ok()?;
    Some(Origin { node, boot })
}

/// Parses `node.boot` of each run.
fn seen(sees: &str) -> Vec<Origin> {
    let run = |text: &str| {
        let (node, boot) = text.split_once('.')?;
        origin(node.parse().ok()?, boot.parse().ok()?)
    };
    sees.split(' ').filter_map(run).collect()
}
