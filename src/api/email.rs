//! E-mail addresses: one pattern, that of the API's document.

use super::field_type::Parsed;

/// An address of at most 254 characters (RFC 5321 §4.5.3.1.3 less the angle brackets).
pub(crate) const EMAIL: Parsed<String> = Parsed::new("an e-mail address", |text| {
    is_email(text).then(|| text.to_owned())
})
.like(PATTERN)
.at_most(LONGEST)
.example("ann@example.com");

/// Regular expression for what [`is_email`] checks.
const PATTERN: &str = r"^([A-Za-z0-9_'+-]+\.)*[A-Za-z0-9_'+-]*[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9-]*\.)+[A-Za-z]{2,}$";

const LONGEST: usize = 254;

/// Checks a local part without a leading dot or two dots in a row, `@`, and labels separated by dots, the last of at
/// least two letters.
fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    let Some((labels, last)) = domain.rsplit_once('.') else {
        return false;
    };
    text.len() <= LONGEST
        && is_local(local)
        && labels.split('.').all(is_label)
        && last.len() >= 2
        && last.bytes().all(|octet| octet.is_ascii_alphabetic())
}

fn is_local(local: &str) -> bool {
    let allowed = |octet: u8| octet.is_ascii_alphanumeric() || b"_'+-.".contains(&octet);
    local.bytes().all(allowed)
        && !local.is_empty()
        && !local.starts_with('.')
        && !local.ends_with(['.', '\''])
        && !local.contains("..")
}

fn is_label(label: &str) -> bool {
    let allowed = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'-';
    label.bytes().all(allowed) && !label.is_empty() && !label.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_follow_the_pattern() {
        for (text, is) in [
            ("ann@example.com", true),
            ("Ann.O'Neil+tag@mail.example.co.uk", true),
            ("a_b-c@x-1.org", true),
            ("a@1.2.museum", true),
            ("", false),
            ("ann", false),
            ("@example.com", false),
            ("ann@", false),
            ("ann@example", false),
            ("ann@example.c", false),
            ("ann@example.c0m", false),
            ("ann@.com", false),
            ("ann@a..com", false),
            ("ann@-a.com", false),
            (".ann@example.com", false),
            ("ann.@example.com", false),
            ("a..n@example.com", false),
            ("a n@example.com", false),
            ("ann@ex_ample.com", false),
            ("ann@b@example.com", false),
            ("änn@example.com", false),
            ("ann@example.com\n", false),
        ] {
            assert_eq!(is_email(text), is, "{text}");
        }

        let local = "a".repeat(LONGEST - "@example.com".len());
        assert!(is_email(&format!("{local}@example.com")));
        assert!(!is_email(&format!("a{local}@example.com")));
    }
}
