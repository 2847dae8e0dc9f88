//! Deletion of data that is older than its org's retention: the oldest rows first, a bounded number in each transaction.
//!
//! The usage of deleted calls is counted before. A call that is up stays, and so does a contact that a call still names.

use std::collections::HashSet;
use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::purge;
use crate::access::store::Store;
use crate::calls::contacts;
use crate::calls::contacts::ContactLock;
use crate::calls::{contact_counts, events, handoff_lists};
use crate::driver::change::Change;
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::tx::Tx;
use crate::tenants::retention::{OF_ORG, Retained, RetentionDays, Row};

/// Rows that one transaction deletes or empties.
const ROWS_AT_ONCE: i64 = 500;
/// Most contacts without a call that one query finds.
const CONTACTS_AT_ONCE: i64 = 10_000;
/// Longest time until the beginning of a call is projected, while the database answers.
const LATELY: Duration = Duration::from_secs(3600);

/// Returns the org's own retention.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn days_of(tx: &mut Tx, org: Uuid) -> Result<RetentionDays, Error> {
    let row: Option<Row> = tx.one(OF_ORG, &[&org])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Org))?.days())
}

/// Returns the orgs with data of this kind that is older than their retention, each with the time before which data is deleted.
/// `default_days` applies to orgs without days of their own.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn over(
    tx: &mut Tx,
    kind: Retained,
    default_days: Option<u32>,
    now: Moment,
) -> Result<Vec<(Uuid, Moment)>, Error> {
    let rows: Vec<(Uuid, i64)> = tx.all(kind.over(), &[&now, &default_days])?;
    let before = |at: i64| Moment::from_micros(at.max(0).unsigned_abs());
    Ok(rows
        .into_iter()
        .map(|(org, at)| (org, before(at)))
        .collect())
}

impl Store {
    /// Deletes events that are older than `kept`, and of each org all but the newest `most`, with their deliveries. Returns the number of
    /// events.
    ///
    /// # Errors
    /// [`Broke`](crate::driver::error::Broke): the database fails.
    pub async fn prune_events(&self, kept: Duration, most: u32, now: Moment) -> Result<u64, Error> {
        let mut pruned = 0;

        loop {
            let some = self
                .write(move |tx| events::prune_old(tx, now - kept))
                .await?;
            pruned += some;
            if some == 0 {
                break;
            }
        }

        // Events that are recorded during this loop are newer, so the org's oldest `surplus` events stay too many.
        for (org, mut surplus) in self.read(move |tx| events::surplus(tx, most)).await? {
            while surplus > 0 {
                let some = surplus.min(events::PRUNED_AT_ONCE);
                pruned += self
                    .write(move |tx| events::prune_oldest(tx, org, some))
                    .await?;
                surplus -= some;
            }
        }

        Ok(pruned)
    }

    /// Deletes a portion of the org's data of this kind from before `before`. Returns the number of rows; 0 once nothing is left to delete.
    ///
    /// # Errors
    /// [`Broke`](crate::driver::error::Broke): the database fails.
    pub async fn delete_before(
        &self,
        org: Uuid,
        kind: Retained,
        before: Moment,
        now: Moment,
    ) -> Result<u64, Error> {
        let delete = match kind {
            Retained::Calls => purge::delete_calls_before,
            Retained::Sessions => empty_sessions,
            Retained::Handoffs => delete_handoffs,
            Retained::Contacts => {
                // Searched outside of the transaction that deletes: all calls of the org are read, and on SQLite other
                // writers would wait for that.
                let unnamed = self
                    .read(move |tx| unnamed_contacts(tx, org, before))
                    .await?;

                let mut deleted = 0;
                for some in unnamed.chunks(ROWS_AT_ONCE.unsigned_abs() as usize) {
                    let some = some.to_vec();
                    let gone = self.write(move |tx| delete_contacts(tx, org, &some, before, now));
                    deleted += gone.await?;
                }
                return Ok(deleted);
            }
        };

        self.write(move |tx| delete(tx, org, before)).await
    }
}

fn delete_handoffs(tx: &mut Tx, org: Uuid, before: Moment) -> Result<u64, Error> {
    let sql = "DELETE FROM handoffs WHERE org_id = $1 AND created_at IN (
        SELECT created_at FROM handoffs WHERE org_id = $1 AND created_at < $2 ORDER BY created_at LIMIT $3)";
    let deleted = tx.run(sql, &[&org, &before, &ROWS_AT_ONCE])?;
    handoff_lists::forget_oldest(tx, org)?;
    Ok(deleted)
}

