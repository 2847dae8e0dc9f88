//! Refer-To: the target of a REFER (RFC 3515 §2.1), perhaps with a method, and with headers for the request that
//! the REFER causes (RFC 3261 §19.1.1, RFC 3891).

use std::borrow::Cow;
use std::fmt;

use super::name_addr::NameAddr;
use super::text;
use super::uri::{Escaped, Uri};

/// A Refer-To value, its URI read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ReferTo<'a> {
    /// The whole address.
    pub name_addr: NameAddr<'a>,
    /// Its URI.
    pub uri: Uri<'a>,
}

impl<'a> ReferTo<'a> {
    /// Reads the header's value; `None` if address or URI can't be read.
    pub fn parse(value: &'a [u8]) -> Option<Self> {
        let name_addr = NameAddr::parse(value).ok()?;
        let uri = name_addr.parse_uri().ok()?;
        Some(Self { name_addr, uri })
    }

    /// The method to use; INVITE if the URI names none.
    pub fn method(&self) -> &'a [u8] {
        self.uri.param("method").flatten().unwrap_or(b"INVITE")
    }

    /// The first header of that name for the request that the REFER causes, unescaped.
    pub fn header(&self, name: &str) -> Option<Cow<'a, [u8]>> {
        self.uri
            .header_fields()
            .find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, value)| value)
    }

    /// The value of the Replaces header inside, for [`super::replaces::Replaces::parse`].
    pub fn replaces(&self) -> Option<Cow<'a, [u8]>> {
        self.header("Replaces")
    }
}

/// Prints a Refer-To value: a URI and the headers to send along, escaped into it. The URI must have no headers of its own.
#[derive(Copy, Clone, Debug)]
pub struct ReferTarget<'a> {
    /// URI to call.
    pub uri: &'a [u8],
    /// Names and plain values.
    pub headers: &'a [(&'a str, &'a [u8])],
}

impl fmt::Display for ReferTarget<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", text::Octets(self.uri))?;
        for (index, (name, value)) in self.headers.iter().enumerate() {
            let separator = if index == 0 { '?' } else { '&' };
            write!(
                f,
                "{separator}{}={}",
                Escaped(name.as_bytes()),
                Escaped(value)
            )?;
        }
        f.write_str(">")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_target_a_method_and_headers() {
        for (value, user, method, replaces) in [
            ("<sip:bob@example.com>", "bob", "INVITE", None),
            ("sip:bob@example.com", "bob", "INVITE", None),
            (
                "Bob <sip:bob@example.com;method=SUBSCRIBE?Accept=x>",
                "bob",
                "SUBSCRIBE",
                None,
            ),
            (
                "<sip:bob@example.com?X=y&Replaces=12345%40192.0.2.1%3Bto-tag%3D1%3Bfrom-tag%3D2>",
                "bob",
                "INVITE",
                Some("12345@192.0.2.1;to-tag=1;from-tag=2"),
            ),
            ("<tel:+14155550123>", "+14155550123", "INVITE", None),
        ] {
            let read = ReferTo::parse(value.as_bytes()).unwrap();
            assert_eq!(&*read.uri.user_unescaped(), user.as_bytes(), "{value}");
            assert_eq!(read.method(), method.as_bytes(), "{value}");
            assert_eq!(
                read.replaces().as_deref(),
                replaces.map(str::as_bytes),
                "{value}"
            );
        }

        for value in ["", "<>", "<sip:>", "bob", "<sip:a@b@c>"] {
            assert_eq!(ReferTo::parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn headers_survive_the_way_into_a_uri_and_back() {
        let headers: [(&str, &[u8]); 2] = [
            (
                "X-PLATFORM-SUMMARY",
                "a \"summary\" & <more>; caf\u{e9}=1?\r\n".as_bytes(),
            ),
            ("Replaces", b"a@b;to-tag=1;from-tag=2"),
        ];

        let printed = ReferTarget {
            uri: b"sip:bob@example.com",
            headers: &headers,
        }
        .to_string();

        let read = ReferTo::parse(printed.as_bytes()).unwrap();
        for (name, value) in headers {
            assert_eq!(read.header(name).as_deref(), Some(value), "{name}");
        }

        assert_eq!(
            ReferTarget {
                uri: b"sip:bob@example.com",
                headers: &[]
            }
            .to_string(),
            "<sip:bob@example.com>"
        );
    }

    proptest! {
        #[test]
        fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = ReferTo::parse(&octets).map(|read| (read.replaces(), read.method()));
        }

        #[test]
        fn any_value_survives(value in proptest::collection::vec(any::<u8>(), 0..60)) {
            let headers: [(&str, &[u8]); 1] = [("X", &value)];
            let printed = ReferTarget { uri: b"sip:b@c", headers: &headers }.to_string();
            prop_assert_eq!(ReferTo::parse(printed.as_bytes()).unwrap().header("x").unwrap().into_owned(), value);
        }
    }
}
