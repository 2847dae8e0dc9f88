//! `trunkline trace` without a terminal: a line for each change of a call, or for each message of one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trunkline_sip::header::text::printable;
use uuid::Uuid;

use super::call::{CallLine, CallTable, MAX_CALLS};
use super::filter::{Filter, Names};
use crate::api;
use crate::cli::Failure;
use crate::cli::call_rows::FollowedCall;
use crate::cli::follow::{FollowFormat, FollowedLines};
use crate::cli::session::Session;

/// Interval between two reads of a followed call's messages: by the control socket, and with a key, whose requests count against its org's limit.
/// Events of the call trigger more reads.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const LOOK_INTERVAL_WITH_KEY: Duration = Duration::from_secs(15);

/// Calls of a list that match, a line for each and another when its state changes.
pub(super) struct CallList {
    session: Arc<Session>,
    path: String,
    filter: Filter,
    is_json: bool,
    table: CallTable,
    printed: Printed,
}

impl CallList {
    pub(super) fn new(session: Arc<Session>, path: String, filter: Filter, is_json: bool) -> Self {
        Self {
            session,
            path,
            filter,
            is_json,
            table: CallTable::default(),
            printed: Printed::default(),
        }
    }

    /// Returns the line of a call whose state is new, or the object instead.
    fn line(&mut self, id: Uuid, object: impl FnOnce() -> Value) -> Option<String> {
        let line = self.table.one(id)?;
        if !self.filter.matches(line, &Names::new()) || !self.printed.is_new(line) {
            return None;
        }
        Some(match self.is_json {
            true => object().to_string(),
            false => text_of(line),
        })
    }
}

impl FollowFormat for CallList {
    async fn catch_up(&mut self) -> Result<FollowedLines, Failure> {
        let list = self.session.json(&self.path).await?;
        let calls = list["items"].as_array().map_or(&[][..], Vec::as_slice);
        self.table.take_list(calls);

        // The API lists the newest first; a log prints it last.
        let lines = calls.iter().rev().filter_map(|call| {
            let id = call["id"].as_str().and_then(|id| api::id_of(id).ok())?;
            self.line(id, || call.clone())
        });
        Ok(lines.collect::<Vec<_>>().into())
    }

    async fn take_event(&mut self, event: &Value) -> Result<FollowedLines, Failure> {
        let changed = self.table.take_event(event);
        let line = changed.and_then(|id| self.line(id, || object_of(event)));
        Ok(Vec::from_iter(line).into())
    }
}

/// States of calls that have been printed.
#[derive(Default)]
struct Printed(std::collections::HashMap<Uuid, (String, String)>);

impl Printed {
    /// Returns true, once, for a state of a call.
    fn is_new(&mut self, line: &CallLine) -> bool {
        let transfer = line.transfer.as_ref();
        let transfer = transfer.map(|transfer| transfer.state.clone());
        let state = (line.status.clone(), transfer.unwrap_or_default());
        if self.0.get(&line.id) == Some(&state) {
            return false;
        }

        // The map is bounded: once full it is cleared, and the next change of an old call is printed as if the call were new.
        if self.0.len() >= MAX_CALLS {
            self.0.clear();
        }
        self.0.insert(line.id, state);
        true
    }
}

/// The call as an event shows it, by the names of the list.
fn object_of(event: &Value) -> Value {
    let mut data = event["data"].clone();
    let id = data["call_id"].take();
    if let Value::Object(fields) = &mut data {
        fields.remove("call_id");
    }
    if event["type"] == "transfer.updated" {
        return json!({"id": id, "transfer": data});
    }
    data["id"] = id;
    data
}

fn text_of(call: &CallLine) -> String {
    let line = format!(
        "{}  {}  {:<8}  {:<11}  {} -> {}  {}",
        call.latest,
        call.id,
        call.direction,
        call.status,
        call.from,
        call.to,
        call.outcome()
    );
    line.trim_end().to_owned()
}

/// Messages of one call and the decisions between them, until it ends.
pub(super) struct CallItems {
    call: FollowedCall,
    interval: Duration,
    printer: ItemPrinter,
    is_json: bool,
}

