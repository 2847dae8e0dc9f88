//! Erasure of a contact from handoffs and events.

use serde_json::Value;
use uuid::Uuid;

use super::search::{ROWS_AT_ONCE, Search, Searched};
use crate::calls::anonymous::ANONYMOUS;
use crate::driver::column::from_row;
use crate::driver::error::Error;
use crate::driver::tx::Tx;
use crate::erasing::erasures::{Erased, count};

pub(super) struct HandoffRow {
    created_at: i64,
    session_id: String,
    call_id: Option<Uuid>,
    contact_id: Option<Uuid>,
    summary: String,
    explanation: Option<String>,
}
from_row!(HandoffRow {
    created_at,
    session_id,
    call_id,
    contact_id,
    summary,
    explanation
});

pub(super) struct EventRow {
    seq: i64,
    body: String,
    contact_id: Option<Uuid>,
}
from_row!(EventRow {
    seq,
    body,
    contact_id
});

impl Searched for HandoffRow {
    type Position = i64;

    fn start() -> i64 {
        -1
    }

    fn place(&self) -> i64 {
        self.created_at
    }

    fn read(tx: &mut Tx, search: &Search, after: &i64) -> Result<Vec<Self>, Error> {
        let (org, until) = (search.erasure.org_id, search.erasure.requested_at);
        tx.all(
            "SELECT created_at, session_id, call_id, contact_id, summary, explanation FROM handoffs
             WHERE org_id = $1 AND created_at > $2 AND created_at <= $3 ORDER BY created_at LIMIT $4",
            &[&org, after, &until, &ROWS_AT_ONCE],
        )
    }

    fn is_found(&self, search: &Search) -> bool {
        let subject = &search.erasure.subject;
        let is_of_contact = self.contact_id == Some(search.erasure.contact_id);
        let is_of_call = self
            .call_id
            .is_some_and(|call| search.calls.contains(&call))
            || search.has_session(&self.session_id);

        // Without words, the handoff of a call is erased already and must not be counted again.
        let has_words = !self.summary.is_empty() || self.explanation.is_some();
        is_of_contact
            || is_of_call && has_words
            || subject.mentioned_in(&self.session_id)
            || subject.mentioned_in(&self.summary)
            || subject.mentioned(self.explanation.as_deref())
    }

    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error> {
        let erased = Erased {
            handoffs: found.len() as u64,
            ..Erased::default()
        };
        count(tx, search.erasure.id, &erased)?;

        for row in found {
            let is_named = search.erasure.subject.mentioned_in(&row.session_id);
            // Calls keep their sessions. That of a chat leads to the person in the org's own systems.
            let is_chat = row.contact_id == Some(search.erasure.contact_id)
                && row.call_id.is_none()
                && !search.has_session(&row.session_id);
            let session = match is_named || is_chat {
                true => ANONYMOUS,
                false => &row.session_id,
            };
            // No other handoff of the org has the same time.
            tx.run(
                "UPDATE handoffs SET summary = '', explanation = NULL, contact_id = NULL, session_id = $3
                 WHERE org_id = $1 AND created_at = $2",
                &[&search.erasure.org_id, &row.created_at, &session],
            )?;
        }
        Ok(())
    }
}

impl Searched for EventRow {
    type Position = i64;

    fn start() -> i64 {
        -1
    }

    fn place(&self) -> i64 {
        self.seq
    }

    fn read(tx: &mut Tx, search: &Search, after: &i64) -> Result<Vec<Self>, Error> {
        let (org, until) = (search.erasure.org_id, search.erasure.requested_at);
        tx.all(
            "SELECT seq, body, contact_id FROM events
             WHERE org_id = $1 AND seq > $2 AND created_at <= $3 ORDER BY seq LIMIT $4",
            &[&org, after, &until, &ROWS_AT_ONCE],
        )
    }

    fn is_found(&self, search: &Search) -> bool {
        search.event_without(self).is_some()
    }

    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error> {
        let erased = Erased {
            events: found.len() as u64,
            ..Erased::default()
        };
        count(tx, search.erasure.id, &erased)?;
        for row in found {
            let sql =
                "UPDATE events SET body = $2, contact_id = NULLIF(contact_id, $3) WHERE seq = $1";
            // Of the column only the contact itself is cleared: an event that merely mentions the person has another
            // contact.
            let body = search.event_without(row);
            tx.run(sql, &[&row.seq, &body, &search.erasure.contact_id])?;
        }
        Ok(())
    }
}

impl Search {
    /// Returns the body of an event without the contact; `None` if neither the body nor the event's `contact_id` names it. The body stays as
    /// it is if only the column does.
    fn event_without(&self, row: &EventRow) -> Option<String> {
        let is_contacts = row.contact_id == Some(self.erasure.contact_id);
        match self.without(&row.body) {
            Some(body) => Some(body),
            None => is_contacts.then(|| row.body.clone()),
        }
    }

    /// Returns JSON without the contact; `None` if the JSON doesn't mention the contact.
    pub(super) fn without(&self, json: &str) -> Option<String> {
        // The row of a call's event has the name of a form here, which is no JSON: the event is built from the call's
        // row, which is erased.
        let mut value: Value = serde_json::from_str(json).ok()?;
        let mut changed = self.erasure.subject.redact(&mut value);
        let about = if value.get("data").is_some() {
            &mut value["data"]
        } else {
            &mut value
        };
        changed |= self.clear_texts(about);
        changed.then(|| value.to_string())
    }

    /// Clears the free texts of an object that is the contact's or one of its calls', and removes the contact's id and number. Returns true if
    /// anything changed.
    fn clear_texts(&self, about: &mut Value) -> bool {
        let id = |name: &str| Uuid::try_parse(about.get(name)?.as_str()?).ok();
        let is_contacts = id("contact_id") == Some(self.erasure.contact_id);
        let is_found = ["call_id", "id"]
            .into_iter()
            .filter_map(id)
            .any(|call| self.calls.contains(&call))
            || id("session_id").is_some_and(|session| self.sessions.contains(&session));

        let mut changed = false;
        if is_contacts {
            about["contact_id"] = Value::Null;
            clear_number(about);
            changed = true;
        }

        let is_handoff = self.is_handoff(about);
        let session = about.get("session_id").and_then(Value::as_str);
        if is_handoff && session.is_some_and(|session| !self.has_session(session)) {
            about["session_id"] = ANONYMOUS.into();
            changed = true;
        }

        for (name, empty) in [
            ("summary", Value::from("")),
            ("explanation", Value::Null),
            ("metadata", Value::Null),
        ] {
            let says = about.get(name).is_some_and(|words| *words != empty);
            if (is_found || is_contacts || is_handoff) && says {
                about[name] = empty;
                changed = true;
            }
        }

        changed
    }
}

impl Search {
    /// Returns whether an object is a handoff that names the contact: its event, or the answer to its report, which has no contact.
    fn is_handoff(&self, about: &Value) -> bool {
        let text = |name: &str| about.get(name)?.as_str().map(str::to_owned);
        let key = text("session_id").zip(text("created_at"));
        key.is_some_and(|key| self.handoffs.contains(&key))
    }
}

/// Clears the number of the contact from an event of its call, which stores it if the call's end was assumed (`NewEvent::lost_end`). The contact may
/// have had another number at the time, which the erasure doesn't look for.
fn clear_number(call: &mut Value) {
    let (number, e164) = match call.get("direction").and_then(Value::as_str) {
        Some("outbound") => ("to_number", "to_e164"),
        Some(_) => ("from_number", "from_e164"),
        None => return,
    };
    call[number] = ANONYMOUS.into();
    call[e164] = Value::Null;
}
