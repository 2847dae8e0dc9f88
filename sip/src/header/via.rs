//! Via (RFC 3261 §20.42, RFC 3581): the sender of a message, and where its answer goes.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::params::{self, Param, Params};
use super::text;

/// One element of a Via list.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Via<'a> {
    /// `UDP`, `TCP`, `TLS`, …, as sent.
    pub transport: &'a [u8],
    /// The host of sent-by; an IPv6 address has its brackets.
    pub host: &'a [u8],
    /// The port of sent-by.
    pub port: Option<u16>,
    /// The transaction's branch.
    pub branch: Option<&'a [u8]>,
    /// The source as an earlier hop saw it.
    pub received: Option<&'a [u8]>,
    /// Present without a value in a request that asks for one (RFC 3581).
    pub rport: Option<Option<u16>>,
    /// Protocol, transport and sent-by, without parameters.
    pub head: &'a [u8],
    /// The parameters, from the first semicolon on.
    pub params: &'a [u8],
}

/// Not a Via element.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a Via")]
pub struct NotAVia;

impl<'a> Via<'a> {
    /// Reads one element of a Via list.
    ///
    /// # Errors
    /// Not SIP, no version, no transport, no host, an invalid port, an open quote, or a branch with blanks.
    pub fn parse(element: &'a [u8]) -> Result<Self, NotAVia> {
        let element = text::trim(element);
        let end = memchr::memchr(b';', element).unwrap_or(element.len());
        let (head, params) = element.split_at(end);
        let head = text::trim(head);

        // The parameters that we append must be readable (RFC 3261 §18.2.1).
        if !params::are_closed(params) {
            return Err(NotAVia);
        }

        let (transport, sent_by) = protocol(head)?;
        let (host, port) = host_port(sent_by)?;
        let mut via = Self {
            transport,
            host,
            port,
            branch: None,
            received: None,
            rport: None,
            head,
            params,
        };
        for param in via.parameters() {
            via.note(param);
        }

        // We might repeat blanks as other blanks, and the sender matches the answer by its branch.
        let is_readable = |branch: &[u8]| !text::holds(branch, |octet| !octet.is_ascii_graphic());
        if via.branch.is_none_or(is_readable) {
            Ok(via)
        } else {
            Err(NotAVia)
        }
    }

    /// Moves the Via to other octets; `to` maps each part to its new place.
    pub(crate) fn moved<'c>(&self, to: impl Fn(&[u8]) -> &'c [u8]) -> Via<'c> {
        Via {
            transport: to(self.transport),
            host: to(self.host),
            port: self.port,
            branch: self.branch.map(&to),
            received: self.received.map(&to),
            rport: self.rport,
            head: to(self.head),
            params: to(self.params),
        }
    }

    /// Takes a parameter. The first one of a name counts. An rport with an invalid port counts as one without a value.
    fn note(&mut self, param: Param<'a>) {
        if param.is("branch") {
            self.branch = self
                .branch
                .or(param.value.filter(|branch| !branch.is_empty()));
        } else if param.is("received") {
            self.received = self.received.or(param.value);
        } else if param.is("rport") && self.rport.is_none() {
            self.rport = Some(param.value.and_then(|port| port_of(port).ok()));
        }
    }

    /// Returns true if the host of sent-by is exactly this address.
    pub fn names(&self, address: IpAddr) -> bool {
        let text = std::str::from_utf8(self.host).unwrap_or_default();
        match address.to_canonical() {
            IpAddr::V4(v4) => text.parse() == Ok(v4),
            IpAddr::V6(v6) => {
                text.trim_start_matches('[')
                    .trim_end_matches(']')
                    .parse::<Ipv6Addr>()
                    == Ok(v6)
            }
        }
    }

    /// Returns true if a message came from exactly the address and port of sent-by, so that no NAT has changed them.
    pub fn is_at(&self, source: SocketAddr) -> bool {
        self.names(source.ip()) && self.port.unwrap_or(5060) == source.port()
    }

    /// The address in sent-by; `None` for a name.
    pub fn address(&self) -> Option<IpAddr> {
        let text = std::str::from_utf8(self.host).ok()?;
        let bare = text.trim_start_matches('[').trim_end_matches(']');
        bare.parse()
            .ok()
            .map(|address: IpAddr| address.to_canonical())
    }

    /// The parameters one by one, as sent.
    pub const fn parameters(&self) -> Params<'a> {
        Params::new(self.params)
    }
}

