//! Concealment of lost audio: repeats the last pitch cycles and fades them (ITU-T G.711 Appendix I).
//!
//! Two things differ from the Appendix. It delays its output by 3.75 ms, so that the last quarter of a cycle before the loss can still be
//! blended; here audio isn't delayed, and the blend is made where a cycle joins the next. The history is kept in µ-law, so that a frame
//! that wasn't lost costs only one copy of 160 octets.

use super::g711;

/// Samples of 10 ms, the unit in which the length of a loss is counted.
const BLOCK: usize = 80;

/// Shortest and longest pitch cycle: 200 and 66 Hz.
const PITCH_MIN: usize = 40;
const PITCH_MAX: usize = 120;

/// Longest blend between two cycles: a quarter of one.
const OVERLAP_MAX: usize = PITCH_MAX / 4;

/// Length of the history: three cycles and a quarter.
const HISTORY: usize = PITCH_MAX * 3 + OVERLAP_MAX;

/// Samples that are correlated.
const CORRELATED: usize = 160;

/// Energy below which correlation means nothing.
const MIN_ENERGY: f32 = 250.0;

/// Blocks after which nothing is left of the audio: 60 ms.
const FADED: usize = 6;

/// Share of the full amplitude by which the concealment fades in a block.
const FADING: f32 = 0.2;

/// Samples by which the blend at the end of a loss is longer for each further block of the loss.
const OVERLAP_GROWTH: usize = 32;

/// Concealment of one direction of a call.
#[derive(Debug)]
pub(super) struct Concealment {
    history: [u8; HISTORY],
    /// The last cycles before the loss, the latest at the end.
    cycles: [f32; HISTORY],
    /// The last samples before the loss, unchanged.
    tail: [f32; OVERLAP_MAX],
    pitch: usize,
    /// Samples at the end of `cycles` that are repeated: one to three cycles.
    repeated: usize,
    /// Place in them of the next sample.
    place: usize,
    /// Blocks concealed since audio was last heard.
    blocks: usize,
}

impl Default for Concealment {
    fn default() -> Self {
        Self {
            history: [g711::SILENCE; HISTORY],
            cycles: [0.0; HISTORY],
            tail: [0.0; OVERLAP_MAX],
            pitch: PITCH_MIN,
            repeated: PITCH_MIN,
            place: 0,
            blocks: 0,
        }
    }
}

impl Concealment {
    /// Takes received audio. Blends its beginning with the concealment before it.
    pub(super) fn hear(&mut self, audio: &mut [u8]) {
        if self.blocks > 0 {
            self.blend_end(audio);
            self.blocks = 0;
        }
        self.remember(audio);
    }

    /// Fills `audio` in place of lost audio; its length is a multiple of 10 ms.
    pub(super) fn conceal(&mut self, audio: &mut [u8]) {
        for block in audio.chunks_mut(BLOCK) {
            let mut samples = [0.0; BLOCK];
            if self.blocks < FADED {
                self.continue_cycles(&mut samples);
            }
            for (octet, sample) in block.iter_mut().zip(samples) {
                *octet = g711::mu_law(sample as i16);
            }
            self.blocks = (self.blocks + 1).min(FADED);
        }
        // Concealed audio is history too, so that a loss soon afterwards continues from what was heard last.
        self.remember(audio);
    }

    fn continue_cycles(&mut self, samples: &mut [f32; BLOCK]) {
        match self.blocks {
            0 => {
                self.begin();
                self.repeat(samples);
                return;
            }
            // More cycles are repeated, since one repeated for long sounds like a buzzer.
            1 | 2 => {
                let overlap = self.pitch / 4;
                let mut before = [0.0; OVERLAP_MAX];
                let place = self.place;
                self.repeat(&mut before[..overlap]);
                self.place = place % self.pitch;
                self.repeated = (self.repeated + self.pitch).min(PITCH_MAX * 3);
                self.join_cycles();
                self.repeat(samples);
                blend(&before[..overlap], &mut samples[..overlap]);
            }
            _ => self.repeat(samples),
        }

        let mut gain = 1.0 - (self.blocks - 1) as f32 * FADING;
        for sample in samples {
            *sample *= gain;
            gain = (gain - FADING / BLOCK as f32).max(0.0);
        }
    }

    fn begin(&mut self) {
        for (sample, octet) in self.cycles.iter_mut().zip(self.history) {
            *sample = f32::from(g711::linear(octet));
        }
        self.pitch = pitch(&self.cycles);
        self.tail
            .copy_from_slice(&self.cycles[HISTORY - OVERLAP_MAX..]);
        self.repeated = self.pitch;
        self.place = 0;
        self.join_cycles();
    }

    /// Blends the end of the repeated samples into the samples before their beginning, so that one repetition joins the next.
    fn join_cycles(&mut self) {
        let overlap = self.pitch / 4;
        let before = HISTORY - self.repeated - overlap;
        let mut joined = [0.0; OVERLAP_MAX];
        joined[..overlap].copy_from_slice(&self.cycles[before..before + overlap]);
        blend(&self.tail[OVERLAP_MAX - overlap..], &mut joined[..overlap]);
        self.cycles[HISTORY - overlap..].copy_from_slice(&joined[..overlap]);
    }

    fn repeat(&mut self, samples: &mut [f32]) {
        let cycles = &self.cycles[HISTORY - self.repeated..];
        for sample in samples {
            *sample = cycles[self.place];
            self.place = (self.place + 1) % self.repeated;
        }
    }

