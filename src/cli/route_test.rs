//! `trunkline route test`: reports which agent would take a call and why, by the function that decides live calls. Places
//! no call.

use axum::http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use super::Failure;
use super::names::{self, List};
use super::output::{Output, Tabular};
use super::session::{Intent, Session};
use super::target::Target;
use crate::config::Config;

/// Reports which agent would take a call, and why.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline route test --to +442071838750\n  trunkline route test --org Acme --to 02071838750 --from +441632960001 --json\n  trunkline route test --org Acme --to +442071838750 --busy Sales"
)]
pub(super) struct Command {
    /// The dialled number, as the PBX would send it.
    #[arg(long, value_name = "NUMBER")]
    to: String,
    /// The caller's number, as the PBX would send it.
    #[arg(long, value_name = "NUMBER")]
    from: Option<String>,
    /// The value of the header that selects an agent.
    #[arg(long, value_name = "ID")]
    agent_id: Option<String>,
    /// Treat this agent, named by its id or name, as busy; may be given more than once.
    #[arg(long, value_name = "AGENT")]
    busy: Vec<String>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    output: Output,
}

/// A decision, as the API shows it.
#[derive(Serialize)]
#[serde(transparent)]
struct Decision(Value);

impl Tabular for Decision {
    const COLUMNS: &'static [&'static str] = &["dialled", "caller", "decision"];

    fn cells(&self) -> Vec<String> {
        let Self(decision) = self;
        let sentences = decision["explanation"].as_array().into_iter().flatten();
        let sentences: Vec<&str> = sentences.filter_map(Value::as_str).collect();
        vec![
            number(&decision["dialled"]),
            number(&decision["caller"]),
            sentences.join(" "),
        ]
    }
}

/// Number as it was sent, and as E.164 where that differs.
fn number(of: &Value) -> String {
    let raw = of["raw"].as_str().unwrap_or_default();
    match of["e164"].as_str() {
        Some(e164) if e164 != raw => format!("{raw} ({e164})"),
        Some(_) | None => raw.to_owned(),
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let session = self.target.open(config, Intent::Reads).await?;
        let decision = self.decide(&session).await;
        session.close().await;
        self.output.one(&Decision(decision?));
        Ok(())
    }

    async fn decide(&self, session: &Session) -> Result<Value, Failure> {
        let agents = List::new("/phone", "agent");
        let mut busy = Vec::with_capacity(self.busy.len());
        for agent in &self.busy {
            busy.push(names::find(session, &agents, agent).await?);
        }

        let mut body = json!({"to": self.to, "busy": busy});
        let optional = [("from", &self.from), ("agent_id", &self.agent_id)];
        for (name, value) in optional {
            if let Some(value) = value {
                body[name] = json!(value);
            }
        }
        session
            .answer(&Method::POST, "/phone/sip/route-test", Some(&body))
            .await
    }
}
