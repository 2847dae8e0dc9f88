//! Roles of the peers in a call.

/// Role of a leg's peer in the call.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum LegRole {
    /// The phone system or carrier: the caller, or the callee of an outbound call.
    Trunk,
    /// The agent: its runtime, a bot, or the built-in agent.
    Agent,
    /// The destination of a transfer, connected with the caller instead of the agent.
    Destination,
}
