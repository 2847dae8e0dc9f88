//! Identities by which a trace assigns messages to a call: the INVITE that began a leg, and the dialogs in which we have a tag of our own.
//!
//! A Call-ID alone proves nothing, since each peer chooses its own. A tag of ours belongs to one leg.

use std::fmt;

use trunkline_sip::flow::Flow;
use trunkline_sip::slot::{CallId, Tag};
use trunkline_sip::wire::Message;
use uuid::Uuid;

use crate::parts::ids::TagOwner;
use crate::parts::role::LegRole;

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
    /// Transaction of an INVITE that a peer began the leg with, and the flow by which it came.
    Invite(InviteIdentity, Flow),
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

/// Parts of an INVITE that tell its transaction, and whether another INVITE is the same one sent again.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct InviteParts<'a> {
    /// Call-ID.
    pub call_id: &'a [u8],
    /// The peer's tag.
    pub from_tag: &'a [u8],
    /// Request-URI as sent.
    pub request_uri: &'a [u8],
    /// Protocol, transport and sent-by of the top Via.
    pub sent_by: &'a [u8],
    /// Branch of the top Via; empty for a peer of RFC 2543.
    pub branch: &'a [u8],
}

/// Copy of an [`InviteParts`] in one buffer, since each call has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InviteIdentity {
    octets: Box<[u8]>,
    /// Ends of the parts before the last.
    ends: [usize; 4],
}

impl InviteIdentity {
    /// Copies the parts.
    pub fn new(parts: &InviteParts<'_>) -> Self {
        let InviteParts {
            call_id,
            from_tag,
            request_uri,
            sent_by,
            branch,
        } = *parts;
        let mut end = 0;
        let ends = [call_id, from_tag, request_uri, sent_by].map(|part| {
            end += part.len();
            end
        });
        let octets = [call_id, from_tag, request_uri, sent_by, branch].concat();
        Self {
            octets: octets.into(),
            ends,
        }
    }

    /// Returns the parts.
    pub fn parts(&self) -> InviteParts<'_> {
        let [call_id, from_tag, request_uri, sent_by] = self.ends;
        InviteParts {
            call_id: &self.octets[..call_id],
            from_tag: &self.octets[call_id..from_tag],
            request_uri: &self.octets[from_tag..request_uri],
            sent_by: &self.octets[request_uri..sent_by],
            branch: &self.octets[sent_by..],
        }
    }
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
        let parts = InviteParts {
            call_id: invite.call_id(),
            from_tag: invite.from_tag().unwrap_or_default(),
            request_uri: invite.request_uri(),
            sent_by: invite.top_via().head,
            branch: invite.top_via().branch.unwrap_or_default(),
        };
        Self::Invite(InviteIdentity::new(&parts), flow)
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
