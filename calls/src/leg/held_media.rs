//! SDP of a call on hold: SDP that crosses while the daemon holds both sides is `inactive`, and the phone system may hold as well, by
//! `sendonly` or `inactive` (RFC 3264 §8.4; RFC 2543 phones use the address 0.0.0.0).

use std::borrow::Cow;

use trunkline_sip::dialog::direction;
use trunkline_sip::dialog::direction::rewritten;
use trunkline_sip::dialog::sdp::Direction;

/// Holds of a call, and the caller's offer that isn't answered.
#[derive(Default, Debug)]
pub(crate) struct HeldMedia {
    /// Neither side may send: the daemon holds them, or is about to.
    is_closed: bool,
    /// The daemon holds both sides, as the API has ordered.
    by_us: bool,
    /// The peer on the trunk holds: its last offer says so, and no answer since then has ended that.
    by_peer: bool,
    /// State in the record and the live view.
    reported: bool,
    /// The caller's offer that has no answer yet.
    proposed: Option<Box<[u8]>>,
}

impl HeldMedia {
    /// Notes whether either side may send.
    pub(crate) const fn set_closed(&mut self, is_closed: bool) {
        self.is_closed = is_closed;
    }

    /// Returns whether neither side may send.
    pub(crate) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Notes whether the daemon holds both sides.
    pub(crate) const fn set_by_us(&mut self, held: bool) {
        self.by_us = held;
    }

    /// Notes an accepted offer of the phone system.
    pub(crate) fn take_offer(&mut self, sdp: &[u8]) {
        self.by_peer = holds(sdp);
    }

    /// Notes an answer of the phone system. A direction other than `sendrecv` may only mirror our offer, so an answer can end a hold, not
    /// begin one.
    pub(crate) fn take_answer(&mut self, sdp: &[u8]) {
        self.by_peer &= holds(sdp);
    }

    /// Notes the caller's offer; `None`: it asks for an offer.
    pub(super) fn propose(&mut self, offer: Option<Box<[u8]>>) {
        self.proposed = offer;
    }

    /// Takes the caller's offer, which was accepted.
    pub(super) fn take_proposed(&mut self) -> Option<Box<[u8]>> {
        self.proposed.take()
    }

    /// Forgets what the caller has offered: another leg has taken its place.
    pub(crate) fn forget_proposal(&mut self) {
        self.proposed = None;
    }

    /// Notes that the call is over.
    pub(crate) const fn end(&mut self) {
        (self.by_us, self.by_peer) = (false, false);
    }

    /// Returns the state to report, if it has changed.
    #[must_use]
    pub(crate) const fn take_change(&mut self) -> Option<bool> {
        let held = self.by_us || self.by_peer;
        if held == self.reported {
            return None;
        }
        self.reported = held;
        Some(held)
    }

    /// Returns an SDP as it crosses: `inactive` while the call is held. An answer may narrow the offer (RFC 3264 §6.1).
    pub(crate) fn crossing_sdp<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        self.redirected(body, Direction::Inactive)
    }

    /// Returns the caller's SDP to keep: `sendrecv` while the call is held, when its direction is a consequence of the hold.
    pub(super) fn heard_sdp<'b>(&self, body: &'b [u8]) -> Cow<'b, [u8]> {
        self.redirected(body, Direction::SendRecv)
    }

    fn redirected<'b>(&self, body: &'b [u8], direction: Direction) -> Cow<'b, [u8]> {
        if self.is_closed && body.starts_with(b"v=") {
            rewritten(body, direction).into()
        } else {
            body.into()
        }
    }
}

