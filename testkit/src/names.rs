//! Names for the random parts of a message, so that two runs that behave alike read alike.
//!
//! A tag, a branch, a Call-ID, a nonce and a value computed from one is named by its kind and order of appearance, and so is any other word
//! with many hex digits. A correct `Content-Length` is removed, since random numbers vary in their number of digits.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

/// Number of hex digits from which on a word counts as random.
const RANDOM: usize = 16;

/// Texts that precede a random value, each with the name that replaces the value.
const MARKERS: [(&str, &str); 9] = [
    (";branch=", "branch"),
    (";tag=", "tag"),
    ("to-tag=", "tag"),
    ("from-tag=", "tag"),
    (" username=\"", "user"),
    (" nonce=\"", "nonce"),
    ("cnonce=\"", "cnonce"),
    ("response=\"", "digest"),
    ("\r\nCall-ID: ", "call"),
];

/// Names given so far.
#[derive(Debug, Default)]
pub struct Names {
    names: HashMap<String, String>,
    counts: HashMap<&'static str, u32>,
}

impl Names {
    fn name(&mut self, kind: &'static str, value: &str) -> &str {
        let count = &mut self.counts;
        self.names.entry(value.to_owned()).or_insert_with(|| {
            let number = count.entry(kind).or_default();
            *number += 1;
            format!("[{kind} {number}]")
        })
    }

    /// Replaces the random values of a message by names; one name always means the same value.
    pub fn canonical(&mut self, message: &str) -> String {
        // All values are named before any is replaced: a tag or a Call-ID appears in other places without the text that marks it.
        self.learn(message);
        let named = self.apply(message);
        let (_, body) = message.split_once("\r\n\r\n").unwrap_or_default();
        named.replace(
            &format!("Content-Length: {}\r\n", body.len()),
            "Content-Length: [true]\r\n",
        )
    }

    /// Gives a name to every random value of `text`.
    fn learn(&mut self, text: &str) {
        for (marker, kind) in MARKERS {
            for (at, _) in text.match_indices(marker) {
                let value = word(&text[at + marker.len()..]);
                if !value.is_empty() {
                    self.name(kind, value);
                }
            }
        }
    }

    /// Replaces the random values of `text` by their names.
    fn apply(&mut self, text: &str) -> String {
        let mut named = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let word = word(rest);
            if word.is_empty() {
                named.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            }
            rest = &rest[word.len()..];
            match self.names.get(word) {
                Some(name) => named.push_str(name),
                None if is_random(word) => named.push_str(self.name("random", word)),
                None => named.push_str(word),
            }
        }

        named
    }
}

/// The word at the start of `text`: letters, digits, and the signs of tokens, Base64 and Call-IDs.
fn word(text: &str) -> &str {
    let is_part = |char: char| char.is_ascii_alphanumeric() || "-._~+/@*!%'`".contains(char);
    let end = text.find(|char| !is_part(char)).unwrap_or(text.len());
    &text[..end]
}

/// Returns true if a word holds more hex digits in a row than a written word would, or is a UUID.
fn is_random(word: &str) -> bool {
    let digits = |char: char| char.is_ascii_hexdigit() || char == '-';
    word.split(|char| !digits(char)).any(|run| {
        let count = run.chars().filter(char::is_ascii_hexdigit).count();
        count >= RANDOM
    })
}

/// Sixteen hex digits that depend on the whole text.
pub fn digest(trace: &str) -> String {
    let hash = Sha256::digest(trace.as_bytes());
    hash[..8]
        .iter()
        .map(|octet| format!("{octet:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trace depends on what a message says, not on its random values.
    #[test]
    fn names_stand_for_what_is_random() {
        let message = |tag: &str, branch: &str, reason: &str| {
            format!(
                "BYE sip:a@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch={branch}\r\nFrom: <sip:a@b>;tag={tag}\r\n\
             Refer-To: <sip:x@y?Replaces=1%3Bto-tag%3D{tag}>\r\nX-PLATFORM-SESSION-ID: 0198c0de-0000-7000-8000-0000{branch}\r\nReason: {reason}\r\n\r\n"
            )
        };

        let named = |text: &str| Names::default().canonical(text);
        let one = named(&message("07a1b2c3d4e5f60718", "11112222", "Q.850;cause=16"));
        let other = named(&message("07ffffffffffffffff", "33334444", "Q.850;cause=16"));
        assert_eq!(one, other);
        assert!(
            one.contains("[tag 1]") && one.contains("[branch 1]"),
            "{one}"
        );

        let different = named(&message("07a1b2c3d4e5f60718", "11112222", "Q.850;cause=17"));
        assert_ne!(one, different);
    }
}
