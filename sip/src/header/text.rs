//! The smallest pieces of header values: blanks, tokens, quoted strings, numbers, cuts outside of quotes (RFC 3261 §25.1).

use std::borrow::Cow;
use std::fmt;

/// Escapes text for a terminal: characters that move its cursor, are invisible or change its direction. All else stays.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' | '\'' | '\\' => shown.push(char),
            char => shown.extend(char.escape_debug()),
        }
    }
    shown
}

/// Cuts linear white space at both ends; a fold counts as white space.
pub fn trim(mut value: &[u8]) -> &[u8] {
    // Most values have no blanks at the ends, which two octets show.
    if let (Some(first), Some(last)) = (value.first(), value.last())
        && *first.min(last) > b' '
    {
        return value;
    }

    while let [first, rest @ ..] = value
        && is_blank(*first)
    {
        value = rest;
    }

    while let [rest @ .., last] = value
        && is_blank(*last)
    {
        value = rest;
    }

    value
}

/// Space, tab, or an octet of a fold.
pub const fn is_blank(octet: u8) -> bool {
    matches!(octet, b' ' | b'\t' | b'\r' | b'\n')
}

/// Returns the position of the first control character below the blank: a line end, a tab, a NUL. Looks at eight octets at once.
pub fn first_control(octets: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    let (eights, rest) = octets.as_chunks::<8>();
    for (at, eight) in eights.iter().enumerate() {
        let word = u64::from_le_bytes(*eight);
        // The high bit of each octet below 0x20; behind the first such octet it may be wrong.
        let below = word.wrapping_sub(ONES * 0x20) & !word & (ONES * 0x80);
        if below != 0 {
            return Some(at * 8 + below.trailing_zeros() as usize / 8);
        }
    }
    let behind = rest.iter().position(|octet| *octet < b' ')?;
    Some(eights.len() * 8 + behind)
}

/// Returns true if `is` holds for some octet. The loop never ends early, so that the compiler handles many octets in one step.
pub fn holds(value: &[u8], is: impl Fn(u8) -> bool) -> bool {
    value.iter().fold(false, |found, octet| found | is(*octet))
}

/// Returns true if `value` contains `text`; case doesn't matter.
pub fn holds_text(value: &[u8], text: &[u8]) -> bool {
    let Some(first) = text.first() else {
        return true;
    };
    memchr::memchr2_iter(
        first.to_ascii_lowercase(),
        first.to_ascii_uppercase(),
        value,
    )
    .filter_map(|at| value.get(at..at + text.len()))
    .any(|found| found.eq_ignore_ascii_case(text))
}

/// An octet of a `token`.
pub const fn is_token_octet(octet: u8) -> bool {
    octet.is_ascii_alphanumeric()
        || matches!(
            octet,
            b'-' | b'.' | b'!' | b'%' | b'*' | b'_' | b'+' | b'`' | b'\'' | b'~'
        )
}

/// Returns true if the whole value is one `token`.
pub fn is_token(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().copied().all(is_token_octet)
}

/// Converts octets to text; invalid UTF-8 becomes U+FFFD. Valid text is borrowed.
pub fn lossy(octets: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(octets).map_or_else(|_| String::from_utf8_lossy(octets), Cow::Borrowed)
}

/// Parses decimal digits alone, within 32 bits.
pub fn number(value: &[u8]) -> Option<u32> {
    u32::try_from(digits(value)?).ok()
}

/// Parses `delta-seconds`: decimal digits alone; a number past 32 bits is the largest value (RFC 3261 §20.19).
pub fn delta_seconds(value: &[u8]) -> Option<u32> {
    Some(u32::try_from(digits(value)?).unwrap_or(u32::MAX))
}

fn digits(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |sum, octet| {
        octet.is_ascii_digit().then(|| {
            // A number of any length stays too large; wrapping could make it small.
            sum.saturating_mul(10)
                .saturating_add(u64::from(octet - b'0'))
        })
    })
}

