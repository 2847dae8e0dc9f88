//! Hypothetical directory: one org's view with some agents, numbers or the trunk changed. Nothing is stored.

use trunkline_routing::{Agent, Country, E164, Org, Trunk};
use uuid::Uuid;

/// Differences from today's directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Change {
    /// Changed agents.
    pub agents: Vec<AgentChange>,
    /// Numbers that are added, reassigned or removed.
    pub numbers: Vec<NumberChange>,
    /// Changes of the trunk.
    pub trunk: TrunkChange,
}

/// Change of one agent; `None` means unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentChange {
    /// Id of the agent.
    pub id: Uuid,
    /// True if it takes calls.
    pub enabled: Option<bool>,
    /// True if it takes inbound calls.
    pub inbound: Option<bool>,
    /// Limit on concurrent calls; `Some(None)` is no limit.
    pub max_concurrent_calls: Option<Option<u32>>,
    /// True if it is deleted, and its numbers are free.
    pub deleted: bool,
}

/// Change of one number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NumberChange {
    /// Number; one that the org doesn't have is treated as verified.
    pub number: E164,
    /// Agent that answers; `Some(None)` is none.
    pub agent: Option<Option<Uuid>>,
    /// True if the number is removed from the org.
    pub deleted: bool,
}

/// Change of the trunk; `None` means unchanged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrunkChange {
    /// List of numbers.
    pub numbers: Option<Vec<E164>>,
    /// Country of national notations; `Some(None)` is none.
    pub default_country: Option<Option<Country>>,
}

impl Change {
    /// Applies the change to an org.
    ///
    /// # Errors
    /// Every part that can't be applied, named by its path.
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
                None => faults.push(format!("agents[{at}].id: is not an agent of this org")),
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
                return Err("agent_id: is not an agent of this org");
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
        // Nothing changes, and an org without a trunk must not get one below.
        if *self == Self::default() {
            return Ok(());
        }

        let verified = |number: &E164| org.numbers.contains(number);
        if !self.numbers.iter().flatten().all(verified) {
            return Err("phone_numbers: holds a number that isn't one of this org");
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
