//! A bot's audio on its way to the caller: queued as it comes, played in frames of 20 ms. Pure.
//!
//! The hold is the time for which the first audio of a talk spurt waits. It begins at 0, so that a bot that keeps pace is played at once.
//!
//! An underrun is a tick that finds less than a frame in the middle of a talk spurt: a frame was played before it, and audio goes on within
//! 200 ms. The audio that goes on waits 10 ms. Each later talk spurt begins with a hold that would have been long enough: the delay of this
//! talk spurt, the gap and 10 ms, at most 120 ms. The next call of the agent begins with the hold that was learnt. Nothing is learnt before
//! the first frame of a talk spurt, nor after a mark that ends it: a bot that waits for its mark before the next sentence isn't late.
//!
//! Marks have positions in the stream of octets, and are reached once the octets before them have been played. Audio that is withheld from a
//! peer passes in its time as if it were played, but a mark behind it is dropped: its bot would take the audio for heard.

use std::collections::VecDeque;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use crate::bot::link::MAX_WAITING;
use crate::bot::wire::FRAME;

use super::audio_budget::AudioShare;
use super::concealment::Concealment;
use super::g711;

/// Octets queued at most: ten minutes.
pub(super) const MAX_QUEUED: usize = 600 * 8_000;

/// Marks that wait at most, the octets of a name, and those of all their names. A mark beyond one of these bounds is refused.
const MAX_MARKS: usize = 1_000;
const MAX_NAME: usize = 8 * 1_024;
const MAX_NAMES: usize = 64 * 1_024;

// A mark goes back to the bot in one message. Its name may be six times as long there, since one octet may be written as `\u0001`.
const _: () = assert!(6 * MAX_NAME + 1_024 <= MAX_WAITING);

/// Longest time between two messages of a bot that sends its audio at the pace of speech, and longest message of such a bot. Pipecat's last
/// 137 ms.
const PACED: Duration = Duration::from_millis(200);

/// Shortest time after which audio at the pace of speech can be distinguished from a short sentence that was sent at once.
const TELLING: Duration = Duration::from_millis(60);

/// Octets of a millisecond.
const MILLISECOND: usize = 8;

/// Longest hold.
const MAX_HOLD: Duration = Duration::from_millis(120);

/// Slack that is added to a gap, and the wait after an underrun. With it, messages that come as unevenly as Pipecat's at 24 kHz have one
/// underrun. Twice as much slack doesn't save that one.
const MARGIN: Duration = Duration::from_millis(10);

/// Time after the last audio of a bot within which a mark belongs to it.
const OF_WITHHELD: Duration = Duration::from_secs(1);

/// Pause after which audio begins a talk spurt of its own.
const SPURT: Duration = Duration::from_millis(200);

/// Time after which the rest of a talk spurt that fills no frame is played.
const FLUSH: Duration = Duration::from_millis(60);

/// Octets that fade after a clear: 5 ms.
const FADE: usize = 40;

/// Capacity of the queue that is kept when it is empty.
const KEPT: usize = 8 * 1_024;

/// Bot's audio on its way to the caller.
#[derive(Debug, Default)]
pub(super) struct Playout {
    audio: VecDeque<u8>,
    /// Memory that the queue may take.
    share: AudioShare,
    /// Octets played, withheld or cleared since the start.
    position: u64,
    /// Position behind the last octet that was withheld.
    withheld: u64,
    /// Times at which the first and the last audio in the queue came.
    queued_at: Moment,
    pushed_at: Moment,
    marks: VecDeque<Mark>,
    /// Octets of the names of the waiting marks.
    names: usize,
    state: State,
    /// Audio ran out inside the talk spurt, and hasn't gone on yet.
    is_broken: bool,
    hold: Duration,
    /// Time by which the talk spurt is played later than it came: the sum of its waits.
    delay: Duration,
    /// Audio that fades after a clear, and the time of the clear.
    fading: Option<([u8; FADE], Moment)>,
    /// Time from the last clear to its last audible packet, until it is taken.
    cleared: Option<Duration>,
    concealment: Concealment,
    counts: PlayoutCounts,
}

/// Counts of a playout.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PlayoutCounts {
    /// Times that audio ran out inside a talk spurt.
    pub(super) underruns: u64,
    /// Octets discarded since the queue was full.
    pub(super) discarded: u64,
    /// Clears that ended audio.
    pub(super) clears: u64,
    /// Marks that were reached.
    pub(super) marks: u64,
}

