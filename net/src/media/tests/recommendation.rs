//! G.711 against the Recommendation: all 65,536 samples and 256 octets of both laws, by decision values that are computed here from its
//! tables' definition. And against the ITU's own vectors (G.191, Software Tool Library), where a checkout of them is given.

use super::super::concealment::Concealment;
use super::super::g711;

/// Decision values of a law on the scale of 16 bits, from 0 up: the ends of its intervals, and the virtual one at the end.
fn decisions(first: i32, repeats: bool) -> Vec<i32> {
    let (mut ends, mut step) = (vec![0], first);
    for segment in 0..8 {
        // Eight chords of 16 intervals; each chord's are twice as wide as those of the one before.
        for _ in 0..16 {
            ends.push(ends.last().expect("the first") + step);
        }
        // In the A-law the first two chords are of one width (Table 1a, note).
        if !(repeats && segment == 0) {
            step *= 2;
        }
    }
    ends
}

/// G.711 Table 2a: on 14 bits the first interval is one unit and the 15 behind it are two; each of the next chords doubles.
fn mu_decisions() -> Vec<i32> {
    const UNIT: i32 = 4;
    let shifted = decisions(2 * UNIT, false);
    // The whole scale begins one unit lower: the first interval is half of the others.
    let lower = |end: &i32| (end - UNIT).max(0);
    shifted.iter().map(lower).collect()
}

/// G.711 Table 1a: on 13 bits all intervals of the first two chords are two units.
fn a_decisions() -> Vec<i32> {
    const UNIT: i32 = 8;
    decisions(2 * UNIT, true)
}

/// Returns the interval of a magnitude; above the scale the last.
fn interval(decisions: &[i32], magnitude: i32) -> u8 {
    let passed = decisions.iter().filter(|end| **end <= magnitude).count();
    u8::try_from(passed - 1).expect("128 intervals").min(127)
}

/// The magnitude as the Software Tool Library has it: the ones' complement of a negative sample, so that both signs have as many samples in
/// each interval.
fn magnitude(sample: i16) -> i32 {
    i32::from(if sample < 0 { !sample } else { sample })
}

#[test]
fn decision_values_are_those_of_the_tables() {
    let mu = mu_decisions();
    // Table 2a, column 4 (14 bits): x1, x2, x16, x17, x32, x33, x112, x113 and the virtual x128.
    for (place, value) in [
        (1, 1),
        (2, 3),
        (16, 31),
        (17, 35),
        (32, 95),
        (33, 103),
        (112, 4_063),
        (113, 4_319),
        (128, 8_159),
    ] {
        assert_eq!(mu[place] / 4, value, "µ-law x{place}");
    }

    let a = a_decisions();

    // Table 1a, column 4 (13 bits).
    for (place, value) in [
        (1, 2),
        (32, 64),
        (33, 68),
        (48, 128),
        (64, 256),
        (80, 512),
        (96, 1_024),
        (112, 2_048),
        (127, 3_968),
        (128, 4_096),
    ] {
        assert_eq!(a[place] / 8, value, "A-law x{place}");
    }
}

#[test]
fn every_sample_has_the_octet_of_its_interval() {
    let (mu, a) = (mu_decisions(), a_decisions());
    for sample in i16::MIN..=i16::MAX {
        // Character signals of Table 2a: sign bit 1 for positive values, and all bits inverted.
        let sign = if sample < 0 { 0x80 } else { 0 };
        let expected = !(sign | interval(&mu, magnitude(sample)));
        assert_eq!(g711::mu_law(sample), expected, "µ-law of {sample}");

        // Table 1a, note 2: the even bits are inverted.
        let expected = ((sign ^ 0x80) | interval(&a, magnitude(sample))) ^ 0x55;
        assert_eq!(g711::a_law(sample), expected, "A-law of {sample}");
    }
}

#[test]
fn every_octet_has_the_value_in_the_middle_of_its_interval() {
    let (mu, a) = (mu_decisions(), a_decisions());
    let middle =
        |ends: &[i32], code: u8| (ends[usize::from(code)] + ends[usize::from(code) + 1]) / 2;
    for octet in 0..=u8::MAX {
        let code = !octet & 0x7f;
        // The first interval around zero is taken as zero.
        let value = if code == 0 { 0 } else { middle(&mu, code) };
        let expected = if octet & 0x80 == 0 { -value } else { value };
        assert_eq!(
            i32::from(g711::linear(octet)),
            expected,
            "µ-law {octet:02x}"
        );

        let code = (octet ^ 0x55) & 0x7f;
        let value = middle(&a, code);
        let expected = if (octet ^ 0x55) & 0x80 == 0 {
            -value
        } else {
            value
        };
        assert_eq!(
            i32::from(g711::linear_of_a(octet)),
            expected,
            "A-law {octet:02x}"
        );
    }
}

