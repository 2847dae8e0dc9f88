//! Reads phone numbers as phone systems write them, and reduces them to E.164.
//!
//! `+` and digits, the form of nearly all numbers, takes one scan. Any other text loses its visual separators (RFC 3966 §5.1.1) and is then
//! read in every possible way; a reading that is one of the org's numbers takes precedence.

use crate::{Country, E164};

/// Most digits of a number with all its prefixes. A text with more is no number.
const MOST_DIGITS: usize = 32;

/// Reduces the text that a peer sent to E.164; returns `None` if it is no number.
///
/// Accepts `+` and digits; an international prefix, `00` or the country's own; the country's national form; the country's code without
/// plus; digits for which `+` and the digits are `held`. Ignores a `tel:` scheme, parameters, spaces, dots, hyphens, slashes and
/// parentheses. `country` supplies the national form and prefixes.
pub fn reduce(raw: &str, country: Option<Country>, held: &dyn Fn(&E164) -> bool) -> Option<E164> {
    if let Ok(number) = E164::parse(raw) {
        return Some(number);
    }

    let written = Written::read(raw)?;
    if written.global {
        return international(&written.digits);
    }

    // The org's own number without its plus sign, before any reading that takes its first digits for a prefix.
    let as_is = international(&written.digits).filter(|number| held(number));
    as_is.or_else(|| choose(&readings(&written.digits, country), held))
}

/// Returns the digits of the text that a peer sent, and whether they certainly begin with a country code; `None` if it is no number.
pub(crate) fn plain_digits(raw: &str) -> Option<(String, bool)> {
    let written = Written::read(raw)?;
    Some((written.digits, written.global))
}

/// Country codes of Italy and the Vatican, and of San Marino: a number keeps its first zero when it is dialled from abroad, so that
/// `+39 (0)6 …` is `+3906…`.
const KEEP_ZERO: [&str; 2] = ["39", "378"];

/// Digits of a number, without separators and parameters.
struct Written {
    digits: String,
    /// The number began with a plus sign, or its `phone-context` is a global number.
    global: bool,
}

impl Written {
    fn read(raw: &str) -> Option<Self> {
        let raw = raw.trim();
        let number = match raw.split_at_checked(4) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("tel:") => rest,
            Some(_) | None => raw,
        };
        let (number, parameters) = number.split_once(';').unwrap_or((number, ""));
        match number.strip_prefix('+') {
            Some(digits) => {
                let before = digits.split("(0)").next().and_then(strip_separators);
                let keeps_zero = before
                    .is_some_and(|before| KEEP_ZERO.iter().any(|code| before.starts_with(code)));
                let digits = match keeps_zero {
                    true => strip_separators(digits)?,
                    // `+49 (0)30 …`: the zero in parentheses is dialled only inside the country.
                    false => strip_separators(&digits.replacen("(0)", "", 1))?,
                };
                Some(Self {
                    digits,
                    global: true,
                })
            }
            None => Self::read_local(number, parameters),
        }
    }

    /// Reads a number without plus sign. Its `phone-context` may name the global number that it continues (RFC 3966 §5.1.5).
    fn read_local(number: &str, parameters: &str) -> Option<Self> {
        let digits = strip_separators(number)?;

        let context = parameters.split(';').find_map(|parameter| {
            let (name, value) = parameter.split_once('=')?;
            name.eq_ignore_ascii_case("phone-context")
                .then_some(value)?
                .strip_prefix('+')
        });
        match context.and_then(strip_separators) {
            Some(context) => Some(Self {
                digits: context + &digits,
                global: true,
            }),
            None => Some(Self {
                digits,
                global: false,
            }),
        }
    }
}

/// Returns the digits alone; `None` if the text holds anything but digits and separators, or too many digits.
fn strip_separators(text: &str) -> Option<String> {
    let mut digits = String::with_capacity(MOST_DIGITS);
    for letter in text.chars() {
        match letter {
            // Bounded, since the text is a peer's and each reading of it tries several expressions.
            '0'..='9' if digits.len() < MOST_DIGITS => digits.push(letter),
            ' ' | '\u{a0}' | '-' | '.' | '(' | ')' | '/' => {}
            _ => return None,
        }
    }
    (!digits.is_empty()).then_some(digits)
}

/// One interpretation of digits without a plus sign.
struct Reading {
    number: E164,
    /// Accepted even if the org doesn't hold the number: the prefix proves that it is international, or the plan has such a number.
    sure: bool,
}

