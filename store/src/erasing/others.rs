//! What else may hold the contact's number or address: answers that are kept, commands between nodes, failed log-ins, other contacts, and the
//! org's own configuration, which stays.

use std::time::Duration;

use serde_json::{Map, Value};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::{PAUSE, ROWS_AT_ONCE, Search, execute, fetch_all, from_row};
use crate::column::{moment, to_json};
use crate::contacts::Contact;
use crate::erasures::{Erased, ErasedLegs, KeptConfiguration, count};
use crate::error::Error;
use crate::idempotency::{self, Kept};
use crate::identify;
use crate::pool::fetch_one;
use crate::subject::Subject;

/// Commands between nodes are nobody's after this time.
const COMMANDS: Duration = Duration::from_secs(60);
/// Messages of a failed log-in pass within this time around it.
const AROUND: Duration = Duration::from_secs(40);

struct AnswerRow {
    credential_id: Uuid,
    method: String,
    path: String,
    key: String,
    answer: Option<Vec<u8>>,
}
from_row!(AnswerRow {
    credential_id,
    method,
    path,
    key,
    answer
});

struct CommandRow {
    id: Uuid,
    call_id: Uuid,
    what: String,
    asked_at: Moment,
    answer: Option<String>,
}
from_row!(CommandRow {
    id,
    call_id,
    what,
    asked_at: moment,
    answer
});

struct LogInRow {
    id: Uuid,
    username: String,
    dialled: Option<String>,
    sip_call_id: Option<String>,
    at: Moment,
}
from_row!(LogInRow {
    id,
    username,
    dialled,
    sip_call_id,
    at: moment
});

struct Held {
    kind: String,
    text: Option<String>,
}
from_row!(Held { kind, text });

struct Stored {
    kept: KeptConfiguration,
}
from_row!(Stored {
    kept: crate::column::json
});

