//! Ids of new rows.

use trunkline_sip::moment::Moment;
use uuid::{NoContext, Timestamp, Uuid};

use super::acting;

/// Returns the id of a new row, and notes it: the audit log names the first one that a transaction creates.
pub(crate) fn new_id(now: Moment) -> Uuid {
    let id = id_at(now);
    acting::made(id);
    id
}

/// Returns a new id: UUIDv7, so that ids sort by time.
pub(crate) fn id_at(now: Moment) -> Uuid {
    let nanos =
        u32::try_from(now.as_micros() % 1_000_000 * 1_000).expect("below a thousand million");
    Uuid::new_v7(Timestamp::from_unix(NoContext, now.as_secs(), nanos))
}
