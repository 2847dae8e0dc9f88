//! Route sets: taken from Record-Route, written as Route, loose and strict (RFC 3261 §12.1, §12.2.1.1, §16.12.1.1).
//!
//! A set is kept as the text of its Route header, without display names: `<sip:p1;lr>,<sip:p2;lr>`.

use smallvec::SmallVec;

use crate::header::name_addr::NameAddr;
use crate::header::text;
use crate::header::uri::Uri;
use crate::wire::print::Head;
use crate::wire::{HeaderName, Message};

/// Most routes of a dialog, and most octets of all of them: each leg of a call keeps a set for each of its early dialogs.
const MOST_ROUTES: usize = 64;
const MOST_OCTETS: usize = 8_192;

/// Reason why a route set can't be used.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RouteFault {
    Unreadable,
    TooMany,
    TooLong,
}

impl RouteFault {
    /// The reason as a sentence about the message.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "its Record-Route can't be read",
            Self::TooMany => "it has more than 64 Record-Routes",
            Self::TooLong => "its Record-Routes have more than 8192 octets",
        }
    }
}

/// The routes in the order of the Record-Route headers, for the UAS.
pub(super) fn as_recorded(message: &Message<'_>) -> Result<Vec<u8>, RouteFault> {
    joined(message.elements(HeaderName::RecordRoute))
}

/// The routes in the reverse order, for the UAC.
pub(super) fn reversed(message: &Message<'_>) -> Result<Vec<u8>, RouteFault> {
    let elements: SmallVec<[&[u8]; 4]> = message.elements(HeaderName::RecordRoute).collect();
    joined(elements.into_iter().rev())
}

fn joined<'m>(elements: impl Iterator<Item = &'m [u8]>) -> Result<Vec<u8>, RouteFault> {
    let mut routes = Vec::new();
    for (before, element) in elements.enumerate() {
        // An unreadable route isn't left out, since requests would then go around a proxy that has to stay in the path.
        let route = NameAddr::parse(element).map_err(|_| RouteFault::Unreadable)?;
        route.parse_uri().map_err(|_| RouteFault::Unreadable)?;
        if !routes.is_empty() {
            routes.push(b',');
        }
        for piece in [b"<", route.uri, b">", route.params] {
            routes.extend_from_slice(piece);
        }
        if before >= MOST_ROUTES {
            return Err(RouteFault::TooMany);
        }
        if routes.len() > MOST_OCTETS {
            return Err(RouteFault::TooLong);
        }
    }
    Ok(routes)
}

/// The URI of the first route.
pub(super) fn first(routes: &[u8]) -> Option<&[u8]> {
    let behind = routes.strip_prefix(b"<")?;
    Some(&behind[..memchr::memchr(b'>', behind)?])
}

/// The URIs of all routes, in their order.
pub(super) fn uris(routes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let elements = text::elements(routes);
    elements.filter_map(|element| Some(NameAddr::parse(element).ok()?.uri))
}

/// Returns true for a strict route, which has to become the Request-URI (RFC 2543).
pub(super) fn is_strict(route: &[u8]) -> bool {
    Uri::parse(route).is_ok_and(|uri| !uri.is_loose())
}

/// Writes the Route header, if the set isn't empty. A strict first route becomes the Request-URI instead, and the target goes
/// to the end.
pub(super) fn write(routes: &[u8], target: &[u8], head: &mut Head<'_>) {
    match first(routes) {
        None => {}
        Some(route) if !is_strict(route) => head.line("Route", routes),
        Some(_) => {
            let rest = text::find_outside(routes, b',').map_or(&b""[..], |at| &routes[at + 1..]);
            let comma: &[u8] = if rest.is_empty() { b"" } else { b"," };
            head.line("Route", &[rest, comma, b"<", target, b">"].concat());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Framing, lex};

    #[test]
    fn a_route_set_is_bounded() {
        for (name, number, length, fault) in [
            ("as many as may be", 64, 100, None),
            ("one more", 65, 20, Some(RouteFault::TooMany)),
            ("too long together", 64, 200, Some(RouteFault::TooLong)),
            ("as long as may be", 2, 4_084, None),
            ("one octet more", 2, 4_085, Some(RouteFault::TooLong)),
        ] {
            let route = format!("Record-Route: <sip:{}@h;lr>\r\n", "p".repeat(length));
            let octets = format!(
                "INVITE sip:a@b SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>\r\n\
                 Call-ID: x\r\nCSeq: 1 INVITE\r\n{}\r\n",
                route.repeat(number)
            );
            let message = lex(octets.as_bytes(), Framing::Datagram).expect("an INVITE");
            assert_eq!(as_recorded(&message).err(), fault, "{name}");
            assert_eq!(reversed(&message).err(), fault, "{name}");
        }
    }
}
