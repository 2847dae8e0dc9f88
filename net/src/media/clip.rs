//! Audio of our own for one call: clips, one after another, the peer's own audio some time later, or silence. Pure: audio of the peer comes
//! in, a frame leaves every 20 ms.
//!
//! Each order has a serial, which only grows: a clip that was loaded too late doesn't replace what was ordered after it.

use std::sync::Arc;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::g711::SILENCE;
use super::playout::Played;
use super::rtp::Header;
use super::spoken;

/// Samples of a frame, of 20 ms.
const FRAME: usize = 160;
/// Samples of a millisecond.
const MILLISECOND: usize = 8;
/// Silence before each digit that is said: 200 ms.
const PAUSE: usize = 200 * MILLISECOND;
/// Time for which a clip waits for a peer that hasn't been heard. Audio that is played earlier is lost.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest delay of an echo.
const MAX_DELAY: Duration = Duration::from_secs(2);
/// Largest difference between an echo's delay and the one that was asked for, in samples. A larger one means that the stream has jumped.
const DRIFT: i32 = 100 * MILLISECOND as i32;

/// Audio that is played: 8 kHz, µ-law. Clones share it.
#[derive(Clone, PartialEq, Eq)]
pub struct Clip(Arc<[u8]>);

impl Clip {
    /// A clip of these µ-law samples.
    pub fn of_mu_law(samples: &[u8]) -> Self {
        Self(samples.into())
    }

    /// The names of keys: `0` to `9`, `*` and `#`, each after a pause. Other characters are skipped.
    pub fn of_keys(keys: &[u8]) -> Self {
        let mut audio = Vec::new();
        for clip in keys.iter().filter_map(|key| spoken::key(*key)) {
            audio.resize(audio.len() + PAUSE, SILENCE);
            audio.extend_from_slice(clip);
        }
        Self(audio.into())
    }

    /// Returns its samples, µ-law.
    pub fn samples(&self) -> &[u8] {
        &self.0
    }

    /// Returns its length in octets, one for each sample.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether it has no audio.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl std::fmt::Debug for Clip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clip")
            .field("samples", &self.len())
            .finish()
    }
}

/// Order for the audio of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sound {
    /// A clip, once.
    Clip(Clip),
    /// The peer's own audio, after this delay.
    Echo(Duration),
    /// Silence.
    Silence,
}

/// Player of one call.
#[derive(Debug, Default)]
pub(super) struct Player {
    serial: u32,
    playing: Playing,
    /// Serial of a clip that has ended.
    ended: Option<u32>,
}

#[derive(Debug, Default)]
enum Playing {
    #[default]
    Silence,
    Clip {
        clip: Clip,
        at: usize,
        /// Time since which the clip has waited for a peer that isn't heard.
        since: Option<Moment>,
    },
    Echo(Echo),
}

impl Player {
    /// Takes an order. An order with a smaller serial than the last one is ignored.
    pub(super) fn play(&mut self, serial: u32, sound: Sound) {
        if serial < self.serial {
            return;
        }
        self.serial = serial;
        self.ended = None;

        self.playing = match sound {
            Sound::Clip(clip) => Playing::Clip {
                clip,
                at: 0,
                since: None,
            },
            Sound::Echo(delay) => Playing::Echo(Echo::new(delay.min(MAX_DELAY))),
            Sound::Silence => Playing::Silence,
        };
    }

    /// Takes µ-law audio of the peer.
    pub(super) fn hear(&mut self, header: &Header, audio: &[u8]) {
        if let Playing::Echo(echo) = &mut self.playing {
            echo.hear(header, audio);
        }
    }

    /// Fills the frame that is due, which holds silence.
    pub(super) fn fill(
        &mut self,
        frame: &mut [u8; FRAME],
        is_peer_known: bool,
        now: Moment,
    ) -> Played {
        match &mut self.playing {
            Playing::Silence => Played::Filled,
            Playing::Clip { clip, at, since } => {
                let waited = now.since(*since.get_or_insert(now));
                // Only a clip that hasn't begun waits. One that has goes on, even if the peer moves meanwhile.
                if *at == 0 && !is_peer_known && waited < PATIENCE {
                    return Played::Filled;
                }

                let rest = &clip.0[*at..];
                let length = rest.len().min(FRAME);
                frame[..length].copy_from_slice(&rest[..length]);
                *at += length;
                // A clip of whole frames ends here as well, one tick later, when nothing is left.
                if length < FRAME {
                    self.ended = Some(self.serial);
                    self.playing = Playing::Silence;
                }
                match length {
                    0 => Played::Filled,
                    _ => Played::Audio,
                }
            }
            Playing::Echo(echo) => echo.fill(frame),
        }
    }

