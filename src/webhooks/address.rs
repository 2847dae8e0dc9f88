//! Classifies addresses: a webhook receiver outside the public Internet could be something that only this machine can
//! reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns true for an address of the public Internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Everything except the special-purpose addresses (RFC 6890).
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    let reserved = match (first, second, third) {
        // This network, private use, loopback, multicast and beyond.
        (0 | 10 | 127 | 224.., _, _) => true,
        // Shared by carriers (RFC 6598).
        (100, 64..=127, _) => true,
        // Link-local, which clouds use for metadata.
        (169, 254, _) => true,
        (172, 16..=31, _) => true,
        // Protocol assignments, documentation, 6to4 relays, private use.
        (192, 0, 0 | 2) | (192, 88, 99) | (192, 168, _) => true,
        // Benchmarks, documentation.
        (198, 18 | 19, _) | (198, 51, 100) | (203, 0, 113) => true,
        _ => false,
    };

    !reserved
}

/// Global unicast (2000::/3), without tunnels and without addresses that embed a non-public IPv4 address.
fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = embedded(address) {
        return is_public_v4(v4);
    }
    let [first, second, ..] = address.segments();
    let global = first & 0xe000 == 0x2000;
    let reserved = match (first, second) {
        // Protocol assignments, Teredo and ORCHID among them; documentation.
        (0x2001, 0x0000..=0x01ff | 0x0db8) => true,
        (0x3fff, 0x0000..=0x0fff) => true,
        _ => false,
    };
    global && !reserved
}

/// Returns the embedded IPv4 address: mapped, compatible, NAT64 (RFC 6052), 6to4 (RFC 3056).
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] => Some(join(high, low)),
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_public_is_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "223.255.255.255",
            "2606:4700::1111",
            "2a00:1450::1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "2002:808:808::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }

        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd12::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "100::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
