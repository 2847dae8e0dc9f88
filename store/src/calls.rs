//! Calls for readers: lists, one call, its routing decision. `projection` writes them from the journal's facts.

pub(crate) mod anonymous;
pub mod attempts;
pub mod call_ends;
pub(crate) mod call_events;
pub mod call_figures;
pub(crate) mod call_lists;
pub(crate) mod call_search;
pub mod calls_up;
pub(crate) mod contact_counts;
pub(crate) mod contacts;
pub mod events;
pub mod explained;
pub(crate) mod handoff_lists;
pub mod handoffs;
pub(crate) mod identify;
pub(crate) mod journal_positions;
pub mod lost;
pub mod of_contact;
pub(crate) mod projection;
pub mod transfers;
pub mod usage;

use trunkline_model::media::{MediaFigures, MediaStep};
use trunkline_model::record::{Direction, HangupBy, Status};
use trunkline_routing::{Decision, E164};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::access::store::Store;
use crate::calls::call_search::CallFilter;
use crate::calls::transfers::{CallTransfer, last_transfers};
use crate::driver::column::{
    Unreadable, from_row, json, maybe, micros, moment, named, number, small,
};
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::page::{COUNT_LIMIT, Page, Position, fitting};
use crate::driver::tx::Tx;

/// A call.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The call.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// The session, which the runtime and a transfer carry.
    pub session_id: Uuid,
    /// The agent that was chosen.
    pub agent_id: Option<Uuid>,
    /// Trunk over which the call came in or went out; `None` for a call from the address of an org without an inbound trunk.
    pub trunk_id: Option<Uuid>,
    /// Contact of the caller or callee.
    pub contact_id: Option<Uuid>,
    /// Party that began the call.
    pub direction: Direction,
    /// Present state.
    pub status: Status,
    /// The caller's number as sent.
    pub from_number: String,
    /// The dialled number as sent.
    pub to_number: String,
    /// The caller's number as E.164.
    pub from_e164: Option<E164>,
    /// The dialled number as E.164.
    pub to_e164: Option<E164>,
    /// Arrival of the INVITE.
    pub started_at: Moment,
    /// Time at which the called side rang.
    pub ringing_at: Option<Moment>,
    /// Time of the answer.
    pub answered_at: Option<Moment>,
    /// End of the call.
    pub ended_at: Option<Moment>,
    /// The SIP status that ended the set-up.
    pub sip_code: Option<u16>,
    /// Stable reason, for a call that wasn't answered.
    pub reason: Option<String>,
    /// Details of the reason, for people.
    pub reason_detail: Option<String>,
    /// Party that ended the call.
    pub hangup_by: Option<HangupBy>,
    /// Call-ID of the caller's leg.
    pub caller_call_id: String,
    /// Call-ID of the runtime's leg.
    pub runtime_call_id: Option<String>,
    /// Its last transfer.
    pub transfer: Option<CallTransfer>,
    /// Q.850 cause that a peer named (RFC 3326).
    pub q850_cause: Option<u16>,
    /// Metadata that the API client attached to the call, as JSON.
    pub metadata: Option<String>,
    /// The call is on hold, as last recorded.
    pub held: Option<bool>,
    /// The caller asked not to be named; `None`: no.
    pub caller_withheld: Option<bool>,
    /// Figures of the media that this installation terminated.
    pub media: Option<MediaFigures>,
}

impl Call {
    /// Returns the octets of the texts that come with the call.
    pub(super) fn octets(&self) -> usize {
        let metadata = self.metadata.as_ref().map_or(0, String::len);
        metadata + self.transfer.as_ref().map_or(0, CallTransfer::octets)
    }
}

