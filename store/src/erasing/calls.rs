//! Erasure of a contact from its calls, their attempts and transfers.

use std::sync::Arc;
use std::time::Duration;

use trunkline_routing::Decision;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::search::{PAUSE, ROWS_AT_ONCE, RowsErased, Search, Searched};
use crate::Store;
use crate::anonymous::ANONYMOUS;
use crate::column::{from_row, maybe, moment, to_json};
use crate::erasures::{Erased, ErasedLegs, count, legs_context};
use crate::error::Error;
use crate::subject::{ANONYMOUS_URI, Subject};
use crate::tx::Tx;

/// Margin before the start and after the end of a call's record in which its messages may pass: challenges, and retransmitted responses.
const AROUND: Duration = Duration::from_secs(40);

struct CallRow {
    id: Uuid,
    session_id: Option<Uuid>,
    contact_id: Option<Uuid>,
    direction: Option<String>,
    started_at: Moment,
    ended_at: Option<Moment>,
    from_number: Option<String>,
    to_number: Option<String>,
    from_e164: Option<String>,
    to_e164: Option<String>,
    caller_call_id: Option<String>,
    runtime_call_id: Option<String>,
    metadata: Option<String>,
    decision: Option<String>,
    headers: Option<String>,
    asked: Option<String>,
}
from_row!(CallRow {
    id,
    session_id,
    contact_id,
    direction,
    started_at: moment,
    ended_at: maybe(moment),
    from_number,
    to_number,
    from_e164,
    to_e164,
    caller_call_id,
    runtime_call_id,
    metadata,
    decision,
    headers,
    asked,
});

const CALLS: &str = "SELECT id, session_id, contact_id, direction, started_at, ended_at, from_number, to_number, from_e164, to_e164,
        caller_call_id, runtime_call_id, metadata, decision, headers, asked
    FROM calls WHERE org_id = $1 AND started_at <= $2 AND (started_at, id) > ($3, $4)
    ORDER BY started_at, id LIMIT $5";

struct AttemptRow {
    number: i64,
    target: String,
    detail: Option<String>,
}
from_row!(AttemptRow {
    number,
    target,
    detail
});

pub(super) struct TransferRow {
    pub(super) id: Uuid,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) summary: String,
    pub(super) explanation: Option<String>,
}
from_row!(TransferRow {
    id,
    name,
    value,
    summary,
    explanation
});

impl TransferRow {
    /// Returns whether anything in the row mentions the person.
    pub(super) fn names(&self, subject: &Subject) -> bool {
        let texts = [&self.name, &self.value, &self.summary];
        let mut texts = texts.into_iter();
        texts.any(|text| subject.mentioned_in(text))
            || subject.mentioned(self.explanation.as_deref())
    }
}

impl CallRow {
    /// Returns whether the person is the caller, and whether the person is the callee.
    fn sides(&self, subject: &Subject, is_contacts: bool) -> (bool, bool) {
        let is_outbound = self.direction.as_deref() == Some("outbound");
        let is = |numbers: [&Option<String>; 2]| {
            let mut numbers = numbers.into_iter();
            numbers.any(|number| subject.mentioned(number.as_deref()))
        };
        (
            is_contacts && !is_outbound || is([&self.from_number, &self.from_e164]),
            is_contacts && is_outbound || is([&self.to_number, &self.to_e164]),
        )
    }

    /// Returns whether anything in the row mentions the person.
    fn mentions(&self, subject: &Subject) -> bool {
        [
            &self.from_number,
            &self.to_number,
            &self.from_e164,
            &self.to_e164,
            &self.caller_call_id,
            &self.runtime_call_id,
            &self.metadata,
            &self.decision,
            &self.headers,
            &self.asked,
        ]
        .into_iter()
        .any(|text| subject.mentioned(text.as_deref()))
    }

    /// Returns whether the row holds data that came with the call.
    const fn carries_anything(&self) -> bool {
        self.metadata.is_some() || self.headers.is_some() || self.asked.is_some()
    }

    /// Returns the routing decision without the person; `None` if it can't be read after that, because a field that must hold a number was
    /// replaced.
    fn decision_without(&self, subjects: &[&Subject]) -> Option<String> {
        let mut decision = self.decision.clone()?;
        for subject in subjects {
            if let Some(struck) = subject.redacted(&decision) {
                decision = struck;
            }
        }
        serde_json::from_str::<Decision>(&decision)
            .is_ok()
            .then_some(decision)
    }

