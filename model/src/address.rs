//! Rule for the addresses that a tenant or a message may have this node contact: no loopback, private or reserved address, and none of this
//! node's own listeners, unless the operator permits it. Built once from the configuration; judging an address needs no I/O.
//!
//! An IPv6 address that embeds an IPv4 address (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP) is judged by both: each that
//! isn't public has to be permitted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::peer_pattern::canonical;
use crate::reserved::ReservedPeers;

/// Party that named an address.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum NamedBy {
    /// A tenant or a message: the address is judged.
    #[default]
    Tenant,
    /// A tenant, and the operator has tied the peer to the tenant's org: the address may be reserved or private.
    Tied,
    /// The operator: the address isn't judged.
    Operator,
}

/// Reason why an address isn't contacted.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Multicast, broadcast or 0.0.0.0/8: no host can have such an address.
    #[error("is a multicast, broadcast or unspecified address")]
    NoHost,
    /// A listener of this node.
    #[error("is this node's own address")]
    Own,
    /// Loopback, link-local or private, and not in `sip.allow_private_peers`.
    #[error(
        "is a loopback, link-local or private address that sip.allow_private_peers doesn't list"
    )]
    Private,
    /// Loopback or link-local, as the source of calls, and not in `sip.allow_private_peers`.
    #[error("is a loopback or link-local address that sip.allow_private_peers doesn't list")]
    Near,
    /// In `sip.reserved_peers`, or an address of a name there.
    #[error("is reserved by the operator (sip.reserved_peers)")]
    Reserved,
    /// A WebSocket without TLS, to an address that `sip.allow_private_peers` doesn't list.
    #[error(
        "is reached without TLS (ws:), which only an address that sip.allow_private_peers lists may be"
    )]
    Plain,
    /// Too many sources of calls for a tenant to enter.
    #[error(
        "is one of too many addresses for a tenant: at most 1,024 IPv4 addresses and an IPv6 /48"
    )]
    Wide,
}

impl Refusal {
    /// Returns the stable code that logs and the API use.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NoHost => "no_host_address",
            Self::Own => "own_address",
            Self::Private | Self::Near => "private_address",
            Self::Reserved => "reserved_peer",
            Self::Plain => "not_encrypted",
            Self::Wide => "too_many_addresses",
        }
    }

    /// Returns whether this refusal ends once the operator ties the peer to an org. A tie never permits this node's own address, since
    /// [`Self::Own`] is found before [`Self::Reserved`] and [`Self::Private`].
    const fn is_lifted_by_tie(self) -> bool {
        matches!(self, Self::Private | Self::Reserved)
    }
}

/// The rule for addresses that tenants and messages name.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    allowed: Vec<IpNet>,
    /// Bound addresses of SIP and HTTP.
    listeners: Vec<SocketAddr>,
    /// Addresses of this machine, for listeners that are bound to a wildcard address.
    local: Vec<IpAddr>,
    reserved: ReservedPeers,
}

/// Reason why a host that a tenant entered is refused before its name is resolved.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HostFault {
    /// The address is never contacted.
    #[error("{0}")]
    Refused(Refusal),
    /// A number, or an IPv4 address within an IPv6 one.
    #[error("is another spelling of an IP address: write an IPv4 address as 192.0.2.1")]
    Spelling,
    /// `localhost`, where `sip.allow_private_peers` lists no loopback address.
    #[error("is this machine, which sip.allow_private_peers doesn't list")]
    Localhost,
}

impl HostFault {
    /// Returns whether the operator can tie such a host to an org.
    pub const fn is_lifted_by_tie(self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.is_lifted_by_tie(),
            Self::Localhost => true,
            Self::Spelling => false,
        }
    }
}

impl AddressPolicy {
    /// Creates a policy. Private addresses in `allowed` may be contacted. `listeners` may not, nor may their ports on any address in
    /// `local` where a listener is bound to all addresses.
    pub fn new(allowed: Vec<IpNet>, listeners: Vec<SocketAddr>, local: Vec<IpAddr>) -> Self {
        Self {
            allowed,
            listeners,
            local,
            reserved: ReservedPeers::default(),
        }
    }

