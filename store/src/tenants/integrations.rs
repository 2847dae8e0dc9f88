//! Accounts of orgs with third parties. Their credentials are sealed, each under its own id.

use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::{from_row, to_json};
use crate::driver::error::{Broke, Error};
use crate::driver::ids::new_id;
use crate::driver::keyring::Keyring;
use crate::driver::tx::Tx;

/// An account with the booking platform.
#[derive(Clone, PartialEq, Eq)]
pub struct NewBooking {
    /// Name of the account, unique in the org.
    pub name: String,
    /// The application's key.
    pub app_key: String,
    /// The user's key.
    pub user_key: String,
    /// Company that applies where none is named.
    pub default_company_shortname: Option<String>,
}

impl std::fmt::Debug for NewBooking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewBooking")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// An account of an org, its credentials sealed.
#[derive(Clone, PartialEq, Eq)]
pub struct Integration {
    /// Its id.
    pub id: Uuid,
    /// Name of the account, unique in the org.
    pub name: String,
    /// Company that applies where none is named.
    pub default_company_shortname: Option<String>,
    credentials: Vec<u8>,
}
from_row!(Integration {
    id,
    name,
    default_company_shortname,
    credentials
});

impl std::fmt::Debug for Integration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Integration")
            .field("id", &self.id)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Integration {
    /// Returns the credentials: the application's key and the user's.
    ///
    /// # Errors
    /// [`Broke::Seal`] if another installation sealed them.
    pub fn credentials(&self, keyring: &Keyring) -> Result<(String, String), Broke> {
        let text = keyring.open(&context(self.id), &self.credentials)?;
        let Credentials { app_key, user_key } =
            serde_json::from_slice(&text).map_err(|_| Broke::Seal)?;
        Ok((app_key, user_key))
    }
}

/// The sealed part.
#[derive(Serialize, Deserialize)]
struct Credentials {
    app_key: String,
    user_key: String,
}

/// Returns the org's accounts with the booking platform, by name.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn bookings(tx: &mut Tx, org: Uuid) -> Result<Vec<Integration>, Error> {
    tx.all(
        "SELECT id, name, default_company_shortname, credentials FROM integrations
         WHERE org_id = $1 AND kind = 'booking' ORDER BY name",
        &[&org],
    )
}

/// Stores a new account.
pub(crate) fn connect(
    tx: &mut Tx,
    org: Uuid,
    booking: &NewBooking,
    now: Moment,
) -> Result<(), Error> {
    let id = new_id(now);
    tx.run(
        "INSERT INTO integrations (id, org_id, kind, name, credentials, default_company_shortname, created_at)
         VALUES ($1, $2, 'booking', $3, $4, $5, $6)",
        &[
            &id,
            &org,
            &booking.name,
            &sealed(&tx.keyring(), id, booking),
            &booking.default_company_shortname,
            &now,
        ],
    )?;
    Ok(())
}

/// Replaces the org's accounts with these. An account with a known name keeps its id.
pub(crate) fn replace(
    tx: &mut Tx,
    org: Uuid,
    bookings: &[NewBooking],
    now: Moment,
) -> Result<(), Error> {
    let known: Vec<(Uuid, String)> = tx.all(
        "SELECT id, name FROM integrations WHERE org_id = $1 AND kind = 'booking'",
        &[&org],
    )?;
    for (id, name) in &known {
        let stays = bookings.iter().any(|booking| booking.name == *name);
        if !stays {
            let sql = "DELETE FROM integrations WHERE org_id = $1 AND id = $2";
            tx.run(sql, &[&org, &id])?;
        }
    }

    for booking in bookings {
        let known = known.iter().find(|(_, name)| *name == booking.name);
        let Some((id, _)) = known else {
            connect(tx, org, booking, now)?;
            continue;
        };
        tx.run(
            "UPDATE integrations SET credentials = $3, default_company_shortname = $4 WHERE org_id = $1 AND id = $2",
            &[&org, &id, &sealed(&tx.keyring(), *id, booking), &booking.default_company_shortname],
        )?;
    }

    Ok(())
}

fn sealed(keyring: &Keyring, id: Uuid, booking: &NewBooking) -> Vec<u8> {
    let credentials = Credentials {
        app_key: booking.app_key.clone(),
        user_key: booking.user_key.clone(),
    };
    keyring.seal(&context(id), to_json(&credentials).as_bytes())
}

/// Returns the context under which an account's credentials are sealed.
pub(crate) fn context(id: Uuid) -> Vec<u8> {
    [b"integration\0", id.as_bytes().as_slice()].concat()
}
