//! Transactions as the endpoint's tables hold them: a machine of RFC 3261 §17, and the data that the endpoint keeps with it.

use crate::slot::Slot;
use crate::transaction::client_invite::ClientInvite;
use crate::transaction::client_other::ClientOther;
use crate::transaction::server_invite::ServerInvite;
use crate::transaction::server_other::ServerOther;
use crate::transaction::tombstone::ToTag;

/// A client transaction of either kind.
#[derive(Debug)]
pub(super) enum Client {
    Invite(ClientInvite),
    Other(ClientOther),
}

impl Client {
    /// Returns whether the request goes on without its connection.
    pub(super) const fn outlives_connection(&self) -> bool {
        match self {
            Self::Invite(invite) => invite.has_progress(),
            Self::Other(_) => false,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        match self {
            Self::Invite(invite) => invite.is_answered(),
            Self::Other(other) => other.is_answered(),
        }
    }
}

/// A server transaction of either kind.
#[derive(Debug)]
pub(super) struct Server {
    /// Key that a merged request shares with the one served first (RFC 3261 §8.2.2.2); 0 for a request inside a dialog.
    pub(super) merged: u64,
    /// Slot that goes into the To-tag, if this endpoint mints it.
    pub(super) slot: Slot,
    /// Port to reopen a lost connection to (RFC 3261 §18.2.2).
    pub(super) sent_by_port: u16,
    /// Status of the last response; 0 before the first.
    pub(super) status: u16,
    /// To-tag of the last response.
    pub(super) tag: ToTag,
    pub(super) machine: Machine,
}

/// The machine of a server transaction.
#[derive(Debug)]
pub(super) enum Machine {
    Invite(ServerInvite),
    Other(ServerOther),
}

impl Machine {
    pub(super) fn wants_tag(&self) -> bool {
        match self {
            Self::Invite(invite) => invite.wants_tag(),
            Self::Other(other) => other.wants_tag(),
        }
    }
}
