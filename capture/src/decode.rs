//! Headers below SIP: link layer, tunnels, IP, UDP, TCP. Stateless: one packet in, its payload out.
//!
//! etherparse reads IP, UDP and TCP. The link layers are read here, since etherparse lacks loopback, Linux cooked v2 and PPPoE, and so are the
//! tunnels in which networks mirror traffic: GRE with ERSPAN, VXLAN, GENEVE, IP in IP, MPLS.

use std::net::{IpAddr, SocketAddr};

use etherparse::{IpNumber, Ipv6ExtensionSlice, LaxIpSlice, TcpSlice, UdpSlice};

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
    // BSD loopback; Ethernet; raw IP under its several numbers; Linux cooked v1 and v2.
    let carried = match link {
        0 | 108 => octets.get(4..).and_then(|rest| ip(rest, DEEPEST)),
        1 => ethernet(octets, DEEPEST),
        12 | 14 | 101 | 228 | 229 => ip(octets, DEEPEST),
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

fn ethernet(octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    by_ether_type(octets.get(12..)?, depth)
}

fn by_ether_type(octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    of_ether_type(pair(octets, 0)?, octets.get(2..)?, depth)
}

fn of_ether_type(kind: u16, octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    match kind {
        0x0800 | 0x86dd => ip(octets, depth),
        // VLAN tags: two octets of tag, then the next type.
        0x8100 | 0x88a8 | 0x9100 if depth > 0 => by_ether_type(octets.get(2..)?, depth - 1),
        // PPPoE: six octets of session, then PPP's own type.
        0x8864 => matches!(pair(octets, 6)?, 0x0021 | 0x0057)
            .then(|| ip(octets.get(8..)?, depth))
            .flatten(),
        0x8847 | 0x8848 => mpls(octets, depth),
        _ => None,
    }
}

/// MPLS (RFC 3032 §2.1): labels of four octets, the last one with the bit S. What follows isn't named; its first digit shows an IP packet.
fn mpls(octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    let mut rest = octets;
    loop {
        let (label, below) = rest.split_first_chunk::<4>()?;
        rest = below;
        if label[2] & 1 != 0 {
            break;
        }
    }
    matches!(rest.first()? >> 4, 4 | 6)
        .then(|| ip(rest, depth))
        .flatten()
}

/// GRE (RFC 2784, RFC 2890): a checksum, a key and a sequence number follow the header where its flags say so. ERSPAN of type I has no sequence
/// number and no header of its own.
fn gre(octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    const SEQUENCE: u16 = 0x1000;
    let (flags, kind) = (pair(octets, 0)?, pair(octets, 2)?);
    if flags & 7 != 0 {
        return None;
    }

    let fields = [0x8000, 0x2000, SEQUENCE].map(|flag| usize::from(flags & flag != 0));
    let inner = octets.get(4 + 4 * fields.iter().sum::<usize>()..)?;
    match kind {
        // Ethernet within GRE.
        0x6558 => ethernet(inner, depth),
        0x88be if flags & SEQUENCE == 0 => ethernet(inner, depth),
        0x88be => ethernet(inner.get(8..)?, depth),
        // ERSPAN of type III, with a subheader if its last bit says so.
        0x22eb => {
            let has_subheader = inner.get(11)? & 1 != 0;
            ethernet(inner.get(if has_subheader { 20 } else { 12 }..)?, depth)
        }
        kind => of_ether_type(kind, inner, depth),
    }
}

/// Decodes what a datagram to the port of a tunnel holds: VXLAN (RFC 7348 §5, and the port that Linux had before), GENEVE (RFC 8926 §3.4).
fn within_datagram(port: u16, octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    match port {
        4789 | 8472 => (octets.first()? & 0x08 != 0)
            .then(|| ethernet(octets.get(8..)?, depth))
            .flatten(),
        6081 => {
            let first = octets.first()?;
            let inner = octets.get(8 + 4 * usize::from(first & 0x3f)..)?;
            match (first >> 6, pair(octets, 2)?) {
                (0, 0x6558) => ethernet(inner, depth),
                (0, kind) => of_ether_type(kind, inner, depth),
                (_, _) => None,
            }
        }
        _ => None,
    }
}

/// Decodes an IP packet. One that the capture cuts off keeps the octets that are there.
fn ip(octets: &[u8], depth: usize) -> Option<Carried<'_>> {
    let (packet, _) = LaxIpSlice::from_slice(octets).ok()?;
    let (source, target) = (packet.source_addr(), packet.destination_addr());
    let payload = packet.payload();
    let protocol = payload.ip_number.0;

    if !payload.fragmented {
        return within_ip(source, target, protocol, payload.payload, depth);
    }

    let (identification, offset, has_more) = match &packet {
        LaxIpSlice::Ipv4(packet) => {
            let header = packet.header();
            let identification = u32::from(header.identification());
            (
                identification,
                header.fragments_offset(),
                header.more_fragments(),
            )
        }

        LaxIpSlice::Ipv6(packet) => {
            let is_fragment = |header| match header {
                Ipv6ExtensionSlice::Fragment(fragment) => Some(fragment),
                Ipv6ExtensionSlice::HopByHop(_)
                | Ipv6ExtensionSlice::Routing(_)
                | Ipv6ExtensionSlice::DestinationOptions(_)
                | Ipv6ExtensionSlice::Authentication(_) => None,
            };

            let mut headers = packet.extensions().clone().into_iter();
            let header = headers.find_map(is_fragment)?;
            (
                header.identification(),
                header.fragment_offset(),
                header.more_fragments(),
            )
        }
    };

    Some(Carried::Fragment(Fragment {
        key: FragmentKey {
            source,
            target,
            identification,
            protocol,
        },
        offset: usize::from(offset.byte_offset()),
        is_last: !has_more,
        octets: payload.payload,
    }))
}

