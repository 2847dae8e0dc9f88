//! Privacy (RFC 3323, RFC 3325, RFC 7044): what a request's sender wants hidden.

use super::name_addr::NameAddr;
use super::uri::{Host, Uri};

/// URI of an anonymous caller (RFC 3323 §4.1.1.3).
pub const ANONYMOUS_URI: &str = "sip:anonymous@anonymous.invalid";

/// Levels of privacy that a sender wants. Each includes those before it.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Privacy {
    /// None: nothing is hidden.
    #[default]
    None,
    /// The identity (`id`, `history`): headers that name the sender.
    Identity,
    /// `user`, and an anonymous From: also informational headers of the user agent (RFC 3323 §5.3).
    User,
    /// `header`: also what the sender's software tells the other side (User-to-User).
    Header,
}

/// Levels by their names (RFC 3323 §4.2, RFC 3325 §9.3, RFC 7044 §4.1). `critical` and `none` ask for nothing themselves.
const LEVELS: [(&[u8], Privacy); 6] = [
    (b"id", Privacy::Identity),
    (b"history", Privacy::Identity),
    (b"user", Privacy::User),
    (b"header", Privacy::Header),
    (b"critical", Privacy::None),
    (b"none", Privacy::None),
];

impl Privacy {
    /// The level that a value of Privacy asks for.
    pub fn of(wishes: &[u8]) -> Self {
        let levels = tokens(wishes).filter_map(level_of);
        levels.max().unwrap_or_default()
    }

    /// Returns whether headers that name the sender are withheld.
    pub fn hides_identity(self) -> bool {
        self >= Self::Identity
    }
}

/// Returns whether these values of Privacy require a level that can't be provided: RFC 3323 §4.2 has `critical` fail the request then. Media
/// cross as they are offered, so that `session` is one.
pub fn is_unmet<'v>(values: impl Iterator<Item = &'v [u8]>) -> bool {
    let (mut is_critical, mut is_strange) = (false, false);
    for wish in values.flat_map(tokens) {
        is_critical |= wish.eq_ignore_ascii_case(b"critical");
        is_strange |= level_of(wish).is_none();
    }
    is_critical && is_strange
}

/// RFC 3323 separates them by semicolons; commas occur as well.
fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let wishes = value.split(|octet| matches!(octet, b';' | b','));
    wishes
        .map(<[u8]>::trim_ascii)
        .filter(|wish| !wish.is_empty())
}

fn level_of(wish: &[u8]) -> Option<Privacy> {
    let known = LEVELS
        .iter()
        .find(|(name, _)| wish.eq_ignore_ascii_case(name));
    known.map(|(_, level)| *level)
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
    fn each_wish_has_its_level_and_a_critical_one_has_to_be_met() {
        for (wishes, level, unmet) in [
            ("id", Privacy::Identity, false),
            ("user", Privacy::User, false),
            ("Header", Privacy::Header, false),
            ("history", Privacy::Identity, false),
            ("none; ID ;critical", Privacy::Identity, false),
            ("critical,id;header", Privacy::Header, false),
            ("none", Privacy::None, false),
            ("session", Privacy::None, false),
            ("critical", Privacy::None, false),
            ("identity", Privacy::None, false),
            ("", Privacy::None, false),
            ("session;critical", Privacy::None, true),
            ("critical;user;moon", Privacy::User, true),
        ] {
            assert_eq!(Privacy::of(wishes.as_bytes()), level, "{wishes}");
            assert_eq!(is_unmet([wishes.as_bytes()].into_iter()), unmet, "{wishes}");
        }
        assert!(is_unmet([&b"session"[..], b"critical"].into_iter()));
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
