//! `trunkline route-test`: tells which agent would take a call and why, by the function that decides live calls. Places
//! no call.

use trunkline_routing::{Decision, Facts, decide};
use uuid::Uuid;

use super::org::OfOrg;
use super::output::{Output, Tabular};
use super::{Failure, startup};
use crate::api;
use crate::config::Config;
use crate::explain::DecisionView;

/// Reports which agent would take a call, and why.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline route-test --org Acme --to +442071838750\n  trunkline route-test --org Acme --to 02071838750 --from +441632960001 --json\n  trunkline route-test --org Acme --to +442071838750 --busy 0198c0de-0000-7000-8000-000000000001"
)]
pub(super) struct Command {
    #[command(flatten)]
    org: OfOrg,
    /// The dialled number, as the PBX would send it.
    #[arg(long, value_name = "NUMBER")]
    to: String,
    /// The caller's number, as the PBX would send it.
    #[arg(long, value_name = "NUMBER")]
    from: Option<String>,
    /// The value of the header that selects an agent.
    #[arg(long, value_name = "ID")]
    agent_id: Option<String>,
    /// Treat this agent as busy; may be given more than once.
    #[arg(long, value_name = "ID", value_parser = api::id_of)]
    busy: Vec<Uuid>,
    #[command(flatten)]
    output: Output,
}

impl Tabular for DecisionView {
    const COLUMNS: &'static [&'static str] = &["dialled", "caller", "decision"];

    fn cells(&self) -> Vec<String> {
        let number = |raw: &str, e164: Option<&str>| match e164 {
            Some(e164) if e164 != raw => format!("{raw} ({e164})"),
            Some(_) | None => raw.to_owned(),
        };
        let Decision {
            dialled, caller, ..
        } = &self.decision;

        vec![
            number(
                &dialled.raw,
                dialled.e164.as_ref().map(|number| number.as_str()),
            ),
            number(
                &caller.raw,
                caller.e164.as_ref().map(|number| number.as_str()),
            ),
            self.explanation.join(" "),
        ]
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let store = startup::open_store(config).await?;
        let id = self.org.id(&store).await?;
        let directory = startup::open_directory(config, &store).await?;
        let view = directory.load();
        let org = view
            .org(id)
            .ok_or_else(|| Failure::Command("the org was deleted just now".to_owned()))?;
        let facts = Facts {
            agent_header: self.agent_id,
            request_user: Some(self.to),
            from_user: self.from,
            ..Facts::default()
        };

        let decision = decide(&facts, &org.routing, &|agent| self.busy.contains(&agent));
        self.output.one(&DecisionView::from(decision));
        Ok(())
    }
}
