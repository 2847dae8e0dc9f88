//! Builder of an org and a call, each in one line.

use std::collections::{HashMap, HashSet};

use trunkline_routing::{Agent, Decision, E164, Facts, Org, Trunk, decide};
use uuid::Uuid;

pub(crate) const RECEPTION: Uuid = Uuid::from_u128(1);
pub(crate) const SALES: Uuid = Uuid::from_u128(2);
pub(crate) const SUPPORT: Uuid = Uuid::from_u128(3);

pub(crate) fn foreign_id() -> Uuid {
    Uuid::from_u128(0xf0_0000)
}

#[derive(Debug, Clone)]
pub(crate) struct World {
    pub(crate) org: Org,
    pub(crate) facts: Facts,
    pub(crate) busy: HashSet<Uuid>,
}

impl World {
    /// An org with these agents, the oldest first, and a trunk without numbers.
    pub(crate) fn new(agents: &[Uuid]) -> Self {
        let agents = agents.iter().zip(1..).map(|(id, age)| Agent {
            id: *id,
            name: format!("agent {age}").into(),
            inbound: true,
            enabled: true,
            max_concurrent_calls: None,
            created: age,
        });

        let trunk = Trunk {
            id: Uuid::from_u128(99),
            numbers: Vec::new(),
            default_country: None,
            max_concurrent_calls: None,
        };

        let org = Org {
            id: Uuid::from_u128(100),
            agents: agents.collect(),
            held: HashMap::new(),
            numbers: HashSet::new(),
            trunk: Some(trunk),
            max_concurrent_calls: None,
        };

        Self {
            org,
            facts: Facts::default(),
            busy: HashSet::new(),
        }
    }

    pub(crate) fn header(mut self, value: impl Into<String>) -> Self {
        self.facts.agent_header = Some(value.into());
        self
    }

    /// Repeats the header with another value.
    pub(crate) fn other_header(mut self, value: impl Into<String>) -> Self {
        self.facts.other_agent_header = Some(value.into().into());
        self
    }

    pub(crate) fn dialled(mut self, user: &str) -> Self {
        self.facts.request_user = Some(user.to_owned());
        self
    }

    pub(crate) fn assigned(mut self, number: &str, agent: Uuid) -> Self {
        self.org
            .held
            .insert(E164::parse(number).expect("a number in the test"), agent);
        self
    }

    pub(crate) fn listing(mut self, numbers: &[&str]) -> Self {
        let trunk = self.org.trunk.as_mut().expect("every world has a trunk");
        trunk.numbers = numbers
            .iter()
            .map(|number| E164::parse(number).expect("a number in the test"))
            .collect();
        self
    }

    pub(crate) fn disabled(mut self, agent: Uuid) -> Self {
        self.agent(agent).enabled = false;
        self
    }

    pub(crate) fn outbound(mut self, agent: Uuid) -> Self {
        self.agent(agent).inbound = false;
        self
    }

    pub(crate) fn busy(mut self, agent: Uuid) -> Self {
        self.busy.insert(agent);
        self
    }

    pub(crate) fn decide(&self) -> Decision {
        decide(&self.facts, &self.org, &|id| self.busy.contains(&id))
    }

    fn agent(&mut self, id: Uuid) -> &mut Agent {
        self.org
            .agents
            .iter_mut()
            .find(|agent| agent.id == id)
            .expect("the world has this agent")
    }
}
