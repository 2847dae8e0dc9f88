//! Names of an org's objects: looked up by ids, or found by a part of the name. Both serve people: a list of calls that shows its agents, and a choice
//! among more agents than a page has. A part is searched among the newest objects alone, a whole name among all.

use uuid::Uuid;

use crate::driver::column::from_row;
use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// Kind of object that has a name.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NamedKind {
    /// Phone agents.
    Agent,
    /// Transfer destinations.
    Destination,
    /// Numbers, verified or not; the number is the name.
    Number,
    /// Trunks to carriers.
    OutboundTrunk,
}

impl NamedKind {
    /// All variants.
    pub const ALL: [Self; 4] = [
        Self::Agent,
        Self::Destination,
        Self::Number,
        Self::OutboundTrunk,
    ];

    /// Word for it in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Destination => "destination",
            Self::Number => "number",
            Self::OutboundTrunk => "outbound_trunk",
        }
    }

    const fn by_id(self) -> &'static str {
        match self {
            Self::Agent => "SELECT id, name FROM agents WHERE org_id = $1 AND id = $2",
            Self::Destination => "SELECT id, name FROM destinations WHERE org_id = $1 AND id = $2",
            Self::Number => "SELECT id, number AS name FROM numbers WHERE org_id = $1 AND id = $2",
            Self::OutboundTrunk => {
                "SELECT id, name FROM outbound_trunks WHERE org_id = $1 AND id = $2"
            }
        }
    }

    /// Returns the query that reads those of an org, the newest first.
    const fn all(self) -> &'static str {
        match self {
            Self::Agent => {
                "SELECT id, name FROM agents WHERE org_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2"
            }
            Self::Destination => {
                "SELECT id, name FROM destinations WHERE org_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2"
            }
            Self::Number => {
                "SELECT id, number AS name FROM numbers WHERE org_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2"
            }
            Self::OutboundTrunk => {
                "SELECT id, name FROM outbound_trunks WHERE org_id = $1 ORDER BY created_at DESC, id DESC LIMIT $2"
            }
        }
    }

    /// Returns the query that reads those of an org with this name, from an index. For both databases `lower` changes ASCII letters; which others it
    /// changes, differs.
    const fn by_name(self) -> &'static str {
        match self {
            Self::Agent => {
                "SELECT id, name FROM agents WHERE org_id = $1 AND lower(name) = lower($2) LIMIT $3"
            }
            Self::Destination => {
                "SELECT id, name FROM destinations WHERE org_id = $1 AND name_folded = $2 LIMIT $3"
            }
            Self::Number => {
                "SELECT id, number AS name FROM numbers WHERE org_id = $1 AND number = $2 LIMIT $3"
            }
            Self::OutboundTrunk => {
                "SELECT id, name FROM outbound_trunks WHERE org_id = $1 AND lower(name) = lower($2) LIMIT $3"
            }
        }
    }
}

/// Name of one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectName {
    /// The object's id.
    pub id: Uuid,
    /// The name that people gave it.
    pub name: String,
}
from_row!(ObjectName { id, name });

/// Objects of a kind that are searched, the newest first: as many numbers as an org may have by default.
const SEARCHED: u32 = 10_000;
/// Objects of one name that are found.
const SAME_NAMED: u32 = 100;

/// Returns the names of the org's objects of these kinds among these ids, each with its kind.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn of_ids(
    tx: &mut Tx,
    org: Uuid,
    kinds: &[NamedKind],
    ids: &[Uuid],
) -> Result<Vec<(NamedKind, ObjectName)>, Error> {
    tx.snapshot()?;
    let mut names = Vec::new();
    for id in ids {
        for kind in kinds {
            if let Some(name) = tx.one(kind.by_id(), &[&org, id])? {
                names.push((*kind, name));
                break;
            }
        }
    }
    Ok(names)
}

/// Returns the names of the org's objects of these kinds that may have this text: the newest 10,000 of each kind, and those of any age whose whole name
/// it is.
///
/// # Errors
/// [`Broke`](crate::driver::error::Broke): the database fails.
pub fn searched(
    tx: &mut Tx,
    org: Uuid,
    kinds: &[NamedKind],
    text: &str,
) -> Result<Vec<(NamedKind, ObjectName)>, Error> {
    tx.snapshot()?;
    let mut names = Vec::new();
    for kind in kinds {
        let newest: Vec<ObjectName> = tx.all(kind.all(), &[&org, &SEARCHED])?;
        let mut named = of_name(tx, org, *kind, text.trim())?;
        named.retain(|object| !newest.iter().any(|known| known.id == object.id));

        let objects = newest.into_iter().chain(named);
        names.extend(objects.map(|object| (*kind, object)));
    }
    Ok(names)
}

/// Returns the org's objects of a kind with this name in any case. Of letters beyond ASCII these cases are found: as given, all small, all capital.
fn of_name(tx: &mut Tx, org: Uuid, kind: NamedKind, name: &str) -> Result<Vec<ObjectName>, Error> {
    let mut spellings = vec![name.to_lowercase()];
    if !name.is_ascii() {
        spellings.extend([name.to_owned(), name.to_uppercase()]);
    }
    spellings.sort_unstable();
    spellings.dedup();

    let mut objects: Vec<ObjectName> = Vec::new();
    for spelling in spellings.iter().filter(|spelling| !spelling.is_empty()) {
        let spelt: Vec<ObjectName> = tx.all(kind.by_name(), &[&org, spelling, &SAME_NAMED])?;
        for object in spelt {
            if !objects.contains(&object) {
                objects.push(object);
            }
        }
    }
    Ok(objects)
}

/// Returns those whose names have this text in any case, in alphabetical order and those that begin with it first. SQLite compares only ASCII in any
/// case, so the names are compared here. An empty text is in every name.
pub fn with_text(
    objects: Vec<(NamedKind, ObjectName)>,
    text: &str,
) -> Vec<(NamedKind, ObjectName)> {
    let text = text.trim().to_lowercase();
    let mut found: Vec<(bool, String, (NamedKind, ObjectName))> = objects
        .into_iter()
        .filter_map(|(kind, object)| {
            let name = object.name.to_lowercase();
            let at = name.find(&text)?;
            Some((at > 0, name, (kind, object)))
        })
        .collect();
    found.sort_by(|(is_within, name, _), (other_within, other, _)| {
        (is_within, name).cmp(&(other_within, other))
    });
    found.into_iter().map(|(.., object)| object).collect()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn a_whole_name_is_looked_up_in_an_index() {
        let database = Connection::open_in_memory().unwrap();
        let schema = include_str!("../../../migrations/sqlite/0001_schema.sql");
        database.execute_batch(schema).unwrap();

        for (kind, searched) in [
            (NamedKind::Agent, "agents_named (org_id=? AND <expr>=?)"),
            (NamedKind::Destination, "(org_id=? AND name_folded=?)"),
            (NamedKind::Number, "(org_id=? AND number=?)"),
            (
                NamedKind::OutboundTrunk,
                "outbound_trunks_named (org_id=? AND <expr>=?)",
            ),
        ] {
            let explained = format!("EXPLAIN QUERY PLAN {}", kind.by_name());
            let mut explained = database.prepare(&explained).unwrap();
            let mut rows = explained.raw_query();
            let row = rows.next().unwrap().unwrap();
            let step: String = row.get("detail").unwrap();
            assert!(step.ends_with(searched), "{step}");
        }
    }
}