    fn legs(&self) -> ErasedLegs {
        let is_outbound = self.direction.as_deref() == Some("outbound");
        let known = |id: &Option<String>| id.clone().filter(|id| !id.is_empty());
        let of_trunk = known(&self.caller_call_id);
        let (ours, theirs) = match is_outbound {
            true => (of_trunk, None),
            false => (None, of_trunk),
        };

        ErasedLegs {
            peer_call_id: theirs,
            began: Some(self.started_at),
            call_ids: ours
                .into_iter()
                .chain(known(&self.runtime_call_id))
                .collect(),
            session: self.session_id,
            from: self.started_at - AROUND,
            until: self.ended_at.unwrap_or(self.started_at) + AROUND,
        }
    }
}

/// Erases the contact from calls, and remembers these calls.
pub(super) async fn erase(store: &Store, search: &mut Arc<Search>) -> Result<RowsErased, Error> {
    let mut place = (Moment::from_micros(0), Uuid::nil());
    loop {
        let of = Arc::clone(search);
        let (at, id) = place;
        let rows = store.read(move |tx| -> Result<Vec<CallRow>, Error> {
            let (org, until) = (of.erasure.org_id, of.erasure.requested_at);
            tx.all(CALLS, &[&org, &until, &at, &id, &ROWS_AT_ONCE])
        });
        let mut rows = rows.await?;
        let Some(last) = rows.last() else { break };
        place = (last.started_at, last.id);
        rows.retain(|row| search.is_found(row));

        // Further facts of a call that is up would bring back what is erased now: the erasure is repeated after its
        // end.
        if rows.iter().any(|row| row.ended_at.is_none()) {
            return Ok(RowsErased::CallIsUp);
        }

        if rows.is_empty() {
            continue;
        }

        let of = Arc::clone(search);
        let erased = store.write(move |tx| {
            of.erase_calls(tx, &rows)?;
            Ok(rows)
        });
        let rows = erased.await?;
        let known = Arc::make_mut(search);
        known.calls.extend(rows.iter().map(|row| row.id));
        known
            .sessions
            .extend(rows.iter().filter_map(|row| row.session_id));

        tokio::time::sleep(PAUSE).await;
    }

    // Rows whose first fact never arrived hold only the contact's id.
    let (org, contact) = (search.erasure.org_id, search.erasure.contact_id);
    let sql = "UPDATE calls SET contact_id = NULL WHERE org_id = $1 AND started_at IS NULL AND contact_id = $2";
    store
        .write(move |tx| tx.run(sql, &[&org, &contact]))
        .await?;

    Ok(RowsErased::All)
}

impl Search {
    fn is_found(&self, row: &CallRow) -> bool {
        let is_contacts = row.contact_id == Some(self.erasure.contact_id);
        // Late facts may have been projected into a row that was erased already.
        let is_refilled = self.calls.contains(&row.id) && row.carries_anything();
        is_contacts || is_refilled || row.mentions(&self.erasure.subject)
    }

    fn erase_calls(&self, tx: &mut Tx, rows: &[CallRow]) -> Result<(), Error> {
        // Locks the erasure first, as every transaction of an erasure does.
        count(tx, self.erasure.id, &Erased::default())?;
        let mut erased = Erased::default();

        for row in rows {
            erased.calls += self.remember_legs(tx, (row.id, row.session_id), &row.legs())?;
            self.erase_call(tx, row)?;
            erased.call_attempts += self.erase_attempts(tx, row.id)?;
            let sql = "SELECT id, name, value, summary, explanation FROM transfers WHERE org_id = $1 AND call_id = $2";
            let transfers: Vec<TransferRow> = tx.all(sql, &[&self.erasure.org_id, &row.id])?;
            erased.transfers += self.erase_transfers(tx, &transfers, true)?;
        }

        count(tx, self.erasure.id, &erased)
    }

    /// Stores, sealed, the Call-IDs for which traces are searched. Returns the number of new calls.
    pub(super) fn remember_legs(
        &self,
        tx: &mut Tx,
        (call, session): (Uuid, Option<Uuid>),
        legs: &ErasedLegs,
    ) -> Result<u64, Error> {
        // Another node may have stored the same legs before: the call counts once.
        let sealed = tx
            .keyring()
            .seal(&legs_context(call), to_json(legs).as_bytes());
        tx.run(
            "INSERT INTO erasure_calls (erasure_id, call_id, session_id, legs) VALUES ($1, $2, $3, $4)
             ON CONFLICT (erasure_id, call_id) DO NOTHING",
            &[&self.erasure.id, &call, &session, &sealed],
        )
    }

