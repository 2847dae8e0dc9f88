//! `trunkline number`: adds and assigns phone numbers, which takes more than one request each.

use axum::http::Method;
use serde_json::{Value, json};
use trunkline_routing::E164;

use super::names::{self, List};
use super::output::{Output, print};
use super::resource::show;
use super::session::{Intent, Session};
use super::target::Target;
use super::{Failure, e164};
use crate::config::Config;

/// Phone numbers of an org.
///
/// Only verified numbers are routed. The operator verifies one here. An org verifies its own by a code that a call to
/// the number speaks (call-code, confirm-code), where the configuration has phone.verification_trunk.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Adds a number to an org.
    #[command(
        visible_alias = "create",
        after_help = "Examples:\n  trunkline number add +442071838750 --verified\n  trunkline number add +442071838750 --org Acme --json"
    )]
    Add {
        /// The number as E.164: + and 7 to 15 digits.
        #[arg(value_parser = e164)]
        number: E164,
        /// Mark the number as verified, which only the operator may.
        #[arg(long)]
        verified: bool,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        output: Output,
    },
    /// Assigns a verified number to an agent, in addition to those that it has.
    #[command(after_help = "Example:\n  trunkline number assign +442071838750 --agent Sales")]
    Assign {
        /// The number, or its id.
        number: String,
        /// The agent's id or name.
        #[arg(long)]
        agent: String,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        output: Output,
    },
    /// Takes a number from its agent.
    Unassign {
        /// The number, or its id.
        number: String,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        output: Output,
    },
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let (Self::Add { target, output, .. }
        | Self::Assign { target, output, .. }
        | Self::Unassign { target, output, .. }) = &self;
        let output = *output;
        let session = target.open(config, Intent::Reads).await?;
        let done = self.perform(&session).await;
        session.close().await;

        let number = done?;
        match output.is_json() {
            true => print(&number.to_string()),
            false => show::object(&number),
        }
        Ok(())
    }

    async fn perform(&self, session: &Session) -> Result<Value, Failure> {
        match self {
            Self::Add {
                number, verified, ..
            } => add(session, number, *verified).await,

            Self::Assign { number, agent, .. } => {
                let number = find(session, number).await?;
                let agents = List::new("/phone", "agent");
                let agent = names::find(session, &agents, agent).await?;
                let path = format!("/phone/sip/agents/{agent}/inbound-numbers");
                let body = json!({"phone_number_id": number["id"]});
                session.answer(&Method::POST, &path, Some(&body)).await?;
                shown(session, &number).await
            }

            Self::Unassign { number, .. } => {
                let number = find(session, number).await?;
                if let (Some(agent), Some(id)) =
                    (number["agent_id"].as_str(), number["id"].as_str())
                {
                    let path = format!("/phone/sip/agents/{agent}/inbound-numbers/{id}");
                    session.answer(&Method::DELETE, &path, None).await?;
                }
                shown(session, &number).await
            }
        }
    }
}

async fn add(session: &Session, number: &E164, is_verified: bool) -> Result<Value, Failure> {
    let org = session.operators_org();
    if is_verified && org.is_none() {
        return Err(Failure::Startup(
            "--verified: only the operator, on the daemon's machine, verifies a number without a call"
                .to_owned(),
        ));
    }

    let body = json!({"phone_number": number});
    let added = session
        .answer(&Method::POST, "/phone/numbers", Some(&body))
        .await?;
    match org.filter(|_| is_verified) {
        None => Ok(added),
        // If this second request fails, the number exists unverified: trunkline number verify completes it.
        Some(org) => {
            let id = added["id"].as_str().unwrap_or_default();
            let path = format!("/operator/orgs/{org}/phone-numbers/{id}/verify");
            session.answer(&Method::POST, &path, None).await
        }
    }
}

async fn find(session: &Session, named: &str) -> Result<Value, Failure> {
    let numbers = List::new("/phone/numbers", "number");
    let id = names::find(session, &numbers, named).await?;
    session.json(&format!("/phone/numbers/{id}")).await
}

async fn shown(session: &Session, number: &Value) -> Result<Value, Failure> {
    let id = number["id"].as_str().unwrap_or_default();
    session.json(&format!("/phone/numbers/{id}")).await
}
