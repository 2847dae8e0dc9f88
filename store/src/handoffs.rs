//! Handoffs: conversations that an agent gave to a human.
//!
//! The handoffs of an org are recorded one after the other, each at least a microsecond later than the one before. So a list never gains an
//! item below one that was seen, and the number within a window is the difference of two positions.

use serde_json::json;
pub use trunkline_model::handoff::{Reason, Sentiment};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{self, from_row, maybe, micros, moment, named, to_json, written};
use super::error::Error;
use super::page;
use super::tx::Tx;
use super::{EventType, NewEvent, OrgLimit, Page, Position, lock_org, new_id, org_limits};

/// A handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Handoff {
    /// Its id.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// The conversation.
    pub session_id: String,
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
}
from_row!(Handoff {
    id,
    org_id,
    session_id,
    summary,
    explanation,
    reasons: column::json,
    sentiment: maybe(named),
    created_at: moment,
});

/// Columns of a [`Handoff`]. Others aren't read, since lists are long.
macro_rules! columns {
    () => {
        "handoffs.id, handoffs.org_id, session_id, summary, explanation, reasons, sentiment, handoffs.created_at"
    };
}

/// A new handoff.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewHandoff {
    /// The conversation.
    pub session_id: String,
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
    /// At this time or later.
    pub from: Moment,
    /// At this time or before.
    pub to: Moment,
}

/// Records a handoff as the org's newest.
///
/// # Errors
/// [`Wrong::Absent`](super::Wrong::Absent) if there is no such org; [`Conflict::AtLimit`](super::Conflict::AtLimit).
pub fn record(tx: &mut Tx, org: Uuid, new: NewHandoff, now: Moment) -> Result<Handoff, Error> {
    lock_org(tx, org)?;
    org_limits::leave_room_for(tx, org, OrgLimit::Handoffs, now)?;
    let handoff = append(tx, org, (new_id(now), None), new, now)?;
    tx.record([handoff.event()]);
    Ok(handoff)
}

/// Returns a page of the org's handoffs, newest first, after `after`.
///
/// # Errors
/// [`Broke`](super::Broke): the database fails.
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

