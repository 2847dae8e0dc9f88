//! `trunkline audit`: the newest entries of the audit log.

use super::Failure;
use super::names::{self, List};
use super::output::{self, Output, print};
use super::resource::show;
use super::session::Intent;
use super::target::Target;
use crate::config::Config;

/// Columns of the table.
const COLUMNS: [&str; 9] = [
    "at",
    "actor",
    "actor_name",
    "address",
    "action",
    "resource",
    "resource_name",
    "resource_id",
    "fields",
];

/// Shows who changed what, newest first: in one org, or without --org in all.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trunkline audit --org Acme --limit 20")]
pub(super) struct Command {
    /// Maximum number of entries.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    output: Output,
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let session = match self.target.org() {
            Some(_) => self.target.open(config, Intent::Reads).await?,
            None => self.target.open_without_org(config, Intent::Reads).await?,
        };
        let path = match session.reaches_all() && session.operators_org().is_none() {
            true => "/operator/audit",
            false => "/phone/audit",
        };
        let list = List::new(path, "entry");
        let entries = names::read(&session, &list, &[], self.limit as usize).await;
        session.close().await;

        let entries = entries?;
        match self.output.is_json() {
            true => print(&output::json(&entries)),
            false => show::list(&entries, &COLUMNS),
        }
        Ok(())
    }
}
