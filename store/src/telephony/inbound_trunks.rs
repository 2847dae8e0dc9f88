//! Inbound trunks: one for each org, with the credentials with which its PBX registers and calls.

use std::collections::HashSet;

use std::time::Duration;

use ipnet::IpNet;
use trunkline_model::settings::{ReferFormat, TransferWay};
use trunkline_routing::{Country, E164};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::change::Change;
use crate::driver::column::{count, from_row, json, maybe, moment, named, number, parsed, to_json};
use crate::driver::edit::{lock_org, set};
use crate::driver::error::{Broke, Conflict, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::keyring::Keyring;
use crate::driver::tx::Tx;
use crate::tenants::password::Password;

/// Time for which the old credentials work after a rotation.
const OLD_PAIR_WORKS: Duration = Duration::from_secs(24 * 3600);
/// Most old credentials of a trunk that work: every node has them all in memory.
const OLD_PAIRS: i64 = 10;

/// An org's inbound trunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InboundTrunk {
    /// The trunk.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Its name.
    pub name: String,
    /// Digest user name.
    pub username: String,
    /// Digest password.
    pub password: Password,
    /// Numbers in the order in which routing tries them; some may have lost their verification since they were listed.
    pub numbers: Vec<E164>,
    /// Noise suppression, handed to the runtime.
    pub krisp_enabled: bool,
    /// If SDP names a private address, RTP may come from an address that neither SDP nor signalling names.
    pub rtp_from_any_address: bool,
    /// Networks whose calls to `numbers` need no credentials.
    pub allowed_addresses: Vec<IpNet>,
    /// The part of `allowed_addresses` that the operator entered.
    pub operator_addresses: Vec<IpNet>,
    /// Country in whose national form the trunk sends numbers.
    pub default_country: Option<Country>,
    /// Form in which `Refer-To` names a phone number.
    pub refer_to_format: ReferFormat,
    /// The host in `Refer-To`; `None`: the host of the peer's Contact.
    pub refer_host: Option<String>,
    /// The context headers are repeated inside the `Refer-To` URI.
    pub refer_headers_in_uri: bool,
    /// Method by which callers are transferred.
    pub transfer_way: TransferWay,
    /// A failed REFER is followed by a bridge.
    pub bridge_when_refer_fails: bool,
    /// Time at which the PBX was first seen to keep the call after an accepted REFER had failed.
    pub refer_kept_caller_at: Option<Moment>,
    /// Most concurrent calls; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
    /// Time of creation.
    pub created_at: Moment,
    /// Time of the last change.
    pub updated_at: Moment,
}

/// A change of a trunk; `None` leaves a field as it is (or, on a new trunk, at its default), and `Some(None)` clears one that may be empty.
/// The fields are those of [`InboundTrunk`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct InboundTrunkChange {
    /// On a new trunk `None` means every verified number of the org.
    pub numbers: Option<Vec<E164>>,
    pub name: Option<String>,
    pub krisp_enabled: Option<bool>,
    pub rtp_from_any_address: Option<bool>,
    pub allowed_addresses: Option<Vec<IpNet>>,
    /// `None` keeps those that are still allowed.
    pub operator_addresses: Option<Vec<IpNet>>,
    pub default_country: Option<Option<Country>>,
    pub refer_to_format: Option<ReferFormat>,
    pub refer_host: Option<Option<String>>,
    pub refer_headers_in_uri: Option<bool>,
    pub transfer_way: Option<TransferWay>,
    pub bridge_when_refer_fails: Option<bool>,
    pub max_concurrent_calls: Option<Option<u32>>,
}

/// Result of [`sync`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synced {
    /// The trunk as changed.
    pub trunk: InboundTrunk,
    /// Verified numbers that are now listed.
    pub added: Vec<E164>,
    /// Listed numbers that were removed, since they are no longer verified.
    pub removed: Vec<E164>,
}

