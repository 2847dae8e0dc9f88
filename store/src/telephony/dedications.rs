//! Source networks that the operator has dedicated to one org: calls from there need no credentials.

use ipnet::IpNet;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::change::Change;
use crate::driver::column::{from_row, moment, parsed};
use crate::driver::edit::lock_org;
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::tx::Tx;

/// A dedicated network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dedication {
    /// The network.
    pub network: IpNet,
    /// The org.
    pub org_id: Uuid,
    /// The operator vouches for the source of calls from there: over UDP they need no proof.
    pub no_proof: bool,
    /// Time of creation.
    pub created_at: Moment,
}
from_row!(Dedication {
    network: parsed,
    org_id,
    no_proof,
    created_at: moment
});

/// Dedicates a network to the org; dedicating it again changes `no_proof` alone, if that is given.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::NetworkDedicated`].
pub fn create(
    tx: &mut Tx,
    org: Uuid,
    network: IpNet,
    no_proof: Option<bool>,
    now: Moment,
) -> Result<Dedication, Error> {
    lock_org(tx, org)?;
    // `10.0.0.7/24` and `10.0.0.0/24` are one network, of which there may be one row.
    let network = network.trunc();
    let sql = "INSERT INTO dedications (network, org_id, no_proof, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
    let wanted = no_proof.unwrap_or_default();
    tx.run(sql, &[&network.to_string(), &org, &wanted, &now])?;

    // The insert changes nothing if the network is dedicated already, perhaps to another org.
    let sql = "SELECT * FROM dedications WHERE network = $1";
    let mut dedication: Dedication = tx.exactly_one(sql, &[&network.to_string()])?;
    if dedication.org_id != org {
        return Err(Conflict::NetworkDedicated {
            network,
            org: dedication.org_id,
        }
        .into());
    }

    if let Some(no_proof) = no_proof.filter(|wanted| *wanted != dedication.no_proof) {
        let sql = "UPDATE dedications SET no_proof = $2 WHERE network = $1";
        tx.run(sql, &[&network.to_string(), &no_proof])?;
        dedication.no_proof = no_proof;
    }
    tx.changed(Change::Org(org), now);
    Ok(dedication)
}

/// Returns the org's networks, oldest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(tx: &mut Tx, org: Uuid) -> Result<Vec<Dedication>, Error> {
    tx.all(
        "SELECT * FROM dedications WHERE org_id = $1 ORDER BY created_at, network",
        &[&org],
    )
}

/// Ends the dedication of a network.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn delete(tx: &mut Tx, org: Uuid, network: IpNet, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "DELETE FROM dedications WHERE org_id = $1 AND network = $2";
    if tx.run(sql, &[&org, &network.trunc().to_string()])? == 0 {
        return Err(Wrong::Absent(Kind::Dedication).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}
