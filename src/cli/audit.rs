//! `trunkline audit`: the newest entries of the audit log.

use trunkline_store::{AuditFilter, AuditOf, audit};

use super::output::{Output, Tabular, or_dash};
use super::{Failure, org, startup};
use crate::api::AuditView;
use crate::config::Config;

/// Shows who changed what, newest first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  trunkline audit --org Acme --limit 20")]
pub(super) struct Command {
    /// Only changes to this org, given by id or name.
    #[arg(long)]
    org: Option<String>,
    /// Maximum number of entries.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    output: Output,
}

impl Tabular for AuditView {
    const COLUMNS: &'static [&'static str] = &[
        "at", "actor", "name", "address", "action", "resource", "id", "fields",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.at.clone(),
            self.actor.clone(),
            self.actor_name.clone(),
            or_dash(self.address.as_deref()),
            self.action.clone(),
            self.resource.clone(),
            or_dash(self.resource_id),
            self.fields.join(" "),
        ]
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;
        let of = match &self.org {
            Some(org) => AuditOf::Org(org::find(&store, org).await?.id),
            None => AuditOf::All,
        };
        let filter = AuditFilter::default();
        let limit = self.limit;
        let entries = store
            .read(move |tx| audit::before(tx, of, &filter, i64::MAX, limit))
            .await?;
        let entries: Vec<_> = entries.into_iter().map(AuditView::from).collect();
        self.output.list(&entries);
        Ok(())
    }
}
