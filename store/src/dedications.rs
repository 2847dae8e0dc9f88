//! Source networks that the operator has dedicated to one org: whoever calls from there needs no credentials.

use ipnet::IpNet;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{from_row, micros, moment, parsed};
use super::error::{Error, Kind, Refused, Wrong};
use super::pool::{execute, fetch_all, fetch_one};
use super::{Change, Store};

/// A dedicated network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dedication {
    /// The network.
    pub network: IpNet,
    /// Whose it is.
    pub org_id: Uuid,
    /// Since when.
    pub created_at: Moment,
}
from_row!(Dedication {
    network: parsed,
    org_id,
    created_at: moment
});

/// The dedicated networks.
#[derive(Copy, Clone, Debug)]
pub struct Dedications<'s>(&'s Store);

impl Store {
    /// The dedicated networks.
    pub fn dedications(&self) -> Dedications<'_> {
        Dedications(self)
    }
}

impl Dedications<'_> {
    /// Dedicates a network to the org; again changes nothing.
    ///
    /// # Errors
    /// [`Wrong::Absent`] if there is no such org, [`Refused::NetworkDedicated`].
    pub async fn create(self, org: Uuid, network: IpNet, now: Moment) -> Result<Dedication, Error> {
        let mut writing = self.0.edit(org).await?;
        let network = network.trunc();
        let sql = "INSERT INTO dedications (network, org_id, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        execute!(writing, sql, network.to_string(), org, micros(now))?;
        let sql = "SELECT * FROM dedications WHERE network = $1";
        let dedication: Dedication = fetch_one!(writing, sql, network.to_string())?;
        if dedication.org_id != org {
            return Err(Refused::NetworkDedicated {
                network,
                org: dedication.org_id,
            }
            .into());
        }
        self.0.commit(writing, &[Change::Org(org)], now).await?;
        Ok(dedication)
    }

    /// The org's networks, oldest first.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn list(self, org: Uuid) -> Result<Vec<Dedication>, Error> {
        let mut reading = self.0.pool().read().await?;
        fetch_all!(
            reading,
            "SELECT * FROM dedications WHERE org_id = $1 ORDER BY created_at, network",
            org
        )
    }

    /// Takes a network back.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn delete(self, org: Uuid, network: IpNet, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.edit(org).await?;
        let sql = "DELETE FROM dedications WHERE org_id = $1 AND network = $2";
        if execute!(writing, sql, org, network.trunc().to_string())? == 0 {
            return Err(Wrong::Absent(Kind::Dedication).into());
        }
        self.0.commit(writing, &[Change::Org(org)], now).await
    }
}
