//! Everything that is assigned to one agent, read in one snapshot of the database.

use uuid::Uuid;

use super::agents::{self, Agent};
use super::destinations::{self, Destination};
use super::numbers::{self, Number};
use super::outbound_trunks::{self, OutboundTrunk};
use crate::driver::error::Error;
use crate::driver::page::Narrow;
use crate::driver::tx::Tx;

/// Configuration assigned to an agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// The agent.
    pub agent: Agent,
    /// The numbers that it answers, oldest first.
    pub numbers: Vec<Number>,
    /// The trunk over which the agent dials.
    pub outbound_trunk: Option<OutboundTrunk>,
    /// Transfer destinations of the agent, newest first.
    pub destinations: Vec<Destination>,
}

/// Returns the configuration of an agent.
///
/// # Errors
/// [`Wrong::Absent`](crate::Wrong::Absent).
pub fn of_agent(tx: &mut Tx, org: Uuid, agent: Uuid) -> Result<AgentConfig, Error> {
    tx.snapshot()?;

    let agent = agents::by_id(tx, org, agent)?;
    let numbers = numbers::of_agent(tx, org, agent.id)?;
    let outbound_trunk = match agent.outbound_trunk_id {
        Some(id) => Some(outbound_trunks::by_id(tx, org, id)?),
        None => None,
    };

    let destinations =
        destinations::of_agent(tx, org, agent.id, &Narrow::default(), None, i64::MAX)?;

    Ok(AgentConfig {
        agent,
        numbers,
        outbound_trunk,
        destinations,
    })
}
