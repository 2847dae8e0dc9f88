//! Other rows that may hold the contact's number or address: stored answers, commands between nodes, failed log-ins, other contacts. Counts
//! the org's own configuration, which stays.

use std::time::Duration;

use serde_json::{Map, Value};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::search::{ROWS_AT_ONCE, Search, Searched};
use crate::calls::contact_counts;
use crate::calls::contacts;
use crate::calls::contacts::Contact;
use crate::calls::identify;
use crate::driver::change::Change;
use crate::driver::column::{from_row, moment, to_json};
use crate::driver::error::Error;
use crate::driver::keyring::Keyring;
use crate::driver::tx::Tx;
use crate::erasing::erasures::{Erased, KeptConfiguration, count};
use crate::erasing::subject::Subject;
use crate::tenants::idempotency;
use crate::tenants::idempotency::StoredAnswer;

/// Age after which a command between nodes is deleted, whatever it holds: neither its sender nor its receiver uses it any more.
const COMMANDS: Duration = Duration::from_secs(60);

pub(super) struct AnswerRow {
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

pub(super) struct LogInRow {
    id: Uuid,
    username: String,
    dialled: Option<String>,
    sip_call_id: Option<String>,
}
from_row!(LogInRow {
    id,
    username,
    dialled,
    sip_call_id
});

struct TextByKind {
    kind: String,
    text: Option<String>,
}
from_row!(TextByKind { kind, text });

struct Stored {
    kept: KeptConfiguration,
}
from_row!(Stored {
    kept: crate::driver::column::json
});

/// Sentence in place of one that mentioned the contact.
const ERASED: &str =
    "The answer to the first request mentioned a contact that has been erased since";

/// Stored answers to requests about the org, by whatever credential. If the key or path itself names the contact, the row is deleted.
impl Searched for AnswerRow {
    type Position = (Uuid, String, String, String);

    fn start() -> Self::Position {
        (Uuid::nil(), String::new(), String::new(), String::new())
    }

    fn place(&self) -> Self::Position {
        let (method, path) = (self.method.clone(), self.path.clone());
        (self.credential_id, method, path, self.key.clone())
    }

    /// Also unseals the answers.
    fn read(tx: &mut Tx, search: &Search, after: &Self::Position) -> Result<Vec<Self>, Error> {
        let (credential, method, path, key) = after;
        let mut rows: Vec<Self> = tx.all(
            "SELECT credential_id, method, path, key, answer FROM idempotency_keys
             WHERE org_id = $1 AND (credential_id, method, path, key) > ($2, $3, $4, $5)
             ORDER BY credential_id, method, path, key LIMIT $6",
            &[
                &search.erasure.org_id,
                credential,
                method,
                path,
                key,
                &ROWS_AT_ONCE,
            ],
        )?;

        let keyring = tx.keyring();
        for row in &mut rows {
            if let Some(sealed) = &row.answer {
                row.answer = Some(keyring.open(&row.context(), sealed)?);
            }
        }

        Ok(rows)
    }

    fn is_found(&self, search: &Search) -> bool {
        self.is_named(search) || self.without(search).is_some()
    }

    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error> {
        let erased = Erased {
            kept_answers: found.len() as u64,
            ..Erased::default()
        };
        count(tx, search.erasure.id, &erased)?;
        let keyring = tx.keyring();
        for row in found {
            let (credential, method, path, key) = row.place();
            match row.resealed(search, &keyring) {
                Some(sealed) => tx.run(
                    "UPDATE idempotency_keys SET answer = $5 WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4",
                    &[&credential, &method, &path, &key, &sealed],
                )?,
                None => tx.run(
                    "DELETE FROM idempotency_keys WHERE credential_id = $1 AND method = $2 AND path = $3 AND key = $4",
                    &[&credential, &method, &path, &key],
                )?,
            };
        }

        Ok(())
    }
}

impl AnswerRow {
    fn context(&self) -> Vec<u8> {
        idempotency::context(self.credential_id, &self.method, &self.path, &self.key)
    }

