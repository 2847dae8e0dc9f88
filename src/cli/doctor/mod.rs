//! `trunkline doctor`: checks a deployment from outside and inside, and says what to fix. Changes nothing.
//!
//! Each check is a file: `listen` the daemon and its ports, `names` and `media` the advertised addresses,
//! `certificates` TLS, `addresses` peers that the address policy refuses, `reach` runtimes and carriers, `challenges`
//! peers whose challenges could not be answered, `orgs` the database, its tenants, and how their PBXs speak SIP.

mod addresses;
mod certificates;
mod challenges;
mod deployment;
mod listen;
mod media;
mod names;
mod orgs;
mod ping;
mod reach;

use serde::Serialize;
use trunkline_store::{Outset, Store};

use super::output::{Output, json, print};
use super::{Failure, now, startup};
use crate::config::Config;
use crate::engine::Resolver;
use crate::explain::finding::{Finding, Level};
use crate::telemetry::redact;
use deployment::Deployment;

/// Checks a deployment, and says how to fix what it finds.
///
/// Exit code 0: no problem; 1: problems found; 2: it can't run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline doctor\n  trunkline --config /etc/trunkline.toml doctor --json"
)]
pub(super) struct Command {
    /// Show problems only.
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Report<'f> {
    problems: usize,
    findings: Vec<&'f Finding>,
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let findings = examine(config).await;
        let problems = findings
            .iter()
            .filter(|finding| finding.level == Level::Problem)
            .count();
        let shown = |finding: &&Finding| !self.quiet || finding.level == Level::Problem;

        let findings: Vec<&Finding> = findings.iter().filter(shown).collect();
        if self.output.is_json() {
            print(&json(&Report { problems, findings }));
        } else {
            let lines = findings.iter().map(|finding| finding.to_string());
            let lines: Vec<String> = lines
                .flat_map(|lines| lines.lines().map(str::to_owned).collect::<Vec<_>>())
                .map(|line| redact::escape(&line).into_owned())
                .collect();
            if !lines.is_empty() {
                print(&lines.join("\n"));
            }
        }

        match problems {
            0 => Ok(()),
            1 => Err(Failure::Command("1 problem found".to_owned())),
            many => Err(Failure::Command(format!("{many} problems found"))),
        }
    }
}

async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = listen::examine(config).await;
    let mut deployment = Deployment {
        config,
        resolver: Resolver::new(&config.sip.nameservers),
        calls: Vec::new(),
    };

    match open(config).await {
        Ok(store) => match orgs::CheckedOrgs::read(&store, now()).await {
            Ok(orgs) => {
                deployment.calls = orgs.calls();
                findings.extend(
                    orgs.examine(&store, &crate::engine::configured_policy(config), now())
                        .await,
                );
                findings.extend(challenges::examine(&store, &orgs, now()).await);
                findings.extend(addresses::examine(&deployment, &orgs).await);
                findings.extend(reach::examine(&deployment, &orgs).await);
            }
            Err(error) => findings.push(Finding::problem(
                "database",
                format!("The database can't be read: {error}."),
                "Look at whether it runs, and at database.url.",
            )),
        },
        Err(finding) => findings.push(finding),
    }

    findings.extend(names::examine(&deployment).await);
    findings.extend(media::examine(&deployment).await);
    findings.extend(certificates::examine(config, now()));
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));

    findings
}

/// Opens the database if it exists and is of this version. A check must neither create nor migrate one.
async fn open(config: &Config) -> Result<Store, Finding> {
    const CHECK: &str = "database";
    let unopened = |fault: String| Finding::problem(CHECK, "The database can't be opened.", fault);
    let found = Store::look(&startup::options(config)).await;
    match found.map_err(|fault| unopened(fault.to_string()))? {
        Outset::Current => {
            let opened = startup::open_store(config).await;
            opened.map_err(|failure| unopened(failure.to_string()))
        }
        Outset::Nothing => Err(Finding::note(
            CHECK,
            "There is no database yet; trunkline quickstart or trunkline serve makes one.",
        )),
        Outset::Older { found, known } => Err(Finding::problem(
            CHECK,
            format!("The database is of an older version ({found}, this program's is {known})."),
            "Make a backup, then start the daemon of this version: it brings the database up to date.",
        )),
    }
}
