//! Output of a session: its items in order, with the unexpected messages in between.

use trunkline_sip::moment::Moment;

use super::super::script::label;
use super::super::{Outcome, Step};
use super::{Role, Session, State};

impl Session<'_> {
    /// Returns the steps of the replay: each item of the script, and each unexpected message behind the items that were done when it came.
    pub(super) fn ladder(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let time = |when: Moment| when.since(self.started).as_secs_f64();

        let mut extra = self.extra.iter().peekable();
        for at in 0..=self.items.len() {
            while let Some((_, when, party, shown, outcome)) =
                extra.next_if(|(items_before, ..)| *items_before <= at)
            {
                steps.push(Step {
                    message: None,
                    from: Role::Us.as_str(),
                    to: party.as_str(),
                    captured: None,
                    captured_at_s: None,
                    replayed: Some(shown.clone()),
                    replayed_at_s: Some(time(*when)),
                    outcome: *outcome,
                });
            }

            // One turn more than there are items, for the messages behind the last.
            let Some(item) = self.items.get(at) else {
                break;
            };

            let (outcome, when) = match self.states[at] {
                State::Done(outcome, when) => (outcome, Some(when)),
                State::Pending if self.is_beyond => (Outcome::OutOfReach, None),
                State::Pending if item.is_optional && !self.is_over => (Outcome::Absent, None),
                State::Pending => (Outcome::NotReached, None),
            };

            #[expect(clippy::cast_precision_loss, reason = "microseconds of a call fit")]
            let captured_at_s = item.at as f64 / 1e6;
            steps.push(Step {
                message: Some(item.index + 1),
                from: item.from().as_str(),
                to: item.to().as_str(),
                captured: Some(label(&item.message)),
                captured_at_s: Some(captured_at_s),
                replayed: self.seen[at].clone(),
                replayed_at_s: when.filter(|_| self.seen[at].is_some()).map(time),
                outcome,
            });
        }

        steps
    }
}
