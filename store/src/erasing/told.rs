//! What was told of the contact: handoffs, transfers of other calls, and events.

use serde_json::Value;
use uuid::Uuid;

use super::calls::TransferRow;
use super::{PAUSE, ROWS_AT_ONCE, Search, execute, fetch_all, from_row};
use crate::erasures::{Erased, count};
use crate::error::Error;
use crate::subject::NOBODY;

struct HandoffRow {
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

struct EventRow {
    seq: i64,
    body: String,
    contact_id: Option<Uuid>,
}
from_row!(EventRow {
    seq,
    body,
    contact_id
});

impl Search<'_> {
    pub(super) async fn handoffs(&self) -> Result<(), Error> {
        let mut place = -1_i64;
        loop {
            let mut reading = self.store.pool().read().await?;
            let rows: Vec<HandoffRow> = fetch_all!(
                reading,
                "SELECT created_at, session_id, call_id, contact_id, summary, explanation FROM handoffs
                 WHERE org_id = $1 AND created_at > $2 AND created_at <= $3 ORDER BY created_at LIMIT $4",
                self.erasure.org_id,
                place,
                self.requested_at(),
                ROWS_AT_ONCE
            )?;
            drop(reading);
            let Some(last) = rows.last() else {
                return Ok(());
            };
            place = last.created_at;
            let found: Vec<_> = rows.iter().filter(|row| self.is_told_in(row)).collect();
            if found.is_empty() {
                continue;
            }
            let mut writing = self.store.pool().write().await?;
            let erased = Erased {
                handoffs: found.len() as u64,
                ..Erased::default()
            };
            count(&mut writing, self.erasure.id, &erased).await?;
            for row in found {
                let is_named = self.erasure.subject.mentioned_in(&row.session_id);
                execute!(
                    writing,
                    "UPDATE handoffs SET summary = '', explanation = NULL, contact_id = NULL, session_id = $3
                     WHERE org_id = $1 AND created_at = $2",
                    self.erasure.org_id,
                    row.created_at,
                    if is_named { NOBODY } else { &row.session_id },
                )?;
            }
            writing.commit().await?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Whether a handoff still says something of the contact.
    fn is_told_in(&self, row: &HandoffRow) -> bool {
        let subject = &self.erasure.subject;
        let is_of_contact = row.contact_id == Some(self.erasure.contact_id);
        let is_of_call = row.call_id.is_some_and(|call| self.calls.contains(&call))
            || self.has_session(&row.session_id);
        let has_words = !row.summary.is_empty() || row.explanation.is_some();
        is_of_contact
            || is_of_call && has_words
            || subject.mentioned_in(&row.session_id)
            || subject.mentioned_in(&row.summary)
            || subject.mentioned(row.explanation.as_deref())
    }

    /// Transfers of calls that are others', where they led to the contact or speak of it.
    pub(super) async fn transfers(&self) -> Result<(), Error> {
        let mut place = Uuid::nil();
        loop {
            let mut reading = self.store.pool().read().await?;
            let rows: Vec<TransferRow> = fetch_all!(
                reading,
                "SELECT id, name, value, summary, explanation FROM transfers
                 WHERE org_id = $1 AND id > $2 AND requested_at <= $3 ORDER BY id LIMIT $4",
                self.erasure.org_id,
                place,
                self.requested_at(),
                ROWS_AT_ONCE
            )?;
            drop(reading);
            let Some(last) = rows.last() else {
                return Ok(());
            };
            place = last.id;
            let rows: Vec<_> = rows
                .into_iter()
                .filter(|row| row.names(&self.erasure.subject))
                .collect();
            if rows.is_empty() {
                continue;
            }
            let mut writing = self.store.pool().write().await?;
            count(&mut writing, self.erasure.id, &Erased::default()).await?;
            let transfers = self.erase_transfers(&mut writing, &rows, false).await?;
            let erased = Erased {
                transfers,
                ..Erased::default()
            };
            count(&mut writing, self.erasure.id, &erased).await?;
            writing.commit().await?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(super) async fn events(&self) -> Result<(), Error> {
        let mut place = -1_i64;
        loop {
            let mut reading = self.store.pool().read().await?;
            let rows: Vec<EventRow> = fetch_all!(
                reading,
                "SELECT seq, body, contact_id FROM events
                 WHERE org_id = $1 AND seq > $2 AND created_at <= $3 ORDER BY seq LIMIT $4",
                self.erasure.org_id,
                place,
                self.requested_at(),
                ROWS_AT_ONCE
            )?;
            drop(reading);
            let Some(last) = rows.last() else {
                return Ok(());
            };
            place = last.seq;
            let changed: Vec<(i64, String)> = rows
                .iter()
                .filter_map(|row| Some((row.seq, self.retold(row)?)))
                .collect();
            if changed.is_empty() {
                continue;
            }
            let mut writing = self.store.pool().write().await?;
            let erased = Erased {
                events: changed.len() as u64,
                ..Erased::default()
            };
            count(&mut writing, self.erasure.id, &erased).await?;
            for (seq, body) in changed {
                let sql = "UPDATE events SET body = $2, contact_id = NULLIF(contact_id, $3) WHERE seq = $1";
                execute!(writing, sql, seq, body, self.erasure.contact_id)?;
            }
            writing.commit().await?;
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The body of an event without the contact; `None` if it says nothing of it.
    fn retold(&self, row: &EventRow) -> Option<String> {
        let is_contacts = row.contact_id == Some(self.erasure.contact_id);
        match self.without(&row.body) {
            Some(body) => Some(body),
            None => is_contacts.then(|| row.body.clone()),
        }
    }

    /// JSON that was told or answered, without the contact; `None` if it says nothing of it.
    pub(super) fn without(&self, json: &str) -> Option<String> {
        let mut value: Value = serde_json::from_str(json).ok()?;
        let mut changed = self.erasure.subject.strike(&mut value);
        let about = if value.get("data").is_some() {
            &mut value["data"]
        } else {
            &mut value
        };
        changed |= self.silence(about);
        changed.then(|| value.to_string())
    }

    /// Empties what is said in words of a call that was found, and takes the contact's id out.
    fn silence(&self, about: &mut Value) -> bool {
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
            changed = true;
        }
        for (name, empty) in [
            ("summary", Value::from("")),
            ("explanation", Value::Null),
            ("metadata", Value::Null),
        ] {
            let says = about.get(name).is_some_and(|words| *words != empty);
            if (is_found || is_contacts) && says {
                about[name] = empty;
                changed = true;
            }
        }
        changed
    }
}
