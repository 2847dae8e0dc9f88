//! Numbers of an org's handoffs: all of them, and the lists that a reason or a confirmation narrows them to.
//!
//! A handoff has the next position in every list that it is in, so that the number within a window is the difference of two positions, less
//! the handoffs that were deleted in between. Those leave their times in `handoff_gaps`, so that no newer handoff is numbered anew.
//! Retention deletes only the oldest.

use trunkline_model::handoff::Reason;
use uuid::Uuid;

use crate::driver::error::Error;
use crate::driver::tx::Tx;

/// Name of the list of all handoffs, which are in `handoffs` alone.
pub(crate) const ALL: &str = "";

/// Condition that a handoff is in the list of this parameter.
macro_rules! has_list {
    ($list:literal) => {
        concat!(
            "(",
            $list,
            " = '' OR EXISTS (SELECT 1 FROM handoff_lists WHERE handoff_lists.org_id = handoffs.org_id AND handoff_lists.list = ",
            $list,
            " AND handoff_lists.created_at = handoffs.created_at))"
        )
    };
}
pub(crate) use has_list;

/// Returns the list that a filter narrows handoffs to.
pub(crate) fn list_name(reason: Option<Reason>, confirmed: Option<bool>) -> String {
    let confirmed = confirmed.map(|confirmed| {
        if confirmed {
            "confirmed"
        } else {
            "unconfirmed"
        }
    });
    let words = [reason.map(Reason::as_str), confirmed];
    let words: Vec<_> = words.into_iter().flatten().collect();
    words.join(" ")
}

/// Adds a handoff to a list as its newest.
pub(crate) fn add(tx: &mut Tx, org: Uuid, list: &str, handoff: Uuid, at: i64) -> Result<(), Error> {
    tx.run(
        "INSERT INTO handoff_lists (org_id, list, created_at, handoff_id, position)
         VALUES ($1, $2, $3, $4, 1 + COALESCE((SELECT position FROM handoff_lists WHERE org_id = $1 AND list = $2
                                               ORDER BY created_at DESC LIMIT 1), 0))",
        &[&org, &list, &at, &handoff],
    )?;
    Ok(())
}

/// Notes that the handoff of this time was deleted from a list: positions of newer ones still count it. If none is newer, the next handoff gets
/// the position of the oldest handoff that is missing at the end, and nothing is noted of those.
pub(crate) fn note_deleted(tx: &mut Tx, org: Uuid, list: &str, at: i64) -> Result<(), Error> {
    let newest: Option<(i64,)> = match list {
        ALL => tx.one(
            "SELECT created_at FROM handoffs WHERE org_id = $1 ORDER BY created_at DESC LIMIT 1",
            &[&org],
        )?,
        list => tx.one(
            "SELECT created_at FROM handoff_lists WHERE org_id = $1 AND list = $2 ORDER BY created_at DESC LIMIT 1",
            &[&org, &list],
        )?,
    };

    let newest = newest.map_or(-1, |(newest,)| newest);
    if newest > at {
        let sql = "INSERT INTO handoff_gaps (org_id, list, created_at) VALUES ($1, $2, $3)";
        tx.run(sql, &[&org, &list, &at])?;
    } else {
        let sql = "DELETE FROM handoff_gaps WHERE org_id = $1 AND list = $2 AND created_at > $3";
        tx.run(sql, &[&org, &list, &newest])?;
    }
    Ok(())
}

/// Forgets the deleted handoffs that are older than all others, after the oldest ones were deleted.
pub(crate) fn forget_oldest(tx: &mut Tx, org: Uuid) -> Result<(), Error> {
    let sql = "DELETE FROM handoff_gaps WHERE org_id = $1
        AND created_at < COALESCE((SELECT created_at FROM handoffs WHERE org_id = $1 ORDER BY created_at LIMIT 1), $2)";
    tx.run(sql, &[&org, &i64::MAX])?;
    Ok(())
}

/// Number of handoffs in a window of one list, `$1` being the org, `$2` and `$3` the times before it and of its end, and `$4` the list. The
/// lowest position left may be above 1, since retention deletes the oldest rows. A gap counts only between two handoffs.
macro_rules! count {
    ($rows:literal) => {
        concat!(
            "SELECT COALESCE((SELECT position FROM ",
            $rows,
            " AND created_at <= $3 ORDER BY created_at DESC LIMIT 1), 0)
                  - COALESCE((SELECT position FROM ",
            $rows,
            " AND created_at <= $2 ORDER BY created_at DESC LIMIT 1),
                             (SELECT position - 1 FROM ",
            $rows,
            " ORDER BY created_at LIMIT 1), 0)
                  - (SELECT COUNT(*) FROM handoff_gaps WHERE org_id = $1 AND list = $4
                     AND created_at > COALESCE((SELECT created_at FROM ",
            $rows,
            " AND created_at <= $2 ORDER BY created_at DESC LIMIT 1),
                                               (SELECT created_at FROM ",
            $rows,
            " ORDER BY created_at LIMIT 1))
                     AND created_at < (SELECT created_at FROM ",
            $rows,
            " AND created_at <= $3 ORDER BY created_at DESC LIMIT 1))"
        )
    };
}

/// Returns the number of the list's handoffs later than `before`, up to `end`.
pub(crate) fn count(
    tx: &mut Tx,
    org: Uuid,
    list: &str,
    before: i64,
    end: i64,
) -> Result<i64, Error> {
    let (count,): (i64,) = match list {
        ALL => tx.exactly_one(
            count!("handoffs WHERE org_id = $1"),
            &[&org, &before, &end, &ALL],
        ),
        list => tx.exactly_one(
            count!("handoff_lists WHERE org_id = $1 AND list = $4"),
            &[&org, &before, &end, &list],
        ),
    }?;

    Ok(count.max(0))
}
