//! Audio of a verification code: "Your code is", then its digits, twice, as 8 kHz G.711 µ-law. The clips are in `assets/spoken`.

/// Octets per second.
const SECOND: usize = 8_000;
/// Silence in µ-law.
const SILENCE: u8 = 0xff;

const PHRASE: &[u8] = include_bytes!("../../../assets/spoken/code.ulaw");
const DIGITS: [&[u8]; 10] = [
    include_bytes!("../../../assets/spoken/0.ulaw"),
    include_bytes!("../../../assets/spoken/1.ulaw"),
    include_bytes!("../../../assets/spoken/2.ulaw"),
    include_bytes!("../../../assets/spoken/3.ulaw"),
    include_bytes!("../../../assets/spoken/4.ulaw"),
    include_bytes!("../../../assets/spoken/5.ulaw"),
    include_bytes!("../../../assets/spoken/6.ulaw"),
    include_bytes!("../../../assets/spoken/7.ulaw"),
    include_bytes!("../../../assets/spoken/8.ulaw"),
    include_bytes!("../../../assets/spoken/9.ulaw"),
];

/// Returns the code as audio. Characters that are no digits are skipped.
pub(super) fn code(digits: &[u8]) -> Vec<u8> {
    let mut audio = Vec::new();
    let pause = |audio: &mut Vec<u8>, length: usize| audio.resize(audio.len() + length, SILENCE);
    for before in [SECOND / 2, SECOND] {
        pause(&mut audio, before);
        audio.extend_from_slice(PHRASE);
        for digit in digits {
            let place = digit.checked_sub(b'0').map(usize::from);
            let Some(clip) = place.and_then(|place| DIGITS.get(place)) else {
                continue;
            };
            pause(&mut audio, SECOND * 3 / 10);
            audio.extend_from_slice(clip);
        }
    }

    pause(&mut audio, SECOND / 2);
    audio
}

/// Converts µ-law to A-law (ITU-T G.711).
pub(super) const fn a_law(mu_law: u8) -> u8 {
    let octet = !mu_law;
    let is_negative = octet & 0x80 != 0;
    let exponent = (octet >> 4 & 0x07) as u32;
    let magnitude = (((((octet & 0x0f) as u32) << 3) + 0x84) << exponent) - 0x84;

    let mut segment = 0;
    while segment < 7 && magnitude >> (segment + 8) != 0 {
        segment += 1;
    }
    let shift = if segment == 0 { 4 } else { segment + 3 };
    let code = (segment << 4) as u8 | (magnitude >> shift & 0x0f) as u8;
    let sign = if is_negative { 0x00 } else { 0x80 };
    (code | sign) ^ 0x55
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A linear sample of 16 bits for A-law, by the table of G.711.
    fn linear(a_law: u8) -> i32 {
        let code = a_law ^ 0x55;
        let (segment, mantissa) = (i32::from(code >> 4 & 0x07), i32::from(code & 0x0f));
        let magnitude = match segment {
            0 => (mantissa << 4) + 8,
            _ => ((mantissa << 4) + 0x108) << (segment - 1),
        };
        if code & 0x80 == 0 {
            -magnitude
        } else {
            magnitude
        }
    }

    fn linear_of_mu(mu_law: u8) -> i32 {
        let octet = !mu_law;
        let magnitude = (((i32::from(octet & 0x0f) << 3) + 0x84) << (octet >> 4 & 0x07)) - 0x84;
        if octet & 0x80 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }

    #[test]
    fn both_laws_sound_alike() {
        for octet in 0..=u8::MAX {
            let (before, after) = (linear_of_mu(octet), linear(a_law(octet)));
            let most = (before.abs() / 16).max(16);
            assert!(
                (before - after).abs() <= most,
                "{octet:02x}: {before} {after}"
            );
        }
    }

    #[test]
    fn a_code_is_spoken_twice_in_whole_packets() {
        let audio = code(b"407190");
        assert_eq!(audio.len() % 160, 0);
        for clip in [PHRASE, DIGITS[4], DIGITS[0], DIGITS[7]] {
            let found = audio.windows(clip.len()).filter(|window| *window == clip);
            let expected = if clip == DIGITS[0] { 4 } else { 2 };
            assert_eq!(found.count(), expected);
        }
        let seconds = audio.len() / SECOND;
        assert!((8..20).contains(&seconds), "{seconds} s");
    }
}