impl CallItems {
    pub(super) fn new(
        session: &Arc<Session>,
        call: Uuid,
        printer: ItemPrinter,
        is_json: bool,
    ) -> Self {
        let interval = match session.operators_org() {
            Some(_) => LOOK_INTERVAL,
            None => LOOK_INTERVAL_WITH_KEY,
        };
        Self {
            call: FollowedCall::new(Arc::clone(session), call.to_string()),
            interval,
            printer,
            is_json,
        }
    }
}

impl FollowFormat for CallItems {
    fn interval(&self) -> Option<Duration> {
        Some(self.interval)
    }

    async fn catch_up(&mut self) -> Result<FollowedLines, Failure> {
        // Read the record before the messages: once it says that the call has ended, all messages exist.
        let record = self.call.record().await?;
        let items = self.call.new_items().await?;
        let lines = items.iter().map(|item| match self.is_json {
            true => item.to_string(),
            false => self.printer.text(item),
        });
        let lines: Vec<String> = lines.collect();

        Ok(match record["ended_at"].is_null() {
            true => lines.into(),
            false => FollowedLines::last(lines),
        })
    }

    async fn take_event(&mut self, event: &Value) -> Result<FollowedLines, Failure> {
        match self.call.is_subject_of(event) {
            true => self.catch_up().await,
            false => Ok(FollowedLines::default()),
        }
    }
}

/// Writes items of a trace as lines, with the date only where it changes.
#[derive(Debug)]
pub(super) struct ItemPrinter {
    has_messages: bool,
    began: Option<String>,
}

impl ItemPrinter {
    /// With `has_messages` each message follows its line.
    pub(super) const fn new(has_messages: bool) -> Self {
        Self {
            has_messages,
            began: None,
        }
    }

    pub(super) fn text(&mut self, item: &Value) -> String {
        let text = |name: &str| item[name].as_str().unwrap_or_default();
        let at = text("at");
        let began = self.began.get_or_insert_with(|| at.to_owned());
        // Times have the format `2026-11-21T16:00:00.000Z`.
        let time = if at.get(..10) == began.get(..10) {
            at.get(11..).unwrap_or(at).trim_end_matches('Z')
        } else {
            at
        };

        if item["type"] == "decision" {
            return format!("{time}  * {}", printable(text("text")));
        }

        let is_sent = item["direction"] == "sent";
        let arrow = if is_sent { "-->" } else { "<--" };
        let summary = printable(text("summary"));
        let leg = format!("{} ", text("leg"));
        let head = format!("{time}  trunkline {arrow} {leg:<8}{summary}");
        if !self.has_messages {
            return head;
        }

        let message: Vec<String> = text("text")
            .lines()
            .map(|line| format!("    {}", printable(line)))
            .collect();

        format!(
            "{head}  {} {} -> {}\n{}\n",
            text("transport"),
            text("source"),
            text("destination"),
            message.join("\n")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_became_of_a_call() {
        let call = json!({
            "direction": "inbound", "status": "refused", "from_number": "+1\n2",
            "to_number": "+3", "sip_code": 480, "reason": "agent_busy", "started_at": "2026-11-21T16:00:00Z",
            "ended_at": "2026-11-21T16:00:01Z"
        });
        let mut line = CallLine::new(Uuid::from_u128(1));
        line.update(&call);
        assert_eq!(
            text_of(&line),
            "2026-11-21T16:00:01Z  00000000-0000-0000-0000-000000000001  inbound   refused      +1\\n2 -> +3  480  agent_busy"
        );
    }

    #[test]
    fn an_event_has_the_names_of_the_list() {
        let ended = json!({"type": "call.ended", "data": {"call_id": "1", "status": "completed"}});
        assert_eq!(object_of(&ended), json!({"id": "1", "status": "completed"}));
        let moved =
            json!({"type": "transfer.updated", "data": {"call_id": "1", "status": "completed"}});
        assert_eq!(
            object_of(&moved),
            json!({"id": "1", "transfer": {"status": "completed"}})
        );
    }
}
