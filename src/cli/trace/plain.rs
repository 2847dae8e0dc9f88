//! `trunkline trace` without a terminal: a line for each change of a call, or for each message of one.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use trunkline_sip::header::text::printable;
use uuid::Uuid;

use super::call::{CallLine, CallTable, MAX_CALLS};
use super::feed::{Feed, News};
use super::filter::{Filter, Names};
use crate::cli::Failure;
use crate::cli::output::print;
use crate::cli::session::Session;

/// Interval between two reads of a followed call's messages: by the control socket, and with a key, whose requests count against its org's limit.
/// Events of the call trigger more reads.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const LOOK_INTERVAL_WITH_KEY: Duration = Duration::from_secs(15);

/// Prints the calls of the list that match.
pub(super) async fn list(
    session: &Session,
    path: &str,
    filter: &Filter,
    is_json: bool,
) -> Result<(), Failure> {
    let shown = session.json(path).await?;
    let calls = shown["items"].as_array().map_or(&[][..], Vec::as_slice);
    // The API lists the newest first; a log prints it last.
    for call in calls.iter().rev() {
        let mut line = CallLine::default();
        line.take_id(call);
        line.update(call);
        if filter.matches(&line, &Names::new()) {
            print(&match is_json {
                true => call.to_string(),
                false => text_of(&line),
            });
        }
    }
    Ok(())
}

/// Prints the list, and a line for each change of a call after it.
pub(super) async fn watch(
    session: &Arc<Session>,
    path: &str,
    filter: &Filter,
    is_json: bool,
) -> Result<(), Failure> {
    let mut feed = Feed::start(Arc::clone(session));
    let outcome = follow_all(&mut feed, session, path, filter, is_json).await;
    feed.stop().await;
    outcome
}

async fn follow_all(
    feed: &mut Feed,
    session: &Session,
    path: &str,
    filter: &Filter,
    is_json: bool,
) -> Result<(), Failure> {
    let (mut table, mut printed) = (CallTable::default(), Printed::default());

    loop {
        match feed.next().await {
            // The stream is open before the list is read, so that no change falls between them.
            News::Open { is_resumed: false } => {
                let shown = session.json(path).await?;
                let calls = shown["items"].as_array().map_or(&[][..], Vec::as_slice);
                table.take_list(calls);
                let found = calls.iter().rev().filter_map(|call| {
                    let id = call["id"].as_str().and_then(|id| id.parse().ok())?;
                    Some((call, table.one(id)?))
                });
                for (call, line) in found {
                    printed.show(line, filter, || is_json.then(|| call.clone()));
                }
            }
            News::Open { is_resumed: true } => {}

            News::Event(event) => {
                let changed = table.take_event(&event).and_then(|id| table.one(id));
                if let Some(line) = changed {
                    printed.show(line, filter, || is_json.then(|| object_of(&event)));
                }
            }

            News::Lost { fault, pause } => {
                let seconds = pause.as_secs();
                eprintln!("trunkline: {fault}: trying again in {seconds} s");
            }
            News::Refused(failure) => return Err(failure),
        }
    }
}

/// States of calls that have been printed.
#[derive(Default)]
struct Printed(std::collections::HashMap<Uuid, (String, String)>);

impl Printed {
    /// Prints a call whose state is new: a line, or the object instead.
    fn show(&mut self, line: &CallLine, filter: &Filter, object: impl FnOnce() -> Option<Value>) {
        let transfer = line.transfer.as_ref();
        let transfer = transfer.map(|transfer| transfer.state.clone());
        let state = (line.status.clone(), transfer.unwrap_or_default());
        if !filter.matches(line, &Names::new()) || self.0.get(&line.id) == Some(&state) {
            return;
        }
        // The map is bounded: once full it is cleared, and the next change of an old call is printed as if the call were new.
        if self.0.len() >= MAX_CALLS {
            self.0.clear();
        }
        self.0.insert(line.id, state);
        print(&object().map_or_else(|| text_of(line), |object| object.to_string()));
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

/// Prints the messages of one call and the decisions between them, until it ends.
pub(super) async fn follow_one(
    session: &Arc<Session>,
    call: Uuid,
    is_once: bool,
    printer: &mut ItemPrinter,
    is_json: bool,
) -> Result<(), Failure> {
    let mut feed = (!is_once).then(|| Feed::start(Arc::clone(session)));
    let mut shown = 0;
    let outcome = loop {
        match look(session, call, &mut shown, printer, is_json).await {
            Ok(has_ended) if has_ended || is_once => break Ok(()),
            Ok(_) => {}
            Err(failure) => break Err(failure),
        }
        if let Some(feed) = &mut feed
            && let Err(failure) = wait(feed, session, call).await
        {
            break Err(failure);
        }
    };

    if let Some(feed) = feed {
        feed.stop().await;
    }
    outcome
}

/// Prints the new messages of a call, and returns true if it has ended.
async fn look(
    session: &Session,
    call: Uuid,
    shown: &mut usize,
    printer: &mut ItemPrinter,
    is_json: bool,
) -> Result<bool, Failure> {
    // Read the record before the messages: once it says that the call has ended, all messages exist.
    let record = session.json(&format!("/phone/calls/{call}")).await?;
    let trace = session.json(&format!("/phone/calls/{call}/trace")).await?;
    let items = trace["items"].as_array().map_or(&[][..], Vec::as_slice);
    for item in items.iter().skip(*shown) {
        print(&match is_json {
            true => item.to_string(),
            false => printer.text(item),
        });
    }
    *shown = items.len().max(*shown);
    Ok(!record["ended_at"].is_null())
}

/// Waits until there may be more of a call: for its next event, or for the interval between two reads.
async fn wait(feed: &mut Feed, session: &Session, call: Uuid) -> Result<(), Failure> {
    let interval = match session.operators_org() {
        Some(_) => LOOK_INTERVAL,
        None => LOOK_INTERVAL_WITH_KEY,
    };
    let id = call.to_string();
    let event = async {
        loop {
            match feed.next().await {
                News::Event(event) if event["data"]["call_id"] == *id => return Ok(()),
                News::Refused(failure) => return Err(failure),
                News::Event(_) | News::Open { .. } | News::Lost { .. } => {}
            }
        }
    };

    tokio::time::timeout(interval, event)
        .await
        .unwrap_or(Ok(()))
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
            "id": "00000000-0000-0000-0000-000000000001", "direction": "inbound", "status": "refused", "from_number": "+1\n2",
            "to_number": "+3", "sip_code": 480, "reason": "agent_busy", "started_at": "2026-11-21T16:00:00Z",
            "ended_at": "2026-11-21T16:00:01Z"
        });
        let mut line = CallLine::default();
        line.take_id(&call);
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
