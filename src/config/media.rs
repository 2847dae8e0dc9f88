//! `[media]`: our own RTP, which the built-in echo agent speaks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;

use super::section::Section;

/// Where RTP is received.
#[derive(Clone, Debug)]
pub struct Media {
    /// The UDP ports of RTP.
    pub rtp_ports: RangeInclusive<u16>,
    /// The address that is written into SDP.
    pub ip: IpAddr,
    /// The address that sockets are bound to; by default all of `ip`'s family, since `ip` may be a NAT's.
    pub bind: IpAddr,
}

impl Media {
    /// `default_ip` is the address that callers know us by.
    pub(super) fn read(section: &mut Section<'_>, default_ip: IpAddr) -> Self {
        let ip: IpAddr = section.parsed("ip").unwrap_or(default_ip);
        if ip.is_unspecified() {
            section.refuse_key("ip", "must be an address that callers can send to; use media.bind for the address to listen on");
        }
        let all: IpAddr = if ip.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let ports = section
            .parsed("rtp_ports")
            .unwrap_or(Ports(10_000..=19_999));
        Self {
            rtp_ports: ports.0,
            ip,
            bind: section.parsed("bind").unwrap_or(all),
        }
    }
}

struct Ports(RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "is no range of ports such as 10000-19999";
        let (first, last) = text.split_once('-').ok_or(EXPECTED)?;
        let first: u16 = first.trim().parse().map_err(|_| EXPECTED)?;
        let last: u16 = last.trim().parse().map_err(|_| EXPECTED)?;
        if first < 1024 {
            return Err("starts below port 1024");
        }
        if last <= first {
            Err("holds no pair of ports")
        } else {
            Ok(Self(first..=last))
        }
    }
}
