//! Rows of a call's progress, one for each step: the caller, the agent with the routing step and its reason, the answer, the end. One call is
//! followed with the items of its trace.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use trunkline_routing::{Decision, Outcome, Step, StepFinding};
use trunkline_sip::header::text::printable;

use super::Failure;
use super::follow::{FollowFormat, FollowedLines};
use super::session::Session;

/// Rows of every call of an org.
pub(super) struct CallRows {
    session: Arc<Session>,
}

impl CallRows {
    pub(super) const fn new(session: Arc<Session>) -> Self {
        Self { session }
    }
}

impl FollowFormat for CallRows {
    async fn take_event(&mut self, event: &Value) -> Result<FollowedLines, Failure> {
        let call = event["data"]["call_id"].as_str().unwrap_or_default();
        Ok(rows(&self.session, call, event).await.into())
    }
}

/// One call that is followed.
pub(super) struct FollowedCall {
    session: Arc<Session>,
    id: String,
    /// Items of the trace that were returned.
    items: usize,
}

impl FollowedCall {
    pub(super) const fn new(session: Arc<Session>, id: String) -> Self {
        Self {
            session,
            id,
            items: 0,
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn is_subject_of(&self, event: &Value) -> bool {
        event["data"]["call_id"] == self.id
    }

    pub(super) async fn record(&self) -> Result<Value, Failure> {
        let path = format!("/phone/calls/{}", self.id);
        self.session.json(&path).await
    }

    /// Returns the items of the trace that it hasn't returned before: messages and decisions.
    ///
    /// # Errors
    /// The trace can't be read. The next call returns what this one has missed.
    pub(super) async fn new_items(&mut self) -> Result<Vec<Value>, Failure> {
        let path = format!("/phone/calls/{}/trace", self.id);
        let mut trace = self.session.json(&path).await?;
        let Value::Array(items) = trace["items"].take() else {
            return Ok(Vec::new());
        };

        let before = self.items;
        self.items = items.len().max(before);
        Ok(items.into_iter().skip(before).collect())
    }

    /// Returns the rows of an event of the call.
    pub(super) async fn rows(&self, event: &Value) -> Vec<String> {
        rows(&self.session, &self.id, event).await
    }
}

/// Row of a decision, as an item of the trace.
pub(super) fn decision_row(call: &str, decision: &Value) -> String {
    let text = decision["text"].as_str().unwrap_or_default();
    row(&decision["at"], call, &format!("* {}", printable(text)))
}

async fn rows(session: &Session, call: &str, event: &Value) -> Vec<String> {
    let mut routing = Value::Null;
    if event["type"] == "call.started" {
        // Without the routing the row still tells who calls.
        let path = format!("/phone/calls/{call}/routing");
        routing = session.json(&path).await.unwrap_or_default();
    }

    let steps = steps(event, &routing).into_iter();
    steps
        .map(|step| row(&event["timestamp"], call, &step))
        .collect()
}

/// A row: the time of day, the end of the call's id, and the step.
fn row(at: &Value, call: &str, step: &str) -> String {
    let time = at.as_str().and_then(|at| at.get(11..19));
    // Ids of one minute begin alike.
    let id = call.get(call.len().saturating_sub(4)..).unwrap_or_default();
    format!("{}  {id}  {step}", time.unwrap_or_default())
}

/// Steps that an event reports; none for one that isn't about a call.
fn steps(event: &Value, routing: &Value) -> Vec<String> {
    let data = &event["data"];
    let text = |name: &str| data[name].as_str().map(printable).unwrap_or_default();
    match event["type"].as_str().unwrap_or_default() {
        "call.started" => started(data, routing),
        "call.ringing" => vec!["rings".to_owned()],
        "call.answered" => vec![format!(
            "answered after {}",
            between(data, "started_at", "answered_at")
        )],
        "call.refused" => {
            let code = &data["sip_code"];
            vec![format!("refused with {code} ({})", text("reason"))]
        }
        "call.ended" => vec![ended(data)],
        "transfer.updated" => vec![format!(
            "transfer to {}: {}",
            text("destination"),
            text("status")
        )],
        _ => Vec::new(),
    }
}

fn started(data: &Value, routing: &Value) -> Vec<String> {
    let text = |name: &str| data[name].as_str().map(printable).unwrap_or_default();
    let mut source = String::new();
    if let Some(address) = routing["log_in"]["source"].as_str() {
        source = format!(" from {address}");
        if let Some(user_agent) = routing["log_in"]["user_agent"].as_str() {
            source.push_str(&format!(" ({})", printable(user_agent)));
        }
    }

    let mut steps = vec![format!(
        "{} calls {}{source}",
        text("from_number"),
        text("to_number")
    )];
    // A call that was refused before routing has no outcome, so that this fails.
    let decision = serde_json::from_value::<Decision>(routing.clone());
    steps.extend(decision.as_ref().map(chosen));
    steps
}

fn chosen(decision: &Decision) -> String {
    match decision.outcome {
        Outcome::Agent { id, step } => {
            let name = decision.trail.iter().find_map(|entry| match &entry.found {
                StepFinding::Agent {
                    id: agent, name, ..
                } if *agent == id => Some(&**name),
                StepFinding::Agent { .. }
                | StepFinding::Nothing
                | StepFinding::NotAnId
                | StepFinding::Contradiction
                | StepFinding::Further(_) => None,
            });
            let name = name.unwrap_or_default();
            format!("step {} of 4 chose agent {name:?}: {step}", place(step))
        }
        Outcome::AgentBusy { .. } | Outcome::NoAgent => decision.sentences().join(" "),
    }
}

const fn place(step: Step) -> u8 {
    match step {
        Step::Header => 1,
        Step::AssignedNumber => 2,
        Step::TrunkNumbers => 3,
        Step::FirstAvailable => 4,
    }
}

fn ended(data: &Value) -> String {
    let by = data["hangup_by"]
        .as_str()
        .map(printable)
        .unwrap_or_default();
    let status = data["status"]
        .as_str()
        .unwrap_or_default()
        .replace('_', " ");

    match data["answered_at"].is_string() {
        true => format!(
            "ended by the {by} after {}",
            between(data, "answered_at", "ended_at")
        ),
        false => {
            let reason = data["reason"]
                .as_str()
                .map(|reason| format!(", {}", printable(reason)));
            format!(
                "ended by the {by} without an answer ({status}{})",
                reason.unwrap_or_default()
            )
        }
    }
}

/// Time between two moments of a call.
fn between(data: &Value, from: &str, to: &str) -> String {
    let moment = |name: &str| data[name].as_str()?.parse::<Timestamp>().ok();
    let passed = moment(from).zip(moment(to));
    let passed = passed.map(|(from, to)| to.duration_since(from).as_secs_f64());
    match passed.unwrap_or_default() {
        passed if passed < 0.1 => format!("{passed:.3} s"),
        passed => format!("{passed:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const CALL: &str = "01a21538-ad4d-76b1-b900-02d9ebc95e89";

    /// Answer of the API to the routing of a call.
    fn routing(outcome: &Value, found: &Value) -> Value {
        let entry = json!({"step": "assigned_number", "at": "nothing", "found": found});
        json!({
            "outcome": outcome, "dialled": {"raw": "+12025550123", "e164": null}, "caller": {"raw": "+4930", "e164": null},
            "trail": [entry], "near_misses": [], "explanation": [], "attempts": [],
            "log_in": {"source": "192.0.2.20:5060", "user_agent": "PBX\u{7}"}
        })
    }

    #[test]
    fn each_step_of_a_call_is_a_row() {
        let agent = "00000000-0000-0000-0000-000000000001";
        let answered = routing(
            &json!({"agent": {"id": agent, "step": "assigned_number"}}),
            &json!({"agent": {"id": agent, "name": "Echo", "state": "available"}}),
        );
        let refused = routing(&json!("no_agent"), &json!("nothing"));
        let numbers = json!({"from_number": "+4930\n", "to_number": "+12025550123"});
        let head = "10:00:01  5e89  ";

        for (kind, data, routing, expected) in [
            (
                "call.started",
                numbers.clone(),
                answered,
                vec![
                    "+4930\\n calls +12025550123 from 192.0.2.20:5060 (PBX\\u{7})",
                    "step 2 of 4 chose agent \"Echo\": it holds the dialled number",
                ],
            ),
            (
                "call.started",
                numbers.clone(),
                refused,
                vec![
                    "+4930\\n calls +12025550123 from 192.0.2.20:5060 (PBX\\u{7})",
                    "What was dialled is no phone number. No agent is available: the call is refused.",
                ],
            ),
            (
                "call.started",
                numbers,
                Value::Null,
                vec!["+4930\\n calls +12025550123"],
            ),
            (
                "call.answered",
                json!({"started_at": "2026-11-26T10:00:01.250Z", "answered_at": "2026-11-26T10:00:01.375Z"}),
                Value::Null,
                vec!["answered after 0.12 s"],
            ),
            (
                "call.ended",
                json!({"hangup_by": "caller", "answered_at": "2026-11-26T10:00:01Z", "ended_at": "2026-11-26T10:00:03Z"}),
                Value::Null,
                vec!["ended by the caller after 2.00 s"],
            ),
            (
                "call.ended",
                json!({"hangup_by": "platform", "status": "no_answer", "reason": "runtime_unreachable"}),
                Value::Null,
                vec!["ended by the platform without an answer (no answer, runtime_unreachable)"],
            ),
            (
                "call.refused",
                json!({"sip_code": 480, "reason": "no_agent"}),
                Value::Null,
                vec!["refused with 480 (no_agent)"],
            ),
            (
                "transfer.updated",
                json!({"destination": "Desk", "status": "ringing"}),
                Value::Null,
                vec!["transfer to Desk: ringing"],
            ),
            ("key.revoked", json!({}), Value::Null, vec![]),
        ] {
            let event =
                json!({"type": kind, "timestamp": "2026-11-26T10:00:01.250Z", "data": data});
            let rows: Vec<String> = steps(&event, &routing)
                .iter()
                .map(|step| row(&event["timestamp"], CALL, step))
                .collect();
            let expected: Vec<String> = expected
                .iter()
                .map(|line| format!("{head}{line}"))
                .collect();
            assert_eq!(rows, expected, "{kind}");
        }
    }

    #[test]
    fn a_decision_is_a_row() {
        let decision =
            json!({"type": "decision", "at": "2026-11-26T10:00:01.250Z", "text": "a\u{1b}"});
        assert_eq!(decision_row(CALL, &decision), "10:00:01  5e89  * a\\u{1b}");
    }
}