    /// Returns the policy with `reserved` peers, which tenants may not name.
    #[must_use]
    pub fn reserving(self, reserved: ReservedPeers) -> Self {
        Self { reserved, ..self }
    }

    /// Judges a host as a tenant writes it, an IPv6 address with or without brackets. The addresses of a name are judged later, when the
    /// name is called.
    ///
    /// # Errors
    /// The host can never be reached, unless the operator ties it to the org.
    pub fn examine_host(&self, host: &str, port: u16) -> Result<(), HostFault> {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let examine = |ip: IpAddr| {
            let address = SocketAddr::new(ip, port);
            self.examine(address).map_err(HostFault::Refused)
        };
        match host.parse::<IpAddr>() {
            Ok(IpAddr::V6(ip)) if ip.to_canonical().is_ipv4() => return Err(HostFault::Spelling),
            Ok(ip) => return examine(ip),
            Err(_) => {}
        }

        // RFC 6761 §6.3: names under `localhost` lead to this machine, whatever a name server would say.
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        if name == "localhost" || name.ends_with(".localhost") {
            let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
            let is_listed = loopback.into_iter().any(|ip| examine(ip).is_ok());
            return if is_listed {
                Ok(())
            } else {
                Err(HostFault::Localhost)
            };
        }

        // Some resolvers read a name whose last label is a number as an IPv4 address: `127.1`, `2130706433`,
        // `0x7f000001`.
        let last = name.rsplit('.').next().unwrap_or_default();
        let is_hex = last
            .strip_prefix("0x")
            .is_some_and(|digits| digits.bytes().all(|octet| octet.is_ascii_hexdigit()));
        if is_hex || (!last.is_empty() && last.bytes().all(|octet| octet.is_ascii_digit())) {
            return Err(HostFault::Spelling);
        }

        if self.reserved.lists_name(&name) {
            return Err(HostFault::Refused(Refusal::Reserved));
        }

        Ok(())
    }

    /// Judges a host that a tenant enters, as [`Self::examine_host`] does, with the rights of the party that `named` it.
    ///
    /// # Errors
    /// The host can never be reached.
    pub fn examine_host_of(&self, host: &str, port: u16, named: NamedBy) -> Result<(), HostFault> {
        match self.examine_host(host, port) {
            Err(fault) if named == NamedBy::Tied && fault.is_lifted_by_tie() => Ok(()),
            judged => judged,
        }
    }

    /// The peers in `sip.reserved_peers`.
    pub const fn reserved(&self) -> &ReservedPeers {
        &self.reserved
    }

    /// Returns whether the operator has reserved a peer with this address.
    pub fn is_reserved(&self, ip: IpAddr) -> bool {
        self.reserved.contains(ip)
    }

    /// Judges an `address` with the rights of the party that `named` it.
    ///
    /// # Errors
    /// The address may not be contacted.
    pub fn examine_of(&self, address: SocketAddr, named: NamedBy) -> Result<(), Refusal> {
        match (named, self.examine(address)) {
            (NamedBy::Operator, _) => Ok(()),
            (NamedBy::Tied, Err(refusal)) if refusal.is_lifted_by_tie() => Ok(()),
            (NamedBy::Tied | NamedBy::Tenant, judged) => judged,
        }
    }

    /// Judges an `address` that a tenant or a message has named.
    ///
    /// # Errors
    /// The address may not be contacted.
    pub fn examine(&self, address: SocketAddr) -> Result<(), Refusal> {
        let ip = address.ip();
        let reach = leads_to(ip).map(Reach::of).max().unwrap_or(Reach::Nobody);
        if reach == Reach::Nobody {
            return Err(Refusal::NoHost);
        }

        let mut ends = leads_to(ip);
        // Judged before `sip.allow_private_peers`, which doesn't open this node's own listeners.
        if ends.any(|ip| self.is_own(SocketAddr::new(ip, address.port()))) {
            return Err(Refusal::Own);
        }

        if leads_to(ip).any(|ip| self.reserved.contains(ip)) {
            return Err(Refusal::Reserved);
        }

        let is_listed = |ip: IpAddr| self.allowed.iter().any(|network| network.contains(&ip));
        match reach {
            Reach::Public => Ok(()),
            Reach::Private => {
                match leads_to(ip).all(|ip| Reach::of(ip) == Reach::Public || is_listed(ip)) {
                    true => Ok(()),
                    false => Err(Refusal::Private),
                }
            }
            Reach::Nobody => Err(Refusal::NoHost),
        }
    }

