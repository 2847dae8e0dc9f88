//! `trunkline console`: a link that logs the operator into the dashboard of an org, once.

use axum::http::Method;
use serde_json::{Value, json};
use trunkline_store::OPERATOR_EMAIL;

use super::Failure;
use super::output::{Output, print};
use super::session::Intent;
use super::target::Target;
use crate::config::Config;

/// Prints a link that logs you into the org's dashboard, once and within 15 minutes.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline console\n  trunkline console --operator\n  xdg-open \"$(trunkline console --org Acme)\""
)]
pub(super) struct Command {
    /// Logs you in to the operator's pages, which show the whole installation; once, and within 5 minutes.
    #[arg(long, conflicts_with = "email")]
    operator: bool,
    /// Account that is logged in; created if it doesn't exist.
    #[arg(long, default_value = OPERATOR_EMAIL)]
    email: String,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    output: Output,
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        if self.operator {
            return self.operators(config).await;
        }

        let session = self.target.open(config, Intent::Reads).await?;
        let org = session.chosen_org()?;
        let path = format!("/operator/orgs/{org}/login-links");
        let body = json!({"email": self.email, "name": "Operator"});
        let link = session.answer(&Method::POST, &path, Some(&body)).await;
        session.close().await;

        self.shown(&link?);
        Ok(())
    }

    /// Prints a link to the operator's pages, which the running daemon alone can make.
    async fn operators(self, config: &Config) -> Result<(), Failure> {
        let session = self.target.open_without_org(config, Intent::Reads).await?;
        session.must_be_operators()?;
        if !session.is_running_daemon() {
            session.close().await;
            return Err(Failure::Startup(
                "the daemon has to run: start it with trunkline serve, then run this on its machine as its user or as root"
                    .to_owned(),
            ));
        }

        let path = "/operator/console-links";
        let link = session.answer(&Method::POST, path, None).await;
        session.close().await;
        self.shown(&link?);
        Ok(())
    }

    fn shown(&self, link: &Value) {
        match self.output.is_json() {
            true => print(&link.to_string()),
            false => print(link["url"].as_str().unwrap_or_default()),
        }
    }
}
