//! WAV files: read into a clip of 8 kHz, and written from one. A length that exceeds the file is cut to the octets that are there.
//!
//! Reads PCM of 8, 16, 24 and 32 bits, floats of 32 bits, A-law and µ-law, with one channel or two, of 8 to 48 kHz.

use std::f64::consts::PI;
use std::time::Duration;

use super::clip::Clip;
use super::g711::{linear, mu_law, mu_of_a};

/// Sample rate of a clip.
const RATE: u32 = 8_000;
/// Sample rates that are read.
const RATES: std::ops::RangeInclusive<u32> = RATE..=48_000;
/// Taps of the low-pass at 8 kHz on either side of a sample; a higher rate has as many more.
const TAPS: usize = 16;

/// Fault of a WAV file.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WavError {
    /// The file doesn't begin as a WAV file, or lacks the format or the audio.
    #[error("is no WAV file")]
    NotWav,
    /// The encoding isn't supported.
    #[error(
        "has another encoding than PCM of 8, 16, 24 or 32 bits, floats of 32 bits, A-law or µ-law"
    )]
    Encoding,
    /// More channels than two, or none.
    #[error("needs one channel or two")]
    Channels,
    /// The sample rate isn't supported.
    #[error("needs a sample rate of 8,000 to 48,000 Hz")]
    Rate,
    /// No audio.
    #[error("has no audio")]
    Empty,
    /// Longer than allowed.
    #[error("is longer than {} s", .0.as_secs())]
    TooLong(Duration),
}

/// Encoding of a sample.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Encoding {
    Unsigned8,
    Signed16,
    Signed24,
    Signed32,
    Float32,
    ALaw,
    MuLaw,
}

impl Encoding {
    const fn octets(self) -> usize {
        match self {
            Self::Unsigned8 | Self::ALaw | Self::MuLaw => 1,
            Self::Signed16 => 2,
            Self::Signed24 => 3,
            Self::Signed32 | Self::Float32 => 4,
        }
    }

    /// Reads a sample, in the range of 16 bits.
    fn sample(self, octets: &[u8]) -> f64 {
        match (self, octets) {
            (Self::Unsigned8, [octet]) => (f64::from(*octet) - 128.0) * 256.0,
            (Self::ALaw, [octet]) => f64::from(linear(mu_of_a(*octet))),
            (Self::MuLaw, [octet]) => f64::from(linear(*octet)),
            (Self::Signed16, [low, high]) => f64::from(i16::from_le_bytes([*low, *high])),
            (Self::Signed24, [low, middle, high]) => {
                f64::from(i32::from_le_bytes([0, *low, *middle, *high])) / 65_536.0
            }
            (Self::Signed32, [a, b, c, d]) => {
                f64::from(i32::from_le_bytes([*a, *b, *c, *d])) / 65_536.0
            }
            (Self::Float32, [a, b, c, d]) => {
                let sample = f64::from(f32::from_le_bytes([*a, *b, *c, *d]));
                match sample.is_finite() {
                    true => sample.clamp(-1.0, 1.0) * 32_767.0,
                    false => 0.0,
                }
            }
            (_, _) => 0.0,
        }
    }
}

/// Format in the chunk `fmt `.
#[derive(Copy, Clone, Debug)]
struct Format {
    encoding: Encoding,
    channels: usize,
    rate: u32,
}

/// Reads a WAV file into a clip of at most `longest`.
///
/// # Errors
/// The first fault.
pub fn read(file: &[u8], longest: Duration) -> Result<Clip, WavError> {
    let (format, data) = chunks(file)?;
    let frame = format.encoding.octets() * format.channels;
    let frames = data.len() / frame;
    if frames == 0 {
        return Err(WavError::Empty);
    }
    // Checked before the conversion, so that a long file costs no memory.
    if frames as u128 * 1_000 > longest.as_millis() * u128::from(format.rate) {
        return Err(WavError::TooLong(longest));
    }

    if format.rate == RATE && format.channels == 1 && format.encoding == Encoding::MuLaw {
        return Ok(Clip::of_mu_law(data));
    }
    let mono: Vec<f64> = data
        .chunks_exact(frame)
        .map(|frame| {
            let channels = frame.chunks_exact(format.encoding.octets());
            let sum: f64 = channels.map(|octets| format.encoding.sample(octets)).sum();
            sum / format.channels as f64
        })
        .collect();
    let samples = match format.rate {
        RATE => mono,
        rate => resampled(&mono, rate),
    };
    let octets: Vec<u8> = samples
        .into_iter()
        .map(|sample| mu_law(rounded(sample)))
        .collect();
    Ok(Clip::of_mu_law(&octets))
}

