//! What an event is: its type, whom it is of, and the JSON that every reader gets.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use trunkline_model::registration::{Kept, Loss};
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::column::{to_json, written};
use super::id_at;

/// What happened. Documented with its data in `docs/events.md`.
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
    /// All of them.
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

    /// As it is written.
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

/// An event that is to be recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewEvent {
    pub(super) id: Uuid,
    pub(super) org: Uuid,
    pub(super) kind: EventType,
    pub(super) at: Moment,
    pub(super) tells: Tells,
}

/// An event as it was recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Its number: later ones are higher.
    pub seq: i64,
    /// Its id.
    pub id: Uuid,
    /// The name of its type.
    pub kind: String,
    /// Its JSON.
    pub body: String,
}

/// What an event's row holds of its JSON.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Tells {
    /// All of it.
    Whole(String),
    /// The call whose row tells the rest, and its contact, which a row may learn later.
    Call { call: Uuid, contact: Option<Uuid> },
}

/// The JSON of an event, in this order.
#[derive(Serialize)]
struct Body<'d, D> {
    id: Uuid,
    r#type: &'d str,
    timestamp: String,
    data: &'d D,
}

/// A PBX that has registered, as its event shows it. Times are those of the wall clock.
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

impl<'p> From<&'p Kept> for RegisteredPbx<'p> {
    fn from(kept: &'p Kept) -> Self {
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
    /// Something that happened now, once. `data` is what `docs/events.md` says of the type.
    pub fn new(org: Uuid, kind: EventType, data: &Value, now: Moment) -> Self {
        Self::with_id(id_at(now), org, kind, data, now)
    }

    /// A PBX has registered for a trunk that had no registration.
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

    /// A trunk has no registration any more.
    pub fn trunk_lost((org, trunk): (Uuid, Uuid), loss: Loss, now: Moment) -> Self {
        let data = json!({"trunk_id": trunk, "reason": loss.as_str()});
        Self::new(org, EventType::TrunkLost, &data, now)
    }

    /// Something that may be recorded again, as facts are when they are projected twice: the same type, subject and time make
    /// the same event, and it is kept once, as it was recorded first.
    pub fn of(
        org: Uuid,
        kind: EventType,
        subject: Uuid,
        data: &impl Serialize,
        at: Moment,
    ) -> Self {
        Self::with_id(repeatable_id(kind, subject, at), org, kind, data, at)
    }

    /// What happened to a call whose row says the rest: its JSON is made when it is read.
    pub(super) fn of_call(
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
            tells: Tells::Call { call, contact },
        }
    }

    fn with_id(id: Uuid, org: Uuid, kind: EventType, data: &impl Serialize, at: Moment) -> Self {
        Self {
            id,
            org,
            kind,
            at,
            tells: Tells::Whole(body(id, kind.as_str(), at, data)),
        }
    }
}

/// An event's JSON.
pub(super) fn body(id: Uuid, kind: &str, at: Moment, data: &impl Serialize) -> String {
    to_json(&Body {
        id,
        r#type: kind,
        timestamp: written(at),
        data,
    })
}

/// A UUIDv7 whose random part comes of what it names.
pub(super) fn repeatable_id(kind: EventType, subject: Uuid, at: Moment) -> Uuid {
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
            event.tells,
            Tells::Whole(format!(
                r#"{{"id":"{id}","type":"key.revoked","timestamp":"2026-01-31T12:00:00.123Z","data":{{"a":1}}}}"#
            ))
        );
    }
}