    /// Returns the serial of a clip that has been played to its end; once.
    pub(super) const fn take_ended(&mut self) -> Option<u32> {
        self.ended.take()
    }
}

/// Audio of the peer on its way back, in a ring of samples.
#[derive(Debug)]
struct Echo {
    ring: Box<[u8]>,
    /// Number of the sample that is played next, and its place in the ring.
    next: u32,
    place: usize,
    delay: u32,
    /// SSRC of the peer's stream, and the offset from its timestamps to numbers of samples.
    offset: Option<(u32, u32)>,
}

impl Echo {
    fn new(delay: Duration) -> Self {
        let delay = delay.as_millis() as usize * MILLISECOND;
        // A packet may be as long as 200 ms, and come that much too early.
        // Whole frames, so that none wraps around the end of the ring.
        let length = (delay + 500 * MILLISECOND).next_multiple_of(FRAME);
        Self {
            ring: vec![SILENCE; length].into(),
            next: 0,
            place: 0,
            delay: delay as u32,
            offset: None,
        }
    }

    fn hear(&mut self, header: &Header, audio: &[u8]) {
        let wanted = self.next.wrapping_add(self.delay);
        let offset = match self.offset {
            Some((ssrc, offset)) if ssrc == header.ssrc => offset,
            Some(_) | None => wanted.wrapping_sub(header.timestamp),
        };
        let mut first = header.timestamp.wrapping_add(offset);
        let drift = first.wrapping_sub(wanted).cast_signed();
        let mut offset = offset;
        if drift.abs() > DRIFT {
            // The stream has jumped, or its clock has run away from ours.
            offset = wanted.wrapping_sub(header.timestamp);
            first = wanted;
        }
        self.offset = Some((header.ssrc, offset));

        let length = self.ring.len();
        for (sample, octet) in (0..).zip(audio) {
            let ahead = first.wrapping_add(sample).wrapping_sub(self.next) as usize;
            // A sample that was due earlier is dropped.
            if ahead < length {
                self.ring[(self.place + ahead) % length] = *octet;
            }
        }
    }

