//! The caller's audio on its way to a bot: frames of 20 ms that never pause, one for each slot of 20 ms since the start. Pure.
//!
//! A packet that is the next in order is passed on at once. Packets behind a gap in the sequence numbers wait until two of them wait, or for
//! 40 ms. Audio that is still missing then is concealed. A slot is filled if nothing has come for it 10 ms after it was due, which is 30 ms
//! after the packet before. A packet that comes after its slot was filled takes the next slot, so its audio isn't lost. The stream is then
//! ahead of the clock by one slot, which leaves room for the next late packet. It is never ahead by more than [`MAX_AHEAD`] slots, so the
//! delay doesn't grow.

use std::time::Duration;

use trunkline_sip::moment::Moment;

use crate::bot::wire::FRAME;

use super::concealment::Concealment;
use super::g711;
use super::rtp::Header;

const SLOT: Duration = Duration::from_millis(20);

/// Delay after which a slot that was due is filled, if no audio has come for it.
pub(super) const PATIENCE: Duration = Duration::from_millis(10);

/// Longest time that packets wait behind a gap.
const GAP: Duration = Duration::from_millis(40);

/// Most packets that wait behind a gap.
const WAITING: usize = 2;

/// Longest packet that may wait, in octets: 60 ms. A longer one is passed on at once.
const MAX_PACKET: usize = 480;

/// Most slots that the stream may be ahead of the clock. Frames beyond are discarded.
const MAX_AHEAD: u64 = 5;

/// Most frames that one tick fills after the thread was held up. Further slots are skipped.
const MAX_FILL: usize = 10;

/// Most frames of one gap that are concealed. The rest of a longer gap is left out.
const MAX_CONCEALED: usize = 10;

/// Frames for which a silent caller is concealed before silence is sent.
const CONCEALED: u32 = 3;

/// Greatest difference of sequence numbers within one stream; beyond it the sender has restarted.
const NEAR: u16 = 50;

/// Caller's audio on its way to a bot.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    started_at: Option<Moment>,
    /// Frames passed on: the number of the next slot.
    slots: u64,
    /// Frame that isn't full yet.
    partial: Vec<u8>,
    /// Numbers of the packet that is next in order; `None` before the first packet.
    expected: Option<Numbers>,
    waiting: [Waiting; WAITING],
    /// Time since which packets wait.
    waiting_since: Option<Moment>,
    /// Frames filled by the clock since the last packet.
    filled: u32,
    concealment: Concealment,
    counts: InboundCounts,
}

/// Counts of frames and packets.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct InboundCounts {
    /// Packets that came after their audio was concealed, or twice.
    pub(super) late: u64,
    /// Frames that were concealed or filled.
    pub(super) concealed: u64,
    /// Frames discarded because the stream was too far ahead of the clock.
    pub(super) ahead: u64,
}

/// Numbers that identify a packet.
#[derive(Copy, Clone, Debug)]
struct Numbers {
    ssrc: u32,
    sequence: u16,
    timestamp: u32,
}

impl Numbers {
    const fn of(header: &Header) -> Self {
        Self {
            ssrc: header.ssrc,
            sequence: header.sequence,
            timestamp: header.timestamp,
        }
    }

    /// Returns the numbers of the packet after this one, which has `octets` of audio.
    const fn next(self, octets: usize) -> Self {
        Self {
            ssrc: self.ssrc,
            sequence: self.sequence.wrapping_add(1),
            timestamp: self.timestamp.wrapping_add(octets as u32),
        }
    }
}

/// A packet behind a gap; empty if it has no audio.
#[derive(Clone, Debug, Default)]
struct Waiting {
    sequence: u16,
    timestamp: u32,
    audio: Vec<u8>,
}

impl Inbound {
    /// Begins the first slot. A second call changes nothing.
    pub(super) const fn start(&mut self, now: Moment) {
        // A call is started again by each agreement on its media. The slots that have passed are counted from the first start: with a later one
        // all audio would count as far ahead of the clock.
        if self.started_at.is_none() {
            self.started_at = Some(now);
        }
    }

    /// Returns the counts so far.
    pub(super) const fn counts(&self) -> InboundCounts {
        self.counts
    }

