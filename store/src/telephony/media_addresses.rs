//! Networks in which an org's PBX or carrier has its media, as the operator has listed them: audio goes there before any has come from there.

use ipnet::IpNet;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::change::Change;
use crate::driver::column::{from_row, moment, parsed};
use crate::driver::edit::lock_org;
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::tx::Tx;

/// A network of media.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MediaAddress {
    /// The org.
    pub org_id: Uuid,
    /// The network.
    pub network: IpNet,
    /// Time of creation.
    pub created_at: Moment,
}
from_row!(MediaAddress {
    org_id,
    network: parsed,
    created_at: moment
});

/// Lists a network for the org; repeating it changes nothing.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org.
pub fn add(tx: &mut Tx, org: Uuid, network: IpNet, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "INSERT INTO media_addresses (org_id, network, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    // `10.0.0.7/24` and `10.0.0.0/24` are one network, of which there may be one row.
    tx.run(sql, &[&org, &network.trunc().to_string(), &now])?;
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Returns the org's networks.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(tx: &mut Tx, org: Uuid) -> Result<Vec<MediaAddress>, Error> {
    let sql = "SELECT * FROM media_addresses WHERE org_id = $1 ORDER BY network";
    tx.all(sql, &[&org])
}

/// Takes a network off the org's list.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn remove(tx: &mut Tx, org: Uuid, network: IpNet, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "DELETE FROM media_addresses WHERE org_id = $1 AND network = $2";
    if tx.run(sql, &[&org, &network.trunc().to_string()])? == 0 {
        return Err(Wrong::Absent(Kind::MediaAddress).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}
