//! Calls of the quickstart's org as they happen, a line per step: the caller, the agent with the routing step and its reason, the answer, the end.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use trunkline_routing::{Decision, Outcome, Step};
use trunkline_sip::header::text::printable;
use trunkline_store::{Explained, Store, Tx, agents, events, explained};
use uuid::Uuid;

use crate::api;
use crate::cli::output;

/// Interval between looks for new events, and events that are read at once.
const INTERVAL: Duration = Duration::from_millis(200);
const BATCH: u32 = 100;

/// Prints the calls' events that follow number `seq`, for as long as it runs. While the database is away it prints nothing.
pub(super) async fn print(store: Store, org: Uuid, mut seq: i64) {
    loop {
        let found = store
            .read(move |tx| events::since(tx, org, seq, BATCH))
            .await
            // A read that failed is repeated from the same number after the pause, so no event is lost.
            .unwrap_or_default();

        for event in &found {
            seq = event.seq;
            // An event that can't be parsed counts as read, so that it isn't read again for ever.
            let Ok(event) = serde_json::from_str::<Value>(&event.body) else {
                continue;
            };
            for line in lines(&event, &RoutedCall::read(&store, org, &event).await) {
                output::print(&line);
            }
        }

        if found.is_empty() {
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// Routing of a call that has begun, with the agents' names.
#[derive(Default)]
struct RoutedCall {
    explained: Explained,
    agents: HashMap<Uuid, String>,
}

impl RoutedCall {
    async fn read(store: &Store, org: Uuid, event: &Value) -> Self {
        let call = event["data"]["call_id"].as_str();
        let call = call.and_then(|id| api::id_of(id).ok());
        let Some(call) = call.filter(|_| event["type"] == "call.started") else {
            return Self::default();
        };

        let read = move |tx: &mut Tx| {
            let agents = agents::list(tx, org)?.into_iter();
            Ok(Self {
                explained: explained::of_call(tx, org, call)?,
                agents: agents.map(|agent| (agent.id, agent.name)).collect(),
            })
        };
        store.read(read).await.unwrap_or_default()
    }
}

/// Lines of an event; none for one that isn't about a call.
fn lines(event: &Value, call: &RoutedCall) -> Vec<String> {
    let data = &event["data"];
    let text = |name: &str| data[name].as_str().map(printable).unwrap_or_default();
    let said = match event["type"].as_str().unwrap_or_default() {
        "call.started" => started(data, call),
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
    };

    let time = event["timestamp"].as_str().and_then(|at| at.get(11..19));
    let id = data["call_id"].as_str().unwrap_or_default();
    // Ids of one minute begin alike.
    let id = id.get(id.len().saturating_sub(4)..).unwrap_or_default();
    let head = format!("{}  {id}  ", time.unwrap_or_default());
    said.into_iter()
        .map(|said| format!("{head}{said}"))
        .collect()
}

fn started(data: &Value, call: &RoutedCall) -> Vec<String> {
    let text = |name: &str| data[name].as_str().map(printable).unwrap_or_default();
    let mut source = String::new();
    if let Some(asked) = &call.explained.asked {
        source = format!(" from {}", asked.source);
        if let Some(user_agent) = &asked.user_agent {
            source.push_str(&format!(" ({})", printable(user_agent)));
        }
    }

    let mut said = vec![format!(
        "{} calls {}{source}",
        text("from_number"),
        text("to_number")
    )];
    let decision = call.explained.decision.as_ref();
    said.extend(decision.map(|decision| chosen(decision, &call.agents)));

    said
}

fn chosen(decision: &Decision, agents: &HashMap<Uuid, String>) -> String {
    match decision.outcome {
        Outcome::Agent { id, step } => {
            let name = agents.get(&id).map_or("", String::as_str);
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
    use trunkline_routing::{Caller, Dialled, StepFinding, StepPlace, TrailEntry};

    use super::*;

    fn event(kind: &str, data: Value) -> Value {
        let mut data = data;
        data["call_id"] = json!("01a21538-ad4d-76b1-b900-02d9ebc95e89");
        json!({"type": kind, "timestamp": "2026-11-26T10:00:01.250Z", "data": data})
    }

    fn decision(outcome: Outcome) -> Decision {
        Decision {
            outcome,
            dialled: Dialled {
                raw: "+12025550123".into(),
                e164: None,
            },
            caller: Caller {
                raw: "+4930".into(),
                e164: None,
            },
            trail: vec![TrailEntry {
                step: Step::Header,
                at: StepPlace::Nothing,
                found: StepFinding::Nothing,
            }],
            near_misses: Vec::new(),
        }
    }

    #[test]
    fn each_step_of_a_call_is_a_line() {
        let agent = Uuid::from_u128(1);
        let routed = |outcome| RoutedCall {
            explained: Explained {
                decision: Some(decision(outcome)),
                asked: None,
            },
            agents: HashMap::from([(agent, "Echo".to_owned())]),
        };
        let answered = Outcome::Agent {
            id: agent,
            step: Step::AssignedNumber,
        };
        let numbers = json!({"from_number": "+4930\n", "to_number": "+12025550123"});
        let head = "10:00:01  5e89  ";

        for (kind, data, call, expected) in [
            (
                "call.started",
                numbers.clone(),
                routed(answered),
                vec![
                    "+4930\\n calls +12025550123",
                    "step 2 of 4 chose agent \"Echo\": it holds the dialled number",
                ],
            ),
            (
                "call.started",
                numbers,
                routed(Outcome::NoAgent),
                vec![
                    "+4930\\n calls +12025550123",
                    "The call names no agent in a header. No agent is available: the call is refused.",
                ],
            ),
            (
                "call.answered",
                json!({"started_at": "2026-11-26T10:00:01.250Z", "answered_at": "2026-11-26T10:00:01.375Z"}),
                RoutedCall::default(),
                vec!["answered after 0.12 s"],
            ),
            (
                "call.ended",
                json!({"hangup_by": "caller", "answered_at": "2026-11-26T10:00:01Z", "ended_at": "2026-11-26T10:00:03Z"}),
                RoutedCall::default(),
                vec!["ended by the caller after 2.00 s"],
            ),
            (
                "call.ended",
                json!({"hangup_by": "platform", "status": "no_answer", "reason": "runtime_unreachable"}),
                RoutedCall::default(),
                vec!["ended by the platform without an answer (no answer, runtime_unreachable)"],
            ),
            (
                "call.refused",
                json!({"sip_code": 480, "reason": "no_agent"}),
                RoutedCall::default(),
                vec!["refused with 480 (no_agent)"],
            ),
            (
                "transfer.updated",
                json!({"destination": "Desk", "status": "ringing"}),
                RoutedCall::default(),
                vec!["transfer to Desk: ringing"],
            ),
            ("key.revoked", json!({}), RoutedCall::default(), vec![]),
        ] {
            let expected: Vec<String> = expected
                .iter()
                .map(|line| format!("{head}{line}"))
                .collect();
            assert_eq!(lines(&event(kind, data), &call), expected, "{kind}");
        }
    }
}