/// Returns the page of `limit` calls after a position, and none after their texts have reached 1 MiB.
fn page(
    tx: &mut Tx,
    org: Uuid,
    filter: &CallFilter,
    after: Position,
    limit: u32,
) -> Result<Page<Call>, Error> {
    let (items, total) = match filter.is_unrestricted() {
        true => (
            newest(tx, org, filter, after, i64::from(limit) + 1)?,
            count(tx, org, filter)?,
        ),
        false => {
            let found = call_search::search(tx, org, filter, after, i64::from(limit) + 1)?;
            (at_places(tx, org, &found.places)?, found.total)
        }
    };

    let position = |call: &Call| Position {
        at: call.started_at,
        id: call.id,
    };
    let mut page = Page::of(items, limit, total, position).bounded();

    let ids: Vec<Uuid> = page.items.iter().map(|call: &Call| call.id).collect();
    let mut transfers = last_transfers(tx, org, &ids)?;

    for call in &mut page.items {
        call.transfer = transfers.remove(&call.id);
    }

    let fit = fitting(page.items.iter().map(Call::octets));
    if fit < page.items.len() {
        page.items.truncate(fit);
        // The next page begins behind the last call that fits.
        page.next = page.items.last().map(position);
    }
    Ok(page)
}

/// Returns the org's calls of the filter's time after a position, without their transfers.
fn newest(
    tx: &mut Tx,
    org: Uuid,
    filter: &CallFilter,
    after: Position,
    limit: i64,
) -> Result<Vec<Call>, Error> {
    // SQLite takes the end of its range from one condition alone. Were it the filter's, it would pass all newer calls on the way to a deep page.
    let to = filter.to.map_or(i64::MAX, micros).min(after.at_micros());
    tx.all(
        "SELECT *, CAST(NULL AS TEXT) AS transfer FROM calls WHERE org_id = $1 AND started_at BETWEEN $2 AND $3
         AND (started_at, id) < ($4, $5) ORDER BY started_at DESC, id DESC LIMIT $6",
        &[
            &org,
            &filter.from.map_or(0, micros),
            &to,
            &after.at_micros(),
            &after.id,
            &limit,
        ],
    )
}

/// Returns the number of the org's calls of the filter's time, up to [`COUNT_LIMIT`].
fn count(tx: &mut Tx, org: Uuid, filter: &CallFilter) -> Result<i64, Error> {
    let (total,): (i64,) = tx.exactly_one(
        "SELECT COUNT(*) FROM (SELECT 1 AS one FROM calls WHERE org_id = $1 AND started_at BETWEEN $2 AND $3 LIMIT $4) AS matching",
        &[
            &org,
            &filter.from.map_or(0, micros),
            &filter.to.map_or(i64::MAX, micros),
            &COUNT_LIMIT,
        ],
    )?;

    Ok(total)
}

/// Returns the calls at these places, in the same order, without their transfers.
fn at_places(tx: &mut Tx, org: Uuid, places: &[(i64, Uuid)]) -> Result<Vec<Call>, Error> {
    if !tx.is_shared() {
        let sql =
            "SELECT *, CAST(NULL AS TEXT) AS transfer FROM calls WHERE org_id = $1 AND id = $2";
        let mut calls = Vec::with_capacity(places.len());
        for (_, id) in places {
            calls.extend(tx.one::<Call>(sql, &[&org, id])?);
        }
        return Ok(calls);
    }

    // In one round trip.
    let ids: Vec<String> = places.iter().map(|(_, id)| id.to_string()).collect();
    tx.all(
        "SELECT *, CAST(NULL AS TEXT) AS transfer FROM calls
         WHERE org_id = $1 AND id = ANY(CAST(string_to_array($2, ',') AS UUID[])) ORDER BY started_at DESC, id DESC",
        &[&org, &ids.join(",")],
    )
}

/// Returns the start times of the last `most` outbound calls since the time `since`, of all orgs together, oldest first. Placed calls
/// count, and so do legs of transfers.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn begun_since(tx: &mut Tx, since: Moment, most: u32) -> Result<Vec<(Uuid, Moment)>, Error> {
    let sql = "SELECT org_id, started_at AS begun_at FROM calls WHERE direction = 'outbound' AND started_at >= $1
         UNION ALL SELECT org_id, counted_at AS begun_at FROM transfers WHERE counted_at >= $1
         ORDER BY begun_at DESC LIMIT $2";
    let rows: Vec<(Uuid, i64)> = tx.all(sql, &[&since, &most])?;
    let begun = rows.into_iter().rev();
    Ok(begun
        .filter_map(|(org, at)| Some((org, moment(at).ok()?)))
        .collect())
}

/// Returns a page of the org's calls, newest first, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(
    tx: &mut Tx,
    org: Uuid,
    filter: &CallFilter,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Call>, Error> {
    tx.snapshot()?;
    page(tx, org, filter, after.unwrap_or(Position::START), limit)
}