/// Returns whether a description holds the other side: no stream receives.
fn holds(sdp: &[u8]) -> bool {
    const NOWHERE: &[u8] = b"c=IN IP4 0.0.0.0";
    let lines = sdp
        .split(|octet| *octet == b'\n')
        .map(<[u8]>::trim_ascii_end);
    // Checked for each call, and few are held: lines are parsed only if one has such a word.
    let says_so = |line: &[u8]| {
        let signs: [&[u8]; 3] = [b"a=sendonly", b"a=inactive", NOWHERE];
        signs.iter().any(|sign| line.starts_with(sign))
    };
    if !memchr::memchr_iter(b'\n', sdp).any(|end| says_so(&sdp[end + 1..])) {
        return false;
    }

    let streams = direction::of(sdp);
    let is_closed =
        |direction: &Direction| matches!(direction, Direction::SendOnly | Direction::Inactive);
    let mut addresses = lines.filter(|line| line.starts_with(b"c=")).peekable();
    let is_nowhere = addresses.peek().is_some() && addresses.all(|line| line == NOWHERE);
    !streams.is_empty() && (streams.iter().all(is_closed) || is_nowhere)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sdp(connection: &str, direction: &str) -> Vec<u8> {
        format!("v=0\r\no=- 1 1 IN IP4 h\r\ns=-\r\n{connection}t=0 0\r\nm=audio 4000 RTP/AVP 0\r\n{direction}").into()
    }

    const HERE: &str = "c=IN IP4 192.0.2.1\r\n";
    const NOWHERE: &str = "c=IN IP4 0.0.0.0\r\n";

    #[test]
    fn a_description_holds_where_no_stream_receives() {
        let two = |one: &str, other: &str| {
            let first = String::from_utf8(sdp(HERE, one)).expect("it is ASCII");
            format!("{first}m=video 4002 RTP/AVP 96\r\n{other}").into_bytes()
        };

        for (case, sdp, is_hold) in [
            ("nothing said", sdp(HERE, ""), false),
            ("sendrecv", sdp(HERE, "a=sendrecv\r\n"), false),
            ("recvonly", sdp(HERE, "a=recvonly\r\n"), false),
            ("sendonly", sdp(HERE, "a=sendonly\r\n"), true),
            ("inactive", sdp(HERE, "a=inactive\r\n"), true),
            ("as RFC 2543 has it", sdp(NOWHERE, ""), true),
            ("one of two", two("a=sendonly\r\n", "a=sendrecv\r\n"), false),
            ("both", two("a=sendonly\r\n", "a=inactive\r\n"), true),
            ("no address", sdp("", ""), false),
            (
                "one open of two, no address",
                sdp("", "a=sendonly\r\nm=video 2 RTP/AVP 9\r\na=sendrecv\r\n"),
                false,
            ),
            ("no SDP", b"--b".to_vec(), false),
        ] {
            assert_eq!(holds(&sdp), is_hold, "{case}");
        }
    }

    #[test]
    fn a_change_of_either_is_reported_once() {
        let (hold, resume) = (sdp(HERE, "a=sendonly\r\n"), sdp(HERE, ""));
        let mut held = HeldMedia::default();
        assert_eq!(held.take_change(), None);
        held.take_offer(&hold);
        assert_eq!(held.take_change(), Some(true));
        held.set_by_us(true);
        assert_eq!(held.take_change(), None, "it is held already");
        held.take_offer(&resume);
        assert_eq!(held.take_change(), None, "from here it is held yet");
        held.set_by_us(false);
        assert_eq!(held.take_change(), Some(false));
        held.take_answer(&hold);

        assert_eq!(
            held.take_change(),
            None,
            "an answer repeats what was offered"
        );

        held.take_offer(&hold);
        held.take_answer(&resume);
        assert_eq!(held.take_change(), None);
        held.take_offer(&hold);
        assert_eq!(held.take_change(), Some(true));
        held.end();

        assert_eq!(held.take_change(), Some(false));
    }

    #[test]
    fn what_crosses_a_held_call_is_inactive_and_the_callers_sdp_is_kept_open() {
        let directions = |held: &HeldMedia, sdp: &[u8]| {
            let of = |sdp: &[u8]| direction::of(sdp)[0];
            (of(&held.crossing_sdp(sdp)), of(&held.heard_sdp(sdp)))
        };
        let paused = sdp(HERE, "a=sendonly\r\n");
        let mut held = HeldMedia::default();
        let open = directions(&held, &paused);
        assert_eq!(open, (Direction::SendOnly, Direction::SendOnly));

        held.set_closed(true);
        let closed = directions(&held, &paused);
        assert_eq!(closed, (Direction::Inactive, Direction::SendRecv));
        assert_eq!(&*held.crossing_sdp(b"--b"), b"--b", "no bare SDP");
    }
}
