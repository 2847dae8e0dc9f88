//! Attributes of an audio stream about the packets that its peer wants: `a=maxptime` (RFC 8866 §6.4) and `a=rtcp` (RFC 3605).

use std::net::{IpAddr, SocketAddr};

use super::connection_line::Connection;
use crate::header::text;

/// Audio in each packet that is sent.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum PacketTime {
    /// 20 ms.
    #[default]
    Ms20,
    /// 10 ms.
    Ms10,
    /// 5 ms.
    Ms5,
}

impl PacketTime {
    /// Returns the longest one within `most` milliseconds. Nothing is sent in shorter packets than 5 ms: each costs as much as one of 20 ms.
    const fn within(most: u32) -> Self {
        match most {
            ..10 => Self::Ms5,
            10..20 => Self::Ms10,
            20.. => Self::Ms20,
        }
    }

    /// Number of packets of 20 ms of audio.
    pub const fn parts(self) -> u8 {
        match self {
            Self::Ms20 => 1,
            Self::Ms10 => 2,
            Self::Ms5 => 4,
        }
    }
}

/// The attributes of one stream.
#[derive(Copy, Clone, Default)]
pub(super) struct RtpAttributes {
    packet_time: PacketTime,
    /// Port of the peer's RTCP, and its address unless that is the stream's.
    rtcp: Option<(u16, Option<IpAddr>)>,
}

impl RtpAttributes {
    /// Takes the value of an `a=` line.
    pub(super) fn take(&mut self, value: &[u8]) {
        if let Some(most) = value.strip_prefix(b"maxptime:") {
            // RFC 8866 allows a fraction, of which nothing is left in whole milliseconds.
            let whole = most.split(|octet| *octet == b'.').next().unwrap_or(most);
            let most = text::number(whole.trim_ascii()).filter(|most| *most > 0);
            self.packet_time = most.map_or(self.packet_time, PacketTime::within);
        } else if let Some(place) = value.strip_prefix(b"rtcp:") {
            self.rtcp = place_of(place);
        }
    }

    pub(super) const fn packet_time(&self) -> PacketTime {
        self.packet_time
    }

    /// Address at which the peer wants its RTCP, if it names one; `ip` is the stream's.
    pub(super) fn rtcp(&self, ip: IpAddr) -> Option<SocketAddr> {
        let (port, own) = self.rtcp?;
        Some(SocketAddr::new(own.unwrap_or(ip), port))
    }
}

/// Reads a port, perhaps with a connection such as `53020 IN IP4 126.16.64.4`. `None` for a host name, which isn't looked up.
fn place_of(value: &[u8]) -> Option<(u16, Option<IpAddr>)> {
    let value = value.trim_ascii();
    let end = memchr::memchr(b' ', value).unwrap_or(value.len());
    let port = text::number(&value[..end])?;
    let port = u16::try_from(port).ok().filter(|port| *port != 0)?;
    let ip = match value[end..].trim_ascii() {
        b"" => None,
        connection => Some(Connection::read(connection, 0).ip?),
    };
    Some((port, ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> RtpAttributes {
        let mut attributes = RtpAttributes::default();
        for line in lines {
            attributes.take(line.as_bytes());
        }
        attributes
    }

    #[test]
    fn packets_are_no_longer_than_maxptime_allows() {
        for (line, parts) in [
            ("maxptime:150", 1),
            ("maxptime:20", 1),
            ("maxptime:19", 2),
            ("maxptime:10", 2),
            ("maxptime:12.5", 2),
            ("maxptime:5", 4),
            ("maxptime:1", 4),
            ("maxptime:0", 1),
            ("maxptime:soon", 1),
            ("ptime:10", 1),
        ] {
            assert_eq!(of(&[line]).packet_time().parts(), parts, "{line}");
        }
    }

    #[test]
    fn rtcp_is_wanted_where_the_peer_says() {
        let stream: IpAddr = "192.0.2.1".parse().expect("an address");
        for (line, place) in [
            ("rtcp:53020", Some("192.0.2.1:53020")),
            ("rtcp:53020 IN IP4 192.0.2.4", Some("192.0.2.4:53020")),
            ("rtcp:53020 IN IP6 2001:db8::4", Some("[2001:db8::4]:53020")),
            ("rtcp:53020 IN IP4 media.example", None),
            ("rtcp:0", None),
            ("rtcp:65536", None),
            ("rtcp-mux", None),
        ] {
            let place = place.map(|place| place.parse().expect("an address"));
            assert_eq!(of(&[line]).rtcp(stream), place, "{line}");
        }
    }
}
