//! A person's numbers and addresses, and their detection in texts: a number in E.164, without `+`, in national form, with separators,
//! percent-encoded, in a JSON text, or as the user part of a URI.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use trunkline_routing::{Country, E164};

use crate::calls::anonymous::ANONYMOUS;
use crate::calls::identify::phone_key;

/// Replacement for a URI (RFC 3323 §4.1.1.3).
pub(crate) const ANONYMOUS_URI: &str = "sip:anonymous@anonymous.invalid";

/// Least digits of a national number that is searched for by itself; shorter ones are too common.
const SHORTEST_NATIONAL: usize = 7;
/// Times that a text is decoded and searched again.
const MAX_DECODINGS: usize = 3;

/// The person whom an erasure is about.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Subject {
    numbers: Vec<Number>,
    /// Addresses in lower case.
    emails: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Number {
    /// E.164 without `+`, or the digits as given.
    digits: String,
    /// Number of those digits that are the country code.
    country: usize,
}

/// Shows nothing personal in logs.
impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("numbers", &self.numbers.len())
            .field("emails", &self.emails.len())
            .finish()
    }
}

impl Subject {
    /// Creates the person with this phone, as given, and this e-mail address.
    pub(crate) fn new(phone: Option<&str>, email: Option<&str>) -> Self {
        let number = phone.and_then(|phone| match E164::parse(&phone_key(phone)) {
            Ok(number) => {
                let digits = number.as_str().trim_start_matches('+').to_owned();
                let country = country_digits(&digits);
                Some(Number { digits, country })
            }
            Err(_) => {
                let digits: String = phone.chars().filter(char::is_ascii_digit).collect();
                // Leading zeros are a dialling prefix, which other spellings of the number leave out or replace.
                let digits = digits.trim_start_matches('0').to_owned();
                let is_long = digits.len() >= SHORTEST_NATIONAL;
                is_long.then_some(Number { digits, country: 0 })
            }
        });

        Self {
            numbers: number.into_iter().collect(),
            emails: email.map(str::to_ascii_lowercase).into_iter().collect(),
        }
    }

    /// Returns whether a text mentions the person.
    pub fn mentioned_in(&self, text: &str) -> bool {
        let mut text = Cow::Borrowed(text);
        // Proxies may percent-encode repeatedly, and JSON may hold JSON.
        for _ in 0..MAX_DECODINGS {
            if self.is_in(&text) {
                return true;
            }
            match decoded(&text) {
                Some(plain) => text = Cow::Owned(plain),
                None => return false,
            }
        }
        self.is_in(&text)
    }

    fn is_in(&self, text: &str) -> bool {
        let has_number = !self.numbers.is_empty() && {
            let digits = Digits::of(text);
            self.numbers.iter().any(|number| digits.hold(number))
        };
        has_number || self.emails.iter().any(|email| holds_email(text, email))
    }

    /// Returns whether a text that may be absent mentions the person.
    pub(crate) fn mentioned(&self, text: Option<&str>) -> bool {
        text.is_some_and(|text| self.mentioned_in(text))
    }

    /// Replaces everything in a JSON value that mentions the person; returns whether something did.
    pub(crate) fn redact(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) => false,
            Value::Number(number) => {
                let is_mentioned = self.mentioned_in(&number.to_string());
                if is_mentioned {
                    *value = Value::Null;
                }
                is_mentioned
            }
            Value::String(text) => {
                let is_mentioned = self.mentioned_in(text);
                if is_mentioned {
                    ANONYMOUS.clone_into(text);
                }
                is_mentioned
            }
            Value::Array(values) => values
                .iter_mut()
                .fold(false, |any, value| self.redact(value) | any),
            Value::Object(fields) => self.redact_fields(fields),
        }
    }

    /// Replaces everything in the fields of an object that mentions the person; returns whether something did.
    pub(crate) fn redact_fields(&self, fields: &mut Map<String, Value>) -> bool {
        let mut any = false;
        let named: Vec<String> = fields.keys().cloned().collect();
        for name in named {
            if self.mentioned_in(&name) {
                fields.remove(&name);
                any = true;
            } else if let Some(field) = fields.get_mut(&name)
                && self.redact(field)
            {
                any = true;
                match &*name {
                    // A field that must hold a number can't hold the replacement.
                    name if name == "e164" || name.ends_with("_e164") => *field = Value::Null,
                    "value" => *field = ANONYMOUS_URI.into(),
                    _ => {}
                }
            }
        }

        any
    }

    /// Returns JSON with everything replaced that mentions the person; `None` if nothing does. Malformed JSON becomes `null`.
    pub(crate) fn redacted(&self, json: &str) -> Option<String> {
        if !self.mentioned_in(json) {
            return None;
        }
        let mut value: Value = serde_json::from_str(json).unwrap_or_default();
        self.redact(&mut value);
        Some(value.to_string())
    }
}

