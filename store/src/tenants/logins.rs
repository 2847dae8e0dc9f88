//! People: accounts, their memberships and roles in orgs, and the links that log them in.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::change::Change;
use crate::driver::column::{from_row, moment, named};
use crate::driver::edit::lock_org;
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::page::{List, Narrow, Page, Position};
use crate::driver::tx::Tx;

/// Address of the operator's account, which enters any org and is no person of it: it neither takes the place of an org's first member nor
/// counts as its administrator. The account is known by its owner, not by this address.
pub const OPERATOR_EMAIL: &str = "operator@localhost.localdomain";

/// Returns whether this is the address of the operator's account, in any spelling.
pub const fn is_operators_address(email: &str) -> bool {
    email.eq_ignore_ascii_case(OPERATOR_EMAIL)
}

/// Owner of the operator's account. That of any other account is the partner of its orgs, or the org, if that has no partner.
pub(crate) const OPERATOR: Uuid = Uuid::nil();

/// Rights of the members of a role.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "RoleAccess")]
pub enum Access {
    /// Read and change everything.
    Write,
    /// Read everything, change nothing.
    Read,
}

/// A role of an org.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Role {
    /// The role.
    pub id: Uuid,
    /// Its name.
    pub name: String,
    /// Rights of its members.
    pub access: Access,
    /// Time of creation.
    pub created_at: Moment,
}
from_row!(Role {
    id,
    name,
    access: named,
    created_at: moment
});

/// The person that a link logs in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewLogin {
    /// E-mail address; identifies the account, ignoring case.
    pub email: String,
    /// Name for a new account.
    pub name: Option<String>,
    /// Roles for a new membership; with none the org's first member becomes `admin`, later ones `member`; the operator is not counted.
    pub roles: Vec<Uuid>,
}

/// A link as stored: by the SHA-256 of its token.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LoginLink {
    /// SHA-256 of the token.
    pub token_hash: [u8; 32],
    /// Expiry of the link. Its row is kept until then, even if the link was used.
    pub expires_at: Moment,
    /// True if the link shows a page whose button logs the person in; false if opening it does.
    pub confirm: bool,
}

const LIST: List = List {
    columns: "id, name, access, created_at",
    table: "roles",
    by: ["access", "name"],
};

/// Returns a page of the org's roles, newest first, filtered by access and name.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn roles(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Role>, Error> {
    LIST.page(tx, org, narrow, after, limit, |row: &Role| Position {
        at: row.created_at,
        id: row.id,
    })
}

/// A person who may log in to the org's console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// The account.
    pub id: Uuid,
    /// E-mail address.
    pub email: String,
    /// Name.
    pub name: String,
    /// One of the roles may change things.
    pub writes: bool,
    /// Time from which the person has been a member.
    pub created_at: Moment,
}
from_row!(Member {
    id,
    email,
    name,
    writes,
    created_at: moment
});

/// Returns the org's members, oldest first, with this text in their address or name in any case (of ASCII); at most `limit` after the first `skip`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn members(
    tx: &mut Tx,
    org: Uuid,
    search: Option<&str>,
    skip: u32,
    limit: u32,
) -> Result<Vec<Member>, Error> {
    let literal = |text: &str| {
        let escaped = text.to_lowercase().replace('!', "!!");
        format!("%{}%", escaped.replace('%', "!%").replace('_', "!_"))
    };
    let pattern = search.map(literal);
    tx.all(
        "SELECT users.id AS id, email, users.name AS name,
             EXISTS (SELECT 1 FROM membership_roles JOIN roles ON roles.id = role_id
                 WHERE membership_roles.org_id = memberships.org_id AND membership_roles.user_id = users.id AND access = 'write') AS writes,
             memberships.created_at AS created_at
         FROM memberships JOIN users ON users.id = memberships.user_id WHERE memberships.org_id = $1
             AND (CAST($4 AS TEXT) IS NULL OR email LIKE $4 ESCAPE '!' OR LOWER(users.name) LIKE $4 ESCAPE '!')
         ORDER BY memberships.created_at, users.id LIMIT $2 OFFSET $3",
        &[&org, &i64::from(limit), &i64::from(skip), &pattern],
    )
}

/// Gives a member one role in place of those it has.
///
/// # Errors
/// [`Wrong::Absent`] if the account is no member, [`Wrong::Unknown`] for a role that isn't the org's, [`Conflict::LastAdministrator`].
pub fn set_role(tx: &mut Tx, org: Uuid, user: Uuid, role: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "SELECT access FROM roles WHERE org_id = $1 AND id = $2";
    let found: Option<(String,)> = tx.one(sql, &[&org, &role])?;
    let (access,) = found.ok_or(Wrong::Unknown {
        kind: Kind::Role,
        id: role,
    })?;
    must_be_member(tx, org, user)?;
    // A role that writes can't leave the org without an administrator.
    if access != "write" {
        must_not_be_last(tx, org, user)?;
    }

    let sql = "DELETE FROM membership_roles WHERE org_id = $1 AND user_id = $2";
    tx.run(sql, &[&org, &user])?;
    let sql = "INSERT INTO membership_roles (org_id, user_id, role_id) VALUES ($1, $2, $3)";
    tx.run(sql, &[&org, &user, &role])?;

    // Sessions carry the rights of their person.
    tx.changed(Change::Session(org), now);
    Ok(())
}

fn must_be_member(tx: &mut Tx, org: Uuid, user: Uuid) -> Result<(), Error> {
    let sql = "SELECT user_id FROM memberships WHERE org_id = $1 AND user_id = $2";
    let row: Option<(Uuid,)> = tx.one(sql, &[&org, &user])?;
    row.ok_or(Wrong::Absent(Kind::Member))?;
    Ok(())
}