impl Search<'_> {
    /// Answers of the org's keys. A key or a path that names the contact goes with its answer.
    pub(super) async fn kept_answers(&self) -> Result<(), Error> {
        let mut place = (Uuid::nil(), String::new(), String::new(), String::new());
        loop {
            let mut reading = self.store.pool().read().await?;
            let rows: Vec<AnswerRow> = fetch_all!(
                reading,
                "SELECT credential_id, method, path, key, answer FROM idempotency_keys
                 WHERE credential_id IN (SELECT id FROM org_keys WHERE org_id = $1)
                 AND (credential_id, method, path, key) > ($2, $3, $4, $5)
                 ORDER BY credential_id, method, path, key LIMIT $6",
                self.erasure.org_id,
                place.0,
                &place.1,
                &place.2,
                &place.3,
                ROWS_AT_ONCE
            )?;
            drop(reading);
            let Some(last) = rows.last() else {
                return Ok(());
            };
            place = (
                last.credential_id,
                last.method.clone(),
                last.path.clone(),
                last.key.clone(),
            );
            for row in &rows {
                self.erase_answer(row).await?;
            }
        }
    }

    async fn erase_answer(&self, row: &AnswerRow) -> Result<(), Error> {
        let subject = &self.erasure.subject;
        let is_named = subject.mentioned_in(&row.path) || subject.mentioned_in(&row.key);
        let context = idempotency::context(row.credential_id, &row.method, &row.path, &row.key);
        let answer = match &row.answer {
            Some(sealed) => self.store.keyring().open(&context, sealed)?,
            None => Vec::new(),
        };
        let kept = serde_json::from_slice::<Kept>(&answer).ok();
        let without = kept.and_then(|kept| {
            let text = self.without(&kept.text);
            let is_named = subject.mentioned_in(&kept.text);
            let text = text.or_else(|| is_named.then(String::new))?;
            Some(Kept { text, ..kept })
        });
        if !is_named && without.is_none() {
            return Ok(());
        }
        let mut writing = self.store.pool().write().await?;
        let erased = Erased {
            kept_answers: 1,
            ..Erased::default()
        };
        count(&mut writing, self.erasure.id, &erased).await?;
        match without.filter(|_| !is_named) {
            Some(kept) => {
                let sealed = self
                    .store
                    .keyring()
                    .seal(&context, to_json(&kept).as_bytes());
                execute!(
                    writing,
                    "UPDATE idempotency_keys SET answer = $5 WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4",
                    row.credential_id,
                    &row.method,
                    &row.path,
                    &row.key,
                    sealed,
                )?;
            }
            None => {
                execute!(
                    writing,
                    "DELETE FROM idempotency_keys WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4",
                    row.credential_id,
                    &row.method,
                    &row.path,
                    &row.key,
                )?;
            }
        }
        writing.commit().await
    }

    /// What nodes asked each other to do with calls of the contact, and what nobody waits for any more.
    pub(super) async fn node_commands(&self, now: Moment) -> Result<(), Error> {
        let mut reading = self.store.pool().read().await?;
        let sql = "SELECT id, call_id, what, asked_at, answer FROM asks WHERE org_id = $1";
        let rows: Vec<CommandRow> = fetch_all!(reading, sql, self.erasure.org_id)?;
        drop(reading);
        let subject = &self.erasure.subject;
        let found: Vec<Uuid> = rows
            .iter()
            .filter(|row| {
                now.since(row.asked_at) > COMMANDS
                    || self.calls.contains(&row.call_id)
                    || subject.mentioned_in(&row.what)
                    || subject.mentioned(row.answer.as_deref())
            })
            .map(|row| row.id)
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        let mut writing = self.store.pool().write().await?;
        let erased = Erased {
            node_commands: found.len() as u64,
            ..Erased::default()
        };
        count(&mut writing, self.erasure.id, &erased).await?;
        for id in found {
            execute!(writing, "DELETE FROM asks WHERE id = $1", id)?;
        }
        writing.commit().await
    }

    /// Log-ins that failed where the contact was dialled; their messages are searched for as those of calls are.
    pub(super) async fn failed_log_ins(&self) -> Result<(), Error> {
        let subject = &self.erasure.subject;
        let mut place = Uuid::nil();
        loop {
            let mut reading = self.store.pool().read().await?;
            let rows: Vec<LogInRow> = fetch_all!(
                reading,
                "SELECT id, username, dialled, sip_call_id, at FROM auth_failures
                 WHERE org_id = $1 AND id > $2 AND at <= $3 ORDER BY id LIMIT $4",
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
            for row in rows {
                let texts = [row.dialled.as_deref(), row.sip_call_id.as_deref()];
                let is_named = texts.into_iter().any(|text| subject.mentioned(text))
                    || subject.mentioned_in(&row.username);
                if !is_named {
                    continue;
                }
                let mut writing = self.store.pool().write().await?;
                let erased = Erased {
                    failed_log_ins: 1,
                    ..Erased::default()
                };
                count(&mut writing, self.erasure.id, &erased).await?;
                let legs = ErasedLegs {
                    call_ids: row.sip_call_id.into_iter().collect(),
                    session: None,
                    from: row.at - AROUND,
                    until: row.at + AROUND,
                };
                self.remember_legs(&mut writing, (row.id, None), &legs)
                    .await?;
                let sql = "DELETE FROM auth_failures WHERE id = $1";
                execute!(writing, sql, row.id)?;
                writing.commit().await?;
            }
        }
    }

    /// Other contacts lose the number and the address, and what mentions them; one that has nothing else goes.
    pub(super) async fn contacts(&self) -> Result<(), Error> {
        let mut place = Uuid::nil();
        loop {
            let mut reading = self.store.pool().read().await?;
            let rows: Vec<Contact> = fetch_all!(
                reading,
                "SELECT * FROM contacts WHERE org_id = $1 AND id > $2 AND created_at <= $3 ORDER BY id LIMIT $4",
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
            for contact in rows {
                let Some(without) = contact_without(&contact, &self.erasure.subject) else {
                    continue;
                };
                let mut writing = self.store.pool().write().await?;
                let is_nobody = without.external_id.is_none()
                    && without.email.is_none()
                    && without.phone.is_none();
                let erased = Erased {
                    contacts: u64::from(is_nobody),
                    other_contacts: u64::from(!is_nobody),
                    ..Erased::default()
                };
                count(&mut writing, self.erasure.id, &erased).await?;
                if is_nobody {
                    let sql = "DELETE FROM contacts WHERE org_id = $1 AND id = $2";
                    execute!(writing, sql, self.erasure.org_id, without.id)?;
                    // Calls of a contact that was nothing but the number.
                    let sql =
                        "UPDATE events SET contact_id = NULL WHERE org_id = $1 AND contact_id = $2";
                    execute!(writing, sql, self.erasure.org_id, without.id)?;
                } else {
                    writing
                        .run(move |tx| identify::update(tx, &without))
                        .await?;
                }
                let changes = [crate::Change::Contacts(self.erasure.org_id)];
                let at = self.erasure.requested_at;
                self.store.commit(writing, &changes, at).await?;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// Counts what stays: the org's configuration isn't a contact's data.
    pub(super) async fn configuration(&self) -> Result<(), Error> {
        let mut writing = self.store.pool().write().await?;
        count(&mut writing, self.erasure.id, &Erased::default()).await?;
        let sql = "SELECT 'numbers' AS kind, number AS text FROM numbers WHERE org_id = $1
             UNION ALL SELECT 'agents', handoff_phone_number FROM agents WHERE org_id = $1
             UNION ALL SELECT 'destinations', value FROM destinations WHERE org_id = $1
             UNION ALL SELECT 'outbound_trunks', caller_number FROM outbound_trunks WHERE org_id = $1";
        let rows: Vec<Held> = fetch_all!(writing, sql, self.erasure.org_id)?;
        let sql = "SELECT kept FROM erasures WHERE id = $1";
        let before: Stored = fetch_one!(writing, sql, self.erasure.id)?;
        let subject = &self.erasure.subject;
        let kept = rows
            .iter()
            .filter(|row| subject.mentioned(row.text.as_deref()));
        let mut found = KeptConfiguration::default();
        for row in kept {
            match &*row.kind {
                "numbers" => found.numbers += 1,
                "agents" => found.agents += 1,
                "destinations" => found.destinations += 1,
                _ => found.outbound_trunks += 1,
            }
        }
        // A verified number isn't searched for: the request has counted it.
        found.numbers = found.numbers.max(before.kept.numbers);
        let sql = "UPDATE erasures SET kept = $2 WHERE id = $1";
        execute!(writing, sql, self.erasure.id, to_json(&found))?;
        writing.commit().await
    }
}

/// A contact without what mentions the person; `None` if nothing does.
fn contact_without(contact: &Contact, subject: &Subject) -> Option<Contact> {
    let clean = |text: &Option<String>| text.clone().filter(|text| !subject.mentioned_in(text));
    let object = |fields: &Option<Map<String, Value>>| {
        let mut fields = fields.clone()?;
        subject.strike_fields(&mut fields);
        Some(fields)
    };
    let without = Contact {
        email: clean(&contact.email),
        phone: clean(&contact.phone),
        name: clean(&contact.name),
        avatar_url: clean(&contact.avatar_url),
        external_id: contact
            .external_id
            .clone()
            .map(|id| match subject.mentioned_in(&id) {
                true => format!("erased-{}", contact.id),
                false => id,
            }),
        chat_context: clean(&contact.chat_context),
        custom_data: object(&contact.custom_data),
        mcp_access: object(&contact.mcp_access),
        http_action_overrides: object(&contact.http_action_overrides),
        ..contact.clone()
    };
    (without != *contact).then_some(without)
}
