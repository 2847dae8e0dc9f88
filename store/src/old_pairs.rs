//! Credentials of inbound trunks from before a rotation, which work for a day unless they are ended.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Change;
use super::column::{from_row, micros, moment};
use super::error::Error;
use super::inbound_trunks::InboundTrunks;
use super::pool::{execute, fetch_all};

/// A pair from before a rotation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OldPair {
    /// Digest user name.
    pub username: String,
    /// Until when it works.
    pub expires_at: Moment,
}
from_row!(OldPair {
    username,
    expires_at: moment
});

impl InboundTrunks<'_> {
    /// The pairs from before a rotation that still work: user name, and until when; the last one to end first.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn old_pairs(self, org: Uuid, now: Moment) -> Result<Vec<OldPair>, Error> {
        let mut reading = self.0.pool().peek().await?;
        fetch_all!(
            reading,
            "SELECT username, expires_at FROM old_credentials WHERE org_id = $1 AND expires_at > $2 ORDER BY expires_at DESC, username",
            org,
            micros(now)
        )
    }

    /// Ends the pairs from before a rotation at once.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn end_old_pairs(self, org: Uuid, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.edit(org).await?;
        execute!(
            writing,
            "DELETE FROM old_credentials WHERE org_id = $1",
            org
        )?;
        self.0.commit(writing, &[Change::Org(org)], now).await
    }
}