/// Cuts a leading quoted string off: returns the text between the quotes, escapes included, and the rest. `None` if the value
/// doesn't begin with a quote or the quote is never closed.
pub fn cut_quoted(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = value.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        match inner.get(at)? {
            b'"' => return Some((&inner[..at], &inner[at + 1..])),
            // The octet behind a backslash is part of the text, even a quote. Behind the last octet there is none: the
            // quote stays open.
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The text of a token or of a whole quoted string, its `quoted-pair`s resolved.
pub fn unquote(value: &[u8]) -> Cow<'_, [u8]> {
    match cut_quoted(value) {
        Some((inner, [])) => unescape_pairs(inner),
        Some(_) | None => Cow::Borrowed(value),
    }
}

/// Resolves the `quoted-pair`s of text between quotes.
pub fn unescape_pairs(inner: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr(b'\\', inner).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut plain = Vec::with_capacity(inner.len());
    let mut octets = inner.iter();
    while let Some(octet) = octets.next() {
        match octet {
            b'\\' => plain.extend(octets.next()),
            _ => plain.push(*octet),
        }
    }
    Cow::Owned(plain)
}

/// Puts a backslash before each quote and backslash, for text to be quoted.
pub fn escape_pairs(plain: &[u8]) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'"', b'\\', plain).is_none() {
        return Cow::Borrowed(plain);
    }
    let mut escaped = Vec::with_capacity(plain.len() + 2);
    for octet in plain {
        if matches!(octet, b'"' | b'\\') {
            escaped.push(b'\\');
        }
        escaped.push(*octet);
    }
    Cow::Owned(escaped)
}

/// Returns the position of the first `separator` outside of quoted strings and `<…>`.
pub fn find_outside(value: &[u8], separator: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr3(b'"', b'<', separator, &value[at..])?;
        let rest = &value[at..];
        match rest[0] {
            // An open quote swallows the rest, and so does an open angle.
            b'"' => at += cut_quoted(rest)?.0.len() + 2,
            b'<' => at += memchr::memchr(b'>', rest)? + 1,
            _ => return Some(at),
        }
    }
}

/// The elements of a comma-separated header value, trimmed; empty ones are skipped.
pub fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let value = rest?;
        let (element, behind) = match find_outside(value, b',') {
            Some(at) => (&value[..at], Some(&value[at + 1..])),
            None => (value, None),
        };
        rest = behind;
        Some(trim(element))
    })
    .filter(|element| !element.is_empty())
}

/// Prints octets as text. Invalid UTF-8 becomes U+FFFD and a control character a blank, so that printed text can't
/// break out of its line.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Octets<'a>(pub &'a [u8]);

impl fmt::Display for Octets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for piece in chunk.valid().split_inclusive(|c: char| c.is_control()) {
                let text = piece.trim_end_matches(|c: char| c.is_control());
                f.write_str(text)?;
                if text.len() < piece.len() {
                    f.write_str(" ")?;
                }
            }
            if !chunk.invalid().is_empty() {
                f.write_str("\u{FFFD}")?;
            }
        }

        Ok(())
    }
}

