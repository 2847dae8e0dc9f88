//! Knowledge of whether a binding's way still leads to its PBX.

use trunkline_sip::moment::Moment;

/// Signs of life by a binding's flow.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct Liveness {
    /// When it is asked next.
    pub(super) due_at: Option<Moment>,
    /// It has answered before, so that its silence means something.
    pub(super) has_answered: bool,
    /// Questions in a row without an answer.
    pub(super) silent: u8,
    pub(super) is_unreachable: bool,
}

impl Liveness {
    /// Returns whether what was sent to it last wasn't answered.
    pub const fn is_unreachable(&self) -> bool {
        self.is_unreachable
    }

    /// It has sent something.
    pub(super) const fn hear(&mut self) {
        self.silent = 0;
        self.is_unreachable = false;
    }
}
