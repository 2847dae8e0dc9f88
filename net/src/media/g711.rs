//! G.711: µ-law and A-law, to linear samples of 16 bits and to each other (ITU-T G.711).

use trunkline_sip::dialog::sdp::Codec;

/// Silence in µ-law.
pub(super) const SILENCE: u8 = 0xff;

/// Added to a magnitude before its µ-law segment is determined.
const BIAS: i32 = 0x84;

/// Largest magnitude that µ-law holds.
const CLIP: i32 = 32_635;

const LINEAR_OF_MU: [i16; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        table[octet] = decode_mu(octet as u8);
        octet += 1;
    }
    table
};

const A_OF_MU: [u8; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        table[octet] = encode_a(decode_mu(octet as u8));
        octet += 1;
    }
    table
};

const MU_OF_A: [u8; 256] = {
    let mut table = [0; 256];
    let mut octet = 0;
    while octet < 256 {
        table[octet] = encode_mu(decode_a(octet as u8));
        octet += 1;
    }
    table
};

/// Converts µ-law to a linear sample.
pub(super) const fn linear(mu_law: u8) -> i16 {
    LINEAR_OF_MU[mu_law as usize]
}

/// Converts a linear sample to µ-law.
pub(super) const fn mu_law(linear: i16) -> u8 {
    encode_mu(linear)
}

/// Converts µ-law to A-law.
pub(super) const fn a_of_mu(mu_law: u8) -> u8 {
    A_OF_MU[mu_law as usize]
}

/// Converts A-law to µ-law.
pub(super) const fn mu_of_a(a_law: u8) -> u8 {
    MU_OF_A[a_law as usize]
}

/// Converts audio in place from one codec to another.
pub(super) fn convert(audio: &mut [u8], from: Codec, to: Codec) {
    let table = match (from, to) {
        (Codec::Pcma, Codec::Pcmu) => &MU_OF_A,
        (Codec::Pcmu, Codec::Pcma) => &A_OF_MU,
        (Codec::Pcma, Codec::Pcma) | (Codec::Pcmu, Codec::Pcmu) => return,
    };
    for octet in audio {
        *octet = table[usize::from(*octet)];
    }
}

/// Converts a linear sample to A-law.
#[cfg(test)]
pub(super) const fn a_law(linear: i16) -> u8 {
    encode_a(linear)
}

/// Converts A-law to a linear sample.
#[cfg(test)]
pub(super) const fn linear_of_a(a_law: u8) -> i16 {
    decode_a(a_law)
}

const fn decode_mu(mu_law: u8) -> i16 {
    let octet = !mu_law;
    let segment = (octet >> 4 & 0x07) as i32;
    let magnitude = (((((octet & 0x0f) as i32) << 3) + BIAS) << segment) - BIAS;
    (if octet & 0x80 == 0 {
        magnitude
    } else {
        -magnitude
    }) as i16
}

const fn encode_mu(linear: i16) -> u8 {
    let wide = linear as i32;
    // The ones' complement of negative samples, as in ITU-T G.191: intervals of both signs then hold as many samples.
    let magnitude = if wide < 0 { !wide } else { wide };
    let magnitude = if magnitude > CLIP { CLIP } else { magnitude } + BIAS;
    let segment = 24 - magnitude.leading_zeros() as i32;
    let mantissa = (magnitude >> (segment + 3) & 0x0f) as u8;
    let sign = if wide < 0 { 0x80 } else { 0 };
    !(sign | (segment as u8) << 4 | mantissa)
}

const fn decode_a(a_law: u8) -> i16 {
    let code = a_law ^ 0x55;
    let (segment, mantissa) = ((code >> 4 & 0x07) as i32, (code & 0x0f) as i32);
    let magnitude = match segment {
        0 => (mantissa << 4) + 8,
        _ => ((mantissa << 4) + 0x108) << (segment - 1),
    };
    (if code & 0x80 == 0 {
        -magnitude
    } else {
        magnitude
    }) as i16
}

const fn encode_a(linear: i16) -> u8 {
    let wide = linear as i32;
    // The ones' complement, as in [`encode_mu`].
    let magnitude = if wide < 0 { !wide } else { wide };

    let mut segment = 0;
    while segment < 7 && magnitude >> (segment + 8) != 0 {
        segment += 1;
    }
    let shift = if segment == 0 { 4 } else { segment + 3 };
    let code = (segment << 4) as u8 | (magnitude >> shift & 0x0f) as u8;
    let sign = if wide < 0 { 0x00 } else { 0x80 };
    (code | sign) ^ 0x55
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of G.711's tables 1a, 1b, 2a and 2b at the ends of their segments, scaled to 16 bits.
    #[test]
    fn the_ends_of_segments_are_those_of_the_recommendation() {
        let mu = [
            (0x80, 32_124),
            (0x8f, 16_764),
            (0x9f, 8_316),
            (0xaf, 4_092),
            (0xbf, 1_980),
            (0xcf, 924),
            (0xdf, 396),
            (0xef, 132),
            (0xfe, 8),
            (0xff, 0),
            (0x7f, 0),
            (0x00, -32_124),
            (0x7e, -8),
        ];
        for (octet, expected) in mu {
            assert_eq!(linear(octet), expected, "µ {octet:02x}");
        }

        let a = [
            (0xaa, 32_256),
            (0xa5, 16_896),
            (0xd5, 8),
            (0x55, -8),
            (0x2a, -32_256),
            (0xd4, 24),
            (0xc5, 264),
        ];
        for (octet, expected) in a {
            assert_eq!(decode_a(octet), expected, "A {octet:02x}");
        }
    }

    #[test]
    fn encoding_takes_the_value_that_was_decoded() {
        for octet in 0..=u8::MAX {
            // Negative zero becomes the positive one.
            let expected = if octet == 0x7f { 0xff } else { octet };
            assert_eq!(mu_law(linear(octet)), expected, "µ {octet:02x}");
            assert_eq!(encode_a(decode_a(octet)), octet, "A {octet:02x}");
        }
    }

    #[test]
    fn every_sample_is_taken_to_a_near_value() {
        for sample in i16::MIN..=i16::MAX {
            let (mu, a) = (
                i32::from(linear(mu_law(sample))),
                i32::from(decode_a(encode_a(sample))),
            );
            let wide = i32::from(sample);
            let most = (wide.abs() / 16).max(8) + 660 * i32::from(wide.abs() > CLIP - 1_000);
            assert!(
                (wide - mu).abs() <= most && (wide - a).abs() <= most.max(16),
                "{sample}: {mu} {a}"
            );
        }
    }

    #[test]
    fn both_laws_sound_alike() {
        for octet in 0..=u8::MAX {
            let (before, after) = (
                i32::from(linear(octet)),
                i32::from(decode_a(a_of_mu(octet))),
            );
            assert!(
                (before - after).abs() <= (before.abs() / 16).max(16),
                "µ {octet:02x}"
            );
            let (before, after) = (
                i32::from(decode_a(octet)),
                i32::from(linear(mu_of_a(octet))),
            );
            assert!(
                (before - after).abs() <= (before.abs() / 16).max(16),
                "A {octet:02x}"
            );
        }

        assert_eq!(a_of_mu(SILENCE), 0xd5);
    }
}