/// Returns all interpretations, the likeliest first.
fn readings(digits: &str, country: Option<Country>) -> Vec<Reading> {
    let plan = country.map(Country::plan);
    let mut readings = Vec::new();
    let mut push = |number: Option<E164>, sure: bool| {
        readings.extend(number.map(|number| Reading { number, sure }))
    };

    // `00` and the country's own code, where `00` also begins the country's international prefix.
    if let Some((plan, national)) = plan.and_then(|plan| Some((plan, plan.after_own_code(digits)?)))
    {
        push(international(&[plan.code(), national].concat()), true);
    }

    if let Some(rest) = plan.and_then(|plan| plan.after_international(digits)) {
        push(international(rest), true);
    }

    // Phone systems write 00 for a plus sign in countries with another international prefix too.
    if let Some(rest) = digits.strip_prefix("00") {
        push(international(rest), true);
    }

    // Without a country there is no national form: other digits match only a number that the org holds (`reduce`).
    let Some(plan) = plan else { return readings };
    let mut push_national = |national: &str| {
        push(
            international(&[plan.code(), national].concat()),
            plan.is_national(national),
        )
    };
    if let Some(national) = plan.after_national(digits) {
        push_national(&national);
    }

    // Some countries have no national prefix, and some phone systems leave it out.
    push_national(digits);

    // The country's code without a plus sign.
    if let Some(national) = digits.strip_prefix(plan.code()) {
        push_national(national);
    }

    readings
}

/// Prefers a number that the org holds over one that is merely certain.
fn choose(readings: &[Reading], held: &dyn Fn(&E164) -> bool) -> Option<E164> {
    let ours = readings.iter().find(|reading| held(&reading.number));
    ours.or_else(|| readings.iter().find(|reading| reading.sure))
        .map(|reading| reading.number)
}

