//! Source address of a request: the socket's peer, or the address that a trusted proxy reports.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use ipnet::{IpNet, Ipv4Net};

/// Returns the client's address; `None` if it is unknown. An IPv4-mapped IPv6 address counts as IPv4.
///
/// Behind a trusted proxy it is the right-most address in `X-Forwarded-For` that isn't a trusted proxy. Anything left
/// of it was written by the client and proves nothing.
pub(crate) fn address(parts: &Parts, trusted: &[IpNet]) -> Option<IpAddr> {
    let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
    forwarded(peer.ip().to_canonical(), &parts.headers, trusted)
}

/// Returns true if one of the networks contains the address.
pub(crate) fn within(networks: &[IpNet], address: IpAddr) -> bool {
    networks
        .iter()
        .any(|network| canonical(*network).contains(&address))
}

fn forwarded(peer: IpAddr, headers: &HeaderMap, trusted: &[IpNet]) -> Option<IpAddr> {
    let mut nearest = peer;
    // Several lines are one list in their order (RFC 9110 §5.3), so the last line holds the nearest hops.
    let mut lines = headers.get_all("x-forwarded-for").iter().rev();
    let mut hops: Vec<&str> = Vec::new();
    while within(trusted, nearest) {
        let hop = match hops.pop() {
            Some(hop) => hop.trim(),
            None => match lines.next() {
                Some(line) => {
                    hops = line.to_str().ok()?.split(',').collect();
                    continue;
                }
                None => return Some(nearest),
            },
        };
        // An unreadable hop makes the address unknown, and an IP allow list refuses an unknown address.
        nearest = read(hop)?;
    }

    Some(nearest)
}

/// Parses an address as proxies write it: bare, in brackets, with a port.
fn read(hop: &str) -> Option<IpAddr> {
    let bare = hop.strip_prefix('[').and_then(|hop| hop.strip_suffix(']'));
    let address = bare.unwrap_or(hop).parse::<IpAddr>().ok();
    address
        .or_else(|| hop.parse::<SocketAddr>().ok().map(|address| address.ip()))
        .map(|address| address.to_canonical())
}

/// Converts an IPv4-mapped network to IPv4.
fn canonical(network: IpNet) -> IpNet {
    let (IpAddr::V4(address), IpNet::V6(_)) = (network.addr().to_canonical(), network) else {
        return network;
    };
    let length = network.prefix_len().checked_sub(96);
    length
        .and_then(|length| Ipv4Net::new(address, length).ok())
        .map_or(network, IpNet::V4)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn networks(texts: &[&str]) -> Vec<IpNet> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_client_is_the_nearest_that_is_not_trusted() {
        let trusted = networks(&["127.0.0.0/8", "10.0.0.0/8", "::1/128"]);

        for (name, peer, lines, client) in [
            ("no proxy", "192.0.2.1", &[][..], Some("192.0.2.1")),
            (
                "a stranger's word",
                "192.0.2.1",
                &["198.51.100.1"],
                Some("192.0.2.1"),
            ),
            ("one proxy", "127.0.0.1", &["192.0.2.1"], Some("192.0.2.1")),
            ("IPv6", "::1", &["2001:db8::1"], Some("2001:db8::1")),
            (
                "mapped",
                "::ffff:127.0.0.1",
                &["::ffff:192.0.2.1"],
                Some("192.0.2.1"),
            ),
            (
                "made up on the left",
                "127.0.0.1",
                &["10.0.0.9, 192.0.2.9, 192.0.2.1"],
                Some("192.0.2.1"),
            ),
            (
                "two proxies",
                "127.0.0.1",
                &["192.0.2.9,192.0.2.1 , 10.0.0.1"],
                Some("192.0.2.1"),
            ),
            (
                "two lines",
                "127.0.0.1",
                &["192.0.2.1", "10.0.0.1"],
                Some("192.0.2.1"),
            ),
            (
                "proxies alone",
                "127.0.0.1",
                &["10.0.0.1"],
                Some("10.0.0.1"),
            ),
            (
                "nobody before the proxy",
                "127.0.0.1",
                &[],
                Some("127.0.0.1"),
            ),
            (
                "with ports",
                "127.0.0.1",
                &["192.0.2.1:4711"],
                Some("192.0.2.1"),
            ),
            (
                "in brackets",
                "127.0.0.1",
                &["[2001:db8::1]:4711, [::1]"],
                Some("2001:db8::1"),
            ),
            ("no address", "127.0.0.1", &["192.0.2.1, unknown"], None),
            ("empty", "127.0.0.1", &[""], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append("x-forwarded-for", HeaderValue::from_static(line));
            }

            let peer: IpAddr = peer.parse().unwrap();
            let found = forwarded(peer.to_canonical(), &headers, &trusted);
            assert_eq!(
                found,
                client.map(|client| client.parse().unwrap()),
                "{name}"
            );
        }
    }

    #[test]
    fn a_mapped_network_holds_what_it_maps() {
        let address = "192.0.2.7".parse().unwrap();
        for (network, holds) in [
            ("192.0.2.0/24", true),
            ("::ffff:192.0.2.0/120", true),
            ("::ffff:192.0.3.0/120", false),
            ("::/0", false),
            ("0.0.0.0/0", true),
        ] {
            assert_eq!(within(&networks(&[network]), address), holds, "{network}");
        }
        assert!(!within(&[], address));
    }
}