/// Decodes the payload of a reassembled IP packet.
pub fn transport(
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    octets: &[u8],
) -> Option<Carried<'_>> {
    within_ip(source, target, protocol, octets, DEEPEST)
}

fn within_ip(
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    octets: &[u8],
    depth: usize,
) -> Option<Carried<'_>> {
    match IpNumber(protocol) {
        IpNumber::UDP => {
            let datagram = UdpSlice::from_slice_lax(octets).ok()?;
            let held = datagram.slice().len();

            // Only a datagram in which a whole inner packet is found is a tunnel's: another program may use the port.
            let port = datagram.destination_port();
            if let Some(depth) = depth.checked_sub(1)
                && let Some(inner) = within_datagram(port, datagram.payload(), depth)
            {
                return Some(inner);
            }

            Some(Carried::Udp {
                source: SocketAddr::new(source, datagram.source_port()),
                target: SocketAddr::new(target, datagram.destination_port()),
                octets: datagram.payload(),
                is_cut: usize::from(datagram.length()) > held,
            })
        }
        IpNumber::TCP => {
            let segment = TcpSlice::from_slice(octets).ok()?;

            Some(Carried::Tcp {
                source: SocketAddr::new(source, segment.source_port()),
                target: SocketAddr::new(target, segment.destination_port()),
                sequence: segment.sequence_number(),
                is_first: segment.syn(),
                is_last: segment.fin() || segment.rst(),
                octets: segment.payload(),
            })
        }
        IpNumber::IPV4 | IpNumber::IPV6 => ip(octets, depth.checked_sub(1)?),
        IpNumber::GRE => gre(octets, depth.checked_sub(1)?),
        _ => None,
    }
}

