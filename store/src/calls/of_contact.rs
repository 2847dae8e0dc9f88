//! All data of one contact's calls, and its handoffs, for its export.

use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::contact_counts;
use super::contacts::Contact;
use super::handoffs::{Handoff, HandoffFilter};
use super::identify::phone_key;
use super::transfers::CallTransfer;
use super::{Call, Header};
use crate::driver::column::{from_row, json, maybe};
use crate::driver::error::Error;
use crate::driver::page::{COUNT_LIMIT, PAGE_OCTETS, Page, Position};
use crate::driver::tx::Tx;
use crate::driver::value::Param;

/// A call of a contact.
#[derive(Clone, PartialEq, Debug)]
pub struct ContactCall {
    /// The call.
    pub call: Call,
    /// The caller's own headers.
    pub headers: Vec<(Box<str>, Box<str>)>,
    /// The last hundred of its transfers, in their order.
    pub transfers: Vec<CallTransfer>,
    /// The first hundred handoffs of its session, in their order.
    pub handoffs: Vec<Handoff>,
}

/// Search for contacts: an external id, an e-mail address in any case, and a phone number in any notation.
pub type ContactSearch = [Option<String>; 3];

struct Carried {
    headers: Option<Vec<Header>>,
}
from_row!(Carried {
    headers: maybe(json)
});

/// Most transfers of a call that are shown: its last ones.
const TRANSFERS: i64 = 100;

/// Most handoffs of a session that are shown: its first ones.
const HANDOFFS: i64 = 100;

/// Calls that name the contact, and calls with its number that name no contact. Another contact may share the number.
const CALLS: &str = "SELECT *, CAST(NULL AS TEXT) AS transfer FROM calls
    WHERE org_id = $1 AND (started_at, id) < ($4, $5)
    AND (contact_id = $2 OR (contact_id IS NULL AND $3 IN (from_e164, to_e164)))
    ORDER BY started_at DESC, id DESC LIMIT $6";

/// Returns a page of the contact's calls, newest first, and the start of the next page. A page has at most `limit` calls, and none after
/// their texts have reached 1 MiB.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn calls(
    tx: &mut Tx,
    org: Uuid,
    contact: &Contact,
    after: Option<Position>,
    limit: u32,
) -> Result<(Vec<ContactCall>, Option<Position>), Error> {
    let after = after.unwrap_or(Position::START);
    tx.snapshot()?;
    // Without a number only the calls that name the contact are found: NULL is in no list.
    let known = number(tx, org, contact)?.map(|number| number.to_string());
    let mut calls: Vec<Call> = tx.all(
        CALLS,
        &[
            &org,
            &contact.id,
            &known,
            &after.at_micros(),
            &after.id,
            &(i64::from(limit) + 1),
        ],
    )?;

    let has_more = calls.len() > limit as usize;
    calls.truncate(limit as usize);

    let mut calls = calls.into_iter();
    let mut whole: Vec<ContactCall> = Vec::new();
    let mut octets = 0;
    while octets < PAGE_OCTETS
        && let Some(call) = calls.next()
    {
        let call = complete(tx, call)?;
        octets += call.octets();
        whole.push(call);
    }

    let has_more = has_more || calls.len() > 0;
    let next = whole
        .last()
        .filter(|_| has_more)
        .map(|ContactCall { call, .. }| Position {
            at: call.started_at,
            id: call.id,
        });

    Ok((whole, next))
}

/// Returns at most `limit` of the handoffs that name the contact, newest first, and the start of the next page. None follows once their texts
/// have reached 1 MiB.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn handoffs(
    tx: &mut Tx,
    org: Uuid,
    contact: Uuid,
    after: Option<Position>,
    limit: u32,
) -> Result<(Vec<Handoff>, Option<Position>), Error> {
    let filter = HandoffFilter {
        reason: None,
        confirmed: None,
        contact: Some(contact),
        from: Moment::from_micros(0),
        to: Position::START.at,
    };
    let page = super::handoffs::list(tx, org, filter, after, limit)?;
    Ok((page.items, page.next))
}

