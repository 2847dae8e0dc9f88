//! Keys in both directions beside the audio: telephone-events (RFC 4733), or tones in the audio if those weren't negotiated (ITU-T Q.23).

use std::collections::VecDeque;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use crate::bot::wire::FRAME;

use super::g711;
use super::rtp::Header;

/// Keys by the number of their event (RFC 4733 §3.2).
pub(super) const KEYS: &[u8; 16] = b"0123456789*#ABCD";

/// Shortest time between two key presses of a person.
const PRESS: Duration = Duration::from_millis(40);
/// The same in units of the timestamp, at 8 kHz.
const PRESS_UNITS: u32 = 320;

/// Pause after a key's last packet that no delay of the network explains.
const RESTARTED: Duration = Duration::from_secs(2);

/// Most keys that wait to be sent. Further ones are dropped.
const MAX_WAITING: usize = 64;

/// Frames of a key, of 20 ms each: 100 ms pressed, the end sent three times (RFC 4733 §2.5.1.4), and a pause of 60 ms.
const PRESSED: u16 = 5;
const ENDS: u16 = 3;
const PAUSE: u16 = 3;

/// Frequencies of rows and columns in Hz.
const ROWS: [f32; 4] = [697.0, 770.0, 852.0, 941.0];
const COLUMNS: [f32; 4] = [1_209.0, 1_336.0, 1_477.0, 1_633.0];

/// Events by row and column.
const PAD: [[u8; 4]; 4] = [[1, 2, 3, 12], [4, 5, 6, 13], [7, 8, 9, 14], [10, 0, 11, 15]];

/// Keys that the peer presses, as telephone-events. Many packets report each key press, some of which may be lost or late. The first of
/// them counts; its timestamp identifies the event (RFC 4733 §2.5.1).
#[derive(Debug, Default)]
pub(super) struct HeardKeys {
    last: Option<HeardKey>,
}

/// Event that was reported last.
#[derive(Copy, Clone, Debug)]
struct HeardKey {
    event: u8,
    ssrc: u32,
    /// Timestamp of its last segment.
    timestamp: u32,
    /// Time of its first packet.
    at: Moment,
    /// Time of its last packet.
    heard_at: Moment,
}

impl HeardKey {
    /// Returns whether a packet begins the next segment of this event. An event that is longer than its field of 16 bits goes on under the
    /// timestamp at which the segment before ended, without a marker (RFC 4733 §2.5.1.3).
    const fn goes_on(&self, header: &Header, event: u8) -> bool {
        const SEGMENT: u32 = 0xffff;
        let is_next = header.timestamp.wrapping_sub(self.timestamp) == SEGMENT;
        is_next && !header.marker && header.ssrc == self.ssrc && event == self.event
    }
}

impl HeardKeys {
    /// Takes a packet; returns the event that it reports for the first time.
    pub(super) fn hear(&mut self, header: &Header, payload: &[u8], now: Moment) -> Option<u8> {
        let &[event, _, _, _] = payload else {
            return None;
        };
        let (ssrc, timestamp) = (header.ssrc, header.timestamp);
        if let Some(last) = &mut self.last
            && last.goes_on(header, event)
        {
            last.timestamp = timestamp;
            last.heard_at = now;
            return None;
        }

        // The packets of two key presses may arrive together after a pause of the network: the sender's clock counts, where it goes on.
        let is_new = self.last.is_none_or(|last| {
            let after = timestamp.wrapping_sub(last.timestamp);
            let is_pressed_later = (PRESS_UNITS..0x8000_0000).contains(&after);
            let is_later = matches!(after, 1..0x8000_0000);
            let arrives_later = now.since(last.at) >= PRESS;
            // After such a pause no packet of the last event is on its way: the sender's clock has fallen back, as after a hold, or all of
            // its events have one timestamp.
            let is_restarted = now.since(last.heard_at) >= RESTARTED
                && (timestamp != last.timestamp || header.marker);
            match last.ssrc == ssrc {
                true => is_pressed_later || is_later && arrives_later || is_restarted,
                false => arrives_later,
            }
        });
        if !is_new {
            if let Some(last) = &mut self.last
                && last.ssrc == ssrc
                && last.timestamp == timestamp
            {
                last.heard_at = now;
            }
            return None;
        }
        self.last = Some(HeardKey {
            event,
            ssrc,
            timestamp,
            at: now,
            heard_at: now,
        });
        // Events above 15 (flash and the like) are no keys, but were followed above, as their packets look the same.
        (event < 16).then_some(event)
    }
}

/// Keys on their way to the peer.
#[derive(Debug, Default)]
pub(super) struct SentKeys {
    waiting: VecDeque<u8>,
    /// Event that is being sent, and the number of its next frame.
    current: Option<(u8, u16)>,
}

