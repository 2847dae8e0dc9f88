//! Judgement of a recognised message: its parts, and its time.

use std::time::Duration;

use super::super::compare::{Sides, compare_messages, stated};
use super::{Item, Message, Session};

impl Session<'_> {
    pub(super) fn compare(
        &self,
        item: &Item,
        message: &Message,
        captured: u64,
        after: Duration,
    ) -> Vec<(String, String, String)> {
        let statements = item.expectations.iter();
        let mut differences: Vec<_> = statements
            .filter_map(|statement| stated(statement, message, after.as_secs_f64()))
            .collect();
        let is_stated = item
            .expectations
            .iter()
            .any(|statement| statement != "optional" && !statement.starts_with("within "));
        let sides = Sides {
            captured: &self.captured,
            live: &self.live,
        };

        if !is_stated {
            differences.extend(compare_messages(&item.message, message, &sides));
        }

        if !item
            .expectations
            .iter()
            .any(|statement| statement.starts_with("within "))
        {
            differences.extend(self.lateness(item, captured, after));
        }

        differences
    }

    /// Returns the deviation of a response from its captured time, if it exceeds the tolerance. Early messages can only be judged at the
    /// captured speed.
    pub(super) fn lateness(
        &self,
        item: &Item,
        captured: u64,
        after: Duration,
    ) -> Option<(String, String, String)> {
        let recorded = Duration::from_micros(item.at.saturating_sub(captured));
        let is_late = after > recorded + self.options.tolerance;
        let is_early = self.options.speed == Some(1.0) && after + self.options.tolerance < recorded;
        (is_late || is_early).then(|| {
            let shown = |time: Duration| format!("after {:.3} s", time.as_secs_f64());
            ("time".to_owned(), shown(recorded), shown(after))
        })
    }
}
