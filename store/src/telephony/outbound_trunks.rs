//! Outbound trunks: the carriers and PBXs over which agents dial.

use trunkline_model::auth_realms::{AuthRealms, KnownRealm};
use trunkline_model::settings::TransferWay;
use trunkline_routing::E164;
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::agents::must_exist;
use crate::driver::change::Change;
use crate::driver::column::{
    Unreadable, count, from_row, json, maybe, moment, named, number, small, to_json,
};
use crate::driver::edit::lock_org;
use crate::driver::error::{Broke, Conflict, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::keyring::Keyring;
use crate::driver::org_limit::OrgLimit;
use crate::driver::page::{List, Narrow, Page, Position};
use crate::driver::tx::Tx;
use crate::tenants::org_limits::{leave_room, leave_room_for};
use crate::tenants::password::Password;

/// An outbound trunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutboundTrunk {
    /// The trunk.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its settings.
    pub settings: NewOutboundTrunk,
    /// Time at which the peer was first seen to keep the call after an accepted REFER had failed.
    pub refer_kept_caller_at: Option<Moment>,
    /// Realms with which the peer has challenged.
    pub auth_realms: Vec<KnownRealm>,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change.
    pub updated_at: Moment,
}

/// A new outbound trunk. Only name, transfer method and `digest_require_qop` can be changed afterwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOutboundTrunk {
    /// Its name.
    pub name: String,
    /// Host and port of the peer; `None`: the org's registered PBX.
    pub peer: Option<(String, u16)>,
    /// Transport to the peer.
    pub transport: Transport,
    /// Credentials for the peer's digest challenges.
    pub credentials: Option<(String, Password)>,
    /// Caller number of outbound calls.
    pub caller_number: E164,
    /// Host in From; `None`: this node's own.
    pub from_host: Option<String>,
    /// P-Asserted-Identity carries the caller number (RFC 3325).
    pub p_asserted_identity: bool,
    /// This node registers with the peer.
    pub register: bool,
    /// Most concurrent calls; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// Most new calls per second; `None`: no limit.
    pub calls_per_second: Option<u32>,
    /// Method by which callees are transferred.
    pub transfer_way: TransferWay,
    /// The only realm for which the credentials are meant; `None`: the first few realms with which the peer challenges.
    pub auth_realm: Option<String>,
    /// Challenges without `qop` are left unanswered.
    pub digest_require_qop: bool,
    /// INVITEs carry `user=phone` in Request-URI, To and From.
    pub user_phone: bool,
}

/// A change of a trunk; `None` leaves a field as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OutboundTrunkChange {
    /// Its name.
    pub name: Option<String>,
    /// Method by which callees are transferred.
    pub transfer_way: Option<TransferWay>,
    /// Challenges without `qop` are left unanswered.
    pub digest_require_qop: Option<bool>,
    /// Deletes the realms that were learnt.
    pub forgets_realms: bool,
}

const LIST: List = List {
    columns: "*",
    table: "outbound_trunks",
    by: ["name", "transport"],
};

/// Creates a trunk. `registrations` is the default limit on an org's trunks that register with their carriers.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::AtLimit`].
pub fn create(
    tx: &mut Tx,
    org: Uuid,
    settings: &NewOutboundTrunk,
    registrations: u32,
    now: Moment,
) -> Result<OutboundTrunk, Error> {
    lock_org(tx, org)?;
    leave_room_for(tx, org, OrgLimit::OutboundTrunks, now)?;

    if settings.register {
        leave_room(tx, org, OrgLimit::Registrations, registrations, now)?;
    }

    let trunk = OutboundTrunk {
        id: new_id(now),
        org_id: org,
        settings: settings.clone(),
        refer_kept_caller_at: None,
        auth_realms: Vec::new(),
        created_at: now,
        updated_at: now,
    };

    insert(tx, &trunk)?;
    tx.changed(Change::Org(org), now);

    Ok(trunk)
}

/// Returns the trunk of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, trunk: Uuid) -> Result<OutboundTrunk, Error> {
    let sql = "SELECT * FROM outbound_trunks WHERE org_id = $1 AND id = $2";
    let row: Option<Row> = tx.one(sql, &[&org, &trunk])?;
    let row = row.ok_or(Wrong::Absent(Kind::OutboundTrunk))?;
    Ok(row.open(&tx.keyring())?)
}

/// Returns a page of the org's outbound trunks, newest first, filtered by name and transport, after `after`.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<OutboundTrunk>, Error> {
    let rows = LIST.page(tx, org, narrow, after, limit, |row: &Row| Position {
        at: row.created_at,
        id: row.id,
    })?;
    Ok(rows.try_map(|row| row.open(&tx.keyring()))?)
}

