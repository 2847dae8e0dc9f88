//! Peers that the operator has tied to an org: the org may name them even though they are reserved or private.

use trunkline_model::peer_pattern::PeerPattern;
use trunkline_model::tied::TiedPeers;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::change::Change;
use crate::driver::column::{from_row, moment, parsed};
use crate::driver::edit::lock_org;
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::tx::Tx;

/// A tied peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TiedPeer {
    /// The org that may name it.
    pub org_id: Uuid,
    /// The peer.
    pub peer: PeerPattern,
    /// Time of creation.
    pub created_at: Moment,
}
from_row!(TiedPeer {
    org_id,
    peer: parsed,
    created_at: moment
});

/// Ties a peer to the org; repeating it changes nothing.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org.
pub fn tie(tx: &mut Tx, org: Uuid, peer: &PeerPattern, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "INSERT INTO tied_peers (org_id, peer, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    tx.run(sql, &[&org, &peer.to_string(), &now])?;
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Returns the org's tied peers.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(tx: &mut Tx, org: Uuid) -> Result<Vec<TiedPeer>, Error> {
    let sql = "SELECT * FROM tied_peers WHERE org_id = $1 ORDER BY peer";
    tx.all(sql, &[&org])
}

/// Ends a tie.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn untie(tx: &mut Tx, org: Uuid, peer: &PeerPattern, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "DELETE FROM tied_peers WHERE org_id = $1 AND peer = $2";
    if tx.run(sql, &[&org, &peer.to_string()])? == 0 {
        return Err(Wrong::Absent(Kind::TiedPeer).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Returns the tied peers in the form in which addresses are judged.
pub fn together(tied: &[TiedPeer]) -> TiedPeers {
    TiedPeers::new(tied.iter().map(|tied| tied.peer.clone()).collect())
}
