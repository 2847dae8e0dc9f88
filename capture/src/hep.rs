//! HEP version 3, the envelope in which probes send copies of messages to a Homer collector (HEP3 network protocol specification, rev. 36):
//! reading it out of captures, and writing it.

use std::net::{IpAddr, SocketAddr};

use super::{Captured, Transport};

const HEAD: &[u8] = b"HEP3";

/// Returns the message of an envelope, if it holds SIP.
pub fn open(octets: &[u8]) -> Option<Captured> {
    let mut rest = octets.strip_prefix(HEAD)?.get(2..)?;
    let mut source = (None, 0);
    let mut target = (None, 0);
    let (mut seconds, mut micros) = (0_u64, 0_u64);
    let mut transport = Transport::Udp;
    let mut payload = None;

    while let Some((head, _)) = rest.split_at_checked(6) {
        let [vendor, kind, length] =
            [0, 2, 4].map(|at| u16::from_be_bytes([head[at], head[at + 1]]));
        let value = rest.get(6..usize::from(length))?;
        rest = &rest[usize::from(length)..];

        // Only vendor 0 has the meanings of the specification; others number their chunks as they like.
        if vendor != 0 {
            continue;
        }

        match kind {
            2 if value == [6] => transport = Transport::Tcp,
            3 => source.0 = Some(IpAddr::from(*value.first_chunk::<4>()?)),
            4 => target.0 = Some(IpAddr::from(*value.first_chunk::<4>()?)),
            5 => source.0 = Some(IpAddr::from(*value.first_chunk::<16>()?)),
            6 => target.0 = Some(IpAddr::from(*value.first_chunk::<16>()?)),
            7 => source.1 = u16::from_be_bytes(*value.first_chunk()?),
            8 => target.1 = u16::from_be_bytes(*value.first_chunk()?),
            9 => seconds = u64::from(u32::from_be_bytes(*value.first_chunk()?)),
            10 => micros = u64::from(u32::from_be_bytes(*value.first_chunk()?)),
            // Probes also send RTCP reports and logs in this envelope; 1 is SIP.
            11 if value != [1] => return None,
            15 => payload = Some(value.to_vec()),
            _ => {}
        }
    }

    Some(Captured {
        at: seconds * 1_000_000 + micros,
        source: SocketAddr::new(source.0?, source.1),
        target: SocketAddr::new(target.0?, target.1),
        transport,
        octets: payload?,
    })
}

/// Wraps a message in an envelope; `correlation` is the same for all legs of a call.
pub fn close(captured: &Captured, node: u32, correlation: &str) -> Vec<u8> {
    let mut chunks = Vec::with_capacity(captured.octets.len() + 160);
    let mut chunk = |kind: u16, value: &[u8]| {
        let length = u16::try_from(value.len() + 6).unwrap_or(u16::MAX);
        let value = &value[..usize::from(length) - 6];
        chunks.extend_from_slice(&[0, 0]);
        chunks.extend_from_slice(&kind.to_be_bytes());
        chunks.extend_from_slice(&length.to_be_bytes());
        chunks.extend_from_slice(value);
    };

    // One family for both addresses: an envelope has only one chunk that names it.
    let is_v4 = captured.source.is_ipv4() && captured.target.is_ipv4();
    chunk(1, &[if is_v4 { 2 } else { 10 }]);
    let protocol = match captured.transport {
        Transport::Udp => 17,
        Transport::Tcp | Transport::Tls => 6,
    };
    chunk(2, &[protocol]);

    for (kind, address) in [(3, captured.source.ip()), (4, captured.target.ip())] {
        match address {
            IpAddr::V4(address) if is_v4 => chunk(kind, &address.octets()),
            IpAddr::V4(address) => chunk(kind + 2, &address.to_ipv6_mapped().octets()),
            IpAddr::V6(address) => chunk(kind + 2, &address.octets()),
        }
    }

    chunk(7, &captured.source.port().to_be_bytes());
    chunk(8, &captured.target.port().to_be_bytes());
    let (seconds, micros) = (captured.at / 1_000_000, captured.at % 1_000_000);
    chunk(9, &u32::try_from(seconds).unwrap_or(u32::MAX).to_be_bytes());
    chunk(10, &u32::try_from(micros).unwrap_or(0).to_be_bytes());
    chunk(11, &[1]);
    chunk(12, &node.to_be_bytes());
    chunk(17, correlation.as_bytes());
    chunk(15, &captured.octets);

    let total = u16::try_from(chunks.len() + 6).unwrap_or(u16::MAX);
    [HEAD, &total.to_be_bytes(), &chunks].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_closed_opens_again() {
        for (source, target) in [
            ("10.0.0.1:5060", "10.0.0.2:5061"),
            ("[::1]:1", "[fe80::1]:2"),
        ] {
            let captured = Captured {
                at: 1_700_000_000_123_456,
                source: source.parse().unwrap(),
                target: target.parse().unwrap(),
                transport: Transport::Tcp,
                octets: b"OPTIONS sip:a SIP/2.0\r\n\r\n".to_vec(),
            };
            let envelope = close(&captured, 7, "call");
            assert_eq!(open(&envelope), Some(captured));
            for cut in 0..envelope.len() {
                assert!(open(&envelope[..cut]).is_none_or(|found| found.octets.is_empty()));
            }
        }
    }
}
