//! Reads phone numbers as phone systems write them, and reduces them to E.164.
//!
//! `+` and digits, the form of nearly all numbers, takes one scan and a look at its first digits and its length. Any other text loses its visual
//! separators (RFC 3966 §5.1.1) and is then read in every possible way; a reading that is one of the org's numbers takes precedence, then one
//! that is a number of its country's plan.

use crate::country::{self, Fit};
use crate::{Country, E164};

/// Most digits of a number with all its prefixes. A text with more is no number.
const MOST_DIGITS: usize = 32;

/// Reduces the text that a peer sent to E.164; returns `None` if it is no number.
///
/// Accepts `+` and digits; an international prefix, `00` or the country's own; the country's national form; the country's code without
/// plus; digits for which `+` and the digits are `held`. Ignores a `tel:` scheme, parameters but `phone-context`, spaces, dots, hyphens,
/// slashes and parentheses, and a national prefix behind the country code where only the number without it is valid (`+44 (0)161`).
/// `country` supplies the national form and prefixes.
pub fn reduce(raw: &str, country: Option<Country>, held: &dyn Fn(&E164) -> bool) -> Option<E164> {
    if let Ok(number) = E164::parse(raw)
        && (held(&number) || !country::may_hold_trunk_digit(number.digits()))
    {
        return Some(number);
    }
    choose(&all_readings(raw, country), held)
}

/// Returns every number that the text can mean, the country's own habit first.
pub fn readings(raw: &str, country: Option<Country>) -> Vec<E164> {
    let readings = all_readings(raw, country).into_iter();
    readings.map(|reading| reading.number).collect()
}

/// Returns the numbers that the text means if it is one of nobody's here: those of a plan, and those whose prefix says that they are
/// international.
pub fn likely_readings(raw: &str, country: Option<Country>) -> Vec<E164> {
    let readings = all_readings(raw, country).into_iter();
    let likely = readings.filter(Reading::is_likely);
    likely.map(|reading| reading.number).collect()
}