    fn is_named(&self, search: &Search) -> bool {
        let subject = &search.erasure.subject;
        subject.mentioned_in(&self.path) || subject.mentioned_in(&self.key)
    }

    /// Returns the answer without the contact; `None` if the answer doesn't mention it.
    fn without(&self, search: &Search) -> Option<StoredAnswer> {
        let kept: StoredAnswer = serde_json::from_slice(self.answer.as_deref()?).ok()?;
        let text = search.without(&kept.text);
        let is_named = search.erasure.subject.mentioned_in(&kept.text);
        // A refusal is no JSON: a code, and on the next line a sentence, which mentions the contact.
        let other = || match kept.refusal {
            true => format!("{}\n{ERASED}", kept.text.lines().next().unwrap_or_default()),
            false => String::new(),
        };
        let text = text.or_else(|| is_named.then(other))?;
        Some(StoredAnswer { text, ..kept })
    }

    /// Returns the sealed answer to store from now on; `None`: the row is deleted.
    fn resealed(&self, search: &Search, keyring: &Keyring) -> Option<Vec<u8>> {
        let kept = self.without(search).filter(|_| !self.is_named(search))?;
        Some(keyring.seal(&self.context(), to_json(&kept).as_bytes()))
    }
}

/// Failed log-ins that dialled the contact. Their messages are of no call, and in no trace.
impl Searched for LogInRow {
    type Position = Uuid;

    fn start() -> Uuid {
        Uuid::nil()
    }

    fn place(&self) -> Uuid {
        self.id
    }

    fn read(tx: &mut Tx, search: &Search, after: &Uuid) -> Result<Vec<Self>, Error> {
        let (org, until) = (search.erasure.org_id, search.erasure.requested_at);
        tx.all(
            "SELECT id, username, dialled, sip_call_id FROM auth_failures
             WHERE org_id = $1 AND id > $2 AND at <= $3 ORDER BY id LIMIT $4",
            &[&org, after, &until, &ROWS_AT_ONCE],
        )
    }

    fn is_found(&self, search: &Search) -> bool {
        let subject = &search.erasure.subject;
        let texts = [self.dialled.as_deref(), self.sip_call_id.as_deref()];
        let mut texts = texts.into_iter();
        texts.any(|text| subject.mentioned(text)) || subject.mentioned_in(&self.username)
    }

    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error> {
        let erased = Erased {
            failed_log_ins: found.len() as u64,
            ..Erased::default()
        };
        count(tx, search.erasure.id, &erased)?;

        for row in found {
            tx.run("DELETE FROM auth_failures WHERE id = $1", &[&row.id])?;
        }

        Ok(())
    }
}

/// Other contacts lose the number, the address and texts that mention the person; a contact with nothing else is deleted.
impl Searched for Contact {
    type Position = Uuid;

    fn start() -> Uuid {
        Uuid::nil()
    }

    fn place(&self) -> Uuid {
        self.id
    }

    fn read(tx: &mut Tx, search: &Search, after: &Uuid) -> Result<Vec<Self>, Error> {
        let (org, until) = (search.erasure.org_id, search.erasure.requested_at);
        tx.all(
            "SELECT * FROM contacts WHERE org_id = $1 AND id > $2 AND created_at <= $3 ORDER BY id LIMIT $4",
            &[&org, after, &until, &ROWS_AT_ONCE],
        )
    }

    fn is_found(&self, search: &Search) -> bool {
        contact_without(self, &search.erasure.subject).is_some()
    }

