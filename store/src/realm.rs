//! The realm of our digest challenges: PBXs keep hashes that were made with it, so an installation keeps the one that it has used.

use super::Store;
use super::error::Error;
use super::pool::{execute, fetch_one, fetch_optional};

const READ: &str = "SELECT value FROM installation WHERE id = 'realm'";

impl Store {
    /// The realm that challenges of this installation have named; `None` before its first start.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn realm(&self) -> Result<Option<String>, Error> {
        let mut reading = self.pool().read().await?;
        let row: Option<(String,)> = fetch_optional!(reading, READ)?;
        Ok(row.map(|(realm,)| realm))
    }

    /// The realm from now on: the configured one, else the one that was used before, else `default`. Nodes that start at once agree.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn keep_realm(
        &self,
        configured: Option<&str>,
        default: &str,
    ) -> Result<String, Error> {
        let mut writing = self.pool().write().await?;
        let sql =
            "INSERT INTO installation (id, value) VALUES ('realm', $1) ON CONFLICT DO NOTHING";
        execute!(writing, sql, configured.unwrap_or(default))?;
        if let Some(realm) = configured {
            let sql = "UPDATE installation SET value = $1 WHERE id = 'realm' AND value <> $1";
            execute!(writing, sql, realm)?;
        }
        let (realm,): (String,) = fetch_one!(writing, READ)?;
        writing.commit_aside().await?;
        Ok(realm)
    }
}
