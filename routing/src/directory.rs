//! One org as routing sees it: agents, the numbers they hold, the inbound trunk.
//!
//! A view that others build and replace as a whole; nothing here changes it.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use crate::{Country, E164};

/// A phone agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    pub id: Uuid,
    pub name: Box<str>,
    /// Whether inbound calls may be given to it.
    pub inbound: bool,
    pub enabled: bool,
    /// Calls at once; none is no limit. Enforced by permits outside: routing only asks whether the agent is at its limit.
    pub max_concurrent_calls: Option<u32>,
    /// Its place by age: the smaller, the older. Any unit.
    pub created: i64,
}

/// An org's inbound trunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trunk {
    pub id: Uuid,
    /// In the order in which step (c) tries them.
    pub numbers: Vec<E164>,
    /// How numbers in national form are read.
    pub default_country: Option<Country>,
    pub max_concurrent_calls: Option<u32>,
}

/// Everything that routing knows of an org.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    pub id: Uuid,
    /// Oldest first: step (d) takes the first that is available.
    pub agents: Vec<Agent>,
    /// Which agent a number is assigned to.
    pub held: HashMap<E164, Uuid>,
    /// Every verified number, assigned or not.
    pub numbers: HashSet<E164>,
    pub trunk: Option<Trunk>,
    pub max_concurrent_calls: Option<u32>,
}

impl Org {
    pub fn agent(&self, id: Uuid) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.id == id)
    }

    /// The agent that the number is assigned to.
    pub fn holder(&self, number: &E164) -> Option<&Agent> {
        self.held.get(number).and_then(|id| self.agent(*id))
    }

    /// Whether the number is this org's, by verification or by assignment.
    pub fn holds(&self, number: &E164) -> bool {
        self.numbers.contains(number) || self.held.contains_key(number)
    }

    /// The country whose national form the trunk's numbers come in.
    pub fn country(&self) -> Option<Country> {
        self.trunk.as_ref().and_then(|trunk| trunk.default_country)
    }
}