    fn fill(&mut self, frame: &mut [u8; FRAME]) -> Played {
        let played = &mut self.ring[self.place..self.place + FRAME];
        frame.copy_from_slice(played);
        played.fill(SILENCE);

        self.place = (self.place + FRAME) % self.ring.len();
        self.next = self.next.wrapping_add(FRAME as u32);
        match frame.iter().all(|octet| *octet == SILENCE) {
            true => Played::Filled,
            false => Played::Audio,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::from_secs(1_000) + Duration::from_millis(milliseconds)
    }

    fn header(timestamp: u32, ssrc: u32) -> Header {
        Header {
            marker: false,
            payload_type: 0,
            sequence: 0,
            timestamp,
            ssrc,
        }
    }

    /// The frames of a player, each by its first sample, until `until` milliseconds.
    fn frames(player: &mut Player, is_known: bool, until: u64) -> Vec<u8> {
        let ticks = (0..until).step_by(20);
        ticks
            .map(|time| {
                let mut frame = [SILENCE; FRAME];
                player.fill(&mut frame, is_known, at(time));
                frame[0]
            })
            .collect()
    }

    #[test]
    fn a_clip_is_played_once_and_whole() {
        let mut player = Player::default();
        let samples = [[1; FRAME], [2; FRAME]].concat();
        player.play(
            1,
            Sound::Clip(Clip::of_mu_law(&[&samples[..], &[3; 10]].concat())),
        );
        assert_eq!(frames(&mut player, true, 60), [1, 2, 3]);
        assert_eq!(player.take_ended(), Some(1));
        assert_eq!(player.take_ended(), None, "once");
        assert_eq!(frames(&mut player, true, 40), [SILENCE; 2]);
    }

    #[test]
    fn an_empty_clip_ends_at_once() {
        let mut player = Player::default();
        player.play(1, Sound::Clip(Clip::of_keys(b"x")));
        assert_eq!(frames(&mut player, true, 20), [SILENCE]);
        assert_eq!(player.take_ended(), Some(1));
    }

    #[test]
    fn a_clip_waits_for_a_peer_that_is_not_heard() {
        let mut player = Player::default();
        player.play(1, Sound::Clip(Clip::of_mu_law(&[1; FRAME])));
        assert_eq!(frames(&mut player, false, 100), [SILENCE; 5]);
        assert_eq!(frames(&mut player, true, 20), [1], "none of it is lost");

        player.play(2, Sound::Clip(Clip::of_mu_law(&[1; FRAME])));
        let played = frames(&mut player, false, 5_060);
        let first = played.iter().position(|sample| *sample == 1);
        assert_eq!(first, Some(250), "five seconds, and no longer");
    }

    #[test]
    fn an_order_that_comes_late_is_ignored() {
        let mut player = Player::default();
        player.play(2, Sound::Clip(Clip::of_mu_law(&[2; FRAME])));
        player.play(1, Sound::Clip(Clip::of_mu_law(&[1; FRAME])));
        assert_eq!(frames(&mut player, true, 20), [2]);
        player.play(3, Sound::Silence);
        player.play(2, Sound::Clip(Clip::of_mu_law(&[2; FRAME])));
        assert_eq!(frames(&mut player, true, 20), [SILENCE]);
        assert_eq!(player.take_ended(), None);
    }

    /// Plays an echo for as many ticks as there are packets, and some more. Each tick comes behind its packet; a packet is a timestamp, an SSRC and
    /// the sample that it holds 160 times.
    fn echoed(delay: u64, packets: &[Option<(u32, u32, u8)>], ticks: usize) -> Vec<u8> {
        let mut player = Player::default();
        player.play(1, Sound::Echo(Duration::from_millis(delay)));
        let packets = packets.iter().copied().chain(std::iter::repeat(None));
        let mut played = Vec::new();
        for (tick, packet) in (0..ticks).zip(packets) {
            if let Some((timestamp, ssrc, sample)) = packet {
                player.hear(&header(timestamp, ssrc), &[sample; FRAME]);
            }
            let mut frame = [SILENCE; FRAME];
            player.fill(&mut frame, true, at(tick as u64 * 20));
            played.push(frame[0]);
        }

        played
    }

    #[test]
    fn an_echo_comes_late_by_its_delay() {
        let packets: Vec<_> = (0..3_u8)
            .map(|at| Some(((u32::MAX - 100).wrapping_add(u32::from(at) * 160), 7, at)))
            .collect();
        let played = echoed(500, &packets, 30);
        assert_eq!(played[..25], [SILENCE; 25]);
        assert_eq!(played[25..], [0, 1, 2, SILENCE, SILENCE], "over the wrap");

        assert_eq!(echoed(0, &packets, 4), [0, 1, 2, SILENCE]);
    }

    #[test]
    fn an_echo_keeps_order_and_gaps_of_the_stream() {
        let packets = [
            Some((0, 7, 0)),
            Some((320, 7, 2)),
            Some((160, 7, 1)),
            // One is lost.
            None,
            Some((640, 7, 4)),
        ];
        let played = echoed(100, &packets, 11);
        assert_eq!(played[5..], [0, 1, 2, SILENCE, 4, SILENCE]);
    }

    #[test]
    fn a_stream_that_jumps_begins_anew() {
        let packets = [
            Some((0, 7, 0)),
            // Another source, then a jump of its clock.
            Some((9_000_000, 8, 1)),
            Some((4_000, 8, 2)),
        ];
        let played = echoed(40, &packets, 6);
        assert_eq!(played[2..], [0, 1, 2, SILENCE]);
    }

    #[test]
    fn an_echo_goes_on_over_the_end_of_its_ring() {
        let packets: Vec<_> = (0..400_u32)
            .map(|at| Some((at * 160, 7, (at % 100) as u8)))
            .collect();
        let played = echoed(500, &packets, 425);
        let expected: Vec<u8> = (0..400_u32).map(|at| (at % 100) as u8).collect();
        assert_eq!(played[25..], expected);
    }
}