/// Refuses to take the rights of the only member who may change things. The org is locked, so it stays the only one until the commit. The
/// operator's account doesn't count, and can always lose its rights.
fn must_not_be_last(tx: &mut Tx, org: Uuid, user: Uuid) -> Result<(), Error> {
    let sql = "SELECT DISTINCT user_id FROM membership_roles JOIN roles ON roles.id = role_id JOIN users ON users.id = user_id
               WHERE membership_roles.org_id = $1 AND access = 'write' AND owner_id <> $2 LIMIT 2";
    let administrators: Vec<(Uuid,)> = tx.all(sql, &[&org, &OPERATOR])?;
    if administrators != [(user,)] {
        return Ok(());
    }
    let sql = "SELECT email FROM users WHERE id = $1";
    let (email,): (String,) = tx.exactly_one(sql, &[&user])?;
    Err(Conflict::LastAdministrator { email }.into())
}

/// Ends a membership, with the person's sessions and links in the org. The account stays.
///
/// # Errors
/// [`Wrong::Absent`] if the account is no member, [`Conflict::LastAdministrator`].
pub fn remove(tx: &mut Tx, org: Uuid, user: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    must_not_be_last(tx, org, user)?;

    for sql in [
        "DELETE FROM dashboard_sessions WHERE org_id = $1 AND user_id = $2",
        "DELETE FROM login_links WHERE org_id = $1 AND user_id = $2",
        "DELETE FROM membership_roles WHERE org_id = $1 AND user_id = $2",
    ] {
        tx.run(sql, &[&org, &user])?;
    }

    let sql = "DELETE FROM memberships WHERE org_id = $1 AND user_id = $2";
    if tx.run(sql, &[&org, &user])? == 0 {
        return Err(Wrong::Absent(Kind::Member).into());
    }

    tx.changed(Change::Session(org), now);
    Ok(())
}

/// Stores a link that logs a person into the org; creates account and membership if necessary.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org; [`Wrong::Unknown`] for the first role that isn't the org's, if roles are needed.
pub fn create_link(
    tx: &mut Tx,
    org: Uuid,
    new: &NewLogin,
    link: &LoginLink,
    now: Moment,
) -> Result<(), Error> {
    lock_org(tx, org)?;
    let user = account(tx, org, new, now)?;
    join(tx, org, user, &new.roles, now)?;
    tx.run(
        "INSERT INTO login_links (token_hash, org_id, user_id, expires_at, created_at, confirm) VALUES ($1, $2, $3, $4, $5, $6)",
        &[&link.token_hash, &org, &user, &link.expires_at, &now, &link.confirm],
    )?;
    Ok(())
}

/// Returns the account that the address has with the partner of an org, creating it if necessary. No partner sees the names that another has given.
fn account(tx: &mut Tx, org: Uuid, new: &NewLogin, now: Moment) -> Result<Uuid, Error> {
    let email = new.email.to_ascii_lowercase();
    let owner = match is_operators_address(&email) {
        true => OPERATOR,
        false => {
            let sql = "SELECT COALESCE(partner_id, id) FROM orgs WHERE id = $1";
            let (owner,): (Uuid,) = tx.exactly_one(sql, &[&org])?;
            owner
        }
    };
    let usual = || new.email.split('@').next().unwrap_or_default().to_owned();
    let name = new.name.clone().unwrap_or_else(usual);
    let (user,): (Uuid,) = tx.exactly_one(
        // The update changes no value: it waits for a concurrent transaction that creates the account, and returns its id.
        "INSERT INTO users (id, email, name, created_at, owner_id) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (owner_id, email) DO UPDATE SET email = excluded.email RETURNING id",
        &[&new_id(now), &email, &name, &now, &owner],
    )?;
    Ok(user)
}

/// Creates the membership with its roles, unless the person is a member.
fn join(tx: &mut Tx, org: Uuid, user: Uuid, roles: &[Uuid], now: Moment) -> Result<(), Error> {
    // The operator may have looked into the org before its first person comes.
    let (members,): (i64,) = tx.exactly_one(
        "SELECT COUNT(*) FROM memberships JOIN users ON users.id = user_id WHERE org_id = $1 AND owner_id <> $2",
        &[&org, &OPERATOR],
    )?;
    let sql = "INSERT INTO memberships (org_id, user_id, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
    // A member keeps its roles, whatever roles the link names.
    if tx.run(sql, &[&org, &user, &now])? == 0 {
        return Ok(());
    }

    let usual = if members == 0 { "admin" } else { "member" };
    for role in wanted(tx, org, roles, usual)? {
        tx.run(
            "INSERT INTO membership_roles (org_id, user_id, role_id) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
            &[&org, &user, &role],
        )?;
    }

    Ok(())
}

/// Returns the named roles, or the usual one if none is named.
fn wanted(tx: &mut Tx, org: Uuid, named: &[Uuid], usual: &str) -> Result<Vec<Uuid>, Error> {
    let found: Vec<(Uuid, String)> =
        tx.all("SELECT id, name FROM roles WHERE org_id = $1", &[&org])?;
    if named.is_empty() {
        let usual = found.iter().filter(|(_, name)| name == usual);
        return Ok(usual.map(|(id, _)| *id).collect());
    }

    let unknown = named
        .iter()
        .find(|role| found.iter().all(|(id, _)| id != *role));
    match unknown {
        None => Ok(named.to_vec()),
        Some(id) => Err(Wrong::Unknown {
            kind: Kind::Role,
            id: *id,
        }
        .into()),
    }
}