#[derive(Debug)]
struct Mark {
    position: u64,
    name: Box<str>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
enum State {
    /// Nothing to play.
    #[default]
    Idle,
    /// Audio waits until `until`; less than a frame of it waits for [`FLUSH`] more.
    Holding {
        /// Time from which the delay counts: when its first octet came, or the tick that found none.
        since: Moment,
        until: Moment,
    },
    Playing,
    /// Less than a frame was left at this tick. More audio ends this state. So does the clock: after [`FLUSH`] the rest is played; with no
    /// rest, the talk spurt is over after [`SPURT`].
    Dry(Moment),
}

/// Content of a frame.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Played {
    /// The bot's audio.
    Audio,
    /// Concealment, or silence.
    Filled,
}

/// Result of taking a mark.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum MarkOutcome {
    /// The mark will be returned, unless the audio before it is withheld.
    Kept,
    /// Too many marks wait already, or the name or all names are too long. The mark is never returned.
    Refused,
}

impl Playout {
    /// Creates a playout with the hold that was learnt in the agent's calls before.
    pub(super) fn new(hold: Duration, share: AudioShare) -> Self {
        Self {
            share,
            hold: hold.min(MAX_HOLD),
            ..Self::default()
        }
    }

    /// Queues µ-law audio. What exceeds [`MAX_QUEUED`], or the account's share of memory, is discarded and counted.
    pub(super) fn push(&mut self, audio: &[u8], now: Moment) {
        let wanted = (self.audio.len() + audio.len()).min(MAX_QUEUED);
        let room = self.share.reserve(wanted).saturating_sub(self.audio.len());
        let (kept, excess) = audio.split_at(audio.len().min(room));
        self.counts.discarded += excess.len() as u64;
        if kept.is_empty() {
            return;
        }
        if self.audio.is_empty() {
            self.queued_at = now;
        }
        self.audio.extend(kept);
        self.pushed_at = now;

        match self.state {
            State::Idle => self.begin(now),
            // An underrun only now that audio goes on: every talk spurt that simply ends runs dry too.
            State::Dry(since) if now.since(since) <= SPURT => self.go_on(since, now),
            State::Dry(_) => self.begin(now),
            State::Holding { .. } | State::Playing => {}
        }
    }

    fn begin(&mut self, now: Moment) {
        self.delay = Duration::ZERO;
        self.state = State::Holding {
            since: now,
            until: now + self.hold,
        };
    }

    /// Goes on after an underrun.
    fn go_on(&mut self, dry_since: Moment, now: Moment) {
        self.counts.underruns += 1;
        let enough = self.delay + now.since(dry_since) + MARGIN;
        self.hold = self.hold.max(enough).min(MAX_HOLD);
        self.state = State::Holding {
            since: dry_since,
            until: now + MARGIN,
        };
    }

    /// Lets the time of a frame pass for a peer that isn't there: its audio is dropped, with the marks behind it.
    pub(super) fn withhold(&mut self, now: Moment) -> Played {
        let (mut frame, before, withheld) = ([0; FRAME], self.position, self.withheld);
        let played = self.play(&mut frame, now);
        // It doesn't listen.
        self.withheld = withheld;
        if self.position > before {
            self.forget_marks(before);
        }
        played
    }

    /// Ends a wait for the peer. Audio that a bot sends at the pace of speech has grown late by the wait, and would stay so to the end of the
    /// call: it is dropped. Audio that was sent ahead, as a whole sentence, is still played from its beginning.
    pub(super) fn end_wait(&mut self, now: Moment) {
        let span = self.pushed_at.since(self.queued_at);
        let paced = (span + PACED).as_millis() as usize * MILLISECOND;
        let is_paced = span >= TELLING && self.audio.len() <= paced;
        let goes_on = now.since(self.pushed_at) <= PACED;
        if self.audio.is_empty() || !is_paced || !goes_on {
            return;
        }

        let before = self.position;
        self.position = self.queued();
        self.audio.clear();
        self.give_back();
        self.end_spurt();
        self.forget_marks(before);
    }

    /// Drops the marks behind audio that was withheld, from `before` up to now.
    fn forget_marks(&mut self, before: u64) {
        self.withheld = self.position;
        let (withheld, names) = (self.withheld, &mut self.names);
        self.marks.retain(|mark| {
            let is_kept = mark.position <= before || mark.position > withheld;
            if !is_kept {
                *names -= mark.name.len();
            }
            is_kept
        });
    }

