//! `trunkline trunk`: settings for a phone system, and what the last test call found. The trunk itself is made by
//! `resource`.

use serde_json::Value;
use trunkline_routing::E164;
use trunkline_store::inbound_trunks;

use super::org::OfOrg;
use super::output::{Output, print};
use super::paste::{PastedTrunk, Program};
use super::serve::PublicAddresses;
use super::session::{Intent, running_sip};
use super::target::Target;
use super::{Failure, startup};
use crate::config::Config;
use crate::explain::finding;
use crate::explain::pbx_settings::Trunk as PbxTrunk;
use crate::telemetry::redact;

/// The org's inbound trunk, which its PBX calls through.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Prints what to paste into a phone system or a test program, with the trunk's own values, and the address of the
    /// daemon that runs, or else of the configuration.
    #[command(
        after_help = "Examples:\n  trunkline trunk paste asterisk\n  trunkline trunk paste sipp --org Acme | sh"
    )]
    Paste {
        /// The phone system or program.
        program: Program,
        #[command(flatten)]
        org: OfOrg,
    },
    /// Shows what the last call to sip:doctor@ found, and what to set in that phone system.
    Doctor {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        output: Output,
    },
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        match self {
            Self::Paste { program, org } => paste(config, program, &org).await,
            Self::Doctor { target, output } => {
                let session = target.open(config, Intent::Reads).await?;
                let report = session.json("/phone/sip/inbound-trunk/doctor").await;
                session.close().await;
                let report = report?;
                print(&match output.is_json() {
                    true => report.to_string(),
                    false => text(&report),
                });
                Ok(())
            }
        }
    }
}

/// Prints settings. They need the realm of this installation, which the API doesn't show.
async fn paste(config: &Config, program: Program, org: &OfOrg) -> Result<(), Failure> {
    let store = startup::open_store(config).await?;
    let realm = startup::with_known_realm(config, &store).await?.sip.realm();
    let org = org.id(&store).await?;
    let trunk = store
        .read(move |tx| inbound_trunks::of_org(tx, org))
        .await?;
    let number = trunk.numbers.first().map_or("NUMBER", E164::as_str);
    let sip = match running_sip(config).await {
        Some(sip) => sip,
        None => PublicAddresses::configured(config).first_sip(),
    };
    let pasted = PastedTrunk {
        trunk: PbxTrunk {
            endpoint: &sip,
            username: &trunk.username,
            password: trunk.password.reveal(),
            realm: &realm,
        },
        number,
    };

    print(&program.lines(pasted, config)?);
    Ok(())
}

/// Lines of a report for people.
fn text(report: &Value) -> String {
    let of = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    match (report["call_id"].as_str(), report["user_agent"].as_str()) {
        (None, _) => lines.push(of(report, "how")),
        (Some(_), Some(user_agent)) => {
            let pbx = report["pbx"].as_str();
            let pbx = pbx.unwrap_or("no phone system that is known");
            lines.push(format!("{} ({pbx})", redact::escape(user_agent)));
        }
        (Some(_), None) => {}
    }

    let findings = report["findings"].as_array().map_or(&[][..], Vec::as_slice);
    lines.extend(findings.iter().map(|one| {
        let (check, found) = (of(one, "check"), of(one, "text"));
        finding::line(&of(one, "level"), &check, &found, one["mend"].as_str())
    }));
    if let Some(settings) = report["settings"].as_str() {
        lines.push(format!("\n{settings}"));
    }
    lines.join("\n")
}
