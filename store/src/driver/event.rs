//! An event: its type, its org, and the JSON that every reader gets.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use trunkline_model::registration::{BindingLoss, StoredBinding};
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{to_json, written};
use super::ids::id_at;

/// Type of an event. Documented with its data in `docs/events.md`.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, schemars::JsonSchema)]
#[expect(missing_docs, reason = "the names say it")]
pub enum EventType {
    #[serde(rename = "call.started")]
    CallStarted,
    #[serde(rename = "call.ringing")]
    CallRinging,
    #[serde(rename = "call.answered")]
    CallAnswered,
    #[serde(rename = "call.ended")]
    CallEnded,
    #[serde(rename = "call.refused")]
    CallRefused,
    #[serde(rename = "transfer.updated")]
    TransferUpdated,
    #[serde(rename = "trunk.registered")]
    TrunkRegistered,
    #[serde(rename = "trunk.lost")]
    TrunkLost,
    #[serde(rename = "handoff.created")]
    HandoffCreated,
    #[serde(rename = "key.revoked")]
    KeyRevoked,
    #[serde(rename = "number.verified")]
    NumberVerified,
}

impl EventType {
    /// All variants.
    pub const ALL: [Self; 11] = [
        Self::CallStarted,
        Self::CallRinging,
        Self::CallAnswered,
        Self::CallEnded,
        Self::CallRefused,
        Self::TransferUpdated,
        Self::TrunkRegistered,
        Self::TrunkLost,
        Self::HandoffCreated,
        Self::KeyRevoked,
        Self::NumberVerified,
    ];

    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CallStarted => "call.started",
            Self::CallRinging => "call.ringing",
            Self::CallAnswered => "call.answered",
            Self::CallEnded => "call.ended",
            Self::CallRefused => "call.refused",
            Self::TransferUpdated => "transfer.updated",
            Self::TrunkRegistered => "trunk.registered",
            Self::TrunkLost => "trunk.lost",
            Self::HandoffCreated => "handoff.created",
            Self::KeyRevoked => "key.revoked",
            Self::NumberVerified => "number.verified",
        }
    }
}

/// An event to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEvent {
    pub(crate) id: Uuid,
    pub(crate) org: Uuid,
    pub(crate) kind: EventType,
    pub(crate) at: Moment,
    pub(crate) body: EventBody,
}

/// A recorded event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Sequence number: later events have higher ones.
    pub seq: i64,
    /// Its id.
    pub id: Uuid,
    /// Name of the type.
    pub kind: String,
    /// Its JSON.
    pub body: String,
}

/// The part of an event's JSON that its row holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum EventBody {
    /// The whole JSON.
    Whole(String),
    /// The call from whose row the JSON is built, and the call's contact, which the row may learn later.
    Call { call: Uuid, contact: Option<Uuid> },
}

/// The JSON of an event, with its fields in this order.
#[derive(Serialize)]
struct Body<'d, D> {
    id: Uuid,
    r#type: &'d str,
    timestamp: String,
    data: &'d D,
}

/// A registered PBX, as its event shows it. Times are those of the wall clock.
#[derive(Copy, Clone, Debug)]
#[expect(missing_docs, reason = "docs/events.md says it")]
pub struct RegisteredPbx<'p> {
    pub org: Uuid,
    pub trunk: Uuid,
    pub contact: &'p str,
    pub source: SocketAddr,
    pub transport: Transport,
    pub user_agent: Option<&'p str>,
    pub registered_at: Moment,
    pub expires_at: Moment,
}

impl<'p> From<&'p StoredBinding> for RegisteredPbx<'p> {
    fn from(kept: &'p StoredBinding) -> Self {
        Self {
            org: kept.org,
            trunk: kept.trunk,
            contact: &kept.contact,
            source: kept.source,
            transport: kept.transport,
            user_agent: kept.user_agent.as_deref(),
            registered_at: kept.registered_at,
            expires_at: kept.expires_at,
        }
    }
}

impl NewEvent {
    /// Returns the call whose row the event is built from.
    pub(crate) const fn call(&self) -> Option<Uuid> {
        match &self.body {
            EventBody::Call { call, .. } => Some(*call),
            EventBody::Whole(_) => None,
        }
    }

    /// Creates an event that happens now and is recorded once. `data` is documented in `docs/events.md`.
    pub fn new(org: Uuid, kind: EventType, data: &Value, now: Moment) -> Self {
        Self::with_id(id_at(now), org, kind, data, now)
    }

    /// Creates the event of a trunk that had no registration and now has one.
    pub fn trunk_registered(pbx: &RegisteredPbx<'_>, now: Moment) -> Self {
        let data = json!({
            "trunk_id": pbx.trunk,
            "contact": pbx.contact,
            "source": pbx.source.to_string(),
            "transport": pbx.transport.uri_name(),
            "user_agent": pbx.user_agent,
            "registered_at": written(pbx.registered_at),
            "expires_at": written(pbx.expires_at),
        });
        Self::new(pbx.org, EventType::TrunkRegistered, &data, now)
    }

