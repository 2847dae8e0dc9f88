//! Contacts: the people that an org talks to. A contact with an external id is found by that id alone.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::{Map, Value};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::contact_counts;
use crate::access::store::Store;
use crate::driver::column::{from_row, json, maybe, micros, moment};
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::org_limit::OrgLimit;
use crate::driver::rows;
use crate::driver::rows::Insert;
use crate::driver::tx::Tx;
use crate::driver::value::Param;
use crate::tenants::org_limits;

/// A contact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contact {
    /// The contact.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// External id: the org's own.
    pub external_id: Option<String>,
    /// E-mail address as given.
    pub email: Option<String>,
    /// Phone as given.
    pub phone: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// URL of the picture.
    pub avatar_url: Option<String>,
    /// Language code.
    pub language: Option<String>,
    /// Context that the agent gets for the conversation.
    pub chat_context: Option<String>,
    /// The org's own fields.
    pub custom_data: Option<Map<String, Value>>,
    /// Personal connections.
    pub mcp_access: Option<Map<String, Value>>,
    /// Values that override those which the agent's HTTP actions send.
    pub http_action_overrides: Option<Map<String, Value>>,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change.
    pub updated_at: Moment,
}
from_row!(Contact {
    id,
    org_id,
    external_id,
    email,
    phone,
    name,
    avatar_url,
    language,
    chat_context,
    custom_data: maybe(json),
    mcp_access: maybe(json),
    http_action_overrides: maybe(json),
    created_at: moment,
    updated_at: moment,
});

/// The contacts.
#[derive(Copy, Clone, Debug)]
pub struct Contacts<'s>(pub(crate) &'s Store);

impl Store {
    /// The contacts.
    pub fn contacts(&self) -> Contacts<'_> {
        Contacts(self)
    }
}

type ContactIds = HashMap<(Uuid, E164), Uuid>;

impl Contacts<'_> {
    /// The contact of this id.
    ///
    /// # Errors
    /// [`Wrong::Absent`].
    pub async fn by_id(self, org: Uuid, contact: Uuid) -> Result<Contact, Error> {
        let found = move |tx: &mut Tx| by_id(tx, org, contact);
        self.0.read_inline(found).await
    }

    /// Returns the contacts of these callers, in order, and creates the missing ones; `None` where the org may have no more contacts.
    ///
    /// Contacts with an external id aren't considered. Of several contacts with the same phone, the oldest is returned. If all callers are
    /// known, PostgreSQL needs one query, however many orgs they belong to.
    ///
    /// # Errors
    /// [`Broke`](crate::driver::error::Broke); an org that doesn't exist fails the whole batch.
    pub async fn find_or_create_by_phone_many(
        self,
        callers: &[(Uuid, E164)],
        now: Moment,
    ) -> Result<Vec<Option<Uuid>>, Error> {
        let asked: Arc<[(Uuid, E164)]> = callers.into();
        let of = Arc::clone(&asked);
        let mut known = self.0.read_inline(move |tx| find(tx, &of)).await?;

        let mut missing: BTreeSet<_> = callers.iter().copied().collect();
        missing.retain(|caller| !known.contains_key(caller));

        if !missing.is_empty() {
            let missing: Vec<_> = missing.into_iter().collect();
            let made = move |tx: &mut Tx| create_missing(tx, &missing, now);
            known.extend(self.0.write(made).await?);
        }

        Ok(callers
            .iter()
            .map(|caller| known.get(caller).copied())
            .collect())
    }
}

/// The contact of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub(crate) fn by_id(tx: &mut Tx, org: Uuid, contact: Uuid) -> Result<Contact, Error> {
    let sql = "SELECT * FROM contacts WHERE org_id = $1 AND id = $2";
    let row = tx.one(sql, &[&org, &contact])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Contact))?)
}

/// Reason for which contacts must stay as they are until the commit, on PostgreSQL. On SQLite only one transaction writes at a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum ContactLock {
    /// A row is going to name them, so they must not be deleted.
    Named,
    /// They are going to be deleted, so no further row may name them.
    Deleted,
}

/// Locks those of the contacts that exist, and returns them. In ascending order, so that no two transactions wait for each other.
pub(crate) fn lock_existing(
    tx: &mut Tx,
    contacts: impl IntoIterator<Item = Uuid>,
    lock: ContactLock,
) -> Result<HashSet<Uuid>, Error> {
    let sorted: BTreeSet<Uuid> = contacts.into_iter().collect();
    let sorted: Vec<Uuid> = sorted.into_iter().collect();
    if tx.is_shared() {
        let sql = match lock {
            ContactLock::Named => {
                "SELECT id FROM contacts WHERE id = ANY(CAST(string_to_array($1, ',') AS UUID[])) ORDER BY id FOR KEY SHARE"
            }
            ContactLock::Deleted => {
                "SELECT id FROM contacts WHERE id = ANY(CAST(string_to_array($1, ',') AS UUID[])) ORDER BY id FOR UPDATE"
            }
        };
        let ids: Vec<String> = sorted.iter().map(Uuid::to_string).collect();
        let found: Vec<(Uuid,)> = match ids.is_empty() {
            true => Vec::new(),
            false => tx.all(sql, &[&ids.join(",")])?,
        };
        return Ok(found.into_iter().map(|(id,)| id).collect());
    }

    let mut existing = HashSet::new();
    for some in rows::portions(&sorted) {
        let places: Vec<_> = (1..=some.len()).map(|place| format!("${place}")).collect();
        let places = places.join(", ");
        let sql = format!("SELECT id FROM contacts WHERE id IN ({places})");
        let values: Vec<_> = some.iter().map(|id| id as &dyn Param).collect();
        let found: Vec<(Uuid,)> = tx.all(sql, &values)?;
        existing.extend(found.into_iter().map(|(id,)| id));
    }
    Ok(existing)
}

