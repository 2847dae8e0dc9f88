//! Figures of one call's media: written by its thread, read by any thread. Each figure is an atomic number of its own; a lock guards the timeline alone.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use trunkline_sip::moment::Moment;

use super::quality::{self, Concealed};
use super::timeline::{MediaStep, MediaStepKind, Timeline};

/// Figures of one call's media.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MediaStatistics {
    /// RTP packets of the learnt peer.
    pub packets_received: u64,
    /// Their payload in octets.
    pub octets_received: u64,
    /// RTP packets sent.
    pub packets_sent: u64,
    /// Their payload in octets.
    pub octets_sent: u64,
    /// Packets that never came (RFC 3550 §A.3).
    pub packets_lost: u64,
    /// Packets that came twice, or after their audio had been concealed.
    pub packets_late: u64,
    /// Packets that came, but too late for their audio to be passed on.
    pub packets_discarded: u64,
    /// Interarrival jitter (RFC 3550 §A.8).
    pub jitter: Duration,
    /// Time to the peer and back, from its RTCP reports.
    pub round_trip: Option<Duration>,
    /// Mean opinion score of what the peer sent (ITU-T G.107), 1 to 4.41; `None` before anything was received.
    pub mos: Option<f64>,
    /// Reception at the peer; `None` if the peer never reported any.
    pub sent: Option<SentStatistics>,
    /// Times that the bot's audio ran out inside a talk spurt.
    pub underruns: u64,
    /// Times that the bot cleared audio that was being played.
    pub clears: u64,
    /// Longest time from a clear of audio that was being played to the last packet with audible audio.
    pub clear_to_silence: Option<Duration>,
    /// From the answer to the first audio of the agent, an echo included.
    pub first_word: Option<Duration>,
    /// Wait before a talk spurt of the bot's audio, as learnt (see `playout`).
    pub hold: Duration,
    /// Octets of the bot's audio discarded because the queue was full.
    pub discarded: u64,
    /// Messages of the bot with an unknown meaning.
    pub junk: u64,
    /// An offer and its answer named media.
    pub is_negotiated: bool,
    /// Steps of the media, as far as there was room for them.
    pub steps: Vec<MediaStep>,
}

/// Reception of the sent stream, from the peer's last RTCP report.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct SentStatistics {
    /// Packets that never came.
    pub packets_lost: u64,
    /// Interarrival jitter.
    pub jitter: Duration,
    /// Mean opinion score (ITU-T G.107), for a peer that conceals losses.
    pub mos: f64,
}

/// Figures that a media thread writes.
#[derive(Copy, Clone, PartialEq, Debug, Default)]
pub(super) struct Figures {
    pub(super) packets_received: u64,
    pub(super) octets_received: u64,
    pub(super) packets_sent: u64,
    pub(super) octets_sent: u64,
    pub(super) packets_expected: u64,
    pub(super) packets_lost: u64,
    pub(super) packets_late: u64,
    pub(super) packets_discarded: u64,
    pub(super) jitter: Duration,
    pub(super) round_trip: Option<Duration>,
    /// Reception at the peer: packets lost, and jitter.
    pub(super) reported: Option<(u64, Duration)>,
    pub(super) underruns: u64,
    pub(super) clears: u64,
    pub(super) clear_to_silence: Option<Duration>,
    pub(super) first_word: Option<Duration>,
    pub(super) hold: Duration,
    pub(super) discarded: u64,
    pub(super) junk: u64,
    /// Losses are concealed before the audio is heard.
    pub(super) has_concealment: bool,
    pub(super) is_negotiated: bool,
}

/// Value that means "no duration".
const NONE: u64 = u64::MAX;

/// Figures as the media thread shares them with their readers.
#[derive(Debug, Default)]
pub(super) struct Shared {
    figures: [AtomicU64; 21],
    /// The peer's silence was reported and goes on.
    is_silent: AtomicBool,
    /// Locked for rare steps, never for a packet.
    timeline: Mutex<Timeline>,
}

impl Shared {
    /// Publishes figures. Readers may see some of them earlier than others.
    pub(super) fn write(&self, figures: &Figures) {
        let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(NONE);
        let optional = |duration: Option<Duration>| duration.map_or(NONE, micros);

        let all = [
            figures.packets_received,
            figures.octets_received,
            figures.packets_sent,
            figures.octets_sent,
            figures.packets_expected,
            figures.packets_lost,
            figures.packets_late,
            figures.packets_discarded,
            micros(figures.jitter),
            optional(figures.round_trip),
            optional(figures.reported.map(|(_, jitter)| jitter)),
            figures.reported.map_or(0, |(lost, _)| lost),
            figures.underruns,
            figures.clears,
            optional(figures.clear_to_silence),
            optional(figures.first_word),
            micros(figures.hold),
            figures.discarded,
            figures.junk,
            u64::from(figures.has_concealment),
            u64::from(figures.is_negotiated),
        ];

        for (shared, figure) in self.figures.iter().zip(all) {
            shared.store(figure, Ordering::Relaxed);
        }
    }

