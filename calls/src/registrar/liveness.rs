//! Liveness of a binding's flow.

use trunkline_sip::moment::Moment;

/// Signs of life on a binding's flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Liveness {
    /// Time of the next OPTIONS.
    pub(super) due_at: Option<Moment>,
    /// It has answered an OPTIONS before, so that its silence means something.
    pub(super) has_answered: bool,
    /// Unanswered OPTIONS in a row.
    pub(super) silent: u8,
    pub(super) is_unreachable: bool,
}

impl Liveness {
    /// Returns whether the last requests to it weren't answered.
    pub const fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// Notes a message on the flow.
    pub(super) const fn hear(&mut self) {
        self.silent = 0;
        self.is_unreachable = false;
    }
}
