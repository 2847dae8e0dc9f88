//! `[retention]`: days for which data of orgs is kept, unless an org has days of its own. Without a key the data stays
//! until it is deleted otherwise.

use super::section::Section;

/// Days for which data is kept, by kind; `None`: until it is deleted otherwise.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Retention {
    /// Calls, with their attempts, transfers and events.
    pub calls_days: Option<u32>,
    /// Headers and metadata of a call, and the facts of its INVITE.
    pub sessions_days: Option<u32>,
    /// Contacts that no call names any more.
    pub contacts_days: Option<u32>,
    /// Handoffs.
    pub handoffs_days: Option<u32>,
}

impl Retention {
    /// Maximum number of days.
    pub const LONGEST: u32 = 36_500;

    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            calls_days: section.number("calls_days", 1..=Self::LONGEST),
            sessions_days: section.number("sessions_days", 1..=Self::LONGEST),
            contacts_days: section.number("contacts_days", 1..=Self::LONGEST),
            handoffs_days: section.number("handoffs_days", 1..=Self::LONGEST),
        }
    }
}
