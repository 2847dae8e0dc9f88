//! Sessions of the dashboard: each is opened by a login link, once, and is kept by the SHA-256 of its token.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{from_row, micros, moment};
use super::error::{Error, Kind, Wrong};
use super::feed::Change;
use super::page::{Page, Position};
use super::pool::{execute, fetch_all, fetch_one, fetch_optional};
use super::{Store, new_id};

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// Somebody's session in an org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The session's own, which logs nobody in.
    pub id: Option<Uuid>,
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub org_name: String,
    /// The person's name.
    pub name: String,
    /// The person's address.
    pub email: String,
    /// Whether one of the person's roles may change things.
    pub writes: bool,
    /// Whether the org is suspended.
    pub suspended: bool,
    /// When the session ends.
    pub expires_at: Moment,
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
});

/// A session as it is listed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedSession {
    /// What it is named by; nothing that could log anybody in.
    pub id: Uuid,
    /// The person's address.
    pub email: String,
    /// The person's name.
    pub name: String,
    /// When it was opened.
    pub created_at: Moment,
    /// When it ends.
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

/// The dashboard's sessions.
#[derive(Copy, Clone, Debug)]
pub struct Sessions<'s>(&'s Store);

impl Store {
    /// The dashboard's sessions.
    pub fn sessions(&self) -> Sessions<'_> {
        Sessions(self)
    }
}

/// Rows that are too old for any use and go with each new session.
const SWEPT: [&str; 2] = [
    "DELETE FROM login_links WHERE expires_at < $1",
    "DELETE FROM dashboard_sessions WHERE expires_at < $1",
];

impl Sessions<'_> {
    /// Consumes a login link and opens a session in its stead; gives the session's org. Of any number at once, one gets it.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone; a link that is used, too old or unknown gives `None`.
    pub async fn open(
        self,
        link: TokenHash,
        session: TokenHash,
        expires_at: Moment,
        now: Moment,
    ) -> Result<Option<Uuid>, Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "UPDATE login_links SET consumed_at = $2 WHERE token_hash = $1 AND consumed_at IS NULL AND expires_at > $2
                   RETURNING org_id, user_id";
        let consumed: Option<Consumed> = fetch_optional!(writing, sql, link.to_vec(), micros(now))?;
        let Some(Consumed { org_id, user_id }) = consumed else {
            return Ok(None);
        };
        for sql in SWEPT {
            execute!(writing, sql, micros(now))?;
        }
        execute!(
            writing,
            "INSERT INTO dashboard_sessions (token_hash, org_id, user_id, expires_at, created_at, id) VALUES ($1, $2, $3, $4, $5, $6)",
            session.to_vec(),
            org_id,
            user_id,
            micros(expires_at),
            micros(now),
            new_id(now),
        )?;
        writing.commit().await?;
        Ok(Some(org_id))
    }

    /// The session, unless it has ended.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn by_token(self, session: TokenHash, now: Moment) -> Result<Option<Session>, Error> {
        let mut reading = self.0.pool().peek().await?;
        let sql = "SELECT dashboard_sessions.id AS id, orgs.id AS org_id, orgs.name AS org_name, users.name AS name, email,
                       EXISTS (SELECT 1 FROM membership_roles JOIN roles ON roles.id = role_id
                           WHERE membership_roles.org_id = orgs.id AND user_id = users.id AND access = 'write') AS writes,
                       (suspended_by_partner_at IS NOT NULL OR suspended_by_operator_at IS NOT NULL
                           OR partner_inactive_at IS NOT NULL) AS suspended,
                       expires_at
                   FROM dashboard_sessions JOIN orgs ON orgs.id = dashboard_sessions.org_id
                       JOIN users ON users.id = dashboard_sessions.user_id
                   WHERE token_hash = $1 AND expires_at > $2";
        fetch_optional!(reading, sql, session.to_vec(), micros(now))
    }

    /// Whether a page with a button stands before the link.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone; a link that is used, too old or unknown has none.
    pub async fn needs_confirmation(self, link: TokenHash, now: Moment) -> Result<bool, Error> {
        let mut reading = self.0.pool().peek().await?;
        let sql = "SELECT confirm FROM login_links WHERE token_hash = $1 AND consumed_at IS NULL AND expires_at > $2";
        let found: Option<(bool,)> = fetch_optional!(reading, sql, link.to_vec(), micros(now))?;
        Ok(found.is_some_and(|(confirm,)| confirm))
    }

    /// A page of the org's sessions that haven't ended, newest first, of one address if `email` is given, after `after`.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone.
    pub async fn page(
        self,
        org: Uuid,
        email: Option<&str>,
        after: Option<Position>,
        limit: u32,
        now: Moment,
    ) -> Result<Page<ListedSession>, Error> {
        let mut reading = self.0.pool().peek_snapshot().await?;
        let after = after.unwrap_or(Position::START);
        let items: Vec<ListedSession> = fetch_all!(
            reading,
            "SELECT dashboard_sessions.id AS id, email, name, dashboard_sessions.created_at AS created_at, expires_at
             FROM dashboard_sessions JOIN users ON users.id = user_id
             WHERE org_id = $1 AND (dashboard_sessions.created_at, dashboard_sessions.id) < ($2, $3) AND expires_at > $4
                 AND dashboard_sessions.id IS NOT NULL AND (CAST($6 AS TEXT) IS NULL OR email = $6)
             ORDER BY dashboard_sessions.created_at DESC, dashboard_sessions.id DESC LIMIT $5",
            org,
            after.at_micros(),
            after.id,
            micros(now),
            i64::from(limit) + 1,
            email,
        )?;
        let sql = "SELECT COUNT(*) FROM dashboard_sessions JOIN users ON users.id = user_id
             WHERE org_id = $1 AND expires_at > $2 AND dashboard_sessions.id IS NOT NULL AND (CAST($3 AS TEXT) IS NULL OR email = $3)";
        let (total,): (i64,) = fetch_one!(reading, sql, org, micros(now), email)?;
        Ok(Page::of(items, limit, total, |item| Position {
            at: item.created_at,
            id: item.id,
        }))
    }

    /// Ends a session of the org by its id, or all of them.
    ///
    /// # Errors
    /// [`Wrong::Absent`] for an id that names none.
    pub async fn end_of_org(
        self,
        org: Uuid,
        session: Option<Uuid>,
        now: Moment,
    ) -> Result<u64, Error> {
        let mut writing = self.0.pool().write().await?;
        let ended = match session {
            Some(session) => {
                let sql = "DELETE FROM dashboard_sessions WHERE org_id = $1 AND id = $2";
                execute!(writing, sql, org, session)?
            }
            None => {
                let sql = "DELETE FROM dashboard_sessions WHERE org_id = $1";
                execute!(writing, sql, org)?
            }
        };
        if session.is_some() && ended == 0 {
            return Err(Wrong::Absent(Kind::DashboardSession).into());
        }
        self.0.commit(writing, &[Change::Session(org)], now).await?;
        Ok(ended)
    }

    /// Ends a session for good.
    ///
    /// # Errors
    /// [`Broke`](super::Broke) alone; one that is over already is no error.
    pub async fn end(self, session: TokenHash, now: Moment) -> Result<(), Error> {
        let mut writing = self.0.pool().write().await?;
        let sql = "DELETE FROM dashboard_sessions WHERE token_hash = $1 RETURNING org_id";
        let org: Option<(Uuid,)> = fetch_optional!(writing, sql, session.to_vec())?;
        match org {
            Some((org,)) => self.0.commit(writing, &[Change::Session(org)], now).await,
            None => Ok(()),
        }
    }
}