    /// Judges an `address` at which a bot's WebSocket is opened, with the rights of the party that `named` it, as [`Self::examine_of`] does.
    /// Without TLS the operator has to have listed the address too, whichever party names it: a caller's voice would cross a network
    /// unencrypted.
    ///
    /// # Errors
    /// The address may not be contacted, or not without TLS.
    pub fn examine_web_socket(
        &self,
        address: SocketAddr,
        named: NamedBy,
        is_secure: bool,
    ) -> Result<(), Refusal> {
        self.examine_of(address, named)?;
        self.examine_plain(address, is_secure)
    }

    /// Judges whether a WebSocket to `address` may be opened without TLS.
    ///
    /// # Errors
    /// It may not.
    pub fn examine_plain(&self, address: SocketAddr, is_secure: bool) -> Result<(), Refusal> {
        let ip = address.ip().to_canonical();
        match is_secure || self.lists(IpNet::from(ip)) {
            true => Ok(()),
            false => Err(Refusal::Plain),
        }
    }

    /// Returns whether `address` is one of this node's listeners, in any spelling: IPv4-mapped, or another local address of a listener
    /// bound to a wildcard.
    pub fn is_own(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.listeners.iter().any(|listener| {
            let bound = listener.ip().to_canonical();
            let is_here = || ip.is_loopback() || self.local.contains(&ip);
            listener.port() == address.port()
                && (bound == ip || (bound.is_unspecified() && is_here()))
        })
    }
}

/// Rules for `allowed_addresses`: networks whose calls a trunk accepts without digest authentication.
impl AddressPolicy {
    /// Judges a network that the operator's CLI enters. It may be of any size, but must hold at least one address that a caller can have.
    ///
    /// # Errors
    /// No call from the network is ever trusted.
    pub fn examine_source(&self, network: IpNet) -> Result<(), Refusal> {
        let network = canonical(network);
        if within(network, &NOBODYS) {
            Err(Refusal::NoHost)
        } else if within(network, &NEAR) && !self.lists(network) {
            Err(Refusal::Near)
        } else {
            Ok(())
        }
    }

    /// Judges a network that a tenant enters. No part of it may be multicast, broadcast or unspecified. Unless `sip.allow_private_peers`
    /// lists the network, no part may be loopback or link-local, and it may not be the single address of one of this node's listeners.
    ///
    /// # Errors
    /// The network is refused.
    pub fn examine_tenants_source(&self, network: IpNet) -> Result<(), Refusal> {
        let network = canonical(network);
        if overlaps(network, &NOBODYS) {
            Err(Refusal::NoHost)
        } else if self.lists(network) {
            Ok(())
        } else if overlaps(network, &NEAR) {
            Err(Refusal::Near)
        } else if network.prefix_len() == network.max_prefix_len() && self.is_here(network.addr()) {
            Err(Refusal::Own)
        } else {
            Ok(())
        }
    }

    /// Returns the entries of a trunk's list that an operator should know of: networks from which no call is trusted, and the widest of the
    /// tenant's own entries if together they exceed the bound. The tenant's entries stay in force all the same.
    pub fn report_sources(&self, allowed: &[IpNet], operators: &[IpNet]) -> Vec<(IpNet, Refusal)> {
        let judged = |network: &IpNet| Some((*network, self.examine_source(*network).err()?));
        let mut reported: Vec<_> = allowed.iter().filter_map(judged).collect();

        let is_tenants = |network: &IpNet| !operators.contains(network);
        let tenants: Vec<_> = allowed.iter().copied().filter(is_tenants).collect();

        if !are_few(&tenants) {
            let widest = tenants.iter().min_by_key(|network| network.prefix_len());
            reported.extend(widest.map(|network| (*network, Refusal::Wide)));
        }
        reported
    }