    /// Takes a packet of µ-law audio, and calls `pass` with each frame that is ready.
    pub(super) fn hear(
        &mut self,
        header: &Header,
        audio: &[u8],
        now: Moment,
        mut pass: impl FnMut(&[u8; FRAME]),
    ) {
        // Audio before the start isn't passed on: the slots count from there.
        if self.started_at.is_none() {
            return;
        }

        let numbers = Numbers::of(header);
        let expected = self
            .expected
            .filter(|expected| expected.ssrc == header.ssrc);
        // Another SSRC is another stream (RFC 3550 §5.1): what is missing of the last one isn't waited for.
        let Some(expected) = expected else {
            self.release(now, &mut pass);
            return self.accept(numbers, audio, now, &mut pass);
        };

        match header.sequence.wrapping_sub(expected.sequence) {
            0 => {
                self.accept(numbers, audio, now, &mut pass);
                self.release_in_order(now, &mut pass);
            }
            ahead @ 1..=NEAR => {
                let missing = frames(header.timestamp.wrapping_sub(expected.timestamp));
                // If the clock has filled as many slots as are missing, a wait gains nothing. The lower of two counts
                // decides: a sender that pauses (silence suppression) skips more of its timestamps than packets.
                let is_filled = usize::try_from(self.filled)
                    .is_ok_and(|filled| filled >= missing.min(usize::from(ahead)));

                // Where a packet waits already, this one waits too, so that the two stay in order.
                let must_wait =
                    (!is_filled || self.waiting_since.is_some()) && audio.len() <= MAX_PACKET;
                if must_wait {
                    self.wait(header, audio, now, &mut pass);
                } else {
                    self.release(now, &mut pass);
                    // A later packet waited and has just been passed on; this one was too long to wait beside it.
                    if self.expected.is_some_and(|expected| {
                        header.sequence.wrapping_sub(expected.sequence) > NEAR
                    }) {
                        self.counts.late += 1;
                        return;
                    }
                    self.fill_gap(header.timestamp, now, &mut pass);
                    self.accept(numbers, audio, now, &mut pass);
                }
            }

            behind if behind >= NEAR.wrapping_neg() => self.counts.late += 1,
            // The sender has restarted.
            _ => {
                self.release(now, &mut pass);
                self.accept(numbers, audio, now, &mut pass);
            }
        }
    }

    /// Fills the slots whose audio hasn't come in time.
    pub(super) fn tick(&mut self, now: Moment, mut pass: impl FnMut(&[u8; FRAME])) {
        let Some(started_at) = self.started_at else {
            return;
        };
        if let Some(since) = self.waiting_since {
            // No slot is filled meanwhile: the waiting packets have audio for it, and would come behind the filling.
            if now.since(since) >= GAP {
                self.release(now, &mut pass);
            }
            return;
        }

        for _ in 0..MAX_FILL {
            if now < due(started_at, self.slots) + PATIENCE {
                return;
            }
            let mut frame = [g711::SILENCE; FRAME];
            if self.expected.is_some() && self.filled < CONCEALED {
                self.concealment.conceal(&mut frame);
            }
            self.filled = self.filled.saturating_add(1);
            self.counts.concealed += 1;
            self.push(&frame, now, &mut pass);
        }

        // The thread was held up for long. The slots that are still due are skipped, so that the bot gets no burst of silence.
        self.slots = self.slots.max(slot(started_at, now));
    }

    fn accept(
        &mut self,
        numbers: Numbers,
        audio: &[u8],
        now: Moment,
        pass: &mut impl FnMut(&[u8; FRAME]),
    ) {
        self.expected = Some(numbers.next(audio.len()));
        self.filled = 0;

        for part in audio.chunks(FRAME) {
            let mut heard = [0; FRAME];
            heard[..part.len()].copy_from_slice(part);
            self.concealment.hear(&mut heard[..part.len()]);
            self.push(&heard[..part.len()], now, pass);
        }
    }