/// A frame of a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyFrame {
    event: u8,
    /// Number of the frame.
    at: u16,
}

impl SentKeys {
    /// Queues keys up to the first that isn't one, as far as there is room; returns whether all are queued.
    pub(super) fn press(&mut self, keys: &[u8]) -> bool {
        let event = |key: &u8| {
            KEYS.iter()
                .position(|of| *of == key.to_ascii_uppercase())
                .map(|at| at as u8)
        };
        let events = keys.iter().map_while(event);
        let room = MAX_WAITING - self.waiting.len();
        let before = self.waiting.len();
        self.waiting.extend(events.take(room));
        self.waiting.len() - before == keys.len()
    }

    /// Returns the frame of this tick, if a key is being sent.
    pub(super) fn next(&mut self) -> Option<KeyFrame> {
        let (event, at) = match self.current {
            Some(current) => current,
            None => (self.waiting.pop_front()?, 0),
        };
        let is_last = at + 1 == PRESSED + ENDS + PAUSE;
        self.current = (!is_last).then_some((event, at + 1));
        Some(KeyFrame { event, at })
    }
}

impl KeyFrame {
    /// Returns whether this is the frame whose timestamp the event has.
    pub(super) const fn is_first(self) -> bool {
        self.at == 0
    }

    /// Returns the payload of the telephone-event; `None` in the pause after a key.
    pub(super) const fn event(self) -> Option<[u8; 4]> {
        const END: u8 = 0x80;
        const VOLUME: u8 = 10;
        let frames = if self.at < PRESSED {
            self.at + 1
        } else {
            PRESSED
        };
        let [high, low] = (frames * FRAME as u16).to_be_bytes();
        match self.at {
            0..PRESSED => Some([self.event, VOLUME, high, low]),
            at if at < PRESSED + ENDS => Some([self.event, END | VOLUME, high, low]),
            _ => None,
        }
    }

    /// Fills a frame with the key's tones in place of the audio, and with silence after them.
    pub(super) fn tone(self, audio: &mut [u8; FRAME]) {
        audio.fill(g711::SILENCE);
        let at = PAD.iter().enumerate().find_map(|(row, keys)| {
            let column = keys.iter().position(|key| *key == self.event)?;
            Some((ROWS[row], COLUMNS[column]))
        });
        let Some((low, high)) = at.filter(|_| self.at < PRESSED) else {
            return;
        };

        // -10 dBm0 each.
        const AMPLITUDE: f32 = 7_000.0;
        let first = usize::from(self.at) * FRAME;
        for (sample, octet) in (first..).zip(audio) {
            let angle = std::f32::consts::TAU * sample as f32 / 8_000.0;
            *octet =
                g711::mu_law((((angle * low).sin() + (angle * high).sin()) * AMPLITUDE) as i16);
        }
    }
}

/// Samples of a block that is searched for tones: 13 ms, half of the shortest key press that must be detected (ITU-T Q.24).
const BLOCK: usize = 106;

/// Least energy of a tone, as the mean square of a sample: -30 dBm0.
const MIN_POWER: f32 = 30_000.0;

/// Least share of a block's energy in the two tones.
const MIN_SHARE: f32 = 0.75;

/// Greatest ratio of power between the two tones: 8 dB either way.
const MAX_TWIST: f32 = 6.3;

/// Least ratio of power of a tone to the next strongest of its group.
const MIN_LEAD: f32 = 4.0;

/// Blocks after which a key counts as pressed, and after which it counts as released.
const ENOUGH: u8 = 2;

/// Keys that the peer presses, as tones in its audio.
#[derive(Debug)]
pub(super) struct HeardTones {
    samples: [f32; BLOCK],
    filled: usize,
    /// Event of the last blocks, and their number.
    last: Option<u8>,
    blocks: u8,
    /// Event that has been reported and is still pressed.
    pressed: Option<u8>,
}

impl Default for HeardTones {
    fn default() -> Self {
        Self {
            samples: [0.0; BLOCK],
            filled: 0,
            last: None,
            blocks: 0,
            pressed: None,
        }
    }
}

impl HeardTones {
    /// Takes µ-law audio; returns the event that it begins.
    pub(super) fn hear(&mut self, audio: impl Iterator<Item = u8>) -> Option<u8> {
        let mut began = None;
        for octet in audio {
            self.samples[self.filled] = f32::from(g711::linear(octet));
            self.filled += 1;
            if self.filled == BLOCK {
                self.filled = 0;
                began = self.judge().or(began);
            }
        }
        began
    }

    fn judge(&mut self) -> Option<u8> {
        let event = event(&self.samples);
        if event == self.last {
            self.blocks = self.blocks.saturating_add(1);
        } else {
            self.last = event;
            self.blocks = 1;
        }
        // Equal, not at least: a run of blocks is judged once. A run without a tone releases the key.
        if self.blocks != ENOUGH || event == self.pressed {
            return None;
        }
        self.pressed = event;
        event
    }
}

