//! `trunkline trunk`: settings for a phone system, and what the last test call found. The trunk itself is made by
//! `resource`.

use std::path::PathBuf;

use serde_json::Value;

use super::Failure;
use super::output::{Output, print};
use super::paste::{PastedTrunk, Program};
use super::serve::PublicAddresses;
use super::session::{Intent, Session};
use super::target::Target;
use crate::config::Config;
use crate::explain::finding;
use crate::explain::pbx_settings::Trunk as PbxTrunk;
use crate::telemetry::redact;

/// The org's inbound trunk, which its PBX calls through.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Prints what to paste into a phone system or a test program, with the trunk's own values, and the address of the
    /// daemon that answers, or else of the configuration.
    #[command(
        after_help = "Examples:\n  trunkline trunk paste asterisk\n  trunkline trunk paste sipp --org Acme | sh"
    )]
    Paste {
        /// The phone system or program.
        program: Program,
        #[command(flatten)]
        target: Target,
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
            Self::Paste { program, target } => {
                let session = target.open(config, Intent::Reads).await?;
                let pasted = paste(config, &session, program).await;
                session.close().await;
                pasted
            }
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

/// Prints settings.
async fn paste(config: &Config, session: &Session, program: Program) -> Result<(), Failure> {
    let trunk = session.json("/phone/sip/inbound-trunk").await?;
    let of = |name: &str| trunk[name].as_str();
    let password = of("auth_password").ok_or_else(|| {
        Failure::Command("the trunk's password is shown only to keys with phone:write".to_owned())
    })?;
    let is_local = session.is_operators();
    let sip = match is_local {
        // The daemon may have been started with other settings than this command.
        true => match session.sip_address().await? {
            Some(running) => running,
            None => PublicAddresses::configured(config).first_sip(),
        },
        false => of("sip_endpoint").unwrap_or_default().to_owned(),
    };

    let pasted = PastedTrunk {
        trunk: PbxTrunk {
            endpoint: &sip,
            username: of("auth_username").unwrap_or_default(),
            password,
            realm: of("auth_realm").unwrap_or_default(),
        },
        number: trunk["phone_numbers"][0].as_str().unwrap_or("NUMBER"),
    };
    let folder = match is_local {
        true => config.data_dir.clone(),
        false => own_folder()?,
    };
    print(&program.lines(pasted, &folder)?);
    Ok(())
}

/// Returns the user's folder for files of the command line.
///
/// # Errors
/// The environment names none.
fn own_folder() -> Result<PathBuf, Failure> {
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            // XDG Base Directory Specification: a relative path is invalid and must be ignored.
            .filter(|path| path.is_absolute())
    };
    let base = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    base.map(|base| base.join("trunkline")).ok_or_else(|| {
        Failure::Startup(
            "neither XDG_CONFIG_HOME nor HOME is set: there is no place for files".to_owned(),
        )
    })
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
        finding::line(&of(one, "level"), &check, &found, one["fix"].as_str())
    }));
    if let Some(settings) = report["settings"].as_str() {
        lines.push(format!("\n{settings}"));
    }
    lines.join("\n")
}
