//! Retention: the number of days for which each kind of an org's data is stored, by the org's own setting or else the operator's.

use uuid::Uuid;

use crate::driver::column::{count, from_row, maybe};
use crate::driver::edit::set;
use crate::driver::error::{Error, Kind, Wrong};
use crate::driver::tx::Tx;

/// Retention in days, by kind; `None`: not limited.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct RetentionDays {
    /// Calls, with their attempts, transfers and events.
    pub calls: Option<u32>,
    /// Data that came with a call: headers, metadata, and the facts of its INVITE. The call itself stays.
    pub sessions: Option<u32>,
    /// Contacts that no call names any more, counted from their last change.
    pub contacts: Option<u32>,
    /// Handoffs.
    pub handoffs: Option<u32>,
}

/// A kind of data with a retention of its own.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Retained {
    /// See [`RetentionDays::calls`].
    Calls,
    /// See [`RetentionDays::sessions`].
    Sessions,
    /// See [`RetentionDays::contacts`].
    Contacts,
    /// See [`RetentionDays::handoffs`].
    Handoffs,
}

/// A change of an org's retention. Of each field: `None` leaves it, `Some(None)` restores the operator's.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
#[expect(
    missing_docs,
    reason = "the fields are those of RetentionDays, where they are described"
)]
pub struct RetentionChange {
    pub calls: Option<Option<u32>>,
    pub sessions: Option<Option<u32>>,
    pub contacts: Option<Option<u32>>,
    pub handoffs: Option<Option<u32>>,
}

/// The org's own retention, as stored.
pub(crate) struct Row {
    retain_calls_days: Option<u32>,
    retain_sessions_days: Option<u32>,
    retain_contacts_days: Option<u32>,
    retain_handoffs_days: Option<u32>,
}
from_row!(Row {
    retain_calls_days: maybe(count),
    retain_sessions_days: maybe(count),
    retain_contacts_days: maybe(count),
    retain_handoffs_days: maybe(count),
});

impl Retained {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Calls, Self::Sessions, Self::Contacts, Self::Handoffs];

    /// Returns the name as the API and the database have it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Sessions => "sessions",
            Self::Contacts => "contacts",
            Self::Handoffs => "handoffs",
        }
    }

    /// Statement that finds the orgs with data of this kind past its retention, each with the time before which data is deleted. `$1` is the
    /// present time; `$2` is the operator's number of days, for orgs without their own.
    pub(crate) const fn over(self) -> &'static str {
        match self {
            Self::Calls => {
                "SELECT orgs.id, $1 - COALESCE(retain_calls_days, $2) * 86400000000 FROM orgs
                 WHERE COALESCE(retain_calls_days, $2) IS NOT NULL AND EXISTS (
                     SELECT 1 FROM calls WHERE calls.org_id = orgs.id
                     AND started_at < $1 - COALESCE(retain_calls_days, $2) * 86400000000)"
            }
            Self::Sessions => {
                "SELECT orgs.id, $1 - COALESCE(retain_sessions_days, $2) * 86400000000 FROM orgs
                 WHERE COALESCE(retain_sessions_days, $2) IS NOT NULL AND EXISTS (
                     SELECT 1 FROM calls WHERE calls.org_id = orgs.id AND ended_at IS NOT NULL
                     AND (headers IS NOT NULL OR metadata IS NOT NULL OR asked IS NOT NULL)
                     AND started_at < $1 - COALESCE(retain_sessions_days, $2) * 86400000000)"
            }
            Self::Contacts => {
                "SELECT orgs.id, $1 - COALESCE(retain_contacts_days, $2) * 86400000000 FROM orgs
                 WHERE COALESCE(retain_contacts_days, $2) IS NOT NULL AND EXISTS (
                     SELECT 1 FROM contacts WHERE contacts.org_id = orgs.id
                     AND updated_at < $1 - COALESCE(retain_contacts_days, $2) * 86400000000)"
            }
            Self::Handoffs => {
                "SELECT orgs.id, $1 - COALESCE(retain_handoffs_days, $2) * 86400000000 FROM orgs
                 WHERE COALESCE(retain_handoffs_days, $2) IS NOT NULL AND EXISTS (
                     SELECT 1 FROM handoffs WHERE handoffs.org_id = orgs.id
                     AND created_at < $1 - COALESCE(retain_handoffs_days, $2) * 86400000000)"
            }
        }
    }
}

impl RetentionDays {
    /// Returns the days of a kind.
    pub const fn of(&self, kind: Retained) -> Option<u32> {
        match kind {
            Retained::Calls => self.calls,
            Retained::Sessions => self.sessions,
            Retained::Contacts => self.contacts,
            Retained::Handoffs => self.handoffs,
        }
    }

    /// Returns these days, completed by `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            calls: self.calls.or(others.calls),
            sessions: self.sessions.or(others.sessions),
            contacts: self.contacts.or(others.contacts),
            handoffs: self.handoffs.or(others.handoffs),
        }
    }
}

impl Row {
    pub(crate) const fn days(&self) -> RetentionDays {
        RetentionDays {
            calls: self.retain_calls_days,
            sessions: self.retain_sessions_days,
            contacts: self.retain_contacts_days,
            handoffs: self.retain_handoffs_days,
        }
    }
}

pub(crate) const OF_ORG: &str =
    "SELECT retain_calls_days, retain_sessions_days, retain_contacts_days, retain_handoffs_days
     FROM orgs WHERE id = $1 AND deleted_at IS NULL";

/// Changes the org's own retention in the caller's transaction.
pub(crate) fn change(tx: &mut Tx, org: Uuid, change: RetentionChange) -> Result<(), Error> {
    if change == RetentionChange::default() {
        return Ok(());
    }
    let row: Option<Row> = tx.one(OF_ORG, &[&org])?;
    let mut days = row.ok_or(Wrong::Absent(Kind::Org))?.days();

    set(&mut days.calls, change.calls);
    set(&mut days.sessions, change.sessions);
    set(&mut days.contacts, change.contacts);
    set(&mut days.handoffs, change.handoffs);

    tx.run(
        "UPDATE orgs SET retain_calls_days = $2, retain_sessions_days = $3, retain_contacts_days = $4,
             retain_handoffs_days = $5 WHERE id = $1",
        &[&org, &days.calls, &days.sessions, &days.contacts, &days.handoffs],
    )?;
    Ok(())
}