/// Creates the org's trunk, with new credentials.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::TrunkExists`], [`Wrong::Entries`] of [`Wrong::NotVerified`],
/// [`Wrong::NoVerifiedNumber`].
pub fn create(
    tx: &mut Tx,
    org: Uuid,
    settings: &InboundTrunkChange,
    now: Moment,
) -> Result<InboundTrunk, Error> {
    lock_org(tx, org)?;
    let verified = verified(tx, org)?;
    let numbers = match &settings.numbers {
        Some(numbers) => may_list(numbers, &[], &verified)?,
        None if verified.is_empty() => return Err(Wrong::NoVerifiedNumber.into()),
        None => verified,
    };

    let mut trunk = InboundTrunk::new(org, now);
    trunk.apply(settings.clone(), now);
    insert(tx, &trunk)?;
    list_numbers(tx, &mut trunk, numbers, now)?;

    tx.changed(Change::Org(org), now);
    Ok(trunk)
}

/// Returns the org's trunk.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn of_org(tx: &mut Tx, org: Uuid) -> Result<InboundTrunk, Error> {
    tx.snapshot()?;
    let row: Option<Row> = tx.one("SELECT * FROM inbound_trunks WHERE org_id = $1", &[&org])?;
    let row = row.ok_or(Wrong::Absent(Kind::InboundTrunk))?;
    let sql = "SELECT number FROM inbound_trunk_numbers WHERE org_id = $1 ORDER BY position";
    let numbers: Vec<Listed> = tx.all(sql, &[&org])?;
    let numbers = numbers.into_iter().map(|row| row.number).collect();
    Ok(row.open(&tx.keyring(), numbers)?)
}

/// Changes the trunk; returns it as changed.
///
/// # Errors
/// [`Wrong::Absent`], [`Wrong::Entries`] of [`Wrong::NotVerified`].
pub fn update(
    tx: &mut Tx,
    org: Uuid,
    change: &InboundTrunkChange,
    now: Moment,
) -> Result<InboundTrunk, Error> {
    lock_org(tx, org)?;
    let mut trunk = of_org(tx, org)?;
    if *change == InboundTrunkChange::default() {
        tx.mark_internal();
        return Ok(trunk);
    }

    if let Some(numbers) = &change.numbers {
        let verified = verified(tx, org)?;
        let numbers = may_list(numbers, &trunk.numbers, &verified)?;
        list_numbers(tx, &mut trunk, numbers, now)?;
    }

    trunk.apply(change.clone(), now);

    tx.run(
        "UPDATE inbound_trunks SET name = $2, krisp_enabled = $3, allowed_addresses = $4, default_country = $5,
             refer_to_format = $6, refer_host = $7, refer_headers_in_uri = $8, bridge_when_refer_fails = $9,
             max_concurrent_calls = $10, updated_at = $11, operator_addresses = $12, transfer_way = $13, rtp_from_any_address = $14,
             refer_kept_caller_at = $15
         WHERE org_id = $1",
        &[
            &org,
            &trunk.name,
            &trunk.krisp_enabled,
            &to_json(&trunk.allowed_addresses),
            &trunk.default_country.as_ref().map(Country::as_str),
            &trunk.refer_to_format.as_str(),
            &trunk.refer_host,
            &trunk.refer_headers_in_uri,
            &trunk.bridge_when_refer_fails,
            &trunk.max_concurrent_calls,
            &now,
            &to_json(&trunk.operator_addresses),
            &trunk.transfer_way.as_str(),
            &trunk.rtp_from_any_address,
            &trunk.refer_kept_caller_at,
        ],
    )?;

    tx.changed(Change::Org(org), now);
    Ok(trunk)
}

/// Deletes the trunk; its credentials stop working.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn delete(tx: &mut Tx, org: Uuid, now: Moment) -> Result<(), Error> {
    lock_org(tx, org)?;
    if tx.run("DELETE FROM inbound_trunks WHERE org_id = $1", &[&org])? == 0 {
        return Err(Wrong::Absent(Kind::InboundTrunk).into());
    }
    tx.changed(Change::Org(org), now);
    Ok(())
}

