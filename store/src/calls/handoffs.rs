//! Handoffs: conversations that an agent gave to a human.
//!
//! The handoffs of an org are recorded one after the other, each at least a microsecond later than the one before. So a list never gains an
//! item below one that was seen. `handoff_lists` counts them.

use serde_json::json;
pub use trunkline_model::handoff::{Reason, Sentiment};
use trunkline_model::transfer::State as TransferState;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::contacts::{self, ContactLock};
use super::handoff_lists::{self, list_name};
use crate::driver::column;
use crate::driver::column::{from_row, maybe, micros, moment, named, to_json, written};
use crate::driver::edit::lock_org;
use crate::driver::error::Error;
use crate::driver::error::{Kind, Wrong};
use crate::driver::event::repeatable_id;
use crate::driver::event::{EventType, NewEvent};
use crate::driver::ids::new_id;
use crate::driver::org_limit::OrgLimit;
use crate::driver::page;
use crate::driver::page::{Page, Position};
use crate::driver::tx::Tx;
use crate::driver::value::{Cells, Record, Unreadable};
use crate::tenants::org_limits;

/// A handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// Its id.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// The conversation.
    pub session_id: String,
    /// The person who was handed over; `None` if that isn't known, or was erased.
    pub contact_id: Option<Uuid>,
    /// Summary of the conversation, in the agent's words.
    pub summary: String,
    /// Reason in the agent's own words.
    pub explanation: Option<String>,
    /// Reasons; at least one.
    pub reasons: Vec<Reason>,
    /// Sentiment of the caller.
    pub sentiment: Option<Sentiment>,
    /// Time of the handoff; no other handoff of the org has the same.
    pub created_at: Moment,
    /// The destination is known to have answered, or a client has reported the handoff.
    pub confirmed: bool,
}
from_row!(Handoff {
    id,
    org_id,
    session_id,
    contact_id,
    summary,
    explanation,
    reasons: column::json,
    sentiment: maybe(named),
    created_at: moment,
    confirmed,
});

/// Columns of a [`Handoff`]. Others aren't read, since lists are long.
macro_rules! columns {
    () => {
        "handoffs.id, handoffs.org_id, handoffs.session_id, handoffs.contact_id, handoffs.summary, handoffs.explanation, handoffs.reasons, handoffs.sentiment, handoffs.created_at, confirmed"
    };
}

/// A new handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewHandoff {
    /// The conversation.
    pub session_id: String,
    /// The person who was handed over, if the report names one.
    pub contact_id: Option<Uuid>,
    /// Summary of the conversation.
    pub summary: String,
    /// Reason in the agent's own words.
    pub explanation: Option<String>,
    /// Reasons; an empty list counts as implied by the agent, and repeated ones count once.
    pub reasons: Vec<Reason>,
    /// Sentiment of the caller.
    pub sentiment: Option<Sentiment>,
}

/// Filter for handoffs.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HandoffFilter {
    /// Only handoffs with this reason; they may have further ones.
    pub reason: Option<Reason>,
    /// Only handoffs that are confirmed, or only those that aren't.
    pub confirmed: Option<bool>,
    /// Only handoffs of this contact.
    pub contact: Option<Uuid>,
    /// At this time or later.
    pub from: Moment,
    /// At this time or before.
    pub to: Moment,
}

/// Records a handoff as the org's newest. Without a contact of its own it has that of the call whose session it names.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org; [`Wrong::Unknown`] for a contact that isn't the org's;
/// [`Conflict::AtLimit`](crate::Conflict::AtLimit).
pub fn record(tx: &mut Tx, org: Uuid, new: NewHandoff, now: Moment) -> Result<Handoff, Error> {
    lock_org(tx, org)?;
    org_limits::leave_room_for(tx, org, OrgLimit::Handoffs, now)?;

    let contact = match new.contact_id {
        Some(contact) => Some(known_contact(tx, org, contact)?),
        None => contact_of_session(tx, org, &new.session_id)?,
    };
    // Who reports a handoff has made it.
    let origin = HandoffOrigin {
        id: new_id(now),
        call: None,
        contact,
        confirmed: true,
    };
    let handoff = append(tx, org, origin, new, now)?;
    tx.record([handoff.event()]);
    Ok(handoff)
}