    /// Sets a mark behind the queued audio. It is dropped if it is for audio that was withheld.
    pub(super) fn mark(&mut self, name: &str) -> MarkOutcome {
        if self.withheld > 0 && self.queued() == self.withheld {
            return MarkOutcome::Kept;
        }
        let is_long = name.len() > MAX_NAME || self.names + name.len() > MAX_NAMES;
        if is_long || self.marks.len() == MAX_MARKS {
            return MarkOutcome::Refused;
        }
        self.names += name.len();
        self.marks.push_back(Mark {
            position: self.queued(),
            name: name.into(),
        });

        // A mark ends a talk spurt whose audio has all been played. A concealment that has begun still fades.
        let is_under_way = matches!(self.state, State::Playing | State::Dry(_));
        if is_under_way && self.audio.is_empty() {
            self.state = State::Idle;
        }
        MarkOutcome::Kept
    }

    /// Discards the queued audio, and reaches its marks. The first 5 ms of it are still played, fading.
    pub(super) fn clear(&mut self, now: Moment) {
        // Audio that is still held was never heard, so it needs no fade.
        if self.state == State::Playing && !self.audio.is_empty() {
            self.counts.clears += 1;
            let mut fading = [g711::SILENCE; FADE];
            for (at, (fading, octet)) in fading.iter_mut().zip(&self.audio).enumerate() {
                let sample = i32::from(g711::linear(*octet)) * (FADE - at) as i32 / FADE as i32;
                *fading = g711::mu_law(sample as i16);
            }
            self.fading = Some((fading, now));
        }

        self.position = self.queued();
        self.audio.clear();
        self.give_back();
        self.end_spurt();
    }

    /// Gives back the memory of an empty queue.
    fn give_back(&mut self) {
        self.audio.shrink_to(KEPT);
        self.share.release();
    }

    /// Returns whether a mark was reached and hasn't been taken yet.
    pub(super) fn has_reached(&self) -> bool {
        let next = self.marks.front();
        next.is_some_and(|mark| mark.position <= self.position)
    }

    /// Returns the name of the next mark that was reached.
    pub(super) fn reached(&mut self) -> Option<Box<str>> {
        let mark = self
            .has_reached()
            .then(|| self.marks.pop_front())
            .flatten()?;
        self.names -= mark.name.len();
        self.counts.marks += 1;
        Some(mark.name)
    }

    /// Fills the next frame.
    pub(super) fn play(&mut self, frame: &mut [u8; FRAME], now: Moment) -> Played {
        frame.fill(g711::SILENCE);
        // The peer listens. A mark that comes now, long after the audio that was withheld, is about what is queued: nothing.
        if now.since(self.pushed_at) >= OF_WITHHELD {
            self.withheld = 0;
        }
        // These octets don't advance the position: the clear has already passed them, and returned their marks.
        if let Some((fading, cleared_at)) = self.fading.take() {
            self.cleared = Some(now.since(cleared_at));
            frame[..FADE].copy_from_slice(&fading);
            return Played::Audio;
        }

        if self.may_play(now) {
            if let State::Holding { since, .. } = self.state {
                self.delay += now.since(since);
            }
            let count = self.audio.len().min(FRAME);
            for (octet, queued) in frame.iter_mut().zip(self.audio.drain(..count)) {
                *octet = queued;
            }
            self.position += count as u64;
            self.concealment.hear(frame);
            self.is_broken = false;
            // A frame that isn't full, or that only a mark follows, ends its talk spurt: no underrun comes after it.
            self.state = match count == FRAME && !self.is_closed() {
                true => State::Playing,
                false => State::Idle,
            };
            if self.audio.is_empty() {
                self.give_back();
            }
            return Played::Audio;
        }

        if self.state == State::Playing {
            self.state = State::Dry(now);
            self.is_broken = true;
        }
        if self.is_broken {
            self.concealment.conceal(frame);
        }
        if self.is_over(now) {
            self.end_spurt();
        }

        Played::Filled
    }

    /// Returns the time that passed between a clear and its last audible packet; once.
    pub(super) const fn take_cleared(&mut self) -> Option<Duration> {
        self.cleared.take()
    }

