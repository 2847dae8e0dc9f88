//! Judgement of a recognised message: its content, and its time.

use std::time::Duration;

use super::super::compare::{Sides, compare_messages, stated};
use super::{Item, Message, Session};

impl Session<'_> {
    /// Returns the differences between a captured message and a received one: part, expected and found value. Statements about the content
    /// replace the comparison with the captured message; a `within` replaces that with the captured time.
    ///
    /// `captured` is the captured time of the message before it on the same side, and `after` the time since that message in the replay.
    pub(super) fn compare(
        &self,
        item: &Item,
        message: &Message,
        captured: u64,
        after: Duration,
    ) -> Vec<(String, String, String)> {
        let is_of_time = |statement: &String| statement.starts_with("within ");
        let is_of_content = |statement: &String| statement != "optional" && !is_of_time(statement);

        let statements = item.expectations.iter();
        let mut differences: Vec<_> = statements
            .filter_map(|statement| stated(statement, message, after.as_secs_f64()))
            .collect();

        if !item.expectations.iter().any(is_of_content) {
            let sides = Sides {
                captured: &self.captured,
                live: &self.live,
            };
            differences.extend(compare_messages(&item.message, message, &sides));
        }

        if !item.expectations.iter().any(is_of_time) {
            differences.extend(self.lateness(item, captured, after));
        }

        differences
    }

    /// Returns the deviation of a message from its captured time, if it exceeds the tolerance. Only a replay at the captured speed can tell
    /// that a message is early.
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
