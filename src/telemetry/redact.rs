//! Keeps credentials and control characters out of logs.
//!
//! Fields are hidden by name. Text is searched for the forms in which credentials occur: digest responses, bearer
//! tokens, our keys, passwords in URLs. One pass, linear in the length of the text.

use std::borrow::Cow;
use std::fmt;

/// Replacement of a hidden value.
const HIDDEN: &str = "[hidden]";

/// Names of fields whose value is never shown; names that end in one of these count too.
const CREDENTIAL_FIELDS: [&str; 11] = [
    "password",
    "passwd",
    "secret",
    "token",
    "api_key",
    "partner_key",
    "master_key",
    "authorization",
    "nonce",
    "cookie",
    "ha1",
];

/// Texts before a credential, in lower case, with the characters that end it.
const CREDENTIAL_MARKS: [(&str, &[u8]); 9] = [
    ("response=\"", b"\""),
    ("cnonce=\"", b"\""),
    ("nonce=\"", b"\""),
    ("bearer ", b" \",;'"),
    ("password=", b" &\",;'"),
    ("auth_password\":\"", b"\""),
    ("token=", b" &\",;'"),
    ("tlp_", b" \",;'"),
    ("eyj", b" \",;'"),
];

/// Returns true if a field of this name holds a credential.
pub fn is_credential(field: &str) -> bool {
    let name = field.rsplit('.').next().unwrap_or(field);
    CREDENTIAL_FIELDS.iter().any(|credential| {
        let split = name
            .len()
            .checked_sub(credential.len())
            .filter(|split| name.is_char_boundary(*split));
        split.is_some_and(|split| {
            name[split..].eq_ignore_ascii_case(credential)
                && (split == 0 || name[..split].ends_with(['_', '-']))
        })
    })
}

/// Hides credentials and escapes control characters, so that no peer can forge a log line.
pub fn scrub(text: &str) -> Cow<'_, str> {
    // Most values are ids and words.
    if text.bytes().all(is_harmless) {
        return Cow::Borrowed(text);
    }
    match hide(text) {
        Cow::Borrowed(shown) => escape(shown),
        Cow::Owned(shown) => Cow::Owned(escape(&shown).into_owned()),
    }
}

/// Returns true for a visible ASCII character that marks no credential: text of these alone is shown as it is.
const fn is_harmless(octet: u8) -> bool {
    octet.is_ascii_graphic() && !may_be_of_mark(octet)
}

/// Returns true for a few octets. Every mark of a credential has one of them, so text without them hides none.
const fn may_be_of_mark(octet: u8) -> bool {
    matches!(octet, b'=' | b'"' | b' ' | b'_' | b'/' | b'y' | b'Y')
}

/// Text of a peer, made safe: `{}` scrubs it and replaces octets that aren't UTF-8.
#[derive(Copy, Clone)]
pub struct Printable<'a>(pub &'a [u8]);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&scrub(&String::from_utf8_lossy(self.0)))
    }
}

impl fmt::Debug for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Escapes control characters; credentials stay.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_dangerous) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_dangerous(char) {
            escaped.extend(char.escape_default());
        } else {
            escaped.push(char);
        }
    }
    Cow::Owned(escaped)
}

/// Returns true for control characters, and for those that can't be seen.
fn is_dangerous(char: char) -> bool {
    char.is_control() || is_invisible(char)
}

/// Returns true for characters without width, with which two names look alike, and for those that reorder a line (Unicode's bidirectional controls).
/// Selectors of an emoji's form are none.
pub fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

fn hide(text: &str) -> Cow<'_, str> {
    if !text.bytes().any(may_be_of_mark) {
        return Cow::Borrowed(text);
    }

    let mut shown = String::new();
    let mut kept = 0;
    let mut at = 0;
    while at < text.len() {
        match credential_at(text, at) {
            Some((start, end)) => {
                shown.push_str(&text[kept..start]);
                shown.push_str(HIDDEN);
                kept = end;
                at = end;
            }
            // By octets: a mark is ASCII and never begins inside a character, so every cut is between two of them.
            None => at += 1,
        }
    }

    if kept == 0 {
        return Cow::Borrowed(text);
    }

    shown.push_str(&text[kept..]);
    Cow::Owned(shown)
}

