//! Projection of the journal's facts into the rows of calls.
//!
//! Facts may come in any grouping, repeatedly, and even after the call was closed as lost: each row is the union of what is known. A call
//! that starts and ends within one batch is written once. Events are recorded with the rows. `lost` closes calls whose node is gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use trunkline_model::media::CallMedia;
use trunkline_model::record::{Ended, Fact, Started, Status};
use trunkline_routing::{Decision, E164};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::attempts;
use super::call_ends;
use super::call_events::{CallRow, Stages, call_columns};
use super::call_lists::{self, Place, WrittenLists, outcome_of};
use super::contacts::{self, ContactLock};
use super::journal_positions;
use super::transfers;
use crate::access::store::Store;
use crate::driver::column::{micros, to_json};
use crate::driver::error::{Broke, Error};
use crate::driver::event::NewEvent;
use crate::driver::rows::{Each, Insert};
use crate::driver::tx::Tx;
use crate::driver::value::Value;
use crate::journal::{Origin, Project, ReadPosition, Retry};

/// Merged content of the facts of one call.
#[derive(Clone, PartialEq, Debug)]
struct MergedFacts<'f> {
    call: Uuid,
    org: Uuid,
    started: Option<&'f Started>,
    /// Places in the lists that filters read; known once the call has begun.
    place: Option<Place>,
    contact: Option<Uuid>,
    ringing_at: Option<Moment>,
    answered_at: Option<Moment>,
    runtime_call_id: Option<&'f str>,
    held: Option<bool>,
    media: Option<&'f CallMedia>,
    ended: Option<&'f Ended>,
}

/// Writes facts into the rows of their calls. `origin` is the run that wrote the facts, which isn't always the one that projects them.
/// Projecting the same facts again is safe.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn project(tx: &mut Tx, origin: Origin, facts: &[Fact]) -> Result<(), Error> {
    let mut known = fold(facts);
    // This comes first: it locks the contacts that exist, so that none is deleted before this commit.
    forget_deleted_contacts(tx, &mut known)?;

    // Calls that begin come first: each group has its own statement.
    known.sort_by_key(|known| known.started.is_none());
    let mut places = call_lists::place(tx, known.iter().filter_map(|known| known.started))?;
    for known in &mut known {
        known.place = known
            .started
            .and_then(|started| places.place(started, known.status()));
    }
    let mut events = Vec::new();
    let mut happened = Vec::new();

    attempts::project(tx, facts)?;

    let begun = known.partition_point(|known| known.started.is_some());
    let (begun, others) = known.split_at(begun);
    let mut lists = WrittenLists::default();
    for some in tx.portions(begun).chain(tx.portions(others)) {
        let rows = write(tx, origin, some)?;
        happened.extend(events_of(some, &rows));
        tx.record_ends(rows.iter().filter_map(call_ends::of_row));
        lists.add(&rows);
    }
    lists.write(tx)?;

    // Transfers come after the rows of their calls, which this transaction has locked by now. `lost::close` locks them in the same order.
    for (change, at) in transfers::project(tx, facts, &mut events)? {
        tx.announce(change, at);
    }

    write_rare(tx, &known)?;

    // Readers get the events of different calls in the order in which they happened, not in that of the rows.
    happened.sort_by_key(|event: &NewEvent| event.at);
    tx.record(events);
    tx.record(happened);

    Ok(())
}

