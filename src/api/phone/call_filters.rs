//! Filters of `GET /phone/calls`, as the query and the cursors carry them.

use axum::http::HeaderName;
use serde::{Deserialize, Serialize};
use trunkline_model::record::{Direction, Status};
use trunkline_routing::E164;
use trunkline_sip::moment::Moment;
use trunkline_store::{Call, CallFilter};
use uuid::Uuid;

use crate::api::field_type::{Choice, id};
use crate::api::query::Query;
use crate::api::time;

/// Old name of the filter `phone_number`.
pub(super) const OLD_NUMBER: &str = "number";

/// Header of an answer to a request that uses the old name: since when it is deprecated, and until when it works (RFC 9745, RFC 8594).
pub(super) const OLD_NUMBER_NOTICE: [(HeaderName, &str); 2] = [
    // 30 November 2026.
    (HeaderName::from_static("deprecation"), "@1795996800"),
    (
        HeaderName::from_static("sunset"),
        "Tue, 30 Nov 2027 00:00:00 GMT",
    ),
];

/// Filters of a list. The cursor carries them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CallFilters {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) agent_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) trunk_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) direction: Option<Direction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) number: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) start_date: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) end_date: Option<Moment>,
}

impl CallFilters {
    pub(super) fn read(query: &mut Query) -> Self {
        let filters = Self {
            agent_id: query.read("agent_id", |text| {
                id(text).ok_or_else(|| "expected an agent's id".to_owned())
            }),
            trunk_id: query.read("trunk_id", |text| {
                id(text).ok_or_else(|| "expected a trunk's id".to_owned())
            }),
            direction: query.read("direction", |text| DIRECTION.meaning(text)),
            status: query.read("status", |text| STATUS.meaning(text)),
            number: query
                .read("phone_number", number)
                .or_else(|| query.read(OLD_NUMBER, number)),
            start_date: query.read("start_date", time::start),
            end_date: query.read("end_date", time::end),
        };

        query.expect_ordered_dates(filters.start_date.zip(filters.end_date), "");
        filters
    }

    /// Returns true if no ended call can match.
    pub(super) fn is_of_live_calls(&self) -> bool {
        matches!(
            self.status,
            Some(Status::Queued | Status::Ringing | Status::InProgress)
        )
    }

    pub(super) fn for_store(&self) -> CallFilter {
        CallFilter {
            agent: self.agent_id,
            trunk: self.trunk_id,
            direction: self.direction,
            status: self.status,
            number: self.number.clone(),
            from: self.start_date,
            to: self.end_date,
        }
    }

    pub(super) fn matches(&self, call: &Call) -> bool {
        // By the rules of the store's query: otherwise a live call would come and go as it becomes a row.
        let is_number = |number: &str| {
            [
                Some(&*call.from_number),
                Some(&*call.to_number),
                call.from_e164.as_ref().map(E164::as_str),
                call.to_e164.as_ref().map(E164::as_str),
            ]
            .contains(&Some(number))
        };

        self.agent_id
            .is_none_or(|agent| call.agent_id == Some(agent))
            && self
                .trunk_id
                .is_none_or(|trunk| call.trunk_id == Some(trunk))
            && self
                .direction
                .is_none_or(|direction| call.direction == direction)
            && self.status.is_none_or(|status| call.status == status)
            && self.number.as_deref().is_none_or(is_number)
            && self.start_date.is_none_or(|start| call.started_at >= start)
            && self.end_date.is_none_or(|end| call.started_at <= end)
    }
}

/// Reads a number, as sent or in E.164. A `+` that the client forgot to escape arrives as a blank.
fn number(text: &str) -> Result<String, String> {
    if text.chars().any(char::is_control) {
        return Err("must not contain control characters".to_owned());
    }
    match text.strip_prefix(' ') {
        Some(digits) if !digits.is_empty() => Ok(format!("+{digits}")),
        None if !text.is_empty() => Ok(text.to_owned()),
        Some(_) | None => Err("must not be empty".to_owned()),
    }
}

const DIRECTION: Choice<Direction> = Choice(&[
    ("inbound", Direction::Inbound),
    ("outbound", Direction::Outbound),
]);
const STATUS: Choice<Status> = Choice(&[
    ("queued", Status::Queued),
    ("ringing", Status::Ringing),
    ("in_progress", Status::InProgress),
    ("completed", Status::Completed),
    ("busy", Status::Busy),
    ("no_answer", Status::NoAnswer),
    ("failed", Status::Failed),
    ("canceled", Status::Canceled),
    ("refused", Status::Refused),
    ("transferred", Status::Transferred),
    ("lost", Status::Lost),
]);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_json() {
        let Choice(directions) = DIRECTION;
        assert!(
            directions
                .iter()
                .all(|(word, meaning)| *word == meaning.as_str())
        );
        let Choice(statuses) = STATUS;
        assert!(
            statuses
                .iter()
                .all(|(word, meaning)| *word == meaning.as_str())
        );
        let schema = schemars::schema_for!(Status).to_value();
        let all = schema["oneOf"].as_array().map_or(0, Vec::len);
        assert_eq!(statuses.len(), all, "{schema}");
    }
}