/// Changes the trunk; returns it as changed.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn update(
    tx: &mut Tx,
    org: Uuid,
    trunk: Uuid,
    change: &OutboundTrunkChange,
    now: Moment,
) -> Result<OutboundTrunk, Error> {
    lock_org(tx, org)?;
    if *change == OutboundTrunkChange::default() {
        tx.mark_internal();
        return by_id(tx, org, trunk);
    }
    let sql = "UPDATE outbound_trunks SET name = COALESCE($3, name), updated_at = $4, transfer_way = COALESCE($5, transfer_way),
             digest_require_qop = COALESCE($6, digest_require_qop), auth_realms = COALESCE($7, auth_realms),
             refer_kept_caller_at = CASE WHEN $8 THEN NULL ELSE refer_kept_caller_at END
         WHERE org_id = $1 AND id = $2 RETURNING *";

    let (name, way) = (&change.name, change.transfer_way.map(TransferWay::as_str));
    let (qop, realms) = (
        change.digest_require_qop,
        change.forgets_realms.then_some("[]"),
    );
    // As for an inbound trunk: `bridge` means that REFER isn't trusted, so the state that `auto` has learnt is cleared.
    let forgets_learnt = change.transfer_way == Some(TransferWay::Bridge);

    let row: Option<Row> = tx.one(
        sql,
        &[
            &org,
            &trunk,
            &name,
            &now,
            &way,
            &qop,
            &realms,
            &forgets_learnt,
        ],
    )?;

    let row = row.ok_or(Wrong::Absent(Kind::OutboundTrunk))?;
    let trunk = row.open(&tx.keyring())?;
    tx.changed(Change::Org(org), now);
    Ok(trunk)
}

/// Stores the realm of a challenge by the trunk's peer. Does nothing for a trunk that no longer exists.
///
/// # Errors
/// [`Broke`]: the database fails.
pub fn learn_realm(
    tx: &mut Tx,
    org: Uuid,
    trunk: Uuid,
    seen: &KnownRealm,
    now: Moment,
) -> Result<(), Error> {
    match lock_org(tx, org) {
        Err(Error::Wrong(Wrong::Absent(_))) => return Ok(()),
        done => done?,
    }

    // Read under the lock: two calls may learn a realm at once, and a trunk has a bounded number of them.
    let sql = "SELECT * FROM outbound_trunks WHERE org_id = $1 AND id = $2";
    let row: Option<Row> = tx.one(sql, &[&org, &trunk])?;
    let Some(row) = row else { return Ok(()) };
    let requires_qop = row.digest_require_qop.unwrap_or(false);
    let mut realms = AuthRealms::new(row.auth_realm.as_deref(), &row.auth_realms, requires_qop);

    if !realms.learn(seen) {
        return Ok(());
    }

    let sql = "UPDATE outbound_trunks SET auth_realms = $3 WHERE org_id = $1 AND id = $2";
    tx.run(sql, &[&org, &trunk, &to_json(realms.known())])?;
    tx.changed(Change::Org(org), now);

    Ok(())
}