/// Replaces the trunk's credentials; the old ones work for 24 hours more, those of the last ten rotations at most.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn rotate_credentials(tx: &mut Tx, org: Uuid, now: Moment) -> Result<InboundTrunk, Error> {
    lock_org(tx, org)?;
    let mut trunk = of_org(tx, org)?;

    // The password is sealed under the user name, so the sealed value can move as it is.
    tx.run(
        "INSERT INTO old_credentials (username, org_id, trunk_id, password, expires_at)
         SELECT username, org_id, id, password, $2 FROM inbound_trunks WHERE org_id = $1",
        &[&org, &(now + OLD_PAIR_WORKS)],
    )?;

    tx.run(
        "DELETE FROM old_credentials WHERE org_id = $1 AND expires_at <= $2",
        &[&org, &now],
    )?;
    tx.run(
        "DELETE FROM old_credentials WHERE org_id = $1 AND username NOT IN (
             SELECT username FROM old_credentials WHERE org_id = $1 ORDER BY expires_at DESC, username LIMIT $2)",
        &[&org, &OLD_PAIRS],
    )?;

    (trunk.username, trunk.password) = new_credentials();
    trunk.updated_at = now;
    tx.run(
        "UPDATE inbound_trunks SET username = $2, password = $3, updated_at = $4 WHERE org_id = $1",
        &[&org, &trunk.username, &seal(&tx.keyring(), &trunk), &now],
    )?;
    tx.changed(Change::Org(org), now);

    Ok(trunk)
}

/// Appends numbers to the list; a number that is listed already changes nothing.
///
/// # Errors
/// [`Wrong::Absent`], [`Wrong::Entries`] of [`Wrong::NotVerified`].
pub fn add_numbers(
    tx: &mut Tx,
    org: Uuid,
    numbers: &[E164],
    now: Moment,
) -> Result<InboundTrunk, Error> {
    lock_org(tx, org)?;
    let mut trunk = of_org(tx, org)?;

    let verified = verified(tx, org)?;
    let more = may_list(numbers, &trunk.numbers, &verified)?;
    let listed = [trunk.numbers.clone(), more].concat();
    list_numbers(tx, &mut trunk, listed, now)?;

    tx.changed(Change::Org(org), now);
    Ok(trunk)
}

/// Removes a number from the list.
///
/// # Errors
/// [`Wrong::Absent`] for the trunk, or for a number that isn't listed.
pub fn remove_number(
    tx: &mut Tx,
    org: Uuid,
    number: &E164,
    now: Moment,
) -> Result<InboundTrunk, Error> {
    lock_org(tx, org)?;
    let mut trunk = of_org(tx, org)?;
    if !trunk.numbers.contains(number) {
        return Err(Wrong::Absent(Kind::Number).into());
    }

    let rest = trunk
        .numbers
        .iter()
        .copied()
        .filter(|listed| listed != number)
        .collect();

    list_numbers(tx, &mut trunk, rest, now)?;
    tx.changed(Change::Org(org), now);
    Ok(trunk)
}

/// Lists every verified number, and removes those that are no longer verified.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn sync(tx: &mut Tx, org: Uuid, now: Moment) -> Result<Synced, Error> {
    lock_org(tx, org)?;
    let mut trunk = of_org(tx, org)?;
    let verified = verified(tx, org)?;
    let known: HashSet<_> = verified.iter().copied().collect();
    let listed: HashSet<_> = trunk.numbers.iter().copied().collect();
    let (kept, removed): (Vec<_>, Vec<_>) = trunk
        .numbers
        .iter()
        .copied()
        .partition(|number| known.contains(number));

    let added: Vec<_> = verified
        .into_iter()
        .filter(|number| !listed.contains(number))
        .collect();
    list_numbers(tx, &mut trunk, [kept, added.clone()].concat(), now)?;
    tx.changed(Change::Org(org), now);

    Ok(Synced {
        trunk,
        added,
        removed,
    })
}

/// The row, without its numbers.
pub(crate) struct Row {
    id: Uuid,
    pub(crate) org_id: Uuid,
    name: String,
    username: String,
    password: Vec<u8>,
    krisp_enabled: bool,
    rtp_from_any_address: Option<bool>,
    allowed_addresses: Vec<IpNet>,
    operator_addresses: Vec<IpNet>,
    default_country: Option<Country>,
    refer_to_format: ReferFormat,
    refer_host: Option<String>,
    refer_headers_in_uri: bool,
    transfer_way: TransferWay,
    bridge_when_refer_fails: bool,
    refer_kept_caller_at: Option<Moment>,
    max_concurrent_calls: Option<u32>,
    created_at: Moment,
    updated_at: Moment,
}
from_row!(Row {
    id,
    org_id,
    name,
    username,
    password,
    krisp_enabled,
    rtp_from_any_address,
    allowed_addresses: json,
    operator_addresses: json,
    default_country: maybe(parsed),
    refer_to_format: named,
    refer_host,
    refer_headers_in_uri,
    transfer_way: named,
    bridge_when_refer_fails,
    refer_kept_caller_at: maybe(moment),
    max_concurrent_calls: maybe(count),
    created_at: moment,
    updated_at: moment,
});

