//! `trunkline trace`: follows calls in the terminal, or one of them message by message.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use trunkline_sip::header::text::printable;
use uuid::Uuid;

use super::output::print;
use super::session::{Intent, Session, Target};
use super::{Failure, startup};
use crate::api;
use crate::config::Config;

/// Interval between requests to the API.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Calls shown per request.
const PAGE: u32 = 100;
/// Calls whose last state is remembered.
const MAX_REMEMBERED: usize = 10_000;

/// Follows calls: prints a line for each, and another when its state changes. With a call's id, prints the messages of
/// its legs with the decisions between them, until it ends.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  TRUNKLINE_API_KEY=… trunkline trace\n  trunkline trace --status refused --number +442071838750\n  trunkline trace 0198c0de-0000-7000-8000-000000000001 --messages\n  trunkline trace --once --json"
)]
pub(super) struct Command {
    /// Id of one call, to be followed until it ends.
    #[arg(value_name = "CALL_ID", value_parser = api::id_of)]
    call: Option<Uuid>,
    #[command(flatten)]
    target: Target,
    /// Only calls of this status.
    #[arg(long, conflicts_with = "call")]
    status: Option<String>,
    /// Only calls from or to this number.
    #[arg(long, conflicts_with = "call")]
    number: Option<String>,
    /// Only calls with this agent.
    #[arg(long, value_name = "ID", conflicts_with = "call", value_parser = api::id_of)]
    agent: Option<Uuid>,
    /// Only `inbound` or `outbound` calls.
    #[arg(long, conflicts_with = "call")]
    direction: Option<String>,
    /// Show whole messages instead of a line for each.
    #[arg(long, requires = "call")]
    messages: bool,
    /// Show the present state and end.
    #[arg(long)]
    once: bool,
    /// Print one JSON object per line.
    #[arg(long)]
    json: bool,
}

impl Command {
    pub(super) fn run(self, config: &Config) -> Result<(), Failure> {
        startup::block_on(async {
            let client = self.target.open(config, Intent::Reads).await?;
            match self.call {
                Some(call) => self.follow(&client, call).await,
                None => self.watch(&client).await,
            }
        })
    }

    /// Follows all calls.
    async fn watch(&self, client: &Session) -> Result<(), Failure> {
        let path = self.list()?;
        let mut known: HashMap<String, Value> = HashMap::new();
        loop {
            let shown = client.json(&path).await?;
            let items = shown["items"].as_array().map_or(&[][..], Vec::as_slice);
            if known.len() > MAX_REMEMBERED {
                known.clear();
            }

            // The API lists the newest first; a log prints it last.
            for call in items.iter().rev() {
                let state = state(call);
                if known.get(text(&call["id"])) == Some(&state) {
                    continue;
                }
                known.insert(text(&call["id"]).to_owned(), state);
                print(&if self.json {
                    call.to_string()
                } else {
                    line(call)
                });
            }

            if self.once {
                return Ok(());
            }

            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn list(&self) -> Result<String, Failure> {
        let agent = self.agent.map(|agent| agent.to_string());
        let filters = [
            ("status", &self.status),
            ("number", &self.number),
            ("agent_id", &agent),
            ("direction", &self.direction),
        ];
        let given: Vec<(&str, &String)> = filters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)))
            .collect();
        let query = serde_urlencoded::to_string(&given)
            .map_err(|fault| Failure::Startup(fault.to_string()))?;
        Ok(format!("/phone/calls?limit={PAGE}&{query}"))
    }

    /// Follows one call until it ends.
    async fn follow(&self, client: &Session, call: Uuid) -> Result<(), Failure> {
        let mut shown = 0;
        let mut began = None;
        loop {
            // Read the record before the messages: once it says that the call has ended, all messages exist.
            let record = client.json(&format!("/phone/calls/{call}")).await?;
            let trace = client.json(&format!("/phone/calls/{call}/trace")).await?;
            let items = trace["items"].as_array().map_or(&[][..], Vec::as_slice);
            for item in items.iter().skip(shown) {
                let began = began.get_or_insert_with(|| text(&item["at"]).to_owned());
                print(&self.item(item, began));
            }
            shown = shown.max(items.len());
            if self.once || !record["ended_at"].is_null() {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn item(&self, item: &Value, began: &str) -> String {
        if self.json {
            return item.to_string();
        }

        let at = text(&item["at"]);
        // Both times have the format `2026-11-21T16:00:00.000000Z`.
        let time = if at.get(..10) == began.get(..10) {
            at.get(11..).unwrap_or(at).trim_end_matches('Z')
        } else {
            at
        };

        if item["type"] == "decision" {
            return format!("{time}  * {}", printable(text(&item["text"])));
        }

        let (is_sent, leg) = (item["direction"] == "sent", text(&item["leg"]));
        let arrow = if is_sent { "-->" } else { "<--" };
        let summary = printable(text(&item["summary"]));
        let leg = format!("{leg} ");
        let head = format!("{time}  trunkline {arrow} {leg:<8}{summary}");
        if !self.messages {
            return head;
        }

        let message: Vec<String> = text(&item["text"])
            .lines()
            .map(|line| format!("    {}", printable(line)))
            .collect();

        format!(
            "{head}  {} {} -> {}\n{}\n",
            text(&item["transport"]),
            text(&item["source"]),
            text(&item["destination"]),
            message.join("\n")
        )
    }
}

/// Parts of a call whose change prints another line.
fn state(call: &Value) -> Value {
    Value::from(vec![
        call["status"].clone(),
        call["transfer"]["status"].clone(),
    ])
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn line(call: &Value) -> String {
    let latest = ["ended_at", "answered_at", "ringing_at", "started_at"]
        .into_iter()
        .find_map(|moment| call[moment].as_str())
        .unwrap_or_default();
    let mut line = format!(
        "{latest}  {}  {:<8}  {:<11}  {} -> {}",
        text(&call["id"]),
        text(&call["direction"]),
        text(&call["status"]),
        printable(text(&call["from_number"])),
        printable(text(&call["to_number"])),
    );

    if let Some(code) = call["sip_code"].as_u64() {
        line.push_str(&format!("  {code}"));
    }

    if let Some(reason) = call["reason"].as_str() {
        line.push_str(&format!("  {}", printable(reason)));
    }

    if let Some(state) = call["transfer"]["status"].as_str() {
        line.push_str(&format!("  transfer {state}"));
    }

    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_says_what_became_of_a_call() {
        let call = json!({
            "id": "1", "direction": "inbound", "status": "refused", "from_number": "+1\n2", "to_number": "+3", "sip_code": 480,
            "reason": "agent_busy", "started_at": "2026-11-21T16:00:00Z", "ended_at": "2026-11-21T16:00:01Z"
        });
        assert_eq!(
            line(&call),
            "2026-11-21T16:00:01Z  1  inbound   refused      +1\\n2 -> +3  480  agent_busy"
        );
        let mut later = call.clone();
        later["status"] = json!("completed");
        assert_ne!(state(&call), state(&later));
    }
}