/// Clears the session data of a portion of the ended calls, the oldest first. A call that is up is cleared once it has ended, and one that
/// is projected late in the next pass.
fn empty_sessions(tx: &mut Tx, org: Uuid, before: Moment) -> Result<u64, Error> {
    let sql = "UPDATE calls SET headers = NULL, metadata = NULL, asked = NULL
        WHERE id IN (
            SELECT id FROM calls WHERE org_id = $1 AND started_at < $2 AND ended_at IS NOT NULL
            AND (headers IS NOT NULL OR metadata IS NOT NULL OR asked IS NOT NULL)
            ORDER BY started_at LIMIT $3)";
    tx.run(sql, &[&org, &before, &ROWS_AT_ONCE])
}

/// Returns contacts that no call names, those first whose last change is oldest.
fn unnamed_contacts(tx: &mut Tx, org: Uuid, before: Moment) -> Result<Vec<(Uuid,)>, Error> {
    let sql = "SELECT contacts.id FROM contacts
        LEFT JOIN (SELECT DISTINCT contact_id FROM calls WHERE org_id = $1) AS named ON named.contact_id = contacts.id
        WHERE contacts.org_id = $1 AND contacts.updated_at < $2 AND named.contact_id IS NULL
        ORDER BY contacts.updated_at LIMIT $3";
    tx.all(sql, &[&org, &before, &CONTACTS_AT_ONCE])
}

/// Deletes contacts, unless they were changed or a call named them meanwhile. Has all nodes drop the contacts that they cache by number.
fn delete_contacts(
    tx: &mut Tx,
    org: Uuid,
    unnamed: &[(Uuid,)],
    before: Moment,
    now: Moment,
) -> Result<u64, Error> {
    // The lock comes first: a call that was projected before it is seen, and one that is projected after it finds no contact.
    let ids = unnamed.iter().map(|(contact,)| *contact);
    contacts::lock_existing(tx, ids, ContactLock::Deleted)?;

    // Only calls that have begun lately can name a contact that none named before.
    let sql = "SELECT DISTINCT contact_id FROM calls WHERE org_id = $1 AND started_at >= $2 AND contact_id IS NOT NULL";
    let named: Vec<(Uuid,)> = tx.all(sql, &[&org, &(now - LATELY)])?;
    let named: HashSet<(Uuid,)> = named.into_iter().collect();

    let mut deleted = 0;
    for (contact,) in unnamed.iter().filter(|contact| !named.contains(contact)) {
        let sql = "DELETE FROM contacts WHERE org_id = $1 AND id = $2 AND updated_at < $3";
        if tx.run(sql, &[&org, contact, &before])? > 0 {
            deleted += 1;
            let sql = "UPDATE handoffs SET contact_id = NULL WHERE org_id = $1 AND contact_id = $2";
            tx.run(sql, &[&org, contact])?;
        }
    }
    contact_counts::removed(tx, org, deleted)?;
    tx.changed(Change::Contacts(org), now);
    Ok(deleted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::open::Options;
    use crate::calls::identify::ContactDetails;
    use crate::tenants::orgs;
    use crate::tenants::orgs::NewOrg;

    const NOW: Moment = Moment::from_secs(1_800_000_000);

    #[tokio::test]
    async fn a_contact_that_a_call_has_just_named_stays() {
        let directory = tempfile::tempdir().unwrap();
        let options = Options {
            data_dir: directory.path().join("data"),
            url: None,
            master_key: None,
            max_connections: 8,
        };
        let store = Store::open(&options, NOW).await.unwrap();
        let made = store.write(|tx| orgs::create(tx, None, &NewOrg::named("Org"), NOW));
        let org = made.await.unwrap().id;

        let mut contacts = Vec::new();
        for id in ["named", "unnamed"] {
            let details = ContactDetails::default();
            let made = store
                .contacts()
                .identify_by_external_id(org, id, &details, NOW);
            contacts.push(made.await.unwrap().id);
        }

        let now = NOW + 400 * Duration::from_secs(24 * 3600);
        let unnamed = store.read(move |tx| unnamed_contacts(tx, org, now));
        let unnamed = unnamed.await.unwrap();
        assert_eq!(unnamed.len(), 2);
        let named = contacts[0];
        let deleted = store.write(move |tx| {
            let sql = "INSERT INTO calls (id, org_id, node, boot, status, started_at, contact_id)
                VALUES ($1, $1, 1, 1, 'queued', $2, $3)";
            tx.run(sql, &[&org, &now, &named])?;
            delete_contacts(tx, org, &unnamed, now, now)
        });
        assert_eq!(deleted.await.unwrap(), 1);

        store.contacts().by_id(org, named).await.unwrap();
        assert!(store.contacts().by_id(org, contacts[1]).await.is_err());
    }
}
