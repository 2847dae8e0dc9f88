//! Sessions of the dashboard: each is opened by a login link, once, and stored by the SHA-256 of its token.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::logins::OPERATOR;
use crate::driver::acting::{Actor, ActorKind};
use crate::driver::change::Change;
use crate::driver::column::{from_row, moment};
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::page::{Page, Position};
use crate::driver::tx::Tx;

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// A person's session in an org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Id of the session, which can't log anybody in.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub org_name: String,
    /// The person's name.
    pub name: String,
    /// The person's address.
    pub email: String,
    /// One of the person's roles may change things.
    pub writes: bool,
    /// The org is suspended.
    pub suspended: bool,
    /// Expiry.
    pub expires_at: Moment,
    owner_id: Uuid,
}
from_row!(Session {
    id,
    org_id,
    org_name,
    name,
    email,
    writes,
    suspended,
    expires_at: moment,
    owner_id,
});

impl Session {
    /// Returns its author for the audit log.
    pub fn actor(&self) -> Actor {
        let (kind, name) = match self.owner_id == OPERATOR {
            true => (ActorKind::Operator, "operator".to_owned()),
            false => (ActorKind::Dashboard, self.email.clone()),
        };
        Actor {
            kind,
            id: Some(self.id),
            name,
        }
    }
}

/// A session in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedSession {
    /// Id of the session, which can't log anybody in.
    pub id: Uuid,
    /// The person's address.
    pub email: String,
    /// The person's name.
    pub name: String,
    /// Time of the log-in.
    pub created_at: Moment,
    /// Expiry.
    pub expires_at: Moment,
}
from_row!(ListedSession {
    id,
    email,
    name,
    created_at: moment,
    expires_at: moment,
});

struct Consumed {
    org_id: Uuid,
    user_id: Uuid,
}
from_row!(Consumed { org_id, user_id });

/// Deletes expired rows, with each new session.
const SWEPT: [&str; 2] = [
    "DELETE FROM login_links WHERE expires_at < $1",
    "DELETE FROM dashboard_sessions WHERE expires_at < $1",
];

/// Consumes a login link and opens a session; returns the session's org. Of several attempts at once, one succeeds.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke); a link that is used, expired or unknown gives `None`.
pub fn open(
    tx: &mut Tx,
    link: TokenHash,
    session: TokenHash,
    expires_at: Moment,
    now: Moment,
) -> Result<Option<Uuid>, Error> {
    // Checked and consumed by one statement: of two requests at once, one finds the link unused.
    let sql = "UPDATE login_links SET consumed_at = $2 WHERE token_hash = $1 AND consumed_at IS NULL AND expires_at > $2
               RETURNING org_id, user_id";
    let consumed: Option<Consumed> = tx.one(sql, &[&link, &now])?;
    let Some(Consumed { org_id, user_id }) = consumed else {
        tx.mark_internal();
        return Ok(None);
    };

    for sql in SWEPT {
        tx.run(sql, &[&now])?;
    }
    tx.run(
        "INSERT INTO dashboard_sessions (token_hash, org_id, user_id, expires_at, created_at, id) VALUES ($1, $2, $3, $4, $5, $6)",
        &[&session, &org_id, &user_id, &expires_at, &now, &new_id(now)],
    )?;
    Ok(Some(org_id))
}

/// Returns the session, unless it has ended.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn by_token(tx: &mut Tx, session: TokenHash, now: Moment) -> Result<Option<Session>, Error> {
    let sql = "SELECT dashboard_sessions.id AS id, orgs.id AS org_id, orgs.name AS org_name, users.name AS name, email,
                   EXISTS (SELECT 1 FROM membership_roles JOIN roles ON roles.id = role_id
                       WHERE membership_roles.org_id = orgs.id AND user_id = users.id AND access = 'write') AS writes,
                   (suspended_by_partner_at IS NOT NULL OR suspended_by_operator_at IS NOT NULL
                       OR partner_inactive_at IS NOT NULL) AS suspended,
                   expires_at, owner_id
               FROM dashboard_sessions JOIN orgs ON orgs.id = dashboard_sessions.org_id
                   JOIN users ON users.id = dashboard_sessions.user_id
               WHERE token_hash = $1 AND expires_at > $2 AND deleted_at IS NULL";
    tx.one(sql, &[&session, &now])
}

