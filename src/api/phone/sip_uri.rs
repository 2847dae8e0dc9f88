//! SIP URIs as fields hold them.

use trunkline_sip::header::uri::{Scheme, Uri};

use crate::api::shape::Parsed;

/// What SIP URIs look like, as JSON Schema tells it: whatever fits is taken. Alternatives to an octet of the user part and to the
/// host's first label may be added.
macro_rules! pattern {
    ($user:literal, $label:literal) => {
        concat!(
            r"^sips?:(([A-Za-z0-9_.!~*'()&=+$,/-]|%[2-6][0-9A-Fa-f]",
            $user,
            r")+@)?(([A-Za-z0-9_]{1,63}",
            $label,
            r")([.-][A-Za-z0-9_]{1,63}){0,6}|\[([0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}\]",
            r"|\[([0-9A-Fa-f]{1,4}:){1,4}(:[0-9A-Fa-f]{1,4}){1,3}\])",
            r"(:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}))?(;[A-Za-z0-9_.-]+(=[A-Za-z0-9_.:-]+)?)*$"
        )
    };
}
pub(super) use pattern;

/// A SIP or SIPS URI (RFC 3261 §19.1).
pub(super) const SIP_URI: Parsed<Box<str>> =
    Parsed::new("a SIP URI such as sip:sales@pbx.example.com", |text| {
        is_sip_uri(text).then(|| text.into())
    })
    .like(pattern!("", ""))
    .at_most(LONGEST)
    .example("sip:sales@pbx.example.com");

/// The longest that is kept, in octets: it has to fit into messages beside much else.
const LONGEST: usize = 500;

pub(super) fn is_sip_uri(text: &str) -> bool {
    text.len() <= LONGEST && reads_as_sip_uri(text)
}

/// Whether it is a SIP URI, however long.
pub(super) fn reads_as_sip_uri(text: &str) -> bool {
    text.is_ascii()
        && Uri::parse(text.as_bytes()).is_ok_and(|uri| match uri.scheme {
            Scheme::Sip | Scheme::Sips => true,
            Scheme::Tel | Scheme::Other => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sip_uris_are_told_from_others() {
        for (text, is) in [
            ("sip:sales@pbx.example.com", true),
            ("sips:sales@pbx.example.com:5061;transport=tcp", true),
            ("sip:[2001:db8::1]", true),
            ("sip:a@b?Replaces=x", true),
            ("sales@pbx.example.com", false),
            ("tel:+442071838750", false),
            ("https://pbx.example.com", false),
            ("sip:", false),
            ("sip:a b@c", false),
            ("<sip:a@b>", false),
            ("sip:a@b\r\nX: y", false),
            ("sip:é@b", false),
        ] {
            assert_eq!(is_sip_uri(text), is, "{text}");
        }
        assert!(!is_sip_uri(&format!("sip:{}@b", "a".repeat(500))));
    }
}
