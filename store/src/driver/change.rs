//! Kinds of changes that other parts of the program, and other nodes, follow in the change feed.

use uuid::Uuid;

/// A change.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Change {
    /// Data of this org that routing or digest reads: the org itself, an agent, a number, a trunk.
    Org(Uuid),
    /// An API key of the org was made or revoked.
    OrgKey {
        /// The org.
        org: Uuid,
        /// The key.
        key: Uuid,
    },
    /// A partner, or one of its keys.
    Partner(Uuid),
    /// A partner became active or inactive, and so did its orgs.
    PartnerState(Uuid),
    /// A session of the org's dashboard has ended.
    Session(Uuid),
    /// The keys that sign tokens.
    SigningKeys,
    /// Contacts of the org were deleted.
    Contacts(Uuid),
}

impl Change {
    /// Returns org, kind and entity, as the columns of the change feed have them.
    pub(crate) const fn columns(self) -> (Option<Uuid>, &'static str, Option<Uuid>) {
        match self {
            Self::Org(org) => (Some(org), "org", None),
            Self::OrgKey { org, key } => (Some(org), "org_key", Some(key)),
            Self::Partner(partner) => (None, "partner", Some(partner)),
            Self::PartnerState(partner) => (None, "partner_state", Some(partner)),
            Self::Session(org) => (Some(org), "session", None),
            Self::SigningKeys => (None, "signing_keys", None),
            Self::Contacts(org) => (Some(org), "contacts", None),
        }
    }
}