/// Locks the orgs, and creates the contacts that are still missing then, up to each org's limit. `missing` is sorted by org.
fn create_missing(tx: &mut Tx, missing: &[(Uuid, E164)], now: Moment) -> Result<ContactIds, Error> {
    lock(tx, missing.iter().map(|(org, _)| *org))?;
    // Searched again, under the lock: another transaction may have created some of them since the first search.
    let mut found = find(tx, missing)?;

    let mut new = Vec::new();
    for callers in missing.chunk_by(|(org, _), (other, _)| org == other) {
        let org = callers[0].0;
        let mut unknown: Vec<_> = callers.iter().collect();
        unknown.retain(|caller| !found.contains_key(caller));
        // Callers beyond the limit get no contact. That is no error: their calls go on without one.
        unknown.truncate(org_limits::room_for(tx, org, OrgLimit::Contacts, now)?);
        if !unknown.is_empty() {
            contact_counts::added(tx, org, unknown.len())?;
            new.extend(unknown.into_iter().map(|caller| (*caller, new_id(now))));
        }
    }

    for rows in new.chunks(BATCH) {
        insert(tx, rows, now)?;
    }

    found.extend(new);
    Ok(found)
}

/// Locks the creation of contacts of these orgs, so that two transactions with the same address create one contact. The orgs are locked in
/// ascending order, so that no two transactions wait for each other.
pub(crate) fn lock(tx: &mut Tx, orgs: impl Iterator<Item = Uuid>) -> Result<(), Error> {
    if !tx.is_shared() {
        return Ok(());
    }
    for org in orgs.collect::<BTreeSet<_>>() {
        let (_, random) = org.as_u64_pair();
        tx.run("SELECT pg_advisory_xact_lock($1)", &[&random.cast_signed()])?;
    }
    Ok(())
}

/// Rows of one statement: PostgreSQL accepts 65,535 parameters, SQLite 32,766.
const BATCH: usize = 1_000;

struct ContactRow {
    id: Uuid,
    org_id: Uuid,
    phone_key: String,
}
from_row!(ContactRow {
    id,
    org_id,
    phone_key
});

/// Contacts of one caller, newest first.
const OF_ONE: &str = "SELECT id, org_id, phone_key FROM contacts WHERE org_id = $1 AND phone_key = $2 AND external_id IS NULL
    ORDER BY created_at DESC, id DESC";

fn find(tx: &mut Tx, callers: &[(Uuid, E164)]) -> Result<ContactIds, Error> {
    let mut known = ContactIds::new();

    for callers in callers.chunks(BATCH) {
        // An embedded database has no round trip to save, and one plan serves any number of callers.
        let rows: Vec<ContactRow> = if tx.is_shared() {
            let values = callers
                .iter()
                .flat_map(|(org, number)| [org as &dyn Param, number]);
            tx.all(wanted(callers.len()), &values.collect::<Vec<_>>())?
        } else {
            let mut found = Vec::new();
            for (org, number) in callers {
                found.extend(tx.all(OF_ONE, &[org, number])?);
            }
            found
        };

        // The rows run from new to old: the oldest is inserted last and wins.
        known.extend(
            rows.into_iter()
                .filter_map(|row| Some(((row.org_id, E164::parse(&row.phone_key).ok()?), row.id))),
        );
    }

    Ok(known)
}

/// Returns the query for this many callers, in one round trip to a server.
fn wanted(callers: usize) -> String {
    let pairs: Vec<_> = (0..callers)
        .map(|place| format!("(${}, ${})", 2 * place + 1, 2 * place + 2))
        .collect();
    format!(
        "WITH wanted (wanted_org, wanted_phone) AS (VALUES {}) SELECT id, org_id, phone_key FROM wanted
         CROSS JOIN contacts WHERE org_id = wanted_org AND phone_key = wanted_phone
         AND external_id IS NULL ORDER BY created_at DESC, id DESC",
        pairs.join(", ")
    )
}

fn insert(tx: &mut Tx, new: &[((Uuid, E164), Uuid)], now: Moment) -> Result<(), Error> {
    let rows: Vec<_> = new
        .iter()
        .map(|((org, number), id)| {
            [
                (*id).into(),
                (*org).into(),
                number.as_str().into(),
                number.as_str().into(),
                micros(now).into(),
                micros(now).into(),
            ]
        })
        .collect();
    tx.insert(BY_PHONE, &rows)?;
    Ok(())
}

const BY_PHONE: Insert = Insert {
    into: "contacts (id, org_id, phone, phone_key, created_at, updated_at)",
    ending: "",
};