/// Returns the contact of this id, which isn't deleted before the commit.
fn known_contact(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<Uuid, Error> {
    let unknown = Wrong::Unknown {
        kind: Kind::Contact,
        id,
    };
    match contacts::by_id(tx, org, id) {
        Err(Error::Wrong(_)) => return Err(unknown.into()),
        found => found?,
    };
    // Locked only once it is known to be the org's.
    let existing = contacts::lock_existing(tx, [id], ContactLock::Named)?;
    match existing.contains(&id) {
        true => Ok(id),
        false => Err(unknown.into()),
    }
}

/// Returns the contact of the call with this session, if both exist.
fn contact_of_session(tx: &mut Tx, org: Uuid, session: &str) -> Result<Option<Uuid>, Error> {
    let Ok(session) = Uuid::try_parse(session) else {
        return Ok(None);
    };
    let sql = "SELECT contacts.id FROM calls JOIN contacts ON contacts.id = calls.contact_id
        WHERE calls.org_id = $1 AND calls.session_id = $2 LIMIT 1";
    let found: Option<(Uuid,)> = tx.one(sql, &[&org, &session])?;
    Ok(found.map(|(contact,)| contact))
}

/// Returns the handoff of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, handoff: Uuid) -> Result<Handoff, Error> {
    let sql = concat!(
        "SELECT ",
        columns!(),
        " FROM handoffs WHERE org_id = $1 AND id = $2"
    );
    let row = tx.one(sql, &[&org, &handoff])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Handoff))?)
}

/// Deletes a handoff, and clears the texts of its event. The call and the transfer that made it keep theirs.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn delete(tx: &mut Tx, org: Uuid, handoff: Uuid) -> Result<(), Error> {
    lock_org(tx, org)?;
    let created_at = by_id(tx, org, handoff)?.created_at;
    let at = micros(created_at);

    let sql = "SELECT list FROM handoff_lists WHERE handoff_id = $1";
    let lists: Vec<(String,)> = tx.all(sql, &[&handoff])?;
    let sql = "DELETE FROM handoffs WHERE org_id = $1 AND created_at = $2";
    tx.run(sql, &[&org, &at])?;
    for (list,) in lists {
        handoff_lists::note_deleted(tx, org, &list, at)?;
    }
    handoff_lists::note_deleted(tx, org, handoff_lists::ALL, at)?;

    clear_event(tx, handoff, created_at)
}

/// Clears the texts in the event of a handoff, for those who haven't read it yet.
fn clear_event(tx: &mut Tx, handoff: Uuid, at: Moment) -> Result<(), Error> {
    let id = repeatable_id(EventType::HandoffCreated, handoff, at);
    let row: Option<(i64, String)> =
        tx.one("SELECT seq, body FROM events WHERE id = $1", &[&id])?;
    let Some((seq, body)) = row else {
        return Ok(());
    };
    let Ok(mut event) = serde_json::from_str::<serde_json::Value>(&body) else {
        return Ok(());
    };

    event["data"]["summary"] = "".into();
    event["data"]["explanation"] = serde_json::Value::Null;
    let sql = "UPDATE events SET body = $2 WHERE seq = $1";
    tx.run(sql, &[&seq, &event.to_string()])?;
    Ok(())
}

/// Returns a page of the org's handoffs, newest first, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn list(
    tx: &mut Tx,
    org: Uuid,
    filter: HandoffFilter,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Handoff>, Error> {
    // No snapshot is needed: handoffs that arrive meanwhile are newer than the window.
    let end = after.map_or(micros(filter.to), |after| {
        micros(filter.to).min(after.at_micros() - 1)
    });
    let items = items(tx, org, filter, end, limit)?;
    let total = count(tx, org, filter)?;
    let limit = fitting(&items, limit);
    Ok(Page::of(items, limit, total, |handoff| Position {
        at: handoff.created_at,
        id: handoff.id,
    }))
}

/// A handoff with the state of its transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionHandoff {
    /// The handoff.
    pub handoff: Handoff,
    /// State of the transfer that made it; `None` for a reported handoff.
    pub transfer_state: Option<TransferState>,
}

impl Record for SessionHandoff {
    const COLUMNS: &'static [&'static str] = &[
        "id",
        "org_id",
        "session_id",
        "contact_id",
        "summary",
        "explanation",
        "reasons",
        "sentiment",
        "created_at",
        "confirmed",
        "transfer_state",
    ];

    fn read(cells: &mut Cells<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            handoff: Handoff::read(cells)?,
            transfer_state: cells.read(maybe(named))?,
        })
    }
}

