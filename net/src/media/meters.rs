//! Metrics of a media thread.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use crate::bot::BotEnd;

use super::bot_leg::BotCounts;
use super::statistics::MediaStatistics;

/// Counts of packets between two rounds.
#[derive(Debug, Default)]
pub(super) struct Packets {
    pub(super) echoed: u64,
    pub(super) passed: u64,
    pub(super) discarded: u64,
}

/// Metrics of a media thread.
pub(super) struct Meters {
    echoed: Counter,
    passed: Counter,
    discarded: Counter,
    bots: Gauge,
    closed: Counter,
    protocol: Counter,
    too_slow: Counter,
    lost: Counter,
    first_word: Histogram,
    cleared: Histogram,
    tick_late: Histogram,
    mos: [Histogram; 2],
    loss: [Histogram; 2],
    jitter: [Histogram; 2],
    round_trip: Histogram,
    underruns: Counter,
    concealed: Counter,
    too_late: Counter,
    discarded_octets: Counter,
    junk: Counter,
}

impl Meters {
    pub(super) fn new() -> Self {
        let fate = |fate: &'static str| counter!("trunkline_media_packets_total", "fate" => fate);
        let end = |end: BotEnd| counter!("trunkline_media_bot_ends_total", "cause" => end.as_str());

        Self {
            echoed: fate("echoed"),
            passed: fate("bot"),
            discarded: fate("discarded"),
            bots: gauge!("trunkline_media_bots"),
            closed: end(BotEnd::Closed),
            protocol: end(BotEnd::Protocol),
            too_slow: end(BotEnd::TooSlow),
            lost: end(BotEnd::Lost),
            first_word: histogram!("trunkline_media_first_word_seconds"),
            cleared: histogram!("trunkline_media_clear_seconds"),
            tick_late: histogram!("trunkline_media_tick_late_seconds"),
            mos: directions(|to| histogram!("trunkline_media_mos", "direction" => to)),
            loss: directions(|to| histogram!("trunkline_media_loss_ratio", "direction" => to)),
            jitter: directions(
                |to| histogram!("trunkline_media_jitter_seconds", "direction" => to),
            ),
            round_trip: histogram!("trunkline_media_round_trip_seconds"),
            underruns: counter!("trunkline_media_underruns_total"),
            concealed: counter!("trunkline_media_concealed_frames_total"),
            too_late: counter!("trunkline_media_packets_too_late_total"),
            discarded_octets: counter!("trunkline_media_bot_octets_discarded_total"),
            junk: counter!("trunkline_media_bot_junk_total"),
        }
    }

    pub(super) fn packets(&self, packets: &Packets) {
        self.echoed.increment(packets.echoed);
        self.passed.increment(packets.passed);
        self.discarded.increment(packets.discarded);
    }

    pub(super) fn bot_attached(&self) {
        self.bots.increment(1.0);
    }

    /// Counts a bot that is gone, and its figures. `end` is `None` if the call ended first, or another bot took its place.
    pub(super) fn bot_gone(&self, counts: &BotCounts, end: Option<BotEnd>) {
        self.bots.decrement(1.0);
        match end {
            Some(BotEnd::Closed) => self.closed.increment(1),
            Some(BotEnd::Protocol) => self.protocol.increment(1),
            Some(BotEnd::TooSlow) => self.too_slow.increment(1),
            Some(BotEnd::Lost) => self.lost.increment(1),
            None => {}
        }
        self.underruns.increment(counts.playout.underruns);
        self.concealed.increment(counts.inbound.concealed);
        self.too_late.increment(counts.inbound.discarded);
        self.discarded_octets.increment(counts.playout.discarded);
        self.junk.increment(counts.junk);
    }

    pub(super) fn first_word(&self, after: Duration) {
        self.first_word.record(after);
    }

    pub(super) fn cleared(&self, after: Duration) {
        self.cleared.record(after);
    }

    /// Records how late the ticks of a slot were.
    pub(super) fn tick_late(&self, by: Duration) {
        self.tick_late.record(by);
    }

    /// Records the quality of a call that is over.
    pub(super) fn call_over(&self, figures: &MediaStatistics) {
        let share = |lost: u64, of: u64| (lost as f64 / of.max(1) as f64).min(1.0);
        let (received, sent) = (figures.mos, figures.sent);
        if let Some(mos) = received {
            self.mos[0].record(mos);
            let expected = figures.packets_received + figures.packets_lost;
            self.loss[0].record(share(figures.packets_lost, expected));
            self.jitter[0].record(figures.jitter);
        }

        if let Some(sent) = sent {
            self.mos[1].record(sent.mos);
            self.loss[1].record(share(sent.packets_lost, figures.packets_sent));
            self.jitter[1].record(sent.jitter);
        }
        if let Some(round_trip) = figures.round_trip {
            self.round_trip.record(round_trip);
        }
    }
}

/// Returns two histograms: of the stream that the peer sent, and of the stream that was sent to it.
fn directions(of: impl Fn(&'static str) -> Histogram) -> [Histogram; 2] {
    ["received", "sent"].map(of)
}
