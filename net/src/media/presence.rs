//! Packets that show that a peer listens at an address, although they bring none of its audio: comfort noise (RFC 3389) and other payload
//! types, RTCP, and STUN (RFC 8489), by which a peer checks the path or keeps a NAT open.

use std::net::SocketAddr;

use super::rtcp;

/// Length of the fixed header of RTP, and of STUN.
const RTP_HEADER: usize = 12;
const STUN_HEADER: usize = 20;

/// Magic cookie of STUN (RFC 8489 §5), behind type and length.
const COOKIE: [u8; 4] = [0x21, 0x12, 0xa4, 0x42];

/// Returns whether a packet has come from the peer that listens for RTP at `address`. RTCP may come from the next higher port as well
/// (RFC 3550 §11).
pub(super) fn is_from(address: SocketAddr, octets: &[u8], source: SocketAddr) -> bool {
    if address.ip().to_canonical() != source.ip().to_canonical() {
        return false;
    }
    let is_next = || address.port().checked_add(1) == Some(source.port());
    match rtcp::is_rtcp(octets) {
        true => address.port() == source.port() || is_next(),
        false => address.port() == source.port() && (is_rtp(octets) || is_stun(octets)),
    }
}

fn is_rtp(octets: &[u8]) -> bool {
    octets.len() >= RTP_HEADER && octets[0] >> 6 == 2
}

fn is_stun(octets: &[u8]) -> bool {
    octets.len() >= STUN_HEADER && octets[0] >> 6 == 0 && octets[4..8] == COOKIE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_noticed_by_what_only_a_media_stack_sends() {
        let comfort_noise = [0x80, 13, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0x40];
        let video = [0x80, 97, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1];
        let report = [0x80, 201, 0, 1, 0, 0, 0, 1];
        let mut binding = [0; 20];
        binding[1] = 1;
        binding[4..8].copy_from_slice(&COOKIE);

        for (case, octets, port, expected) in [
            ("comfort noise", &comfort_noise[..], 4_000, true),
            ("another payload type", &video, 4_000, true),
            ("RTCP on one port with RTP", &report, 4_000, true),
            ("RTCP", &report, 4_001, true),
            ("STUN", &binding, 4_000, true),
            ("STUN of another socket", &binding, 4_001, false),
            (
                "comfort noise of another socket",
                &comfort_noise,
                4_002,
                false,
            ),
            ("RTCP of another stream", &report, 4_003, false),
            ("neither", b"OPTIONS sip:a@b SIP/2.0\r\n", 4_000, false),
            ("nothing", b"", 4_000, false),
        ] {
            let listens_at = SocketAddr::from(([192, 0, 2, 1], 4_000));
            let source = SocketAddr::new(listens_at.ip(), port);
            assert_eq!(is_from(listens_at, octets, source), expected, "{case}");
            let other = SocketAddr::from(([192, 0, 2, 2], port));
            assert!(!is_from(listens_at, octets, other), "{case}, another host");
        }
    }
}