impl Store {
    /// Returns a page like [`list`]. SQLite reads on the calling thread where indexes bound the work.
    ///
    /// # Errors
    /// [`Broke`](crate::driver::error::Broke): the database fails.
    pub async fn calls(
        &self,
        org: Uuid,
        filter: CallFilter,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Page<Call>, Error> {
        if filter.number.is_some() {
            // A number together with another filter may read any number of calls, so it doesn't run on the calling thread.
            let listed = self.read(move |tx| list(tx, org, &filter, after, limit));
            return listed.await;
        }

        self.read_inline(move |tx| list(tx, org, &filter, after, limit))
            .await
    }
}

/// Returns the call of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, call: Uuid) -> Result<Call, Error> {
    let sql = "SELECT *, CAST(NULL AS TEXT) AS transfer FROM calls
               WHERE org_id = $1 AND id = $2 AND started_at IS NOT NULL";
    let row: Option<Call> = tx.one(sql, &[&org, &call])?;
    let mut found = row.ok_or(Wrong::Absent(Kind::Call))?;
    let mut transfers = last_transfers(tx, org, &[call])?;
    found.transfer = transfers.remove(&call);
    Ok(found)
}

/// Returns the call of this session, and the caller's own headers.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn of_session(tx: &mut Tx, org: Uuid, session: Uuid) -> Result<(Call, Vec<Header>), Error> {
    tx.snapshot()?;
    let sql = "SELECT *, CAST(NULL AS TEXT) AS transfer FROM calls
               WHERE org_id = $1 AND session_id = $2 AND started_at IS NOT NULL";
    let call: Option<Call> = tx.one(sql, &[&org, &session])?;
    let call = call.ok_or(Wrong::Absent(Kind::Session))?;

    let sql = "SELECT headers FROM calls WHERE org_id = $1 AND id = $2";
    let row: Option<Carried> = tx.one(sql, &[&org, &call.id])?;
    let headers = row.and_then(|row| row.headers);
    Ok((call, headers.unwrap_or_default()))
}

/// Returns the routing decision of a call; `None` if it was refused before routing.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn decision(tx: &mut Tx, org: Uuid, call: Uuid) -> Result<Option<Decision>, Error> {
    let sql = "SELECT decision FROM calls WHERE org_id = $1 AND id = $2 AND started_at IS NOT NULL";
    let row: Option<Decided> = tx.one(sql, &[&org, &call])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Call))?.decision)
}

/// Returns the steps of the call's media that this installation terminated; empty if it had none.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn media_steps(tx: &mut Tx, org: Uuid, call: Uuid) -> Result<Vec<MediaStep>, Error> {
    let sql = "SELECT media_steps FROM calls WHERE org_id = $1 AND id = $2";
    let row: Option<Steps> = tx.one(sql, &[&org, &call])?;
    Ok(row.and_then(|row| row.media_steps).unwrap_or_default())
}

struct Steps {
    media_steps: Option<Vec<MediaStep>>,
}
from_row!(Steps {
    media_steps: maybe(json)
});

/// A header's name and value.
pub(super) type Header = (Box<str>, Box<str>);

struct Carried {
    headers: Option<Vec<Header>>,
}
from_row!(Carried {
    headers: maybe(json)
});

struct Decided {
    decision: Option<Decision>,
}
from_row!(Decided {
    decision: maybe(json)
});

from_row!(Call {
    id,
    org_id,
    session_id,
    agent_id,
    trunk_id,
    contact_id,
    direction: named,
    status: named,
    from_number,
    to_number,
    from_e164: maybe(number),
    to_e164: maybe(number),
    started_at: moment,
    ringing_at: maybe(moment),
    answered_at: maybe(moment),
    ended_at: maybe(moment),
    sip_code: maybe(small),
    reason,
    reason_detail,
    hangup_by: maybe(named),
    caller_call_id,
    runtime_call_id,
    transfer: absent_column,
    q850_cause: maybe(small),
    metadata,
    held,
    caller_withheld,
    media: maybe(json),
});

/// Reads a field that has no column in a row of calls.
fn absent_column<V>(_: Option<&str>) -> Result<Option<V>, Unreadable> {
    Ok(None)
}
