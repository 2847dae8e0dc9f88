//! `trunkline doctor`: checks a deployment from outside and inside, and says what to fix. Changes nothing.
//!
//! Each check is a file: `listen` the daemon and its ports, `names` and `media` the advertised addresses,
//! `addresses` peers that the address policy refuses, `reach` runtimes and carriers, `failed_calls`
//! calls that runtimes didn't take, `withheld_audio` calls whose agent wasn't heard at first, `challenges` peers whose challenges could not be answered, `orgs` the database, its tenants, and how their PBXs speak SIP.

mod addresses;
mod challenges;
mod deployment;
mod failed_calls;
mod listen;
mod media;
mod names;
mod orgs;
mod ping;
mod reach;
mod withheld_audio;

use std::cmp::Reverse;

use serde::Serialize;
use trunkline_store::{DatabaseAtStartup, Store};

use super::output::{Output, json, print};
use super::{Failure, now, open_settings, startup};
use crate::config::Config;
use crate::engine::{ReservedNames, Resolver, configured_policy};
use crate::explain::certificates;
use crate::explain::finding::{Finding, Level};
use crate::telemetry::redact;
use deployment::{Deployment, OwnAddresses, RUNTIME};

/// Checks a deployment, and says how to fix what it finds, the worst first.
///
/// Exit code 0: no error and no warning; 1: there are some; 2: the checks could not run.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline doctor\n  trunkline --config /etc/trunkline.toml doctor --json"
)]
pub(super) struct Command {
    /// Show errors and warnings only.
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Serialize)]
struct Report<'f> {
    /// Errors and warnings.
    problems: usize,
    errors: usize,
    warnings: usize,
    findings: Vec<&'f Finding>,
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let findings = examine(config).await;
        let count = |level: Level| {
            let of_level = findings.iter().filter(|finding| finding.level == level);
            of_level.count()
        };
        let (errors, warnings) = (count(Level::Error), count(Level::Warning));
        let problems = errors + warnings;
        let shown = |finding: &&Finding| !self.quiet || finding.is_problem();

        let findings: Vec<&Finding> = findings.iter().filter(shown).collect();
        if self.output.is_json() {
            print(&json(&Report {
                problems,
                errors,
                warnings,
                findings,
            }));
        } else {
            let lines = findings.iter().map(|finding| finding.to_string());
            let lines: Vec<String> = lines
                .flat_map(|lines| lines.lines().map(str::to_owned).collect::<Vec<_>>())
                // Findings quote names of tenants and headers of peers, which may hold control characters for the
                // terminal.
                .map(|line| redact::escape(&line).into_owned())
                .collect();
            if !lines.is_empty() {
                print(&lines.join("\n"));
            }
        }

        match problems {
            0 => Ok(()),
            _ => Err(Failure::Command(format!(
                "{} and {} found",
                counted(errors, "error"),
                counted(warnings, "warning")
            ))),
        }
    }
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// Orders findings: the worst first, and among equals those about runtimes, since without one no call is answered.
fn rank(finding: &Finding) -> impl Ord + use<> {
    (Reverse(finding.level), finding.check != RUNTIME)
}

async fn examine(config: &Config) -> Vec<Finding> {
    let mut findings = listen::examine(config).await;
    let mut deployment = Deployment {
        config,
        resolver: Resolver::new(&config.sip.nameservers),
        calls: Vec::new(),
        own: OwnAddresses::find(),
    };

    match open(config).await {
        Ok(store) => match orgs::CheckedOrgs::read(&store, now()).await {
            Ok(orgs) => {
                deployment.calls = orgs.calls();
                findings.extend(orgs.examine(&store, &deployment, now()).await);
                findings.extend(open_settings::examine(config, orgs.total()));
                findings.extend(failed_calls::examine(&store, &orgs).await);
                findings.extend(withheld_audio::examine(&store, &orgs).await);
                findings.extend(challenges::examine(&store, &orgs, now()).await);
                let reserved = ReservedNames::find(config, &deployment.resolver).await;
                let policy = configured_policy(config).reserving(reserved.peers());
                findings.extend(addresses::examine(&deployment, &orgs, &reserved, &policy).await);
                findings.extend(reach::examine(&store, &deployment, &orgs, &policy, now()).await);
            }
            Err(error) => findings.push(Finding::error(
                "database",
                format!("The database can't be read: {error}."),
                "Check that it runs and that database.url is right.",
            )),
        },
        Err(finding) => findings.push(finding),
    }

    findings.extend(names::examine(&deployment).await);
    findings.extend(media::examine(&deployment).await);
    let files = config.certificates();
    findings.extend(files.map(|(key, file, host)| certificates::examine(key, file, host, now())));
    findings.sort_by_key(rank);

    findings
}

/// Opens the database if it exists and is of this version. A check must neither create nor migrate one.
async fn open(config: &Config) -> Result<Store, Finding> {
    const CHECK: &str = "database";

    let unopened = |fault: String| Finding::error(CHECK, "The database can't be opened.", fault);
    // Opening would create a database, or bring it up to date, and the doctor changes nothing.
    let found = Store::look(&startup::options(config)).await;
    match found.map_err(|fault| unopened(fault.to_string()))? {
        DatabaseAtStartup::Current => {
            let opened = startup::open_store(config).await;
            opened.map_err(|failure| unopened(failure.to_string()))
        }
        DatabaseAtStartup::Absent => Err(Finding::hint(
            CHECK,
            "There is no database yet; trunkline quickstart or trunkline serve creates one.",
        )),
        DatabaseAtStartup::Older => Err(Finding::error(
            CHECK,
            "The database is from an older version of this program.",
            "Make a backup, then start the daemon of this version: it brings the database up to date.",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_runtimes_before_their_equals() {
        let mut findings = [
            Finding::ok("daemon", "a"),
            Finding::warning("dtmf", "b", ""),
            Finding::error("port", "c", ""),
            Finding::hint("trunk", "d"),
            Finding::warning(RUNTIME, "e", ""),
            Finding::error(RUNTIME, "f", ""),
            Finding::ok(RUNTIME, "g"),
        ];
        findings.sort_by_key(rank);
        let texts: Vec<&str> = findings.iter().map(|finding| &*finding.text).collect();
        assert_eq!(texts, ["f", "c", "e", "b", "d", "g", "a"]);
        assert_eq!(counted(1, "error"), "1 error");
    }
}
