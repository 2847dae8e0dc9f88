//! `name-addr` and `addr-spec` with their header parameters: From, To, Contact, Route, Refer-To and the like
//! (RFC 3261 §20.10, §25.1). The URI inside is parsed only on request.

use std::fmt;

use super::params::{self, Params};
use super::text;
use super::uri::{Uri, UriFault};

/// One address of a header: display name, URI, header parameters.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct NameAddr<'a> {
    /// The display name as sent, quotes and escapes included; `None` where there is none.
    pub display: Option<&'a [u8]>,
    /// The URI, without angle brackets and not yet parsed.
    pub uri: &'a [u8],
    /// The header's parameters, `;tag=x`, or nothing.
    pub params: &'a [u8],
}

/// Reason why an address can't be cut into its parts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameAddrFault {
    /// A quote or an angle bracket is never closed.
    #[error("an open quote or angle bracket")]
    Open,
    /// No URI between the angle brackets, or nothing at all.
    #[error("no URI")]
    Empty,
    /// Something other than parameters behind the closing bracket, or than `<` behind a quoted name.
    #[error("stray text")]
    Stray,
}

impl<'a> NameAddr<'a> {
    /// Reads one address; a list has to be cut into its elements first.
    pub fn parse(value: &'a [u8]) -> Result<Self, NameAddrFault> {
        let value = text::trim(value);
        match opening(value)? {
            Some(open) => Self::bracketed(text::trim(&value[..open]), &value[open + 1..]),
            None => Self::bare(value),
        }
    }

    fn bracketed(display: &'a [u8], behind: &'a [u8]) -> Result<Self, NameAddrFault> {
        let close = memchr::memchr(b'>', behind).ok_or(NameAddrFault::Open)?;
        let uri = text::trim(&behind[..close]);
        let params = text::trim(&behind[close + 1..]);
        if uri.is_empty() {
            return Err(NameAddrFault::Empty);
        }
        if !matches!(params, [] | [b';', ..]) {
            return Err(NameAddrFault::Stray);
        }
        // A tag of ours may be appended, and an open quote would swallow it.
        if !params::are_closed(params) {
            return Err(NameAddrFault::Open);
        }

        Ok(Self {
            display: (!display.is_empty()).then_some(display),
            uri,
            params,
        })
    }

    /// Reads an address without angle brackets: every parameter belongs to the header, none to the URI (RFC 3261 §20).
    fn bare(value: &'a [u8]) -> Result<Self, NameAddrFault> {
        let params_at = memchr::memchr(b';', value).unwrap_or(value.len());
        let uri = text::trim(&value[..params_at]);
        if uri.is_empty() {
            return Err(NameAddrFault::Empty);
        }
        if uri
            .iter()
            .copied()
            .any(|octet| text::is_blank(octet) || octet == b'>')
        {
            return Err(NameAddrFault::Stray);
        }

        let params = &value[params_at..];
        if !params::are_closed(params) {
            return Err(NameAddrFault::Open);
        }

        Ok(Self {
            display: None,
            uri,
            params,
        })
    }

    /// The value of a header parameter: `Some(None)` if the parameter has no value.
    pub fn param(&self, name: &str) -> Option<Option<&'a [u8]>> {
        params::find(self.params, name)
    }

    /// The header's parameters in order.
    pub const fn params(&self) -> Params<'a> {
        Params::new(self.params)
    }

    /// The tag of a From or To.
    pub fn tag(&self) -> Option<&'a [u8]> {
        // An empty tag tells no dialogs apart, so it counts as none. In a To, our answer puts a tag in its place.
        self.param("tag").flatten().filter(|tag| !tag.is_empty())
    }

    /// Parses the URI.
    pub fn parse_uri(&self) -> Result<Uri<'a>, UriFault> {
        Uri::parse(self.uri)
    }

    /// The display name without its quotes.
    pub fn display_text(&self) -> Option<std::borrow::Cow<'a, [u8]>> {
        self.display.map(text::unquote)
    }
}