    fn wait(
        &mut self,
        header: &Header,
        audio: &[u8],
        now: Moment,
        pass: &mut impl FnMut(&[u8; FRAME]),
    ) {
        let is_known =
            |waiting: &Waiting| !waiting.audio.is_empty() && waiting.sequence == header.sequence;
        if self.waiting.iter().any(is_known) {
            self.counts.late += 1;
            return;
        }

        // One place is always free here: the packet that takes the second releases both.
        if let Some(free) = self
            .waiting
            .iter_mut()
            .find(|waiting| waiting.audio.is_empty())
        {
            free.sequence = header.sequence;
            free.timestamp = header.timestamp;
            free.audio.extend_from_slice(audio);
        }
        self.waiting_since.get_or_insert(now);

        if self.waiting.iter().all(|waiting| !waiting.audio.is_empty()) {
            self.release(now, pass);
        }
    }

    /// Passes on the waiting packets that are now in order.
    fn release_in_order(&mut self, now: Moment, pass: &mut impl FnMut(&[u8; FRAME])) {
        while let Some(Numbers { ssrc, sequence, .. }) = self.expected {
            let next = self
                .waiting
                .iter()
                .position(|waiting| !waiting.audio.is_empty() && waiting.sequence == sequence);
            let Some(next) = next else { break };
            self.release_one(next, ssrc, now, pass);
        }
        if self.waiting.iter().all(|waiting| waiting.audio.is_empty()) {
            self.waiting_since = None;
        }
    }

    /// Passes on all waiting packets, with the gaps before them concealed.
    fn release(&mut self, now: Moment, pass: &mut impl FnMut(&[u8; FRAME])) {
        while let Some(Numbers { ssrc, sequence, .. }) = self.expected {
            let next = (0..WAITING)
                .filter(|at| !self.waiting[*at].audio.is_empty())
                .min_by_key(|at| self.waiting[*at].sequence.wrapping_sub(sequence));
            let Some(next) = next else { break };
            self.fill_gap(self.waiting[next].timestamp, now, pass);
            self.release_one(next, ssrc, now, pass);
        }
        self.waiting_since = None;
    }

    fn release_one(
        &mut self,
        at: usize,
        ssrc: u32,
        now: Moment,
        pass: &mut impl FnMut(&[u8; FRAME]),
    ) {
        let Waiting {
            sequence,
            timestamp,
            mut audio,
        } = std::mem::take(&mut self.waiting[at]);
        let numbers = Numbers {
            ssrc,
            sequence,
            timestamp,
        };
        self.accept(numbers, &audio, now, pass);
        // The buffer is reused.
        audio.clear();
        self.waiting[at].audio = audio;
    }

    /// Conceals the audio missing before `timestamp`, except for frames that the clock has filled.
    fn fill_gap(&mut self, timestamp: u32, now: Moment, pass: &mut impl FnMut(&[u8; FRAME])) {
        let Some(expected) = self.expected else {
            return;
        };
        let missing = frames(timestamp.wrapping_sub(expected.timestamp));
        let filled = usize::try_from(self.filled).unwrap_or(usize::MAX);
        for _ in 0..missing.saturating_sub(filled).min(MAX_CONCEALED) {
            let mut frame = [g711::SILENCE; FRAME];
            self.concealment.conceal(&mut frame);
            self.counts.concealed += 1;
            self.push(&frame, now, pass);
        }
    }

    /// Appends audio to the frame that isn't full, and passes it on once it is, in the next slot.
    fn push(&mut self, audio: &[u8], now: Moment, pass: &mut impl FnMut(&[u8; FRAME])) {
        self.partial.extend_from_slice(audio);
        while let Some(frame) = self.partial.first_chunk::<FRAME>() {
            let started_at = self.started_at.unwrap_or(now);
            if self.slots < slot(started_at, now) + MAX_AHEAD {
                pass(frame);
                self.slots += 1;
            } else {
                self.counts.ahead += 1;
            }
            self.partial.drain(..FRAME);
        }
    }
}

/// Returns the time at which a slot is due.
fn due(started_at: Moment, slot: u64) -> Moment {
    started_at + Duration::from_micros(slot.saturating_mul(SLOT.as_micros() as u64))
}

/// Returns the slot that is due.
const fn slot(started_at: Moment, now: Moment) -> u64 {
    now.since(started_at).as_micros() as u64 / SLOT.as_micros() as u64
}

