//! Webhooks: the URLs to which an org's events are sent, and the secrets that sign them.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::org_limits::leave_room_for;
use super::password::Password;
use crate::driver::column::{from_row, json, maybe, moment, to_json};
use crate::driver::edit::lock_org;
use crate::driver::error::{Broke, Error, Kind, Wrong};
use crate::driver::event::EventType;
use crate::driver::ids::new_id;
use crate::driver::keyring::Keyring;
use crate::driver::org_limit::OrgLimit;
use crate::driver::page::{List, Narrow, Page, Position};
use crate::driver::tx::Tx;

/// Time for which the previous secret still signs after a rotation.
const OLD_SECRET_SIGNS: Duration = Duration::from_secs(24 * 3600);

/// A webhook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Webhook {
    /// Its id.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// The agent whose status callback this is; `None` for a webhook of the org's own.
    pub agent_id: Option<Uuid>,
    /// URL to which events are sent.
    pub url: String,
    /// Description for people.
    pub description: Option<String>,
    /// Types of events that are sent; empty: all.
    pub types: Vec<EventType>,
    /// The secret that signs.
    pub secret: Password,
    /// The previous secret, which signs as well until this time.
    pub old_secret: Option<(Password, Moment)>,
    /// Events are sent.
    pub enabled: bool,
    /// Reason why the webhook is disabled, if the org didn't disable it itself.
    pub disabled_reason: Option<String>,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change.
    pub updated_at: Moment,
}

/// A new webhook.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewWebhook {
    /// URL to which events are sent.
    pub url: String,
    /// Description for people.
    pub description: Option<String>,
    /// Types of events that are sent; empty: all.
    pub types: Vec<EventType>,
    /// Events are sent.
    pub enabled: bool,
}

/// A change of a webhook; `None` leaves a field as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct WebhookChange {
    /// URL to which events are sent.
    pub url: Option<String>,
    /// Description for people; `Some(None)` clears it.
    pub description: Option<Option<String>>,
    /// Types of events that are sent.
    pub types: Option<Vec<EventType>>,
    /// Events are sent.
    pub enabled: Option<bool>,
}

const LIST: List = List {
    columns: "*",
    // Webhooks with an agent are status callbacks, which the agent's runtime sets.
    table: "(SELECT * FROM webhooks WHERE agent_id IS NULL) AS webhooks",
    by: ["CASE WHEN enabled THEN 'true' ELSE 'false' END", "url"],
};

/// Creates a webhook whose events `secret` signs.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::AtLimit`](crate::Conflict::AtLimit).
pub fn create(
    tx: &mut Tx,
    org: Uuid,
    new: &NewWebhook,
    secret: &Password,
    now: Moment,
) -> Result<Webhook, Error> {
    lock_org(tx, org)?;
    leave_room_for(tx, org, OrgLimit::Webhooks, now)?;

    let id = new_id(now);
    let row: Row = tx.exactly_one(
        "INSERT INTO webhooks (id, org_id, url, description, types, secret, enabled, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8) RETURNING *",
        &[
            &id,
            &org,
            &new.url,
            &new.description,
            &to_json(&new.types),
            &secret.seal(&tx.keyring(), &owner(id)),
            &new.enabled,
            &now,
        ],
    )?;

    Ok(row.open(&tx.keyring())?)
}

/// Returns the webhook of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, webhook: Uuid) -> Result<Webhook, Error> {
    let sql = "SELECT * FROM webhooks WHERE org_id = $1 AND id = $2 AND agent_id IS NULL";
    let row: Option<Row> = tx.one(sql, &[&org, &webhook])?;
    let row = row.ok_or(Wrong::Absent(Kind::Webhook))?;
    Ok(row.open(&tx.keyring())?)
}

/// Returns a page of the org's webhooks, newest first, filtered by `enabled` and URL, after `after`.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Webhook>, Error> {
    let rows = LIST.page(tx, org, narrow, after, limit, |row: &Row| Position {
        at: row.created_at,
        id: row.id,
    })?;
    Ok(rows.try_map(|row| row.open(&tx.keyring()))?)
}

