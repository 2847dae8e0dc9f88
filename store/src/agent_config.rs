//! All that is assigned to one agent, read in one state of the database.

use uuid::Uuid;

use super::Store;
use super::agents::{self, Agent};
use super::destinations::{self, Destination};
use super::error::Error;
use super::numbers::{self, Number};
use super::outbound_trunks::{self, OutboundTrunk};
use super::page::Narrow;

/// What is assigned to an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// The agent.
    pub agent: Agent,
    /// The numbers that it answers, oldest first.
    pub numbers: Vec<Number>,
    /// The trunk that it dials through.
    pub outbound_trunk: Option<OutboundTrunk>,
    /// Whom it may transfer to, newest first.
    pub destinations: Vec<Destination>,
}

impl Store {
    /// What is assigned to an agent.
    ///
    /// # Errors
    /// [`Wrong::Absent`](super::Wrong::Absent).
    pub async fn agent_config(&self, org: Uuid, agent: Uuid) -> Result<AgentConfig, Error> {
        let mut reading = self.pool().peek_snapshot().await?;
        let agent = reading
            .source()
            .step(move |tx| agents::by_id(tx, org, agent))
            .await?;
        let numbers = numbers::of_agent(reading.source(), org, agent.id).await?;
        let outbound_trunk = match agent.outbound_trunk_id {
            Some(id) => {
                Some(outbound_trunks::find(reading.source(), self.keyring(), org, id).await?)
            }
            None => None,
        };
        let destinations = destinations::of_agent(
            reading.source(),
            (org, agent.id),
            &Narrow::default(),
            None,
            i64::MAX,
        )
        .await?;
        Ok(AgentConfig {
            agent,
            numbers,
            outbound_trunk,
            destinations,
        })
    }
}