/// Returns the newest `most` handoffs of a conversation of the org, newest first.
///
/// # Errors
/// [`Broke`](super::Broke): the database fails.
pub fn of_session(tx: &mut Tx, org: Uuid, session: &str, most: u32) -> Result<Vec<Handoff>, Error> {
    tx.all(
        concat!(
            "SELECT ",
            columns!(),
            " FROM handoffs WHERE org_id = $1 AND session_id = $2 ORDER BY created_at DESC LIMIT $3"
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
    pub(super) fn octets(&self) -> usize {
        self.summary.len() + self.explanation.as_ref().map_or(0, String::len)
    }

    /// Returns the event of the handoff.
    fn event(&self) -> NewEvent {
        let data = json!({
            "handoff_id": self.id,
            "session_id": self.session_id,
            "summary": self.summary,
            "explanation": self.explanation,
            "reasons": self.reasons,
            "sentiment": self.sentiment,
            "created_at": written(self.created_at),
        });
        let kind = EventType::HandoffCreated;
        NewEvent::of(self.org_id, kind, self.id, &data, self.created_at)
    }
}

/// Identity of the handoff of a call.
#[derive(Copy, Clone, Debug)]
pub(super) struct OfCall {
    /// Id of the handoff, the same whenever its fact is projected again, so that it is recorded once.
    pub(super) id: Uuid,
    pub(super) call: Uuid,
}

/// Records the handoff of a call unless it is recorded already, or the org no longer exists; returns its event. The org's limit of handoffs
/// isn't applied, since the caller has been handed over already.
pub(super) fn record_once(
    tx: &mut Tx,
    org: Uuid,
    of: OfCall,
    new: NewHandoff,
    at: Moment,
) -> Result<Option<NewEvent>, Error> {
    // The lock also serialises positions, which `append` derives from the newest row.
    if let Err(Error::Wrong(_)) = lock_org(tx, org) {
        return Ok(None);
    }

    let recorded: Option<(Uuid,)> = tx.one("SELECT id FROM handoffs WHERE id = $1", &[&of.id])?;
    if recorded.is_some() {
        return Ok(None);
    }

    let handoff = append(tx, org, (of.id, Some(of.call)), new, at)?;
    Ok(Some(handoff.event()))
}

fn append(
    tx: &mut Tx,
    org: Uuid,
    (id, call): (Uuid, Option<Uuid>),
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
        "INSERT INTO handoffs (id, org_id, session_id, call_id, summary, explanation, reasons, sentiment, position, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) RETURNING *",
        &[
            &id,
            &org,
            &new.session_id,
            &call,
            &new.summary,
            &new.explanation,
            &to_json(&reasons),
            &new.sentiment.map(Sentiment::as_str),
            &(last_position + 1),
            &at,
        ],
    )?;

    for reason in reasons {
        add_reason(tx, org, reason, (id, at))?;
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

fn add_reason(
    tx: &mut Tx,
    org: Uuid,
    reason: Reason,
    (handoff, at): (Uuid, i64),
) -> Result<(), Error> {
    tx.run(
        "INSERT INTO handoff_reasons (org_id, reason, created_at, handoff_id, position)
         VALUES ($1, $2, $3, $4, 1 + COALESCE((SELECT position FROM handoff_reasons WHERE org_id = $1 AND reason = $2
                                               ORDER BY created_at DESC LIMIT 1), 0))",
        &[&org, &reason.as_str(), &at, &handoff],
    )?;
    Ok(())
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

    match filter.reason {
        None => tx.all(
            concat!(
                "SELECT ",
                columns!(),
                " FROM handoffs WHERE org_id = $1 AND created_at BETWEEN $2 AND $3
             ORDER BY created_at DESC LIMIT $4"
            ),
            &[&org, &start, &end, &limit],
        ),

        // CROSS JOIN, since SQLite then keeps the order of the tables: the index of reasons finds the rows in the order of the page.
        Some(reason) => tx.all(
            concat!(
                "SELECT ",
                columns!(),
                " FROM handoff_reasons AS of_reason
             CROSS JOIN handoffs WHERE of_reason.org_id = $1 AND of_reason.reason = $2
             AND of_reason.created_at BETWEEN $3 AND $4
             AND handoffs.org_id = of_reason.org_id AND handoffs.created_at = of_reason.created_at
             ORDER BY of_reason.created_at DESC LIMIT $5"
            ),
            &[&org, &reason.as_str(), &start, &end, &limit],
        ),
    }
}

/// Returns the number within the window: the difference of two positions. Retention deletes the oldest rows, so the lowest position left may be
/// above 1.
fn count(tx: &mut Tx, org: Uuid, filter: HandoffFilter) -> Result<i64, Error> {
    let (before, end) = (micros(filter.from) - 1, micros(filter.to));
    let (count,): (i64,) = match filter.reason {
        None => tx.exactly_one(
            "SELECT COALESCE((SELECT position FROM handoffs WHERE org_id = $1 AND created_at <= $3 ORDER BY created_at DESC LIMIT 1), 0)
                  - COALESCE((SELECT position FROM handoffs WHERE org_id = $1 AND created_at <= $2 ORDER BY created_at DESC LIMIT 1),
                             (SELECT position - 1 FROM handoffs WHERE org_id = $1 ORDER BY created_at LIMIT 1), 0)",
            &[&org, &before, &end],
        ),
        Some(reason) => tx.exactly_one(
            "SELECT COALESCE((SELECT position FROM handoff_reasons WHERE org_id = $1 AND reason = $4 AND created_at <= $3
                              ORDER BY created_at DESC LIMIT 1), 0)
                  - COALESCE((SELECT position FROM handoff_reasons WHERE org_id = $1 AND reason = $4 AND created_at <= $2
                              ORDER BY created_at DESC LIMIT 1),
                             (SELECT position - 1 FROM handoff_reasons WHERE org_id = $1 AND reason = $4 ORDER BY created_at LIMIT 1), 0)",
            &[&org, &before, &end, &reason.as_str()],
        ),
    }?;

    Ok(count.max(0))
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