    fn lock(tx: &mut Tx, search: &Search) -> Result<(), Error> {
        contacts::lock(tx, std::iter::once(search.erasure.org_id))
    }

    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error> {
        let subject = &search.erasure.subject;
        let without = found.iter().filter_map(|row| contact_without(row, subject));
        let (nobodies, others): (Vec<_>, Vec<_>) = without.partition(|contact| {
            contact.external_id.is_none() && contact.email.is_none() && contact.phone.is_none()
        });
        let erased = Erased {
            contacts: nobodies.len() as u64,
            other_contacts: others.len() as u64,
            ..Erased::default()
        };

        count(tx, search.erasure.id, &erased)?;
        let org = search.erasure.org_id;
        for nobody in nobodies {
            contact_counts::delete(tx, org, nobody.id)?;
            // Events of its calls still name the deleted contact by its id.
            let sql = "UPDATE events SET contact_id = NULL WHERE org_id = $1 AND contact_id = $2";
            tx.run(sql, &[&org, &nobody.id])?;
            let sql = "UPDATE handoffs SET contact_id = NULL WHERE org_id = $1 AND contact_id = $2";
            tx.run(sql, &[&org, &nobody.id])?;
        }

        for other in others {
            identify::update(tx, &other)?;
        }

        tx.changed(Change::Contacts(org), search.erasure.requested_at);
        Ok(())
    }
}

impl Search {
    /// Deletes commands between nodes that concern the contact's calls, and those older than [`COMMANDS`].
    pub(super) fn node_commands(&self, tx: &mut Tx, now: Moment) -> Result<(), Error> {
        // Locks the erasure first, so that two nodes don't count the same commands.
        count(tx, self.erasure.id, &Erased::default())?;
        let sql = "SELECT id, call_id, what, asked_at, answer FROM asks WHERE org_id = $1";
        let rows: Vec<CommandRow> = tx.all(sql, &[&self.erasure.org_id])?;
        let subject = &self.erasure.subject;
        let found = rows.iter().filter(|row| {
            now.since(row.asked_at) > COMMANDS
                || self.calls.contains(&row.call_id)
                || subject.mentioned_in(&row.what)
                || subject.mentioned(row.answer.as_deref())
        });

        let found: Vec<Uuid> = found.map(|row| row.id).collect();
        if found.is_empty() {
            return Ok(());
        }

        let erased = Erased {
            node_commands: found.len() as u64,
            ..Erased::default()
        };
        count(tx, self.erasure.id, &erased)?;

        for id in found {
            tx.run("DELETE FROM asks WHERE id = $1", &[&id])?;
        }

        Ok(())
    }

    /// Counts what stays: the org's configuration isn't a contact's data.
    pub(super) fn configuration(&self, tx: &mut Tx) -> Result<(), Error> {
        count(tx, self.erasure.id, &Erased::default())?;
        let sql = "SELECT 'numbers' AS kind, number AS text FROM numbers WHERE org_id = $1
             UNION ALL SELECT 'agents', handoff_phone_number FROM agents WHERE org_id = $1
             UNION ALL SELECT 'destinations', value FROM destinations WHERE org_id = $1
             UNION ALL SELECT 'outbound_trunks', caller_number FROM outbound_trunks WHERE org_id = $1";
        let rows: Vec<TextByKind> = tx.all(sql, &[&self.erasure.org_id])?;
        let sql = "SELECT kept FROM erasures WHERE id = $1";
        let before: Stored = tx.exactly_one(sql, &[&self.erasure.id])?;
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

        // A verified number isn't searched for: the request has counted it already.
        found.numbers = found.numbers.max(before.kept.numbers);
        let sql = "UPDATE erasures SET kept = $2 WHERE id = $1";
        tx.run(sql, &[&self.erasure.id, &to_json(&found)])?;

        Ok(())
    }
}

/// Returns a contact without everything that mentions the person; `None` if nothing does.
fn contact_without(contact: &Contact, subject: &Subject) -> Option<Contact> {
    let clean = |text: &Option<String>| text.clone().filter(|text| !subject.mentioned_in(text));
    let object = |fields: &Option<Map<String, Value>>| {
        let mut fields = fields.clone()?;
        subject.redact_fields(&mut fields);
        Some(fields)
    };

    let without = Contact {
        email: clean(&contact.email),
        phone: clean(&contact.phone),
        name: clean(&contact.name),
        avatar_url: clean(&contact.avatar_url),
        // Replaced, not cleared: `erase` deletes a contact without external id, address and number.
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
