//! Choice of our listener towards a peer, and our address on it.

use std::net::SocketAddr;

use trunkline_model::address::{AddressPolicy, Refusal};
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::verified::VerifiedNames;

use super::target;
use super::target::Target;

/// Reason why nothing can be sent to a target.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NoFlow {
    /// The rule on addresses forbids it.
    NotAllowed(Refusal),
    /// No listener has its transport and address family, or too many names would have to be proved.
    NoListener,
    /// It was found down.
    KnownDown,
}

/// Returns a flow to `target`, from the listener that serves its transport and address family.
///
/// # Errors
/// The reason why there is none.
pub fn flow_to_target(
    listeners: &[(Transport, SocketAddr)],
    addresses: &AddressPolicy,
    names: &VerifiedNames,
    target: &Target,
) -> Result<Flow, NoFlow> {
    // A fixed flow was proved by a REGISTER or a call of the peer, or judged when the connection was opened.
    if let Some(by) = target.by {
        return Ok(by);
    }
    let judged = addresses.examine_of(target.address, target.named);
    judged.map_err(NoFlow::NotAllowed)?;
    let flow = flow_to(listeners, target.transport, target.address).ok_or(NoFlow::NoListener)?;
    if target.transport != Transport::Tls {
        return Ok(flow);
    }
    // The domain, not the host that SRV names: the certificate has to name the domain of the URI (RFC 5922 §4).
    let name = target::domain_of(target.hop().as_bytes());
    let connection = name.and_then(|name| names.connection(&name));
    let connection = connection.ok_or(NoFlow::NoListener)?;
    Ok(Flow { connection, ..flow })
}

/// Our Contact on a flow.
pub fn contact(endpoint: &Endpoint, flow: &Flow) -> String {
    let host = endpoint.sent_by(flow);
    let [scheme, mark, transport] = around_host(flow);
    ["<", scheme, &host, mark, transport, ">"].concat()
}

/// Our `sips:` Contact on a flow, for a dialog that requires TLS on every hop. It needs no transport parameter (RFC 5630 §3.1.1).
pub fn secure_contact(endpoint: &Endpoint, flow: &Flow) -> String {
    format!("<sips:trunkline@{}>", endpoint.sent_by(flow))
}

/// The URI in our Contact on a flow.
pub fn contact_uri(endpoint: &Endpoint, flow: &Flow) -> String {
    let host = endpoint.sent_by(flow);
    let [scheme, mark, transport] = around_host(flow);
    [scheme, &host, mark, transport].concat()
}

/// Scheme and user of our URI, which precede the host, and the parameter that follows it where the transport isn't UDP.
const fn around_host(flow: &Flow) -> [&'static str; 3] {
    let [mark, transport] = match flow.transport {
        Transport::Udp => ["", ""],
        Transport::Tcp | Transport::Tls => [";transport=", flow.transport.uri_name()],
    };
    ["sip:trunkline@", mark, transport]
}

/// Returns a flow from the listener that suits the peer's address best.
fn flow_to(
    listeners: &[(Transport, SocketAddr)],
    transport: Transport,
    peer: SocketAddr,
) -> Option<Flow> {
    let fits = |listener: &(Transport, SocketAddr)| {
        listener.0 == transport && listener.1.is_ipv4() == peer.is_ipv4()
    };

    // A loopback listener can't reach other hosts, and an external one may not reach a loopback-only peer.
    let near = |listener: &(Transport, SocketAddr)| {
        fits(listener)
            && (listener.1.ip().is_unspecified()
                || listener.1.ip().is_loopback() == peer.ip().is_loopback())
    };

    // Without a TLS listener, outgoing TLS connections use the address of the TCP listener.
    let at = listeners
        .iter()
        .position(near)
        .or_else(|| listeners.iter().position(fits))
        .or_else(|| {
            let is_stream = |listener: &(Transport, SocketAddr)| {
                transport == Transport::Tls
                    && listener.0 == Transport::Tcp
                    && listener.1.is_ipv4() == peer.is_ipv4()
            };
            listeners.iter().position(is_stream)
        })?;

    Some(Flow {
        transport,
        listener: u16::try_from(at).ok()?,
        connection: 0,
        local: listeners[at].1,
        peer,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_reached_from_a_listener_of_its_transport_and_family() {
        let listeners = [
            (Transport::Udp, "127.0.0.1:5060".parse().expect("address")),
            (Transport::Udp, "192.0.2.1:5060".parse().expect("address")),
            (Transport::Tcp, "0.0.0.0:5060".parse().expect("address")),
            (Transport::Udp, "[::]:5060".parse().expect("address")),
        ];

        let cases = [
            ("loopback", Transport::Udp, "127.0.0.9:5070", Some(0)),
            ("the world", Transport::Udp, "198.51.100.7:5060", Some(1)),
            ("a stream", Transport::Tcp, "198.51.100.7:5060", Some(2)),
            ("six", Transport::Udp, "[2001:db8::1]:5060", Some(3)),
            (
                "a stream over six",
                Transport::Tcp,
                "[2001:db8::1]:5060",
                None,
            ),
        ];
        for (case, transport, peer, expected) in cases {
            let flow = flow_to(&listeners, transport, peer.parse().expect("address"));
            assert_eq!(flow.map(|flow| flow.listener), expected, "{case}");
        }
    }
}
