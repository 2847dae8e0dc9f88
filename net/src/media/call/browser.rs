//! A browser in the place of a bot: its microphone and its keys on the way to the peer, and the peer's audio on the way to it.

use std::net::SocketAddr;

use trunkline_sip::dialog::sdp::Codec;
use trunkline_sip::moment::Moment;

use super::super::browser_leg::BrowserLeg;
use super::{Call, FRAME, Packet, Packets, g711, mu_law_of};

impl Call {
    /// Attaches a browser, in place of the echo.
    pub(in super::super) fn attach_browser(&mut self, browser: BrowserLeg) {
        self.figures.has_concealment = true;
        self.browser = Some(Box::new(browser));
    }

    /// Returns whether a browser is attached.
    pub(in super::super) const fn has_browser(&self) -> bool {
        self.browser.is_some()
    }

    /// Presses keys on behalf of the browser.
    pub(in super::super) fn press(&mut self, keys: &[u8]) {
        if let Some(browser) = &mut self.browser {
            browser.keys().press(keys);
        }
    }

    pub(super) fn start_browser(&mut self, now: Moment) {
        if let Some(browser) = &mut self.browser {
            browser.start(now);
        }
    }

    pub(super) fn pass_to_browser(
        &mut self,
        packet: &Packet,
        codec: Codec,
        octets: &mut [u8],
        now: Moment,
    ) {
        let Some(payload) = mu_law_of(packet, codec, octets) else {
            return;
        };
        if let Some(browser) = &mut self.browser {
            browser.hear(&packet.header, payload, now);
        }
    }

    /// Fills the slot of a peer that sends nothing, and returns the packet that is due to the peer.
    pub(super) fn tick_browser<'p>(
        &mut self,
        octets: &'p mut [u8],
        now: Moment,
    ) -> Option<(SocketAddr, Packets<'p>)> {
        let browser = self.browser.as_mut()?;
        browser.tick(now);
        // Taken also if a key is sent in its place: speech that waited for the key would be late from then on.
        let spoken = browser.speak();

        // A key waits until the peer is there, as a bot's does. Otherwise its beginning would be lost.
        let listens = self.session.audience().listens();
        let key = if listens { browser.keys().next() } else { None };
        let mut frame = spoken.unwrap_or([g711::SILENCE; FRAME]);
        if let Some(key) = key {
            if self.session.wants_tones() {
                key.tone(&mut frame);
            } else if key.event().is_some() {
                return self.send_key(octets, key);
            }
        }

        let is_first = self.is_quiet && spoken.is_some();
        let Some((to, packets)) = self.session.frame(octets, &frame, is_first, now) else {
            self.session.pass();
            return None;
        };
        self.is_quiet = spoken.is_none();
        self.figures.packets_sent += packets.count() as u64;
        self.figures.octets_sent += FRAME as u64;
        Some((to, packets))
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use trunkline_sip::dialog::sdp::{AudioPayload, Direction, PacketTime, PayloadTypes};

    use super::*;
    use crate::media::negotiated::{MediaPeer, NegotiatedMedia};
    use crate::media::session::Session;

    const EVENT: u8 = 101;

    const fn at_millis(millis: u64) -> Moment {
        Moment::from_micros(1_000 * millis)
    }

    /// Returns payload type, with the marker, and payload of what is sent in a tick.
    fn tick(call: &mut Call, number: u64) -> Option<(u8, Vec<u8>)> {
        let mut octets = [0; 200];
        let now = at_millis(20 * number);
        let (_, packets) = call.tick_browser(&mut octets, now)?;
        let packet = packets.iter().next()?;
        Some((packet[1], packet[12..].to_vec()))
    }

    #[test]
    fn a_key_waits_until_the_peer_is_heard() {
        let peer = SocketAddr::from(([192, 0, 2, 1], 4_000));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let mut call = Call::new(1, Arc::new(socket), Session::new(0), Arc::default());
        let (browser, _audio) = BrowserLeg::new();
        call.attach_browser(browser);
        let agreed = NegotiatedMedia {
            remote: peer,
            payload: AudioPayload::PCMA,
            telephone_event: Some(EVENT),
            received: PayloadTypes::of(AudioPayload::PCMA, Some(EVENT)),
            direction: Direction::SendRecv,
            packet_time: PacketTime::default(),
            rtcp: None,
            sources: [peer.ip(); 2],
            from_any: false,
            peer: MediaPeer::default(),
        };
        call.negotiate(agreed, at_millis(0));
        call.start_browser(at_millis(0));
        call.press(b"5");

        let before: Vec<_> = (0..20).filter_map(|at| tick(&mut call, at)).collect();
        assert!(before.iter().all(|(kind, _)| kind & 0x7f != EVENT));

        for sequence in 0..4 {
            let mut octets = [0; 13];
            (octets[0], octets[1]) = (0x80, AudioPayload::PCMA.number);
            (octets[3], octets[11]) = (sequence, 7);
            let now = at_millis(400 + 5 * u64::from(sequence));
            let _ = call.session.accept(&octets, peer, |_| false, now);
        }

        let after: Vec<_> = (21..40).filter_map(|at| tick(&mut call, at)).collect();
        let is_event = |(kind, _): &&(u8, Vec<u8>)| kind & 0x7f == EVENT;
        let events: Vec<_> = after.iter().filter(is_event).collect();
        // RFC 4733 §2.5.1.1: the marker is that of the beginning.
        assert_eq!(events.first(), Some(&&(0x80 | EVENT, vec![5, 10, 0, 160])));
        assert_eq!(events.len(), 8, "100 ms, and the end three times");
    }
}
