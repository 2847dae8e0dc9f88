//! Identities by which a trace assigns messages to a call: the INVITE that began a leg, and the dialogs in which we have a tag of our own.
//!
//! A Call-ID alone proves nothing, since each peer chooses its own. A tag of ours belongs to one leg.

use std::fmt;

use trunkline_sip::flow::Flow;
use trunkline_sip::slot::{CallId, Tag};
use trunkline_sip::wire::Message;
use uuid::Uuid;

use super::ids::TagOwner;
use super::role::LegRole;

/// Leg of a call, as its trace has it.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct TracedLeg {
    /// Org of the call; nil for calls of the deployment itself.
    pub org: Uuid,
    /// The call.
    pub call: Uuid,
    /// Number of the leg within the call.
    pub leg: u8,
    /// Role of its peer when the leg began.
    pub role: LegRole,
}

/// Identity that belongs to one leg.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DialogIdentity {
    /// Transaction of an INVITE that a peer began the leg with.
    Invite {
        /// Call-ID.
        call_id: Box<[u8]>,
        /// The peer's tag.
        from_tag: Box<[u8]>,
        /// Request-URI as sent.
        request_uri: Box<[u8]>,
        /// Protocol, transport and sent-by of the top Via.
        sent_by: Box<[u8]>,
        /// Branch of the top Via; empty for a peer of RFC 2543.
        branch: Box<[u8]>,
        /// Flow by which it came.
        flow: Flow,
    },
    /// Dialogs with this tag of ours: one, or the forks of an INVITE of ours.
    Tag {
        /// Call-ID.
        call_id: Box<[u8]>,
        /// Our tag.
        local: Tag,
        /// The peer's tag, if the peer began the dialog.
        remote: Option<Box<[u8]>>,
        /// Headers that may be credentials, and that no trace of the call shows.
        secrets: SecretHeaders,
    },
}

/// Names and values of headers that may be credentials.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct SecretHeaders(Box<[(Box<str>, Box<str>)]>);

impl SecretHeaders {
    pub(crate) const fn as_slice(&self) -> &[(Box<str>, Box<str>)] {
        &self.0
    }

    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl FromIterator<(Box<str>, Box<str>)> for SecretHeaders {
    fn from_iter<I: IntoIterator<Item = (Box<str>, Box<str>)>>(headers: I) -> Self {
        Self(headers.into_iter().collect())
    }
}

impl fmt::Debug for SecretHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.iter().map(|(name, _)| name))
            .finish()
    }
}

impl DialogIdentity {
    /// The transaction of a received INVITE.
    pub(crate) fn of_invite(invite: &Message<'_>, flow: Flow) -> Self {
        Self::Invite {
            call_id: invite.call_id().into(),
            from_tag: invite.from_tag().unwrap_or_default().into(),
            request_uri: invite.request_uri().into(),
            sent_by: invite.top_via().head.into(),
            branch: invite.top_via().branch.unwrap_or_default().into(),
            flow,
        }
    }

    /// The dialog with the sender of an INVITE in which we have this tag.
    pub(crate) fn with_peer(local: Tag, invite: &Message<'_>) -> Self {
        Self::Tag {
            call_id: invite.call_id().into(),
            local,
            remote: Some(invite.from_tag().unwrap_or_default().into()),
            secrets: SecretHeaders::default(),
        }
    }

    /// The dialogs that answers to an INVITE of ours with these secrets make.
    pub(crate) fn without_peer(local: Tag, call_id: CallId, secrets: SecretHeaders) -> Self {
        Self::Tag {
            call_id: call_id.as_bytes().into(),
            local,
            remote: None,
            secrets,
        }
    }
}

/// Identity of a leg that the trace hasn't been given yet.
#[derive(Debug)]
pub(crate) struct Untraced {
    pub(crate) owner: TagOwner,
    pub(crate) identity: DialogIdentity,
}
