//! CSV as RFC 4180 has it, with lines that end in CR LF.

use std::borrow::Cow;

/// Cell of a text that we made: an id, a time, a number.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    if text.contains([',', '"', '\r', '\n']) {
        return Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")));
    }
    Cow::Borrowed(text)
}

/// Cell with a peer's or a client's text. A spreadsheet would run a text that looks like a formula (CWE-1236), so such a text gets a leading
/// apostrophe; a telephone number stays as it is. Spreadsheets also skip blanks before a formula, and take full-width signs for the ASCII ones.
pub(super) fn foreign(text: &str) -> Cow<'_, str> {
    let is_number = text
        .strip_prefix(['+', '-'])
        .is_some_and(|digits| digits.bytes().all(|octet| octet.is_ascii_digit()));
    let is_skipped = |letter: char| letter.is_whitespace() || letter.is_control();
    let begins = text.trim_start_matches(is_skipped);
    let is_formula = text.starts_with(['\t', '\r', '\n'])
        || begins.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    if is_formula && !is_number {
        return Cow::Owned(plain(&format!("'{text}")).into_owned());
    }
    plain(text)
}

/// Adds a line.
pub(super) fn line(to: &mut String, cells: &[Cow<'_, str>]) {
    to.push_str(&cells.join(","));
    to.push_str("\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_quoted_where_it_has_to_be() {
        for (text, cell) in [
            ("", ""),
            ("a b", "a b"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("a\r\nb", "\"a\r\nb\""),
        ] {
            assert_eq!(plain(text), cell, "{text:?}");
        }
    }

    #[test]
    fn what_looks_like_a_formula_is_a_text() {
        for (text, cell) in [
            ("+442071838750", "+442071838750"),
            ("-5", "-5"),
            ("+1+2", "'+1+2"),
            ("=1+2", "'=1+2"),
            ("@sum(a1)", "'@sum(a1)"),
            ("=\"a\"", "\"'=\"\"a\"\"\""),
            ("\tx", "'\tx"),
            (" =1+2", "' =1+2"),
            ("\u{a0}@x", "'\u{a0}@x"),
            ("\0-x", "'\0-x"),
            (" +442071838750", "' +442071838750"),
            ("＝1＋2", "'＝1＋2"),
            ("＋1", "'＋1"),
            ("－1", "'－1"),
            ("＠x", "'＠x"),
            (" a=b", " a=b"),
            ("100", "100"),
        ] {
            assert_eq!(foreign(text), cell, "{text:?}");
        }
    }
}
