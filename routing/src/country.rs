//! Countries and their numbering plans: the rules by which a number is dialled from within a country.
//!
//! The plans are libphonenumber's. Only the data of the `phonenumber` crate is used, not its parser, which strips a national prefix twice
//! (a Russian 8 800 number loses both eights) and locks a mutex for each expression. `pattern` matches numbers; the expression of a
//! country's national prefix, which takes parts out, is compiled once, when the country is first named, and is then read without a lock.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use phonenumber::Metadata;
use phonenumber::metadata::{DATABASE, Descriptor};
use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::pattern;

const LETTERS: usize = 26;
static PLANS: [OnceLock<Plan>; LETTERS * LETTERS] = [const { OnceLock::new() }; LETTERS * LETTERS];

/// A country with a numbering plan, by its ISO 3166 alpha-2 code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Country([u8; 2]);

/// Error: the text isn't an ISO 3166 alpha-2 code, or its country has no numbering plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a country: two letters of ISO 3166, such as DE, of a country with a numbering plan")]
pub struct NotACountry;

impl Country {
    /// Reads a code of two letters, in either case, and compiles the country's plan on first use.
    ///
    /// No call waits for the compilation, since it happens here, where a trunk's settings are read.
    ///
    /// # Errors
    /// [`NotACountry`].
    pub fn parse(text: &str) -> Result<Self, NotACountry> {
        let [first, second] = text.as_bytes() else {
            return Err(NotACountry);
        };
        let code = [first.to_ascii_uppercase(), second.to_ascii_uppercase()];
        let name = std::str::from_utf8(&code).map_err(|_| NotACountry)?;

        phonenumber::country::Id::from_str(name).map_err(|_| NotACountry)?;

        let country = Self(code);
        country.plan();
        Ok(country)
    }

    /// Returns the countries whose numbers begin with this calling code, which is given without plus sign. Compiles their plans.
    pub fn of_calling_code(code: &str) -> impl Iterator<Item = Self> {
        let code: Option<u16> = code.parse().ok();
        let countries = code.and_then(|code| DATABASE.by_code(&code));
        let ids = countries.into_iter().flatten().map(|data| data.id());
        ids.filter_map(|id| Self::parse(id).ok())
    }

    /// Returns the two letters, in upper case.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("parse accepts ASCII letters alone")
    }

    /// Returns the country's numbering plan.
    pub fn plan(self) -> &'static Plan {
        let [first, second] = self.0.map(|letter| usize::from(letter - b'A'));
        PLANS[first * LETTERS + second].get_or_init(|| Plan::read(self))
    }
}

/// Returns the country in which people dial the number of these `digits` (E.164 without `+`) as `dialled`, with or without the national
/// prefix. Where countries share a country code, only the main one is considered. Compiles no plan.
pub(crate) fn of_number(digits: &str, dialled: &str) -> Option<&'static str> {
    let matches = |length: usize| {
        let (code, national) = digits.split_at_checked(length)?;
        let code: u16 = code.parse().ok()?;
        let countries = DATABASE.by_code(&code)?;
        let is_main = |data: &&&phonenumber::Metadata| data.is_main_country_for_code();
        let data = countries.iter().find(is_main).or(countries.first())?;

        let prefix = data.national_prefix().unwrap_or_default();
        let is_form = dialled == national || dialled.strip_prefix(prefix) == Some(national);
        // Codes that belong to no country, such as those of satellite phones, have the id `001`.
        (is_form && data.id().len() == 2).then_some(data.id())
    };
    // No country code is the beginning of another one, so at most one length has countries.
    (1..=3).find_map(matches)
}

/// Fit of a number into the numbering plans of its country code.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Fit {
    /// No plan has it.
    Unknown,
    /// A plan has numbers of this form, and assigns them to no kind of line.
    Form,
    /// It is a number of a fixed line, a mobile, or another kind.
    Line,
}

/// Loads the data of all plans, which takes a tenth of a second: no call should be the first to need it.
pub fn load() {
    // Whichever country it is: the data of all are read at once.
    let _ = DATABASE.by_id("001");
}

/// Returns whether the number of these `digits` (E.164 without `+`) may have a national prefix behind its country code: it begins with one, or has a
/// length that no number of the code has. Nearly no number does, so that nearly none has to be matched against its plan.
pub(crate) fn may_hold_trunk_digit(digits: &str) -> bool {
    let Some((plans, national)) = plans_of(digits) else {
        return false;
    };
    let prefix = plans.first().and_then(|data| data.national_prefix());
    let begins = prefix.is_some_and(|prefix| national.starts_with(prefix));
    let has_length = |data: &&Metadata| {
        let lengths = data.descriptors().general().possible_length();
        lengths
            .iter()
            .any(|length| usize::from(*length) == national.len())
    };
    begins || !plans.iter().any(has_length)
}

