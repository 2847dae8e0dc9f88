//! Whom an agent may hand a caller to, and how one of them is meant: by id, by name, by number or URI.
//!
//! Pure. What isn't on the agent's list can't be reached, whoever asks.

use uuid::Uuid;

use super::settings::TransferTarget;

/// The name under which an agent's number for human escalation is reached.
pub const HUMAN: &str = "human";

/// One destination of an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Its id; the number for human escalation has none.
    pub id: Option<Uuid>,
    /// What the agent calls it.
    pub name: Box<str>,
    /// Where it leads.
    pub target: TransferTarget,
}

impl Destination {
    /// The one of this name, ignoring case.
    pub fn named<'d>(list: &'d [Self], name: &str) -> Option<&'d Self> {
        let folded = name.to_lowercase();
        list.iter().find(|own| own.name.to_lowercase() == folded)
    }

    /// The one with this id.
    pub fn of_id(list: &[Self], id: Uuid) -> Option<&Self> {
        list.iter().find(|own| own.id == Some(id))
    }
}
