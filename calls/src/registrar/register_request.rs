//! Contacts in a REGISTER, read as RFC 3261 §10.3 steps 6 and 7 demand. Doesn't know the sender.

use std::net::IpAddr;
use std::time::Duration;

use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::text;
use trunkline_sip::header::uri::Scheme;
use trunkline_sip::wire::{HeaderName, Message};

use crate::parts::preloaded_route;
use crate::parts::preloaded_route::PreloadedRouteFault;

/// Longer Contact URIs are refused.
const LONGEST_URI: usize = 512;
/// Longer instance names are left out.
const LONGEST_INSTANCE: usize = 128;
/// Contacts of one request. With more it is malformed.
const MOST: usize = 20;
/// Expiry in place of an unreadable one (RFC 3261 §10.2.1.1).
const HOUR: Duration = Duration::from_secs(3600);

/// A valid request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RegisterRequest {
    /// Query: list the bindings.
    Query,
    /// Remove all bindings (`Contact: *`).
    RemoveAll,
    /// Make, refresh or remove these.
    Change(Vec<Contact>),
}

/// Reads the path of a REGISTER as a Route header for requests to its Contacts (RFC 3327 §5.3); `None` without one.
///
/// It is taken only if the REGISTER came from the host of the first hop: the path of anybody else would have calls sent to a third party. A host
/// name isn't looked up for that, since requests go to the source of the REGISTER whatever the name.
pub(super) fn path(
    message: &Message<'_>,
    source: IpAddr,
) -> Result<Option<Box<str>>, PreloadedRouteFault> {
    let Some(route) = preloaded_route::read(message, HeaderName::Path)? else {
        return Ok(None);
    };
    let first = preloaded_route::first_uri(&route).and_then(|uri| uri.host.address());
    let is_theirs = first.is_none_or(|first| first.to_canonical() == source.to_canonical());
    Ok(is_theirs.then_some(route))
}

/// One Contact.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Contact {
    /// The URI as sent.
    pub(super) uri: Box<str>,
    /// Expiry, at most the longest; zero removes the binding.
    pub(super) expires: Duration,
    /// Preference among the Contacts, in thousandths.
    pub(super) q: Option<u16>,
    /// `+sip.instance` (RFC 5626 §4.1), without its quotes.
    pub(super) instance: Option<Box<str>>,
}

/// Fault of a request.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RegisterFault {
    /// The request is malformed: 400.
    Malformed,
    /// A Contact expires too soon: 423.
    TooBrief,
}

impl RegisterRequest {
    /// Reads the contacts of a REGISTER. One that expires before `shortest` is a fault, one after `longest` is cut.
    pub(super) fn read(
        message: &Message<'_>,
        shortest: Duration,
        longest: Duration,
    ) -> Result<Self, RegisterFault> {
        let usual = match message.first(HeaderName::Expires) {
            Some(value) => text::delta_seconds(text::trim(value)).map_or(HOUR, seconds),
            None => longest,
        };

        let mut contacts = Vec::new();
        for element in message.elements(HeaderName::Contact) {
            if text::trim(element) == b"*" {
                // RFC 3261 §10.3 step 6: beside other Contacts, or with another expiry, "the server MUST return a 400".
                let is_alone = message.elements(HeaderName::Contact).count() == 1;
                let is_removal = message.first(HeaderName::Expires).is_some() && usual.is_zero();
                return if is_alone && is_removal {
                    Ok(Self::RemoveAll)
                } else {
                    Err(RegisterFault::Malformed)
                };
            }

            if contacts.len() == MOST {
                return Err(RegisterFault::Malformed);
            }
            contacts.push(contact(element, usual, longest)?);
        }

        // RFC 3261 §10.3 step 7: 423 is only for an interval "greater than zero"; zero removes the binding.
        let is_brief = |contact: &Contact| !contact.expires.is_zero() && contact.expires < shortest;
        if contacts.iter().any(is_brief) {
            return Err(RegisterFault::TooBrief);
        }

        Ok(if contacts.is_empty() {
            Self::Query
        } else {
            Self::Change(contacts)
        })
    }
}

