//! Quality of a call by the E-model (ITU-T G.107), reduced to what an IP network changes: delay and loss.

use std::time::Duration;

/// Concealment of losses before the audio is heard.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Concealed {
    Yes,
    No,
}

/// Rating of a flawless connection.
const BEST: f64 = 93.2;

/// Robustness of G.711 to loss, with concealment and without (ITU-T G.113 Appendix I).
const ROBUST: f64 = 25.1;
const FRAGILE: f64 = 4.3;

/// Audio of one packet.
const PACKET: Duration = Duration::from_millis(20);

/// Returns the delay in one direction: half of the round trip, a packet, and twice the jitter as a receiver's buffer would have it.
pub(super) fn delay(round_trip: Option<Duration>, jitter: Duration) -> Duration {
    round_trip.unwrap_or_default() / 2 + PACKET + jitter * 2
}

/// Returns the mean opinion score at a delay in one direction and a share of lost packets from 0 to 1.
pub(super) fn mos(delay: Duration, lost: f64, concealed: Concealed) -> f64 {
    let delay = delay.as_secs_f64() * 1_000.0;
    let impairment_of_delay = 0.024 * delay + 0.11 * (delay - 177.3).max(0.0);

    let robustness = match concealed {
        Concealed::Yes => ROBUST,
        Concealed::No => FRAGILE,
    };
    let percent = lost.clamp(0.0, 1.0) * 100.0;
    // G.711 itself impairs nothing: Ie is 0.
    let impairment_of_loss = 95.0 * percent / (percent + robustness);

    of_rating(BEST - impairment_of_delay - impairment_of_loss)
}

/// Returns the score of a rating (G.107 Annex B).
fn of_rating(rating: f64) -> f64 {
    let rating = rating.clamp(0.0, 100.0);
    let score = 1.0 + 0.035 * rating + 7e-6 * rating * (rating - 60.0) * (100.0 - rating);
    score.clamp(1.0, 4.41)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scores computed by hand from the formulas of G.107.
    #[test]
    fn scores_are_those_of_the_recommendation() {
        let cases = [
            ("nothing wrong", 0, 0.0, Concealed::Yes, 4.409),
            // R = 93.2 - 0.48.
            ("20 ms", 20, 0.0, Concealed::Yes, 4.399),
            // R = 93.2 - 4.8 - 2.497.
            ("200 ms", 200, 0.0, Concealed::Yes, 4.228),
            // R = 93.2 - 95 * 5 / 30.1 = 77.419.
            ("5 % lost, concealed", 0, 0.05, Concealed::Yes, 3.923),
            // R = 93.2 - 95 * 5 / 9.3 = 42.125.
            ("5 % lost, not concealed", 0, 0.05, Concealed::No, 2.169),
            ("all lost", 0, 1.0, Concealed::No, 1.0),
            ("ten seconds", 10_000, 0.0, Concealed::Yes, 1.0),
        ];

        for (name, delay, lost, concealed, expected) in cases {
            let score = mos(Duration::from_millis(delay), lost, concealed);
            assert!((score - expected).abs() < 0.005, "{name}: {score}");
        }
    }
}
