//! Dialog of a leg that a peer began. The peer chooses its Call-ID, and another tenant may use the same: the Call-ID alone doesn't tell to which
//! call a message belongs.

use std::net::IpAddr;
use std::time::Duration;

use trunkline_capture::Captured;
use trunkline_capture::message::{Message as Sip, parameter};
use trunkline_sip::moment::Moment;

use super::Traces;

/// Time within which a leg that replaces another is up.
const SET_UP_TIME: Duration = Duration::from_secs(120);

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
        let is_invite = |is_sent: bool, captured: &Captured| {
            !is_sent && captured.octets.starts_with(b"INVITE ") && captured.at <= began
        };
        let (_, invite) = messages
            .iter()
            .rev()
            .find(|(is_sent, captured)| is_invite(*is_sent, captured))?;

        let peer = invite.source.ip();
        let ours = messages.iter().find_map(|(is_sent, captured)| {
            let is_answer = *is_sent && captured.at >= began && captured.target.ip() == peer;
            let tag = Sip::parse(&captured.octets).tag("To")?;
            is_answer.then_some(tag)
        });

        Some(Self {
            peer,
            theirs: Sip::parse(&invite.octets).tag("From"),
            ours,
        })
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

/// Leg that replaced another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Successor {
    /// Its Call-ID.
    pub call_id: String,
    /// Earliest time of its messages.
    pub from: Moment,
    /// Time of its INVITE in microseconds since 1970.
    pub began: u64,
}

impl Successor {
    /// Finds the leg that replaced this one (RFC 3891), if we sent it a BYE while the call continued. `leg` are the messages of its dialog. Reads
    /// files.
    pub fn find(
        traces: &Traces,
        leg: &[(bool, Captured)],
        ended_at: Option<Moment>,
    ) -> Option<Self> {
        let (_, bye) = leg
            .iter()
            .find(|(is_sent, captured)| *is_sent && captured.octets.starts_with(b"BYE "))?;
        let left = Moment::from_micros(bye.at);
        if ended_at.is_some_and(|end| end <= left) {
            return None;
        }

        let message = Sip::parse(&bye.octets);
        let (replaced, ours) = (message.first("Call-ID")?, message.tag("From")?);
        let from = left - SET_UP_TIME;

        // A challenged INVITE appears twice. Both have our tag in Replaces, which nobody else knows.
        let begun = traces.begun(ours.as_bytes(), from, left);
        let mut received = begun.into_iter().filter(|(is_sent, _)| !is_sent);
        received.find_map(|(_, call_id)| {
            let messages = traces.of(&[&call_id], from, left).messages;
            let invites = messages.iter().filter(|(is_sent, captured)| {
                let sip = Sip::parse(&captured.octets);
                let replaces = sip.first("Replaces").unwrap_or_default();
                let is_meant = replaces.split(';').next().map(str::trim) == Some(&*replaced);
                let tag = parameter(&replaces, "to-tag");
                !*is_sent && is_meant && tag.as_deref() == Some(&*ours)
            });
            let began = invites.map(|(_, captured)| captured.at).max()?;
            Some(Self {
                call_id,
                from,
                began,
            })
        })
    }
}
