//! Erasure of a contact from its calls, their attempts and transfers.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use trunkline_routing::Decision;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::search::{PAUSE, ROWS_AT_ONCE, RowsErased, Search, Searched};
use crate::access::store::Store;
use crate::calls::anonymous::ANONYMOUS;
use crate::driver::column::{from_row, maybe, moment, to_json};
use crate::driver::error::Error;
use crate::driver::tx::Tx;
use crate::erasing::erasures::{Erased, ErasedLegs, count, legs_context};
use crate::erasing::subject::{ANONYMOUS_URI, Subject};

/// Margin before the start and after the end of a call's record in which its messages may pass: challenges, and retransmitted responses.
const AROUND: Duration = Duration::from_secs(90);
/// Calls of earlier passes whose attempts one transaction erases.
const CALLS_AT_ONCE: usize = 50;

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
    has_media_steps: bool,
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
    has_media_steps,
});

/// Selects the columns of [`CallRow`].
macro_rules! select_calls {
    () => {
        "SELECT id, session_id, contact_id, direction, started_at, ended_at, from_number, to_number, from_e164, to_e164,
            caller_call_id, runtime_call_id, metadata, decision, headers, asked, media_steps IS NOT NULL AS has_media_steps
        FROM calls "
    };
}

const CALLS: &str = concat!(
    select_calls!(),
    "WHERE org_id = $1 AND started_at <= $2 AND (started_at, id) > ($3, $4) ORDER BY started_at, id LIMIT $5"
);
const CALL: &str = concat!(
    select_calls!(),
    "WHERE org_id = $1 AND id = $2 AND started_at IS NOT NULL"
);

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

/// Free texts of a call's attempts and transfers that are erased.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Texts {
    /// All of them: the call is the contact's.
    All,
    /// Those that mention the contact: the call is another person's.
    Mentions,
}