/// Returns the number of digits of a number's country code (ITU-T E.164, list of assigned codes).
fn country_digits(digits: &str) -> usize {
    const TWO: [&str; 44] = [
        "20", "27", "30", "31", "32", "33", "34", "36", "39", "40", "41", "43", "44", "45", "46",
        "47", "48", "49", "51", "52", "53", "54", "55", "56", "57", "58", "60", "61", "62", "63",
        "64", "65", "66", "81", "82", "84", "86", "90", "91", "92", "93", "94", "95", "98",
    ];
    match digits.get(..2) {
        Some(code) if code.starts_with(['1', '7']) => 1,
        Some(code) if TWO.contains(&code) => 2,
        Some(_) | None => 3,
    }
}

/// Returns whether people write this character between the digits of a number.
const fn separates(char: char) -> bool {
    matches!(
        char,
        ' ' | '-' | '.' | '(' | ')' | '/' | '\u{a0}' | '\u{2011}'
    )
}

/// The digits of a text, in runs that only separators interrupt.
struct Digits(Vec<Run>);

#[derive(Default)]
struct Run {
    digits: String,
    /// Indices in `digits` that a separator precedes, ascending.
    gaps: Vec<usize>,
}

impl Digits {
    fn of(text: &str) -> Self {
        let mut runs = vec![Run::default()];
        for char in text.chars() {
            let Some(run) = runs.last_mut() else { break };
            if char.is_ascii_digit() {
                run.digits.push(char);
            } else if separates(char) {
                run.gaps.push(run.digits.len());
            } else if !run.digits.is_empty() || !run.gaps.is_empty() {
                runs.push(Run::default());
            }
        }
        Self(runs)
    }

    fn hold(&self, number: &Number) -> bool {
        let national = &number.digits[number.country.min(number.digits.len())..];
        self.0.iter().any(|run| {
            run.digits.contains(&number.digits)
                || national.len() >= SHORTEST_NATIONAL && run.holds_national(number, national)
        })
    }
}

impl Run {
    /// Returns whether the run holds the national number as a number of its own: no digit follows it, and only a dialling prefix precedes
    /// it.
    fn holds_national(&self, number: &Number, national: &str) -> bool {
        let code = &number.digits[..number.country];
        self.digits.match_indices(national).any(|(start, _)| {
            let end = start + national.len();
            let ends_there = end == self.digits.len() || self.gaps.contains(&end);
            // Digits directly before the number, since the last separator, may only be a dialling prefix: zeros, 11 (of 011), the country
            // code, and zeros or the national prefix.
            let since = self.gaps.iter().rev().find(|gap| **gap <= start);
            let before = &self.digits[since.copied().unwrap_or(0)..start];
            let abroad = before.trim_start_matches('0');
            let abroad = abroad.strip_prefix("11").unwrap_or(abroad);
            let rest = abroad.strip_prefix(code).unwrap_or(abroad);
            let is_prefix = || {
                rest.trim_start_matches('0').is_empty()
                    || Country::of_calling_code(code).any(|country| {
                        let is_prefix =
                            |digits| country.plan().is_national_prefix(digits, national);
                        is_prefix(before) || is_prefix(rest)
                    })
            };
            ends_there && is_prefix()
        })
    }
}

/// Returns whether a text holds an address that isn't part of a longer one.
fn holds_email(text: &str, email: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let is_part = |char: char| char.is_alphanumeric() || matches!(char, '_' | '+' | '-');
    text.match_indices(email).any(|(start, _)| {
        let before = text[..start].chars().next_back();
        let after = text[start + email.len()..].chars().next();
        // A dot before the text belongs to a longer address; one behind it may end a sentence.
        !before.is_some_and(|char| is_part(char) || char == '.') && !after.is_some_and(is_part)
    })
}

/// Returns the text without percent-encoding (RFC 3986 §2.1) and without the escapes of JSON strings (RFC 8259 §7), so that the `n` of a
/// line break isn't taken for a letter of the word behind it; `None` if it has neither.
fn decoded(text: &str) -> Option<String> {
    let octets = text.as_bytes();
    let mut plain = Vec::with_capacity(octets.len());
    let (mut at, mut any) = (0, false);
    while let Some(&octet) = octets.get(at) {
        let behind = &octets[at + 1..];
        let length = match octet {
            b'%' => percent_decoded(behind, &mut plain),
            b'\\' => unescaped(behind, &mut plain),
            _ => None,
        };
        match length {
            Some(length) => {
                any = true;
                at += 1 + length;
            }
            None => {
                plain.push(octet);
                at += 1;
            }
        }
    }

    any.then(|| String::from_utf8_lossy(&plain).into_owned())
}

/// Appends the octet of a percent-encoding and returns the length behind `%`.
fn percent_decoded(behind: &[u8], plain: &mut Vec<u8>) -> Option<usize> {
    let digits = std::str::from_utf8(behind.get(..2)?).ok()?;
    plain.push(u8::from_str_radix(digits, 16).ok()?);
    Some(2)
}

