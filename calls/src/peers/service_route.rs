//! Service-Route in the 200 to a REGISTER of ours (RFC 3608): the route of calls by that registration. Decides whether requests can be sent along it.

use std::fmt;
use std::sync::Arc;

use trunkline_sip::flow::Transport;
use trunkline_sip::wire::{HeaderName, Message};

use crate::parts::preloaded_route;
use crate::parts::preloaded_route::PreloadedRouteFault;

/// Reason why a service route can't be used.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ServiceRouteFault {
    Route(PreloadedRouteFault),
    /// Its first hop names a transport that isn't known, or less secure than the trunk's, or has no valid host.
    Hop,
    /// There is no listener with the transport of its first hop.
    NoListener(Transport),
}

impl fmt::Display for ServiceRouteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(fault) => fault.fmt(f),
            Self::Hop => f.write_str(
                "its first hop has a transport that isn't supported or is less secure than the trunk's",
            ),
            Self::NoListener(transport) => {
                write!(f, "its first hop is on {transport}, which has no listener here")
            }
        }
    }
}

/// Reads the service route in a 200, for a trunk on `own`; `None` if it has none. `transports`: those of our listeners.
pub(super) fn read(
    message: &Message<'_>,
    own: Transport,
    transports: &[Transport],
) -> Result<Option<Arc<str>>, ServiceRouteFault> {
    let route = preloaded_route::read(message, HeaderName::ServiceRoute);
    let Some(route) = route.map_err(ServiceRouteFault::Route)? else {
        return Ok(None);
    };

    let transport = preloaded_route::transport(&route, own).ok_or(ServiceRouteFault::Hop)?;
    // Connections on TLS leave from the address of TCP where no listener has TLS (`flow_choice`).
    let can_send = |listener: &Transport| {
        *listener == transport || (transport == Transport::Tls && *listener == Transport::Tcp)
    };
    match transports.iter().any(can_send) {
        true => Ok(Some(route.into())),
        false => Err(ServiceRouteFault::NoListener(transport)),
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    #[test]
    fn a_service_route_is_taken_where_requests_can_be_sent_along_it() {
        use Transport::{Tcp, Tls, Udp};
        let route = |hop: &str| -> Result<Option<Arc<str>>, ServiceRouteFault> {
            Ok(Some(format!("<{hop}>").into()))
        };

        for (case, own, listeners, hop, is_taken) in [
            ("as the trunk", Udp, &[Udp][..], "sip:p.example;lr", None),
            (
                "by TCP",
                Udp,
                &[Udp, Tcp],
                "sip:192.0.2.9:5070;transport=TCP;lr",
                None,
            ),
            (
                "by TCP, without a listener",
                Udp,
                &[Udp],
                "sip:p.example;transport=tcp;lr",
                Some(ServiceRouteFault::NoListener(Tcp)),
            ),
            (
                "sips, by the address of TCP",
                Udp,
                &[Udp, Tcp],
                "sips:p.example;lr",
                None,
            ),
            ("as a trunk on TLS", Tls, &[Tcp], "sip:p.example;lr", None),
            (
                "less secure than the trunk",
                Tls,
                &[Udp, Tcp],
                "sip:p.example;transport=tcp;lr",
                Some(ServiceRouteFault::Hop),
            ),
            (
                "by a transport that isn't known",
                Udp,
                &[Udp, Tcp],
                "sip:p.example;transport=sctp;lr",
                Some(ServiceRouteFault::Hop),
            ),
            (
                "strict",
                Udp,
                &[Udp],
                "sip:p.example",
                Some(ServiceRouteFault::Route(PreloadedRouteFault::Strict)),
            ),
        ] {
            let octets = format!(
                "SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@us>;tag=1\r\nTo: <sip:a@us>;tag=2\r\n\
                 Call-ID: x\r\nCSeq: 1 REGISTER\r\nService-Route: <{hop}>\r\n\r\n"
            );
            let message = lex(octets.as_bytes(), Framing::Datagram).expect("an answer");
            let expected = is_taken.map_or_else(|| route(hop), Err);
            assert_eq!(read(&message, own, listeners), expected, "{case}");
        }
    }
}
