//! The caller's audio on its way to a bot: frames of 20 ms, one for each slot of 20 ms since the start. Pure.
//!
//! A packet that is the next in order is passed on at once. Packets behind a gap in the sequence numbers wait until two of them wait, or for
//! 40 ms. Audio that is still missing then is concealed. A slot is filled if nothing has come for it 10 ms after it was due.
//!
//! A packet that comes after its slot was filled takes the next slot, so audio that a network has held up isn't lost: the stream is then ahead
//! of the clock, and fills that many slots fewer when the caller is silent. The lead is given back by leaving out frames of silence, each
//! second one, so that a pause in the talk becomes shorter but doesn't vanish. What a network needs all the time stays: each packet that
//! came too late raises the lead that is kept by a slot. A lead of [`MAX_AHEAD`] slots isn't exceeded. Frames beyond it are discarded, and counted.

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

/// Most slots that the stream may be ahead of the clock: 2 s. Frames beyond are discarded, or else a sender that is faster than its clock
/// would delay its audio without end.
const MAX_AHEAD: u64 = 100;

/// Most slots of lead that are kept for a network whose packets are often late: 200 ms.
const MAX_KEPT: u32 = 10;

/// Time without a late packet after which the lead that is kept is a slot shorter.
const KEPT_FOR: Duration = Duration::from_secs(10);

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
    received: Received,
    waiting: [Waiting; WAITING],
    /// Time since which packets wait.
    waiting_since: Option<Moment>,
    /// Frames filled by the clock since the last packet.
    filled: u32,
    lead: Lead,
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
    /// Packets whose audio came, but too late to be passed on, whole or in part. A packet that came twice isn't among them.
    pub(super) discarded: u64,
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

/// Which of the last 64 packets have come: the lowest bit is that of the packet before the next in order.
#[derive(Copy, Clone, Debug, Default)]
struct Received(u64);

impl Received {
    /// Moves on by packets of which the last has come.
    const fn advance(&mut self, packets: u16) {
        let before = match self.0.checked_shl(packets as u32) {
            Some(before) => before,
            None => 0,
        };
        self.0 = before | 1;
    }

    /// Notes a packet so far behind the next in order; false if it came before.
    const fn note(&mut self, behind: u16) -> bool {
        let Some(bit) = 1_u64.checked_shl(behind as u32 - 1) else {
            return false;
        };
        let is_new = self.0 & bit == 0;
        self.0 |= bit;
        is_new
    }
}

/// Slots by which the stream should be ahead, as far as they are known.
#[derive(Debug, Default)]
struct Lead {
    /// Slots that are kept.
    kept: u32,
    /// Time from which a slot fewer is kept.
    kept_until: Moment,
    /// The last gap that the clock had filled: the first of its packets, and their number.
    overtaken: Option<(u16, u16)>,
    /// The last frame of silence was left out.
    has_left_out: bool,
}

impl Lead {
    /// Keeps a slot more, as a packet has come too late; false if as many are kept as may be.
    fn raise(&mut self, now: Moment) -> bool {
        self.kept_until = now + KEPT_FOR;
        if self.kept == MAX_KEPT {
            return false;
        }
        self.kept += 1;
        true
    }

    fn forget(&mut self, now: Moment) {
        if self.kept > 0 && now >= self.kept_until {
            self.kept -= 1;
            self.kept_until = now + KEPT_FOR;
        }
    }

    /// Returns whether a packet is one that the clock had filled a gap for; true once for each gap.
    fn take_overtaken(&mut self, sequence: u16) -> bool {
        let is_it = self
            .overtaken
            .is_some_and(|(first, count)| sequence.wrapping_sub(first) < count);
        if is_it {
            self.overtaken = None;
        }
        is_it
    }
}

