//! Callers who want privacy (RFC 3323): their headers, number and From reach neither the agent's runtime nor a transfer destination. The record keeps
//! them. The table in `crossing` has a column for these headers.

use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::privacy::{ANONYMOUS_URI, Privacy};
use trunkline_sip::wire::Message;
use trunkline_sip::wire::print::Head;

use super::crossing::{Crossing, CrossingKind, Identity, wanted};

/// Octets of a caller's headers that are kept for transfer destinations; more than that is dropped.
const KEPT: usize = 4_096;
/// Largest From whose display name is kept for transfer destinations, in octets.
const LONGEST_FROM: u16 = 512;

/// User of an anonymous caller.
pub const ANONYMOUS_USER: &str = "anonymous";
pub(crate) const ANONYMOUS_HOST: &str = "anonymous.invalid";

/// Caller identity as runtimes and transfer destinations get it.
#[derive(Debug, Default)]
pub(crate) struct CallerIdentity {
    privacy: Privacy,
    /// Octets of `kept` that are From, where it has a display name.
    from: u16,
    /// From, and behind it the header lines of the INVITE for transfer destinations: one allocation, for there are many calls.
    kept: Box<[u8]>,
}

impl CallerIdentity {
    /// Reads it from a caller's INVITE.
    pub(crate) fn of(invite: &Message<'_>, prefix: &str) -> Self {
        let privacy = wanted(invite);
        let is_withheld = privacy.hides_identity();
        let named = NameAddr::parse(invite.from());
        let is_named = named.is_ok_and(|from| from.display.is_some());
        let from = match invite.from() {
            from if is_named && !is_withheld && from.len() <= LONGEST_FROM.into() => from,
            _ => b"",
        };

        let mut lines = Vec::new();
        let crossing = Crossing {
            kind: CrossingKind::HandedOver,
            identity: withheld_by(privacy),
            prefix,
        };
        crossing.copy_without_body(&mut Head::new(&mut lines), invite);
        // Dropped whole, since a cut could leave half a header.
        if lines.len() > KEPT {
            lines.clear();
        }
        Self {
            privacy,
            from: u16::try_from(from.len()).unwrap_or_default(),
            kept: [from, &lines].concat().into(),
        }
    }

    pub(crate) fn is_withheld(&self) -> bool {
        self.privacy.hides_identity()
    }

    /// Rule for the headers of messages that come from the caller.
    pub(crate) const fn rule(&self) -> Identity {
        withheld_by(self.privacy)
    }

    /// Display name in the caller's From, as sent. `None` for the URI of another leg, which may have replaced the caller's.
    pub(crate) fn display_name(&self, uri: &[u8]) -> Option<&[u8]> {
        let from = NameAddr::parse(&self.kept[..usize::from(self.from)]).ok()?;
        from.display.filter(|_| from.uri == uri)
    }

    /// Header lines for transfer destinations.
    pub(crate) fn lines(&self) -> &[u8] {
        &self.kept[usize::from(self.from)..]
    }

    /// Returns the From for the runtime, without a tag.
    pub(crate) fn shown(&self, named: Vec<u8>) -> Vec<u8> {
        match self.is_withheld() {
            true => format!("\"Anonymous\" <{ANONYMOUS_URI}>").into(),
            false => named,
        }
    }
}

const fn withheld_by(privacy: Privacy) -> Identity {
    match privacy {
        Privacy::None => Identity::AsAsked,
        Privacy::Identity | Privacy::User | Privacy::Header => Identity::Withheld(privacy),
    }
}