/// Returns the span of the credential whose mark begins at `at`.
fn credential_at(text: &str, at: usize) -> Option<(usize, usize)> {
    let rest = text.as_bytes().get(at..)?;
    let at_word_start = at == 0 || !text.as_bytes()[at - 1].is_ascii_alphanumeric();
    let (start, end) = CREDENTIAL_MARKS
        .iter()
        .find(|(mark, _)| {
            rest.len() > mark.len() && rest[..mark.len()].eq_ignore_ascii_case(mark.as_bytes())
        })
        // Marks as short as `eyj` occur inside words too.
        .filter(|_| at_word_start)
        .map(|(mark, ends)| {
            let value = &rest[mark.len()..];
            let length = value
                .iter()
                .position(|octet| ends.contains(octet) || octet.is_ascii_control())
                .unwrap_or(value.len());
            (mark.len(), mark.len() + length)
        })
        .or_else(|| password_in_url(rest))?;

    (start < end).then_some((at + start, at + end))
}

/// Returns the span of the password in `://user:password@`. It ends at the last `@` of the word, since people forget to escape one in it.
fn password_in_url(rest: &[u8]) -> Option<(usize, usize)> {
    let word = rest.strip_prefix(b"://")?;
    // Bounded, so that a text full of `://` is still searched in linear time.
    let word = &word[..word
        .iter()
        .take(256)
        .position(|octet| b" \"/?#".contains(octet))
        .unwrap_or(word.len().min(256))];
    let at = word.iter().rposition(|octet| *octet == b'@')?;
    let colon = word[..at].iter().position(|octet| *octet == b':')?;
    Some((3 + colon + 1, 3 + at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_by_their_shape() {
        for (text, shown) in [
            ("nothing here", "nothing here"),
            (
                "Digest username=\"a\", response=\"0123\", uri=\"sip:x\"",
                "Digest username=\"a\", response=\"[hidden]\", uri=\"sip:x\"",
            ),
            (
                "Authorization: Bearer abc.def",
                "Authorization: Bearer [hidden]",
            ),
            ("postgres://u:hunter2@db/x", "postgres://u:[hidden]@db/x"),
            ("postgres://u:p@ss@w@db/x", "postgres://u:[hidden]@db/x"),
            ("http://u:p@a http://h", "http://u:[hidden]@a http://h"),
            ("sip:alice@host", "sip:alice@host"),
            ("key tlp_AAAA, next", "key tlp_[hidden], next"),
            ("jwt eyJhbGciOiJFZERTQSJ9.x.y", "jwt eyJ[hidden]"),
            ("keyJumper", "keyJumper"),
            ("nonce=\"\"", "nonce=\"\""),
            ("täglich password=ä&x", "täglich password=[hidden]&x"),
        ] {
            assert_eq!(scrub(text), shown, "{text}");
        }
    }

    #[test]
    fn each_mark_has_an_octet_for_which_a_text_is_searched() {
        for (mark, _) in CREDENTIAL_MARKS {
            let text = format!("{mark}value");
            assert!(scrub(&text).contains(HIDDEN), "{mark}");
            assert!(scrub(&text.to_uppercase()).contains(HIDDEN), "{mark}");
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(
            scrub("a\r\nb\u{1b}[31m\u{202e}\u{200b}"),
            "a\\r\\nb\\u{1b}[31m\\u{202e}\\u{200b}"
        );
        assert_eq!(Printable(b"x\0\xff").to_string(), "x\\u{0}\u{fffd}");
    }

    #[test]
    fn a_credential_and_a_line_break_are_both_dealt_with() {
        assert_eq!(
            scrub("password=x\ninjected"),
            "password=[hidden]\\ninjected"
        );
    }

    #[test]
    fn fields_are_hidden_by_name() {
        for (name, hidden) in [
            ("password", true),
            ("auth_password", true),
            ("sip.Authorization", true),
            ("tokens_used", false),
            ("broken", false),
            ("call.id", false),
        ] {
            assert_eq!(is_credential(name), hidden, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_scrubbed_without_controls(text in ".*") {
            let shown = scrub(&text);
            proptest::prop_assert!(!shown.chars().any(is_dangerous));
        }
    }
}
