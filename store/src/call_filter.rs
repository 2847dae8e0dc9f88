//! Filter for calls, as readers give it.

use trunkline_model::record::{Direction, Status};
use trunkline_sip::moment::Moment;
use uuid::Uuid;

/// Filter for calls; `None` matches everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CallFilter {
    /// Calls of this agent.
    pub agent: Option<Uuid>,
    /// Calls over this trunk.
    pub trunk: Option<Uuid>,
    /// Calls of this direction.
    pub direction: Option<Direction>,
    /// Calls of this status.
    pub status: Option<Status>,
    /// Calls from or to this number, as sent or as E.164.
    pub number: Option<String>,
    /// Started at this time or later.
    pub from: Option<Moment>,
    /// Started at this time or before.
    pub to: Option<Moment>,
}

/// Conditions of the filter, on `$1` to `$8`, for rows that are found by something else. A row whose first fact hasn't been projected is left
/// out: its time is NULL.
macro_rules! matching {
    () => {
        "org_id = $1
         AND ($2 IS NULL OR agent_id = $2)
         AND ($3 IS NULL OR direction = $3)
         AND ($4 IS NULL OR status = $4)
         AND ($5 IS NULL OR $5 IN (from_number, to_number, from_e164, to_e164))
         AND started_at BETWEEN $6 AND $7
         AND ($8 IS NULL OR trunk_id = $8)"
    };
}
pub(super) use matching;

impl CallFilter {
    /// Returns whether nothing but the time restricts the calls, so that an index alone finds them.
    pub(super) const fn is_unrestricted(&self) -> bool {
        self.agent.is_none()
            && self.trunk.is_none()
            && self.direction.is_none()
            && self.status.is_none()
            && self.number.is_none()
    }
}