/// Returns the number of frames in a difference of timestamps, rounded; 0 if the difference is negative.
fn frames(difference: u32) -> usize {
    match difference {
        0..0x8000_0000 => (difference as usize + FRAME / 2) / FRAME,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A renegotiation starts the stream again: a 200 after a 183 with SDP, a session refresh, the end of a hold.
    #[test]
    fn a_second_start_goes_on_with_the_stream() {
        let mut inbound = Inbound::default();
        inbound.start(at(0));
        let mut heard = 0;

        for sequence in 0..200 {
            let now = at(u64::from(sequence) * 20);
            if sequence == 100 {
                inbound.start(now);
            }
            inbound.hear(&header(sequence), &audio(sequence), now, |_| heard += 1);
            inbound.tick(now, |_| {});
        }

        assert_eq!((heard, inbound.counts().ahead), (200, 0));
    }

    fn at(milliseconds: u64) -> Moment {
        Moment::from_secs(1_000) + Duration::from_millis(milliseconds)
    }

    fn header(sequence: u16) -> Header {
        Header {
            marker: false,
            payload_type: 0,
            sequence,
            timestamp: u32::from(sequence) * 160,
            ssrc: 7,
        }
    }

    /// Audio of a packet: its number, loud enough not to be silence.
    fn audio(sequence: u16) -> [u8; FRAME] {
        [number(sequence); FRAME]
    }

    fn number(sequence: u16) -> u8 {
        (sequence % 64) as u8
    }

    /// Time, packet that comes; ticks run every 20 ms from 10 ms on. Returns the frames with the time of each: a number, `~` where it is
    /// concealed, `.` where it is silent.
    fn heard(packets: &[(u64, u16)], until: u64) -> Vec<(u64, String)> {
        let mut inbound = Inbound::default();
        inbound.start(at(0));

        let mut frames = Vec::new();
        for time in 0..until {
            let mut pass = |frame: &[u8; FRAME]| {
                let last = frame[FRAME - 1];
                let is_whole = frame[FRAME / 2..].iter().all(|octet| *octet == last);

                frames.push((
                    time,
                    match last {
                        g711::SILENCE => ".".to_owned(),
                        number
                            if is_whole
                                && packets.iter().any(|(came, of)| {
                                    *came <= time && self::number(*of) == number
                                }) =>
                        {
                            number.to_string()
                        }
                        _ => "~".to_owned(),
                    },
                ));
            };

            for (_, sequence) in packets.iter().filter(|(came, _)| *came == time) {
                inbound.hear(&header(*sequence), &audio(*sequence), at(time), &mut pass);
            }
            if time % 20 == 10 {
                inbound.tick(at(time), &mut pass);
            }
        }

        frames
    }

    fn joined(frames: &[(u64, String)]) -> String {
        frames
            .iter()
            .map(|(_, frame)| frame.as_str())
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn packets_pass_at_once_in_order_and_losses_are_concealed() {
        /// Times and sequence numbers of packets.
        type Packets = &'static [(u64, u16)];

        let cases: [(&str, Packets, u64, &str); 6] = [
            ("as they come", &[(0, 1), (20, 2), (40, 3)], 50, "1 2 3"),
            (
                "swapped: the first waits for the second",
                &[(0, 1), (19, 3), (20, 2), (40, 4)],
                50,
                "1 2 3 4",
            ),
            ("twice", &[(0, 1), (20, 2), (21, 2), (40, 3)], 50, "1 2 3"),
            (
                "two behind a gap conclude it",
                &[(0, 1), (5, 3), (6, 4)],
                9,
                "1 ~ 3 4",
            ),
            (
                "the sender begins again",
                &[(0, 1), (20, 9_000), (40, 9_001)],
                50,
                &format!("1 {} {}", number(9_000), number(9_001)),
            ),
            ("nothing at all", &[], 71, ". . . ."),
        ];
        for (name, packets, until, expected) in cases {
            assert_eq!(joined(&heard(packets, until)), expected, "{name}");
        }
    }

    #[test]
    fn nothing_waits_unless_there_is_a_gap() {
        let packets = [(3, 1), (23, 2), (43, 3)];
        let times: Vec<u64> = heard(&packets, 50).iter().map(|(time, _)| *time).collect();
        assert_eq!(times, [3, 23, 43]);
    }

    #[test]
    fn a_silent_caller_is_filled_after_30_ms_and_every_20_ms() {
        let frames = heard(&[(0, 1), (20, 2)], 200);
        let times: Vec<u64> = frames.iter().map(|(time, _)| *time).collect();
        assert_eq!(times, [0, 20, 50, 70, 90, 110, 130, 150, 170, 190]);
        let last = joined(&frames[5..]);
        assert_eq!(last, ". . . . .", "faded after 60 ms");
    }

    #[test]
    fn a_packet_that_comes_late_keeps_its_audio() {
        // The third is 25 ms late: its slot has been filled, so it takes the next.
        let frames = heard(&[(0, 1), (20, 2), (65, 3), (66, 4), (80, 5)], 90);
        assert_eq!(joined(&frames), "1 2 ~ 3 4 5");
    }

    /// Second half of a frame, which no concealment resembles: its number, and noise made of it.
    fn half_of(id: u32) -> [u8; 80] {
        let mut noise = id.wrapping_mul(2_654_435_761) | 1;
        let mut half = [0; 80];
        for octet in &mut half {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *octet = (noise >> 24) as u8;
        }
        half[..4].copy_from_slice(&id.to_be_bytes());
        half
    }

    /// An hour with 5 % loss, 30 ms of jitter, reordering and a clock that runs wrong: the stream keeps to the clock.
    #[test]
    fn an_hour_does_not_drift() {
        for drift in [-200_i64, 0, 200] {
            let mut seed = 0x1234_5678_9abc_def0_u64;
            let mut random = move |below: u64| {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed % below
            };

            let mut inbound = Inbound::default();
            inbound.start(at(0));
            let mut arrivals: Vec<(u64, u16, u32)> = Vec::new();
            let mut sent = 0_u32;
            let (mut frames, mut kept) = (0_u64, 0_u64);
            let mut last = None;

            const HOUR: u64 = 3_600_000;
            for time in 0..HOUR {
                let due =
                    |sent: u32| (i64::from(sent) * 20 * (1_000_000 + drift) / 1_000_000) as u64;
                while due(sent) <= time {
                    if random(100) >= 5 {
                        arrivals.push((time + random(30), sent as u16, sent));
                    }
                    sent += 1;
                }

                let mut pass = |frame: &[u8; FRAME]| {
                    frames += 1;
                    let id = u32::from_be_bytes([frame[80], frame[81], frame[82], frame[83]]);
                    if frame[80..] == half_of(id) {
                        assert!(last.is_none_or(|last| last < id), "in order, and once");
                        last = Some(id);
                        kept += 1;
                    }
                };

                arrivals.retain(|(due, sequence, id)| {
                    if *due > time {
                        return true;
                    }
                    let mut audio = [0x90; FRAME];
                    audio[80..].copy_from_slice(&half_of(*id));
                    let header = Header {
                        timestamp: id * 160,
                        ..header(*sequence)
                    };
                    inbound.hear(&header, &audio, at(time), &mut pass);
                    false
                });

                if time % 20 == 10 {
                    inbound.tick(at(time), &mut pass);
                }
                let ahead = frames as i64 - (time / 20) as i64;
                assert!(
                    (-3..=6).contains(&ahead),
                    "{ahead} frames ahead at {time} ms"
                );
            }

            let share = kept as f64 / f64::from(sent);
            assert!(
                share > 0.90,
                "{share} of the frames were passed on at {drift} ppm"
            );
        }
    }

    #[test]
    fn packets_of_any_length_become_frames_of_20_ms() {
        for length in [80, 160, 240, 320, 480] {
            let mut inbound = Inbound::default();
            inbound.start(at(0));
            let mut octets = Vec::new();
            let mut next = 0_u8;
            for sequence in 0..12_u16 {
                let audio: Vec<u8> = (0..length)
                    .map(|_| {
                        next = next.wrapping_add(1);
                        next
                    })
                    .collect();

                let header = Header {
                    timestamp: u32::from(sequence) * length,
                    ..header(sequence)
                };
                let time = u64::from(sequence) * u64::from(length) / 8;
                inbound.hear(&header, &audio, at(time), |frame| {
                    octets.extend_from_slice(frame)
                });
            }

            let expected: Vec<u8> = (1..=octets.len()).map(|at| at as u8).collect();
            assert_eq!(octets, expected, "{length}");
            assert!(
                octets.len() >= (12 * length as usize).saturating_sub(FRAME),
                "{length}"
            );
        }
    }
}
