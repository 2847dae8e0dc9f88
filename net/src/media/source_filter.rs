//! Sources from which a call's peer is expected, and the kernel's filter that keeps all other packets off the call's socket (socket(7),
//! `SO_ATTACH_FILTER`).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use socket2::{SockFilter, SockRef};

/// Instructions of the classic BPF machine (linux/filter.h): load a word or half a word, compare with a constant, return.
const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const EQUALS: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Offset of the IP header. Other offsets count from the UDP header.
const IP_HEADER: u32 = 0xfff0_0000;

/// Offsets of the source: its address in the header of IPv4 and of IPv6, its port in that of UDP.
const SOURCE_V4: u32 = IP_HEADER + 12;
const SOURCE_V6: u32 = IP_HEADER + 8;
const SOURCE_PORT: u32 = 0;

/// Sources whose packets may be the peer's.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum SourceFilter {
    /// The learnt address.
    Learnt(SocketAddr),
    /// The negotiated IP addresses on any port, until an address is learnt.
    Negotiated([IpAddr; 2]),
}

impl SourceFilter {
    /// Returns whether a packet from this source may be the peer's.
    pub(super) fn admits(&self, source: SocketAddr) -> bool {
        match self {
            Self::Learnt(learnt) => *learnt == source,
            Self::Negotiated(ips) => {
                let ip = source.ip().to_canonical();
                ips.iter().any(|of| of.to_canonical() == ip)
            }
        }
    }

    /// Has the kernel drop all other packets to a socket. Those that it has already queued stay.
    ///
    /// # Errors
    /// The kernel refuses filters.
    pub(super) fn attach(&self, socket: &UdpSocket) -> io::Result<()> {
        SockRef::from(socket).attach_filter(&self.program())
    }

    /// Has the kernel queue all packets again.
    ///
    /// # Errors
    /// The socket has no filter.
    pub(super) fn detach(socket: &UdpSocket) -> io::Result<()> {
        SockRef::from(socket).detach_filter()
    }

    fn program(&self) -> Vec<SockFilter> {
        let sources = match self {
            Self::Learnt(learnt) => vec![(learnt.ip(), Some(learnt.port()))],
            Self::Negotiated(ips) => ips.map(|ip| (ip, None)).into(),
        };

        let mut program = Vec::new();
        for (ip, port) in sources {
            add(&mut program, &fields(ip.to_canonical(), port));
        }
        // No octet of the packet is kept.
        program.push(SockFilter::new(RETURN, 0, 0, 0));
        program
    }
}

/// Returns the fields of a source: how each is loaded, its offset and its value.
fn fields(ip: IpAddr, port: Option<u16>) -> Vec<(u16, u32, u32)> {
    let mut fields = match ip {
        IpAddr::V4(v4) => vec![(LOAD_WORD, SOURCE_V4, v4.to_bits())],
        IpAddr::V6(v6) => (0..4)
            .map(|word| {
                let value = (v6.to_bits() >> (96 - 32 * word)) as u32;
                (LOAD_WORD, SOURCE_V6 + 4 * word, value)
            })
            .collect(),
    };
    fields.extend(port.map(|port| (LOAD_HALF, SOURCE_PORT, u32::from(port))));
    fields
}

/// Adds the part of the program that keeps the packets of one source.
fn add(program: &mut Vec<SockFilter>, fields: &[(u16, u32, u32)]) {
    // A jump skips the rest of this part: two instructions for each further field, and the return.
    let rests = (0..fields.len() as u8).rev().map(|further| 2 * further + 1);
    for ((load, offset, value), rest) in fields.iter().zip(rests) {
        program.push(SockFilter::new(*load, 0, 0, *offset));
        program.push(SockFilter::new(EQUALS, 0, rest, *value));
    }
    program.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    /// Sends a packet from each socket, and returns which of them arrive.
    fn arriving(at: &UdpSocket, from: [&UdpSocket; 3]) -> Vec<usize> {
        for (number, socket) in from.iter().enumerate() {
            socket
                .send_to(&[number as u8], at.local_addr().unwrap())
                .unwrap();
        }

        let mut octet = [0];
        std::iter::from_fn(|| at.recv(&mut octet).ok().map(|_| usize::from(octet[0]))).collect()
    }

    #[test]
    fn only_expected_sources_pass_until_the_filter_is_detached() {
        for here in [
            IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::LOCALHOST),
        ] {
            let bind = || {
                let socket = UdpSocket::bind((here, 0)).unwrap();
                socket.set_nonblocking(true).unwrap();
                socket
            };
            let (ours, one, other, third) = (bind(), bind(), bind(), bind());
            let from = [&one, &other, &third];
            let learnt = SourceFilter::Learnt(other.local_addr().unwrap());
            let negotiated = |ip: &str| SourceFilter::Negotiated([ip.parse().unwrap(), here]);
            let away = SourceFilter::Negotiated(
                ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse().unwrap()),
            );

            for (name, filter, expected) in [
                ("learnt", learnt, vec![1]),
                ("any port", negotiated("192.0.2.1"), vec![0, 1, 2]),
                (
                    "any port, IPv6 first",
                    negotiated("2001:db8::1"),
                    vec![0, 1, 2],
                ),
                ("other addresses", away, vec![]),
            ] {
                filter.attach(&ours).unwrap();
                assert_eq!(arriving(&ours, from), expected, "{here}: {name}");
                let admitted = |at: &usize| filter.admits(from[*at].local_addr().unwrap());
                let admitted: Vec<usize> = (0..3).filter(admitted).collect();
                assert_eq!(admitted, expected, "{here}: {name}, by admits");
            }

            SourceFilter::detach(&ours).unwrap();
            assert_eq!(arriving(&ours, from), [0, 1, 2], "{here}");
        }
    }
}
