//! Dialog of a leg that a peer began. The peer chooses its Call-ID, and another tenant may use the same: the Call-ID alone doesn't tell to which
//! call a message belongs.

use std::convert::Infallible;
use std::net::IpAddr;

use trunkline_capture::Captured;
use trunkline_capture::message::Message as Sip;

/// Dialog that a peer began by an INVITE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerDialog {
    /// Source of the INVITE.
    peer: IpAddr,
    /// The peer's tag.
    theirs: Option<String>,
    /// Our tag, once we have answered.
    ours: Option<String>,
}

impl PeerDialog {
    /// Finds the dialog of the last INVITE that came until `began`, in microseconds since 1970. `messages` are those of one Call-ID in order of
    /// time, each with true if it was sent by us.
    pub fn find(messages: &[(bool, Captured)], began: u64) -> Option<Self> {
        let each = |take: &mut dyn FnMut(bool, &Captured)| {
            for (is_sent, captured) in messages {
                take(*is_sent, captured);
            }
            Ok::<_, Infallible>(())
        };
        match Self::search(each, began) {
            Ok(found) => found,
        }
    }

    /// Finds it among messages that come in no order. `each` passes all of them, and is called twice: they may be too many to be kept.
    ///
    /// # Errors
    /// That of `each`.
    pub(super) fn search<E>(
        each: impl Fn(&mut dyn FnMut(bool, &Captured)) -> Result<(), E>,
        began: u64,
    ) -> Result<Option<Self>, E> {
        let mut invite: Option<Captured> = None;
        each(&mut |is_sent, captured| {
            // The last one: an INVITE that was challenged comes before the one that began the leg.
            let is_invite =
                !is_sent && captured.octets.starts_with(b"INVITE ") && captured.at <= began;
            if is_invite && invite.as_ref().is_none_or(|last| last.at <= captured.at) {
                invite = Some(captured.clone());
            }
        })?;
        let Some(invite) = invite else {
            return Ok(None);
        };

        let peer = invite.source.ip();
        let mut ours: Option<(u64, String)> = None;
        each(&mut |is_sent, captured| {
            // To the peer's address alone: another tenant's call may have the same Call-ID.
            let is_answer = is_sent && captured.at >= began && captured.target.ip() == peer;
            let is_first = ours.as_ref().is_none_or(|(first, _)| captured.at < *first);
            if is_answer
                && is_first
                && let Some(tag) = Sip::parse(&captured.octets).tag("To")
            {
                ours = Some((captured.at, tag));
            }
        })?;

        Ok(Some(Self {
            peer,
            theirs: Sip::parse(&invite.octets).tag("From"),
            ours: ours.map(|(_, tag)| tag),
        }))
    }

    /// Returns true if a message with the leg's Call-ID belongs to the dialog: it has the peer's tag, and either our tag or the peer's address.
    pub fn holds(&self, is_sent: bool, captured: &Captured) -> bool {
        let other = match is_sent {
            true => captured.target,
            false => captured.source,
        };
        let message = Sip::parse(&captured.octets);
        let tags = [message.tag("From"), message.tag("To")];
        let is_theirs = tags.contains(&self.theirs);
        let is_ours = self.ours.is_some() && tags.contains(&self.ours);
        is_theirs && (is_ours || other.ip() == self.peer)
    }
}