/// Returns the newest `most` handoffs of a conversation of the org, newest first.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_session(
    tx: &mut Tx,
    org: Uuid,
    session: &str,
    most: u32,
) -> Result<Vec<SessionHandoff>, Error> {
    tx.all(
        concat!(
            "SELECT ",
            columns!(),
            ", transfers.state AS transfer_state FROM handoffs
             LEFT JOIN transfers ON transfers.id = handoffs.id AND transfers.org_id = handoffs.org_id
             WHERE handoffs.org_id = $1 AND handoffs.session_id = $2 ORDER BY handoffs.created_at DESC LIMIT $3"
        ),
        &[&org, &session, &most],
    )
}

/// Returns how many of the first items a page may have.
fn fitting(items: &[Handoff], limit: u32) -> u32 {
    let fit = page::fitting(items.iter().map(Handoff::octets));
    limit.min(u32::try_from(fit).unwrap_or(limit)).max(1)
}

impl Handoff {
    /// Returns the octets of its texts.
    pub(crate) fn octets(&self) -> usize {
        self.summary.len() + self.explanation.as_ref().map_or(0, String::len)
    }

    /// Returns the event of the handoff.
    fn event(&self) -> NewEvent {
        let data = json!({
            "handoff_id": self.id,
            "session_id": self.session_id,
            "contact_id": self.contact_id,
            "summary": self.summary,
            "explanation": self.explanation,
            "reasons": self.reasons,
            "sentiment": self.sentiment,
            "created_at": written(self.created_at),
            "confirmed": self.confirmed,
        });
        let kind = EventType::HandoffCreated;
        NewEvent::of(self.org_id, kind, self.id, &data, self.created_at)
    }
}

/// HandoffOrigin of a handoff.
#[derive(Copy, Clone, Debug)]
pub(crate) struct HandoffOrigin {
    /// Id of the handoff. That of a transfer is the same whenever its fact is projected again, so that it is recorded once.
    pub(crate) id: Uuid,
    /// Call of the transfer; `None` for a reported handoff.
    pub(crate) call: Option<Uuid>,
    pub(crate) contact: Option<Uuid>,
    pub(crate) confirmed: bool,
}

/// Records the handoff of a call unless it is recorded already, or the org no longer exists; returns its event. The org's limit of handoffs
/// isn't applied, since the caller has been handed over already.
pub(crate) fn record_once(
    tx: &mut Tx,
    org: Uuid,
    origin: HandoffOrigin,
    new: NewHandoff,
    at: Moment,
) -> Result<Option<NewEvent>, Error> {
    // The lock also serialises positions, which `append` derives from the newest row.
    if let Err(Error::Wrong(_)) = lock_org(tx, org) {
        return Ok(None);
    }

    let recorded: Option<(Uuid,)> =
        tx.one("SELECT id FROM handoffs WHERE id = $1", &[&origin.id])?;
    if recorded.is_some() {
        return Ok(None);
    }

    let handoff = append(tx, org, origin, new, at)?;
    Ok(Some(handoff.event()))
}

fn append(
    tx: &mut Tx,
    org: Uuid,
    origin: HandoffOrigin,
    new: NewHandoff,
    now: Moment,
) -> Result<Handoff, Error> {
    let last: Option<(i64, i64)> = tx.one(
        "SELECT created_at, position FROM handoffs WHERE org_id = $1 ORDER BY created_at DESC LIMIT 1",
        &[&org],
    )?;
    let (last_at, last_position) = last.unwrap_or((-1, 0));
    // Later than the last one even if clocks differ: positions and times must ascend together.
    let at = micros(now).max(last_at + 1);
    let reasons = distinct(new.reasons);

    let handoff: Handoff = tx.exactly_one(
        "INSERT INTO handoffs (id, org_id, session_id, call_id, contact_id, summary, explanation, reasons, sentiment, position, created_at, confirmed)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) RETURNING *",
        &[
            &origin.id,
            &org,
            &new.session_id,
            &origin.call,
            &origin.contact,
            &new.summary,
            &new.explanation,
            &to_json(&reasons),
            &new.sentiment.map(Sentiment::as_str),
            &(last_position + 1),
            &at,
            &origin.confirmed,
        ],
    )?;

    let of_reasons = reasons.into_iter().map(Some);
    for reason in of_reasons.clone() {
        handoff_lists::add(tx, org, &list_name(reason, None), origin.id, at)?;
    }
    for reason in of_reasons.chain([None]) {
        let list = list_name(reason, Some(origin.confirmed));
        handoff_lists::add(tx, org, &list, origin.id, at)?;
    }

    Ok(handoff)
}