/// Returns whether a plan has the number of these `digits` (E.164 without `+`): whether it fits at all. Compiles no plan.
pub(crate) fn fits(digits: &str) -> bool {
    let plans = plans_of(digits);
    plans.is_some_and(|(plans, national)| {
        let mut forms = plans.iter().map(|data| data.descriptors().general());
        forms.any(|form| has(form, national))
    })
}

/// Returns how the number of these `digits` (E.164 without `+`) fits. Takes several times as long as [`fits`]. Compiles no plan.
pub(crate) fn fit(digits: &str) -> Fit {
    let plans = plans_of(digits);
    let fits = plans.map(|(plans, national)| {
        let fits = plans.into_iter().map(|data| fit_in(data, national));
        fits.max().unwrap_or(Fit::Unknown)
    });
    fits.unwrap_or(Fit::Unknown)
}

/// Returns the number without a national prefix behind the country code, such as the 0 of +44 0161; `None` if it has none.
pub(crate) fn without_trunk_digit(digits: &str) -> Option<String> {
    let (plans, national) = plans_of(digits)?;
    // The first is the main country of the code.
    let country = Country::parse(plans.first()?.id()).ok()?;
    let reduced = country.plan().after_national(national)?;
    Some([country.plan().code(), &reduced].concat())
}

/// The plans of the country code that the digits begin with, the main country's first, and the digits behind it.
fn plans_of(digits: &str) -> Option<(Vec<&'static Metadata>, &str)> {
    // No country code is the beginning of another one, so at most one length has plans.
    (1..=3).find_map(|length| {
        let (code, national) = digits.split_at_checked(length)?;
        let code: u16 = code.parse().ok()?;
        Some((DATABASE.by_code(&code)?, national))
    })
}

fn fit_in(data: &Metadata, national: &str) -> Fit {
    let kinds = data.descriptors();
    if !has(kinds.general(), national) {
        return Fit::Unknown;
    }
    let kinds = [
        kinds.fixed_line(),
        kinds.mobile(),
        kinds.toll_free(),
        kinds.premium_rate(),
        kinds.shared_cost(),
        kinds.personal_number(),
        kinds.voip(),
        kinds.pager(),
        kinds.uan(),
        kinds.voicemail(),
    ];
    match kinds.into_iter().flatten().any(|kind| has(kind, national)) {
        true => Fit::Line,
        false => Fit::Form,
    }
}

fn has(kind: &Descriptor, national: &str) -> bool {
    // The lengths are those of the expression, and quicker to compare.
    let lengths = kind.possible_length();
    let has_length = lengths.is_empty()
        || lengths
            .iter()
            .any(|length| usize::from(*length) == national.len());
    has_length && pattern::is_match(kind.national_number().as_str(), national)
}

/// Prefixes that were dialled before a national number once, and that phone systems still write, by country code: Mexico's before 2019.
const FORMER_PREFIXES: [(&str, &str); 4] =
    [("52", "044"), ("52", "045"), ("52", "01"), ("52", "1")];

/// Rules for dialling within a country.
#[derive(Debug)]
pub struct Plan {
    data: &'static Metadata,
    code: String,
    /// National prefix, carrier selection included, anchored at the start.
    national: Option<Regex>,
    /// Replacement for the matched national prefix, in countries where it isn't simply dropped (Argentina, Brazil, San Marino …).
    rewrite: Option<String>,
}

impl Plan {
    fn read(country: Country) -> Self {
        let data = DATABASE
            .by_id(country.as_str())
            .expect("every country that parses has metadata");
        let starts = |pattern: &str| compile(&format!("^(?:{pattern})"));

        Self {
            data,
            code: data.country_code().to_string(),
            national: data
                .national_prefix_for_parsing()
                .map(|pattern| pattern.as_str())
                .or_else(|| data.national_prefix())
                .map(starts),
            rewrite: data.national_prefix_transform_rule().map(delimit_groups),
        }
    }

    /// Returns the country calling code, without plus sign.
    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns whether the digits are a complete national number: with area code, without national prefix.
    pub fn is_national(&self, digits: &str) -> bool {
        has(self.data.descriptors().general(), digits)
    }