/// A link that is still good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GoodLink {
    /// A page with a button comes before the log-in.
    pub confirm: bool,
    /// Org of the session that it opens.
    pub org_id: Uuid,
    /// Address of the person that it logs in.
    pub email: String,
}
from_row!(GoodLink {
    confirm,
    org_id,
    email
});

/// Reads a link without consuming it; `None` for one that is used, expired or unknown.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn link(tx: &mut Tx, link: TokenHash, now: Moment) -> Result<Option<GoodLink>, Error> {
    let sql = "SELECT confirm, org_id, email FROM login_links JOIN users ON users.id = user_id
               WHERE token_hash = $1 AND consumed_at IS NULL AND expires_at > $2";
    tx.one(sql, &[&link, &now])
}

/// Returns a page of the org's open sessions, newest first, of one address if `email` is given, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    email: Option<&str>,
    after: Option<Position>,
    limit: u32,
    now: Moment,
) -> Result<Page<ListedSession>, Error> {
    tx.snapshot()?;
    let after = after.unwrap_or(Position::START);
    let items: Vec<ListedSession> = tx.all(
        "SELECT dashboard_sessions.id AS id, email, name, dashboard_sessions.created_at AS created_at, expires_at
         FROM dashboard_sessions JOIN users ON users.id = user_id
         WHERE org_id = $1 AND (dashboard_sessions.created_at, dashboard_sessions.id) < ($2, $3) AND expires_at > $4
             AND (CAST($6 AS TEXT) IS NULL OR email = $6)
         ORDER BY dashboard_sessions.created_at DESC, dashboard_sessions.id DESC LIMIT $5",
        &[&org, &after.at_micros(), &after.id, &now, &(i64::from(limit) + 1), &email],
    )?;

    let sql = "SELECT COUNT(*) FROM dashboard_sessions JOIN users ON users.id = user_id
         WHERE org_id = $1 AND expires_at > $2 AND (CAST($3 AS TEXT) IS NULL OR email = $3)";
    let (total,): (i64,) = tx.exactly_one(sql, &[&org, &now, &email])?;
    Ok(Page::of(items, limit, total, |item| Position {
        at: item.created_at,
        id: item.id,
    }))
}

/// Ends a session of the org by its id, or all of them; returns their number.
///
/// # Errors
/// [`Wrong::Absent`] for an id that names none.
pub fn end_of_org(
    tx: &mut Tx,
    org: Uuid,
    session: Option<Uuid>,
    now: Moment,
) -> Result<u64, Error> {
    let ended = match session {
        Some(session) => {
            let sql = "DELETE FROM dashboard_sessions WHERE org_id = $1 AND id = $2";
            tx.run(sql, &[&org, &session])?
        }
        None => {
            let sql = "DELETE FROM dashboard_sessions WHERE org_id = $1";
            tx.run(sql, &[&org])?
        }
    };

    if session.is_some() && ended == 0 {
        return Err(Wrong::Absent(Kind::DashboardSession).into());
    }
    tx.changed(Change::Session(org), now);
    Ok(ended)
}

/// Ends a session.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke); a session that has ended already is no error.
pub fn end(tx: &mut Tx, session: TokenHash, now: Moment) -> Result<(), Error> {
    let sql = "DELETE FROM dashboard_sessions WHERE token_hash = $1 RETURNING org_id";
    let org: Option<(Uuid,)> = tx.one(sql, &[&session])?;
    match org {
        Some((org,)) => tx.changed(Change::Session(org), now),
        None => tx.mark_internal(),
    }
    Ok(())
}