    /// Publishes whether the peer's silence was reported and goes on.
    pub(super) fn write_silence(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }

    pub(super) fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Relaxed)
    }

    /// Notes a step.
    pub(super) fn note(&self, kind: MediaStepKind, at: Moment) {
        let mut timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);
        timeline.note(kind, at);
    }

    pub(super) fn read(&self) -> MediaStatistics {
        let [
            packets_received,
            octets_received,
            packets_sent,
            octets_sent,
            packets_expected,
            packets_lost,
            packets_late,
            packets_discarded,
            jitter,
            round_trip,
            reported_jitter,
            reported_lost,
            underruns,
            clears,
            clear_to_silence,
            first_word,
            hold,
            discarded,
            junk,
            has_concealment,
            is_negotiated,
        ] = self
            .figures
            .each_ref()
            .map(|figure| figure.load(Ordering::Relaxed));

        // Before the first write every figure is 0, not NONE: the filters below tell that from a duration of 0.
        let optional = |micros: u64| (micros != NONE).then(|| Duration::from_micros(micros));
        let round_trip = optional(round_trip).filter(|_| packets_received > 0);
        let jitter = Duration::from_micros(jitter);

        let concealed = if has_concealment == 1 {
            Concealed::Yes
        } else {
            Concealed::No
        };
        let mos = (packets_received > 0).then(|| {
            // To the listener a packet that is discarded is lost (RFC 3611 §4.7.1 adds both up too).
            let lost = (packets_lost + packets_discarded) as f64 / packets_expected.max(1) as f64;
            quality::mos(quality::delay(round_trip, jitter), lost, concealed)
        });

        let sent = optional(reported_jitter)
            .filter(|_| packets_sent > 0)
            .map(|jitter| {
                let lost = reported_lost as f64 / packets_sent as f64;
                SentStatistics {
                    packets_lost: reported_lost,
                    jitter,
                    mos: quality::mos(quality::delay(round_trip, jitter), lost, Concealed::Yes),
                }
            });

        let timeline = self.timeline.lock().unwrap_or_else(PoisonError::into_inner);

        MediaStatistics {
            packets_received,
            octets_received,
            packets_sent,
            octets_sent,
            packets_lost,
            packets_late,
            packets_discarded,
            jitter,
            round_trip,
            mos,
            sent,
            underruns,
            clears,
            clear_to_silence: optional(clear_to_silence).filter(|_| clears > 0),
            first_word: optional(first_word).filter(|_| packets_sent > 0),
            hold: Duration::from_micros(hold),
            discarded,
            junk,
            is_negotiated: is_negotiated == 1,
            steps: timeline.steps().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let shared = Shared::default();
        assert_eq!(shared.read(), MediaStatistics::default());

        let figures = Figures {
            packets_received: 95,
            octets_received: 2,
            packets_sent: 3,
            octets_sent: 4,
            packets_expected: 100,
            packets_lost: 5,
            packets_late: 6,
            packets_discarded: 3,
            jitter: Duration::from_micros(7),
            round_trip: Some(Duration::from_millis(40)),
            reported: Some((1, Duration::from_millis(3))),
            underruns: 8,
            clears: 1,
            clear_to_silence: Some(Duration::from_millis(12)),
            first_word: None,
            hold: Duration::from_millis(27),
            discarded: 9,
            junk: 10,
            has_concealment: true,
            is_negotiated: true,
        };
        shared.write(&figures);
        shared.note(MediaStepKind::Opened, Moment::from_secs(1));

        let read = shared.read();
        assert_eq!(
            (
                read.packets_received,
                read.packets_lost,
                read.packets_discarded,
                read.junk
            ),
            (95, 5, 3, 10)
        );
        assert_eq!(
            (read.round_trip, read.first_word),
            (figures.round_trip, None)
        );
        assert_eq!(read.hold, figures.hold);
        assert_eq!(
            (read.clears, read.clear_to_silence, read.is_negotiated),
            (1, figures.clear_to_silence, true)
        );
        // A third of three packets lost: R = 93.2 - 0.024 * 46 - 95 * 33.3 / (33.3 + 25.1).
        let sent = read.sent.unwrap();
        assert_eq!(
            (sent.packets_lost, sent.jitter),
            (1, Duration::from_millis(3))
        );
        assert!((sent.mos - 1.97).abs() < 0.02, "{sent:?}");
        assert_eq!(read.steps.len(), 1);
        // 8 % lost or discarded: R = 93.2 - 0.96 - 95 * 8 / 33.1 = 69.28.
        assert!(
            read.mos.is_some_and(|mos| (mos - 3.57).abs() < 0.02),
            "{read:?}"
        );
    }
}
