//! Leg that replaced another in a call (RFC 3891), found in the traces.

use std::io;
use std::time::Duration;

use trunkline_capture::Captured;
use trunkline_capture::message::{Message as Sip, parameter};
use trunkline_sip::moment::Moment;

use super::Traces;

/// Longest time from the INVITE of a leg that replaces another to our BYE to the other: the search goes back so far.
const SET_UP_TIME: Duration = Duration::from_secs(120);

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
    /// Finds the leg that replaced this one (RFC 3891), if we sent it a BYE while the call continued. `leg` holds the messages of the
    /// replaced leg's dialog, each with true if we sent it. Reads files.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn find(
        traces: &Traces,
        leg: &[(bool, Captured)],
        ended_at: Option<Moment>,
    ) -> io::Result<Option<Self>> {
        let bye = leg
            .iter()
            .find(|(is_sent, captured)| *is_sent && captured.octets.starts_with(b"BYE "));
        let Some((_, bye)) = bye else {
            return Ok(None);
        };
        let left = Moment::from_micros(bye.at);
        if ended_at.is_some_and(|end| end <= left) {
            return Ok(None);
        }

        let message = Sip::parse(&bye.octets);
        let (Some(replaced), Some(ours)) = (message.first("Call-ID"), message.tag("From")) else {
            return Ok(None);
        };
        let from = left - SET_UP_TIME;

        // A challenged INVITE appears twice; the later one began the leg. Both name our tag in Replaces, which only parties to the call know.
        let begun = traces.begun(ours.as_bytes(), from, left)?;
        let mut received = begun.into_iter().filter(|(is_sent, _)| !is_sent);
        Ok(received.find_map(|(_, call_id)| {
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
        }))
    }
}