    fn blend_end(&mut self, audio: &mut [u8]) {
        // G.711 Appendix I: 4 ms more for each further 10 ms of loss, at most 10 ms in all.
        let overlap = self.pitch / 4 + (self.blocks - 1) * OVERLAP_GROWTH;
        let overlap = overlap.min(BLOCK).min(audio.len());
        let mut concealed = [0.0; BLOCK];
        if self.blocks < FADED {
            self.repeat(&mut concealed[..overlap]);
        }

        let gain = (1.0 - (self.blocks - 1) as f32 * FADING).max(0.0);
        for (at, octet) in audio[..overlap].iter_mut().enumerate() {
            let heard = (at + 1) as f32 / overlap as f32;
            let sample =
                concealed[at] * gain * (1.0 - heard) + f32::from(g711::linear(*octet)) * heard;
            *octet = g711::mu_law(sample as i16);
        }
    }

    fn remember(&mut self, audio: &[u8]) {
        let audio = &audio[audio.len().saturating_sub(HISTORY)..];
        self.history.copy_within(audio.len().., 0);
        self.history[HISTORY - audio.len()..].copy_from_slice(audio);
    }
}

/// Blends from `before` to `after`, in place of the latter.
fn blend(before: &[f32], after: &mut [f32]) {
    let count = after.len() as f32;
    for (at, (after, before)) in after.iter_mut().zip(before).enumerate() {
        let share = (at + 1) as f32 / count;
        *after = before * (1.0 - share) + *after * share;
    }
}

/// Returns the pitch in samples: the lag at which the last 20 ms are most like the samples before them. Every other lag is tried first,
/// then the lags beside the best.
fn pitch(cycles: &[f32; HISTORY]) -> usize {
    let likeness = |lag: usize, step: usize| {
        let (last, before) = (
            &cycles[HISTORY - CORRELATED..],
            &cycles[HISTORY - CORRELATED - lag..],
        );
        let (mut product, mut energy) = (0.0, 0.0);
        for at in (0..CORRELATED).step_by(step) {
            product += last[at] * before[at];
            energy += before[at] * before[at];
        }
        product / f32::max(energy, MIN_ENERGY).sqrt()
    };

    let best = |lags: &mut dyn Iterator<Item = usize>, step: usize| {
        lags.map(|lag| (lag, likeness(lag, step)))
            .max_by(|(_, one), (_, other)| one.total_cmp(other))
            .map_or(PITCH_MAX, |(lag, _)| lag)
    };

    // `max_by` takes the last of several that are equally good: from long to short, that is the shortest lag.
    let coarse = best(&mut (PITCH_MIN..=PITCH_MAX).rev().step_by(2), 2);
    let near = coarse.saturating_sub(1).max(PITCH_MIN)..=(coarse + 1).min(PITCH_MAX);
    best(&mut near.rev(), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tone of `period` samples.
    fn tone(period: usize, samples: std::ops::Range<usize>) -> Vec<u8> {
        samples
            .map(|at| {
                let angle = std::f32::consts::TAU * at as f32 / period as f32;
                g711::mu_law((angle.sin() * 8_000.0) as i16)
            })
            .collect()
    }

    fn energy(audio: &[u8]) -> f32 {
        audio
            .iter()
            .map(|octet| f32::from(g711::linear(*octet)).powi(2))
            .sum::<f32>()
            / audio.len() as f32
    }

    #[test]
    fn a_tone_goes_on_in_phase() {
        for period in [40, 57, 80, 100, 120] {
            let mut concealment = Concealment::default();
            for frame in tone(period, 0..800).chunks_mut(160) {
                concealment.hear(frame);
            }

            let mut concealed = [0; BLOCK];
            concealment.conceal(&mut concealed);

            let error: Vec<u8> = concealed
                .iter()
                .zip(tone(period, 800..880))
                .map(|(is, should)| g711::mu_law(g711::linear(*is) - g711::linear(should)))
                .collect();
            // 20 dB below the tone.
            assert!(
                energy(&error) < energy(&concealed) / 100.0,
                "period {period}"
            );
        }
    }

    #[test]
    fn a_long_loss_fades_to_silence_and_ends_without_a_click() {
        let mut concealment = Concealment::default();
        concealment.hear(&mut tone(80, 0..480));
        let mut frames = [[0; 160]; 4];
        for frame in &mut frames {
            concealment.conceal(frame);
        }

        let energies = frames.map(|frame| energy(&frame));
        assert!(
            energies.is_sorted_by(|one, other| one > other),
            "{energies:?}"
        );
        assert_eq!(frames[3], [g711::SILENCE; 160]);

        let mut heard = tone(80, 500..660);
        concealment.hear(&mut heard);
        assert!(g711::linear(heard[0]).abs() < 500, "it rises from silence");
        assert_eq!(heard[80..], tone(80, 580..660));
    }

    #[test]
    fn audio_without_a_loss_is_untouched() {
        let mut concealment = Concealment::default();
        let audio = tone(57, 0..160);
        let mut heard = audio.clone();
        concealment.hear(&mut heard);
        assert_eq!(heard, audio);
    }

    #[test]
    fn silence_stays_silent() {
        let mut concealment = Concealment::default();
        let mut frame = [0; 160];
        concealment.conceal(&mut frame);
        assert_eq!(frame, [g711::SILENCE; 160]);
    }
}