fn international(digits: &str) -> Option<E164> {
    E164::parse(&["+", digits].concat()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str, country: &str, held: &[&str]) -> Option<String> {
        let country = (!country.is_empty()).then(|| Country::parse(country).unwrap());
        let held = |number: &E164| held.contains(&number.as_str());
        reduce(raw, country, &held).map(|number| number.to_string())
    }

    #[test]
    fn what_phone_systems_write_reduces() {
        let cases = [
            ("canonical", "+493012345678", "", Some("+493012345678")),
            (
                "separators",
                "+49 (30) 1234-5678",
                "",
                Some("+493012345678"),
            ),
            (
                "dots and slash",
                "+49.30/12.34.56.78",
                "",
                Some("+493012345678"),
            ),
            ("tel URI", "tel:+49-30-12345678", "", Some("+493012345678")),
            (
                "TEL in capitals, parameters",
                "TEL:+493012345678;isub=12",
                "",
                Some("+493012345678"),
            ),
            (
                "user part with parameters",
                "+493012345678;npdi;rn=+4930",
                "",
                Some("+493012345678"),
            ),
            (
                "trunk zero in parentheses",
                "+49 (0)30 12345678",
                "",
                Some("+493012345678"),
            ),
            (
                "zero in parentheses that Italy keeps",
                "+ 39 (0)6 6982 1234",
                "",
                Some("+390669821234"),
            ),
            (
                "zero in parentheses that San Marino keeps",
                "+378 (0)549 882914",
                "",
                Some("+3780549882914"),
            ),
            (
                "phone-context",
                "tel:30-12345678;phone-context=+49",
                "",
                Some("+493012345678"),
            ),
            (
                "phone-context that is a host",
                "030 12345678;phone-context=pbx.example",
                "DE",
                Some("+493012345678"),
            ),
            // International prefixes, by country.
            (
                "00 without a country",
                "00493012345678",
                "",
                Some("+493012345678"),
            ),
            (
                "00 within Germany",
                "0044 20 7946 0018",
                "DE",
                Some("+442079460018"),
            ),
            (
                "011 within the US",
                "011 44 20 7946 0018",
                "US",
                Some("+442079460018"),
            ),
            (
                "00 within the US all the same",
                "00442079460018",
                "US",
                Some("+442079460018"),
            ),
            (
                "0011 within Australia",
                "0011442079460018",
                "AU",
                Some("+442079460018"),
            ),
            (
                "010 within Japan",
                "010442079460018",
                "JP",
                Some("+442079460018"),
            ),
            (
                "810 within Russia",
                "810442079460018",
                "RU",
                Some("+442079460018"),
            ),
            // National forms: with a trunk prefix, or without one.
            (
                "national, Germany",
                "030 12345678",
                "DE",
                Some("+493012345678"),
            ),
            (
                "national, lower-case country",
                "03012345678",
                "de",
                Some("+493012345678"),
            ),
            ("national, UK", "020 7946 0018", "GB", Some("+442079460018")),
            (
                "national, France",
                "01 42 68 53 00",
                "FR",
                Some("+33142685300"),
            ),
            (
                "national, US with its 1",
                "1 212 736 5000",
                "US",
                Some("+12127365000"),
            ),
            (
                "national, US without",
                "(212) 736-5000",
                "US",
                Some("+12127365000"),
            ),
            (
                "national, Italy keeps its zero",
                "06 6982 1234",
                "IT",
                Some("+390669821234"),
            ),
            (
                "national, Russia strips one eight",
                "8 800 555 35 35",
                "RU",
                Some("+78005553535"),
            ),
            (
                "national, Spain has no prefix",
                "912 345 678",
                "ES",
                Some("+34912345678"),
            ),
            (
                "national, Brazil with a carrier",
                "0 15 11 2345 6789",
                "BR",
                Some("+551123456789"),
            ),
            (
                "national, Argentine mobile",
                "011 15 2345 6789",
                "AR",
                Some("+5491123456789"),
            ),
            // Countries where a carrier's code may precede the number: 00 is read as the plus there all the same.
            (
                "00 for the plus, Brazil",
                "0055 11 2345 6789",
                "BR",
                Some("+551123456789"),
            ),
            (
                "00 for the plus, Brazil, a mobile",
                "0055 11 96123 4567",
                "BR",
                Some("+5511961234567"),
            ),
            (
                "a carrier of Brazil and the USA",
                "0055 1 212 736 5000",
                "BR",
                Some("+12127365000"),
            ),
            (
                "another carrier of Brazil",
                "0015 44 20 7183 8750",
                "BR",
                Some("+442071838750"),
            ),
            (
                "00 for the plus, Colombia",
                "0057 601 234 5678",
                "CO",
                Some("+576012345678"),
            ),
            (
                "a carrier of Colombia",
                "009 44 20 7183 8750",
                "CO",
                Some("+442071838750"),
            ),
            (
                "00 for the plus, Hong Kong",
                "00852 2123 4567",
                "HK",
                Some("+85221234567"),
            ),
            (
                "001 from Hong Kong",
                "001 44 20 7183 8750",
                "HK",
                Some("+442071838750"),
            ),
            (
                "00 for the plus, Cambodia",
                "00855 23 756 789",
                "KH",
                Some("+85523756789"),
            ),
            (
                "001 from Cambodia",
                "001 44 20 7183 8750",
                "KH",
                Some("+442071838750"),
            ),
            (
                "00 for the plus, Korea",
                "0082 2 312 3456",
                "KR",
                Some("+8223123456"),
            ),
            (
                "001 from Korea",
                "001 44 20 7183 8750",
                "KR",
                Some("+442071838750"),
            ),
            (
                "00700 from Korea",
                "00700 44 20 7183 8750",
                "KR",
                Some("+442071838750"),
            ),
            (
                "00 for the plus, Singapore",
                "0065 6123 4567",
                "SG",
                Some("+6561234567"),
            ),
            (
                "001 from Singapore",
                "001 44 20 7183 8750",
                "SG",
                Some("+442071838750"),
            ),
            (
                "00 for the plus, Thailand",
                "0066 2 123 4567",
                "TH",
                Some("+6621234567"),
            ),
            (
                "001 from Thailand",
                "001 44 20 7183 8750",
                "TH",
                Some("+442071838750"),
            ),
            (
                "country code without plus",
                "493012345678",
                "DE",
                Some("+493012345678"),
            ),
            ("national without a country", "03012345678", "", None),
            (
                "country code without plus or country",
                "493012345678",
                "",
                None,
            ),
            // No number at all, or none that E.164 allows.
            ("an extension", "201", "DE", None),
            ("emergency", "112", "DE", None),
            ("a feature code", "*21#", "DE", None),
            ("a name", "alice", "DE", None),
            ("digits and letters", "0800-FLOWERS", "US", None),
            ("nothing", "", "DE", None),
            ("separators alone", " - ", "DE", None),
            ("plus alone", "+", "DE", None),
            ("plus in the middle", "49+3012345678", "DE", None),
            ("too long", "+1234567890123456", "DE", None),
            (
                "far too long",
                "1234567890123456789012345678901234567890",
                "DE",
                None,
            ),
            ("arabic digits", "+٤٩٣٠١٢٣٤٥٦٧٨", "", None),
        ];

        for (name, raw, country, expected) in cases {
            assert_eq!(
                read(raw, country, &[]).as_deref(),
                expected,
                "{name}: {raw:?} from {country:?}"
            );
        }
    }

    #[test]
    fn a_held_number_is_the_likelier_reading() {
        let cases = [
            (
                "digits that are held",
                "493012345678",
                "",
                "+493012345678",
                Some("+493012345678"),
            ),
            (
                "digits that aren't",
                "493012345678",
                "",
                "+493012345679",
                None,
            ),
            (
                "held beats the national form",
                "3021234567",
                "US",
                "+3021234567",
                Some("+3021234567"),
            ),
            (
                "the national form otherwise",
                "3022345678",
                "US",
                "+3021234567",
                Some("+13022345678"),
            ),
            (
                "a number that the plan doesn't know",
                "030 1",
                "DE",
                "+49301",
                None,
            ),
            (
                "held though the plan doesn't know it",
                "055 5000000",
                "DE",
                "+49555000000",
                Some("+49555000000"),
            ),
            (
                "a carrier code or Switzerland: as held",
                "0041 44 668 18 00",
                "BR",
                "+41446681800",
                Some("+41446681800"),
            ),
        ];

        for (name, raw, country, held, expected) in cases {
            assert_eq!(
                read(raw, country, &[held]).as_deref(),
                expected,
                "{name}: {raw:?} from {country:?}"
            );
        }
    }
}