fn contact(element: &[u8], usual: Duration, longest: Duration) -> Result<Contact, RegisterFault> {
    let address = NameAddr::parse(element).map_err(|_| RegisterFault::Malformed)?;
    let uri = address.parse_uri().map_err(|_| RegisterFault::Malformed)?;
    let text = std::str::from_utf8(address.uri).map_err(|_| RegisterFault::Malformed)?;
    // RFC 3261 §10.2.1 allows other schemes in Contact, but no call could be sent there.
    if !matches!(uri.scheme, Scheme::Sip | Scheme::Sips) || text.len() > LONGEST_URI {
        return Err(RegisterFault::Malformed);
    }

    let expires = match address.param("expires").flatten() {
        Some(value) => text::delta_seconds(&text::unquote(value)).map_or(HOUR, seconds),
        None => usual,
    };
    Ok(Contact {
        uri: text.into(),
        expires: expires.min(longest),
        q: address.param("q").flatten().and_then(thousandths),
        instance: address.param("+sip.instance").flatten().and_then(instance),
    })
}

const fn seconds(count: u32) -> Duration {
    Duration::from_secs(count as u64)
}

/// `0`, `0.7`, `1.000` (§25.1, qvalue).
fn thousandths(value: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_decimal = part.len() <= 3 && part.bytes().all(|octet| octet.is_ascii_digit());
    let part: u16 = format!("{part:0<3}").parse().ok().filter(|_| is_decimal)?;
    match (whole, part) {
        ("0", part) => Some(part),
        ("1", 0) => Some(1000),
        _ => None,
    }
}