/// Origin of a frame.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Source {
    Caller,
    Concealment,
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
                let skipped = frames(header.timestamp.wrapping_sub(expected.timestamp));
                // Filled in vain: the audio was late. A sender that pauses skips its timestamps, by a frame more or less than the clock.
                let patience = if skipped == 0 { 0 } else { skipped + 1 };
                if usize::try_from(self.filled).is_ok_and(|filled| filled > patience) {
                    self.lead.raise(now);
                }
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
                    if is_filled {
                        self.lead.overtaken = Some((expected.sequence, ahead));
                    }
                    self.release(now, &mut pass);
                    // A later packet waited and has just been passed on; this one was too long to wait beside it.
                    if self.expected.is_some_and(|expected| {
                        header.sequence.wrapping_sub(expected.sequence) > NEAR
                    }) {
                        self.counts.late += 1;
                        self.counts.discarded += 1;
                        return;
                    }
                    self.fill_gap(header.timestamp, now, &mut pass);
                    self.accept(numbers, audio, now, &mut pass);
                }
            }

            behind if behind >= NEAR.wrapping_neg() => {
                self.miss(header.sequence, behind.wrapping_neg(), now, &mut pass);
            }
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
        self.lead.forget(now);

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
            let is_concealed = self.expected.is_some() && self.filled < CONCEALED;
            self.filled = self.filled.saturating_add(1);
            match is_concealed {
                true => self.conceal(now, &mut pass),
                false => {
                    self.counts.concealed += 1;
                    let frame = [g711::SILENCE; FRAME];
                    self.push(&frame, Source::Concealment, now, &mut pass);
                }
            }
        }

        // The thread was held up for long. The slots that are still due are skipped, so that the bot gets no burst of silence.
        self.slots = self.slots.max(slot(started_at, now));
    }

    /// Counts a packet that came behind those after it. If the clock had filled its slot, the stream was too little ahead: it waits a slot
    /// longer from now on, so that the next packets that change places are heard.
    fn miss(
        &mut self,
        sequence: u16,
        behind: u16,
        now: Moment,
        pass: &mut impl FnMut(&[u8; FRAME]),
    ) {
        self.counts.late += 1;
        if !self.received.note(behind) {
            return;
        }
        self.counts.discarded += 1;

        let is_raised = self.lead.take_overtaken(sequence) && self.lead.raise(now);
        if is_raised && !self.is_too_far(now) {
            self.conceal(now, pass);
        }
    }

    fn accept(
        &mut self,
        numbers: Numbers,
        audio: &[u8],
        now: Moment,
        pass: &mut impl FnMut(&[u8; FRAME]),
    ) {
        let next = numbers.next(audio.len());
        match self
            .expected
            .filter(|expected| expected.ssrc == numbers.ssrc)
        {
            Some(expected) => self
                .received
                .advance(next.sequence.wrapping_sub(expected.sequence)),
            None => self.received = Received(1),
        }
        self.expected = Some(next);
        self.filled = 0;

        let mut is_whole = true;
        for part in audio.chunks(FRAME) {
            let mut heard = [0; FRAME];
            heard[..part.len()].copy_from_slice(part);
            self.concealment.hear(&mut heard[..part.len()]);
            is_whole &= self.push(&heard[..part.len()], Source::Caller, now, pass);
        }
        self.counts.discarded += u64::from(!is_whole);
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
            self.conceal(now, pass);
        }
    }

    fn conceal(&mut self, now: Moment, pass: &mut impl FnMut(&[u8; FRAME])) {
        let mut frame = [g711::SILENCE; FRAME];
        self.concealment.conceal(&mut frame);
        self.counts.concealed += 1;
        self.push(&frame, Source::Concealment, now, pass);
    }

    /// Appends audio to the frame that isn't full, and passes it on once it is, in the next slot. Returns false if a frame of the caller's
    /// was discarded.
    fn push(
        &mut self,
        audio: &[u8],
        source: Source,
        now: Moment,
        pass: &mut impl FnMut(&[u8; FRAME]),
    ) -> bool {
        self.partial.extend_from_slice(audio);
        let mut is_whole = true;
        while let Some(frame) = self.partial.first_chunk::<FRAME>() {
            let frame = *frame;
            self.partial.drain(..FRAME);
            if self.is_left_out(&frame, now) {
                continue;
            }

            let started_at = self.started_at.unwrap_or(now);
            if self.slots < slot(started_at, now) + MAX_AHEAD {
                pass(&frame);
                self.slots += 1;
            } else if source == Source::Caller && !is_silent(&frame) {
                is_whole = false;
            }
        }
        is_whole
    }

    /// Returns whether a frame is silence that is left out, since the stream is further ahead than it need be.
    fn is_left_out(&mut self, frame: &[u8; FRAME], now: Moment) -> bool {
        // The level is measured only while there is a lead to give back.
        let is_left_out = !self.lead.has_left_out && self.is_too_far(now) && is_silent(frame);
        self.lead.has_left_out = is_left_out;
        is_left_out
    }

    /// Returns whether the stream may do without a frame: even the slot before would be filled later than the kept slots, and one more, from now.
    fn is_too_far(&self, now: Moment) -> bool {
        let started_at = self.started_at.unwrap_or(now);
        due(started_at, self.slots) + PATIENCE >= now + SLOT * (self.lead.kept + 2)
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

/// Returns whether a frame is a pause in the talk: its mean magnitude is at most that of noise at -42 dBm0.
fn is_silent(frame: &[u8; FRAME]) -> bool {
    const MEAN: u32 = 100;
    let magnitudes = frame
        .iter()
        .map(|octet| g711::linear(*octet).unsigned_abs());
    magnitudes.map(u32::from).sum::<u32>() <= MEAN * FRAME as u32
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

        assert_eq!((heard, inbound.counts().discarded), (200, 0));
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

    /// An hour with 5 % loss, 30 ms of jitter, reordering and a clock that runs wrong, and a pause of half a second each five: the stream keeps to
    /// the clock.
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
            let is_speech = |id: u32| id % 250 >= 25;

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
                    let mut audio = [g711::SILENCE; FRAME];
                    if is_speech(*id) {
                        audio[..80].fill(0x90);
                        audio[80..].copy_from_slice(&half_of(*id));
                    }
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

            let speech = (0..sent).filter(|id| is_speech(*id)).count();
            let share = kept as f64 / speech as f64;
            assert!(
                share > 0.90,
                "{share} of the frames were passed on at {drift} ppm"
            );
        }
    }

    /// Frames that reached the bot, of a caller who sends a packet every 20 ms.
    struct Carried {
        /// Numbers of the packets whose speech was passed on, and the time of each in milliseconds.
        speech: Vec<(u32, u64)>,
        /// Times of all frames.
        times: Vec<u64>,
        counts: InboundCounts,
        /// Slots that the stream was ahead of the clock at most, and at the end.
        ahead: (i64, i64),
    }

    impl Carried {
        /// Sends this many packets, each of which `network` has arrive later by a time in milliseconds. Those that `is_speech` doesn't take are
        /// silence.
        fn over(
            network: impl Fn(u32) -> u64,
            is_speech: impl Fn(u32) -> bool,
            packets: u32,
            phase: u64,
        ) -> Self {
            let arrives = |id: &u32| u64::from(*id) * 20 + phase + network(*id);
            let mut order: Vec<u32> = (0..packets).collect();
            order.sort_by_key(arrives);
            let mut arrivals = order.into_iter().peekable();

            let mut inbound = Inbound::default();
            inbound.start(at(0));
            let mut carried = Self {
                speech: Vec::new(),
                times: Vec::new(),
                counts: InboundCounts::default(),
                ahead: (0, 0),
            };
            for time in 0..u64::from(packets) * 20 {
                let mut pass = |frame: &[u8; FRAME]| {
                    let id = u32::from_be_bytes([frame[80], frame[81], frame[82], frame[83]]);
                    if frame[80..] == half_of(id) {
                        carried.speech.push((id, time));
                    }
                    carried.times.push(time);
                };
                while let Some(id) = arrivals.next_if(|id| arrives(id) <= time) {
                    let mut audio = [g711::SILENCE; FRAME];
                    if is_speech(id) {
                        audio[..80].fill(0x90);
                        audio[80..].copy_from_slice(&half_of(id));
                    }
                    inbound.hear(&header(id as u16), &audio, at(time), &mut pass);
                }
                if time % 20 == 10 {
                    inbound.tick(at(time), &mut pass);
                }

                let is = carried.times.len() as i64 - (time / 20) as i64;
                carried.ahead = (carried.ahead.0.max(is), is);
            }
            carried.counts = inbound.counts();
            carried
        }

        fn speech_of(&self, sent: impl Iterator<Item = u32>) -> f64 {
            let sent: Vec<u32> = sent.collect();
            let is_heard = |id: &&u32| self.speech.iter().any(|(of, _)| of == *id);
            sent.iter().filter(is_heard).count() as f64 / sent.len() as f64
        }

        fn is_in_order(&self) -> bool {
            self.speech.is_sorted_by(|(one, _), (other, _)| one < other)
        }
    }

    /// Ten seconds of talk without a pause, at each phase between the caller's packets and the ticks.
    #[test]
    fn what_a_network_holds_up_or_swaps_is_heard() {
        const PACKETS: u32 = 500;
        /// Milliseconds by which a packet of this number is delayed.
        type Network = fn(u32) -> u64;

        /// Delays the packets that are sent in this time after two seconds to its end.
        fn stalled(id: u32, milliseconds: u64) -> u64 {
            let since = (u64::from(id) * 20).saturating_sub(2_000);
            match since {
                0 => 0,
                since if since < milliseconds => milliseconds - since,
                _ => 0,
            }
        }

        // Least share of the speech that is heard.
        let cases: [(&str, Network, f64); 9] = [
            ("nothing wrong", |_| 0, 1.0),
            ("a stall of 200 ms", |id| stalled(id, 200), 1.0),
            ("of 300 ms", |id| stalled(id, 300), 1.0),
            ("of 500 ms", |id| stalled(id, 500), 1.0),
            ("of 1.9 s", |id| stalled(id, 1_900), 1.0),
            (
                "ten packets each 200 ms",
                |id| u64::from(9 - id % 10) * 20,
                1.0,
            ),
            (
                "25 packets each 500 ms",
                |id| u64::from(24 - id % 25) * 20,
                1.0,
            ),
            // The first few are lost, until the stream is far enough ahead.
            (
                "all swapped in pairs",
                |id| if id % 2 == 0 { 21 } else { 0 },
                0.98,
            ),
            (
                "each tenth behind the next",
                |id| if id % 10 == 5 { 25 } else { 0 },
                0.99,
            ),
        ];
        for (name, network, least) in cases {
            for phase in 0..20 {
                let carried = Carried::over(network, |_| true, PACKETS, phase);
                // The last may still be on their way.
                let share = carried.speech_of(0..PACKETS - 30);
                let name = format!("{name}, at {phase} ms");
                assert!(share >= least, "{name}: {share}");
                assert!(carried.is_in_order(), "{name}");
                let missing = ((1.0 - share) * f64::from(PACKETS - 30)).round() as u64;
                assert!(carried.counts.discarded >= missing, "{name}");
                assert!(carried.counts.discarded <= missing + 2, "{name}");
            }
        }
    }

    #[test]
    fn a_lead_is_given_back_in_the_pauses_of_the_talk() {
        // Talk for 600 ms and a pause of 300 ms, in turn; 500 ms are held up at 2 s.
        let is_speech = |id: u32| id % 45 < 30;
        let stalled = |id: u32| {
            u64::from(match id {
                100..125 => (125 - id) * 20,
                _ => 0,
            })
        };
        for phase in 0..20 {
            let carried = Carried::over(stalled, is_speech, 500, phase);
            let sent = || (0..490).filter(|id| is_speech(*id));
            assert_eq!(carried.speech_of(sent()), 1.0, "{phase}");
            assert!(carried.is_in_order(), "{phase}");
            assert_eq!(carried.counts.discarded, 0, "{phase}");

            assert!(carried.ahead.0 >= 20, "{phase}: {:?}", carried.ahead);
            assert!(carried.ahead.1 <= 4, "{phase}: {:?}", carried.ahead);
            // Each second frame of silence is passed on, so that the stream never seems to have ended.
            let gaps = carried.times.windows(2).map(|two| two[1] - two[0]);
            assert!(gaps.max() <= Some(40), "{phase}");
            // At first the speech comes late by the stall; in the end it comes at once.
            let (last, time) = carried.speech.last().copied().unwrap_or_default();
            assert_eq!(time, u64::from(last) * 20 + phase, "{phase}");
        }
    }

    #[test]
    fn a_sender_faster_than_its_clock_is_heard_two_seconds_ahead_and_no_further() {
        let mut inbound = Inbound::default();
        inbound.start(at(0));
        let (mut frames, mut most) = (0, 0);
        // Each sequence number leaves a gap, and each timestamp one of ten frames: 550 frames a second are asked for.
        for packet in 0..5_000_u32 {
            let time = u64::from(packet) * 20;
            let header = Header {
                timestamp: packet * 11 * 160,
                ..header((packet * 2) as u16)
            };
            inbound.hear(&header, &audio(1), at(time), |_| frames += 1);
            inbound.tick(at(time + 10), |_| frames += 1);
            most = most.max(frames - i64::from(packet));
        }
        assert_eq!(most, MAX_AHEAD as i64);
        assert!(inbound.counts().discarded > 4_000, "{:?}", inbound.counts());
        assert!(inbound.partial.capacity() <= 1_024);
    }

    #[test]
    fn packets_that_come_again_raise_nothing() {
        let mut inbound = Inbound::default();
        inbound.start(at(0));
        let mut frames = 0;
        for sequence in 0..100 {
            let now = at(u64::from(sequence) * 20);
            for again in 0..4_u16 {
                let sequence = sequence.max(again) - again;
                inbound.hear(&header(sequence), &audio(sequence), now, |_| frames += 1);
            }
            inbound.tick(now + PATIENCE, |_| frames += 1);
        }
        let counts = inbound.counts();
        assert_eq!((frames, counts.discarded), (100, 0));
        assert_eq!(counts.late, 300);
    }

    /// A packet is late each second: the lead that is kept for it grows to its bound and no further.
    #[test]
    fn the_lead_that_is_kept_is_bounded_and_forgotten() {
        let late = |id: u32| if id < 2_000 && id % 50 == 7 { 130 } else { 0 };
        let carried = Carried::over(late, |_| true, 2_000, 3);
        assert!(carried.ahead.0 <= 14, "{:?}", carried.ahead);

        let mut lead = Lead::default();
        for second in 0..100 {
            lead.raise(at(second * 1_000));
        }
        assert_eq!(lead.kept, MAX_KEPT);
        for second in 0..1_000 {
            lead.forget(at(100_000 + second * 1_000));
        }
        assert_eq!(lead.kept, 0);
    }

    #[test]
    fn noise_of_a_line_is_silence_and_a_quiet_word_is_not() {
        let at_level = |level: i16| {
            let mut frame = [0; FRAME];
            for (at, octet) in frame.iter_mut().enumerate() {
                let sign = if at % 2 == 0 { 1 } else { -1 };
                *octet = g711::mu_law(level * sign);
            }
            frame
        };
        for (level, expected) in [(0, true), (8, true), (90, true), (120, false), (800, false)] {
            assert_eq!(is_silent(&at_level(level)), expected, "{level}");
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