/// Returns the event whose tones make up a block.
fn event(samples: &[f32; BLOCK]) -> Option<u8> {
    let energy: f32 = samples.iter().map(|sample| sample * sample).sum();
    // Cheap check first: most blocks are too quiet for a tone, and each search is eight filters.
    if energy < MIN_POWER * BLOCK as f32 {
        return None;
    }

    let (row, low) = strongest(samples, &ROWS)?;
    let (column, high) = strongest(samples, &COLUMNS)?;
    let twist = (low / high).max(high / low);
    // A tone of amplitude A has the energy A²/2 a sample, and the power (A·N/2)² here.
    let share = (low + high) * 2.0 / (BLOCK as f32 * energy);

    (twist <= MAX_TWIST && share >= MIN_SHARE).then(|| PAD[row][column])
}

/// Returns the strongest frequency of a group and its power, if it leads the others.
fn strongest(samples: &[f32; BLOCK], group: &[f32; 4]) -> Option<(usize, f32)> {
    let powers = group.map(|frequency| goertzel(samples, frequency));
    let (at, most) = powers
        .iter()
        .copied()
        .enumerate()
        .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let leads = powers
        .iter()
        .enumerate()
        .all(|(of, power)| of == at || power * MIN_LEAD <= most);
    leads.then_some((at, most))
}

