//! Speech for one call, in packets of 20 ms, paced by the clock since a listener may send nothing. Pure.

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::dialog::sdp::Codec;
use trunkline_sip::moment::Moment;

use super::g711::{SILENCE as SILENT, a_of_mu as a_law};
use super::negotiated::NegotiatedMedia;

/// Octets of a packet, one for each sample.
const PACKET: usize = 160;
const PACKET_TIME: Duration = Duration::from_millis(20);
/// Packets of silence for a listener that isn't heard. They open a NAT or firewall in between (RFC 4961). They are few, since only the SDP says
/// that the address is the listener's.
///
/// With 172 octets each they are no more than the shortest INVITE with an SDP, so a forged one brings its victim no more than it had.
const OPENING: u32 = 2;
const OPENING_TIME: Duration = Duration::from_millis(200);
/// Longest wait for a listener that isn't heard.
const PATIENCE: Duration = Duration::from_secs(10);
/// Delay after which audio continues from the present instead of catching up.
const LATE: Duration = Duration::from_millis(200);
const SILENCE: [u8; PACKET] = [SILENT; PACKET];

/// Audio to be sent to the listener, and the progress of sending it.
#[derive(Debug)]
pub(super) struct Speech {
    /// µ-law.
    audio: Box<[u8]>,
    /// Octets sent so far.
    at: usize,
    /// Time at which SDP first gave an address.
    since: Option<Moment>,
    /// Time at which the next packet is due.
    due: Option<Moment>,
    opening: Opening,
    ending: Ending,
}

/// The end of the speech: that of its audio, or of the wait for a listener.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum Ending {
    #[default]
    Ahead,
    Reached,
    Reported,
}

/// A packet of speech: its destination, its payload, and whether it is the first.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct SpeechPacket {
    pub(super) to: SocketAddr,
    pub(super) payload: [u8; PACKET],
    pub(super) is_first: bool,
}

impl Speech {
    pub(super) fn new(audio: Vec<u8>) -> Self {
        Self {
            audio: audio.into(),
            at: 0,
            since: None,
            due: None,
            opening: Opening::default(),
            ending: Ending::default(),
        }
    }

    /// Returns the next packet if it is due. `listener` is the listener's address, if it is known.
    pub(super) fn next(
        &mut self,
        agreed: &NegotiatedMedia,
        listener: Option<SocketAddr>,
        now: Moment,
    ) -> Option<SpeechPacket> {
        let since = *self.since.get_or_insert(now);
        let Some(to) = listener else {
            return self.open(agreed, now.since(since), now);
        };

        let due = self.due.filter(|due| self.at > 0 && now.since(*due) < LATE);
        let due = due.unwrap_or(now);
        if due > now {
            return None;
        }

        // Less than a packet may be left: it is silence, with which every code ends.
        let Some(octets) = self.audio[self.at..].first_chunk::<PACKET>() else {
            self.end();
            return None;
        };

        let is_first = self.at == 0;
        self.at += PACKET;
        self.due = Some(due + PACKET_TIME);

        Some(said(to, octets, agreed, is_first))
    }

    /// Returns whether the speech has ended, or no listener was heard in time; true once.
    pub(super) fn take_end(&mut self) -> bool {
        let is_news = self.ending == Ending::Reached;
        if is_news {
            self.ending = Ending::Reported;
        }
        is_news
    }

    /// Waits anew for a listener that has moved.
    pub(super) fn await_listener(&mut self) {
        self.since = None;
        self.opening = Opening::default();
    }

    fn end(&mut self) {
        // Each later tick comes here again, but the end is reported once.
        if self.ending == Ending::Ahead {
            self.ending = Ending::Reached;
        }
    }

    fn open(
        &mut self,
        agreed: &NegotiatedMedia,
        waited: Duration,
        now: Moment,
    ) -> Option<SpeechPacket> {
        // On this report the call's shard hangs up, as it does once the code is spoken.
        if waited >= PATIENCE {
            self.end();
        }
        let to = self.opening.next(agreed, now)?;
        Some(said(to, &SILENCE, agreed, self.opening.sent == 1))
    }
}

/// Packets of silence for a peer that isn't heard.
#[derive(Debug, Default)]
pub(super) struct Opening {
    sent: u32,
    due: Option<Moment>,
}

impl Opening {
    /// Returns the destination of the next one, if it is due.
    pub(super) fn next(&mut self, agreed: &NegotiatedMedia, now: Moment) -> Option<SocketAddr> {
        let is_due = self.due.is_none_or(|due| due <= now);
        let to = agreed.listens_at();
        // SDP may name an address that nothing is sent to.
        if self.sent == OPENING || !is_due || !agreed.expects(to.ip()) {
            return None;
        }
        self.sent += 1;
        self.due = Some(now + OPENING_TIME);
        Some(to)
    }
}

