//! Addresses for our own RTP. An address in SDP isn't proven, so the rule on addresses applies to it as to a target of calls; the source of the
//! call's own signalling is the exception.

use std::net::{IpAddr, SocketAddr};

use trunkline_model::address::{AddressPolicy, Refusal};
use trunkline_sip::flow::is_private;

/// Returns the IPs that a peer's RTP is expected from and sent to: the one in its SDP and, if that is private, the source of its signalling as well.
/// If the private IP isn't listed, only the source of the signalling.
///
/// # Errors
/// The SDP names a listener of ours, an invalid address, or a peer that the operator has reserved: nothing is sent.
pub(super) fn sources(
    addresses: &AddressPolicy,
    sdp: SocketAddr,
    signalling: SocketAddr,
) -> Result<[IpAddr; 2], Refusal> {
    let (ip, from) = (sdp.ip(), signalling.ip());
    let is_its_own = ip.to_canonical() == from.to_canonical();

    match addresses.examine(sdp) {
        // On hold in the way of RFC 2543.
        Err(Refusal::NoHost) if ip.is_unspecified() => {}
        Ok(()) => {}

        // No peer has its media at such an address.
        Err(refusal @ (Refusal::NoHost | Refusal::Own | Refusal::Wide | Refusal::Plain)) => {
            return Err(refusal);
        }
        Err(Refusal::Private | Refusal::Near | Refusal::Reserved) if is_its_own => {}
        // A call from one reserved peer may have its media at another.
        Err(Refusal::Reserved) if addresses.examine(signalling) == Err(Refusal::Reserved) => {}
        Err(refusal @ Refusal::Reserved) => return Err(refusal),
        Err(Refusal::Private | Refusal::Near) => return Ok([from; 2]),
    }

    Ok(match (is_private(ip), is_private(from)) {
        (false, _) => [ip; 2],
        // A private address behind NAT can't be reached from here; its RTP leaves the NAT like its signalling.
        (true, false) => [from; 2],
        (true, true) => [ip, from],
    })
}

/// Returns the address that a peer's audio goes to before anything has come from there: the one in SDP if its IP is the one that signals, or
/// behind a NAT that IP with the port in SDP. `None` for any other IP, which may be a third party's.
pub(super) fn claimed(sdp: SocketAddr, signalling: IpAddr) -> Option<SocketAddr> {
    let (ip, from) = (sdp.ip().to_canonical(), signalling.to_canonical());
    if ip == from {
        return Some(sdp);
    }
    (is_private(ip) && !is_private(from)).then(|| SocketAddr::new(signalling, sdp.port()))
}

/// Returns whether SDP names a private address that RTP isn't expected from, in a network of the peer's.
pub(super) fn is_elsewhere(sdp: IpAddr, sources: [IpAddr; 2]) -> bool {
    is_private(sdp) && !sources.contains(&sdp)
}

#[cfg(test)]
mod tests {
    use trunkline_model::reserved::ReservedPeers;

    use super::*;

    #[test]
    fn audio_goes_first_to_the_ip_that_signals() {
        for (case, sdp, signalling, expected) in [
            (
                "its own",
                "192.0.2.1:4000",
                "192.0.2.1",
                Some("192.0.2.1:4000"),
            ),
            (
                "its own, private",
                "10.0.0.1:4000",
                "10.0.0.1",
                Some("10.0.0.1:4000"),
            ),
            (
                "behind a NAT",
                "10.0.0.1:4000",
                "192.0.2.1",
                Some("192.0.2.1:4000"),
            ),
            ("another public one", "192.0.2.2:4000", "192.0.2.1", None),
            ("another private one", "10.0.0.2:4000", "10.0.0.1", None),
            (
                "a public one of a private peer",
                "192.0.2.2:4000",
                "10.0.0.1",
                None,
            ),
            (
                "mapped",
                "[::ffff:192.0.2.1]:4000",
                "192.0.2.1",
                Some("[::ffff:192.0.2.1]:4000"),
            ),
        ] {
            let (sdp, signalling) = (sdp.parse().unwrap(), signalling.parse().unwrap());
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(claimed(sdp, signalling), expected, "{case}");
        }
    }

