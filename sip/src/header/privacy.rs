//! Privacy (RFC 3323, RFC 3325, RFC 7044), as far as it hides the identity of a request's sender.

use super::name_addr::NameAddr;
use super::uri::{Host, Uri};

/// URI of an anonymous caller (RFC 3323 §4.1.1.3).
pub const ANONYMOUS_URI: &str = "sip:anonymous@anonymous.invalid";

/// Privacy values that hide the sender's identity. `session` is about the media; `critical` and `none` ask for nothing themselves.
const HIDING: [&[u8]; 4] = [b"id", b"user", b"header", b"history"];

/// Returns whether a Privacy value asks to hide the sender's identity.
pub fn hides(wishes: &[u8]) -> bool {
    // RFC 3323 separates them by semicolons; commas occur as well.
    let mut wishes = wishes.split(|octet| matches!(octet, b';' | b','));
    wishes.any(|wish| {
        let wish = wish.trim_ascii();
        HIDING
            .iter()
            .any(|hiding| wish.eq_ignore_ascii_case(hiding))
    })
}

/// Returns whether a From is anonymous: its host is `anonymous.invalid` or its user `anonymous`.
pub fn names_nobody(from: &[u8]) -> bool {
    let address = NameAddr::parse(from).ok();
    let uri = address.and_then(|address| Uri::parse(address.uri).ok());
    uri.is_some_and(|uri| is_nobody(&uri))
}

/// Returns whether a URI is anonymous: its host is `anonymous.invalid` or its user `anonymous`.
pub fn is_nobody(uri: &Uri<'_>) -> bool {
    let is_nowhere =
        matches!(uri.host, Host::Name(name) if name.eq_ignore_ascii_case(b"anonymous.invalid"));
    let is_unnamed = |user: &[u8]| user.eq_ignore_ascii_case(b"anonymous");
    is_nowhere || uri.user.is_some_and(is_unnamed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_that_keep_a_name_back_are_told_from_others() {
        for (wishes, hiding) in [
            ("id", true),
            ("user", true),
            ("Header", true),
            ("history", true),
            ("none; ID ;critical", true),
            ("critical,id", true),
            ("none", false),
            ("session", false),
            ("critical", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(hides(wishes.as_bytes()), hiding, "{wishes}");
        }
    }

    #[test]
    fn a_from_that_names_nobody_is_known() {
        for (from, nobody) in [
            (
                "\"Anonymous\" <sip:anonymous@anonymous.invalid>;tag=1",
                true,
            ),
            ("<sip:c8oqz84zk7z@Anonymous.Invalid>", true),
            ("<sip:anonymous.invalid>", true),
            ("sip:Anonymous@pbx.example", true),
            ("\"Anonymous\" <sip:+441632960001@pbx.example>", false),
            ("<sip:anonymous2@pbx.example>", false),
            ("<tel:+441632960001>", false),
            ("nonsense", false),
        ] {
            assert_eq!(names_nobody(from.as_bytes()), nobody, "{from}");
        }
    }
}
