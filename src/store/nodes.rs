//! The processes that serve: which run of a node is on, and how long it is trusted to be alive.

use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::Store;
use super::column::{from_row, micros};
use super::error::{Error, Refused};
use super::pool::{Writing, execute, fetch_all, fetch_optional};
use crate::journal::Origin;

/// Serialises starts on PostgreSQL.
const LOCK: i64 = 0x7472_756e_6b00_0004;

/// The nodes.
#[derive(Copy, Clone, Debug)]
pub struct Nodes<'s>(&'s Store);

impl Store {
    /// The nodes.
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes(self)
    }
}

struct Row {
    node: i64,
    boot: i64,
    host: String,
    lease_expires_at: i64,
    sees: Option<String>,
}
from_row!(Row {
    node,
    boot,
    host,
    lease_expires_at,
    sees
});

/// A node that serves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Serving {
    /// Its run.
    pub run: Origin,
    /// The runs that it counts in when work is shared out, and has left theirs to.
    pub sees: Vec<Origin>,
}

impl Nodes<'_> {
    /// Begins the node's next run. `host` tells processes apart: the same one may start again at once, another one when the lease
    /// has expired.
    ///
    /// # Errors
    /// [`Refused::NodeServed`] if another host serves as this node.
    pub async fn begin(
        self,
        node: u8,
        host: &str,
        lease: Duration,
        now: Moment,
    ) -> Result<Origin, Error> {
        let mut writing = self.0.pool().write().await?;
        if matches!(writing, Writing::Postgres(_)) {
            execute!(writing, "SELECT pg_advisory_xact_lock($1)", LOCK)?;
        }
        let sql = "SELECT * FROM nodes WHERE node = $1";
        let before: Option<Row> = fetch_optional!(writing, sql, i64::from(node))?;
        if let Some(other) = &before
            && other.host != host
            && other.lease_expires_at >= micros(now)
        {
            return Err(Refused::NodeServed {
                node,
                host: other.host.clone(),
            }
            .into());
        }
        let boot = before.map_or(0, |before| before.boot) + 1;
        execute!(
            writing,
            "INSERT INTO nodes (node, boot, host, started_at, lease_expires_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (node) DO UPDATE SET boot = excluded.boot, host = excluded.host,
                 started_at = excluded.started_at, lease_expires_at = excluded.lease_expires_at, drains_since = NULL,
                 sees = NULL",
            i64::from(node),
            boot,
            host,
            micros(now),
            micros(now + lease),
        )?;
        writing.commit().await?;
        Ok(Origin { node, boot })
    }

    /// Says that the run takes nothing new: what one node does for all is for another.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn drain(self, run: Origin, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "UPDATE nodes SET drains_since = $3 WHERE node = $1 AND boot = $2";
        execute!(writing, sql, i64::from(run.node), run.boot, micros(now))?;
        writing.commit().await
    }

    /// Extends the lease, or with none ends it; `false`: another run has begun.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn renew(self, run: Origin, lease: Duration, now: Moment) -> Result<bool, Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "UPDATE nodes SET lease_expires_at = $3 WHERE node = $1 AND boot = $2";
        let renewed = execute!(
            writing,
            sql,
            i64::from(run.node),
            run.boot,
            micros(now + lease)
        )?;
        writing.commit().await?;
        Ok(renewed == 1)
    }

    /// The nodes that serve now and go on with it, in the order of their numbers.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn serving(self, now: Moment) -> Result<Vec<Serving>, Error> {
        let mut reading = self.0.pool().read().await?;
        let sql = "SELECT * FROM nodes WHERE lease_expires_at >= $1 AND drains_since IS NULL ORDER BY node";
        let rows: Vec<Row> = fetch_all!(reading, sql, micros(now))?;
        let nodes = rows.iter().filter_map(|row| {
            let node = u8::try_from(row.node).ok()?;
            let run = Origin {
                node,
                boot: row.boot,
            };
            let sees = row.sees.as_deref().map(seen).unwrap_or_default();
            Some(Serving { run, sees })
        });
        Ok(nodes.collect())
    }

    /// Says which runs a run counts in from now on.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn see(self, run: Origin, sees: &[Origin]) -> Result<(), Error> {
        let sees: Vec<String> = sees
            .iter()
            .map(|run| format!("{}.{}", run.node, run.boot))
            .collect();
        let mut writing = self.0.pool().write().await?;
        let sql = "UPDATE nodes SET sees = $3 WHERE node = $1 AND boot = $2";
        execute!(writing, sql, i64::from(run.node), run.boot, sees.join(" "))?;
        writing.commit().await
    }

    /// The runs whose lease has expired while calls of theirs are open; those are for others to close.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn expired(self, now: Moment) -> Result<Vec<Origin>, Error> {
        let mut reading = self.0.pool().read().await?;
        let sql = "SELECT * FROM nodes WHERE lease_expires_at < $1 AND EXISTS (
                SELECT 1 FROM calls WHERE calls.node = nodes.node AND calls.boot <= nodes.boot AND calls.ended_at IS NULL
            ) ORDER BY node";
        let rows: Vec<Row> = fetch_all!(reading, sql, micros(now))?;
        let runs = rows.iter().filter_map(|row| {
            Some(Origin {
                node: u8::try_from(row.node).ok()?,
                boot: row.boot,
            })
        });
        Ok(runs.collect())
    }
}

/// `node.boot` of each run.
fn seen(sees: &str) -> Vec<Origin> {
    let run = |text: &str| {
        let (node, boot) = text.split_once('.')?;
        Some(Origin {
            node: node.parse().ok()?,
            boot: boot.parse().ok()?,
        })
    };
    sees.split(' ').filter_map(run).collect()
}