/// Changes a webhook. Enabling it resumes its pending deliveries.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn update(
    tx: &mut Tx,
    org: Uuid,
    webhook: Uuid,
    change: &WebhookChange,
    now: Moment,
) -> Result<Webhook, Error> {
    lock_org(tx, org)?;
    if *change == WebhookChange::default() {
        tx.mark_internal();
        return by_id(tx, org, webhook);
    }
    let (has_description, description) = match &change.description {
        Some(description) => (true, description.as_deref()),
        None => (false, None),
    };

    let row: Option<Row> = tx.one(
        "UPDATE webhooks SET url = COALESCE($3, url),
             description = CASE WHEN $4 THEN $5 ELSE description END,
             types = COALESCE($6, types),
             disabled_reason = CASE WHEN $7 IS NULL THEN disabled_reason END,
             enabled = COALESCE($7, enabled), updated_at = $8
         WHERE org_id = $1 AND id = $2 AND agent_id IS NULL RETURNING *",
        &[
            &org,
            &webhook,
            &change.url,
            &has_description,
            &description,
            &change.types.as_ref().map(to_json),
            &change.enabled,
            &now,
        ],
    )?;

    let row = row.ok_or(Wrong::Absent(Kind::Webhook))?;
    tx.wake();

    Ok(row.open(&tx.keyring())?)
}

/// Replaces the secret; the previous one signs as well for a day.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn rotate(
    tx: &mut Tx,
    org: Uuid,
    webhook: Uuid,
    secret: &Password,
    now: Moment,
) -> Result<Webhook, Error> {
    lock_org(tx, org)?;
    let row: Option<Row> = tx.one(
        "UPDATE webhooks SET old_secret = secret, old_secret_expires_at = $3, secret = $4, updated_at = $5
         WHERE org_id = $1 AND id = $2 AND agent_id IS NULL RETURNING *",
        &[
            &org,
            &webhook,
            &(now + OLD_SECRET_SIGNS),
            &secret.seal(&tx.keyring(), &owner(webhook)),
            &now,
        ],
    )?;

    let row = row.ok_or(Wrong::Absent(Kind::Webhook))?;
    Ok(row.open(&tx.keyring())?)
}

/// Deletes a webhook, with its deliveries.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn delete(tx: &mut Tx, org: Uuid, webhook: Uuid) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "DELETE FROM webhooks WHERE org_id = $1 AND id = $2 AND agent_id IS NULL";
    if tx.run(sql, &[&org, &webhook])? == 0 {
        return Err(Wrong::Absent(Kind::Webhook).into());
    }
    Ok(())
}

/// A row, with its secrets sealed.
pub(crate) struct Row {
    id: Uuid,
    org_id: Uuid,
    agent_id: Option<Uuid>,
    url: String,
    description: Option<String>,
    types: Vec<EventType>,
    secret: Vec<u8>,
    old_secret: Option<Vec<u8>>,
    old_secret_expires_at: Option<Moment>,
    enabled: bool,
    disabled_reason: Option<String>,
    created_at: Moment,
    updated_at: Moment,
}
from_row!(Row {
    id,
    org_id,
    agent_id,
    url,
    description,
    types: json,
    secret,
    old_secret,
    old_secret_expires_at: maybe(moment),
    enabled,
    disabled_reason,
    created_at: moment,
    updated_at: moment,
});

impl Row {
    pub(crate) fn open(self, keyring: &Keyring) -> Result<Webhook, Broke> {
        let owner = owner(self.id);
        let open = |sealed: Vec<u8>| Password::open(keyring, &owner, &sealed);
        let old_secret = self.old_secret.map(open).transpose()?;

        Ok(Webhook {
            id: self.id,
            org_id: self.org_id,
            agent_id: self.agent_id,
            url: self.url,
            description: self.description,
            types: self.types,
            secret: open(self.secret)?,
            old_secret: old_secret.zip(self.old_secret_expires_at),
            enabled: self.enabled,
            disabled_reason: self.disabled_reason,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

/// Returns the context under which the secret is sealed.
pub(crate) fn owner(webhook: Uuid) -> Vec<u8> {
    [b"webhook\0", webhook.as_bytes().as_slice()].concat()
}
