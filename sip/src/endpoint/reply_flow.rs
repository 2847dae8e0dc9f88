//! Flow of the answer to a request that came by UDP (RFC 3261 §18.2.2, RFC 3581 §4).

use std::net::IpAddr;

use crate::flow::{Flow, is_private};
use crate::header::via::Via;
use crate::wire::Message;

/// The port of a sent-by without one.
const USUAL_PORT: u16 = 5060;

/// The flow for the answers to `request`, which came by `flow`: always to the source's address. Without `rport` they go to the port of
/// sent-by, since many peers listen there and send from another port; but not if sent-by is an address behind a NAT.
pub(super) fn reply_flow(request: &Message<'_>, flow: Flow) -> Flow {
    let via = request.top_via();
    // RFC 3581 §4: with rport the answer goes back to the port that the request came from. A stream has its connection.
    if flow.transport.is_reliable() || via.rport.is_some() {
        return flow;
    }
    let port = via.port.unwrap_or(USUAL_PORT);
    if port == flow.peer.port() || port == 0 || !listens_there(via, flow.peer.ip()) {
        return flow;
    }
    let mut reply = flow;
    reply.peer.set_port(port);
    reply
}

/// Returns true if the source listens on the port of sent-by: sent-by is the source's address, or a name, or both are public.
fn listens_there(via: &Via<'_>, source: IpAddr) -> bool {
    match via.address() {
        None => true,
        Some(sent_by) if sent_by == source.to_canonical() => true,
        Some(sent_by) => !is_private(sent_by) && !is_private(source),
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::flow::Transport;
    use crate::wire::{Framing, lex};

    #[test]
    fn answers_go_where_the_peer_listens() {
        for (case, sent_by, source, port) in [
            ("rport", "192.0.2.1:5070;rport", "192.0.2.1:40000", 40000),
            (
                "the source itself",
                "192.0.2.1:5070",
                "192.0.2.1:40000",
                5070,
            ),
            ("no port", "192.0.2.1", "192.0.2.1:40000", 5060),
            ("a name", "pbx.example.com:5080", "192.0.2.1:40000", 5080),
            ("a name in a LAN", "pbx.lan", "10.0.0.7:40000", 5060),
            (
                "several public addresses",
                "192.0.2.9:5070",
                "192.0.2.1:40000",
                5070,
            ),
            ("behind NAT", "10.0.0.7:5070", "192.0.2.1:40000", 40000),
            (
                "a public name for a private source",
                "192.0.2.1:5070",
                "10.0.0.7:40000",
                40000,
            ),
            (
                "a NAT inside a LAN",
                "172.17.0.2:5070",
                "10.0.0.7:40000",
                40000,
            ),
            ("IPv6", "[2001:db8::1]:5070", "[2001:db8::1]:40000", 5070),
            (
                "IPv6 behind NAT",
                "[fd00::1]:5070",
                "[2001:db8::1]:40000",
                40000,
            ),
            (
                "IPv4 on an IPv6 socket",
                "192.0.2.1:5070",
                "[::ffff:192.0.2.1]:40000",
                5070,
            ),
            ("no port at all", "192.0.2.1:0", "192.0.2.1:40000", 40000),
        ] {
            let octets = format!(
                "OPTIONS sip:us SIP/2.0\r\nVia: SIP/2.0/UDP {sent_by};branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\n\
                 To: <sip:us>\r\nCall-ID: x\r\nCSeq: 1 OPTIONS\r\n\r\n"
            );
            let request = lex(octets.as_bytes(), Framing::Datagram).expect("a request");
            let source: SocketAddr = source.parse().expect("an address");
            let flow = Flow {
                transport: Transport::Udp,
                listener: 0,
                connection: 0,
                local: SocketAddr::from(([198, 51, 100, 1], 5060)),
                peer: source,
            };

            let expected = SocketAddr::new(source.ip(), port);
            assert_eq!(reply_flow(&request, flow).peer, expected, "{case}");

            let stream = Flow {
                transport: Transport::Tcp,
                ..flow
            };
            assert_eq!(reply_flow(&request, stream), stream, "{case}, by TCP");
        }
    }
}
