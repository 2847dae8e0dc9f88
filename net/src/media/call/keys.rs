//! Keys of a call: those that its peer presses, on the way to the bot, and those that the bot or the browser presses, on the way to the peer.

use std::net::SocketAddr;

use trunkline_sip::moment::Moment;

use super::Call;
use crate::media::bot_leg::Scratch;
use crate::media::keys::{KEYS, KeyFrame};
use crate::media::rtp::Packets;
use crate::media::timeline::MediaStepKind;

impl Call {
    /// Passes on to the bot a key that the peer pressed outside of its audio.
    pub(in super::super) fn pass_key(&mut self, key: char, scratch: &mut Scratch, now: Moment) {
        let is_key = u8::try_from(key).is_ok_and(|key| KEYS.contains(&key));
        if is_key {
            self.shared.note(MediaStepKind::Key, now);
        }
        if let Some(bot) = self.bot.as_mut().filter(|_| is_key) {
            let pressed = bot.press(key, scratch);
            self.check(pressed);
        }
    }

    /// Returns the digit that the last packet reported for the first time, and passes it on to the bot.
    pub(in super::super) fn take_digit(
        &mut self,
        scratch: &mut Scratch,
        now: Moment,
    ) -> Option<u8> {
        let event = self.session.take_digit()?;
        self.shared.note(MediaStepKind::Key, now);
        if let (Some(bot), Some(key)) = (&mut self.bot, KEYS.get(usize::from(event))) {
            let pressed = bot.press(char::from(*key), scratch);
            self.check(pressed);
        }
        // The event is for the twelve keys of a telephone; A to D reach a bot alone.
        (event <= 11).then_some(event)
    }

    pub(super) fn send_key<'p>(
        &mut self,
        octets: &'p mut [u8],
        key: KeyFrame,
    ) -> Option<(SocketAddr, Packets<'p>)> {
        // Checked before the packet is written: the packet borrows `octets` for as long as it lives.
        if self.session.target().is_none() {
            self.session.pass();
            return None;
        }
        self.figures.packets_sent += 1;
        self.figures.octets_sent += 4;
        let (to, packet) = self.session.key(octets, key)?;
        Some((to, Packets::one(packet)))
    }
}