    /// Returns the digits behind each international prefix that they begin with, the longest prefix first: some countries have prefixes that
    /// begin with others of theirs.
    pub fn after_international<'d>(&self, digits: &'d str) -> impl Iterator<Item = &'d str> {
        let prefixes = self.data.international_prefix();
        let prefixes = prefixes.map(|prefixes| pattern::beginnings(prefixes.as_str(), digits));
        prefixes.into_iter().flatten().map(|end| &digits[end..])
    }

    /// Returns whether these digits are dialled before a `national` number: the national prefix, with or without the code of a carrier.
    pub fn is_national_prefix(&self, digits: &str, national: &str) -> bool {
        let dialled = [digits, national].concat();
        self.after_national(&dialled).as_deref() == Some(national)
    }

    /// Returns the national number without its prefix, if the digits begin with one.
    pub fn after_national(&self, digits: &str) -> Option<String> {
        self.after_prefix(digits).or_else(|| {
            let former = FORMER_PREFIXES
                .iter()
                .filter(|(code, _)| *code == self.code);
            former
                .filter_map(|(_, prefix)| digits.strip_prefix(prefix))
                .find(|national| self.is_national(national))
                .map(str::to_owned)
        })
    }

    fn after_prefix(&self, digits: &str) -> Option<String> {
        let groups = self.national.as_ref()?.captures(digits)?;
        let rest = &digits[groups.get(0)?.end()..];
        let mut number = String::new();

        // The rule applies if the expression's last group matched; else the match is a bare prefix (libphonenumber's rule).
        if let (Some(rule), Some(_)) = (
            &self.rewrite,
            groups.get(groups.len() - 1).filter(|_| groups.len() > 1),
        ) {
            groups.expand(rule, &mut number);
        }

        number.push_str(rest);
        Some(number)
    }
}

fn compile(pattern: &str) -> Regex {
    // The expressions in the data hold white space for legibility. They only ever match ASCII digits.
    let built = RegexBuilder::new(pattern)
        .ignore_whitespace(true)
        .unicode(false)
        .build();
    built.expect("libphonenumber's expressions are within what the regex crate reads")
}

/// Rewrites `9$1` to `9${1}`, since the regex crate would read `$15` as group 15.
fn delimit_groups(rule: &str) -> String {
    let mut delimited = String::with_capacity(rule.len() + 4);
    let mut rest = rule.chars();
    while let Some(letter) = rest.next() {
        match (letter, letter == '$') {
            (_, true) => delimited.extend([
                "${",
                rest.next().map(String::from).unwrap_or_default().as_str(),
                "}",
            ]),
            (letter, false) => delimited.push(letter),
        }
    }
    delimited
}

impl FromStr for Country {
    type Err = NotACountry;

    fn from_str(text: &str) -> Result<Self, NotACountry> {
        Self::parse(text)
    }
}

impl fmt::Display for Country {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl fmt::Debug for Country {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

impl Serialize for Country {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Country {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_countries_with_a_plan_are_read() {
        let cases = [
            ("capitals", "DE", true),
            ("small letters", "us", true),
            ("three letters", "DEU", false),
            ("one letter", "D", false),
            ("a region that isn't one", "ZZ", false),
            ("a name that isn't ASCII", "é", false),
            ("nothing", "", false),
        ];
        for (name, text, accepted) in cases {
            assert_eq!(Country::parse(text).is_ok(), accepted, "{name}");
        }
    }

    /// Every expression in the data compiles, and each country's own example number is valid in its plan.
    #[test]
    fn every_plan_loads() {
        let letters = || (b'A'..=b'Z').map(char::from);
        let codes =
            letters().flat_map(|first| letters().map(move |second| format!("{first}{second}")));
        let countries: Vec<Country> = codes
            .filter_map(|code| Country::parse(&code).ok())
            .collect();
        assert!(countries.len() > 200, "{}", countries.len());

        for country in countries {
            let plan = country.plan();
            let data = DATABASE.by_id(country.as_str()).unwrap();
            let examples = [data.descriptors().fixed_line(), data.descriptors().mobile()];
            for example in examples
                .into_iter()
                .flatten()
                .filter_map(|descriptor| descriptor.example())
            {
                assert!(plan.is_national(example), "{country}: {example}");
                let digits = [plan.code(), example].concat();
                assert_eq!(fit(&digits), Fit::Line, "{country}: {example}");
            }
        }
    }

    #[test]
    fn a_national_prefix_is_that_of_a_country_with_the_code() {
        for (code, digits, national, is_prefix) in [
            ("7", "8", "9161234567", true),
            ("7", "9", "9161234567", false),
            ("36", "06", "301234567", true),
            ("36", "6", "301234567", false),
            ("44", "0", "2071838750", true),
            ("1", "1", "5551234567", true),
            ("55", "0", "11987654321", true),
            ("55", "015", "11987654321", true),
            ("34", "0", "912345678", false),
            ("999", "0", "2071838750", false),
            ("", "0", "2071838750", false),
        ] {
            let found = Country::of_calling_code(code)
                .any(|country| country.plan().is_national_prefix(digits, national));
            assert_eq!(found, is_prefix, "{code} {digits}");
        }
    }

    #[test]
    fn json_is_the_code_in_capitals() {
        assert_eq!(
            serde_json::to_string(&Country::parse("de").unwrap()).unwrap(),
            "\"DE\""
        );
        assert_eq!(
            serde_json::from_str::<Country>("\"GB\"").unwrap().as_str(),
            "GB"
        );
        assert!(serde_json::from_str::<Country>("\"XX\"").is_err());
    }
}
