//! Route of requests outside a dialog, as a registration names it: the Path of a REGISTER (RFC 3327) and the Service-Route in the answer to one
//! (RFC 3608). It is kept as the value of a Route header, without display names and header parameters: `<sip:p1;lr>, <sip:p2;lr>`.

use std::fmt;

use trunkline_sip::flow::Transport;
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::uri::{Scheme, Uri};
use trunkline_sip::wire::{HeaderName, Message};

/// Most hops of a route.
const MOST_HOPS: usize = 8;
/// Most octets of a hop's URI.
const LONGEST_URI: usize = 512;

/// Reason why a route can't be used.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum PreloadedRouteFault {
    Unreadable,
    Scheme,
    TooMany,
    TooLong,
    Strict,
}

impl PreloadedRouteFault {
    /// The reason as a sentence about the route.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "a hop of it can't be read",
            Self::Scheme => "a hop of it is no sip: or sips: URI",
            Self::TooMany => "it has more than 8 hops",
            Self::TooLong => "a hop of it has more than 512 octets",
            Self::Strict => "its first hop has no lr parameter",
        }
    }
}

impl fmt::Display for PreloadedRouteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Reads the route in header fields of this name, in their order; `None` without one.
///
/// RFC 3327 §4 and RFC 3608 §4 say that the values "MUST include the loose-routing indicator parameter". The first hop has to: a request goes there
/// with its own Request-URI, which a strict router would take for another one. What the proxies do about the hops behind it is theirs (RFC 3261
/// §16.6).
pub(crate) fn read(
    message: &Message<'_>,
    name: HeaderName,
) -> Result<Option<Box<str>>, PreloadedRouteFault> {
    let mut route = String::new();
    for (place, element) in message.elements(name).enumerate() {
        let hop = NameAddr::parse(element).map_err(|_| PreloadedRouteFault::Unreadable)?;
        let uri = hop
            .parse_uri()
            .map_err(|_| PreloadedRouteFault::Unreadable)?;
        let text = std::str::from_utf8(hop.uri).map_err(|_| PreloadedRouteFault::Unreadable)?;

        if !matches!(uri.scheme, Scheme::Sip | Scheme::Sips) {
            return Err(PreloadedRouteFault::Scheme);
        }
        if place >= MOST_HOPS {
            return Err(PreloadedRouteFault::TooMany);
        }
        if text.len() > LONGEST_URI {
            return Err(PreloadedRouteFault::TooLong);
        }
        if place == 0 && !uri.is_loose() {
            return Err(PreloadedRouteFault::Strict);
        }

        if place > 0 {
            route.push_str(", ");
        }
        route.push('<');
        route.push_str(text);
        route.push('>');
    }
    Ok((!route.is_empty()).then(|| route.into()))
}

/// The URI of a route's first hop.
pub(crate) fn first(route: &str) -> Option<&str> {
    Some(route.strip_prefix('<')?.split_once('>')?.0)
}

/// The URI of a route's first hop, parsed.
pub(crate) fn first_uri(route: &str) -> Option<Uri<'_>> {
    Uri::parse(first(route)?.as_bytes()).ok()
}

/// Returns the transport by which requests to a peer on `own` leave along a route: the one that the first hop names, else `own`. `None` if the hop
/// has no valid host, or names a transport that isn't known here or is less secure.
pub(crate) fn transport(route: &str, own: Transport) -> Option<Transport> {
    let hop = first_uri(route)?;
    hop.destination()?;
    let names_none = hop.scheme == Scheme::Sip && hop.param("transport").is_none();
    let transport = match names_none {
        true => own,
        false => hop.transport()?,
    };
    own.admits(transport).then_some(transport)
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    #[test]
    fn a_route_is_read_in_its_order_and_bounded() {
        const HOP: &str = "Service-Route: <sip:p.example;lr>\r\n";
        let long = |octets: usize| {
            let user = "u".repeat(octets - "sip:@p.example;lr".len());
            format!("Service-Route: <sip:{user}@p.example;lr>\r\n")
        };

        for (case, lines, expected) in [
            ("none", String::new(), Ok(None)),
            (
                "a list and another field",
                "Service-Route: \"A, b\" <sip:a.example;lr>;x=y, <sips:b.example;lr>\r\nservice-route: <sip:c@c.example;lr>\r\n".to_owned(),
                Ok(Some("<sip:a.example;lr>, <sips:b.example;lr>, <sip:c@c.example;lr>")),
            ),
            (
                "a strict router behind the first hop",
                format!("{HOP}Service-Route: <sip:b.example>\r\n"),
                Ok(Some("<sip:p.example;lr>, <sip:b.example>")),
            ),
            (
                "a strict router first",
                format!("Service-Route: <sip:b.example>\r\n{HOP}"),
                Err(PreloadedRouteFault::Strict),
            ),
            ("no URI", "Service-Route: <>\r\n".to_owned(), Err(PreloadedRouteFault::Unreadable)),
            ("another scheme", "Service-Route: <tel:+1;lr>\r\n".to_owned(), Err(PreloadedRouteFault::Scheme)),
            (
                "as many as may be",
                HOP.repeat(MOST_HOPS),
                Ok(Some(&*["<sip:p.example;lr>"; MOST_HOPS].join(", "))),
            ),
            ("one more", HOP.repeat(MOST_HOPS + 1), Err(PreloadedRouteFault::TooMany)),
            ("too long", long(LONGEST_URI + 1), Err(PreloadedRouteFault::TooLong)),
        ] {
            let octets = format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@us>;tag=1\r\nTo: <sip:a@us>;tag=2\r\n\
                 Call-ID: x\r\nCSeq: 1 REGISTER\r\n{lines}\r\n"
            );
            let message = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
            let found = read(&message, HeaderName::ServiceRoute);
            assert_eq!(found, expected.map(|route| route.map(Into::into)), "{case}");
        }
    }
}