fn instance(value: &[u8]) -> Option<Box<str>> {
    let name = text::unquote(value);
    let is_plain = name.len() <= LONGEST_INSTANCE
        && name
            .iter()
            .all(|octet| octet.is_ascii_graphic() && !matches!(octet, b'"' | b'\\'));
    let name = std::str::from_utf8(&name).ok().filter(|_| is_plain)?;
    Some(name.into())
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    fn register(lines: &str) -> String {
        format!(
            "REGISTER sip:us SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@us>;tag=1\r\nTo: <sip:a@us>\r\n\
             Call-ID: x\r\nCSeq: 1 REGISTER\r\n{lines}\r\n"
        )
    }

    fn read(lines: &str) -> Result<RegisterRequest, RegisterFault> {
        let octets = register(lines);
        let message = lex(octets.as_bytes(), Framing::Datagram).expect("a REGISTER");
        RegisterRequest::read(&message, Duration::from_secs(60), Duration::from_secs(3600))
    }

    #[test]
    fn a_path_is_taken_from_the_proxy_that_it_names_first() {
        const EDGE: &str = "Path: <sip:192.0.2.9;lr>\r\n";
        let source = IpAddr::from([192, 0, 2, 9]);
        for (case, lines, expected) in [
            ("none", "", Ok(None)),
            ("the proxy's address", EDGE, Ok(Some("<sip:192.0.2.9;lr>"))),
            (
                "a name",
                "Path: \"Edge\" <sip:edge.example:5070;lr>;x=y\r\n",
                Ok(Some("<sip:edge.example:5070;lr>")),
            ),
            (
                "several, in two lines",
                &format!("{EDGE}Path: <sip:in@core.example;lr;ob>\r\n"),
                Ok(Some("<sip:192.0.2.9;lr>, <sip:in@core.example;lr;ob>")),
            ),
            ("a third party", "Path: <sip:192.0.2.10;lr>\r\n", Ok(None)),
            (
                "a strict router",
                "Path: <sip:192.0.2.9>\r\n",
                Err(PreloadedRouteFault::Strict),
            ),
            (
                "another scheme",
                "Path: <tel:+1>\r\n",
                Err(PreloadedRouteFault::Scheme),
            ),
        ] {
            let octets = register(lines);
            let message = lex(octets.as_bytes(), Framing::Datagram).expect("a REGISTER");
            let found = path(&message, source);
            let expected = expected.map(|path| path.map(Into::into));
            assert_eq!(found, expected, "{case}");
        }
    }

    fn contact(uri: &str, expires: u64) -> Contact {
        Contact {
            uri: uri.into(),
            expires: Duration::from_secs(expires),
            q: None,
            instance: None,
        }
    }

    #[test]
    fn contacts_and_expiries_are_read() {
        let one = |uri, expires| Ok(RegisterRequest::Change(vec![contact(uri, expires)]));
        let cases = [
            ("no contact", "Expires: 60\r\n", Ok(RegisterRequest::Query)),
            (
                "the header's time",
                "Contact: <sip:a@h>\r\nExpires: 120\r\n",
                one("sip:a@h", 120),
            ),
            (
                "the contact's own time first",
                "m: <sip:a@h;rinstance=7>;expires=90\r\nExpires: 120\r\n",
                one("sip:a@h;rinstance=7", 90),
            ),
            ("no time", "Contact: <sip:a@h>\r\n", one("sip:a@h", 3600)),
            (
                "no number",
                "Contact: <sip:a@h>;expires=soon\r\n",
                one("sip:a@h", 3600),
            ),
            (
                "more than there is",
                "Contact: <sip:a@h>;expires=99999999999\r\n",
                one("sip:a@h", 3600),
            ),
            (
                "removal",
                "Contact: sip:a@h;expires=0\r\n",
                one("sip:a@h", 0),
            ),
            (
                "too brief",
                "Contact: <sip:a@h>;expires=59\r\n",
                Err(RegisterFault::TooBrief),
            ),
            (
                "all",
                "Contact: *\r\nExpires: 0\r\n",
                Ok(RegisterRequest::RemoveAll),
            ),
            (
                "all, but not now",
                "Contact: *\r\nExpires: 60\r\n",
                Err(RegisterFault::Malformed),
            ),
            (
                "all, without a time",
                "Contact: *\r\n",
                Err(RegisterFault::Malformed),
            ),
            (
                "all and one",
                "Contact: *, <sip:a@h>\r\nExpires: 0\r\n",
                Err(RegisterFault::Malformed),
            ),
            (
                "a number to call",
                "Contact: <tel:+4420>\r\n",
                Err(RegisterFault::Malformed),
            ),
            (
                "no address",
                "Contact: <>\r\n",
                Err(RegisterFault::Malformed),
            ),
            (
                "two",
                "Contact: <sip:a@h>;expires=60, \"B, b\" <sip:b@h>\r\nContact: <sip:c@h>;expires=0\r\n",
                Ok(RegisterRequest::Change(vec![
                    contact("sip:a@h", 60),
                    contact("sip:b@h", 3600),
                    contact("sip:c@h", 0),
                ])),
            ),
        ];

        for (name, lines, expected) in cases {
            assert_eq!(read(lines), expected, "{name}");
        }
    }

    #[test]
    fn preference_and_instance_are_kept() {
        let asked = read("Contact: <sip:a@h>;q=0.7;+sip.instance=\"<urn:uuid:1>\"\r\n");
        let expected = Contact {
            q: Some(700),
            instance: Some("<urn:uuid:1>".into()),
            ..contact("sip:a@h", 3600)
        };
        assert_eq!(asked, Ok(RegisterRequest::Change(vec![expected])));

        let values = [
            ("1", Some(1000)),
            ("0.05", Some(50)),
            ("1.5", None),
            ("0.1234", None),
            (".5", None),
            ("x", None),
        ];
        for (value, expected) in values {
            assert_eq!(thousandths(value.as_bytes()), expected, "{value}");
        }
    }
}