/// Returns the reasons without repetition, at least one.
fn distinct(given: Vec<Reason>) -> Vec<Reason> {
    let mut reasons = Vec::with_capacity(given.len().max(1));
    for reason in given {
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() {
        reasons.push(Reason::AiImpliedHandoff);
    }
    reasons
}

/// Reads one item more than `limit`, from `end` backwards.
fn items(
    tx: &mut Tx,
    org: Uuid,
    filter: HandoffFilter,
    end: i64,
    limit: u32,
) -> Result<Vec<Handoff>, Error> {
    let (start, limit) = (micros(filter.from), i64::from(limit) + 1);

    match (
        filter.contact,
        &*list_name(filter.reason, filter.confirmed),
    ) {
        (None, handoff_lists::ALL) => tx.all(
            concat!(
                "SELECT ",
                columns!(),
                " FROM handoffs WHERE org_id = $1 AND created_at BETWEEN $2 AND $3
             ORDER BY created_at DESC LIMIT $4"
            ),
            &[&org, &start, &end, &limit],
        ),

        (Some(contact), list) => tx.all(
            concat!(
                "SELECT ",
                columns!(),
                " FROM handoffs WHERE org_id = $1 AND contact_id = $2 AND created_at BETWEEN $3 AND $4 AND ",
                handoff_lists::has_list!("$6"),
                " ORDER BY created_at DESC LIMIT $5"
            ),
            &[&org, &contact, &start, &end, &limit, &list],
        ),

        // CROSS JOIN, since SQLite then keeps the order of the tables: the index of lists finds the rows in the order of the page.
        (None, list) => tx.all(
            concat!(
                "SELECT ",
                columns!(),
                " FROM handoff_lists
             CROSS JOIN handoffs WHERE handoff_lists.org_id = $1 AND handoff_lists.list = $2
             AND handoff_lists.created_at BETWEEN $3 AND $4
             AND handoffs.org_id = handoff_lists.org_id AND handoffs.created_at = handoff_lists.created_at
             ORDER BY handoff_lists.created_at DESC LIMIT $5"
            ),
            &[&org, &list, &start, &end, &limit],
        ),
    }
}

/// Returns the number of handoffs that the filter matches.
fn count(tx: &mut Tx, org: Uuid, filter: HandoffFilter) -> Result<i64, Error> {
    let (before, end) = (micros(filter.from) - 1, micros(filter.to));
    let list = list_name(filter.reason, filter.confirmed);
    let Some(contact) = filter.contact else {
        return handoff_lists::count(tx, org, &list, before, end);
    };

    // One by one: a contact has few.
    let sql = concat!(
        "SELECT COUNT(*) FROM handoffs WHERE org_id = $1 AND contact_id = $2 AND created_at > $3 AND created_at <= $4 AND ",
        handoff_lists::has_list!("$5")
    );
    let (count,) = tx.exactly_one(sql, &[&org, &contact, &before, &end, &list])?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_reason_and_each_counts_once() {
        use Reason::{AiImpliedHandoff, InsufficientTools, ProhibitedTopic};
        for (given, kept) in [
            (vec![], vec![AiImpliedHandoff]),
            (
                vec![ProhibitedTopic, InsufficientTools, ProhibitedTopic],
                vec![ProhibitedTopic, InsufficientTools],
            ),
        ] {
            assert_eq!(distinct(given), kept);
        }
    }

    #[test]
    fn names_are_those_of_the_json() {
        for reason in [
            Reason::AiImpliedHandoff,
            Reason::UserRequestedHumanAssistance,
        ] {
            assert_eq!(to_json(&reason), format!("\"{}\"", reason.as_str()));
        }
        assert_eq!(
            to_json(&Sentiment::Angry),
            format!("\"{}\"", Sentiment::Angry.as_str())
        );
    }
}
