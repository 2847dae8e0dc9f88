//! One call as lists show it, read from the API's list of calls and from events. Texts of peers are escaped and cut
//! here, so that none can control the terminal or fill the memory.

use std::collections::{HashMap, VecDeque};

use serde_json::Value;
use trunkline_sip::header::text::printable;
use uuid::Uuid;

use crate::api;

/// Characters that are kept of a peer's text.
const MAX_TEXT: usize = 128;
/// Calls that are remembered; the oldest are forgotten.
pub(super) const MAX_CALLS: usize = 10_000;

/// One call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct CallLine {
    pub(super) id: Uuid,
    pub(super) session: Option<Uuid>,
    pub(super) agent: Option<Uuid>,
    pub(super) trunk: Option<Uuid>,
    pub(super) direction: String,
    pub(super) status: String,
    pub(super) from: String,
    pub(super) to: String,
    /// Both numbers as E.164, where they can be read as such.
    pub(super) e164: [Option<String>; 2],
    pub(super) started_at: String,
    /// Time of the last change of the status.
    pub(super) latest: String,
    pub(super) has_ended: bool,
    pub(super) sip_code: Option<u64>,
    pub(super) reason: Option<String>,
    /// Call-IDs of the legs, as far as they are known.
    pub(super) call_ids: Vec<String>,
    pub(super) user_agent: Option<String>,
    pub(super) transfer: Option<TransferLine>,
}

/// The last transfer of a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct TransferLine {
    pub(super) state: String,
    pub(super) destination: String,
}

/// Text of a peer, safe for a terminal.
pub(super) fn shown(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let cut: String = text.chars().take(MAX_TEXT).collect();
    Some(printable(&cut))
}

/// Progress of a call. An event that is older than the list must not take it back.
fn progress(status: &str) -> u8 {
    match status {
        "" => 0,
        "queued" => 1,
        "ringing" => 2,
        "in_progress" => 3,
        _ => 4,
    }
}

impl CallLine {
    /// Makes a call of which only the id is known.
    pub(super) fn new(id: Uuid) -> Self {
        Self {
            id,
            ..Self::default()
        }
    }

    /// Applies an object of the API: a call of the list, or the data of a call's event.
    pub(super) fn update(&mut self, call: &Value) {
        let text = |name: &str| shown(&call[name]);
        let id = |name: &str| api::id_of(call[name].as_str()?).ok();
        if let Some(status) = text("status")
            && progress(&status) >= progress(&self.status)
        {
            self.status = status;
            let latest = ["ended_at", "answered_at", "ringing_at", "started_at"];
            let latest = latest.into_iter().find_map(text);
            self.latest = latest.unwrap_or_default();
            self.has_ended |= call["ended_at"].is_string();
        }

        self.session = id("session_id").or(self.session);
        self.agent = id("agent_id").or(self.agent);
        self.trunk = id("trunk_id").or(self.trunk);
        self.sip_code = call["sip_code"].as_u64().or(self.sip_code);
        let known = [
            (&mut self.direction, "direction"),
            (&mut self.from, "from_number"),
            (&mut self.to, "to_number"),
            (&mut self.started_at, "started_at"),
        ];
        for (field, name) in known {
            if let Some(said) = text(name) {
                *field = said;
            }
        }

        for (field, name) in self.e164.iter_mut().zip(["from_e164", "to_e164"]) {
            *field = text(name).or(field.take());
        }
        self.reason = text("reason").or(self.reason.take());
        self.user_agent = text("user_agent").or(self.user_agent.take());
        for name in ["caller_call_id", "runtime_call_id"] {
            if let Some(said) = text(name).filter(|said| !self.call_ids.contains(said)) {
                self.call_ids.push(said);
            }
        }

        if call["transfer"].is_object() {
            self.take_transfer(&call["transfer"]);
        }
    }

    /// Applies a transfer's object or event.
    pub(super) fn take_transfer(&mut self, transfer: &Value) {
        let text = |name: &str| shown(&transfer[name]);
        let Some(state) = text("status") else {
            return;
        };
        let destination = text("destination").or(text("value")).unwrap_or_default();
        self.transfer = Some(TransferLine { state, destination });
    }

    /// Returns the end of the call and its transfer in a few words.
    pub(super) fn outcome(&self) -> String {
        let code = self.sip_code.map(|code| code.to_string());
        let transfer = self
            .transfer
            .as_ref()
            .map(|transfer| format!("transfer {}", transfer.state));
        let words = [code, self.reason.clone(), transfer];
        words.into_iter().flatten().collect::<Vec<_>>().join("  ")
    }
}