pub(super) struct TransferRow {
    pub(super) id: Uuid,
    pub(super) call_id: Uuid,
    pub(super) name: String,
    pub(super) value: String,
    pub(super) summary: String,
    pub(super) explanation: Option<String>,
}
from_row!(TransferRow {
    id,
    call_id,
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

    const fn has_words(&self) -> bool {
        !self.summary.is_empty() || self.explanation.is_some()
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

    /// Returns whether the row holds data that came with the call or its media.
    const fn carries_anything(&self) -> bool {
        self.metadata.is_some()
            || self.headers.is_some()
            || self.asked.is_some()
            || self.has_media_steps
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

    /// Returns the search terms for the call's messages. Those of a call that is up are searched for until the request.
    fn legs(&self, requested_at: Moment) -> ErasedLegs {
        ErasedLegs {
            call: self.id,
            from: self.started_at - AROUND,
            until: self.ended_at.unwrap_or(requested_at) + AROUND,
        }
    }
}

/// Erases the contact from calls, and remembers these calls.
pub(super) async fn erase(store: &Store, search: &mut Arc<Search>) -> Result<RowsErased, Error> {
    erase_late_attempts(store, search).await?;

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

/// Erases attempts that were projected after an earlier pass had erased their calls. The rows of these calls may be as that pass left them,
/// and aren't found again then.
async fn erase_late_attempts(store: &Store, search: &Arc<Search>) -> Result<(), Error> {
    let known: Vec<Uuid> = search.calls.iter().copied().collect();
    for some in known.chunks(CALLS_AT_ONCE) {
        let (of, some) = (Arc::clone(search), some.to_vec());
        store
            .write(move |tx| of.erase_attempts_of(tx, &some))
            .await?;
        tokio::time::sleep(PAUSE).await;
    }

    Ok(())
}

/// Returns true while a call is up that was transferred to the contact: its messages to come name the contact in traces.
pub(super) async fn is_transferred_call_up(
    store: &Store,
    search: &Arc<Search>,
) -> Result<bool, Error> {
    let mut after = Uuid::nil();
    loop {
        let of = Arc::clone(search);
        let rows = store.read(move |tx| TransferRow::of_calls_up(tx, &of, after));
        let rows = rows.await?;
        let Some(last) = rows.last() else {
            return Ok(false);
        };

        if rows.iter().any(|row| row.is_found(search)) {
            return Ok(true);
        }
        after = last.id;
    }
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
            let legs = row.legs(self.erasure.requested_at);
            erased.calls += self.remember_legs(tx, row.id, row.session_id, &legs)?;
            self.erase_call(tx, row)?;
            erased.call_attempts += self.erase_attempts(tx, row.id, Texts::All)?;
            let sql = "SELECT id, call_id, name, value, summary, explanation FROM transfers WHERE org_id = $1 AND call_id = $2";
            let transfers: Vec<TransferRow> = tx.all(sql, &[&self.erasure.org_id, &row.id])?;
            erased.transfers += self.erase_transfers(tx, &transfers, Texts::All)?;
        }

        count(tx, self.erasure.id, &erased)
    }

    /// Stores, sealed, what traces are searched for. Returns the number of new calls.
    pub(super) fn remember_legs(
        &self,
        tx: &mut Tx,
        call: Uuid,
        session: Option<Uuid>,
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

    /// Erases the attempts of calls that earlier passes have found, by the ids under which their legs are stored.
    fn erase_attempts_of(&self, tx: &mut Tx, known: &[Uuid]) -> Result<(), Error> {
        count(tx, self.erasure.id, &Erased::default())?;
        let mut erased = Erased::default();

        for id in known {
            erased.call_attempts += self.erase_attempts(tx, *id, Texts::All)?;

            // The legs of another person's call are stored under the id of its transfer.
            let sql = "SELECT call_id FROM transfers WHERE org_id = $1 AND id = $2";
            let transferred: Option<(Uuid,)> = tx.one(sql, &[&self.erasure.org_id, id])?;
            if let Some((call,)) = transferred {
                erased.call_attempts += self.erase_attempts(tx, call, Texts::Mentions)?;
            }
        }

        count(tx, self.erasure.id, &erased)
    }

    /// Remembers the legs of another person's call for a transfer of it that names the contact, and erases the contact from its attempts,
    /// which include those at the destination of a bridged transfer. Returns the number of attempts.
    fn erase_transferred_call(&self, tx: &mut Tx, transfer: &TransferRow) -> Result<u64, Error> {
        let call: Option<CallRow> = tx.one(CALL, &[&self.erasure.org_id, &transfer.call_id])?;
        if let Some(call) = call {
            // Stored under the id of the transfer: under its own id the call would count as the contact's, and lose its metadata.
            let legs = call.legs(self.erasure.requested_at);
            self.remember_legs(tx, transfer.id, None, &legs)?;
        }

        self.erase_attempts(tx, transfer.call_id, Texts::Mentions)
    }

    /// Erases the contact from URIs and the texts of peers.
    fn erase_attempts(&self, tx: &mut Tx, call: Uuid, texts: Texts) -> Result<u64, Error> {
        let subject = &self.erasure.subject;
        let sql = "SELECT number, target, detail FROM call_attempts WHERE call_id = $1";
        let rows: Vec<AttemptRow> = tx.all(sql, &[&call])?;
        let mut erased = 0;

        for row in rows {
            let is_named = subject.mentioned_in(&row.target);
            let has_words = match texts {
                Texts::All => row.detail.is_some(),
                Texts::Mentions => subject.mentioned(row.detail.as_deref()),
            };
            // Nothing of the person, or erased by an earlier pass: it isn't counted again.
            if !is_named && !has_words {
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
        texts: Texts,
    ) -> Result<u64, Error> {
        let subject = &self.erasure.subject;
        let mut erased = 0;

        for row in rows {
            let has_words = texts == Texts::All && row.has_words();
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

impl TransferRow {
    /// Reads the first transfers after an id whose calls are up.
    fn of_calls_up(tx: &mut Tx, search: &Search, after: Uuid) -> Result<Vec<Self>, Error> {
        let (org, until) = (search.erasure.org_id, search.erasure.requested_at);
        tx.all(
            "SELECT id, call_id, name, value, summary, explanation FROM transfers
             WHERE org_id = $1 AND id > $2 AND requested_at <= $3 AND call_id IN
                 (SELECT id FROM calls WHERE org_id = $1 AND ended_at IS NULL AND started_at IS NOT NULL)
             ORDER BY id LIMIT $4",
            &[&org, &after, &until, &ROWS_AT_ONCE],
        )
    }
}

/// Transfers of other people's calls that led to the contact or mention it, and transfers of the contact's own calls that were projected
/// after their calls had been erased.
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
            "SELECT id, call_id, name, value, summary, explanation FROM transfers
             WHERE org_id = $1 AND id > $2 AND requested_at <= $3 ORDER BY id LIMIT $4",
            &[&org, after, &until, &ROWS_AT_ONCE],
        )
    }

    fn is_found(&self, search: &Search) -> bool {
        let is_refilled = search.calls.contains(&self.call_id) && self.has_words();
        is_refilled || self.names(&search.erasure.subject)
    }

    fn erase(tx: &mut Tx, search: &Search, found: &[Self]) -> Result<(), Error> {
        let mut erased = Erased::default();

        for row in found {
            let texts = match search.calls.contains(&row.call_id) {
                true => Texts::All,
                false => Texts::Mentions,
            };
            if texts == Texts::Mentions {
                erased.call_attempts += search.erase_transferred_call(tx, row)?;
            }
            erased.transfers += search.erase_transfers(tx, slice::from_ref(row), texts)?;
        }

        count(tx, search.erasure.id, &erased)
    }
}
