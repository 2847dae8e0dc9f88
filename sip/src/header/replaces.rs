//! Replaces: the dialog that an INVITE takes over (RFC 3891). It also travels escaped inside a Refer-To URI.

use std::fmt;

use super::params::Params;
use super::text;

/// `Replaces: 98732@sip.example.com;from-tag=r33th4x0r;to-tag=ff87ff`. The recipient's dialog gives the tags their names:
/// `to_tag` is its local tag.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Replaces<'a> {
    /// Call-ID of the dialog.
    pub call_id: &'a [u8],
    /// The recipient's tag.
    pub to_tag: &'a [u8],
    /// The tag of the recipient's peer.
    pub from_tag: &'a [u8],
    /// True if only an early dialog may be replaced (`early-only`).
    pub early_only: bool,
}

impl<'a> Replaces<'a> {
    /// Reads the header's value; `None` unless Call-ID and each tag occur exactly once.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let (call_id, params) = value.split_at(memchr::memchr(b';', value)?);
        let call_id = text::trim(call_id);
        let is_word = !call_id.is_empty() && !call_id.iter().any(|octet| text::is_blank(*octet));
        is_word.then_some(Self {
            call_id,
            to_tag: only(params, "to-tag")?,
            from_tag: only(params, "from-tag")?,
            early_only: Params::new(params).named("early-only").is_some(),
        })
    }
}

fn only<'a>(params: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut named = Params::new(params).filter(|param| param.is(name));
    let value = named.next()?.value.filter(|value| text::is_token(value))?;
    named.next().is_none().then_some(value)
}

impl fmt::Display for Replaces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [call_id, to_tag, from_tag] =
            [self.call_id, self.to_tag, self.from_tag].map(text::Octets);
        write!(f, "{call_id};to-tag={to_tag};from-tag={from_tag}")?;
        f.write_str(if self.early_only { ";early-only" } else { "" })
    }
}

impl fmt::Debug for Replaces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_dialog_is_named_by_three_values() {
        for (value, printed) in [
            (
                "98732@sip.example.com\r\n ;from-tag=r33th4x0r ;to-tag=ff87ff",
                Some("98732@sip.example.com;to-tag=ff87ff;from-tag=r33th4x0r"),
            ),
            (
                "a;TO-TAG=1;From-Tag=2;early-only",
                Some("a;to-tag=1;from-tag=2;early-only"),
            ),
            ("a;to-tag=1;from-tag=0;x=y", Some("a;to-tag=1;from-tag=0")),
            ("a", None),
            ("a;to-tag=1", None),
            (";to-tag=1;from-tag=2", None),
            ("a b;to-tag=1;from-tag=2", None),
            ("a;to-tag=1;from-tag=2;to-tag=3", None),
            ("a;to-tag;from-tag=2", None),
            ("a;to-tag=1 2;from-tag=2", None),
        ] {
            let read = Replaces::parse(value.as_bytes()).map(|replaces| replaces.to_string());
            assert_eq!(read.as_deref(), printed, "{value}");
        }
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Replaces::parse(&octets);
        }
    }
}