/// Deletes a trunk that no agent uses.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::TrunkInUse`].
pub fn delete(tx: &mut Tx, org: Uuid, trunk: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    let sql = "SELECT id, name FROM agents WHERE org_id = $1 AND outbound_trunk_id = $2 ORDER BY created_at, id";
    let agents: Vec<(Uuid, String)> = tx.all(sql, &[&org, &trunk])?;
    if !agents.is_empty() {
        return Err(Conflict::TrunkInUse { agents }.into());
    }

    let sql = "DELETE FROM outbound_trunks WHERE org_id = $1 AND id = $2";
    if tx.run(sql, &[&org, &trunk])? == 0 {
        return Err(Wrong::Absent(Kind::OutboundTrunk).into());
    }

    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Sets the trunk over which an agent dials; `None`: no trunk.
///
/// # Errors
/// [`Wrong::Absent`] for the agent, [`Wrong::Unknown`] for the trunk.
pub fn assign(
    tx: &mut Tx,
    org: Uuid,
    agent: Uuid,
    trunk: Option<Uuid>,
    now: Moment,
) -> Result<(), Error> {
    lock_org(tx, org)?;
    must_exist(tx, org, agent)?;
    if let Some(id) = trunk {
        let sql = "SELECT id FROM outbound_trunks WHERE org_id = $1 AND id = $2";
        let row: Option<(Uuid,)> = tx.one(sql, &[&org, &id])?;
        let kind = Kind::OutboundTrunk;
        row.ok_or(Wrong::Unknown { kind, id })?;
    }
    let sql =
        "UPDATE agents SET outbound_trunk_id = $3, updated_at = $4 WHERE org_id = $1 AND id = $2";
    tx.run(sql, &[&org, &agent, &trunk, &now])?;
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// A row, with the password sealed.
pub(crate) struct Row {
    id: Uuid,
    pub(crate) org_id: Uuid,
    name: String,
    host: Option<String>,
    port: Option<u16>,
    transport: Transport,
    username: Option<String>,
    password: Option<Vec<u8>>,
    caller_number: E164,
    from_host: Option<String>,
    p_asserted_identity: bool,
    register: bool,
    max_concurrent_calls: Option<u32>,
    calls_per_second: Option<u32>,
    transfer_way: TransferWay,
    refer_kept_caller_at: Option<Moment>,
    auth_realm: Option<String>,
    auth_realms: Vec<KnownRealm>,
    digest_require_qop: Option<bool>,
    user_phone: bool,
    created_at: Moment,
    updated_at: Moment,
}
from_row!(Row {
    id,
    org_id,
    name,
    host,
    port: maybe(small),
    transport: transport,
    username,
    password,
    caller_number: number,
    from_host,
    p_asserted_identity,
    register,
    max_concurrent_calls: maybe(count),
    calls_per_second: maybe(count),
    transfer_way: named,
    refer_kept_caller_at: maybe(moment),
    auth_realm,
    auth_realms: json,
    digest_require_qop,
    user_phone,
    created_at: moment,
    updated_at: moment,
});

fn insert(tx: &mut Tx, trunk: &OutboundTrunk) -> Result<(), Error> {
    let keyring = tx.keyring();
    let settings = &trunk.settings;
    let (host, port) = settings
        .peer
        .as_ref()
        .map(|(host, port)| (host.as_str(), i64::from(*port)))
        .unzip();

    let (username, password) = settings
        .credentials
        .as_ref()
        .map(|(username, password)| (username.as_str(), password.seal(&keyring, &owner(trunk.id))))
        .unzip();

    tx.run(
        "INSERT INTO outbound_trunks (id, org_id, name, host, port, transport, username, password, caller_number,
             to_registered, from_host, p_asserted_identity, register, max_concurrent_calls, calls_per_second,
             created_at, updated_at, transfer_way, auth_realm, digest_require_qop, user_phone)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)",
        &[
            &trunk.id,
            &trunk.org_id,
            &settings.name,
            &host,
            &port,
            &settings.transport.uri_name(),
            &username,
            &password,
            &settings.caller_number,
            &settings.peer.is_none(),
            &settings.from_host,
            &settings.p_asserted_identity,
            &settings.register,
            &settings.max_concurrent_calls,
            &settings.calls_per_second,
            &trunk.created_at,
            &trunk.updated_at,
            &settings.transfer_way.as_str(),
            &settings.auth_realm,
            &settings.digest_require_qop,
            &settings.user_phone,
        ],
    )?;

    Ok(())
}

impl Row {
    pub(crate) fn open(self, keyring: &Keyring) -> Result<OutboundTrunk, Broke> {
        let open = |sealed: Vec<u8>| Password::open(keyring, &owner(self.id), &sealed);
        let password = self.password.map(open).transpose()?;

        Ok(OutboundTrunk {
            id: self.id,
            org_id: self.org_id,
            settings: NewOutboundTrunk {
                name: self.name,
                peer: self.host.zip(self.port),
                transport: self.transport,
                credentials: self.username.zip(password),
                caller_number: self.caller_number,
                from_host: self.from_host,
                p_asserted_identity: self.p_asserted_identity,
                register: self.register,
                max_concurrent_calls: self.max_concurrent_calls,
                calls_per_second: self.calls_per_second,
                transfer_way: self.transfer_way,
                auth_realm: self.auth_realm,
                digest_require_qop: self.digest_require_qop.unwrap_or(false),
                user_phone: self.user_phone,
            },
            refer_kept_caller_at: self.refer_kept_caller_at,
            auth_realms: self.auth_realms,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

/// Returns the context under which the password is sealed.
pub(crate) fn owner(trunk: Uuid) -> Vec<u8> {
    [b"outbound trunk\0", trunk.as_bytes().as_slice()].concat()
}

fn transport(text: &str) -> Result<Transport, Unreadable> {
    [Transport::Udp, Transport::Tcp, Transport::Tls]
        .into_iter()
        .find(|transport| transport.uri_name() == text)
        .ok_or_else(|| format!("{text:?} is no transport").into())
}
