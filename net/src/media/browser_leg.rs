//! A browser on a call: the audio of its microphone, which the peer hears, and the peer's audio, which it plays. Frames of 20 ms pass
//! through bounded queues; the WebSocket isn't known here. Pure but for the queues.

use std::collections::VecDeque;

use tokio::sync::mpsc::{self, Receiver, Sender};
use trunkline_sip::moment::Moment;

use crate::bot::wire::FRAME;

use super::inbound::{Inbound, InboundCounts};
use super::keys::SentKeys;
use super::rtp::Header;

/// 20 ms of µ-law audio.
pub type AudioFrame = [u8; FRAME];

/// Most frames that wait in each direction: one second. Further frames are dropped.
const WAITING: usize = 50;

/// Frames of the microphone that are buffered before they are played, to absorb the network's jitter.
const START: usize = 3;

/// Most frames of the microphone that wait. Without this bound, a browser whose clock runs fast would be heard later and later.
const MOST: usize = 15;

/// The browser's ends of the queues.
#[derive(Debug)]
pub struct BrowserAudio {
    /// Frames to play.
    pub heard: Receiver<AudioFrame>,
    /// Frames of the microphone.
    pub spoken: Sender<AudioFrame>,
}

/// Browser of a call.
#[derive(Debug)]
pub(super) struct BrowserLeg {
    inbound: Inbound,
    microphone: Microphone,
    keys: SentKeys,
    to_browser: Sender<AudioFrame>,
    from_browser: Receiver<AudioFrame>,
}

impl BrowserLeg {
    /// Makes the leg, and the ends of its queues that the browser gets.
    pub(super) fn new() -> (Self, BrowserAudio) {
        let (to_browser, heard) = mpsc::channel(WAITING);
        let (spoken, from_browser) = mpsc::channel(WAITING);
        let leg = Self {
            inbound: Inbound::default(),
            microphone: Microphone::default(),
            keys: SentKeys::default(),
            to_browser,
            from_browser,
        };
        (leg, BrowserAudio { heard, spoken })
    }

    /// Begins the first slot. A second call changes nothing.
    pub(super) const fn start(&mut self, now: Moment) {
        self.inbound.start(now);
    }

    /// Passes on the peer's audio, in µ-law.
    pub(super) fn hear(&mut self, header: &Header, audio: &[u8], now: Moment) {
        let to_browser = &self.to_browser;
        self.inbound
            .hear(header, audio, now, |frame| pass(to_browser, frame));
    }

    /// Fills the slots of a peer that sends nothing.
    pub(super) fn tick(&mut self, now: Moment) {
        let to_browser = &self.to_browser;
        self.inbound.tick(now, |frame| pass(to_browser, frame));
    }

    /// Returns the frame of the microphone that is due; `None` if there is none.
    pub(super) fn speak(&mut self) -> Option<AudioFrame> {
        while let Ok(frame) = self.from_browser.try_recv() {
            self.microphone.push(frame);
        }
        self.microphone.next()
    }

    /// Returns the keys that the browser has pressed.
    pub(super) const fn keys(&mut self) -> &mut SentKeys {
        &mut self.keys
    }

    /// Returns the counts of the peer's audio.
    pub(super) const fn counts(&self) -> InboundCounts {
        self.inbound.counts()
    }
}

/// Passes a frame on. A browser that reads too slowly loses it, so that its delay doesn't grow.
fn pass(to_browser: &Sender<AudioFrame>, frame: &AudioFrame) {
    let _ = to_browser.try_send(*frame);
}

/// Frames of the microphone that wait for their slot.
#[derive(Debug, Default)]
struct Microphone {
    frames: VecDeque<AudioFrame>,
    is_playing: bool,
}

impl Microphone {
    fn push(&mut self, frame: AudioFrame) {
        if self.frames.len() == MOST {
            // Down to the usual buffer at once: dropping a frame at a time would keep the delay at its greatest.
            self.frames.drain(..MOST - START);
        }
        self.frames.push_back(frame);
    }

    fn next(&mut self) -> Option<AudioFrame> {
        self.is_playing |= self.frames.len() >= START;
        if !self.is_playing {
            return None;
        }
        let frame = self.frames.pop_front();
        // Once empty, it waits again until the buffer is filled, or each late frame would be a gap of its own.
        self.is_playing = frame.is_some();
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn frame(number: u8) -> AudioFrame {
        [number; FRAME]
    }

    fn next(microphone: &mut Microphone) -> Option<u8> {
        microphone.next().map(|frame| frame[0])
    }

    #[test]
    fn a_few_frames_wait_before_the_first_is_played() {
        let mut microphone = Microphone::default();
        microphone.push(frame(1));
        assert_eq!(next(&mut microphone), None);
        for number in 2..=3 {
            microphone.push(frame(number));
        }
        let played: Vec<_> = (0..4).map(|_| next(&mut microphone)).collect();
        assert_eq!(played, [Some(1), Some(2), Some(3), None]);
        microphone.push(frame(4));
        assert_eq!(next(&mut microphone), None, "it waits again");
    }

    #[test]
    fn a_fast_clock_delays_nothing() {
        let mut microphone = Microphone::default();
        for number in 0..=200 {
            microphone.push(frame(number));
            assert!(microphone.frames.len() <= MOST);
        }
        let played = next(&mut microphone).expect("a frame");
        assert!(200 - played <= MOST as u8, "{played}");
    }

    #[test]
    fn a_browser_that_does_not_read_holds_one_second() {
        let (leg, mut browser) = BrowserLeg::new();
        for _ in 0..1_000 {
            pass(&leg.to_browser, &frame(0));
        }
        let waiting = std::iter::from_fn(|| browser.heard.try_recv().ok()).count();
        assert_eq!(waiting, WAITING);
    }
}
