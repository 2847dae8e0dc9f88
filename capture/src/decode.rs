//! Headers below SIP: link layer, IP, UDP, TCP. Stateless: one packet in, its payload out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Payload of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Carried<'p> {
    /// A datagram.
    Udp {
        /// Source.
        source: SocketAddr,
        /// Destination.
        target: SocketAddr,
        /// Payload.
        octets: &'p [u8],
        /// The header announces more octets than the capture holds.
        is_cut: bool,
    },
    /// A segment of a stream.
    Tcp {
        /// Source.
        source: SocketAddr,
        /// Destination.
        target: SocketAddr,
        /// Sequence number of the first octet, or of SYN.
        sequence: u32,
        /// The segment has SYN.
        is_first: bool,
        /// The segment has FIN or RST.
        is_last: bool,
        /// Payload.
        octets: &'p [u8],
    },
    /// A fragment of an IP packet.
    Fragment(Fragment<'p>),
    /// Something else: ARP, ICMP, …
    Other,
}

/// A fragment of an IP packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fragment<'p> {
    /// Key of the packet.
    pub key: FragmentKey,
    /// Offset in the packet.
    pub offset: usize,
    /// The last fragment.
    pub is_last: bool,
    /// Payload.
    pub octets: &'p [u8],
}

/// Key of the packet to which a fragment belongs (RFC 791 §2.3, RFC 8200 §4.5).
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct FragmentKey {
    /// Source.
    pub source: IpAddr,
    /// Destination.
    pub target: IpAddr,
    /// Identification of the packet.
    pub identification: u32,
    /// Protocol of the payload.
    pub protocol: u8,
}

/// Most tunnels and tags inside each other.
const DEEPEST: usize = 8;

/// Decodes a packet; `None` if its link type is unknown.
pub fn packet(link: u32, octets: &[u8]) -> Option<Carried<'_>> {
    let carried = match link {
        0 | 108 => octets.get(4..).and_then(ip),
        1 => octets
            .get(12..)
            .and_then(|rest| by_ether_type(rest, DEEPEST)),
        12 | 14 | 101 | 228 | 229 => ip(octets),
        113 => octets
            .get(14..)
            .and_then(|rest| by_ether_type(rest, DEEPEST)),
        276 => sll2(octets),
        _ => return None,
    };
    Some(carried.unwrap_or(Carried::Other))
}

/// Linux cooked v2: the protocol comes first, 20 octets of header in all.
fn sll2(octets: &[u8]) -> Option<Carried<'_>> {
    let kind = pair(octets, 0)?;
    of_ether_type(kind, octets.get(20..)?, DEEPEST)
}

fn by_ether_type(octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    of_ether_type(pair(octets, 0)?, octets.get(2..)?, depth)
}

fn of_ether_type(kind: u16, octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    match kind {
        0x0800 | 0x86dd => ip(octets),
        // VLAN tags: two octets of tag, then the next type.
        0x8100 | 0x88a8 | 0x9100 if depth > 0 => by_ether_type(octets.get(2..)?, depth - 1),
        // PPPoE: six octets of session, then PPP's own type.
        0x8864 => matches!(pair(octets, 6)?, 0x0021 | 0x0057)
            .then(|| ip(octets.get(8..)?))
            .flatten(),
        _ => None,
    }
}

fn ip(octets: &[u8]) -> Option<Carried<'_>> {
    match octets.first()? >> 4 {
        4 => ipv4(octets),
        6 => ipv6(octets),
        _ => None,
    }
}

fn ipv4(octets: &[u8]) -> Option<Carried<'_>> {
    let header = usize::from(octets[0] & 0x0f) * 4;
    let total = usize::from(pair(octets, 2)?);
    let (source, target) = (four(octets, 12)?, four(octets, 16)?);
    let protocol = *octets.get(9)?;

    // The length is zero where the network card segments packets itself.
    let end = if total < header { octets.len() } else { total };
    let inner = octets.get(header.max(20)..end.min(octets.len()))?;
    let fragmentation = pair(octets, 6)?;
    let offset = usize::from(fragmentation & 0x1fff) * 8;
    let has_more = fragmentation & 0x2000 != 0;

    if offset == 0 && !has_more {
        return transport(source, target, protocol, inner);
    }

    Some(Carried::Fragment(Fragment {
        key: FragmentKey {
            source,
            target,
            identification: u32::from(pair(octets, 4)?),
            protocol,
        },
        offset,
        is_last: !has_more,
        octets: inner,
    }))
}

fn ipv6(octets: &[u8]) -> Option<Carried<'_>> {
    let length = usize::from(pair(octets, 4)?);
    let (source, target) = (sixteen(octets, 8)?, sixteen(octets, 24)?);
    let mut protocol = *octets.get(6)?;
    let rest = octets.get(40..)?;

    let mut rest = if length == 0 {
        rest
    } else {
        &rest[..length.min(rest.len())]
    };

    for _ in 0..DEEPEST {
        let units = match protocol {
            0 | 43 | 60 => (usize::from(*rest.get(1)?) + 1) * 8,
            51 => (usize::from(*rest.get(1)?) + 2) * 4,
            44 => {
                let place = pair(rest, 2)?;
                return Some(Carried::Fragment(Fragment {
                    key: FragmentKey {
                        source,
                        target,
                        identification: u32::from(pair(rest, 4)?) << 16 | u32::from(pair(rest, 6)?),
                        protocol: *rest.first()?,
                    },
                    offset: usize::from(place & 0xfff8),
                    is_last: place & 1 == 0,
                    octets: rest.get(8..)?,
                }));
            }
            _ => return transport(source, target, protocol, rest),
        };

        protocol = *rest.first()?;
        rest = rest.get(units..)?;
    }

    None
}

/// Decodes the payload of an IP packet, whole or reassembled.
pub fn transport(
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    octets: &[u8],
) -> Option<Carried<'_>> {
    let ports = |octets: &[u8]| {
        let source = SocketAddr::new(source, pair(octets, 0)?);
        Some((source, SocketAddr::new(target, pair(octets, 2)?)))
    };
    match protocol {
        17 => {
            let (source, target) = ports(octets)?;
            let length = usize::from(pair(octets, 4)?);
            let inner = octets.get(8..)?;
            let stated = if length < 8 { inner.len() } else { length - 8 };
            Some(Carried::Udp {
                source,
                target,
                octets: &inner[..stated.min(inner.len())],
                is_cut: stated > inner.len(),
            })
        }
        6 => {
            let (source, target) = ports(octets)?;
            let header = usize::from(*octets.get(12)? >> 4) * 4;
            let flags = *octets.get(13)?;

            Some(Carried::Tcp {
                source,
                target,
                sequence: u32::from(pair(octets, 4)?) << 16 | u32::from(pair(octets, 6)?),
                is_first: flags & 0x02 != 0,
                is_last: flags & 0x05 != 0,
                octets: octets.get(header.max(20)..)?,
            })
        }
        _ => None,
    }
}

fn pair(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*octets.get(at)?, *octets.get(at + 1)?]))
}

fn four(octets: &[u8], at: usize) -> Option<IpAddr> {
    let address = octets.get(at..)?.first_chunk::<4>()?;
    Some(Ipv4Addr::from(*address).into())
}

fn sixteen(octets: &[u8], at: usize) -> Option<IpAddr> {
    let address = octets.get(at..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*address).into())
}
