//! Identification of the widget's visitors: finds a contact by the org's own id, or by e-mail and phone, and creates or updates it.
//!
//! The two ways never meet: a contact with an external id is found by that alone, a contact without one by its addresses alone.

use serde_json::{Map, Value};
use trunkline_routing::numbers;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::contact_counts;
use super::contacts::{self, Contact, Contacts, lock};
use crate::driver::column::to_json;
use crate::driver::edit::set;
use crate::driver::error::Error;
use crate::driver::ids::new_id;
use crate::driver::org_limit::OrgLimit;
use crate::driver::tx::Tx;
use crate::tenants::org_limits::leave_room_for;
use crate::tenants::versions;

/// Details of a contact. Of each field: `None` leaves it, `Some(None)` clears it.
#[derive(Clone, PartialEq, Debug, Default)]
#[expect(
    missing_docs,
    reason = "the fields are those of Contact, where they are described"
)]
pub struct ContactDetails {
    pub email: Option<Option<String>>,
    pub phone: Option<Option<String>>,
    pub name: Option<Option<String>>,
    pub avatar_url: Option<Option<String>>,
    pub language: Option<Option<String>>,
    pub chat_context: Option<Option<String>>,
    pub custom_data: Option<Option<Map<String, Value>>>,
    pub mcp_access: Option<Option<Map<String, Value>>>,
    pub http_action_overrides: Option<Option<Map<String, Value>>>,
}

/// Key by which a contact is found.
#[derive(Clone, Debug)]
enum By {
    ExternalId(String),
    Addresses {
        email: Option<String>,
        phone: Option<String>,
    },
}

impl Contacts<'_> {
    /// Returns the contact of this external id, created or updated with the details. Two calls at once create one contact.
    ///
    /// # Errors
    /// [`Conflict::AtLimit`](crate::Conflict::AtLimit), [`Wrong::Text`](crate::Wrong::Text), or [`Broke`](crate::driver::error::Broke).
    pub async fn identify_by_external_id(
        self,
        org: Uuid,
        external_id: &str,
        details: &ContactDetails,
        now: Moment,
    ) -> Result<Contact, Error> {
        let by = By::ExternalId(external_id.to_owned());
        self.identify(org, by, details, now).await
    }

    /// Returns the contact without an external id that has the e-mail address, ignoring case, or else the phone; created if none matches,
    /// and updated with the details. Where several match, the oldest counts. Two calls at once create one contact.
    ///
    /// The phone doesn't count if both the request and the contact have an e-mail address, so that a shared phone doesn't give one person
    /// another's account.
    ///
    /// # Errors
    /// As [`identify_by_external_id`](Self::identify_by_external_id).
    pub async fn identify_by_addresses(
        self,
        org: Uuid,
        details: &ContactDetails,
        now: Moment,
    ) -> Result<Contact, Error> {
        let given = |field: &'_ Option<Option<String>>| field.clone().flatten();
        let (email, phone) = (given(&details.email), given(&details.phone));
        let by = By::Addresses {
            email: email.as_deref().map(folded),
            phone: phone.as_deref().map(phone_key),
        };
        self.identify(org, by, details, now).await
    }

    /// Changes the contact of this id, if it has one of the `expected` versions; `None` accepts any. Its external id stays.
    ///
    /// # Errors
    /// [`Wrong::Absent`](crate::Wrong::Absent), [`Conflict::Outdated`](crate::Conflict::Outdated), and as [`identify_by_external_id`](Self::identify_by_external_id).
    pub async fn update(
        self,
        org: Uuid,
        contact: Uuid,
        details: &ContactDetails,
        expected: Option<Vec<String>>,
        now: Moment,
    ) -> Result<Contact, Error> {
        let details = details.clone();
        let changed = move |tx: &mut Tx| {
            lock(tx, std::iter::once(org))?;
            // Read under the lock, since `update` writes every field back: a concurrent change would be lost.
            let known = contacts::by_id(tx, org, contact)?;
            let now = versions::next(known.updated_at, expected.as_deref(), now)?;
            let Some(changed) = details.changed(&known, now) else {
                tx.mark_internal();
                return Ok(known);
            };
            update(tx, &changed)?;
            Ok(changed)
        };
        self.0.write(changed).await
    }

    async fn identify(
        self,
        org: Uuid,
        by: By,
        details: &ContactDetails,
        now: Moment,
    ) -> Result<Contact, Error> {
        // Most visitors are known and unchanged: they need no lock.
        let asked = by.clone();
        let known = self.0.read_inline(move |tx| find(tx, org, &asked)).await?;
        if let Some(known) = known.filter(|known| details.changed(known, now).is_none()) {
            return Ok(known);
        }

        let details = details.clone();
        let identified = move |tx: &mut Tx| {
            lock(tx, std::iter::once(org))?;

            // Looked for again under the lock: another request may have created or changed the contact since.
            match find(tx, org, &by)? {
                Some(known) => match details.changed(&known, now) {
                    Some(changed) => {
                        update(tx, &changed)?;
                        Ok(changed)
                    }
                    None => {
                        tx.mark_internal();
                        Ok(known)
                    }
                },
                None => {
                    leave_room_for(tx, org, OrgLimit::Contacts, now)?;
                    let new = details.applied(blank(org, &by, now));
                    insert(tx, &new)?;
                    contact_counts::added(tx, org, 1)?;
                    Ok(new)
                }
            }
        };

        self.0.write(identified).await
    }
}