/// Returns a page of the org's contacts that match all given fields, newest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    search: &ContactSearch,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Contact>, Error> {
    tx.snapshot()?;
    let [external_id, email, phone] = search;
    let email = email.as_deref().map(str::to_ascii_lowercase);
    let phone = phone.as_deref().map(phone_key);
    let after = after.unwrap_or(Position::START);

    // A statement for each combination, so that each is answered from the index that fits.
    let mut matching = "FROM contacts WHERE org_id = $1".to_owned();
    let mut values: Vec<&dyn Param> = vec![&org];
    for (column, value) in [
        ("external_id", external_id),
        ("email_folded", &email),
        ("phone_key", &phone),
    ] {
        if let Some(value) = value {
            values.push(value);
            matching.push_str(&format!(" AND {column} = ${}", values.len()));
        }
    }

    let total = match values.len() {
        1 => contact_counts::of_org(tx, org)?,
        given => {
            let counted = format!(
                "SELECT COUNT(*) FROM (SELECT 1 AS one {matching} LIMIT ${}) AS matching",
                given + 1
            );
            let mut values = values.clone();
            values.push(&COUNT_LIMIT);
            let (total,) = tx.exactly_one(counted, &values)?;
            total
        }
    };

    let next = values.len() + 1;
    let most = i64::from(limit) + 1;
    let listed = format!(
        "SELECT * {matching} AND (created_at, id) < (${next}, ${}) ORDER BY created_at DESC, id DESC LIMIT ${}",
        next + 1,
        next + 2
    );
    values.extend([&after.at as &dyn Param, &after.id, &most]);
    let items = tx.all(listed, &values)?;

    let position = |row: &Contact| Position {
        at: row.created_at,
        id: row.id,
    };
    Ok(Page::of(items, limit, total, position).bounded())
}

/// Returns the number by which the contact's calls are found. `None` for a verified number of the org itself, since calls of other people
/// have that number too.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn number(tx: &mut Tx, org: Uuid, contact: &Contact) -> Result<Option<E164>, Error> {
    let number = contact.phone.as_deref().map(phone_key);
    let Some(number) = number.and_then(|number| E164::parse(&number).ok()) else {
        return Ok(None);
    };
    let sql = "SELECT 1 FROM numbers WHERE org_id = $1 AND number = $2 AND verified_at IS NOT NULL";
    let is_of_org: Option<(i64,)> = tx.one(sql, &[&org, &number.to_string()])?;
    Ok(is_of_org.is_none().then_some(number))
}

impl ContactCall {
    /// Returns the octets of the texts that come with the call.
    fn octets(&self) -> usize {
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len());
        let transfers = self.transfers.iter().map(CallTransfer::octets);
        let handoffs = self.handoffs.iter().map(Handoff::octets);
        let metadata = self.call.metadata.as_ref().map_or(0, String::len);
        metadata + headers.chain(transfers).chain(handoffs).sum::<usize>()
    }
}

fn complete(tx: &mut Tx, mut call: Call) -> Result<ContactCall, Error> {
    let (org, id) = (call.org_id, call.id);
    let sql = "SELECT headers FROM calls WHERE org_id = $1 AND id = $2";
    let carried: Option<Carried> = tx.one(sql, &[&org, &id])?;
    let mut transfers: Vec<CallTransfer> = tx.all(
        "SELECT *, type || ' ' || value AS target FROM transfers
         WHERE org_id = $1 AND call_id = $2 ORDER BY requested_at DESC, id DESC LIMIT $3",
        &[&org, &id, &TRANSFERS],
    )?;
    transfers.reverse();

    call.transfer = transfers.last().cloned();
    let handoffs: Vec<Handoff> = tx.all(
        "SELECT * FROM handoffs WHERE org_id = $1 AND session_id = $2 ORDER BY created_at LIMIT $3",
        &[&org, &call.session_id.to_string(), &HANDOFFS],
    )?;

    Ok(ContactCall {
        headers: carried.and_then(|row| row.headers).unwrap_or_default(),
        call,
        transfers,
        handoffs,
    })
}
