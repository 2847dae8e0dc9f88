//! A browser in the place of a bot: its microphone and its keys on the way to the peer, and the peer's audio on the way to it.

use std::net::SocketAddr;

use trunkline_sip::dialog::sdp::Codec;
use trunkline_sip::moment::Moment;

use super::super::browser_leg::BrowserLeg;
use super::{Call, FRAME, Packet, g711, mu_law_of};

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
    ) -> Option<(SocketAddr, &'p [u8])> {
        let browser = self.browser.as_mut()?;
        browser.tick(now);
        // Taken also if a key is sent in its place: speech that waited for the key would be late from then on.
        let spoken = browser.speak();

        let key = browser.keys().next();
        let mut frame = spoken.unwrap_or([g711::SILENCE; FRAME]);
        if let Some(key) = key {
            if self.session.wants_tones() {
                key.tone(&mut frame);
            } else if key.event().is_some() {
                return self.send_key(octets, key);
            }
        }

        let is_first = self.is_quiet && spoken.is_some();
        let Some(sent) = self.session.frame(octets, &frame, is_first, now) else {
            self.session.pass();
            return None;
        };
        self.is_quiet = spoken.is_none();
        self.figures.packets_sent += 1;
        self.figures.octets_sent += FRAME as u64;
        Some(sent)
    }
}