/// Appends the character of a JSON escape and returns the length behind the backslash.
fn unescaped(behind: &[u8], plain: &mut Vec<u8>) -> Option<usize> {
    let octet = match behind.first()? {
        b'b' => 0x08,
        b'f' => 0x0c,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        octet @ (b'"' | b'\\' | b'/') => *octet,
        b'u' => {
            let digits = std::str::from_utf8(behind.get(1..5)?).ok()?;
            let code = u32::from_str_radix(digits, 16).ok()?;
            // Half of a surrogate pair is no letter of an address or a number.
            let char = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
            plain.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            return Some(5);
        }
        _ => return None,
    };
    plain.push(octet);
    Some(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_is_known_in_every_spelling_and_no_other_number_is() {
        let subject = Subject::new(Some("+44 20 7183 8750"), None);
        for (text, is_mentioned) in [
            ("+442071838750", true),
            ("442071838750", true),
            ("02071838750", true),
            ("call 020 7183-8750 back", true),
            ("(020) 7183.8750", true),
            ("+44 (0)20 7183 8750", true),
            ("0044 20 7183 8750", true),
            ("011442071838750", true),
            ("sip:+442071838750@pbx.example.com;user=phone", true),
            ("<sip:02071838750@10.0.0.1:5060>", true),
            ("%2B44%2020%207183%208750", true),
            ("%252B442071838750", true),
            (r#"{"note":"020\u00a07183\u00a08750"}"#, true),
            (r#"{"note":"20\n7183\n8750"}"#, false),
            ("\"5 020 7183 8750\"", true),
            ("442071838750123", true),
            ("{\"to\":\"tel:+44-20-7183-8750\"}", true),
            ("+442071838751", false),
            ("+12071838750", false),
            ("+4402071838750", true),
            ("12071838750", false),
            ("20718387501", false),
            ("520718387", false),
            ("7183 8750", false),
            ("", false),
        ] {
            assert_eq!(subject.mentioned_in(text), is_mentioned, "{text}");
        }
    }

    #[test]
    fn numbers_of_countries_with_one_and_three_digits_are_told_from_others() {
        for (number, national, other) in [
            ("+15551234567", "555-123-4567", "455-123-4567"),
            ("+79161234567", "916 123-45-67", "816 123-45-67"),
            ("+353861234567", "086 123 4567", "085 123 4567"),
            ("+79161234567", "89161234567", "99161234567"),
            ("+79161234567", "+789161234567", "+799161234567"),
            ("+36301234567", "06301234567", "16301234567"),
            ("+5511987654321", "01511987654321", "71511987654321"),
        ] {
            let subject = Subject::new(Some(number), None);
            assert!(subject.mentioned_in(national), "{national}");
            assert!(!subject.mentioned_in(other), "{other}");
        }
        let subject = Subject::new(Some("020 7183 8750"), None);
        assert!(subject.mentioned_in("+442071838750"), "without a country");
        assert_eq!(Subject::new(Some("extension 7"), None), Subject::default());
    }

    #[test]
    fn an_address_is_known_whatever_its_case_and_no_longer_one_is() {
        let subject = Subject::new(None, Some("Ann@Example.com"));
        for (text, is_mentioned) in [
            ("write to ANN@example.com.", true),
            ("mailto:ann%40example.com", true),
            ("ann%252540example.com", true),
            ("ann%25252540example.com", false),
            (r#"{"note":"Mail:\nann@example.com"}"#, true),
            (r#"{"note":"{\"mail\":\"\\tann@example.com\"}"#, true),
            (r#"{"note":"\u000bann\u0040example.com\n"}"#, true),
            (r#"{"note":"\njoann@example.com"}"#, false),
            ("joann@example.com", false),
            ("jo.ann@example.com", false),
            ("ann@example.community", false),
        ] {
            assert_eq!(subject.mentioned_in(text), is_mentioned, "{text}");
        }
    }

    #[test]
    fn json_keeps_everything_else() {
        let subject = Subject::new(Some("+442071838750"), Some("ann@example.com"));
        let mut value = json!({
            "from_number": "020 7183 8750", "from_e164": "+442071838750", "to_e164": "+441632960001",
            "caller": {"raw": "02071838750", "e164": "+442071838750"}, "type": "phone", "value": "+442071838750",
            "+442071838750": 1, "digits": 442_071_838_750_u64, "list": ["x", "ann@example.com"], "n": 7,
        });

        assert!(subject.redact(&mut value));

        let expected = json!({
            "from_number": "anonymous", "from_e164": null, "to_e164": "+441632960001",
            "caller": {"raw": "anonymous", "e164": null}, "type": "phone", "value": ANONYMOUS_URI,
            "digits": null, "list": ["x", "anonymous"], "n": 7,
        });

        assert_eq!(value, expected);
        assert!(!subject.redact(&mut value));
        assert_eq!(subject.redacted("{\"a\":1}"), None);
        assert_eq!(subject.redacted("442071838750 {"), Some("null".to_owned()));
    }
}
