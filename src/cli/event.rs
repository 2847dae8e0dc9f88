//! `trunkline event`: the org's events as they happen, a line each.

use std::sync::Arc;

use serde_json::Value;
use trunkline_sip::header::text::printable;

use super::Failure;
use super::event_stream::EventSelection;
use super::follow::{FollowFormat, FollowedLines, Within, follow};
use super::session::Intent;
use super::target::Target;
use crate::config::Config;

/// Events of an org.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Prints the org's events as they happen, until it is interrupted. A daemon must run.
    #[command(
        after_help = "Examples:\n  trunkline event follow\n  trunkline event follow --types call.started,call.ended --json\n  trunkline event follow --since 0"
    )]
    Follow {
        /// Types of events, separated by commas; all, if it is not given.
        #[arg(long)]
        types: Option<String>,
        /// Begin after the event with this id; `0` begins with the oldest that is kept.
        #[arg(long, value_name = "ID")]
        since: Option<String>,
        /// End after this many events.
        #[arg(long)]
        count: Option<u32>,
        #[command(flatten)]
        target: Target,
        /// Print one JSON object per line.
        #[arg(long)]
        json: bool,
    },
}

impl Command {
    pub(super) async fn run(self, config: &Config) -> Result<(), Failure> {
        let Self::Follow {
            types,
            since,
            count,
            target,
            json: is_json,
        } = self;
        let session = Arc::new(target.open(config, Intent::Reads).await?);
        let selection = EventSelection { types, since };
        let mut lines = EventLines { is_json };
        let followed = follow(&session, selection, count, &mut lines, Within::Command).await;
        session.close_shared().await;
        followed
    }
}

/// A line for each event of any type.
struct EventLines {
    is_json: bool,
}

impl FollowFormat for EventLines {
    async fn take_event(&mut self, event: &Value) -> Result<FollowedLines, Failure> {
        let line = if self.is_json {
            event.to_string()
        } else {
            line(event)
        };
        Ok(vec![line].into())
    }
}

/// Line for people: time, type, and those fields of the object that are a text, a number or a flag.
fn line(event: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => printable(text).to_string(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    let data = event["data"].as_object();
    let fields = data
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null() && !value.is_object() && !value.is_array());
    let fields: Vec<String> = fields
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect();
    let at = text(&event["timestamp"]);

    format!("{at}  {:<18}  {}", text(&event["type"]), fields.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_line_escapes_what_peers_have_written() {
        let event = json!({"timestamp": "t", "type": "call.ended", "data": {"from_number": "a\nb", "reason": null}});
        assert_eq!(line(&event), "t  call.ended          from_number=a\\nb");
    }
}