fn said(
    to: SocketAddr,
    octets: &[u8; PACKET],
    agreed: &NegotiatedMedia,
    is_first: bool,
) -> SpeechPacket {
    let payload = match agreed.payload.codec {
        Codec::Pcma => octets.map(a_law),
        Codec::Pcmu => *octets,
    };
    SpeechPacket {
        to,
        payload,
        is_first,
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::dialog::sdp::{AudioPayload, Direction, PacketTime, PayloadTypes};

    use super::super::negotiated::MediaPeer;
    use super::*;

    const SIGNALLED: &str = "192.0.2.1:4000";

    fn at(milliseconds: u64) -> Moment {
        Moment::from_secs(1_000) + Duration::from_millis(milliseconds)
    }

    fn agreed(payload: AudioPayload) -> NegotiatedMedia {
        let remote: SocketAddr = SIGNALLED.parse().unwrap();
        NegotiatedMedia {
            remote,
            payload,
            telephone_event: None,
            received: PayloadTypes::of(payload, None),
            direction: Direction::SendRecv,
            packet_time: PacketTime::default(),
            rtcp: None,
            sources: [remote.ip(); 2],
            from_any: false,
            peer: MediaPeer::default(),
        }
    }

    fn listener() -> Option<SocketAddr> {
        Some(SIGNALLED.parse().unwrap())
    }

    #[test]
    fn audio_is_paced_and_ends() {
        let mut speech = Speech::new([[1; PACKET], [2; PACKET]].concat());
        for (name, time, sent) in [
            ("at once", 0, Some((1, true))),
            ("not due", 19, None),
            ("the second", 20, Some((2, false))),
            ("not over before it was heard", 39, None),
        ] {
            let said = speech.next(&agreed(AudioPayload::PCMU), listener(), at(time));
            let said = said.map(|said| (said.payload[0], said.is_first));
            assert_eq!(said, sent, "{name}");
            assert!(!speech.take_end(), "{name}");
        }

        assert_eq!(
            speech.next(&agreed(AudioPayload::PCMU), listener(), at(40)),
            None
        );
        assert!(speech.take_end(), "it has ended");
        assert_eq!(
            speech.next(&agreed(AudioPayload::PCMU), listener(), at(60)),
            None
        );
        assert!(!speech.take_end(), "once");
    }

    #[test]
    fn a_listener_that_stopped_gets_no_burst() {
        let mut speech = Speech::new(vec![1; PACKET * 100]);
        assert!(
            speech
                .next(&agreed(AudioPayload::PCMU), listener(), at(0))
                .is_some()
        );
        assert!(
            speech
                .next(&agreed(AudioPayload::PCMU), listener(), at(5_000))
                .is_some()
        );
        assert!(
            speech
                .next(&agreed(AudioPayload::PCMU), listener(), at(5_000))
                .is_none()
        );
    }

    #[test]
    fn an_address_of_sdp_alone_gets_a_few_packets_of_silence() {
        let mut speech = Speech::new(vec![1; PACKET * 2]);
        let mut sent = 0;
        for time in (0..PATIENCE.as_millis() as u64).step_by(5) {
            let said = speech.next(&agreed(AudioPayload::PCMU), None, at(time));
            assert!(said.as_ref().is_none_or(|said| said.payload == SILENCE));
            sent += u32::from(said.is_some());
            assert!(!speech.take_end(), "{time}");
        }

        assert_eq!(sent, OPENING);
        assert!(
            speech
                .next(&agreed(AudioPayload::PCMU), None, at(10_000))
                .is_none()
        );
        assert!(speech.take_end());
        assert_eq!(
            speech.next(&agreed(AudioPayload::PCMU), None, at(10_020)),
            None
        );
        assert!(!speech.take_end(), "once");
    }

    #[test]
    fn a_listener_that_moves_is_waited_for_again() {
        let mut speech = Speech::new(vec![1; PACKET * 2]);
        let mut opened = || {
            let times = (0..PATIENCE.as_millis() as u64 - 1).step_by(20);
            let said = times
                .filter_map(|time| speech.next(&agreed(AudioPayload::PCMU), None, at(time)))
                .count();
            assert!(!speech.take_end());
            speech.await_listener();
            said
        };
        assert_eq!([opened(), opened()], [2, 2]);
    }

    #[test]
    fn a_listener_is_spoken_to_where_it_is_heard() {
        let mut speech = Speech::new(vec![0xd5; PACKET * 2]);
        assert!(
            speech
                .next(&agreed(AudioPayload::PCMA), None, at(0))
                .is_some()
        );
        let heard: SocketAddr = "198.51.100.7:9000".parse().unwrap();
        let said = speech.next(&agreed(AudioPayload::PCMA), Some(heard), at(60));
        let said = said.expect("it was heard");
        assert_eq!((said.to, said.is_first), (heard, true));
        assert_eq!(said.payload, [a_law(0xd5); PACKET]);
    }
}
