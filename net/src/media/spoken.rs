//! Audio of a verification code: "Your code is", then its digits, twice, as 8 kHz G.711 µ-law; and the prompts of the built-in agent. The clips
//! are in `assets/spoken`.

use super::g711::SILENCE;

/// Octets per second.
const SECOND: usize = 8_000;

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

/// Returns a few digits as audio, for a test caller without a microphone.
pub fn sample() -> Vec<u8> {
    let mut audio = vec![SILENCE; SECOND / 2];
    for clip in &DIGITS[1..=5] {
        audio.extend_from_slice(clip);
        audio.resize(audio.len() + SECOND * 3 / 10, SILENCE);
    }
    audio.resize(audio.len() + SECOND * 2, SILENCE);
    audio.resize(audio.len().next_multiple_of(160), SILENCE);
    audio
}

const STAR: &[u8] = include_bytes!("../../../assets/spoken/star.ulaw");
const POUND: &[u8] = include_bytes!("../../../assets/spoken/pound.ulaw");

/// Welcome of the built-in agent. Like the prompts below, it is µ-law at 8 kHz.
pub const WELCOME: &[u8] = include_bytes!("../../../assets/spoken/welcome.ulaw");
/// "One moment, please."
pub const CONNECTING: &[u8] = include_bytes!("../../../assets/spoken/connecting.ulaw");
/// "Sorry, nobody can be reached at the moment."
pub const UNAVAILABLE: &[u8] = include_bytes!("../../../assets/spoken/unavailable.ulaw");
/// "Sorry, that key does nothing here."
pub const INVALID: &[u8] = include_bytes!("../../../assets/spoken/invalid.ulaw");
/// "Goodbye."
pub const GOODBYE: &[u8] = include_bytes!("../../../assets/spoken/goodbye.ulaw");

/// Returns the name of a key as audio.
pub(super) fn key(label: u8) -> Option<&'static [u8]> {
    match label {
        b'0'..=b'9' => DIGITS.get(usize::from(label - b'0')).copied(),
        b'*' => Some(STAR),
        b'#' => Some(POUND),
        _ => None,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

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