/// The newest calls, in the order in which they began to be known.
#[derive(Clone, Debug, Default)]
pub(super) struct CallTable {
    /// Boxed, so that the map's places are small: a full map that keeps losing and gaining keys doubles once, for the places of removed keys.
    calls: HashMap<Uuid, Box<CallLine>>,
    order: VecDeque<Uuid>,
}

impl CallTable {
    pub(super) fn one(&self, id: Uuid) -> Option<&CallLine> {
        self.calls.get(&id).map(Box::as_ref)
    }

    /// Returns all calls, the oldest first.
    pub(super) fn all(&self) -> impl DoubleEndedIterator<Item = &CallLine> {
        self.order.iter().filter_map(|id| self.one(*id))
    }

    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// Returns a call, which may be new. Beyond the bound the oldest is forgotten.
    pub(super) fn entry(&mut self, id: Uuid) -> &mut CallLine {
        if !self.calls.contains_key(&id) {
            self.order.push_back(id);
        }
        if self.order.len() > MAX_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.calls.remove(&oldest);
        }
        self.calls
            .entry(id)
            .or_insert_with(|| Box::new(CallLine::new(id)))
    }

    /// Applies a page of the list, newest first. Calls from events since then are newer.
    pub(super) fn take_list(&mut self, calls: &[Value]) {
        let fresh = std::mem::take(&mut self.order);
        for call in calls.iter().rev() {
            if let Some(id) = call["id"].as_str().and_then(|id| api::id_of(id).ok()) {
                let line = self
                    .calls
                    .entry(id)
                    .or_insert_with(|| Box::new(CallLine::new(id)));
                line.update(call);
                self.order.push_back(id);
            }
        }

        for id in fresh {
            if !self.order.contains(&id) {
                self.order.push_back(id);
            }
        }
    }

    /// Takes over an event, and returns the call that it is about.
    pub(super) fn take_event(&mut self, event: &Value) -> Option<Uuid> {
        let data = &event["data"];
        let id = data["call_id"]
            .as_str()
            .and_then(|id| api::id_of(id).ok())?;
        if event["type"] == "transfer.updated" {
            // A transfer's event lacks the rest of the call, so it can't add an unknown one.
            self.calls.get_mut(&id)?.take_transfer(data);
        } else {
            self.entry(id).update(data);
        }
        Some(id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id(number: usize) -> String {
        Uuid::from_u128(number as u128 + 1).to_string()
    }

    #[test]
    fn an_event_that_the_list_has_overtaken_takes_nothing_back() {
        let mut table = CallTable::default();
        table.take_event(&json!({"type": "call.started", "data":
            {"call_id": id(1), "status": "queued", "from_number": "a\u{1b}[2J", "started_at": "1", "user_agent": "pbx"}}));
        table.take_list(&[
            json!({"id": id(1), "status": "completed", "ended_at": "3", "sip_code": 200, "caller_call_id": "x"}),
            json!({"id": id(0), "status": "ringing", "ringing_at": "2"}),
        ]);
        table.take_event(
            &json!({"type": "call.ringing", "data": {"call_id": id(1), "status": "ringing"}}),
        );

        let calls: Vec<_> = table.all().collect();
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0].status, "ringing");
        let ended = calls[1];
        assert_eq!((&*ended.status, &*ended.latest), ("completed", "3"));
        assert!(ended.has_ended && ended.call_ids == ["x"], "{ended:?}");
        assert_eq!(ended.from, "a\\u{1b}[2J");
        assert_eq!(ended.user_agent.as_deref(), Some("pbx"));
    }

    #[test]
    fn the_oldest_calls_are_forgotten() {
        let mut table = CallTable::default();
        for number in 0..MAX_CALLS + 5 {
            let data = json!({"call_id": id(number), "status": "queued"});
            table.take_event(&json!({"type": "call.started", "data": data}));
        }
        assert_eq!(table.len(), MAX_CALLS);
        let oldest = table.all().next().map(|call| call.id.to_string());
        assert_eq!(oldest, Some(id(5)));
        let transfer = json!({"call_id": id(0), "status": "requested"});
        let event = json!({"type": "transfer.updated", "data": transfer});
        assert_eq!(table.take_event(&event), None);
    }
}