/// Position of the opening bracket, if it comes before any parameter: `sip:a@b;x=<y>` has none.
fn opening(value: &[u8]) -> Result<Option<usize>, NameAddrFault> {
    if let [b'"', ..] = value {
        let (_, behind) = text::cut_quoted(value).ok_or(NameAddrFault::Open)?;
        let rest = text::trim(behind);
        return match rest {
            [b'<', ..] => Ok(Some(value.len() - rest.len())),
            _ => Err(NameAddrFault::Stray),
        };
    }
    Ok(memchr::memchr2(b'<', b';', value).filter(|at| value[*at] == b'<'))
}

impl fmt::Display for NameAddr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(display) = self.display_text() {
            write!(f, "{} ", text::Quoted(&display))?;
        }
        write!(
            f,
            "<{}>{}",
            text::Octets(self.uri),
            text::Octets(self.params)
        )
    }
}

impl fmt::Debug for NameAddr<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_uris_and_parameters_are_told_apart() {
        for (value, display, uri, params) in [
            ("<sip:a@b>", None, "sip:a@b", ""),
            ("Alice <sip:a@b>;tag=1", Some("Alice"), "sip:a@b", ";tag=1"),
            (
                "The Best One <sip:a@b;lr> ; tag=1",
                Some("The Best One"),
                "sip:a@b;lr",
                "; tag=1",
            ),
            (
                r#""A \"<x>\", B"<sip:a@b>"#,
                Some(r#""A \"<x>\", B""#),
                "sip:a@b",
                "",
            ),
            ("\"\" \r\n <sip:a@b>", Some("\"\""), "sip:a@b", ""),
            ("sip:a@b", None, "sip:a@b", ""),
            ("sip:a@b;tag=1", None, "sip:a@b", ";tag=1"),
            ("sip:a@b ;x=<y>", None, "sip:a@b", ";x=<y>"),
            ("tel:+12015550123", None, "tel:+12015550123", ""),
            (" < sip:a@b > ", None, "sip:a@b", ""),
        ] {
            let read = NameAddr::parse(value.as_bytes())
                .unwrap_or_else(|fault| panic!("{value}: {fault}"));
            assert_eq!(read.display, display.map(str::as_bytes), "{value}");
            assert_eq!(read.uri, uri.as_bytes(), "{value}");
            assert_eq!(read.params, params.as_bytes(), "{value}");
        }
    }

    #[test]
    fn broken_addresses_are_refused() {
        for (value, fault) in [
            ("", NameAddrFault::Empty),
            ("<>", NameAddrFault::Empty),
            (";tag=1", NameAddrFault::Empty),
            ("<sip:a@b", NameAddrFault::Open),
            (r#""Alice <sip:a@b>"#, NameAddrFault::Open), // RFC 4475 §3.1.2.6
            (r#""Alice""#, NameAddrFault::Stray),
            ("<sip:a@b> x", NameAddrFault::Stray),
            ("<sip:a@b>, <sip:c@d>", NameAddrFault::Stray),
            ("Alice sip:a@b", NameAddrFault::Stray),
        ] {
            assert_eq!(NameAddr::parse(value.as_bytes()), Err(fault), "{value}");
        }
    }

    #[test]
    fn a_tag_is_a_header_parameter() {
        for (value, tag) in [
            ("<sip:a@b>;tag=88sja8x", Some("88sja8x")),
            ("<sip:a@b;tag=uri>", None),
            ("sip:a@b;x=y;TAG=1", Some("1")),
            ("<sip:a@b>;tag", None),
            ("<sip:a@b>;tag=", None),
        ] {
            let read = NameAddr::parse(value.as_bytes()).unwrap();
            assert_eq!(read.tag(), tag.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn the_canonical_form_quotes_the_name() {
        let read = NameAddr::parse(br"Alice B <sip:a@b>;tag=1").unwrap();
        assert_eq!(read.to_string(), r#""Alice B" <sip:a@b>;tag=1"#);
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = NameAddr::parse(&octets);
        }

        #[test]
        fn what_is_printed_reads_as_the_same(value in "[\"\\\\<>;=, a:@]{0,30}") {
            if let Ok(read) = NameAddr::parse(value.as_bytes()) {
                let printed = read.to_string();
                let again = NameAddr::parse(printed.as_bytes()).expect("the canonical form is an address");
                prop_assert_eq!((again.uri, again.tag()), (read.uri, read.tag()));
            }
        }
    }
}