fn pair(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*octets.get(at)?, *octets.get(at + 1)?]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: u8 = 17;
    const TCP: u8 = 6;

    fn v4(protocol: u8, fragmentation: u16, inner: &[u8]) -> Vec<u8> {
        let total = u16::try_from(20 + inner.len()).unwrap().to_be_bytes();
        let [high, low] = fragmentation.to_be_bytes();
        let head = [
            0x45, 0, total[0], total[1], 0x12, 0x34, high, low, 64, protocol, 0, 0,
        ];
        [&head[..], &[192, 0, 2, 1], &[192, 0, 2, 2], inner].concat()
    }

    fn v6(next: u8, inner: &[u8]) -> Vec<u8> {
        let length = u16::try_from(inner.len()).unwrap().to_be_bytes();
        let head = [0x60, 0, 0, 0, length[0], length[1], next, 64];
        let address = |last: u8| [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
        [&head[..], &address(1), &address(2), inner].concat()
    }

    /// A datagram from port 5060 to port 5061, whose header announces so many octets of payload.
    fn datagram(length: u16, payload: &[u8]) -> Vec<u8> {
        let [high, low] = (8 + length).to_be_bytes();
        [&[0x13, 0xc4, 0x13, 0xc5, high, low, 0, 0][..], payload].concat()
    }

    fn segment(flags: u8, payload: &[u8]) -> Vec<u8> {
        let head = [
            0x13, 0xc4, 0x13, 0xc5, 1, 2, 3, 4, 0, 0, 0, 0, 0x60, flags, 0, 0, 0, 0, 0, 0,
        ];
        // One word of options.
        [&head[..], &[1, 1, 1, 0], payload].concat()
    }

    fn udp(is_six: bool, octets: &[u8], is_cut: bool) -> Carried<'_> {
        let end = |last: u8, port: u16| match is_six {
            true => SocketAddr::new(format!("2001:db8::{last}").parse().unwrap(), port),
            false => SocketAddr::from(([192, 0, 2, last], port)),
        };
        Carried::Udp {
            source: end(1, 5060),
            target: end(2, 5061),
            octets,
            is_cut,
        }
    }

    #[test]
    fn a_datagram_is_found_below_each_link_layer() {
        let four = v4(UDP, 0, &datagram(2, b"hi"));
        let six = v6(UDP, &datagram(2, b"hi"));
        let ether = [0; 12];

        for (name, link, is_six, head, packet) in [
            ("loopback", 0, false, &[2, 0, 0, 0][..], &four),
            ("loopback of OpenBSD", 108, true, &[0, 0, 0, 24], &six),
            ("raw", 101, false, &[], &four),
            ("raw IPv6", 229, true, &[], &six),
            ("Ethernet", 1, false, &[&ether[..], &[8, 0]].concat(), &four),
            (
                "Ethernet",
                1,
                true,
                &[&ether[..], &[0x86, 0xdd]].concat(),
                &six,
            ),
            (
                "two VLAN tags",
                1,
                false,
                &[&ether[..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 8, 0]].concat(),
                &four,
            ),
            (
                "PPPoE",
                1,
                true,
                &[&ether[..], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 0, 0, 0x57]].concat(),
                &six,
            ),
            (
                "Linux cooked v1",
                113,
                false,
                &[&[0; 14][..], &[8, 0]].concat(),
                &four,
            ),
            (
                "Linux cooked v2",
                276,
                true,
                &[&[0x86, 0xdd][..], &[0; 18]].concat(),
                &six,
            ),
        ] {
            let frame = [head, packet].concat();
            assert_eq!(
                super::packet(link, &frame),
                Some(udp(is_six, b"hi", false)),
                "{name}"
            );
        }

        assert_eq!(packet(147, &four), None, "a link type of nobody");
        assert_eq!(packet(1, &[0; 60]), Some(Carried::Other));
    }

    #[test]
    fn a_datagram_is_found_in_each_tunnel() {
        let inner = v4(UDP, 0, &datagram(2, b"hi"));
        let frame = [&[0; 12][..], &[8, 0], &inner].concat();
        let six = v6(UDP, &datagram(2, b"hi"));
        let to_port = |port: u16, payload: &[u8]| {
            let length = u16::try_from(8 + payload.len()).unwrap().to_be_bytes();
            let ports = [&[0xc0, 0][..], &port.to_be_bytes(), &length, &[0, 0]].concat();
            v4(UDP, 0, &[&ports[..], payload].concat())
        };
        let gre = |flags: u16, kind: u16, rest: &[u8]| {
            let head = [flags.to_be_bytes(), kind.to_be_bytes()].concat();
            v4(47, 0, &[&head[..], rest].concat())
        };
        let vxlan = [&[8, 0, 0, 0, 0, 0, 1, 0][..], &frame].concat();
        // Two words of options.
        let geneve = |kind: u16, inner: &[u8]| {
            let [high, low] = kind.to_be_bytes();
            [&[2, 0, high, low, 0, 0, 1, 0][..], &[0; 8], inner].concat()
        };

        for (name, is_six, packet) in [
            ("IP in IP", false, v4(4, 0, &inner)),
            ("IPv6 in IP", true, v4(41, 0, &six)),
            ("IP in IPv6", false, v6(4, &inner)),
            ("GRE", false, gre(0, 0x0800, &inner)),
            ("GRE with IPv6", true, gre(0, 0x86dd, &six)),
            (
                "GRE with checksum, key and number",
                false,
                gre(0xb000, 0x0800, &[&[0; 12][..], &inner].concat()),
            ),
            ("Ethernet in GRE", false, gre(0, 0x6558, &frame)),
            ("ERSPAN I", false, gre(0, 0x88be, &frame)),
            (
                "ERSPAN II",
                false,
                gre(0x1000, 0x88be, &[&[0; 12][..], &frame].concat()),
            ),
            (
                "ERSPAN III",
                false,
                gre(0x1000, 0x22eb, &[&[0; 16][..], &frame].concat()),
            ),
            ("VXLAN", false, to_port(4789, &vxlan)),
            ("VXLAN of old", false, to_port(8472, &vxlan)),
            ("GENEVE", false, to_port(6081, &geneve(0x6558, &frame))),
            ("GENEVE with IP", true, to_port(6081, &geneve(0x86dd, &six))),
            (
                "a tunnel in a tunnel",
                false,
                v4(4, 0, &to_port(4789, &vxlan)),
            ),
        ] {
            let found = super::ip(&packet, DEEPEST);
            assert_eq!(found, Some(udp(is_six, b"hi", false)), "{name}");
        }

        let labels = [0, 1, 0x20, 64, 0, 1, 0x21, 64];
        let mpls = [&[0; 12][..], &[0x88, 0x47], &labels, &inner].concat();
        assert_eq!(packet(1, &mpls), Some(udp(false, b"hi", false)), "MPLS");

        // SIP on a port of a tunnel is no tunnel.
        let other = to_port(4789, b"OPTIONS sip:a SIP/2.0");
        let found = super::ip(&other, DEEPEST);
        assert!(matches!(found, Some(Carried::Udp { .. })), "{found:?}");

        let deep = (0..20).fold(inner.clone(), |inner, _| v4(4, 0, &inner));
        assert_eq!(super::ip(&deep, DEEPEST), None, "too deep");
    }

    #[test]
    fn lengths_are_those_of_the_headers_where_the_capture_holds_as_much() {
        let padded = [v4(UDP, 0, &datagram(2, b"hi")), vec![0; 20]].concat();
        assert_eq!(
            super::ip(&padded, DEEPEST),
            Some(udp(false, b"hi", false)),
            "padding"
        );

        let cut = v6(UDP, &datagram(100, b"hi"));
        assert_eq!(
            super::ip(&cut, DEEPEST),
            Some(udp(true, b"hi", true)),
            "cut"
        );

        // With segmentation offload the network card writes the length later, so the capture has 0.
        let mut unset = v4(UDP, 0, &datagram(2, b"hi"));
        unset[2..4].fill(0);
        assert_eq!(
            super::ip(&unset, DEEPEST),
            Some(udp(false, b"hi", false)),
            "no length"
        );

        let options = v6(
            60,
            &[&[UDP, 0, 1, 4, 0, 0, 0, 0], &datagram(2, b"hi")[..]].concat(),
        );
        assert_eq!(
            super::ip(&options, DEEPEST),
            Some(udp(true, b"hi", false)),
            "options"
        );
        assert_eq!(super::ip(&v4(1, 0, &[0; 8]), DEEPEST), None, "ICMP");
    }

    #[test]
    fn a_segment_says_where_it_is_in_its_stream() {
        for (flags, ends) in [
            (0x10, [false, false]),
            (0x02, [true, false]),
            (0x11, [false, true]),
            (0x04, [false, true]),
        ] {
            let packet = v4(TCP, 0, &segment(flags, b"hi"));
            let Some(Carried::Tcp {
                sequence,
                is_first,
                is_last,
                octets,
                ..
            }) = super::ip(&packet, DEEPEST)
            else {
                panic!("no segment: {packet:?}");
            };
            assert_eq!(
                (sequence, [is_first, is_last], octets),
                (0x0102_0304, ends, &b"hi"[..]),
                "{flags:#x}"
            );
        }
    }

    #[test]
    fn fragments_have_their_place_and_their_packet() {
        let later = [UDP, 0, 0, 5 << 3, 0, 0, 0x12, 0x34];
        let whole = [UDP, 0, 0, 0, 0, 0, 0x12, 0x34];
        let pieces = [
            (v4(UDP, 0x2000, b"12345678"), 0, false),
            (v4(UDP, 5, b"12345678"), 40, true),
            (v6(44, &[&later[..], b"12345678"].concat()), 40, true),
        ];

        for (packet, offset, is_last) in &pieces {
            let Some(Carried::Fragment(fragment)) = ip(packet, DEEPEST) else {
                panic!("no fragment: {packet:?}");
            };
            assert_eq!(
                (fragment.offset, fragment.is_last, fragment.octets),
                (*offset, *is_last, &b"12345678"[..])
            );
            let key = fragment.key;
            assert_eq!((key.identification, key.protocol), (0x1234, UDP));
        }

        // A fragment header that leaves the packet whole (RFC 6946).
        let atomic = v6(44, &[&whole[..], &datagram(2, b"hi")].concat());
        assert_eq!(super::ip(&atomic, DEEPEST), Some(udp(true, b"hi", false)));
    }

    proptest::proptest! {
        #[test]
        fn no_octets_make_it_panic(octets: Vec<u8>, link in 0_u32..300) {
            let _ = packet(link, &octets);
            for version in [0x40, 0x60] {
                let mut octets = octets.clone();
                if let Some(first) = octets.first_mut() {
                    *first = version | *first & 0x0f;
                }
                let _ = super::ip(&octets, DEEPEST);
            }
        }
    }
}
