//! Addresses and networks of this machine as the kernel lists them. Where `/proc` has no list, only the address that
//! packets leave from is known.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// Returns every address of this machine, loopback included.
pub(crate) fn addresses() -> Vec<IpAddr> {
    let v4 = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let mut all: Vec<IpAddr> = fib(&v4)
        .filter(|(_, length, kind)| *length == 32 && *kind == "LOCAL")
        .map(|(address, ..)| address.into())
        .collect();
    all.extend(inet6(&v6).map(|network| network.addr()));
    all.sort();
    // The kernel may list an address in several tables.
    all.dedup();
    all
}

/// Returns the lowest address of a family that other machines may reach: neither loopback nor link-local.
pub(crate) fn first_reachable(addresses: &[IpAddr], v6: bool) -> Option<IpAddr> {
    let is_reachable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !v6 && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_link_local(),
        IpAddr::V6(ip) => {
            v6 && !ip.is_loopback() && !ip.is_unspecified() && !ip.is_unicast_link_local()
        }
    };
    addresses.iter().copied().filter(is_reachable).min()
}

/// Returns loopback, and the private network that contains `own`, if there is one.
pub(crate) fn near(own: IpAddr) -> Vec<IpNet> {
    let v4 = fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();

    let loopback = [
        IpNet::new(Ipv4Addr::new(127, 0, 0, 0).into(), 8),
        IpNet::new(Ipv6Addr::LOCALHOST.into(), 128),
    ];
    let mut near: Vec<IpNet> = loopback.into_iter().flatten().collect();

    let linked = fib(&v4)
        .filter(|(_, length, kind)| *length > 0 && *length < 32 && *kind == "UNICAST")
        .filter_map(|(address, length, _)| IpNet::new(address.into(), length).ok())
        .chain(inet6(&v6).filter(|network| network.prefix_len() > 0));

    let is_lan = |network: &IpNet| {
        network.contains(&own) && trunkline_sip::flow::is_private(own) && !own.is_loopback()
    };
    let lan = linked.filter(is_lan).map(|network| network.trunc());
    // The narrowest: the network itself, not a wider route that holds it too.
    near.extend(lan.max_by_key(IpNet::prefix_len));

    near
}

/// Address, prefix length and kind of each entry of `/proc/net/fib_trie`.
fn fib(text: &str) -> impl Iterator<Item = (Ipv4Addr, u8, &str)> {
    // An address is on a line of its own, before those of its prefix lengths and kinds.
    let mut current = None;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            current = address.parse().ok();
            return None;
        }
        let mut words = line.strip_prefix('/')?.split(' ');
        let length = words.next()?.parse().ok()?;
        Some((current?, length, words.nth(1)?))
    })
}

/// Addresses in `/proc/net/if_inet6`, each with its prefix length.
fn inet6(text: &str) -> impl Iterator<Item = IpNet> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let address = u128::from_str_radix(words.next()?, 16).ok()?;
        let length = u8::from_str_radix(words.nth(1)?, 16).ok()?;
        IpNet::new(Ipv6Addr::from(address).into(), length).ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_address_is_one_that_others_reach() {
        let all = [
            "127.0.0.1",
            "169.254.3.4",
            "192.168.1.9",
            "10.9.8.7",
            "::1",
            "fe80::1",
            "fd00::2",
        ];
        let all: Vec<IpAddr> = all.map(|ip| ip.parse().unwrap()).to_vec();
        assert_eq!(first_reachable(&all, false), "10.9.8.7".parse().ok());
        assert_eq!(first_reachable(&all, true), "fd00::2".parse().ok());
        assert_eq!(first_reachable(&all[..2], false), None);
    }

    #[test]
    fn the_kernels_lists_are_read() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 10.1.0.0/16 2 0 2\n        |-- 10.1.0.0\n           /16 link UNICAST\n        |-- 10.1.0.9\n           /32 host LOCAL\n";
        let entries: Vec<_> = fib(trie).collect();
        assert_eq!(
            entries,
            [
                (Ipv4Addr::UNSPECIFIED, 0, "UNICAST"),
                (Ipv4Addr::new(10, 1, 0, 0), 16, "UNICAST"),
                (Ipv4Addr::new(10, 1, 0, 9), 32, "LOCAL"),
            ]
        );
        let listed = "fd000000000000000000000000000002 04 40 00 82     eth0\n";
        let networks: Vec<_> = inet6(listed).map(|network| network.to_string()).collect();
        assert_eq!(networks, ["fd00::2/64"]);
    }
}