    /// Returns the hold as learnt so far.
    pub(super) const fn hold(&self) -> Duration {
        self.hold
    }

    /// Returns the counts so far.
    pub(super) const fn counts(&self) -> PlayoutCounts {
        self.counts
    }

    fn may_play(&self, now: Moment) -> bool {
        let is_whole = self.audio.len() >= FRAME;
        let is_last = || !self.audio.is_empty() && self.has_mark_behind();
        match self.state {
            State::Idle => false,
            State::Holding { until, .. } => {
                now >= until
                    && (is_whole || is_last() || (!self.audio.is_empty() && now >= until + FLUSH))
            }
            State::Playing => is_whole || is_last(),
            // The tick that ran dry left less than a frame. Newer audio would have changed the state.
            State::Dry(since) => !self.audio.is_empty() && (is_last() || now.since(since) >= FLUSH),
        }
    }

    /// Returns whether the talk spurt has ended.
    fn is_over(&self, now: Moment) -> bool {
        match self.state {
            State::Dry(since) => self.audio.is_empty() && now.since(since) > SPURT,
            State::Idle | State::Holding { .. } | State::Playing => false,
        }
    }

    /// Returns whether all audio is played and a mark is behind it.
    fn is_closed(&self) -> bool {
        self.audio.is_empty() && self.has_mark_behind()
    }

    fn has_mark_behind(&self) -> bool {
        let last = self.marks.back();
        last.is_some_and(|mark| mark.position == self.queued())
    }

    fn end_spurt(&mut self) {
        self.state = State::Idle;
        self.is_broken = false;
        // The next talk spurt isn't blended with the end of this one.
        self.concealment = Concealment::default();
    }