fn protocol(head: &[u8]) -> Result<(&[u8], &[u8]), NotAVia> {
    // Nearly all Vias begin this way.
    let rest = match head.strip_prefix(b"SIP/2.0/") {
        Some(rest) => rest,
        None => behind_version(head)?,
    };

    let rest = rest.trim_ascii_start();
    let end = rest
        .iter()
        .position(u8::is_ascii_whitespace)
        .ok_or(NotAVia)?;
    let (transport, sent_by) = rest.split_at(end);

    if transport.is_empty() {
        Err(NotAVia)
    } else {
        Ok((transport, sent_by.trim_ascii()))
    }
}

/// Accepts any version: the answer (505) to a request of another version has to reach its sender too.
fn behind_version(head: &[u8]) -> Result<&[u8], NotAVia> {
    let mut parts = head.splitn(3, |octet| *octet == b'/');
    let name = parts.next().ok_or(NotAVia)?.trim_ascii();
    let version = parts.next().ok_or(NotAVia)?.trim_ascii();
    if name.eq_ignore_ascii_case(b"SIP") && text::is_token(version) {
        parts.next().ok_or(NotAVia)
    } else {
        Err(NotAVia)
    }
}

fn host_port(sent_by: &[u8]) -> Result<(&[u8], Option<u16>), NotAVia> {
    let host_end = match sent_by.first() {
        Some(b'[') => {
            sent_by
                .iter()
                .position(|octet| *octet == b']')
                .ok_or(NotAVia)?
                + 1
        }
        _ => sent_by
            .iter()
            .position(|octet| *octet == b':')
            .unwrap_or(sent_by.len()),
    };

    let (host, rest) = sent_by.split_at(host_end);
    let host = host.trim_ascii_end();
    let rest = rest.trim_ascii();
    if host.is_empty() || text::holds(host, |octet| octet.is_ascii_whitespace()) {
        return Err(NotAVia);
    }

    match rest.strip_prefix(b":") {
        Some(port) => Ok((host, Some(port_of(port.trim_ascii())?))),
        None if rest.is_empty() => Ok((host, None)),
        None => Err(NotAVia),
    }
}

fn port_of(digits: &[u8]) -> Result<u16, NotAVia> {
    text::number(digits)
        .and_then(|port| u16::try_from(port).ok())
        .ok_or(NotAVia)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_with_their_spaces() {
        let via = Via::parse(
            b"SIP  / 2.0 / UDP  h.example.com : 5061 ; branch=z9hG4bKx;rport;received=192.0.2.1",
        )
        .expect("a Via");

        assert_eq!(
            (via.transport, via.host, via.port),
            (&b"UDP"[..], &b"h.example.com"[..], Some(5061))
        );
        assert_eq!(
            (via.branch, via.rport),
            (Some(&b"z9hG4bKx"[..]), Some(None))
        );
        assert_eq!(via.received, Some(&b"192.0.2.1"[..]));

        let six = Via::parse(b"SIP/2.0/TCP [2001:db8::9]:5070;rport=99").expect("a Via");
        assert_eq!(
            (six.host, six.port, six.rport),
            (&b"[2001:db8::9]"[..], Some(5070), Some(Some(99)))
        );
        assert!(six.names("2001:db8::9".parse().expect("address")));
        assert!(!six.names("192.0.2.1".parse().expect("address")));
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "SIP/2.0/UDP",
            "SIP/2.0/UDP ",
            "SIP//UDP h",
            "HTTP/2.0/UDP h",
            "SIP/2.0/UDP h:x",
            "SIP/2.0/UDP h:70000",
            "SIP/2.0/UDP a b",
            "SIP/2.0/UDP [::1",
            "SIP/2.0/UDP h;branch=\"z9hG4bKx",
            "SIP/2.0/UDP h;branch=z9hG\r\n 4bKx",
        ] {
            assert_eq!(Via::parse(text.as_bytes()), Err(NotAVia), "{text}");
        }
    }
}