    /// Returns whether `sip.allow_private_peers` lists the whole network.
    fn lists(&self, network: IpNet) -> bool {
        self.allowed.iter().any(|listed| listed.contains(&network))
    }

    /// Returns whether a listener of this node has this address, at any port.
    fn is_here(&self, address: IpAddr) -> bool {
        self.listeners.iter().any(|listener| {
            let bound = listener.ip().to_canonical();
            bound == address || (bound.is_unspecified() && self.local.contains(&address))
        })
    }
}

/// Most IPv4 addresses that a tenant may list as the sources of one trunk; the operator may list more.
pub const SOURCES_V4: u128 = 1_024;
/// Most IPv6 addresses that a tenant may list as the sources of one trunk: a /48.
pub const SOURCES_V6: u128 = 1 << 80;

/// Returns whether the networks hold no more addresses than a tenant may enter. Addresses that several networks share count once.
pub fn are_few(networks: &[IpNet]) -> bool {
    let networks: Vec<_> = networks.iter().copied().map(canonical).collect();
    let size = |network: &IpNet| {
        let host_bits = u32::from(network.max_prefix_len() - network.prefix_len());
        1_u128.checked_shl(host_bits).unwrap_or(u128::MAX)
    };

    let together = IpNet::aggregate(&networks);
    let (v4, v6): (Vec<_>, Vec<_>) = together
        .iter()
        .partition(|network| matches!(network, IpNet::V4(_)));
    let sum = |networks: Vec<&IpNet>| networks.into_iter().map(size).fold(0, u128::saturating_add);
    sum(v4) <= SOURCES_V4 && sum(v6) <= SOURCES_V6
}

/// Returns whether the address is loopback or link-local, which no router forwards.
pub fn is_near(address: IpAddr) -> bool {
    within(IpNet::from(address.to_canonical()), &NEAR)
}

/// Returns whether an address is of the public Internet: by itself, and by the IPv4 address that it embeds.
pub fn is_public(address: IpAddr) -> bool {
    leads_to(address).all(|ip| Reach::of(ip) == Reach::Public)
}

/// Returns whether an address, or the IPv4 address that it embeds, is of a network for examples (RFC 5737, RFC 3849, RFC 9637). They count as public,
/// since no router leads there.
pub fn is_documentation(address: IpAddr) -> bool {
    leads_to(address).any(|ip| within(IpNet::from(ip), &DOCUMENTATION))
}

/// The address itself, and the IPv4 address that it embeds: a translator or tunnel on the way may turn a packet's destination into that one.
fn leads_to(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let ip = address.to_canonical();
    let embedded = embedded(ip).map(IpAddr::V4);
    [Some(ip), embedded].into_iter().flatten()
}

/// Returns whether the whole network is loopback or link-local.
pub fn is_near_network(network: IpNet) -> bool {
    within(canonical(network), &NEAR)
}

const fn v4(a: u8, b: u8, length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), length))
}

const fn v6(first: u16, last: u16, length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, last),
        length,
    ))
}

/// Networks of addresses that no host can have: unspecified, multicast and broadcast.
const NOBODYS: [IpNet; 5] = [
    v4(0, 0, 8),
    v4(224, 0, 4),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32)),
    v6(0, 0, 128),
    v6(0xff00, 0, 8),
];
/// Loopback and link-local networks, which no router forwards.
const NEAR: [IpNet; 4] = [
    v4(127, 0, 8),
    v4(169, 254, 16),
    v6(0, 1, 128),
    v6(0xfe80, 0, 10),
];

/// Networks for examples.
const DOCUMENTATION: [IpNet; 5] = [
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 0), 24)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24)),
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(203, 0, 113, 0), 24)),
    IpNet::V6(Ipv6Net::new_assert(
        Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0),
        32,
    )),
    v6(0x3fff, 0, 20),
];

fn within(network: IpNet, blocks: &[IpNet]) -> bool {
    blocks.iter().any(|block| block.contains(&network))
}

fn overlaps(network: IpNet, blocks: &[IpNet]) -> bool {
    let meets = |block: &IpNet| block.contains(&network) || network.contains(block);
    blocks.iter().any(meets)
}

