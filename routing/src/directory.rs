//! One org as routing sees it: agents, the numbers they hold, the inbound trunk.
//!
//! A plain view: the daemon's directory builds it and replaces it as a whole; this crate never changes it.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use crate::{Country, E164};

/// A phone agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Id.
    pub id: Uuid,
    /// Name.
    pub name: Box<str>,
    /// The agent takes inbound calls.
    pub inbound: bool,
    /// A disabled agent takes no calls.
    pub enabled: bool,
    /// Most concurrent calls; `None`: no limit. Permits outside this crate enforce it; routing only asks whether the agent is at its limit.
    pub max_concurrent_calls: Option<u32>,
    /// Ordinal by age: the smaller, the older. Any unit.
    pub created: i64,
}

/// An org's inbound trunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trunk {
    /// Id.
    pub id: Uuid,
    /// Numbers in the order in which step 3 tries them.
    pub numbers: Vec<E164>,
    /// Country in whose national form the trunk sends numbers.
    pub default_country: Option<Country>,
    /// Most concurrent calls; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
}

/// Everything that routing knows of an org.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Org {
    /// Id.
    pub id: Uuid,
    /// Agents, oldest first: step 4 takes the first that is available.
    pub agents: Vec<Agent>,
    /// Agent that each number is assigned to.
    pub held: HashMap<E164, Uuid>,
    /// All verified numbers, assigned or not.
    pub numbers: HashSet<E164>,
    /// The inbound trunk, if the org has one.
    pub trunk: Option<Trunk>,
    /// Most concurrent calls of the org; `None`: no limit.
    pub max_concurrent_calls: Option<u32>,
}

impl Org {
    /// Returns the agent of this id.
    pub fn agent(&self, id: Uuid) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.id == id)
    }

    /// Returns the agent that the number is assigned to.
    pub fn holder(&self, number: &E164) -> Option<&Agent> {
        self.held.get(number).and_then(|id| self.agent(*id))
    }

    /// Returns whether the number is this org's, by verification or by assignment.
    pub fn holds(&self, number: &E164) -> bool {
        self.numbers.contains(number) || self.held.contains_key(number)
    }

    /// Returns the country in whose national form the trunk sends numbers.
    pub fn country(&self) -> Option<Country> {
        self.trunk.as_ref().and_then(|trunk| trunk.default_country)
    }
}