/// Writes what few calls have: statements of their own cost less than further columns in the statement for every call.
fn write_rare(tx: &mut Tx, known: &[MergedFacts<'_>]) -> Result<(), Error> {
    let id = |known: &MergedFacts<'_>| [known.org.into(), known.call.into()];

    let held = known.iter().filter_map(|known| {
        let [org, call] = id(known);
        Some([org, call, Value::Flag(Some(known.held?))])
    });
    tx.run_each(HELD, &held.collect::<Vec<_>>())?;

    let media = known.iter().filter_map(|known| {
        let media = known.media?;
        let [org, call] = id(known);
        let (figures, steps) = (to_json(&media.figures), to_json(&media.steps));
        Some([org, call, figures.into(), steps.into()])
    });
    tx.run_each(MEDIA, &media.collect::<Vec<_>>())?;

    let detailed = known.iter().filter_map(|known| {
        let detail = known.ended?.reason_detail.as_deref()?;
        let [org, call] = id(known);
        Some([org, call, text(detail).into()])
    });
    tx.run_each(REASON_DETAIL, &detailed.collect::<Vec<_>>())?;

    let withheld = known.iter().filter(|known| known.withholds_caller());
    let withheld = withheld.map(|known| {
        let [org, call] = id(known);
        [org, call, Value::Flag(Some(true))]
    });
    tx.run_each(WITHHELD, &withheld.collect::<Vec<_>>())
}

const HELD: Each = Each {
    sqlite: "UPDATE calls SET held = $3 WHERE org_id = $1 AND id = $2",
    postgres: "UPDATE calls SET held = given.c FROM given WHERE org_id = given.a AND id = given.b",
};

const MEDIA: Each = Each {
    sqlite: "UPDATE calls SET media = $3, media_steps = $4 WHERE org_id = $1 AND id = $2",
    postgres: "UPDATE calls SET media = given.c, media_steps = given.d FROM given WHERE org_id = given.a AND id = given.b",
};

const REASON_DETAIL: Each = Each {
    sqlite: "UPDATE calls SET reason_detail = $3 WHERE org_id = $1 AND id = $2",
    postgres: "UPDATE calls SET reason_detail = given.c FROM given WHERE org_id = given.a AND id = given.b",
};

const WITHHELD: Each = Each {
    sqlite: "UPDATE calls SET caller_withheld = $3 WHERE org_id = $1 AND id = $2",
    postgres: "UPDATE calls SET caller_withheld = given.c FROM given WHERE org_id = given.a AND id = given.b",
};

impl Project<Fact> for Store {
    async fn project(
        &self,
        origin: Origin,
        facts: Arc<[Fact]>,
        end: ReadPosition,
    ) -> Result<(), Retry> {
        /// Attempts while another process locks the file, each of which waits a second: facts can wait for longer than a request.
        const TRIES: u32 = 5;
        let mut tries = 1;
        loop {
            let facts = Arc::clone(&facts);
            let written = self.write(move |tx| {
                project(tx, origin, &facts)?;
                journal_positions::save(tx, origin, end)
            });
            match written.await {
                Err(Error::Broke(held @ Broke::Sqlite(_))) if held.is_away() && tries < TRIES => {
                    tries += 1;
                }
                written => return written.map_err(|error| Retry(Box::new(error))),
            }
        }
    }

    async fn read_to(&self, origin: Origin) -> Result<ReadPosition, Retry> {
        let position = self.read(move |tx| journal_positions::of_run(tx, origin));
        position.await.map_err(|error| Retry(Box::new(error)))
    }
}

/// Returns one entry for each call, in the order of their first facts.
fn fold(facts: &[Fact]) -> Vec<MergedFacts<'_>> {
    let mut known: Vec<MergedFacts<'_>> = Vec::new();
    let mut places = HashMap::new();
    for fact in facts {
        let place = *places.entry(fact.call()).or_insert_with(|| {
            known.push(MergedFacts::nothing(fact));
            known.len() - 1
        });
        known[place].learn(fact);
    }
    known
}