/// Writes µ-law samples of 8 kHz as a WAV file.
pub fn write(samples: &[u8]) -> Vec<u8> {
    let length = u32::try_from(samples.len()).unwrap_or(u32::MAX);
    let padding = samples.len() % 2;
    let mut file = Vec::with_capacity(58 + samples.len() + padding);
    file.extend(b"RIFF");
    file.extend((50_u32.saturating_add(length)).to_le_bytes());
    file.extend(b"WAVEfmt ");
    file.extend(18_u32.to_le_bytes());

    // WAVEFORMATEX: µ-law, channels, samples and octets a second, octets of a frame, bits of a sample, no extension.
    for (value, octets) in [
        (7_u32, 2),
        (1, 2),
        (RATE, 4),
        (RATE, 4),
        (1, 2),
        (8, 2),
        (0, 2),
    ] {
        file.extend(&value.to_le_bytes()[..octets]);
    }

    file.extend(b"fact");
    file.extend(4_u32.to_le_bytes());
    file.extend(length.to_le_bytes());
    file.extend(b"data");
    file.extend(length.to_le_bytes());
    file.extend(samples);
    file.resize(file.len() + padding, 0);

    file
}

/// Finds the format, and the audio.
fn chunks(file: &[u8]) -> Result<(Format, &[u8]), WavError> {
    let mut rest = match file.split_first_chunk::<12>() {
        Some((head, rest)) if head.starts_with(b"RIFF") && head.ends_with(b"WAVE") => rest,
        Some(_) | None => return Err(WavError::NotWav),
    };

    let mut format = None;
    while let Some((head, body)) = rest.split_first_chunk::<8>() {
        let [a, b, c, d, length @ ..] = *head;
        let length = u32::from_le_bytes(length) as usize;
        // A program that writes to a pipe doesn't know the length of the audio, and claims the longest, or 0.
        let length = match &[a, b, c, d] {
            b"data" if length == 0 => body.len(),
            _ => length,
        };
        let (chunk, after) = body.split_at(length.min(body.len()));
        match &[a, b, c, d] {
            b"fmt " => format = Some(read_format(chunk)?),
            b"data" => return Ok((format.ok_or(WavError::NotWav)?, chunk)),
            _ => {}
        }
        // Chunks are padded to an even length that their size doesn't count.
        rest = after.get(length % 2..).unwrap_or_default();
    }
    Err(WavError::NotWav)
}

fn read_format(chunk: &[u8]) -> Result<Format, WavError> {
    const EXTENSIBLE: u16 = 0xfffe;
    let short = |at: usize| {
        let octets = chunk.get(at..at + 2)?;
        Some(u16::from_le_bytes([octets[0], octets[1]]))
    };

    let (Some(tag), Some(channels), Some(bits)) = (short(0), short(2), short(14)) else {
        return Err(WavError::NotWav);
    };
    let (Some(low), Some(high)) = (short(4), short(6)) else {
        return Err(WavError::NotWav);
    };

    let rate = u32::from(high) << 16 | u32::from(low);
    let tag = match tag {
        // The sub-format is a GUID that begins with the tag itself.
        EXTENSIBLE => short(24).ok_or(WavError::NotWav)?,
        tag => tag,
    };

    let encoding = match (tag, bits) {
        (1, 8) => Encoding::Unsigned8,
        (1, 16) => Encoding::Signed16,
        (1, 24) => Encoding::Signed24,
        (1, 32) => Encoding::Signed32,
        (3, 32) => Encoding::Float32,
        (6, 8) => Encoding::ALaw,
        (7, 8) => Encoding::MuLaw,
        (_, _) => return Err(WavError::Encoding),
    };

    if !(1..=2).contains(&channels) {
        return Err(WavError::Channels);
    }
    if !RATES.contains(&rate) {
        return Err(WavError::Rate);
    }

    Ok(Format {
        encoding,
        channels: usize::from(channels),
        rate,
    })
}

