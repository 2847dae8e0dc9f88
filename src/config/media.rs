//! `[media]`: RTP that this node terminates, and the address in its SDP.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use super::section::Section;
use super::{Listener, Sip};

/// Addresses and ports of RTP.
#[derive(Clone, Debug)]
pub struct Media {
    /// The UDP ports of RTP.
    pub rtp_ports: RangeInclusive<u16>,
    /// Address in SDP for calls of its family, unless their listener advertises one of its own.
    pub ip: Option<IpAddr>,
    /// Silence of a peer's RTP after which it is asked whether it is still there; zero: never.
    pub silence: Duration,
}

/// Address in SDP for callers of one listener.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum MediaHost<'c> {
    /// This address.
    Address(IpAddr),
    /// Address of this name, which is the value of `key`.
    Name {
        /// Name.
        host: &'c str,
        /// Key that configures it.
        key: &'static str,
    },
    /// Address that the call came to.
    Own,
}

impl Media {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let ip: Option<IpAddr> = section.parsed("ip");
        if ip.is_some_and(|ip| ip.is_unspecified()) {
            section.refuse_key("ip", "must be an address that callers can send to");
        }
        let ports = section
            .parsed("rtp_ports")
            .unwrap_or(Ports(10_000..=19_999));
        Self {
            rtp_ports: ports.0,
            ip,
            silence: Duration::from_secs(section.number("silence_s", 0..=3_600).unwrap_or(30)),
        }
    }

    /// Returns the address in SDP for callers of `listener`: an address that it advertises, else `media.ip`, else what
    /// its name or `sip.public_host` resolves to. Addresses of the other family are ignored.
    pub fn host_for<'c>(&self, sip: &'c Sip, listener: &'c Listener) -> MediaHost<'c> {
        let is_usable = |ip: &IpAddr| ip.is_ipv6() == listener.address.is_ipv6();
        let configured = [
            (listener.advertise.as_ref(), "advertise"),
            (sip.public_host.as_ref(), "sip.public_host"),
        ];
        let [own, public] = configured.map(|(host, key)| host.map(|host| (host, key)));

        let addressed = |host: Option<(&super::HostPort, _)>| host.and_then(|(host, _)| host.ip());
        let own_address = addressed(own).filter(is_usable);
        if let Some(ip) = own_address.or(self.ip.filter(is_usable)) {
            return MediaHost::Address(ip);
        }

        let name = |host: Option<(&'c super::HostPort, &'static str)>| {
            let (host, key) = host.filter(|(host, _)| host.ip().is_none())?;
            Some(MediaHost::Name {
                host: host.host(),
                key,
            })
        };

        name(own)
            .or_else(|| addressed(public).filter(is_usable).map(MediaHost::Address))
            .or_else(|| name(public))
            .unwrap_or(MediaHost::Own)
    }
}

struct Ports(RangeInclusive<u16>);

impl FromStr for Ports {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "is not a range of ports such as 10000-19999";
        let (first, last) = text.split_once('-').ok_or(EXPECTED)?;
        let first: u16 = first.trim().parse().map_err(|_| EXPECTED)?;
        let last: u16 = last.trim().parse().map_err(|_| EXPECTED)?;
        if first < 1024 {
            return Err("starts below port 1024");
        }
        // RTP takes a port, and RTCP the one above it.
        if last <= first {
            Err("holds no pair of ports")
        } else {
            Ok(Self(first..=last))
        }
    }
}
