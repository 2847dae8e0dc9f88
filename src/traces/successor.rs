//! Leg that replaced another in a call (RFC 3891), found in the traces.

use std::io;
use std::time::Duration;

use trunkline_capture::Captured;
use trunkline_capture::message::{Message as Sip, parameter};
use trunkline_sip::moment::Moment;

use super::{Traces, scan};

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
            .find(|(is_sent, captured)| is_our_bye(*is_sent, captured));
        match bye {
            Some((_, bye)) => Self::after(traces, bye, ended_at),
            None => Ok(None),
        }
    }

    /// Finds the leg that replaced the one which this BYE of ours ended. Keeps no more than one message in memory.
    ///
    /// # Errors
    /// A file can't be read.
    pub(super) fn after(
        traces: &Traces,
        bye: &Captured,
        ended_at: Option<Moment>,
    ) -> io::Result<Option<Self>> {
        let left = Moment::from_micros(bye.at);
        // The BYE was the end of the whole call, so no leg has taken this one's place.
        if ended_at.is_some_and(|end| end <= left) {
            return Ok(None);
        }

        let message = Sip::parse(&bye.octets);
        let (Some(replaced), Some(ours)) = (message.first("Call-ID"), message.tag("From")) else {
            return Ok(None);
        };
        let from = left - SET_UP_TIME;

        // The INVITE of the successor names our tag in Replaces. Only parties to the call know this tag.
        let finder = memchr::memmem::Finder::new(ours.as_bytes());
        let is_meant = |is_sent: bool, octets: &[u8]| {
            if is_sent || !octets.starts_with(b"INVITE ") || finder.find(octets).is_none() {
                return false;
            }
            let replaces = Sip::parse(octets).first("Replaces").unwrap_or_default();
            replaces.split(';').next().map(str::trim) == Some(&*replaced)
                && parameter(&replaces, "to-tag").as_deref() == Some(&*ours)
        };

        let mut first: Option<(u64, String)> = None;
        traces.each_within(from, left, &mut |is_sent, at, octets| {
            let is_first = first.as_ref().is_none_or(|(first, _)| at < *first);
            if is_first && is_meant(is_sent, octets) {
                let call_id = String::from_utf8_lossy(scan::call_id(octets));
                first = Some((at, call_id.into_owned()));
            }
        })?;
        let Some((first, call_id)) = first else {
            return Ok(None);
        };

        // A challenged INVITE appears twice; the later one began the leg.
        let mut began = first;
        traces.each_of(&call_id, from, left, &mut |is_sent, captured| {
            if captured.at > began && is_meant(is_sent, &captured.octets) {
                began = captured.at;
            }
        })?;

        Ok(Some(Self {
            call_id,
            from,
            began,
        }))
    }
}

/// Returns true for a BYE that we sent.
pub(super) fn is_our_bye(is_sent: bool, captured: &Captured) -> bool {
    is_sent && captured.octets.starts_with(b"BYE ")
}