    fn erase_call(&self, tx: &mut Tx, row: &CallRow) -> Result<(), Error> {
        let subject = &self.erasure.subject;
        let is_contacts = row.contact_id == Some(self.erasure.contact_id);
        let (is_caller, is_callee) = row.sides(subject, is_contacts);

        // The contact may have had another number at the time.
        let then = match (is_contacts, is_caller) {
            (true, true) => Subject::new(
                row.from_e164.as_deref().or(row.from_number.as_deref()),
                None,
            ),
            (true, false) => {
                Subject::new(row.to_e164.as_deref().or(row.to_number.as_deref()), None)
            }
            (false, _) => Subject::default(),
        };

        let number = |is_theirs: bool, number: &Option<String>| match is_theirs {
            true => number.as_ref().map(|_| ANONYMOUS.to_owned()),
            false => number.clone(),
        };
        let e164 = |is_theirs: bool, e164: &Option<String>| e164.clone().filter(|_| !is_theirs);
        let call_id = |id: &Option<String>| match subject.mentioned(id.as_deref()) {
            true => Some(format!("erased-{}", row.id)),
            false => id.clone(),
        };

        // `media_steps` has the address from which the person's media came.
        tx.run(
            "UPDATE calls SET contact_id = NULL, from_number = $3, from_e164 = $4, to_number = $5, to_e164 = $6,
                 caller_call_id = $7, runtime_call_id = $8, decision = $9, metadata = NULL, headers = NULL, asked = NULL,
                 media_steps = NULL
             WHERE org_id = $1 AND id = $2",
            &[
                &self.erasure.org_id,
                &row.id,
                &number(is_caller, &row.from_number),
                &e164(is_caller, &row.from_e164),
                &number(is_callee, &row.to_number),
                &e164(is_callee, &row.to_e164),
                &call_id(&row.caller_call_id),
                &call_id(&row.runtime_call_id),
                &row.decision_without(&[subject, &then]),
            ],
        )?;

        Ok(())
    }

    /// Erases the caller from runtime URIs and the texts of peers.
    fn erase_attempts(&self, tx: &mut Tx, call: Uuid) -> Result<u64, Error> {
        let sql = "SELECT number, target, detail FROM call_attempts WHERE call_id = $1";
        let rows: Vec<AttemptRow> = tx.all(sql, &[&call])?;
        let mut erased = 0;

        for row in rows {
            let is_named = self.erasure.subject.mentioned_in(&row.target);
            // Nothing of the person, or erased by an earlier pass: it isn't counted again.
            if !is_named && row.detail.is_none() {
                continue;
            }
            let target = match is_named {
                true => ANONYMOUS_URI.to_owned(),
                false => row.target,
            };
            let sql = "UPDATE call_attempts SET target = $3, detail = NULL WHERE call_id = $1 AND number = $2";
            erased += tx.run(sql, &[&call, &row.number, &target])?;
        }

        Ok(erased)
    }

    /// Erases the texts of the contact's transfers and, in transfers that only mention it, those parts.
    pub(super) fn erase_transfers(
        &self,
        tx: &mut Tx,
        rows: &[TransferRow],
        are_contacts: bool,
    ) -> Result<u64, Error> {
        let subject = &self.erasure.subject;
        let mut erased = 0;

        for row in rows {
            let has_words = are_contacts && (!row.summary.is_empty() || row.explanation.is_some());
            if !has_words && !row.names(subject) {
                continue;
            }

            let (leads_there, named) = (
                subject.mentioned_in(&row.value),
                subject.mentioned_in(&row.name),
            );

            erased += tx.run(
                "UPDATE transfers SET summary = '', explanation = NULL, name = $2,
                     type = CASE WHEN $3 THEN 'sip' ELSE type END, value = CASE WHEN $3 THEN $4 ELSE value END
                 WHERE id = $1",
                &[&row.id, &if named { ANONYMOUS } else { &row.name }, &leads_there, &ANONYMOUS_URI],
            )?;
        }

        Ok(erased)
    }
}

/// Transfers of other people's calls that led to the contact or mention it.
impl Searched for TransferRow {
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
            "SELECT id, name, value, summary, explanation FROM transfers
             WHERE org_id = $1 AND id > $2 AND requested_at <= $3 ORDER BY id LIMIT $4",
            &[&org, after, &until, &ROWS_AT_ONCE],
        )
    }

    fn is_found(&self, search: &Search) -> bool {
        self.names(&search.erasure.subject)
    }

    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error> {
        let transfers = search.erase_transfers(tx, found, false)?;
        let erased = Erased {
            transfers,
            ..Erased::default()
        };
        count(tx, search.erasure.id, &erased)
    }
}
