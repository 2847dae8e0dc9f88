//! Sessions of the dashboard: each is opened by a login link, once, and is kept by the SHA-256 of its token.

use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::Store;
use super::column::{count, from_row, maybe, micros, moment};
use super::error::Error;
use super::feed::Change;
use super::pool::{execute, fetch_optional};

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// Somebody's session in an org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub org_name: String,
    /// Requests a minute, where the org has a limit of its own.
    pub requests_per_minute: Option<u32>,
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
    org_id,
    org_name,
    requests_per_minute: maybe(count),
    name,
    email,
    writes,
    suspended,
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
            "INSERT INTO dashboard_sessions (token_hash, org_id, user_id, expires_at, created_at) VALUES ($1, $2, $3, $4, $5)",
            session.to_vec(),
            org_id,
            user_id,
            micros(expires_at),
            micros(now),
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
        let sql = "SELECT orgs.id AS org_id, orgs.name AS org_name, requests_per_minute, users.name AS name, email,
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
