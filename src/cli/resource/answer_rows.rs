//! Rows of a table, made of answers that aren't lists of items.

use serde_json::{Value, json};

/// The items of a list in one piece.
pub(super) fn items(mut answer: Value) -> Value {
    answer["items"].take()
}

/// A row for each limit of an org.
pub(super) fn limits(answer: Value) -> Value {
    let limits = answer.as_object().into_iter().flatten();
    let rows = limits.map(|(name, limit)| {
        json!({
            "limit": name,
            "value": limit["limit"],
            "used": limit["used"],
            "partner_max": limit["max"],
        })
    });
    rows.collect()
}

/// A row for each kind of data of an org that is kept for some days.
pub(super) fn retention(answer: Value) -> Value {
    let own = answer["retention"].as_object().into_iter().flatten();
    let rows = own.map(|(name, days)| {
        json!({
            "data": name.trim_end_matches("_days"),
            "days": days,
            "days_in_force": answer["retention_in_force"][name],
        })
    });
    rows.collect()
}
