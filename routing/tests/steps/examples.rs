//! libphonenumber's example numbers of all countries, in each form in which a phone system may send them.

use std::collections::HashMap;

use trunkline_routing::numbers::{likely_readings, reduce};
use trunkline_routing::{Country, E164};

const EXAMPLES: &str = include_str!("../../../fixtures/numbers/examples.tsv");

/// An example: its country, the number, and its national form.
struct Example {
    country: Country,
    number: E164,
    national: &'static str,
}

fn examples() -> Vec<Example> {
    let lines = EXAMPLES.lines().filter(|line| !line.starts_with('#'));
    let examples = lines.filter_map(|line| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [country, _, number, national] = cells[..] else {
            panic!("four cells: {line}");
        };
        Some(Example {
            country: Country::parse(country).ok()?,
            // Some islands have numbers shorter than E.164 numbers are here.
            number: E164::parse(number).ok()?,
            national,
        })
    });
    examples.collect()
}

fn nobodys(_: &E164) -> bool {
    false
}

#[test]
fn each_country_reads_its_own_numbers_in_every_form() {
    let mut wrong = Vec::new();
    let examples = examples();
    assert!(examples.len() > 450, "{}", examples.len());

    for Example {
        country,
        number,
        national,
    } in &examples
    {
        let digits = number.digits();
        let code = country.plan().code();
        let behind = &digits[code.len()..];
        let forms = [
            ("E.164", format!("+{digits}")),
            ("a tel: URI", format!("tel:+{digits};isub=1")),
            ("00", format!("00{digits}")),
            ("the national form", (*national).to_owned()),
            (
                "the national form as a user part",
                format!("{};phone-context=pbx.test", national.replace(' ', "")),
            ),
            (
                "phone-context",
                format!("tel:{behind};phone-context=+{code}"),
            ),
            ("no plus", digits.to_owned()),
        ];
        for (form, text) in forms {
            let read = reduce(&text, Some(*country), &nobodys);
            let can_be = || likely_readings(&text, Some(*country)).contains(number);
            // Of several numbers that the text can mean, a held one is meant.
            let held = reduce(&text, Some(*country), &|held| held == number);
            if held != Some(*number) || (read != Some(*number) && !can_be()) {
                wrong.push(format!(
                    "{country} {number}: {form}, {text}: {read:?}, held {held:?}"
                ));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn digits_of_one_number_are_seldom_those_of_another() {
    let mut other = HashMap::<&str, Vec<String>>::new();
    for Example {
        country,
        number,
        national,
    } in &examples()
    {
        for (form, text) in [
            ("national", (*national).to_owned()),
            ("00", format!("00{}", number.digits())),
            ("no plus", number.digits().to_owned()),
        ] {
            let read = reduce(&text, Some(*country), &nobodys);
            if read != Some(*number) {
                other
                    .entry(form)
                    .or_default()
                    .push(format!("{country} {text}: {read:?}"));
            }
        }
    }
    let count = |form| other.get(form).map_or(0, Vec::len);
    assert!(count("national") <= 2, "{other:#?}");
    assert!(count("00") <= 2, "{other:#?}");
    assert!(count("no plus") <= 10, "{other:#?}");
}

/// A trunk in a country whose international prefix begins with 00 and goes on, and a phone system that writes 00 for a plus sign.
#[test]
fn two_zeros_mean_the_plus_everywhere() {
    let mut wrong = Vec::new();
    let mut total = 0;
    for home in [
        "SG", "TH", "KH", "HK", "KR", "BR", "CO", "US", "AU", "JP", "RU", "DE", "GB", "FI", "IL",
        "TW", "ID",
    ] {
        let home = Country::parse(home).expect("a country");
        for Example {
            country, number, ..
        } in &examples()
        {
            total += 1;
            let text = format!("00{}", number.digits());
            let held = reduce(&text, Some(home), &|held| held == number);
            assert_eq!(held, Some(*number), "{home} {text}");
            let read = reduce(&text, Some(home), &nobodys);
            if read != Some(*number) {
                // The country's own reading is a number as well.
                assert!(
                    likely_readings(&text, Some(home)).contains(number),
                    "{home} {text}"
                );
                wrong.push(format!("{home}: {country} {text}: {read:?}"));
            }
        }
    }
    // One in fifteen: `001 2015550123` is a number of Egypt from Singapore, and `00 12015550123` one of the USA.
    assert!(
        wrong.len() * 14 < total,
        "{} of {total}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// `+44 (0)161` and `+440161`: the national prefix behind the country code.
#[test]
fn a_national_prefix_behind_the_country_code_is_left_out() {
    let mut wrong = Vec::new();
    for Example {
        country,
        number,
        national,
    } in &examples()
    {
        let code = country.plan().code();
        let digits: String = national.chars().filter(char::is_ascii_digit).collect();
        let behind = &number.digits()[code.len()..];
        // Only where the national form is the number with a prefix before it.
        let Some(prefix) = digits
            .strip_suffix(behind)
            .filter(|prefix| !prefix.is_empty())
        else {
            continue;
        };
        for text in [
            format!("+{code}{digits}"),
            format!("00{code} {digits}"),
            format!("+{code} ({prefix}){behind}"),
        ] {
            let read = reduce(&text, Some(*country), &nobodys);
            if read != Some(*number) && !likely_readings(&text, Some(*country)).contains(number) {
                wrong.push(format!("{country} {text}: {read:?}, not {number}"));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