/// Returns a second number that the text can mean as well as `read`: neither is held, or both are, and both are numbers of their plans.
pub(crate) fn other_reading(
    raw: &str,
    read: &E164,
    country: Option<Country>,
    held: &dyn Fn(&E164) -> bool,
) -> Option<E164> {
    // Nearly all numbers are sent in this form, which has one meaning.
    if raw == read.as_str() {
        return None;
    }

    let is_held = held(read);
    let readings = all_readings(raw, country).into_iter();
    let mut others = readings.filter(|reading| reading.number != *read);
    let other = others.find(|reading| match is_held {
        true => held(&reading.number),
        false => reading.is_likely() && reading.fit() == Fit::Line,
    });
    other.map(|reading| reading.number)
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
    /// The same with the zero in parentheses, or without it where the country keeps it: `+49 (0)30 …`.
    other: Option<String>,
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
            Some(digits) => Self::read_global(digits),
            None => Self::read_local(number, parameters),
        }
    }

    fn read_global(digits: &str) -> Option<Self> {
        let whole = strip_separators(digits)?;
        if !digits.contains("(0)") {
            return Some(Self {
                digits: whole,
                other: None,
                global: true,
            });
        }

        // `+49 (0)30 …`: the zero in parentheses is dialled only inside the country.
        let without = strip_separators(&digits.replacen("(0)", "", 1))?;
        let keeps_zero = KEEP_ZERO.iter().any(|code| without.starts_with(code));
        let (digits, other) = match keeps_zero {
            true => (whole, without),
            false => (without, whole),
        };
        Some(Self {
            digits,
            other: Some(other),
            global: true,
        })
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
        let context = context.and_then(strip_separators);
        let global = context.is_some();
        Some(Self {
            digits: context.unwrap_or_default() + &digits,
            other: None,
            global,
        })
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

/// Condition under which a reading is taken.
#[derive(Copy, Clone, PartialEq, Eq)]
enum TakenIf {
    /// Always: a plus sign or a prefix says that it is international.
    Always,
    /// A plan has the number, or it is held.
    Valid,
    /// It is held.
    Held,
}

/// One interpretation of a text.
#[derive(Copy, Clone)]
struct Reading {
    number: E164,
    /// A plan has the number. Unknown, and false, where it is taken only if it is held.
    fits: bool,
    taken: TakenIf,
}

impl Reading {
    /// Returns whether the reading may be taken if nobody holds its number.
    fn is_likely(&self) -> bool {
        match self.taken {
            TakenIf::Always => true,
            TakenIf::Valid => self.fits,
            TakenIf::Held => false,
        }
    }

    /// Returns how the number fits into its plan.
    fn fit(&self) -> Fit {
        match self.fits {
            true => country::fit(self.number.digits()),
            false => Fit::Unknown,
        }
    }
}

/// Interpretations of a text, the country's own habit first.
#[derive(Default)]
struct Readings(Vec<Reading>);

impl Readings {
    /// Adds a number by its digits behind the plus sign. If no plan has it, it may have a national prefix behind its country code.
    fn push(&mut self, digits: &str, taken: TakenIf) {
        if taken == TakenIf::Held {
            // Whether a plan has it doesn't matter.
            return self.add(digits, false, taken);
        }
        let fits = country::fits(digits);
        self.add(digits, fits, taken);
        if !fits && let Some(reduced) = country::without_trunk_digit(digits) {
            self.add(&reduced, country::fits(&reduced), TakenIf::Valid);
        }
    }

    fn add(&mut self, digits: &str, fits: bool, taken: TakenIf) {
        let Ok(number) = E164::parse(&["+", digits].concat()) else {
            return;
        };
        // A reading that is taken only where it is held comes first, and says nothing of the country's habits.
        let same = |known: &&mut Reading| known.number == number && known.taken != TakenIf::Held;
        match self.0.iter_mut().find(same) {
            None => self.0.push(Reading {
                number,
                fits,
                taken,
            }),
            Some(known) if taken == TakenIf::Always => known.taken = taken,
            Some(_) => {}
        }
    }
}

fn all_readings(raw: &str, country: Option<Country>) -> Vec<Reading> {
    let mut readings = Readings::default();
    let Some(written) = Written::read(raw) else {
        return readings.0;
    };

    if written.global {
        readings.push(&written.digits, TakenIf::Always);
        if let Some(other) = &written.other {
            readings.push(other, TakenIf::Valid);
        }
        return readings.0;
    }

    let digits = &*written.digits;
    // The org's own number without its plus sign, before any reading that takes its first digits for a prefix.
    readings.push(digits, TakenIf::Held);
    if let Some(country) = country {
        read_in(&mut readings, digits, country);
    }
    // Phone systems write 00 for a plus sign in countries with another international prefix too.
    if let Some(rest) = digits.strip_prefix("00") {
        readings.push(rest, TakenIf::Always);
    }
    readings.0
}

/// Reads digits as they are dialled within a country. Without one there is no national form.
fn read_in(readings: &mut Readings, digits: &str, country: Country) {
    let plan = country.plan();
    // What begins with 00 as well is taken for 00 if no plan knows either.
    let taken = match digits.starts_with("00") {
        true => TakenIf::Valid,
        false => TakenIf::Always,
    };
    for rest in plan.after_international(digits) {
        readings.push(rest, taken);
    }

    let whole = |national: &str| [plan.code(), national].concat();
    if let Some(national) = plan.after_national(digits) {
        readings.push(&whole(&national), TakenIf::Valid);
    }
    // Some countries have no national prefix, and some phone systems leave it out.
    readings.push(&whole(digits), TakenIf::Valid);
    // The country's code without a plus sign.
    if digits.starts_with(plan.code()) {
        readings.push(digits, TakenIf::Valid);
    }
}

/// Prefers a number that the org holds, then one that fits its plan, then one whose prefix says that it is international; of several, the first.
fn choose(readings: &[Reading], held: &dyn Fn(&E164) -> bool) -> Option<E164> {
    let ours = readings.iter().find(|reading| held(&reading.number));
    let likeliest = || {
        let mut likely = readings.iter().filter(|reading| reading.is_likely());
        if likely.clone().count() < 2 {
            // Nothing to compare it with.
            return likely.next();
        }
        // The last of equal ones is the maximum, so the order is turned around.
        likely.rev().max_by_key(|reading| reading.fit())
    };
    ours.or_else(likeliest).map(|reading| reading.number)
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
                "phone-context with an area code",
                "tel:12-34-5678;isub=1;phone-context=+49-30",
                "",
                Some("+493012345678"),
            ),
            (
                "phone-context of a user part, and a trunk digit",
                "0161 496 0000;phone-context=+44",
                "",
                Some("+441614960000"),
            ),
            (
                "phone-context that is a host",
                "030 12345678;phone-context=pbx.example",
                "DE",
                Some("+493012345678"),
            ),
            // A national prefix behind the country code, where only the number without it is valid.
            ("+44 0161", "+44 0161 496 0000", "GB", Some("+441614960000")),
            (
                "+44 0161, no blank",
                "+4401614960000",
                "",
                Some("+441614960000"),
            ),
            ("44 0161", "44 0161 496 0000", "GB", Some("+441614960000")),
            (
                "0044 (0)161",
                "0044 (0)161 496 0000",
                "",
                Some("+441614960000"),
            ),
            ("+41 (044)", "+41 (044) 364 35 33", "", Some("+41443643533")),
            ("+270", "+270821234567", "", Some("+27821234567")),
            (
                "+521, Mexico's mobiles before 2019",
                "+5212941185211",
                "",
                Some("+522941185211"),
            ),
            (
                "044 within Mexico",
                "044 55 1234 5678",
                "MX",
                Some("+525512345678"),
            ),
            ("+36 06", "+36 06 1 234 5678", "", Some("+3612345678")),
            ("+7 8", "+7 8 495 123 45 67", "", Some("+74951234567")),
            (
                "+54 without 9, with 15",
                "+54 11 15 2345 6789",
                "",
                Some("+5491123456789"),
            ),
            (
                "Italy keeps its zero",
                "+39 06 6982 1234",
                "",
                Some("+390669821234"),
            ),
            (
                "the Ivory Coast too",
                "+225 07 07 12 34 56",
                "",
                Some("+2250707123456"),
            ),
            ("Gabon too", "+241 01 44 12 34", "", Some("+24101441234")),
            (
                "a number that no plan has stays",
                "+44 1632 960000",
                "",
                Some("+441632960000"),
            ),
            ("so does one with a zero", "+49 0", "DE", None),
            // International prefixes, by country.
            (
                "another 00, Singapore",
                "0044 20 7183 8750",
                "SG",
                Some("+442071838750"),
            ),
            (
                "another 00, Thailand",
                "0044 20 7183 8750",
                "TH",
                Some("+442071838750"),
            ),
            (
                "another 00, Hong Kong",
                "0044 20 7183 8750",
                "HK",
                Some("+442071838750"),
            ),
            (
                "another 00, Korea",
                "0044 20 7183 8750",
                "KR",
                Some("+442071838750"),
            ),
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
                "a zero behind the country code: as written if that is held",
                "+440161496000",
                "",
                "+440161496000",
                Some("+440161496000"),
            ),
            (
                "without it, if that is held though no plan has it",
                "+4401632960000",
                "",
                "+441632960000",
                Some("+441632960000"),
            ),
            (
                "the country's own reading, held or not",
                "009 1 212 736 5000",
                "SG",
                "+12127365000",
                Some("+12127365000"),
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
