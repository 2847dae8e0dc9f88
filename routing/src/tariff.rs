//! Kinds of numbers that cost their caller more than a line does, by libphonenumber's plans and the ITU's list of country codes.
//!
//! Rarely asked (no call waits for it), so the expressions of the `phonenumber` crate are used as they are, with their shared cache.

use std::fmt;

use phonenumber::Metadata;
use phonenumber::metadata::{DATABASE, Descriptor};

use crate::E164;

/// Kind of a number that nobody verifies by a call, since the call would cost its caller dearly, or pay its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tariff {
    /// Its holder is paid by the minute or call.
    PremiumRate,
    /// Caller and holder share the costs.
    SharedCost,
    /// Satellite phone, or a line of an international network without a country.
    Satellite,
    /// Follows a person to lines that nobody knows beforehand.
    Personal,
}

/// Country codes that belong to no country, where the kind is known by them alone (ITU-T E.164, list of assigned codes).
const WITHOUT_COUNTRY: [(&str, Tariff); 7] = [
    ("808", Tariff::SharedCost),
    ("870", Tariff::Satellite),
    ("878", Tariff::Personal),
    ("881", Tariff::Satellite),
    ("882", Tariff::Satellite),
    ("883", Tariff::Satellite),
    ("979", Tariff::PremiumRate),
];

impl Tariff {
    /// Returns the kind of a number; `None` for lines, mobiles and free numbers.
    ///
    /// Carriers ignore digits behind a complete number, so a number that only begins as one of these kinds is of that kind too, unless it is
    /// itself a line or mobile.
    pub fn of(number: E164) -> Option<Self> {
        let digits = number.digits();
        let by_code = WITHOUT_COUNTRY
            .iter()
            .find(|(code, _)| digits.starts_with(code));
        if let Some((_, tariff)) = by_code {
            return Some(*tariff);
        }

        let (code, national) = split(digits)?;
        let plans: Vec<&Metadata> = plans(code).collect();
        let is_line = plans.iter().any(|plan| {
            let kinds = [plan.descriptors().fixed_line(), plan.descriptors().mobile()];
            let mut kinds = kinds.into_iter().flatten();
            kinds.any(|kind| kind.is_match(national))
        });

        let kinds = plans.iter().flat_map(|plan| costly(plan));
        let mut kinds = kinds.filter_map(|(tariff, descriptor)| Some((tariff, descriptor?)));
        let found = kinds.find(|(_, descriptor)| {
            descriptor.is_match(national) || (!is_line && begins(descriptor, national))
        });
        found.map(|(tariff, _)| tariff)
    }
}

impl fmt::Display for Tariff {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::PremiumRate => "a premium-rate number",
            Self::SharedCost => "a shared-cost number",
            Self::Satellite => "a satellite number",
            Self::Personal => "a personal number",
        })
    }
}

/// Returns the country code of a number, without plus sign; `None` if no plan has it.
pub fn calling_code(number: &E164) -> Option<&str> {
    split(number.digits()).map(|(code, _)| code)
}

fn split(digits: &str) -> Option<(&str, &str)> {
    // No country code is the beginning of another one, so at most one length has plans.
    let lengths = (1..=3).filter_map(|length| digits.split_at_checked(length));
    let mut with_plans = lengths.filter(|(code, _)| plans(code).next().is_some());
    with_plans.next()
}

fn plans(code: &str) -> impl Iterator<Item = &'static Metadata> {
    let code: Option<u16> = code.parse().ok();
    let plans = code.and_then(|code| DATABASE.by_code(&code));
    plans.into_iter().flatten()
}

fn costly(plan: &Metadata) -> [(Tariff, Option<&Descriptor>); 3] {
    let kinds = plan.descriptors();
    [
        (Tariff::PremiumRate, kinds.premium_rate()),
        (Tariff::SharedCost, kinds.shared_cost()),
        (Tariff::Personal, kinds.personal_number()),
    ]
}

fn begins(kind: &Descriptor, national: &str) -> bool {
    let found = kind.national_number().find(national);
    found.is_some_and(|found| found.start() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costly_numbers_are_told_from_lines() {
        use Tariff::{Personal, PremiumRate, Satellite, SharedCost};
        for (name, number, expected) in [
            ("a line in New York", "+12125550100", None),
            ("a British mobile", "+447400123456", None),
            ("a line in London", "+442071838750", None),
            ("a free number", "+18005550100", None),
            (
                "premium in North America",
                "+19005550100",
                Some(PremiumRate),
            ),
            (
                "the same with digits behind it",
                "+190055501009",
                Some(PremiumRate),
            ),
            ("premium in Britain", "+449012345678", Some(PremiumRate)),
            ("premium in Germany", "+499001234567", Some(PremiumRate)),
            ("shared cost in Germany", "+491801234567", Some(SharedCost)),
            (
                "revenue share in Britain",
                "+448431234567",
                Some(PremiumRate),
            ),
            ("personal in Britain", "+447012345678", Some(Personal)),
            ("personal in North America", "+15002345678", Some(Personal)),
            ("Inmarsat", "+870773111632", Some(Satellite)),
            ("Iridium", "+881612345678", Some(Satellite)),
            ("Thuraya", "+8821612345678", Some(Satellite)),
            ("an international network", "+883510012345", Some(Satellite)),
            (
                "a universal personal number",
                "+878101234567890",
                Some(Personal),
            ),
            ("international premium", "+979123456789", Some(PremiumRate)),
            (
                "international shared cost",
                "+80812345678",
                Some(SharedCost),
            ),
            ("a code that nobody has", "+2101234567", None),
        ] {
            let number = E164::parse(number).unwrap();
            assert_eq!(Tariff::of(number), expected, "{name}");
        }
    }

    /// By libphonenumber's own example numbers: every country's lines and mobiles may be called, and none of its costly numbers.
    #[test]
    fn the_example_numbers_of_all_countries_are_told_apart() {
        let mut costly_ones = 0;
        for plan in DATABASE.iter().filter(|plan| plan.id().len() == 2) {
            let number = |kind: &Descriptor| {
                let national = kind.example()?;
                E164::parse(&format!("+{}{national}", plan.country_code())).ok()
            };

            let kinds = plan.descriptors();
            let lines = [kinds.fixed_line(), kinds.mobile()];
            for number in lines.into_iter().flatten().filter_map(number) {
                assert_eq!(Tariff::of(number), None, "{} {number}", plan.id());
            }

            let costly = costly(plan).into_iter();
            let costly = costly.filter_map(|(_, kind)| number(kind?));
            for number in costly {
                costly_ones += 1;
                assert!(Tariff::of(number).is_some(), "{} {number}", plan.id());
            }
        }
        assert!(costly_ones > 200, "{costly_ones}");
    }

    #[test]
    fn a_number_has_one_country_code() {
        for (number, code) in [
            ("+442079460000", Some("44")),
            ("+12125550100", Some("1")),
            ("+35312345678", Some("353")),
            ("+2101234567", None),
        ] {
            let number = E164::parse(number).unwrap();
            assert_eq!(calling_code(&number), code);
        }
    }
}
