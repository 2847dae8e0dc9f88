//! Figures and steps of a call's media as its record has them.

use std::time::Duration;

use trunkline_calls::MediaRecord;
use trunkline_calls::parts::wall_clock::WallOffset;
use trunkline_model::media::{
    CallMedia, MediaFigures, MediaStep, MediaStepKind, ReceivedMedia, SentMedia,
};
use trunkline_net::media::{self, MediaStatistics};

/// Makes the fact of media that has ended; `None` if no offer and answer were ever agreed on.
pub(super) fn recorded(of: MediaRecord, figures: &MediaStatistics) -> Option<CallMedia> {
    if figures.discarded > 0 {
        tracing::warn!(
            call.id = %of.call,
            org.id = %of.org,
            discarded_octets = figures.discarded,
            "audio of a bot was discarded: as much as may wait was queued"
        );
    }
    figures.is_negotiated.then(|| CallMedia {
        call: of.call,
        org: of.org,
        figures: figures_of(figures),
        steps: figures.steps.iter().map(step).collect(),
    })
}

/// Returns the steps of media that is in use, with times of the wall clock.
pub(super) fn steps_on_wall(figures: &MediaStatistics, wall: WallOffset) -> Vec<MediaStep> {
    let steps = figures.steps.iter().map(step);
    steps
        .map(|step| MediaStep {
            at: wall.of(step.at),
            ..step
        })
        .collect()
}

fn figures_of(figures: &MediaStatistics) -> MediaFigures {
    let sent = figures.sent;

    MediaFigures {
        received: ReceivedMedia {
            packets: figures.packets_received,
            octets: figures.octets_received,
            packets_lost: figures.packets_lost,
            packets_late: figures.packets_late,
            packets_discarded: figures.packets_discarded,
            jitter_ms: milliseconds(figures.jitter),
            mos: figures.mos.map(score),
        },
        sent: SentMedia {
            packets: figures.packets_sent,
            octets: figures.octets_sent,
            packets_lost: sent.map(|sent| sent.packets_lost),
            jitter_ms: sent.map(|sent| milliseconds(sent.jitter)),
            mos: sent.map(|sent| score(sent.mos)),
        },
        round_trip_ms: figures.round_trip.map(milliseconds),
        first_word_ms: figures.first_word.map(milliseconds),
        clears: figures.clears,
        clear_to_silence_ms: figures.clear_to_silence.map(milliseconds),
        underruns: figures.underruns,
        discarded_octets: figures.discarded,
        unknown_messages: figures.junk,
    }
}

/// Returns a duration in milliseconds with one decimal.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

/// Returns a score with two decimals.
fn score(mos: f64) -> f64 {
    (mos * 100.0).round() / 100.0
}

fn step(step: &media::MediaStep) -> MediaStep {
    use media::MediaStepKind as Kind;

    let kind = match step.kind {
        Kind::Opened => MediaStepKind::Opened,
        Kind::FirstPacket(from) => MediaStepKind::FirstPacket { from },
        Kind::Learnt(peer) => MediaStepKind::Learnt { peer },
        Kind::Withheld(from) => MediaStepKind::Withheld { from },
        Kind::Unreachable(peer) => MediaStepKind::Unreachable { peer },
        Kind::BotConnected => MediaStepKind::BotConnected,
        Kind::Started => MediaStepKind::Started,
        Kind::FirstAudio => MediaStepKind::FirstAudio,
        Kind::Cleared => MediaStepKind::Cleared,
        Kind::Silent => MediaStepKind::Silent,
        Kind::Mark => MediaStepKind::Mark,
        Kind::Key => MediaStepKind::Key,
        Kind::Underrun => MediaStepKind::Underrun,
        Kind::Discarded => MediaStepKind::Discarded,
        Kind::BotClosed(end) => MediaStepKind::BotClosed {
            cause: end.as_str().into(),
        },
        Kind::Closed => MediaStepKind::Closed,
    };
    MediaStep { at: step.at, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_rounded_to_what_they_are_good_for() {
        let of = MediaRecord {
            call: uuid::Uuid::from_u128(1),
            org: uuid::Uuid::from_u128(2),
        };
        let figures = MediaStatistics {
            jitter: Duration::from_micros(1_260),
            mos: Some(4.409_286),
            first_word: Some(Duration::from_millis(640)),
            ..MediaStatistics::default()
        };
        assert_eq!(recorded(of, &figures), None, "never agreed on");

        let agreed = MediaStatistics {
            is_negotiated: true,
            ..figures
        };
        let media = recorded(of, &agreed).unwrap();
        assert_eq!(media.figures.received.jitter_ms, 1.3);
        assert_eq!(media.figures.received.mos, Some(4.41));
        assert_eq!(media.figures.first_word_ms, Some(640.0));
        assert_eq!(media.figures.sent.mos, None, "no report came");
    }
}
