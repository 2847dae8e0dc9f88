//! Prompts that an org has uploaded for its built-in agents: µ-law of 8 kHz under a name. A prompt never changes.

use trunkline_model::builtin::{self, Flow};
use trunkline_model::settings::Runtime;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::driver::column::{count, from_row, moment};
use crate::driver::edit::lock_org;
use crate::driver::error::{Conflict, Error, Kind, Wrong};
use crate::driver::ids::new_id;
use crate::driver::page::{List, Narrow, Page, Position};
use crate::driver::tx::Tx;

/// Most prompts of an org; a further one is refused.
const MOST: u32 = 100;

/// A prompt without its audio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prompt {
    /// The prompt.
    pub id: Uuid,
    /// The org.
    pub org_id: Uuid,
    /// Name, unique in the org, ignoring case.
    pub name: String,
    /// Samples of the audio, 8,000 a second.
    pub samples: u32,
    /// Time of creation.
    pub created_at: Moment,
}
from_row!(Prompt {
    id,
    org_id,
    name,
    samples: count,
    created_at: moment,
});

const LIST: List = List {
    columns: "id, org_id, name, samples, created_at",
    table: "prompts",
    by: ["name", "name_folded"],
};

/// Stores a prompt.
///
/// # Errors
/// [`Wrong::Absent`] if there is no such org, [`Conflict::NameTaken`], [`Conflict::TooManyPrompts`].
pub fn create(
    tx: &mut Tx,
    org: Uuid,
    name: &str,
    audio: &[u8],
    now: Moment,
) -> Result<Prompt, Error> {
    lock_org(tx, org)?;
    let folded = name.to_lowercase();
    let sql = "SELECT id FROM prompts WHERE org_id = $1 AND name_folded = $2";
    let taken: Option<(Uuid,)> = tx.one(sql, &[&org, &folded])?;
    if taken.is_some() {
        return Err(Conflict::NameTaken(name.to_owned()).into());
    }

    let (held,): (i64,) =
        tx.exactly_one("SELECT COUNT(*) FROM prompts WHERE org_id = $1", &[&org])?;
    if held >= i64::from(MOST) {
        return Err(Conflict::TooManyPrompts { most: MOST }.into());
    }

    let made = Prompt {
        id: new_id(now),
        org_id: org,
        name: name.to_owned(),
        samples: u32::try_from(audio.len()).unwrap_or(u32::MAX),
        created_at: now,
    };
    tx.run(
        "INSERT INTO prompts (org_id, id, name, name_folded, audio, samples, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)",
        &[&org, &made.id, &made.name, &folded, &audio, &made.samples, &now],
    )?;
    Ok(made)
}

/// Returns the prompt of this id.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn by_id(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<Prompt, Error> {
    let sql =
        "SELECT id, org_id, name, samples, created_at FROM prompts WHERE org_id = $1 AND id = $2";
    let row = tx.one(sql, &[&org, &id])?;
    Ok(row.ok_or(Wrong::Absent(Kind::Prompt))?)
}

/// Returns the audio of a prompt.
///
/// # Errors
/// [`Wrong::Absent`].
pub fn audio(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<Vec<u8>, Error> {
    let sql = "SELECT audio FROM prompts WHERE org_id = $1 AND id = $2";
    let row: Option<(Vec<u8>,)> = tx.one(sql, &[&org, &id])?;
    let (audio,) = row.ok_or(Wrong::Absent(Kind::Prompt))?;
    Ok(audio)
}

/// Returns a page of the org's prompts, newest first, filtered by name, after `after`.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn page(
    tx: &mut Tx,
    org: Uuid,
    narrow: &Narrow,
    after: Option<Position>,
    limit: u32,
) -> Result<Page<Prompt>, Error> {
    LIST.page(tx, org, narrow, after, limit, |row: &Prompt| Position {
        at: row.created_at,
        id: row.id,
    })
}

/// Deletes a prompt that no agent plays.
///
/// # Errors
/// [`Wrong::Absent`], [`Conflict::PromptInUse`].
pub fn delete(tx: &mut Tx, org: Uuid, id: Uuid) -> Result<(), Error> {
    lock_org(tx, org)?;
    by_id(tx, org, id)?;

    // A runtime is JSON, in which a prompt is named by its id.
    let sql = "SELECT name FROM agents WHERE org_id = $1 AND CAST(runtime AS TEXT) LIKE $2 ORDER BY name LIMIT 1";
    let user: Option<(String,)> = tx.one(sql, &[&org, &format!("%\"{id}\"%")])?;
    if let Some((agent,)) = user {
        return Err(Conflict::PromptInUse { agent }.into());
    }

    tx.run(
        "DELETE FROM prompts WHERE org_id = $1 AND id = $2",
        &[&org, &id],
    )?;
    Ok(())
}

/// Refuses a runtime whose flow plays a prompt that the org doesn't have. The caller holds the org's lock, so that none is deleted meanwhile.
///
/// # Errors
/// [`Conflict::PromptAbsent`].
pub(crate) fn check(tx: &mut Tx, org: Uuid, runtime: Option<&Runtime>) -> Result<(), Error> {
    let flow = runtime.and_then(Runtime::flow);
    let ids = flow.into_iter().flat_map(Flow::prompts);
    let ids = ids.filter_map(|(_, prompt)| match prompt {
        builtin::Prompt::Id(id) => Some(*id),
        builtin::Prompt::Text(_) | builtin::Prompt::Bundled(_) => None,
    });
    let ids: Vec<Uuid> = ids.collect();
    match missing(tx, org, &ids)?.first() {
        Some(id) => Err(Conflict::PromptAbsent(*id).into()),
        None => Ok(()),
    }
}

/// Returns which of these prompts the org doesn't have.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn missing(tx: &mut Tx, org: Uuid, ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
    let sql = "SELECT id FROM prompts WHERE org_id = $1 AND id = $2";
    let mut missing = Vec::new();
    for id in ids {
        let row: Option<(Uuid,)> = tx.one(sql, &[&org, id])?;
        if row.is_none() {
            missing.push(*id);
        }
    }
    Ok(missing)
}
