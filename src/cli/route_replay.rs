//! `trunkline route replay`: routes the calls of a period again, by today's directory or a changed one. Changes
//! nothing.

use std::path::{Path, PathBuf};

use axum::http::Method;
use serde::Serialize;
use serde_json::{Value, json};

use super::Failure;
use super::output::{Output, Tabular};
use super::session::Intent;
use super::target::Target;
use crate::config::Config;
use crate::explain::replay::{CALLS, MOST_CALLS};

/// Maximum size of a change file.
const MAX_OCTETS: u64 = 1 << 20;

/// Reports which calls of a period would be routed differently, by today's directory or by a changed one.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  trunkline route replay --org Acme --from 2026-10-01 --until 2026-11-01\n  trunkline route replay --org Acme --change change.json --json\n\nchange.json holds what would be different:\n  {\"agents\": [{\"id\": \"…\", \"enabled\": false}], \"numbers\": [{\"phone_number\": \"+442071838750\", \"agent_id\": \"…\"}],\n   \"trunk\": {\"default_country\": \"GB\"}}"
)]
pub(super) struct Command {
    /// The earliest start of a call; without it, a day before the latest.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// The latest start of a call; without it, now.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Maximum number of calls to route, newest first.
    #[arg(long, value_name = "CALLS", default_value_t = CALLS, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_CALLS)))]
    limit: u32,
    /// Changes to today's directory, as a JSON file; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    change: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    output: Output,
}

/// A call that would be routed differently, as the API shows it.
#[derive(Serialize)]
#[serde(transparent)]
struct ReroutedCall(Value);

impl Tabular for ReroutedCall {
    const COLUMNS: &'static [&'static str] = &["call", "started", "from", "to", "before", "after"];

    fn cells(&self) -> Vec<String> {
        let Self(moved) = self;
        let text = |name: &str| moved[name].as_str().unwrap_or_default().to_owned();
        vec![
            text("call_id"),
            text("started_at"),
            text("from_number"),
            text("to_number"),
            place(&moved["before"]),
            place(&moved["after"]),
        ]
    }
}

fn place(outcome: &Value) -> String {
    let id = |of: &Value| of["id"].as_str().unwrap_or_default().to_owned();
    match (outcome.get("agent"), outcome.get("agent_busy")) {
        (Some(agent), _) => id(agent),
        (None, Some(busy)) => format!("refused, {} is at its limit", id(busy)),
        (None, None) => "refused, no agent".to_owned(),
    }
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let body = self.body()?;
        let session = self.target.open(config, Intent::Reads).await?;
        let replayed = session
            .answer(&Method::POST, "/phone/sip/route-replay", Some(&body))
            .await;
        session.close().await;
        show(self.output, &replayed?);
        Ok(())
    }

    fn body(&self) -> Result<Value, Failure> {
        let mut body = json!({"limit": self.limit});
        let period = [("start_date", &self.from), ("end_date", &self.until)];
        for (name, time) in period {
            if let Some(time) = time {
                body[name] = json!(time);
            }
        }
        if let Some(path) = &self.change {
            body["changes"] = read(path)?;
        }
        Ok(body)
    }
}

fn show(output: Output, replayed: &Value) {
    if output.is_json() {
        return super::output::print(&super::output::json(replayed));
    }

    let which = if replayed["complete"] == true {
        ""
    } else {
        "newest "
    };

    super::output::print(&format!(
        "{} of the {} {which}calls of the period would be routed differently.",
        replayed["elsewhere"], replayed["calls"]
    ));
    let items = replayed["items"].as_array().into_iter().flatten();
    let items: Vec<ReroutedCall> = items.cloned().map(ReroutedCall).collect();

    if !items.is_empty() {
        output.list(&items);
    }
}

fn read(path: &Path) -> Result<Value, Failure> {
    use std::io::Read as _;
    let wrong =
        |what: &dyn std::fmt::Display| Failure::Command(format!("{}: {what}", path.display()));

    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin()
            .take(MAX_OCTETS + 1)
            .read_to_string(&mut text)
    } else {
        let file = std::fs::File::open(path).map_err(|error| wrong(&error))?;
        file.take(MAX_OCTETS + 1).read_to_string(&mut text)
    };

    if read.map_err(|error| wrong(&error))? as u64 > MAX_OCTETS {
        return Err(wrong(&format!("more than {MAX_OCTETS} octets")));
    }
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}
