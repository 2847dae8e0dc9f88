//! Messages as a pcap file for Wireshark: raw IP, each message as one UDP datagram, whatever its transport was.

use std::net::IpAddr;

use trunkline_capture::Captured;

/// LINKTYPE_RAW.
const RAW: u32 = 101;

/// Makes the file, with times in microseconds.
pub fn file(messages: &[Captured]) -> Vec<u8> {
    let mut file = Vec::with_capacity(
        24 + messages
            .iter()
            .map(|message| message.octets.len() + 64)
            .sum::<usize>(),
    );

    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, RAW] {
        file.extend_from_slice(&word.to_le_bytes());
    }

    for message in messages {
        let packet = packet(message);
        let length = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let seconds = u32::try_from(message.at / 1_000_000).unwrap_or(u32::MAX);
        let micros = u32::try_from(message.at % 1_000_000).unwrap_or(0);
        for word in [seconds, micros, length, length] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(&packet);
    }

    file
}

fn packet(message: &Captured) -> Vec<u8> {
    // Cut what doesn't fit into a datagram.
    let octets = &message.octets[..message.octets.len().min(65_000)];
    let length = u16::try_from(octets.len() + 8).unwrap_or(u16::MAX);
    let mut udp = Vec::with_capacity(octets.len() + 8);
    // The last is the checksum: 0 means that there is none (RFC 768), which IPv6 doesn't allow.
    for half in [message.source.port(), message.target.port(), length, 0] {
        udp.extend_from_slice(&half.to_be_bytes());
    }

    udp.extend_from_slice(octets);
    match (message.source.ip(), message.target.ip()) {
        (IpAddr::V4(source), IpAddr::V4(target)) => {
            let total = u16::try_from(udp.len() + 20)
                .unwrap_or(u16::MAX)
                .to_be_bytes();
            let mut head = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
            head.extend_from_slice(&source.octets());
            head.extend_from_slice(&target.octets());
            let checksum = sum(&head).to_be_bytes();
            head[10..12].copy_from_slice(&checksum);
            [head, udp].concat()
        }
        (source, target) => {
            let [source, target] = [source, target].map(|address| match address {
                IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
                IpAddr::V6(v6) => v6.octets(),
            });

            // IPv6 requires the checksum: over addresses, length, protocol and datagram.
            let pseudo = [
                &source[..],
                &target,
                &[0, 0],
                &length.to_be_bytes(),
                &[0, 0, 0, 17],
                &udp,
            ]
            .concat();

            let checksum = sum(&pseudo).to_be_bytes();
            udp[6..8].copy_from_slice(&checksum);
            let length = length.to_be_bytes();
            let head = [0x60, 0, 0, 0, length[0], length[1], 17, 64];
            [&head[..], &source, &target, &udp].concat()
        }
    }
}

/// Internet checksum (RFC 1071).
fn sum(octets: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in octets.chunks(2) {
        sum += u32::from(u16::from_be_bytes([
            pair[0],
            pair.get(1).copied().unwrap_or(0),
        ]));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let folded = !u16::try_from(sum & 0xffff).unwrap_or(0);
    // RFC 768: a checksum of zero "is transmitted as all ones", since zero means none.
    if folded == 0 { u16::MAX } else { folded }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_capture::Transport;
    use trunkline_capture::import::import;

    #[test]
    fn what_is_written_is_read_again() {
        for (source, target) in [
            ("10.0.0.1:5060", "10.0.0.2:5062"),
            ("[2001:db8::1]:5060", "[2001:db8::2]:5060"),
        ] {
            let message = Captured {
                at: 1_700_000_000_123_456,
                source: source.parse().unwrap(),
                target: target.parse().unwrap(),
                transport: Transport::Udp,
                octets: b"OPTIONS sip:a SIP/2.0\r\nCall-ID: x\r\n\r\n".to_vec(),
            };
            let file = file(std::slice::from_ref(&message));
            let mut calls = Vec::new();
            import(file.as_slice(), None, &mut |call| {
                calls.push(call);
                Ok(())
            })
            .unwrap();
            assert_eq!(calls[0].started, message.at);
            assert_eq!(calls[0].entries[0].octets, message.octets);
            assert_eq!(calls[0].peers[0].1, message.source);
        }
    }
}
