//! The change feed: a write and its row commit together, and readers follow the rows by number.
//!
//! Numbers must become visible in their order, or a reader that has seen 8 would never see a 7 that commits later. SQLite has
//! one writer at a time. On PostgreSQL the number is drawn under an advisory lock that is held until the commit, as the last
//! statement of the transaction, so that no one waits for it while holding up another.

use std::time::Duration;

use sqlx::postgres::PgListener;
use tokio::sync::watch;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Store;
use super::column::from_row;
use super::error::Error;
pub use super::in_force::Follower;
use super::pool::Pool;
use super::tx::Tx;

/// How long rows are kept; a reader that was away for longer starts anew.
pub const KEPT: Duration = Duration::from_secs(24 * 3600);

/// Serialises the numbering on PostgreSQL.
const LOCK: i64 = 0x7472_756e_6b00_0002;
const CHANNEL: &str = "trunkline_changes";

/// Changes that are read at once.
macro_rules! at_once {
    () => {
        1000
    };
}

/// What changed.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// Something of this org that routing or digest reads: the org itself, an agent, a number, a trunk.
    Org(Uuid),
    /// An API key of the org was made or revoked.
    OrgKey {
        /// The org.
        org: Uuid,
        /// The key.
        key: Uuid,
    },
    /// A partner, or one of its keys.
    Partner(Uuid),
    /// A partner became active or inactive, and so did its orgs.
    PartnerState(Uuid),
    /// A session of the org's dashboard has ended.
    Session(Uuid),
    /// Another key signs tokens.
    SigningKeys,
    /// Contacts of the org were deleted.
    Contacts(Uuid),
}

/// What a reader gets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changes {
    /// Read on from here.
    pub seq: i64,
    /// In the order of their commits.
    pub changes: Vec<Change>,
    /// Rows were pruned that this reader hasn't seen: whatever it holds must be read anew.
    pub missed: bool,
    /// There are more than are read at once.
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

/// Adds rows to a transaction, as its last statements; gives the number of the last.
pub(super) fn append(tx: &mut Tx, changes: &[Change], now: Moment) -> Result<i64, Error> {
    if tx.is_shared() {
        tx.run("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    }
    let mut last = 0;
    for change in changes {
        let (org, kind, entity) = change.columns();
        let sql = "INSERT INTO changes (org_id, kind, entity_id, at) VALUES ($1, $2, $3, $4) RETURNING seq";
        (last,) = tx.only(sql, &[&org, &kind, &entity, &now])?;
    }
    if tx.is_shared() {
        tx.run("SELECT pg_notify($1, '')", &[&CHANNEL])?;
    }
    Ok(last)
}

/// The number of the last change: read it, then everything, then follow from it.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn position(tx: &mut Tx) -> Result<i64, Error> {
    let sql = "SELECT COALESCE((SELECT MAX(seq) FROM changes), (SELECT seq FROM changes_pruned))";
    let (seq,) = tx.only(sql, &[])?;
    Ok(seq)
}

/// What has changed since `seq`.
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn since(tx: &mut Tx, seq: i64) -> Result<Changes, Error> {
    tx.snapshot()?;
    let sql = concat!(
        "SELECT seq, org_id, kind, entity_id FROM changes WHERE seq > $1 ORDER BY seq LIMIT ",
        at_once!()
    );
    let rows: Vec<Row> = tx.all(sql, &[&seq])?;
    let (pruned,): (i64,) = tx.only("SELECT seq FROM changes_pruned", &[])?;
    Ok(Changes {
        seq: rows.last().map_or(seq.max(pruned), |row| row.seq),
        changes: rows.iter().filter_map(Row::change).collect(),
        missed: seq < pruned,
        more: rows.len() == at_once!(),
    })
}

/// Forgets what is older than [`KEPT`].
///
/// # Errors
/// [`Broke`](super::Broke) alone.
pub fn prune(tx: &mut Tx, now: Moment) -> Result<(), Error> {
    let sql = "UPDATE changes_pruned SET seq = COALESCE((SELECT MAX(seq) FROM changes WHERE at < $1), seq)";
    tx.run(sql, &[&(now - KEPT)])?;
    tx.run(
        "DELETE FROM changes WHERE seq <= (SELECT seq FROM changes_pruned)",
        &[],
    )?;
    Ok(())
}

impl Store {
    /// Makes those who write from this process wait until this follower has applied their change.
    pub fn follower(&self) -> Follower {
        self.followers().add()
    }

    /// Starts listening for changes.
    pub async fn follow_changes(&self) -> Signal {
        Signal::of(self.pool(), self.changed(), CHANNEL).await
    }
}

async fn listen(pool: &sqlx::PgPool, channel: &str) -> sqlx::Result<PgListener> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(channel).await?;
    Ok(listener)
}

/// Says when to look: at once for changes of this process and, on PostgreSQL, of every other; what else writes (the command
/// line on SQLite, a node while the listener was cut) is seen by looking every [`Signal::POLL`].
#[derive(Debug)]
pub struct Signal {
    local: watch::Receiver<u64>,
    listener: Option<PgListener>,
}

impl Signal {
    /// How long an unannounced change may go unseen.
    pub const POLL: Duration = Duration::from_millis(500);

    /// Of what `local` counts in this process, and others announce on `channel`.
    pub(super) async fn of(pool: &Pool, local: watch::Receiver<u64>, channel: &str) -> Self {
        let listener = match pool.remote() {
            None => None,
            Some(remote) => listen(remote.listening(), channel).await.ok(),
        };
        Self { local, listener }
    }

    /// Waits until it is worth looking.
    pub async fn wait(&mut self) {
        tokio::select! {
            Ok(()) = self.local.changed() => {}
            () = notified(&mut self.listener) => {}
            () = tokio::time::sleep(Self::POLL) => {}
        }
    }
}

/// A cut listener reconnects at the next call; until then the poll has its turn. That of a pool that closes is dropped, since
/// the pool waits for its connection.
async fn notified(listener: &mut Option<PgListener>) {
    if let Some(listening) = listener {
        match listening.recv().await {
            Ok(_) => return,
            Err(sqlx::Error::PoolClosed) => *listener = None,
            Err(_) => {}
        }
    }
    std::future::pending().await
}

impl Change {
    const fn columns(self) -> (Option<Uuid>, &'static str, Option<Uuid>) {
        match self {
            Self::Org(org) => (Some(org), "org", None),
            Self::OrgKey { org, key } => (Some(org), "org_key", Some(key)),
            Self::Partner(partner) => (None, "partner", Some(partner)),
            Self::PartnerState(partner) => (None, "partner_state", Some(partner)),
            Self::Session(org) => (Some(org), "session", None),
            Self::SigningKeys => (None, "signing_keys", None),
            Self::Contacts(org) => (Some(org), "contacts", None),
        }
    }
}

impl Row {
    /// `None` for a kind that a newer node writes and this one need not follow.
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