    fn queued(&self) -> u64 {
        self.position + self.audio.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Moment {
        Moment::from_secs(1_000) + Duration::from_millis(milliseconds)
    }

    /// Plays messages (microseconds, octets) by ticks every 20 ms; returns the octets played in order, and the ticks that had none.
    fn played(playout: &mut Playout, messages: &[(u64, usize)], until: u64) -> (Vec<u8>, Vec<u64>) {
        let (mut heard, mut without) = (Vec::new(), Vec::new());
        let mut messages = messages.iter().peekable();
        let mut next = 0_u8;
        for time in (0..until).step_by(20) {
            while let Some((came, count)) = messages.next_if(|(came, _)| *came <= time * 1_000) {
                let audio: Vec<u8> = (0..*count)
                    .map(|_| {
                        next = (next + 1) % 200;
                        next
                    })
                    .collect();
                playout.push(&audio, at(0) + Duration::from_micros(*came));
            }
            let mut frame = [0; FRAME];
            match playout.play(&mut frame, at(time)) {
                Played::Audio => heard.extend(frame),
                Played::Filled => without.push(time),
            }
        }

        (heard, without)
    }

    /// Messages of `octets`, as often as a stream of 8 kHz has that many.
    fn paced(octets: usize, count: u64) -> Vec<(u64, usize)> {
        (0..count)
            .map(|at| (at * octets as u64 * 125, octets))
            .collect()
    }

    fn marks(playout: &mut Playout) -> Vec<Box<str>> {
        std::iter::from_fn(|| playout.reached()).collect()
    }

    #[test]
    fn the_backlog_of_a_wait_is_dropped_if_it_would_stay() {
        // Milliseconds between messages, their octets, how many came in the wait of 600 ms, and the octets that are played after it.
        for (case, every, octets, count, kept) in [
            ("20 ms", 20, 160, 30, 0),
            ("8 kHz: 40 ms", 40, 320, 15, 0),
            ("24 kHz: 137 ms", 137, 1_100, 5, 0),
            ("a greeting at once", 0, 800, 1, 800),
            (
                "a greeting of three seconds in a burst",
                10,
                2_400,
                10,
                24_000,
            ),
            ("a word that was paced, and a pause", 20, 160, 10, 1_600),
        ] {
            let mut playout = Playout::default();
            for message in 0..count {
                playout.push(&vec![1; octets], at(every * message));
            }
            assert_eq!(playout.mark("said"), MarkOutcome::Kept);
            playout.end_wait(at(600));
            assert_eq!(playout.audio.len(), kept, "{case}");

            let (heard, _) = played(&mut playout, &[], 4_000);
            assert_eq!(heard.len(), kept.next_multiple_of(FRAME), "{case}");
            let expected: &[Box<str>] = if kept > 0 { &["said".into()] } else { &[] };
            assert_eq!(marks(&mut playout), expected, "{case}");
            assert_eq!(playout.names, 0, "{case}");
        }
    }

    #[test]
    fn no_mark_of_withheld_audio_is_reached() {
        let mut playout = Playout::default();
        assert_eq!(playout.mark("before"), MarkOutcome::Kept);
        playout.push(&[1; 5 * FRAME], at(0));
        assert_eq!(playout.mark("withheld"), MarkOutcome::Kept);
        for tick in 0..5 {
            assert_eq!(playout.withhold(at(20 * tick)), Played::Audio, "{tick}");
        }
        assert_eq!(playout.withhold(at(100)), Played::Filled, "time has passed");
        assert_eq!(marks(&mut playout), ["before".into()]);
        assert_eq!(playout.mark("late"), MarkOutcome::Kept, "it is understood");
        assert_eq!(marks(&mut playout), [], "its audio was withheld as well");

        // Once the peer listens, a mark by itself is reached at once.
        let _ = playout.play(&mut [0; FRAME], at(120));
        assert_eq!(playout.mark("soon"), MarkOutcome::Kept);
        assert_eq!(marks(&mut playout), []);
        let _ = playout.play(&mut [0; FRAME], at(1_120));
        assert_eq!(playout.mark("alone"), MarkOutcome::Kept);
        assert_eq!(marks(&mut playout), ["alone".into()]);

        // The peer is heard in the middle of a sentence: its end is played.
        playout.push(&[2; 2 * FRAME], at(1_400));
        let _ = playout.mark("heard");
        assert_eq!(playout.withhold(at(1_400)), Played::Audio);
        assert_eq!(playout.play(&mut [0; FRAME], at(1_420)), Played::Audio);
        assert_eq!(marks(&mut playout), ["heard".into()]);
        assert_eq!((playout.marks.len(), playout.names), (0, 0));
    }

    #[test]
    fn bots_that_keep_pace_are_played_without_a_hole() {
        // As measured: octets of a message; underruns that the hold is learnt from.
        let cases = [
            ("20 ms", 160, 0),
            ("8 kHz: 40 ms", 320, 0),
            ("16 kHz: 95 ms", 758, 1),
            ("24 kHz: 137 ms", 1_100, 1),
        ];
        for (name, octets, underruns) in cases {
            let mut playout = Playout::default();
            let messages = paced(octets, 400);
            let until = octets as u64 * 400 / 8;
            let (_, without) = played(&mut playout, &messages, until);
            assert!(
                playout.counts().underruns <= underruns,
                "{name}: {:?} {without:?}",
                playout.counts()
            );

            // The next call of the same agent begins with what was learnt.
            let mut playout = Playout::new(playout.hold(), AudioShare::default());
            let (heard, without) = played(&mut playout, &messages, until);
            assert_eq!(playout.counts().underruns, 0, "{name}: {without:?}");
            let begin = without.iter().take_while(|time| **time < 200).count();
            assert_eq!(
                without.len(),
                begin,
                "{name}: no hole after the beginning: {without:?}"
            );
            let expected: Vec<u8> = (1..=heard.len()).map(|at| (at % 200) as u8).collect();
            assert_eq!(heard, expected, "{name}");
        }
    }

    /// Milliseconds at which the messages of Pipecat 1.14.0 at 24 kHz came, 1,100 octets each, on an idle machine.
    const PIPECAT: [u64; 21] = [
        0, 154, 276, 440, 553, 716, 832, 953, 1_114, 1_236, 1_400, 1_513, 1_675, 1_793, 1_912,
        2_072, 2_192, 2_353, 2_473, 2_633, 2_752,
    ];

    #[test]
    fn an_uneven_bot_has_one_underrun_in_its_first_call_and_none_later() {
        let messages = PIPECAT.map(|came| (came * 1_000, 1_100));
        // Ticks may fall anywhere between two messages.
        for shift in (0..20_000).step_by(1_000) {
            let messages = messages.map(|(came, octets)| (came + shift, octets));
            let mut playout = Playout::default();
            played(&mut playout, &messages, 2_880);
            assert_eq!(playout.counts().underruns, 1, "{shift}");

            let mut playout = Playout::new(playout.hold(), AudioShare::default());
            let (heard, _) = played(&mut playout, &messages, 2_880);
            assert_eq!(playout.counts().underruns, 0, "{shift}");
            let expected: Vec<u8> = (1..=heard.len()).map(|at| (at % 200) as u8).collect();
            assert_eq!(heard, expected, "{shift}");
        }
    }

    #[test]
    fn a_hold_that_was_too_short_grows_by_what_was_missing() {
        let mut playout = Playout::new(Duration::from_millis(40), AudioShare::default());
        // Played from 40 to 120 ms; the tick at 120 finds nothing, and 10 ms are missing.
        played(&mut playout, &[(0, 640), (130_000, 1_600)], 400);
        assert_eq!(playout.counts().underruns, 1);
        assert_eq!(playout.hold(), Duration::from_millis(40 + 10 + 10));
    }

    #[test]
    fn a_burst_begins_at_once_and_is_played_whole() {
        let mut playout = Playout::default();
        playout.push(&[0x90; 48_000], at(0));
        assert_eq!(playout.mark("end"), MarkOutcome::Kept);
        let mut frame = [0; FRAME];
        for tick in 0..300 {
            assert_eq!(playout.reached(), None, "{tick}");
            assert_eq!(
                playout.play(&mut frame, at(tick * 20)),
                Played::Audio,
                "{tick}"
            );
            assert_eq!(frame, [0x90; FRAME]);
        }

        assert_eq!(playout.reached().as_deref(), Some("end"));
        assert_eq!(playout.play(&mut frame, at(6_000)), Played::Filled);
    }

    #[test]
    fn marks_come_back_in_order_and_at_once_where_nothing_waits() {
        let mut playout = Playout::default();
        assert_eq!(playout.mark("none before"), MarkOutcome::Kept);
        assert_eq!(playout.reached().as_deref(), Some("none before"));

        playout.push(&[0x90; 200], at(0));
        for name in ["same", "same"] {
            assert_eq!(playout.mark(name), MarkOutcome::Kept);
        }

        let mut frame = [0; FRAME];
        playout.play(&mut frame, at(0));

        assert_eq!(playout.reached(), None, "40 octets are left");
        assert_eq!(playout.play(&mut frame, at(20)), Played::Audio);
        assert_eq!(
            (frame[39], frame[40]),
            (0x90, g711::SILENCE),
            "the rest before a mark doesn't wait"
        );

        for _ in 0..2 {
            assert_eq!(playout.reached().as_deref(), Some("same"));
        }
        assert_eq!(playout.reached(), None);
    }

    #[test]
    fn marks_are_bounded() {
        let mut playout = Playout::default();
        playout.push(&[0x90; 160], at(0));
        for _ in 0..MAX_MARKS {
            assert_eq!(playout.mark("a"), MarkOutcome::Kept);
        }
        assert_eq!(playout.mark("a"), MarkOutcome::Refused);
        playout.clear(at(3));
        while playout.reached().is_some() {}
        let longest = "x".repeat(MAX_NAME);
        assert_eq!(playout.mark(&(longest.clone() + "x")), MarkOutcome::Refused);
        for _ in 0..MAX_NAMES / MAX_NAME {
            assert_eq!(playout.mark(&longest), MarkOutcome::Kept);
        }
        assert_eq!(playout.mark("y"), MarkOutcome::Refused);
    }

    #[test]
    fn clear_ends_audio_within_one_tick_and_fades() {
        let mut playout = Playout::default();
        playout.push(&[0x80; 16_000], at(0));
        playout.mark("a");

        let mut frame = [0; FRAME];
        playout.play(&mut frame, at(0));
        playout.clear(at(3));

        assert_eq!(playout.reached().as_deref(), Some("a"));
        assert_eq!(playout.play(&mut frame, at(20)), Played::Audio);

        let loudness: Vec<i16> = frame[..FADE]
            .iter()
            .map(|octet| g711::linear(*octet))
            .collect();

        assert!(
            loudness.is_sorted_by(|one, other| one >= other),
            "{loudness:?}"
        );
        assert_eq!(frame[FADE..], [g711::SILENCE; FRAME - FADE]);
        assert_eq!(playout.play(&mut frame, at(40)), Played::Filled);
        assert_eq!(frame, [g711::SILENCE; FRAME]);
        assert_eq!(playout.counts().clears, 1);
        assert_eq!(playout.take_cleared(), Some(Duration::from_millis(17)));
        playout.clear(at(3));

        assert_eq!(playout.counts().clears, 1, "nothing was playing");
    }

    #[test]
    fn ten_minutes_are_queued_and_no_more() {
        let mut playout = Playout::default();
        for _ in 0..11 {
            playout.push(&vec![0x90; 480_000], at(0));
        }
        assert_eq!(playout.counts().discarded, 480_000);
        let mut frame = [0; FRAME];
        for tick in 0..30_000 {
            assert_eq!(playout.play(&mut frame, at(tick * 20)), Played::Audio);
        }
        assert_eq!(playout.play(&mut frame, at(600_000)), Played::Filled);
        assert!(
            playout.audio.capacity() <= KEPT * 2,
            "its memory is given back"
        );
    }

    #[test]
    fn a_pause_between_two_sentences_is_no_underrun() {
        let mut playout = Playout::default();
        played(&mut playout, &[(0, 1_600), (900_000, 1_600)], 1_400);
        assert_eq!(
            (playout.counts().underruns, playout.hold()),
            (0, Duration::ZERO)
        );
    }

    #[test]
    fn the_hold_grows_to_the_gap_and_10_ms_and_no_further_than_120() {
        for (gap, expected) in [(30, 40), (60, 70), (150, 120)] {
            let mut playout = Playout::default();
            // 320 octets last until 40 ms; the tick at 40 finds nothing.
            played(&mut playout, &[(0, 320), ((40 + gap) * 1_000, 1_600)], 600);
            assert_eq!(playout.hold(), Duration::from_millis(expected), "{gap}");
        }
    }

    /// Plays the next frame.
    fn tick(playout: &mut Playout, time: u64) -> Played {
        playout.play(&mut [0; FRAME], at(time))
    }

    #[test]
    fn what_runs_dry_in_the_middle_alone_is_an_underrun() {
        let counted = |playout: &Playout| (playout.counts().underruns, playout.hold());
        let none = (0, Duration::ZERO);
        let mut playout = Playout::default();

        // Before the first frame: too little for one, and then the rest of it.
        playout.push(&[0x90; 100], at(5));
        assert_eq!(tick(&mut playout, 20), Played::Filled);
        playout.push(&[0x90; 220], at(35));
        for time in [40, 60] {
            assert_eq!(tick(&mut playout, time), Played::Audio, "{time}");
        }
        assert_eq!(counted(&playout), none, "it had not begun");

        // A mark behind whole frames, and the next sentence as soon as it is back.
        playout.mark("in time");
        assert_eq!(playout.reached().as_deref(), Some("in time"));
        assert_eq!(tick(&mut playout, 80), Played::Filled);
        playout.push(&[0x90; 320], at(95));
        playout.mark("before its end");
        for time in [100, 120] {
            assert_eq!(tick(&mut playout, time), Played::Audio, "{time}");
        }
        assert_eq!(tick(&mut playout, 140), Played::Filled);
        playout.push(&[0x90; 320], at(150));
        assert_eq!(counted(&playout), none, "a mark closed it");

        // A mark that comes after the tick that found nothing.
        for time in [160, 180] {
            assert_eq!(tick(&mut playout, time), Played::Audio, "{time}");
        }
        assert_eq!(tick(&mut playout, 200), Played::Filled);
        playout.mark("late");
        playout.push(&[0x90; 320], at(215));
        assert_eq!(counted(&playout), none, "a late mark closed it");

        // The same without a mark.
        for time in [220, 240] {
            assert_eq!(tick(&mut playout, time), Played::Audio, "{time}");
        }
        assert_eq!(tick(&mut playout, 260), Played::Filled);
        playout.push(&[0x90; 320], at(267));
        assert_eq!(tick(&mut playout, 270), Played::Filled, "it waits 10 ms");
        assert_eq!(tick(&mut playout, 280), Played::Audio);
        // It began 5 ms after it came, and 7 were missing.
        assert_eq!(counted(&playout), (1, Duration::from_millis(5 + 7 + 10)));
    }

    #[test]
    fn the_rest_of_a_sentence_is_played() {
        let mut playout = Playout::default();
        let (heard, _) = played(&mut playout, &[(0, 200)], 400);
        assert_eq!(
            heard
                .iter()
                .filter(|octet| **octet != g711::SILENCE)
                .count(),
            200
        );
    }
}
