//! Headers below SIP: link layer, IP, UDP, TCP. Stateless: one packet in, its payload out.
//!
//! etherparse reads IP, UDP and TCP. The link layers are read here, since etherparse lacks loopback, Linux cooked v2 and PPPoE.

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

/// Decodes an IP packet. One that the capture cuts off keeps the octets that are there.
fn ip(octets: &[u8]) -> Option<Carried<'_>> {
    let (packet, _) = LaxIpSlice::from_slice(octets).ok()?;
    let (source, target) = (packet.source_addr(), packet.destination_addr());
    let payload = packet.payload();
    let protocol = payload.ip_number.0;

    if !payload.fragmented {
        return transport(source, target, protocol, payload.payload);
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

/// Decodes the payload of an IP packet, whole or reassembled.
pub fn transport(
    source: IpAddr,
    target: IpAddr,
    protocol: u8,
    octets: &[u8],
) -> Option<Carried<'_>> {
    match IpNumber(protocol) {
        IpNumber::UDP => {
            let datagram = UdpSlice::from_slice_lax(octets).ok()?;
            let held = datagram.slice().len();

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
    fn lengths_are_those_of_the_headers_where_the_capture_holds_as_much() {
        let padded = [v4(UDP, 0, &datagram(2, b"hi")), vec![0; 20]].concat();
        assert_eq!(ip(&padded), Some(udp(false, b"hi", false)), "padding");

        let cut = v6(UDP, &datagram(100, b"hi"));
        assert_eq!(ip(&cut), Some(udp(true, b"hi", true)), "cut");

        // With segmentation offload the network card writes the length later, so the capture has 0.
        let mut unset = v4(UDP, 0, &datagram(2, b"hi"));
        unset[2..4].fill(0);
        assert_eq!(ip(&unset), Some(udp(false, b"hi", false)), "no length");

        let options = v6(
            60,
            &[&[UDP, 0, 1, 4, 0, 0, 0, 0], &datagram(2, b"hi")[..]].concat(),
        );
        assert_eq!(ip(&options), Some(udp(true, b"hi", false)), "options");
        assert_eq!(ip(&v4(1, 0, &[0; 8])), None, "ICMP");
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
            }) = ip(&packet)
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
            let Some(Carried::Fragment(fragment)) = ip(packet) else {
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
        assert_eq!(ip(&atomic), Some(udp(true, b"hi", false)));
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
                let _ = ip(&octets);
            }
        }
    }
}