/// Resamples to 8 kHz: each sample is a sum weighted by a windowed sinc, a low-pass at 3.6 kHz. Samples at the same phase between two samples
/// of the file share their weights, which are computed once: computing them for each sample would take eight times as long.
fn resampled(samples: &[f64], rate: u32) -> Vec<f64> {
    let shared = gcd(rate, RATE);
    let (step, phases) = ((rate / shared) as usize, (RATE / shared) as usize);
    let cutoff = 3_600.0 / f64::from(rate);
    let half = TAPS as f64 * f64::from(rate) / f64::from(RATE);
    let reach = half as usize + 1;

    let length = (samples.len() * phases / step).max(1);
    let mut resampled = vec![0.0; length];
    for phase in 0..phases.min(length) {
        let between = (phase * step % phases) as f64 / phases as f64;
        let weights: Vec<f64> = (0..=2 * reach)
            .map(|place| weight(place as f64 - reach as f64 - between, cutoff, half))
            .collect();

        for at in (phase..length).step_by(phases) {
            // The first weight belongs to the sample `reach` places earlier. Weights for places before the file's first sample are skipped.
            let before = at * step / phases;
            let skipped = reach.saturating_sub(before);
            let first = before.saturating_sub(reach).min(samples.len());

            let (mut sum, mut total) = (0.0, 0.0);
            for (weight, sample) in weights[skipped..].iter().zip(&samples[first..]) {
                sum += weight * sample;
                total += weight;
            }

            // Where the file begins or ends, some weights are missing: the sum is scaled by the others.
            resampled[at] = match total > 0.1 {
                true => sum / total,
                false => sum,
            };
        }
    }

    resampled
}

/// Weight of a sample that is `x` samples away: a sinc in a Hamming window of `half` to either side.
fn weight(x: f64, cutoff: f64, half: f64) -> f64 {
    if x.abs() > half {
        return 0.0;
    }
    let sinc = match x.abs() < 1e-9 {
        true => 2.0 * cutoff,
        false => (2.0 * PI * cutoff * x).sin() / (PI * x),
    };
    sinc * (0.54 + 0.46 * (PI * x / half).cos())
}