impl ContactDetails {
    /// Returns the contact as changed; `None` if nothing changes.
    fn changed(&self, contact: &Contact, now: Moment) -> Option<Contact> {
        let applied = self.applied(contact.clone());
        (applied != *contact).then_some(Contact {
            updated_at: now,
            ..applied
        })
    }

    fn applied(&self, mut contact: Contact) -> Contact {
        let details = self.clone();
        set(&mut contact.email, details.email);
        set(&mut contact.phone, details.phone);
        set(&mut contact.name, details.name);
        set(&mut contact.avatar_url, details.avatar_url);
        set(&mut contact.language, details.language);
        set(&mut contact.chat_context, details.chat_context);
        set(&mut contact.custom_data, details.custom_data);
        set(&mut contact.mcp_access, details.mcp_access);
        set(
            &mut contact.http_action_overrides,
            details.http_action_overrides,
        );
        contact
    }
}

fn blank(org: Uuid, by: &By, now: Moment) -> Contact {
    let external_id = match by {
        By::ExternalId(id) => Some(id.clone()),
        By::Addresses { .. } => None,
    };

    Contact {
        id: new_id(now),
        org_id: org,
        external_id,
        email: None,
        phone: None,
        name: None,
        avatar_url: None,
        language: None,
        chat_context: None,
        custom_data: None,
        mcp_access: None,
        http_action_overrides: None,
        created_at: now,
        updated_at: now,
    }
}

/// Returns an address in lower case; the pattern for addresses permits ASCII only.
fn folded(email: &str) -> String {
    email.to_ascii_lowercase()
}

/// Returns the phone as E.164 if it is a number that can be read without a country, else as given.
pub(crate) fn phone_key(phone: &str) -> String {
    numbers::reduce(phone, None, &|_| false)
        .map_or_else(|| phone.to_owned(), |number| number.to_string())
}

fn find(tx: &mut Tx, org: Uuid, by: &By) -> Result<Option<Contact>, Error> {
    match by {
        By::ExternalId(id) => {
            let sql = "SELECT * FROM contacts WHERE org_id = $1 AND external_id = $2";
            tx.one(sql, &[&org, id])
        }
        By::Addresses { email, phone } => {
            if let Some(email) = email {
                let sql = "SELECT * FROM contacts WHERE org_id = $1 AND email_folded = $2 AND external_id IS NULL
                           ORDER BY created_at, id LIMIT 1";
                let found = tx.one(sql, &[&org, email])?;
                if found.is_some() {
                    return Ok(found);
                }
            }

            let Some(phone) = phone else { return Ok(None) };

            let sql = if email.is_some() {
                "SELECT * FROM contacts WHERE org_id = $1 AND phone_key = $2 AND external_id IS NULL
                 AND email_folded IS NULL ORDER BY created_at, id LIMIT 1"
            } else {
                "SELECT * FROM contacts WHERE org_id = $1 AND phone_key = $2 AND external_id IS NULL
                 ORDER BY created_at, id LIMIT 1"
            };

            tx.one(sql, &[&org, phone])
        }
    }
}

fn insert(tx: &mut Tx, contact: &Contact) -> Result<(), Error> {
    tx.run(
        "INSERT INTO contacts (id, org_id, external_id, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)",
        &[
            &contact.id,
            &contact.org_id,
            &contact.external_id,
            &contact.created_at,
        ],
    )?;
    update(tx, contact)
}

/// Writes every detail of a contact.
pub(crate) fn update(tx: &mut Tx, contact: &Contact) -> Result<(), Error> {
    let object = |field: &Option<Map<String, Value>>| field.as_ref().map(to_json);

    tx.run(
        "UPDATE contacts SET email = $3, email_folded = $4, phone = $5, phone_key = $6, name = $7, avatar_url = $8,
             language = $9, chat_context = $10, custom_data = $11, mcp_access = $12, http_action_overrides = $13,
             updated_at = $14, external_id = $15
         WHERE org_id = $1 AND id = $2",
        &[
            &contact.org_id,
            &contact.id,
            &contact.email,
            &contact.email.as_deref().map(folded),
            &contact.phone,
            &contact.phone.as_deref().map(phone_key),
            &contact.name,
            &contact.avatar_url,
            &contact.language,
            &contact.chat_context,
            &object(&contact.custom_data),
            &object(&contact.mcp_access),
            &object(&contact.http_action_overrides),
            &contact.updated_at,
            &contact.external_id,
        ],
    )?;

    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phones_are_compared_as_numbers_where_they_are_some() {
        for (given, key) in [
            ("+442071838750", "+442071838750"),
            ("+44 (0)20 7183-8750", "+442071838750"),
            ("0044 20 7183 8750", "+442071838750"),
            ("tel:+44-20-7183-8750", "+442071838750"),
            ("020 7183 8750", "020 7183 8750"),
            ("extension 7", "extension 7"),
        ] {
            assert_eq!(phone_key(given), key, "{given}");
        }
    }
}