/// Scope of an address, from widest to none.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reach {
    Public,
    Private,
    Nobody,
}

impl Reach {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    /// Classifies an IPv4 address. Documentation networks (RFC 5737) count as public: no router leads there.
    const fn of_v4(address: Ipv4Addr) -> Self {
        match address.octets() {
            [0, ..] | [224..=239, ..] | [255, 255, 255, 255] => Self::Nobody,
            [10 | 127, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 168, ..]
            | [192, 0, 0, _]
            | [192, 88, 99, _]
            | [198, 18 | 19, ..]
            | [240..=255, ..] => Self::Private,
            _ => Self::Public,
        }
    }

    const fn of_v6(address: Ipv6Addr) -> Self {
        match address.segments() {
            [0, 0, 0, 0, 0, 0, 0, 0] | [0xff00..=0xffff, ..] => Self::Nobody,
            // IPv6 forms of an IPv4 address. Public here, so that the embedded address alone decides: see `embedded`.
            [0, 0, 0, 0, 0, 0 | 0xffff, high, _] if high != 0 => Self::Public,
            [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Self::Public,
            [0x2001, 0x0db8, ..] => Self::Public,
            // Protocol assignments, Teredo among them.
            [0x2001, 0x0000..=0x01ff, ..] => Self::Private,
            [0x2000..=0x3fff, ..] => Self::Public,
            _ => Self::Private,
        }
    }
}

/// Returns the IPv4 address that an IPv6 address embeds.
fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let join = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => None,
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x2002, high, low, ..]
        | [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(join(high, low)),
        // Teredo inverts the bits of the client's address (RFC 4380 §4).
        [0x2001, 0, _, _, _, _, high, low] => Some(join(!high, !low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allowed: &[&str], listeners: &[&str]) -> AddressPolicy {
        AddressPolicy::new(
            allowed
                .iter()
                .map(|network| network.parse().unwrap())
                .collect(),
            listeners
                .iter()
                .map(|address| address.parse().unwrap())
                .collect(),
            vec!["192.0.2.2".parse().unwrap(), "10.0.0.2".parse().unwrap()],
        )
    }

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
            let ip: IpAddr = address.parse().unwrap();
            assert!(is_public(ip) && !is_documentation(ip), "{address}");
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
            // ISATAP (RFC 5214), Teredo: tunnels that end at a private address.
            "2606:4700::5efe:a00:1",
            "2606:4700::200:5efe:7f00:1",
            "2002:c000:201::1",
        ] {
            let ip: IpAddr = address.parse().unwrap();
            assert!(!is_public(ip) || is_documentation(ip), "{address}");
        }
    }

    #[test]
    fn addresses_are_judged_by_where_they_lead() {
        let strict = policy(&[], &["0.0.0.0:5060", "127.0.0.1:8080"]);
        let open = policy(
            &["127.0.0.0/8", "::1/128", "10.0.0.0/8", "fd34::/16"],
            &["0.0.0.0:5060"],
        );
        let private = Err(Refusal::Private);
        for (name, address, unlisted, listed) in [
            ("public", "8.8.8.8:5060", Ok(()), Ok(())),
            ("public IPv6", "[2606:4700::1]:5060", Ok(()), Ok(())),
            ("documentation", "198.51.100.1:5060", Ok(()), Ok(())),
            ("loopback", "127.0.0.1:6379", private, Ok(())),
            ("loopback IPv6", "[::1]:6379", private, Ok(())),
            ("the LAN", "10.1.2.3:5060", private, Ok(())),
            ("another LAN", "192.168.1.1:5060", private, private),
            ("shared by carriers", "100.64.0.1:5060", private, private),
            ("metadata", "169.254.169.254:80", private, private),
            ("mapped", "[::ffff:127.0.0.1]:6379", private, Ok(())),
            ("compatible", "[::7f00:1]:6379", private, Ok(())),
            ("translated", "[::ffff:0:7f00:1]:6379", private, Ok(())),
            ("NAT64", "[64:ff9b::7f00:1]:6379", private, Ok(())),
            (
                "NAT64 of a public one",
                "[64:ff9b::808:808]:1",
                Ok(()),
                Ok(()),
            ),
            ("local NAT64", "[64:ff9b:1::1]:6379", private, private),
            ("6to4", "[2002:a9fe:a9fe::1]:80", private, private),
            ("Teredo", "[2001:0:808:808::80ff:fffe]:1", private, private),
            ("ISATAP", "[2606:4700::5efe:c0a8:1]:1", private, private),
            (
                "ISATAP of a listed one",
                "[2606:4700::5efe:a00:1]:1",
                private,
                Ok(()),
            ),
            (
                "ISATAP in another LAN",
                "[fd12::5efe:a00:1]:1",
                private,
                private,
            ),
            (
                "ISATAP of another LAN",
                "[fd34::5efe:c0a8:1]:1",
                private,
                private,
            ),
            (
                "ISATAP in a listed LAN",
                "[fd34::5efe:a00:1]:1",
                private,
                Ok(()),
            ),
            ("link-local IPv6", "[fe80::1]:1", private, private),
            ("unique local", "[fd12::1]:1", private, private),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(strict.examine(address), unlisted, "{name}, unlisted");
            assert_eq!(open.examine(address), listed, "{name}, listed");
        }
    }

    #[test]
    fn hosts_that_can_never_be_reached_are_known_by_their_spelling() {
        let reserved = ["carrier.example", "203.0.113.0/24"].map(|peer| peer.parse().unwrap());
        let reserved = ReservedPeers::new(reserved.into());
        reserved.learn(["198.51.100.7".parse().unwrap()]);

        let policy = policy(&["10.0.0.0/8"], &["0.0.0.0:5060"]).reserving(reserved);
        for host in [
            "pbx.example.com",
            "8.8.8.8",
            "10.1.2.3",
            "2606:4700::1",
            "[2606:4700::1]",
            "a.0xfg",
        ] {
            assert_eq!(policy.examine_host(host, 5080), Ok(()), "{host}");
        }

        let refused = HostFault::Refused;
        for (host, fault) in [
            ("localhost", HostFault::Localhost),
            ("a.LOCALHOST.", HostFault::Localhost),
            ("2130706433", HostFault::Spelling),
            ("0x7f000001", HostFault::Spelling),
            ("0177.0.0.1", HostFault::Spelling),
            ("127.1", HostFault::Spelling),
            ("127.0.0.0x1", HostFault::Spelling),
            ("[::ffff:8.8.8.8]", HostFault::Spelling),
            ("127.0.0.1", refused(Refusal::Private)),
            ("192.168.1.1", refused(Refusal::Private)),
            ("169.254.169.254", refused(Refusal::Private)),
            ("224.0.0.1", refused(Refusal::NoHost)),
            ("0.0.0.0", refused(Refusal::NoHost)),
            ("203.0.113.9", refused(Refusal::Reserved)),
            ("198.51.100.7", refused(Refusal::Reserved)),
            ("Carrier.Example.", refused(Refusal::Reserved)),
        ] {
            assert_eq!(policy.examine_host(host, 5080), Err(fault), "{host}");
        }

        let own = policy.examine_host("10.0.0.2", 5060);
        assert_eq!(own, Err(refused(Refusal::Own)));
    }

    #[test]
    fn sources_of_calls_are_judged_by_who_enters_them() {
        let policy = policy(&["127.0.0.0/30"], &["0.0.0.0:5060", "203.0.113.1:5060"]);
        let (none, near, own) = (Err(Refusal::NoHost), Err(Refusal::Near), Err(Refusal::Own));
        for (network, tenant, operator) in [
            ("198.51.100.7/32", Ok(()), Ok(())),
            ("10.0.0.0/24", Ok(()), Ok(())),
            ("10.1.0.0/24", Ok(()), Ok(())),
            ("2001:db8::/48", Ok(()), Ok(())),
            ("0.0.0.0/0", none, Ok(())),
            ("::/0", none, Ok(())),
            ("128.0.0.0/1", none, Ok(())),
            ("127.0.0.0/8", near, near),
            ("127.0.0.1/32", Ok(()), Ok(())),
            ("::ffff:127.0.0.9/128", near, near),
            ("::1/128", near, near),
            ("169.254.169.254/32", near, near),
            ("169.0.0.0/8", near, Ok(())),
            ("fe80::/64", near, near),
            ("224.0.1.75/32", none, none),
            ("ff02::/16", none, none),
            ("255.255.255.255/32", none, none),
            ("192.0.2.2/32", own, Ok(())),
            ("203.0.113.1/32", own, Ok(())),
            ("203.0.113.0/24", Ok(()), Ok(())),
        ] {
            let parsed: IpNet = network.parse().unwrap();
            assert_eq!(policy.examine_tenants_source(parsed), tenant, "{network}");
            assert_eq!(policy.examine_source(parsed), operator, "{network}");
        }
    }

    #[test]
    fn what_a_tenant_could_no_longer_enter_is_reported() {
        let networks = |listed: &[&str]| -> Vec<IpNet> {
            listed
                .iter()
                .map(|network| network.parse().unwrap())
                .collect()
        };
        let policy = policy(&[], &[]);
        let allowed = networks(&["198.51.100.0/24", "127.0.0.1/32", "10.0.0.0/8"]);
        let near = (allowed[1], Refusal::Near);
        let wide = (allowed[2], Refusal::Wide);
        for (operators, reported) in [(&[][..], &[near, wide][..]), (&["10.0.0.0/8"], &[near])] {
            let operators = networks(operators);
            assert_eq!(policy.report_sources(&allowed, &operators), reported);
        }
    }

    #[test]
    fn networks_are_counted_together() {
        let networks = |listed: &[&str]| -> Vec<IpNet> {
            listed
                .iter()
                .map(|network| network.parse().unwrap())
                .collect()
        };
        for (listed, few) in [
            (
                &["198.51.100.0/24", "203.0.113.0/24", "192.0.2.0/24"][..],
                true,
            ),
            (&["10.0.0.0/22"], true),
            (&["10.0.0.0/22", "10.0.1.0/24"], true),
            (&["10.0.0.0/22", "192.0.2.1/32"], false),
            (&["10.0.0.0/21"], false),
            (&["::ffff:10.0.0.0/117"], false),
            (&["0.0.0.0/0"], false),
            (&["2001:db8::/48", "10.0.0.0/22"], true),
            (&["2001:db8::/48", "2001:db9::1/128"], false),
            (&["2001:db8::/47"], false),
            (&["::/0"], false),
        ] {
            assert_eq!(are_few(&networks(listed)), few, "{listed:?}");
        }
    }

    #[test]
    fn some_addresses_are_refused_whatever_is_listed() {
        let policy = policy(
            &["0.0.0.0/0", "::/0"],
            &["0.0.0.0:5060", "127.0.0.1:8080", "[::]:5070"],
        );
        for (name, address, refusal) in [
            ("multicast", "224.0.1.75:5060", Refusal::NoHost),
            ("multicast IPv6", "[ff02::1]:5060", Refusal::NoHost),
            ("broadcast", "255.255.255.255:5060", Refusal::NoHost),
            ("this network", "0.0.0.0:6379", Refusal::NoHost),
            ("mapped multicast", "[::ffff:224.0.0.1]:1", Refusal::NoHost),
            ("unspecified IPv6", "[::]:1", Refusal::NoHost),
            (
                "a listener on all addresses",
                "192.0.2.2:5060",
                Refusal::Own,
            ),
            ("the same by loopback", "127.9.9.9:5060", Refusal::Own),
            ("the same by NAT64", "[64:ff9b::7f00:1]:5060", Refusal::Own),
            ("our API", "127.0.0.1:8080", Refusal::Own),
            ("by loopback IPv6", "[::1]:5070", Refusal::Own),
        ] {
            assert_eq!(
                policy.examine(address.parse().unwrap()),
                Err(refusal),
                "{name}"
            );
        }

        for (name, address) in [
            ("another port of ours", "127.0.0.1:5080"),
            ("our port elsewhere", "192.0.2.3:5060"),
        ] {
            assert_eq!(policy.examine(address.parse().unwrap()), Ok(()), "{name}");
        }
    }
}