const fn gcd(a: u32, b: u32) -> u32 {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

fn rounded(sample: f64) -> i16 {
    sample.round().clamp(-32_768.0, 32_767.0) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(60);

    fn file(tag: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
        let frame = channels * (bits / 8).max(1);
        let mut file = b"RIFF\xff\xff\xff\xffWAVE".to_vec();

        // An unknown chunk of odd length.
        file.extend(b"LIST\x03\0\0\0abc\0");
        file.extend(b"fmt \x10\0\0\0");
        file.extend(tag.to_le_bytes());
        file.extend(channels.to_le_bytes());
        file.extend(rate.to_le_bytes());
        file.extend((rate * u32::from(frame)).to_le_bytes());
        file.extend(frame.to_le_bytes());
        file.extend(bits.to_le_bytes());
        file.extend(b"data");
        file.extend((data.len() as u32).to_le_bytes());
        file.extend(data);
        file
    }

    fn sine(hertz: f64, rate: u32, seconds: f64) -> Vec<f64> {
        let count = (f64::from(rate) * seconds) as usize;
        (0..count)
            .map(|at| (2.0 * PI * hertz * at as f64 / f64::from(rate)).sin() * 0.5)
            .collect()
    }

    /// Power of a clip without its ends, in the range of 16 bits squared.
    fn power(clip: &Clip) -> f64 {
        let middle = &clip.samples()[800..clip.len() - 800];
        let squares = middle.iter().map(|octet| f64::from(linear(*octet)).powi(2));
        squares.sum::<f64>() / middle.len() as f64
    }

    #[test]
    fn every_encoding_is_read() {
        let sine = sine(440.0, 8_000, 1.0);
        let pcm16 = |sample: &f64| (sample * 32_767.0) as i16;

        let whole = power(
            &read(
                &file(
                    1,
                    1,
                    8_000,
                    16,
                    &octets(&sine, |it| pcm16(it).to_le_bytes().to_vec()),
                ),
                LONGEST,
            )
            .unwrap(),
        );
        assert!(
            (whole / (16_384.0_f64.powi(2) / 2.0) - 1.0).abs() < 0.05,
            "{whole}"
        );

        let cases: [(&str, u16, u16, Vec<u8>); 6] = [
            (
                "8 bits",
                1,
                8,
                octets(&sine, |it| vec![(it * 127.0 + 128.0) as u8]),
            ),
            (
                "24 bits",
                1,
                24,
                octets(&sine, |it| {
                    ((it * 8_388_607.0) as i32).to_le_bytes()[..3].to_vec()
                }),
            ),
            (
                "32 bits",
                1,
                32,
                octets(&sine, |it| {
                    ((it * 2_147_483_647.0) as i32).to_le_bytes().to_vec()
                }),
            ),
            (
                "floats",
                3,
                32,
                octets(&sine, |it| (*it as f32).to_le_bytes().to_vec()),
            ),
            ("µ-law", 7, 8, octets(&sine, |it| vec![mu_law(pcm16(it))])),
            (
                "A-law",
                6,
                8,
                octets(&sine, |it| {
                    vec![super::super::g711::a_of_mu(mu_law(pcm16(it)))]
                }),
            ),
        ];

        for (name, tag, bits, data) in cases {
            let clip = read(&file(tag, 1, 8_000, bits, &data), LONGEST).expect(name);
            assert_eq!(clip.len(), 8_000, "{name}");
            let share = power(&clip) / whole;
            assert!((0.95..1.05).contains(&share), "{name}: {share}");
        }
    }

    fn octets(samples: &[f64], of: impl Fn(&f64) -> Vec<u8>) -> Vec<u8> {
        samples.iter().flat_map(of).collect()
    }

    fn pcm(samples: &[f64], channels: usize) -> Vec<u8> {
        octets(samples, |sample| {
            ((sample * 32_767.0) as i16).to_le_bytes().repeat(channels)
        })
    }

    #[test]
    fn other_rates_keep_what_a_telephone_can_carry() {
        let reference = power(
            &read(
                &file(1, 1, 8_000, 16, &pcm(&sine(1_000.0, 8_000, 1.0), 1)),
                LONGEST,
            )
            .unwrap(),
        );

        for rate in [11_025, 16_000, 22_050, 44_100, 48_000] {
            let tone = |hertz| {
                let data = pcm(&sine(hertz, rate, 1.0), 2);
                read(&file(1, 2, rate, 16, &data), LONGEST).unwrap()
            };
            let clip = tone(1_000.0);
            assert!(clip.len().abs_diff(8_000) <= 1, "{rate}: {}", clip.len());
            let share = power(&clip) / reference;
            assert!((0.9..1.1).contains(&share), "{rate}: {share}");
            // It would fold down to 2.5 kHz.
            let folded = power(&tone(5_500.0)) / reference;
            assert!(folded < 0.001, "{rate}: {folded}");
        }
    }

    #[test]
    fn what_is_no_telephone_audio_is_refused_before_it_is_converted() {
        let second = vec![0; 16_000];
        let long = vec![0; 8_000 * 61];
        let cut = &file(1, 1, 8_000, 16, &second)[..30];
        let mut claims = file(1, 1, 8_000, 16, &second);
        let at = claims.len() - second.len() - 4;
        claims[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());

        for (name, file, expected) in [
            ("nothing", Vec::new(), WavError::NotWav),
            (
                "an MP3",
                b"ID3\x04\0\0\0\0\0\0\0\0\0\0".to_vec(),
                WavError::NotWav,
            ),
            ("cut", cut.to_vec(), WavError::NotWav),
            ("ADPCM", file(2, 1, 8_000, 4, &second), WavError::Encoding),
            (
                "64 bits",
                file(1, 1, 8_000, 64, &second),
                WavError::Encoding,
            ),
            (
                "six channels",
                file(1, 6, 8_000, 16, &second),
                WavError::Channels,
            ),
            (
                "no channel",
                file(1, 0, 8_000, 16, &second),
                WavError::Channels,
            ),
            ("1 Hz, a bomb", file(1, 1, 1, 16, &second), WavError::Rate),
            ("192 kHz", file(1, 1, 192_000, 16, &second), WavError::Rate),
            ("no audio", file(1, 1, 8_000, 16, &[]), WavError::Empty),
            (
                "half a sample",
                file(1, 1, 8_000, 16, &[1]),
                WavError::Empty,
            ),
            (
                "61 s",
                file(7, 1, 8_000, 8, &long),
                WavError::TooLong(LONGEST),
            ),
        ] {
            assert_eq!(read(&file, LONGEST), Err(expected), "{name}");
        }

        let clip = read(&claims, LONGEST).expect("the octets that are there");
        assert_eq!(clip.len(), 8_000);
    }

    #[test]
    fn audio_of_unknown_length_reaches_to_the_end() {
        let said = vec![0x11; 16_000];
        let whole = file(1, 1, 8_000, 16, &said);
        let at = whole.len() - said.len() - 4;
        let expected = read(&whole, LONGEST).unwrap();
        for claimed in [0, 0x7fff_ffff, u32::MAX] {
            let mut streamed = whole.clone();
            streamed[at..at + 4].copy_from_slice(&claimed.to_le_bytes());
            let clip = read(&streamed, LONGEST).unwrap();
            assert_eq!(clip.samples(), expected.samples(), "{claimed}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for samples in [&[1_u8, 2, 3][..], &[7; 800]] {
            let clip = read(&write(samples), LONGEST).unwrap();
            assert_eq!(clip.samples(), samples);
        }
    }

    #[test]
    fn junk_is_never_a_panic() {
        let sound = file(1, 2, 44_100, 16, &[7; 400]);
        for cut in 0..sound.len() {
            let _ = read(&sound[..cut], LONGEST);
            let mut changed = sound.clone();
            changed[cut] ^= 0xff;
            let _ = read(&changed, LONGEST);
        }
    }
}