/// Returns the power of a frequency in a block, by Goertzel's algorithm.
fn goertzel(samples: &[f32; BLOCK], frequency: f32) -> f32 {
    let coefficient = 2.0 * (std::f32::consts::TAU * frequency / 8_000.0).cos();
    let (mut one, mut two) = (0.0_f32, 0.0_f32);
    for sample in samples {
        (one, two) = (sample + coefficient * one - two, one);
    }
    one * one + two * two - coefficient * one * two
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tones_of(keys: &[u8]) -> Vec<u8> {
        let mut sent = SentKeys::default();
        assert!(sent.press(keys));
        let mut audio = Vec::new();
        while let Some(frame) = sent.next() {
            let mut octets = [0; FRAME];
            frame.tone(&mut octets);
            audio.extend(octets);
        }
        audio
    }

    fn heard(audio: &[u8]) -> Vec<u8> {
        let mut tones = HeardTones::default();
        audio
            .chunks(FRAME)
            .filter_map(|frame| tones.hear(frame.iter().copied()))
            .map(|event| KEYS[usize::from(event)])
            .collect()
    }

    #[test]
    fn every_key_sent_as_tones_is_heard_once() {
        for offset in 0..BLOCK {
            let silence = vec![g711::SILENCE; offset];
            assert_eq!(heard(&[silence, tones_of(KEYS)].concat()), KEYS, "{offset}");
        }
        assert_eq!(heard(&tones_of(b"5511")), b"5511", "a key twice");
    }

    #[test]
    fn what_is_no_key_is_not_heard() {
        let wave = |parts: &[(f32, f32)]| -> Vec<u8> {
            (0..8_000)
                .map(|at| {
                    let sum: f32 = parts
                        .iter()
                        .map(|(frequency, amplitude)| {
                            (std::f32::consts::TAU * frequency * at as f32 / 8_000.0).sin()
                                * amplitude
                        })
                        .sum();
                    g711::mu_law(sum as i16)
                })
                .collect()
        };

        let mut seed = 1_u32;
        let noise: Vec<u8> = (0..8_000)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                g711::mu_law((seed >> 16) as i16 / 4)
            })
            .collect();

        let cases = [
            ("silence", vec![g711::SILENCE; 8_000]),
            ("one tone", wave(&[(770.0, 8_000.0)])),
            ("dial tone", wave(&[(350.0, 6_000.0), (440.0, 6_000.0)])),
            ("two rows", wave(&[(697.0, 6_000.0), (770.0, 6_000.0)])),
            ("far too faint", wave(&[(770.0, 60.0), (1_336.0, 60.0)])),
            (
                "one much louder",
                wave(&[(770.0, 9_000.0), (1_336.0, 1_000.0)]),
            ),
            (
                "under speech of the same strength",
                wave(&[
                    (770.0, 4_000.0),
                    (1_336.0, 4_000.0),
                    (300.0, 4_000.0),
                    (2_100.0, 4_000.0),
                ]),
            ),
            ("noise", noise),
        ];

        for (name, audio) in cases {
            assert_eq!(heard(&audio), b"", "{name}");
        }
    }

    #[test]
    fn an_event_has_the_packets_of_the_rfc() {
        let mut sent = SentKeys::default();
        assert!(sent.press(b"#"));

        let frames: Vec<Option<[u8; 4]>> = std::iter::from_fn(|| sent.next())
            .map(KeyFrame::event)
            .collect();
        let pressed = |duration: u16, end: u8| {
            let [high, low] = duration.to_be_bytes();
            Some([11, end | 10, high, low])
        };

        assert_eq!(
            frames,
            [
                pressed(160, 0),
                pressed(320, 0),
                pressed(480, 0),
                pressed(640, 0),
                pressed(800, 0),
                pressed(800, 0x80),
                pressed(800, 0x80),
                pressed(800, 0x80),
                None,
                None,
                None,
            ]
        );
    }

    #[test]
    fn keys_are_bounded_and_checked() {
        let mut sent = SentKeys::default();
        assert!(!sent.press(b"1w2"), "a w is no key");
        assert!(!sent.press(&[b'1'; MAX_WAITING]));
        assert_eq!(sent.waiting.len(), MAX_WAITING);
    }

    /// Header of a telephone-event's packet.
    const fn event_header(marker: bool, timestamp: u32, ssrc: u32) -> Header {
        Header {
            marker,
            payload_type: 101,
            sequence: 1,
            timestamp,
            ssrc,
        }
    }

    #[test]
    fn a_key_is_reported_once() {
        let mut keys = HeardKeys::default();
        for (case, event, timestamp, ssrc, time, expected) in [
            ("its first packet", 5, 800, 7, 0, Some(5)),
            ("again", 5, 800, 7, 20, None),
            ("its end", 5, 800, 7, 40, None),
            ("the next key", 5, 2_400, 7, 200, Some(5)),
            ("a late packet of the first", 5, 800, 7, 220, None),
            ("a hash", 11, 4_000, 7, 400, Some(11)),
            ("faster than anybody can", 6, 4_100, 7, 410, None),
            ("a flash is no key", 16, 8_000, 7, 500, None),
            ("of another stream", 0, 100, 8, 600, Some(0)),
            ("the next key, held up with it", 1, 1_700, 8, 601, Some(1)),
        ] {
            let header = event_header(false, timestamp, ssrc);
            let now = Moment::from_secs(1_000) + Duration::from_millis(time);
            assert_eq!(
                keys.hear(&header, &[event, 10, 0, 160], now),
                expected,
                "{case}"
            );
            assert_eq!(keys.hear(&header, b"audio", now), None, "{case}");
        }
    }

    #[test]
    fn keys_are_heard_after_the_senders_clock_fell_back() {
        let mut keys = HeardKeys::default();
        for (case, event, marker, timestamp, time, expected) in [
            ("a press", 5, true, 1_600_000, 0, Some(5)),
            ("its end", 5, false, 1_600_000, 100, None),
            ("a late packet before it", 4, false, 1_598_000, 120, None),
            ("the clock has fallen back", 6, false, 800, 2_200, Some(6)),
            ("its end", 6, false, 800, 2_300, None),
            ("the next", 7, false, 9_000, 2_900, Some(7)),
            ("its end, held for long", 7, false, 9_000, 6_000, None),
            ("one timestamp for all", 8, true, 9_000, 8_100, Some(8)),
            ("its end", 8, false, 9_000, 8_200, None),
        ] {
            let header = event_header(marker, timestamp, 7);
            let now = Moment::from_secs(1_000) + Duration::from_millis(time);
            let heard = keys.hear(&header, &[event, 10, 0, 160], now);
            assert_eq!(heard, expected, "{case}");
        }
    }

    #[test]
    fn a_key_that_is_held_is_one_press() {
        const SEGMENT: u32 = 0xffff;
        let mut keys = HeardKeys::default();
        for (case, event, marker, timestamp, seconds, expected) in [
            ("the press", 5, true, 800, 0, Some(5)),
            ("its second segment", 5, false, 800 + SEGMENT, 8, None),
            ("again", 5, false, 800 + SEGMENT, 9, None),
            ("its third segment", 5, false, 800 + 2 * SEGMENT, 16, None),
            (
                "the end of the second, late",
                5,
                false,
                800 + SEGMENT,
                17,
                None,
            ),
            ("another key", 6, false, 800 + 3 * SEGMENT, 24, Some(6)),
            (
                "a press, by its marker",
                6,
                true,
                800 + 4 * SEGMENT,
                32,
                Some(6),
            ),
            (
                "a press, by its time",
                6,
                false,
                799 + 5 * SEGMENT,
                40,
                Some(6),
            ),
        ] {
            let header = event_header(marker, timestamp, 7);
            let now = Moment::from_secs(1_000 + seconds);
            let heard = keys.hear(&header, &[event, 10, 0xff, 0xff], now);
            assert_eq!(heard, expected, "{case}");
        }
    }
}
