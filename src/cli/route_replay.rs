//! `trunkline route-replay`: routes the calls of a period again, by today's directory or a changed one. Changes
//! nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;
use trunkline_store::explained;

use serde_json::Value;
use trunkline_routing::Outcome;
use trunkline_sip::moment::Moment;

use super::org::OfOrg;
use super::output::{Output, Tabular};
use super::{Failure, now, startup};
use crate::api::{self, change_of};
use crate::config::Config;
use crate::explain::change::Change;
use crate::explain::replay::{CALLS, MOST_CALLS, MOST_DAYS, MovedView, ReplayView, replay};

/// Maximum size of a change file.
const MAX_OCTETS: u64 = 1 << 20;

/// Reports which calls of a period would be routed differently, by today's directory or by a changed one.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline route-replay --org Acme --from 2026-10-01 --until 2026-11-01\n  trunkline route-replay --org Acme --change change.json --json\n\nchange.json holds what would be different:\n  {\"agents\": [{\"id\": \"…\", \"enabled\": false}], \"numbers\": [{\"phone_number\": \"+442071838750\", \"agent_id\": \"…\"}],\n   \"trunk\": {\"default_country\": \"GB\"}}"
)]
pub(super) struct Command {
    #[command(flatten)]
    org: OfOrg,
    /// The earliest start of a call; without it, a day before the latest.
    #[arg(long, value_name = "TIME", value_parser = api::start_of)]
    from: Option<Moment>,
    /// The latest start of a call; without it, now.
    #[arg(long, value_name = "TIME", value_parser = api::end_of)]
    until: Option<Moment>,
    /// Maximum number of calls to route, newest first.
    #[arg(long, value_name = "CALLS", default_value_t = CALLS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CALLS)))]
    limit: u32,
    /// Changes to today's directory, as a JSON file; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    change: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Tabular for MovedView {
    const COLUMNS: &'static [&'static str] = &["call", "started", "from", "to", "before", "after"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.call_id.to_string(),
            self.started_at.clone(),
            self.from_number.clone(),
            self.to_number.clone(),
            place(self.before),
            place(self.after),
        ]
    }
}

fn place(outcome: Outcome) -> String {
    match outcome {
        Outcome::Agent { id, .. } => id.to_string(),
        Outcome::AgentBusy { id } => format!("refused, {id} is at its limit"),
        Outcome::NoAgent => "refused, no agent".to_owned(),
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let until = self.until.unwrap_or_else(now);
        let from = self
            .from
            .unwrap_or_else(|| until - Duration::from_secs(24 * 3_600));
        if from > until || until.since(from) > Duration::from_secs(MOST_DAYS * 24 * 3_600) {
            let fault = format!("--from must lie before --until, by {MOST_DAYS} days at most");
            return Err(Failure::Command(fault));
        }

        let change = self.change.as_deref().map(read).transpose()?;
        let store = startup::open_store(config).await?;
        let id = self.org.id(&store).await?;
        let directory = startup::open_directory(config, &store).await?;
        let view = directory.load();
        let org = view
            .org(id)
            .ok_or_else(|| Failure::Command("the org was deleted just now".to_owned()))?;

        let changed = change.unwrap_or_default().apply(&org.routing);
        let changed = changed.map_err(|faults| Failure::Command(faults.join("; ")))?;
        let most = self.limit + 1;
        let calls = store
            .read(move |tx| explained::recorded(tx, id, (from, until), None, most))
            .await?;
        let replayed = replay(calls, self.limit, (from, until), &changed);
        show(self.output, &replayed);

        Ok(())
    }
}

fn show(output: Output, replayed: &ReplayView) {
    if output.is_json() {
        return super::output::print(&super::output::json(replayed));
    }
    let (elsewhere, calls) = (replayed.elsewhere, replayed.calls);
    let which = if replayed.complete { "" } else { "newest " };
    super::output::print(&format!(
        "{elsewhere} of the {calls} {which}calls of the period would be routed differently."
    ));
    if !replayed.items.is_empty() {
        output.list(&replayed.items);
    }
}

fn read(path: &Path) -> Result<Change, Failure> {
    use std::io::Read as _;
    let wrong =
        |what: &dyn std::fmt::Display| Failure::Command(format!("{}: {what}", path.display()));
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(MAX_OCTETS).read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path).map_err(|error| wrong(&error))?;
        file.take(MAX_OCTETS).read_to_string(&mut text)
    };
    read.map_err(|error| wrong(&error))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    change_of(value).map_err(|faults| wrong(&faults.join("; ")))
}
