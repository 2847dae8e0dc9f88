//! `trunkline event`: the org's events as they happen, a line each.

use axum::body::Bytes;
use axum::http::Method;
use http_body_util::BodyExt as _;
use serde_json::Value;
use trunkline_sip::header::text::printable;

use super::Failure;
use super::output::print;
use super::session::{Intent, Session, Target, encoded};
use crate::config::Config;

/// Maximum length of an event that is read, in octets.
const MAX_EVENT: usize = 1 << 20;

/// Events of an org.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Prints the org's events as they happen, until it is ended. A daemon must run.
    #[command(
        after_help = "Examples:\n  trunkline event follow\n  trunkline event follow --types call.started,call.ended --json\n  trunkline event follow --since 0"
    )]
    Follow {
        /// Types of events, separated by commas; without it all.
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
            json,
        } = self;
        let given = [("types", types), ("last_event_id", since)];
        let query: Vec<(&str, &str)> = given
            .iter()
            .filter_map(|(name, value)| Some((*name, value.as_deref()?)))
            .collect();
        let path = format!("/phone/events?{}", encoded(&query)?);

        let session = target.open(config, Intent::Reads).await?;
        let followed = follow(&session, &path, json, count).await;
        session.close().await;
        followed
    }
}

async fn follow(
    session: &Session,
    path: &str,
    is_json: bool,
    count: Option<u32>,
) -> Result<(), Failure> {
    let answer = session
        .send(&Method::GET, path, "text/event-stream", None)
        .await?;
    let mut body = answer.into_body();
    let mut buffer = Vec::new();
    let mut left = count.unwrap_or(u32::MAX);
    while left > 0 {
        let frame = body.frame().await.ok_or_else(|| {
            Failure::Command(
                "the stream has ended: the daemon stops, or the key was revoked".to_owned(),
            )
        })?;
        let frame = frame.map_err(|fault| Failure::Command(fault.to_string()))?;
        buffer.extend_from_slice(&frame.into_data().unwrap_or_else(|_| Bytes::new()));
        if buffer.len() > MAX_EVENT {
            return Err(Failure::Command("an event is too long".to_owned()));
        }

        while let Some(event) = next_event(&mut buffer) {
            if count.is_none() || left > 0 {
                left -= u32::from(count.is_some());
                print(&if is_json {
                    event.to_string()
                } else {
                    line(&event)
                });
            }
        }
    }
    Ok(())
}

/// Takes the next whole event with data off the buffer (HTML Living Standard §9.2.6).
fn next_event(buffer: &mut Vec<u8>) -> Option<Value> {
    loop {
        let end = buffer.windows(2).position(|pair| pair == b"\n\n")?;
        let block: Vec<u8> = buffer.drain(..end + 2).collect();
        let block = String::from_utf8_lossy(&block);
        let data: Vec<&str> = block
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.strip_prefix(' ').unwrap_or(data))
            .collect();
        if let Ok(event) = serde_json::from_str(&data.join("\n")) {
            return Some(event);
        }
    }
}

/// Line for people: time, type, and what is told of the object, without what is empty.
fn line(event: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => printable(text).to_string(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    };
    let data = event["data"].as_object();
    let told = data
        .into_iter()
        .flatten()
        .filter(|(_, value)| !value.is_null() && !value.is_object() && !value.is_array());
    let told: Vec<String> = told
        .map(|(name, value)| format!("{name}={}", text(value)))
        .collect();
    let at = text(&event["timestamp"]);
    format!("{at}  {:<18}  {}", text(&event["type"]), told.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_are_read_as_they_come_whole() {
        let mut buffer = b": open\nretry: 2000\n\nid: 1\nevent: call.ended\ndata: {\"type\":\"call.ended\"}\n\n: alive\n\nid: 2\nda".to_vec();
        assert_eq!(next_event(&mut buffer), Some(json!({"type": "call.ended"})));
        assert_eq!(next_event(&mut buffer), None);
        buffer.extend_from_slice(b"ta: {\"a\":\ndata: 1}\n\n");
        assert_eq!(next_event(&mut buffer), Some(json!({"a": 1})));
        assert_eq!(next_event(&mut buffer), None);
    }

    #[test]
    fn a_line_escapes_what_peers_have_written() {
        let event = json!({"timestamp": "t", "type": "call.ended", "data": {"from_number": "a\nb", "reason": null}});
        assert_eq!(line(&event), "t  call.ended          from_number=a\\nb");
    }
}