/// Takes out contacts that were deleted after their look-up, so that no call names a contact that doesn't exist.
fn forget_deleted_contacts(tx: &mut Tx, known: &mut [MergedFacts<'_>]) -> Result<(), Error> {
    let named = known.iter().filter_map(|known| known.contact);
    let existing = contacts::lock_existing(tx, named, ContactLock::Named)?;
    for known in known {
        known.contact = known.contact.filter(|named| existing.contains(named));
    }
    Ok(())
}

impl<'f> MergedFacts<'f> {
    fn nothing(fact: &Fact) -> Self {
        Self {
            call: fact.call(),
            org: org(fact),
            started: None,
            place: None,
            contact: None,
            ringing_at: None,
            answered_at: None,
            runtime_call_id: None,
            held: None,
            media: None,
            ended: None,
        }
    }

    fn learn(&mut self, fact: &'f Fact) {
        match fact {
            Fact::Started(started) => self.started = Some(started),
            Fact::Contact { contact, .. } => self.contact = Some(*contact),
            Fact::Ringing { at, .. } => self.ringing_at = self.ringing_at.or(Some(*at)),

            Fact::Answered {
                at,
                runtime_call_id,
                ..
            } => {
                self.answered_at = Some(*at);
                // Empty where media of our own answered: it must not replace a Call-ID that is known.
                let named = Some(&**runtime_call_id).filter(|id| !id.is_empty());
                self.runtime_call_id = named.or(self.runtime_call_id);
            }

            Fact::Joined {
                runtime_call_id, ..
            } => self.runtime_call_id = Some(&**runtime_call_id),
            Fact::Held { held, .. } => self.held = Some(*held),
            Fact::Media(media) => self.media = Some(media),
            Fact::Ended(ended) => self.ended = Some(ended),
            // These have their own tables.
            Fact::Transfer(_) | Fact::Attempt(_) => {}
        }
    }

    /// Returns the row, as far as these facts determine it.
    fn row(&self) -> CallRow {
        let started = self.started;
        let ended = self.ended;
        let e164 = |number: Option<&E164>| number.map(E164::to_string);

        CallRow {
            id: self.call,
            org_id: self.org,
            session_id: started.map(|started| started.session),
            agent_id: started.and_then(|started| started.agent),
            trunk_id: started.and_then(|started| started.trunk),
            contact_id: self.contact,
            direction: started.map(|started| started.direction.as_str().to_owned()),
            status: self.status().as_str().to_owned(),
            from_number: started.map(|started| text(&started.from)),
            to_number: started.map(|started| text(&started.to)),
            from_e164: e164(started.and_then(|started| started.from_e164.as_ref())),
            to_e164: e164(started.and_then(|started| started.to_e164.as_ref())),
            started_at: started.map(|started| started.at),
            ringing_at: self.ringing_at,
            answered_at: self.answered_at,
            ended_at: ended.map(|ended| ended.at),
            sip_code: ended.map(|ended| i64::from(ended.sip_code)),
            reason: ended.and_then(|ended| ended.reason.as_deref().map(text)),
            hangup_by: ended.map(|ended| ended.hangup_by.as_str().to_owned()),
            caller_call_id: started.map(|started| text(&started.caller_call_id)),
            user_agent: started
                .and_then(|started| started.invite_facts.as_deref()?.user_agent.as_deref())
                .map(text),
            lost_told: None,
            list: self.place.map(|place| place.list),
            media: None,
            caller_withheld: self.withholds_caller().then_some(true),
        }
    }

    /// Returns the values of [`CALLS`].
    fn values<'k>(&self, row: &'k CallRow, origin: Origin) -> [Value<'k>; 31]
    where
        'f: 'k,
    {
        let started = self.started;
        [
            row.id.into(),
            row.org_id.into(),
            i64::from(origin.node).into(),
            origin.boot.into(),
            row.session_id.into(),
            row.agent_id.into(),
            row.contact_id.into(),
            row.direction.as_deref().into(),
            row.status.as_str().into(),
            row.from_number.as_deref().into(),
            row.to_number.as_deref().into(),
            row.from_e164.as_deref().into(),
            row.to_e164.as_deref().into(),
            row.started_at.map(micros).into(),
            row.ringing_at.map(micros).into(),
            row.answered_at.map(micros).into(),
            row.ended_at.map(micros).into(),
            row.sip_code.into(),
            row.reason.as_deref().into(),
            row.hangup_by.as_deref().into(),
            row.caller_call_id.as_deref().into(),
            self.runtime_call_id.map(text).into(),
            self.decision().map(to_json).into(),
            started.and_then(headers).into(),
            self.ended
                .and_then(|ended| ended.cause)
                .map(i64::from)
                .into(),
            started
                .and_then(|started| started.metadata.as_deref())
                .into(),
            started
                .and_then(|started| started.invite_facts.as_deref().map(to_json))
                .into(),
            row.trunk_id.into(),
            started.map(|started| started.clock_offset).into(),
            row.list.into(),
            self.place.map(|place| place.block).into(),
        ]
    }

    fn withholds_caller(&self) -> bool {
        self.started.is_some_and(Started::withholds_caller)
    }

    fn status(&self) -> Status {
        match (self.ended, self.answered_at, self.ringing_at) {
            (Some(ended), _, _) => ended.status,
            (None, Some(_), _) => Status::InProgress,
            (None, None, Some(_)) => Status::Ringing,
            (None, None, None) => Status::Queued,
        }
    }

    /// Returns the stages whose events have to be recorded now. The first fact of a call may arrive after later ones, whose events need it:
    /// all stages are returned then.
    fn stages(&self) -> Stages {
        let is_first = self.started.is_some();
        Stages {
            started: is_first,
            ringing: is_first || self.ringing_at.is_some(),
            answered: is_first || self.answered_at.is_some(),
            ended: is_first || self.ended.is_some(),
        }
    }

    fn decision(&self) -> Option<&Decision> {
        self.started?.decision.as_deref()
    }
}

/// Returns the events of these facts, whose rows may be in any order.
fn events_of(known: &[MergedFacts<'_>], written: &[CallRow]) -> Vec<NewEvent> {
    let rows: HashMap<Uuid, &CallRow> = written.iter().map(|row| (row.id, row)).collect();
    known
        .iter()
        .filter_map(|known| Some(rows.get(&known.call)?.events(known.stages())))
        .flatten()
        .collect()
}

fn org(fact: &Fact) -> Uuid {
    match fact {
        Fact::Started(started) => started.org,
        Fact::Ended(ended) => ended.org,
        Fact::Transfer(transfer) => transfer.org,
        Fact::Attempt(attempt) => attempt.org,
        Fact::Media(media) => media.org,
        Fact::Contact { org, .. }
        | Fact::Ringing { org, .. }
        | Fact::Answered { org, .. }
        | Fact::Held { org, .. }
        | Fact::Joined { org, .. } => *org,
    }
}

const CALLS: &str = "calls (id, org_id, node, boot, session_id, agent_id, contact_id, direction, status,
    from_number, to_number, from_e164, to_e164, started_at, ringing_at, answered_at, ended_at, sip_code, reason, hangup_by,
    caller_call_id, runtime_call_id, decision, headers, q850_cause, metadata, asked, trunk_id, clock_offset, list, block)";

const NEW: Insert = Insert {
    into: CALLS,
    ending: " ON CONFLICT (id) DO NOTHING",
};

/// Merges what comes after a call's beginning. A final status stays, except `lost`, which was assumed.
macro_rules! merge_later {
    () => {
        concat!(
            "
    contact_id = COALESCE(calls.contact_id, excluded.contact_id),
    ringing_at = COALESCE(calls.ringing_at, excluded.ringing_at),
    answered_at = COALESCE(calls.answered_at, excluded.answered_at),
    runtime_call_id = COALESCE(calls.runtime_call_id, excluded.runtime_call_id),
    q850_cause = COALESCE(calls.q850_cause, excluded.q850_cause),
    status = CASE
        WHEN excluded.ended_at IS NOT NULL AND (calls.ended_at IS NULL OR calls.status = 'lost') THEN excluded.status
        WHEN calls.ended_at IS NOT NULL THEN calls.status
        WHEN COALESCE(calls.answered_at, excluded.answered_at) IS NOT NULL THEN 'in_progress'
        WHEN COALESCE(calls.ringing_at, excluded.ringing_at) IS NOT NULL THEN 'ringing'
        ELSE 'queued' END,
    list = (COALESCE(calls.list, excluded.list) & -16) | CASE
        WHEN excluded.ended_at IS NOT NULL AND (calls.ended_at IS NULL OR calls.status = 'lost') THEN ",
            outcome_of!("excluded.status"),
            "
        WHEN calls.ended_at IS NOT NULL THEN ",
            outcome_of!("calls.status"),
            "
        ELSE 0 END,
    sip_code = CASE WHEN excluded.ended_at IS NOT NULL AND (calls.ended_at IS NULL OR calls.status = 'lost')
        THEN excluded.sip_code ELSE calls.sip_code END,
    reason = CASE WHEN excluded.ended_at IS NOT NULL AND (calls.ended_at IS NULL OR calls.status = 'lost')
        THEN excluded.reason ELSE calls.reason END,
    hangup_by = CASE WHEN excluded.ended_at IS NOT NULL AND (calls.ended_at IS NULL OR calls.status = 'lost')
        THEN excluded.hangup_by ELSE calls.hangup_by END,
    ended_at = CASE WHEN excluded.ended_at IS NOT NULL AND (calls.ended_at IS NULL OR calls.status = 'lost')
        THEN excluded.ended_at ELSE calls.ended_at END,
    lost_told = CASE WHEN excluded.ended_at IS NOT NULL AND calls.lost_told = FALSE THEN NULL ELSE calls.lost_told END
    RETURNING ",
            call_columns!()
        )
    };
}
const MERGED: Insert = Insert {
    into: CALLS,
    ending: concat!(
        " ON CONFLICT (id) DO UPDATE SET
    session_id = COALESCE(calls.session_id, excluded.session_id),
    agent_id = COALESCE(calls.agent_id, excluded.agent_id),
    direction = COALESCE(calls.direction, excluded.direction),
    from_number = COALESCE(calls.from_number, excluded.from_number),
    to_number = COALESCE(calls.to_number, excluded.to_number),
    from_e164 = COALESCE(calls.from_e164, excluded.from_e164),
    to_e164 = COALESCE(calls.to_e164, excluded.to_e164),
    started_at = COALESCE(calls.started_at, excluded.started_at),
    caller_call_id = COALESCE(calls.caller_call_id, excluded.caller_call_id),
    decision = COALESCE(calls.decision, excluded.decision),
    headers = COALESCE(calls.headers, excluded.headers),
    metadata = COALESCE(calls.metadata, excluded.metadata),
    asked = COALESCE(calls.asked, excluded.asked),
    trunk_id = COALESCE(calls.trunk_id, excluded.trunk_id),
    clock_offset = COALESCE(calls.clock_offset, excluded.clock_offset),
    block = COALESCE(calls.block, excluded.block),",
        merge_later!()
    ),
};

/// Rows of calls whose beginning isn't among the facts: what it brings isn't written again, nor are the indexes of it.
const LATER: Insert = Insert {
    into: CALLS,
    ending: concat!(" ON CONFLICT (id) DO UPDATE SET", merge_later!()),
};

/// Writes rows, and returns them as stored. Rows of new calls aren't read back: they are as written.
fn write(tx: &mut Tx, origin: Origin, known: &[MergedFacts<'_>]) -> Result<Vec<CallRow>, Error> {
    let rows: Vec<CallRow> = known.iter().map(MergedFacts::row).collect();
    let withheld: HashSet<Uuid> = rows
        .iter()
        .filter_map(|row| row.caller_withheld.map(|_| row.id))
        .collect();

    let values: Vec<_> = known
        .iter()
        .zip(&rows)
        .map(|(known, row)| known.values(row, origin))
        .collect();

    if known.iter().all(|known| known.started.is_some()) {
        let written = tx.insert(NEW, &values)?;
        // Fewer rows were inserted if some existed: facts are projected again, or other facts of the call came first. The
        // rows that were inserted here are merged with themselves below, which changes nothing.
        if written == rows.len() as u64 {
            return Ok(rows);
        }
    }

    let insert = match known.iter().any(|known| known.started.is_some()) {
        true => MERGED,
        false => LATER,
    };
    let mut merged: Vec<CallRow> = tx.insert_returning(insert, &values)?;
    for row in &mut merged {
        // `project` writes this column after the rows, so the rows returned here don't have it yet.
        if withheld.contains(&row.id) {
            row.caller_withheld = Some(true);
        }
    }

    Ok(merged)
}

/// Returns the caller's own headers as JSON, if there are any.
fn headers(started: &Started) -> Option<String> {
    (!started.headers.is_empty()).then(|| to_json(&started.headers))
}

/// Returns a peer's text as PostgreSQL accepts it: without NUL. One fact that can't be stored would block all later ones.
fn text(sent: &str) -> String {
    sent.replace('\0', "\u{fffd}")
}
