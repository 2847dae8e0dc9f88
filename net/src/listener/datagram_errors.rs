//! Errors of datagrams: whether they are about a peer, and how it is unreachable.

use std::io;

use trunkline_sip::fault::Unreachable;

/// Classifies an ICMP error. By RFC 3261 §18.4, host, network, port or protocol unreachable and parameter problem are failures of the
/// transport; packet too big, source quench and TTL exceeded are not.
pub(super) const fn unreachable_by_icmp(error: &libc::sock_extended_err) -> Option<Unreachable> {
    const FRAGMENTATION_NEEDED: u8 = 4;
    let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
    let origin = error.ee_origin;

    Some(match (error.ee_type, error.ee_code) {
        // ICMP: RFC 792, RFC 1122 §3.2.2.1 and RFC 1812 §5.2.7.1. ICMPv6: RFC 4443 §3.
        (3, FRAGMENTATION_NEEDED) if origin == v4 => return None,
        (3, 0 | 6) if origin == v4 => Unreachable::Network,
        (3, 1 | 7) if origin == v4 => Unreachable::Host,
        (3, 3) if origin == v4 => Unreachable::Port,
        (3, 9 | 10 | 13) if origin == v4 => Unreachable::Prohibited,
        (3 | 12, _) if origin == v4 => Unreachable::Other,
        (1, 0) if origin == v6 => Unreachable::Network,
        (1, 1) if origin == v6 => Unreachable::Prohibited,
        (1, 3) if origin == v6 => Unreachable::Host,
        (1, 4) if origin == v6 => Unreachable::Port,
        (1 | 4, _) if origin == v6 => Unreachable::Other,
        _ => return None,
    })
}

/// Returns whether an error of the socket reports an ICMP message about an earlier datagram.
pub(super) fn is_of_a_peer(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EHOSTDOWN
                | libc::ENONET
        ) | Some(
            libc::ENOPROTOOPT | libc::EPROTO | libc::EACCES | libc::EOPNOTSUPP | libc::EMSGSIZE
        )
    )
}

/// Classifies the error of a datagram that can't be sent.
pub(super) fn unreachable(error: &io::Error) -> Unreachable {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Unreachable::Port,
        Some(libc::EHOSTUNREACH | libc::EHOSTDOWN) => Unreachable::Host,
        Some(libc::ENETUNREACH | libc::ENETDOWN) => Unreachable::Network,
        Some(libc::EACCES | libc::EPERM) => Unreachable::Prohibited,
        Some(_) | None => Unreachable::Other,
    }
}
