//! Token of an org's bots. It signs the handshakes of their WebSockets, and is the password of the endpoint by which they end and
//! transfer calls. A rotation creates the next token, which opens the endpoint at once and signs nothing until it is promoted, so that
//! the org can configure its bots before they need the token.

use std::time::Duration;

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::change::Change;
use crate::driver::column::{from_row, maybe, moment};
use crate::driver::edit::lock_org;
use crate::driver::error::{Broke, Conflict, Error, Kind, Wrong};
use crate::driver::keyring::Keyring;
use crate::driver::tx::Tx;
use crate::tenants::password::Password;

/// Time after a promotion for which the previous token still opens the endpoint.
const OLD_OPENS: Duration = Duration::from_secs(24 * 3600);

/// Tokens of an org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BotToken {
    /// The org.
    pub org_id: Uuid,
    /// The token that signs now.
    pub token: Password,
    /// Time at which it was made.
    pub created_at: Moment,
    /// The token that signs after the next promotion, and its time of creation.
    pub next: Option<(Password, Moment)>,
    /// The previous token, and the time until which it opens the endpoint.
    pub old: Option<(Password, Moment)>,
}

/// Returns the org's tokens.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn of_org(tx: &mut Tx, org: Uuid) -> Result<BotToken, Error> {
    let row: Option<Row> = tx.one("SELECT * FROM bot_tokens WHERE org_id = $1", &[&org])?;
    let row = row.ok_or(Wrong::Absent(Kind::BotToken))?;
    Ok(row.open(&tx.keyring())?)
}

/// Creates the org's first token, or the next one, replacing a next token that was not promoted. Returns all tokens.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org.
pub fn create(tx: &mut Tx, org: Uuid, token: &Password, now: Moment) -> Result<BotToken, Error> {
    lock_org(tx, org)?;
    let sealed = token.seal(&tx.keyring(), &owner(org));
    tx.run(
        "INSERT INTO bot_tokens (org_id, token, created_at) VALUES ($1, $2, $3)
         ON CONFLICT (org_id) DO UPDATE SET next_token = excluded.token, next_created_at = excluded.created_at",
        &[&org, &sealed, &now],
    )?;

    tx.changed(Change::Org(org), now);
    of_org(tx, org)
}

/// Promotes the next token: it signs from now on. The previous one opens the endpoint for 24 hours more.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::NoNextToken`].
pub fn promote(tx: &mut Tx, org: Uuid, now: Moment) -> Result<BotToken, Error> {
    lock_org(tx, org)?;
    if of_org(tx, org)?.next.is_none() {
        return Err(Conflict::NoNextToken.into());
    }

    // The context of all three is the org, so the sealed values can move as they are.
    tx.run(
        "UPDATE bot_tokens SET old_token = token, old_expires_at = $2, token = next_token, created_at = next_created_at,
             next_token = NULL, next_created_at = NULL
         WHERE org_id = $1",
        &[&org, &(now + OLD_OPENS)],
    )?;

    tx.changed(Change::Org(org), now);
    of_org(tx, org)
}

/// Deletes the org's tokens, which stop working at once.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn delete(tx: &mut Tx, org: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    if tx.run("DELETE FROM bot_tokens WHERE org_id = $1", &[&org])? == 0 {
        return Err(Wrong::Absent(Kind::BotToken).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// A row with its values sealed.
pub(crate) struct Row {
    pub(crate) org_id: Uuid,
    token: Vec<u8>,
    created_at: Moment,
    next_token: Option<Vec<u8>>,
    next_created_at: Option<Moment>,
    old_token: Option<Vec<u8>>,
    old_expires_at: Option<Moment>,
}
from_row!(Row {
    org_id,
    token,
    created_at: moment,
    next_token,
    next_created_at: maybe(moment),
    old_token,
    old_expires_at: maybe(moment),
});

impl Row {
    pub(crate) fn open(self, keyring: &Keyring) -> Result<BotToken, Broke> {
        let context = owner(self.org_id);
        let open = |sealed: Vec<u8>| Password::open(keyring, &context, &sealed);
        Ok(BotToken {
            org_id: self.org_id,
            token: open(self.token)?,
            created_at: self.created_at,
            next: self
                .next_token
                .map(open)
                .transpose()?
                .zip(self.next_created_at),
            old: self
                .old_token
                .map(open)
                .transpose()?
                .zip(self.old_expires_at),
        })
    }
}

/// Returns the context under which tokens are sealed.
pub(crate) fn owner(org: Uuid) -> Vec<u8> {
    [b"bot token\0", org.as_bytes().as_slice()].concat()
}