/// A row of which only the number is read.
struct Listed {
    number: E164,
}
from_row!(Listed { number: number });

impl Row {
    pub(crate) fn open(self, keyring: &Keyring, numbers: Vec<E164>) -> Result<InboundTrunk, Broke> {
        let password = open_password(keyring, &self.username, &self.password)?;

        Ok(InboundTrunk {
            id: self.id,
            org_id: self.org_id,
            name: self.name,
            username: self.username,
            password,
            numbers,
            krisp_enabled: self.krisp_enabled,
            rtp_from_any_address: self.rtp_from_any_address.unwrap_or(false),
            allowed_addresses: self.allowed_addresses,
            operator_addresses: self.operator_addresses,
            default_country: self.default_country,
            refer_to_format: self.refer_to_format,
            refer_host: self.refer_host,
            refer_headers_in_uri: self.refer_headers_in_uri,
            transfer_way: self.transfer_way,
            bridge_when_refer_fails: self.bridge_when_refer_fails,
            refer_kept_caller_at: self.refer_kept_caller_at,
            max_concurrent_calls: self.max_concurrent_calls,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

fn insert(tx: &mut Tx, trunk: &InboundTrunk) -> Result<(), Error> {
    let inserted = tx.run(
        "INSERT INTO inbound_trunks (id, org_id, name, username, password, krisp_enabled, allowed_addresses,
             default_country, refer_to_format, refer_host, refer_headers_in_uri, bridge_when_refer_fails,
             max_concurrent_calls, created_at, updated_at, operator_addresses, transfer_way, rtp_from_any_address)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) ON CONFLICT (org_id) DO NOTHING",
        &[
            &trunk.id,
            &trunk.org_id,
            &trunk.name,
            &trunk.username,
            &seal(&tx.keyring(), trunk),
            &trunk.krisp_enabled,
            &to_json(&trunk.allowed_addresses),
            &trunk.default_country.as_ref().map(Country::as_str),
            &trunk.refer_to_format.as_str(),
            &trunk.refer_host,
            &trunk.refer_headers_in_uri,
            &trunk.bridge_when_refer_fails,
            &trunk.max_concurrent_calls,
            &trunk.created_at,
            &trunk.updated_at,
            &to_json(&trunk.operator_addresses),
            &trunk.transfer_way.as_str(),
            &trunk.rtp_from_any_address,
        ],
    )?;

    if inserted == 0 {
        Err(Conflict::TrunkExists.into())
    } else {
        Ok(())
    }
}

/// Replaces the list if it differs; a repeated number counts once.
fn list_numbers(
    tx: &mut Tx,
    trunk: &mut InboundTrunk,
    numbers: Vec<E164>,
    now: Moment,
) -> Result<(), Error> {
    let (mut listed, mut seen) = (numbers, HashSet::new());
    listed.retain(|number| seen.insert(*number));
    if listed == trunk.numbers {
        return Ok(());
    }

    // Few of many numbers change at once, and most of these at the end: rows before the first difference stay.
    let both = listed.iter().zip(&trunk.numbers);
    let same = both.take_while(|(new, old)| new == old).count();
    let (org, id) = (trunk.org_id, trunk.id);
    for gone in &trunk.numbers[same..] {
        let sql =
            "DELETE FROM inbound_trunk_numbers WHERE org_id = $1 AND trunk_id = $2 AND number = $3";
        tx.run(sql, &[&org, &id, &gone.as_str()])?;
    }

    let sql = "INSERT INTO inbound_trunk_numbers (org_id, trunk_id, number, position) VALUES ($1, $2, $3, $4)";
    for (position, number) in (0_i64..).zip(&listed).skip(same) {
        tx.run(sql, &[&org, &id, &number.as_str(), &position])?;
    }

    let sql = "UPDATE inbound_trunks SET updated_at = $2 WHERE org_id = $1";
    tx.run(sql, &[&org, &now])?;
    (trunk.numbers, trunk.updated_at) = (listed, now);
    Ok(())
}

/// Returns the org's verified numbers, oldest first.
fn verified(tx: &mut Tx, org: Uuid) -> Result<Vec<E164>, Error> {
    let sql = "SELECT number FROM numbers WHERE org_id = $1 AND verified_at IS NOT NULL ORDER BY created_at, id";
    let rows: Vec<Listed> = tx.all(sql, &[&org])?;
    Ok(rows.into_iter().map(|row| row.number).collect())
}

/// Checks a list: it may have verified numbers, and those that are listed already.
fn may_list(numbers: &[E164], listed: &[E164], verified: &[E164]) -> Result<Vec<E164>, Error> {
    let known: HashSet<_> = listed.iter().chain(verified).collect();
    let unlisted = |number: &E164| !known.contains(number);
    let faults: Vec<_> = numbers
        .iter()
        .enumerate()
        .filter(|(_, number)| unlisted(number))
        .map(|(place, number)| (place, Wrong::NotVerified(*number)))
        .collect();

    if faults.is_empty() {
        Ok(numbers.to_vec())
    } else {
        Err(Wrong::Entries(faults).into())
    }
}

/// Returns new credentials of letters and digits that can't be confused, so that a person can type them; each has 5 bits.
fn new_credentials() -> (String, Password) {
    const ALPHABET: &[u8; 32] = b"abcdefghjkmnpqrstuvwxyz023456789";
    // 32 divides 256, so that each letter is equally likely.
    let letters = |octets: &[u8]| -> String {
        octets
            .iter()
            .map(|octet| char::from(ALPHABET[usize::from(octet % 32)]))
            .collect()
    };
    let username = letters(&rand::random::<[u8; 12]>());
    (
        format!("trunk-{username}"),
        Password::new(letters(&rand::random::<[u8; 28]>())),
    )
}

fn seal(keyring: &Keyring, trunk: &InboundTrunk) -> Vec<u8> {
    trunk.password.seal(keyring, &owner(&trunk.username))
}

/// Opens the password that was sealed under this user name.
pub(crate) fn open_password(
    keyring: &Keyring,
    username: &str,
    sealed: &[u8],
) -> Result<Password, Broke> {
    Password::open(keyring, &owner(username), sealed)
}

/// Returns the context under which a password is sealed: its user name, so that both can move to another row together.
pub(crate) fn owner(username: &str) -> Vec<u8> {
    [b"inbound trunk\0", username.as_bytes()].concat()
}

impl InboundTrunk {
    fn new(org_id: Uuid, now: Moment) -> Self {
        let (username, password) = new_credentials();

        Self {
            id: new_id(now),
            org_id,
            name: "Inbound".to_owned(),
            username,
            password,
            numbers: Vec::new(),
            krisp_enabled: false,
            rtp_from_any_address: false,
            allowed_addresses: Vec::new(),
            operator_addresses: Vec::new(),
            default_country: None,
            refer_to_format: ReferFormat::default(),
            refer_host: None,
            refer_headers_in_uri: true,
            transfer_way: TransferWay::default(),
            bridge_when_refer_fails: true,
            refer_kept_caller_at: None,
            max_concurrent_calls: None,
            created_at: now,
            updated_at: now,
        }
    }

    fn apply(&mut self, change: InboundTrunkChange, now: Moment) {
        set(&mut self.name, change.name);
        set(&mut self.krisp_enabled, change.krisp_enabled);
        set(&mut self.rtp_from_any_address, change.rtp_from_any_address);
        set(&mut self.allowed_addresses, change.allowed_addresses);
        set(&mut self.operator_addresses, change.operator_addresses);
        // A network that the tenant removes and adds again later is the tenant's, not the operator's.
        self.operator_addresses
            .retain(|network| self.allowed_addresses.contains(network));
        set(&mut self.default_country, change.default_country);
        set(&mut self.refer_to_format, change.refer_to_format);
        set(&mut self.refer_host, change.refer_host);
        set(&mut self.refer_headers_in_uri, change.refer_headers_in_uri);
        if change.transfer_way == Some(TransferWay::Bridge) {
            // `bridge` distrusts REFER, so what `auto` has learnt of it is forgotten.
            self.refer_kept_caller_at = None;
        }
        set(&mut self.transfer_way, change.transfer_way);
        set(
            &mut self.bridge_when_refer_fails,
            change.bridge_when_refer_fails,
        );
        set(&mut self.max_concurrent_calls, change.max_concurrent_calls);

        self.updated_at = now;
    }
}
