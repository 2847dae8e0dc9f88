//! Headers and body of a BYE.

use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::crossing::Crossing;
use super::dial_failure::reason_line;
use super::refusal::Reason;

/// Headers and body of a BYE.
#[derive(Debug, Default)]
pub(crate) struct ByeContent {
    pub(crate) lines: Box<[u8]>,
    pub(crate) body: Box<[u8]>,
}

impl ByeContent {
    /// Content of a BYE by which we end the call ourselves.
    pub(crate) fn ours(reason: Reason) -> Self {
        let mut lines = Vec::new();
        reason_line(&mut Head::new(&mut lines), reason);
        Self {
            lines: lines.into(),
            body: Box::default(),
        }
    }

    /// Content of a BYE that relays the other leg's.
    pub(crate) fn of(bye: &Message<'_>, crossing: Crossing<'_>) -> Self {
        let mut lines = Vec::new();
        crossing.copy(&mut Head::new(&mut lines), bye);
        Self {
            lines: lines.into(),
            body: crossing.body(bye).into(),
        }
    }
}