impl fmt::Debug for Octets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// Prints text between quotes, quotes and backslashes escaped.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Octets(&escape_pairs(self.0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_control_is_found_where_it_stands(octets in proptest::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(first_control(&octets), octets.iter().position(|octet| *octet < b' '));
            prop_assert_eq!(holds(&octets, is_blank), octets.iter().any(|octet| is_blank(*octet)));
        }

        #[test]
        fn a_text_is_found_in_any_case(value in "[aAbB,]{0,12}", text in "[ab]{0,4}") {
            let expected = value.to_ascii_lowercase().contains(&text);
            prop_assert_eq!(holds_text(value.as_bytes(), text.as_bytes()), expected);
        }

        #[test]
        fn a_control_is_found_among_others(plain in "[ -~\u{80}-\u{ff}]{0,40}", at in 0_usize..40, control in 0_u8..32) {
            let mut octets = plain.into_bytes();
            let at = at.min(octets.len());
            octets.insert(at, control);
            octets.push(b'\n');
            prop_assert_eq!(first_control(&octets), Some(at));
        }
    }

    #[test]
    fn blanks_go_from_both_ends() {
        for (name, value, trimmed) in [
            ("nothing", "", ""),
            ("blanks alone", " \t\r\n ", ""),
            ("a fold", "\r\n a b\t", "a b"),
        ] {
            assert_eq!(trim(value.as_bytes()), trimmed.as_bytes(), "{name}");
        }
    }

    #[test]
    fn numbers_are_digits_alone() {
        for (name, value, strict, seconds) in [
            ("plain", "1800", Some(1800), Some(1800)),
            ("leading zeros", "0000000000001800", Some(1800), Some(1800)),
            ("largest", "4294967295", Some(u32::MAX), Some(u32::MAX)),
            ("past 32 bits", "4294967296", None, Some(u32::MAX)),
            (
                "past 64 bits",
                "99999999999999999999999",
                None,
                Some(u32::MAX),
            ),
            ("empty", "", None, None),
            ("signed", "+1", None, None),
            ("hex", "1f", None, None),
        ] {
            assert_eq!(number(value.as_bytes()), strict, "{name}");
            assert_eq!(delta_seconds(value.as_bytes()), seconds, "{name}");
        }
    }

    #[test]
    fn quoted_strings_end_at_the_closing_quote() {
        for (name, value, cut) in [
            ("plain", r#""a" b"#, Some((r"a", " b"))),
            ("escaped quote", r#""a\"b"c"#, Some((r#"a\"b"#, "c"))),
            ("escaped backslash", r#""a\\"c"#, Some((r"a\\", "c"))),
            ("open", r#""a"#, None),
            ("open behind an escape", r#""a\"#, None),
            ("no quote", "a", None),
        ] {
            let expected = cut.map(|(inner, rest)| (inner.as_bytes(), rest.as_bytes()));
            assert_eq!(cut_quoted(value.as_bytes()), expected, "{name}");
        }
        assert_eq!(&*unquote(br#""a\"b\\c""#), br#"a"b\c"#);
        assert_eq!(&*unquote(b"token"), b"token");
    }

    #[test]
    fn lists_are_cut_outside_of_quotes_and_angles() {
        for (name, value, expected) in [
            ("two", "a , b", vec!["a", "b"]),
            ("empty elements", ",a,,b,", vec!["a", "b"]),
            (
                "comma in quotes",
                r#""x, y" <a>, b"#,
                vec![r#""x, y" <a>"#, "b"],
            ),
            ("comma in angles", "<sip:a,b@c>,d", vec!["<sip:a,b@c>", "d"]),
            (
                "a quote in angles is no quote",
                "<sip:\"@c>,d",
                vec!["<sip:\"@c>", "d"],
            ),
            (
                "an open quote takes the rest",
                "a,\"b,c",
                vec!["a", "\"b,c"],
            ),
        ] {
            let found: Vec<_> = elements(value.as_bytes()).collect();
            let expected: Vec<_> = expected.into_iter().map(str::as_bytes).collect();
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn what_is_shown_moves_no_cursor() {
        assert_eq!(
            printable("Warning: 399 a \"b's\" \\ \u{e9}"),
            "Warning: 399 a \"b's\" \\ \u{e9}"
        );
        assert_eq!(
            printable("a\r\n\x1b[2J\u{202e}"),
            "a\\r\\n\\u{1b}[2J\\u{202e}"
        );
    }

    #[test]
    fn printing_escapes_and_never_breaks_the_line() {
        assert_eq!(Quoted(br#"a"b\c"#).to_string(), r#""a\"b\\c""#);
        assert_eq!(
            Octets(b"a\r\nVia: x\xff\0").to_string(),
            "a  Via: x\u{FFFD} "
        );
    }

    proptest! {
        #[test]
        fn whatever_comes_in_is_cut_without_loss(value in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = unquote(&value);
            let _ = trim(&value);
            prop_assert!(elements(&value).map(<[u8]>::len).sum::<usize>() <= value.len());
            prop_assert!(!Octets(&value).to_string().contains(['\r', '\n', '\0']));
        }

        #[test]
        fn quoting_and_unquoting_meet(text in "[ -~\u{e9}]{0,40}") {
            let quoted = Quoted(text.as_bytes()).to_string();
            prop_assert_eq!(&*unquote(quoted.as_bytes()), text.as_bytes());
        }
    }
}