    /// Creates the event of a trunk that has lost its last registration.
    pub fn trunk_lost(org: Uuid, trunk: Uuid, loss: BindingLoss, now: Moment) -> Self {
        let data = json!({"trunk_id": trunk, "reason": loss.as_str()});
        Self::new(org, EventType::TrunkLost, &data, now)
    }

    /// Creates an event that may be recorded again, as happens when facts are projected twice: the same type, subject and time make the
    /// same event, which is stored once, in its first version.
    pub fn of(
        org: Uuid,
        kind: EventType,
        subject: Uuid,
        data: &impl Serialize,
        at: Moment,
    ) -> Self {
        Self::with_id(repeatable_id(kind, subject, at), org, kind, data, at)
    }

    /// Creates the event for the assumed end of a lost call.
    pub(crate) fn lost_end(
        org: Uuid,
        call: Uuid,
        started_at: Moment,
        data: &impl Serialize,
        at: Moment,
    ) -> Self {
        let id = lost_end_id(call, started_at);
        Self::with_id(id, org, EventType::CallEnded, data, at)
    }

    /// Creates an event of a call. Its JSON is built from the call's row when it is read.
    pub(crate) fn of_call(
        org: Uuid,
        kind: EventType,
        call: Uuid,
        contact: Option<Uuid>,
        at: Moment,
    ) -> Self {
        Self {
            id: repeatable_id(kind, call, at),
            org,
            kind,
            at,
            body: EventBody::Call { call, contact },
        }
    }

    fn with_id(id: Uuid, org: Uuid, kind: EventType, data: &impl Serialize, at: Moment) -> Self {
        Self {
            id,
            org,
            kind,
            at,
            body: EventBody::Whole(body(id, kind.as_str(), at, data)),
        }
    }
}

/// Returns an event's JSON.
pub(crate) fn body(id: Uuid, kind: &str, at: Moment, data: &impl Serialize) -> String {
    to_json(&Body {
        id,
        r#type: kind,
        timestamp: written(at),
        data,
    })
}

/// Returns the id of the event for the assumed end of a lost call. The true end may change the time in the call's row later, so the id is
/// derived from the call's start.
pub(crate) fn lost_end_id(call: Uuid, started_at: Moment) -> Uuid {
    repeatable_id(EventType::CallEnded, call, started_at)
}

/// Returns a UUIDv7 whose random part is derived from type, subject and time.
pub(crate) fn repeatable_id(kind: EventType, subject: Uuid, at: Moment) -> Uuid {
    let digest = Sha256::new()
        .chain_update(b"trunkline event\0")
        .chain_update(kind.as_str())
        .chain_update(subject.as_bytes())
        .chain_update(at.as_micros().to_be_bytes())
        .finalize();
    let mut rest = [0; 10];
    rest.copy_from_slice(&digest[..10]);
    uuid::Builder::from_unix_timestamp_millis(at.as_millis(), &rest).into_uuid()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ORG: Uuid = Uuid::from_u128(1);
    const AT: Moment = Moment::from_micros(1_769_860_800_123_456);

    #[test]
    fn names_are_those_of_the_json() {
        for kind in EventType::ALL {
            assert_eq!(to_json(&kind), format!("\"{}\"", kind.as_str()));
        }
    }

    #[test]
    fn what_is_recorded_again_has_the_same_id_and_nothing_else_has() {
        let of =
            |kind, subject, at| NewEvent::of(ORG, kind, Uuid::from_u128(subject), &json!({}), at);
        let event = of(EventType::CallEnded, 7, AT);
        assert_eq!(event, of(EventType::CallEnded, 7, AT));

        for other in [
            of(EventType::CallStarted, 7, AT),
            of(EventType::CallEnded, 8, AT),
            of(
                EventType::CallEnded,
                7,
                Moment::from_micros(AT.as_micros() + 1),
            ),
            NewEvent::new(ORG, EventType::CallEnded, &json!({}), AT),
        ] {
            assert_ne!(event.id, other.id);
        }

        assert_eq!(event.id.get_version_num(), 7);
    }

    #[test]
    fn the_body_tells_all() {
        let event = NewEvent::of(ORG, EventType::KeyRevoked, ORG, &json!({"a": 1}), AT);
        let id = event.id;
        assert_eq!(
            event.body,
            EventBody::Whole(format!(
                r#"{{"id":"{id}","type":"key.revoked","timestamp":"2026-01-31T12:00:00.123Z","data":{{"a":1}}}}"#
            ))
        );
    }
}
