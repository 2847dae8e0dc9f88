//! A directory as it might be: one org's view with some agents, numbers or the trunk changed. Nothing is stored.

use trunkline_routing::{Agent, Country, E164, Org, Trunk};
use uuid::Uuid;

/// What would be different.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Agents that are changed.
    pub agents: Vec<AgentChange>,
    /// Numbers that are added, given to others, or taken away.
    pub numbers: Vec<NumberChange>,
    /// The trunk.
    pub trunk: TrunkChange,
}

/// A change of one agent; what is `None` stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentChange {
    /// Which.
    pub id: Uuid,
    /// Whether it takes calls.
    pub enabled: Option<bool>,
    /// Whether it takes inbound calls.
    pub inbound: Option<bool>,
    /// Calls at once; `Some(None)` is no limit.
    pub max_concurrent_calls: Option<Option<u32>>,
    /// It is deleted, and its numbers are free.
    pub deleted: bool,
}

/// A change of one number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberChange {
    /// Which; one that the org doesn't have is taken to be verified.
    pub number: E164,
    /// Who answers; `Some(None)` is nobody.
    pub agent: Option<Option<Uuid>>,
    /// It is the org's no more.
    pub deleted: bool,
}

/// A change of the trunk; what is `None` stays.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrunkChange {
    /// Its list of numbers.
    pub numbers: Option<Vec<E164>>,
    /// The country of national forms; `Some(None)` is none.
    pub default_country: Option<Option<Country>>,
}

impl Change {
    /// The org with the change made.
    ///
    /// # Errors
    /// What of the change can't be, named by its path.
    pub fn apply(&self, org: &Org) -> Result<Org, Vec<String>> {
        let mut changed = org.clone();
        let mut faults = Vec::new();
        for (at, change) in self.agents.iter().enumerate() {
            match changed
                .agents
                .iter_mut()
                .find(|agent| agent.id == change.id)
            {
                Some(agent) => change.apply(agent),
                None => faults.push(format!("agents[{at}].id: is no agent of this org")),
            }
            if change.deleted {
                changed.agents.retain(|agent| agent.id != change.id);
                changed.held.retain(|_, holder| *holder != change.id);
            }
        }

        for (at, change) in self.numbers.iter().enumerate() {
            if let Err(fault) = change.apply(&mut changed) {
                faults.push(format!("numbers[{at}].{fault}"));
            }
        }

        if let Err(fault) = self.trunk.apply(&mut changed) {
            faults.push(format!("trunk.{fault}"));
        }

        if faults.is_empty() {
            Ok(changed)
        } else {
            Err(faults)
        }
    }
}

impl AgentChange {
    fn apply(&self, agent: &mut Agent) {
        agent.enabled = self.enabled.unwrap_or(agent.enabled);
        agent.inbound = self.inbound.unwrap_or(agent.inbound);
        agent.max_concurrent_calls = self
            .max_concurrent_calls
            .unwrap_or(agent.max_concurrent_calls);
    }
}

impl NumberChange {
    fn apply(&self, org: &mut Org) -> Result<(), &'static str> {
        if self.deleted {
            org.numbers.remove(&self.number);
            org.held.remove(&self.number);
            if let Some(trunk) = &mut org.trunk {
                trunk.numbers.retain(|number| *number != self.number);
            }
            return Ok(());
        }

        org.numbers.insert(self.number);
        match self.agent {
            Some(Some(agent)) if org.agent(agent).is_none() => {
                return Err("agent_id: is no agent of this org");
            }
            Some(Some(agent)) => drop(org.held.insert(self.number, agent)),
            Some(None) => drop(org.held.remove(&self.number)),
            None => {}
        }

        Ok(())
    }
}

impl TrunkChange {
    fn apply(&self, org: &mut Org) -> Result<(), &'static str> {
        if *self == Self::default() {
            return Ok(());
        }

        let verified = |number: &E164| org.numbers.contains(number);
        if !self.numbers.iter().flatten().all(verified) {
            return Err("phone_numbers: holds what is no number of this org");
        }

        let trunk = org.trunk.get_or_insert_with(|| Trunk {
            id: Uuid::nil(),
            numbers: Vec::new(),
            default_country: None,
            max_concurrent_calls: None,
        });

        if let Some(numbers) = &self.numbers {
            trunk.numbers.clone_from(numbers);
        }

        trunk.default_country = self.default_country.unwrap_or(trunk.default_country);
        Ok(())
    }
}
