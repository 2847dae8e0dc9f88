//! `trunkline route`: reports which agent would take a call, and which calls of a period would be routed to another agent.

use super::{Failure, route_replay, route_test};
use crate::config::Config;

/// Routing of inbound calls, tried without a call.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    Test(route_test::Command),
    Replay(route_replay::Command),
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::Test(command) => command.run(config).await,
            Self::Replay(command) => command.run(config).await,
        }
    }
}