    #[test]
    fn rtp_is_expected_where_sdp_or_signalling_say() {
        let listed = vec!["10.9.0.0/16".parse().unwrap()];
        let own = vec!["192.0.2.200:5060".parse().unwrap()];
        let reserved = ["192.0.2.66", "192.0.2.67"].map(|peer| peer.parse().unwrap());
        let policy = AddressPolicy::new(listed, own, Vec::new());
        let policy = policy.reserving(ReservedPeers::new(reserved.into()));
        let both = |one: &str, two: &str| Ok([one, two].map(|ip| ip.parse::<IpAddr>().unwrap()));
        let one = |ip: &str| both(ip, ip);
        for (name, sdp, signalling, expected) in [
            ("public", "192.0.2.1:4000", "198.51.100.1", one("192.0.2.1")),
            (
                "public SDP of a private peer",
                "192.0.2.1:4000",
                "10.0.0.1",
                one("192.0.2.1"),
            ),
            (
                "behind a NAT",
                "10.0.0.1:4000",
                "198.51.100.1",
                one("198.51.100.1"),
            ),
            (
                "behind a NAT, IPv6",
                "[fd00::1]:4000",
                "2606:4700::1",
                one("2606:4700::1"),
            ),
            (
                "its own private address",
                "10.0.0.1:4000",
                "10.0.0.1",
                one("10.0.0.1"),
            ),
            (
                "on a LAN that isn't listed",
                "10.0.0.1:4000",
                "10.0.0.2",
                one("10.0.0.2"),
            ),
            (
                "on a LAN that is listed",
                "10.9.0.1:4000",
                "10.0.0.2",
                both("10.9.0.1", "10.0.0.2"),
            ),
            (
                "a LAN from this machine",
                "10.0.0.1:4000",
                "127.0.0.1",
                one("127.0.0.1"),
            ),
            (
                "this machine from a LAN",
                "127.0.0.1:4000",
                "10.0.0.2",
                one("10.0.0.2"),
            ),
            (
                "link-local from a public address",
                "169.254.169.254:80",
                "198.51.100.1",
                one("198.51.100.1"),
            ),
            (
                "loopback within NAT64",
                "[64:ff9b::7f00:1]:4000",
                "198.51.100.1",
                one("198.51.100.1"),
            ),
            (
                "mapped",
                "10.0.0.1:4000",
                "::ffff:198.51.100.1",
                one("::ffff:198.51.100.1"),
            ),
            (
                "our own listener",
                "192.0.2.200:5060",
                "198.51.100.1",
                Err(Refusal::Own),
            ),
            (
                "another port there",
                "192.0.2.200:4000",
                "198.51.100.1",
                one("192.0.2.200"),
            ),
            (
                "reserved",
                "192.0.2.66:4000",
                "198.51.100.1",
                Err(Refusal::Reserved),
            ),
            (
                "a reserved peer's own call",
                "192.0.2.66:4000",
                "192.0.2.66",
                one("192.0.2.66"),
            ),
            (
                "another reserved peer's",
                "192.0.2.67:4000",
                "192.0.2.66",
                one("192.0.2.67"),
            ),
            (
                "broadcast",
                "255.255.255.255:4000",
                "198.51.100.1",
                Err(Refusal::NoHost),
            ),
            ("0/8", "0.0.0.1:4000", "198.51.100.1", Err(Refusal::NoHost)),
            (
                "the signalling's own address at our listener's port",
                "192.0.2.200:5060",
                "192.0.2.200",
                Err(Refusal::Own),
            ),
            (
                "multicast",
                "224.0.0.5:4000",
                "198.51.100.1",
                Err(Refusal::NoHost),
            ),
        ] {
            let signalling: IpAddr = signalling.parse().unwrap();
            let signalling = SocketAddr::new(signalling, 5060);
            let found = sources(&policy, sdp.parse().unwrap(), signalling);
            assert_eq!(found, expected, "{name}");
        }

        let public = "198.51.100.1:5060".parse().unwrap();
        let held = sources(&policy, "0.0.0.0:4000".parse().unwrap(), public);
        assert!(held.is_ok(), "hold");
    }
}