/// A file of samples in a checkout of the Software Tool Library (github.com/openitu/STL, `src`), little endian.
fn samples(file: &str) -> Vec<i16> {
    let folder =
        std::env::var("TRUNKLINE_ITU_STL").expect("TRUNKLINE_ITU_STL names `src` of a checkout");
    let path = std::path::Path::new(&folder).join(file);
    let octets = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let samples = octets.chunks_exact(2);
    samples
        .map(|two| i16::from_le_bytes([two[0], two[1]]))
        .collect()
}

#[test]
#[ignore = "needs the ITU's vectors: just itu-vectors FOLDER"]
fn the_itu_s_sweep_is_coded_as_the_itu_codes_it() {
    let source = samples("g711/test_data/sweep.src");
    assert_eq!(source.len(), 65_536, "every sample there is");
    let [mu, a, of_mu, of_a] = ["sweep-r.u", "sweep-r.a", "sweep-r.reu", "sweep-r.rea"]
        .map(|file| samples(&format!("g711/test_data/{file}")));

    for (at, sample) in source.into_iter().enumerate() {
        // The library keeps a character signal in the low octet of a sample.
        let octets = (g711::mu_law(sample), g711::a_law(sample));
        assert_eq!(
            (i16::from(octets.0), i16::from(octets.1)),
            (mu[at], a[at]),
            "{sample}"
        );
        let values = (g711::linear(octets.0), g711::linear_of_a(octets.1));
        assert_eq!(values, (of_mu[at], of_a[at]), "{sample}");
    }
}

/// Share of the original in what was concealed, in decibels, over the frames that were lost.
fn ratio(original: &[i16], concealed: &[i16], lost: &[bool]) -> f64 {
    const FRAME: usize = 80;
    let (mut signal, mut error) = (0.0, 0.0);
    for (at, lost) in lost.iter().enumerate() {
        let range = at * FRAME..(at + 1) * FRAME;
        let (Some(is), Some(was)) = (concealed.get(range.clone()), original.get(range)) else {
            break;
        };
        for (is, was) in is.iter().zip(was).filter(|_| *lost) {
            signal += f64::from(*was).powi(2);
            error += (f64::from(*was) - f64::from(*is)).powi(2);
        }
    }

    10.0 * (signal / error).log10()
}

/// The library's algorithm delays by 3.75 ms, which lets it blend before a loss (its program takes the delay out again); ours has to come near.
#[test]
#[ignore = "needs the ITU's vectors: just itu-vectors FOLDER"]
fn the_itu_s_speech_is_concealed_nearly_as_the_itu_conceals_it() {
    let original = samples("g711iplc/test_data/f2.le");
    for (pattern, reference) in [("fe10.g192", "f2_10.raw"), ("fe10_2.g192", "f2_10_2.raw")] {
        // 6B21 is a frame that came, 6B20 one that was lost; the pattern begins again at its end.
        let pattern = samples(&format!("g711iplc/test_data/{pattern}"));
        let lost: Vec<bool> = pattern
            .iter()
            .map(|flag| *flag == 0x6b20)
            .cycle()
            .take(original.len() / 80)
            .collect();

        let mut concealment = Concealment::default();
        let mut ours = Vec::new();
        for (frame, lost) in original.chunks_exact(80).zip(&lost) {
            let mut frame: Vec<u8> = frame.iter().map(|sample| g711::mu_law(*sample)).collect();
            match lost {
                true => concealment.conceal(&mut frame),
                false => concealment.hear(&mut frame),
            }
            ours.extend(frame.iter().map(|octet| g711::linear(*octet)));
        }

        let theirs = samples(&format!("g711iplc/test_data/{reference}"));
        let (ours, theirs) = (
            ratio(&original, &ours, &lost),
            ratio(&original, &theirs, &lost),
        );
        assert!(
            ours > theirs - 1.0,
            "{reference}: {ours:.2} dB, the library {theirs:.2} dB"
        );
        eprintln!("{reference}: {ours:.2} dB, the library {theirs:.2} dB");
    }
}
