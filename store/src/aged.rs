//! Data of orgs that is older than its retention, deleted a bounded number of rows in each transaction, the oldest first.
//!
//! Usage of calls that go is counted on. A call that is up stays, and so does a contact that a call still names.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Change;
use super::column::micros;
use super::error::{Error, Kind, Wrong};
use super::orgs::Orgs;
use super::pool::{execute, fetch_all, fetch_optional};
use super::retention::{OF_ORG, Retained, RetentionDays, Row};

/// Rows that one transaction deletes or empties.
const ROWS_AT_ONCE: i64 = 500;
/// Contacts without a call that one look finds.
const CONTACTS_AT_ONCE: i64 = 10_000;

impl Orgs<'_> {
    /// The org's own days.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn retention(self, org: Uuid) -> Result<RetentionDays, Error> {
        let mut reading = self.0.pool().peek().await?;
        let row: Option<Row> = fetch_optional!(reading, OF_ORG, org)?;
        Ok(row.ok_or(Wrong::Absent(Kind::Org))?.days())
    }

    /// Orgs with data of this kind that is older than their days, and the time before which it goes. `default_days` are those of orgs
    /// without days of their own.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn over_retention(
        self,
        kind: Retained,
        default_days: Option<u32>,
        now: Moment,
    ) -> Result<Vec<(Uuid, Moment)>, Error> {
        let mut reading = self.0.pool().read().await?;
        let rows: Vec<(Uuid, i64)> = fetch_all!(
            reading,
            kind.over(),
            micros(now),
            default_days.map(i64::from)
        )?;
        let before = |at: i64| Moment::from_micros(at.max(0).unsigned_abs());
        Ok(rows
            .into_iter()
            .map(|(org, at)| (org, before(at)))
            .collect())
    }

    /// Deletes some of the org's data of this kind from before then. Returns how many rows went; none once nothing is left to delete.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn delete_before(
        self,
        org: Uuid,
        kind: Retained,
        before: Moment,
        now: Moment,
    ) -> Result<u64, Error> {
        match kind {
            Retained::Calls => self.delete_calls_before(org, before).await,
            Retained::Sessions => self.empty_sessions(org, before).await,
            Retained::Contacts => self.delete_contacts(org, before, now).await,
            Retained::Handoffs => {
                let mut writing = self.0.pool().write().await?;
                let sql = "DELETE FROM handoffs WHERE org_id = $1 AND created_at IN (
                    SELECT created_at FROM handoffs WHERE org_id = $1 AND created_at < $2 ORDER BY created_at LIMIT $3)";
                let rows = execute!(writing, sql, org, micros(before), ROWS_AT_ONCE)?;
                writing.commit().await?;
                Ok(rows)
            }
        }
    }

    /// Empties the sessions of calls that ended; one that is up holds up those behind it.
    async fn empty_sessions(self, org: Uuid, before: Moment) -> Result<u64, Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "SELECT started_at, ended_at IS NULL FROM calls
            WHERE org_id = $1 AND started_at > COALESCE((SELECT sessions_emptied_to FROM orgs WHERE id = $1), 0)
            AND started_at < $2 ORDER BY started_at LIMIT $3";
        let rows: Vec<(i64, bool)> = fetch_all!(writing, sql, org, micros(before), ROWS_AT_ONCE)?;
        let ended = rows.iter().take_while(|(_, is_up)| !is_up);
        let Some(last) = ended.map(|(at, _)| *at).last() else {
            return Ok(0);
        };
        let emptied = execute!(
            writing,
            "UPDATE calls SET headers = NULL, metadata = NULL, asked = NULL
             WHERE org_id = $1 AND started_at > COALESCE((SELECT sessions_emptied_to FROM orgs WHERE id = $1), 0)
             AND started_at <= $2 AND ended_at IS NOT NULL",
            org,
            last
        )?;
        let sql = "UPDATE orgs SET sessions_emptied_to = $2 WHERE id = $1";
        execute!(writing, sql, org, last)?;
        writing.commit().await?;
        Ok(emptied)
    }

    /// Deletes contacts that no call names. Nodes forget whom they know by the org's numbers.
    async fn delete_contacts(self, org: Uuid, before: Moment, now: Moment) -> Result<u64, Error> {
        let mut reading = self.0.pool().read().await?;
        let sql = "SELECT contacts.id, 0 FROM contacts
            LEFT JOIN (SELECT DISTINCT contact_id FROM calls WHERE org_id = $1) AS named ON named.contact_id = contacts.id
            WHERE contacts.org_id = $1 AND contacts.updated_at < $2 AND named.contact_id IS NULL
            ORDER BY contacts.updated_at LIMIT $3";
        let unnamed: Vec<(Uuid, i64)> =
            fetch_all!(reading, sql, org, micros(before), CONTACTS_AT_ONCE)?;
        drop(reading);
        let mut deleted = 0;
        for some in unnamed.chunks(ROWS_AT_ONCE.unsigned_abs() as usize) {
            let mut writing = self.0.pool().write().await?;
            for (contact, _) in some {
                let sql = "DELETE FROM contacts WHERE org_id = $1 AND id = $2 AND updated_at < $3";
                deleted += execute!(writing, sql, org, contact, micros(before))?;
            }
            self.0
                .commit(writing, &[Change::Contacts(org)], now)
                .await?;
        }
        Ok(deleted)
    }
}
