//! What time it is for the database.

use trunkline_sip::moment::Moment;

use super::Store;
use super::column::moment;
use super::error::Error;
use super::pool::fetch_one;

impl Store {
    /// The database's clock; `None` for one that is part of this process.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn clock(&self) -> Result<Option<Moment>, Error> {
        if !self.is_shared() {
            return Ok(None);
        }
        let mut reading = self.pool().read().await?;
        let (micros,): (i64,) = fetch_one!(
            reading,
            "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
        )?;
        Ok(moment(micros).ok())
    }
}
