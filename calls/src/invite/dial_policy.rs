//! SIP URIs that dial a number which the operator doesn't allow. Bounds against toll fraud apply to a number in a URI's user part as to a plain
//! number.

use trunkline_routing::numbers::likely_readings;
use trunkline_routing::{Country, E164};
use trunkline_sip::header::uri::{Scheme, Uri};

use crate::limits::outbound_limits::OutboundLimits;

/// Shorter digit strings are PBX extensions, not E.164.
const SHORTEST: usize = 7;

/// Returns whether `phone.outbound_prefixes` allow this URI. A user part that looks like a number, or has `user=phone`, has to be allowed in each
/// reading: as written, and as the national number of `country`.
pub(crate) fn may_dial(
    outbound_limits: &OutboundLimits,
    uri: &[u8],
    country: Option<Country>,
) -> bool {
    if outbound_limits.bounds().prefixes.is_empty() {
        return true;
    }

    // A URI that can't be read can't be shown to be allowed.
    let Ok(uri) = Uri::parse(uri) else {
        return false;
    };

    let user = uri.user_unescaped();
    let is_phone = uri.scheme == Scheme::Tel
        || matches!(uri.param("user"), Some(Some(kind)) if kind.eq_ignore_ascii_case(b"phone"));
    let Ok(user) = std::str::from_utf8(&user) else {
        // Digits are UTF-8, so this is no number, unless the URI claims that it is one.
        return !is_phone;
    };

    let number = user.split(';').next().unwrap_or_default();
    let is_separator = |letter: char| matches!(letter, ' ' | '-' | '.' | '(' | ')' | '/');
    let plain: String = number
        .chars()
        .filter(|letter| !is_separator(*letter))
        .collect();
    let digits = plain.strip_prefix('+').unwrap_or(&plain);
    if !is_phone && !is_dialled(&plain) {
        return true;
    }

    let written = E164::parse(&["+", digits].concat()).ok();
    let likely = likely_readings(user, country);
    let mut readings = written.into_iter().chain(likely).peekable();
    readings.peek().is_some() && readings.all(|number| outbound_limits.allows(number))
}

/// Returns whether a user part without visual separators would be dialled as a number rather than name a person: it has many digits, and otherwise
/// only feature codes such as `*67` and `#31#`, pauses and an extension (`x5`). Such a user part that can't be read is refused.
fn is_dialled(plain: &str) -> bool {
    let is_letter_of_name =
        |letter: char| letter.is_alphabetic() && !"extpw".contains(letter.to_ascii_lowercase());
    let digits = plain.bytes().filter(u8::is_ascii_digit).count();
    let is_long = digits >= SHORTEST || plain.starts_with('+');
    let begins_with_letter = plain.starts_with(char::is_alphabetic);
    is_long && !begins_with_letter && !plain.chars().any(is_letter_of_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::outbound_limits::OutboundBounds;

    #[test]
    fn a_number_in_a_uri_is_held_to_the_prefixes() {
        let outbound_limits = |prefixes: &[&str]| {
            OutboundLimits::new(OutboundBounds {
                at_once: 1,
                per_minute: 1,
                per_day: 1,
                prefixes: prefixes.iter().copied().map(Into::into).collect(),
            })
        };
        let (british, any) = (outbound_limits(&["+44"]), outbound_limits(&[]));

        for (uri, allowed) in [
            ("sip:+442071838751@carrier", true),
            ("sip:442071838751@carrier", true),
            ("sip:+44-20-7183-8751@carrier", true),
            ("sip:02071838751@carrier", true),
            ("sip:00442071838751@carrier", true),
            ("sip:sales@carrier", true),
            ("sip:sales7@carrier", true),
            ("sip:101@pbx", true),
            ("sip:carrier", true),
            ("sip:101@pbx;user=phone", false),
            ("sip:sales@carrier;user=phone", false),
            ("sip:+19005550100@carrier", false),
            ("sip:%2B19005550100@carrier", false),
            ("sip:19005550100@carrier", false),
            ("sip:1-900-555.0100@carrier", false),
            ("sip:+19005550100;ext=1@carrier", false),
            ("sip:0019005550100@carrier", false),
            ("sips:01119005550100@carrier", false),
            ("tel:+19005550100", false),
            // With a feature code, a pause, or an extension.
            ("sip:*67+19005550100@carrier", false),
            ("sip:%2331%23+19005550100@carrier", false),
            ("sip:*6719005550100@carrier", false),
            ("sip:9,19005550100@carrier", false),
            ("sip:+19005550100x5@carrier", false),
            ("sip:19005550100ext5@carrier", false),
            ("sip:1900$5550100@carrier", false),
            ("sip:*97@pbx", true),
            ("sip:t1234567@carrier", true),
            ("sip:12345678-90ab-4cde-8f01-234567890abc@bots", true),
            ("sip:user-1234567@carrier", true),
        ] {
            let gb = "GB".parse().ok();
            assert_eq!(may_dial(&british, uri.as_bytes(), gb), allowed, "{uri}");
            assert!(may_dial(&any, uri.as_bytes(), gb), "{uri}");
        }
    }
}
