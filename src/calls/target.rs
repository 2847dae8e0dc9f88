//! Where a runtime is: the configured URI with its placeholders filled in, and what it resolves to.

use std::net::{IpAddr, SocketAddr};

use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::header::uri::{Host, Scheme, Uri};
use uuid::Uuid;

/// One place to try: the Request-URI to send and the address to send it to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The Request-URI.
    pub uri: Box<str>,
    /// The transport.
    pub transport: Transport,
    /// The peer.
    pub address: SocketAddr,
    /// The flow to send by, where it isn't for us to choose: a registered PBX is reached by the way that it came.
    pub by: Option<Flow>,
}

/// A URI before its host is known as an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unresolved {
    /// The Request-URI.
    pub uri: Box<str>,
    /// The host: a name or an address.
    pub host: Box<str>,
    /// The port, where the URI has one.
    pub port: Option<u16>,
    /// The transport, where the URI names one.
    pub transport: Option<Transport>,
}

/// What a URI says about where to send to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// The host is an address.
    Known(Target),
    /// The host is a name, to be resolved by RFC 3263.
    Name(Unresolved),
}

/// Fills in `{agent_id}` and `{org_id}`.
pub(crate) fn fill(template: &str, agent: Uuid, org: Uuid) -> Box<str> {
    if !template.contains('{') {
        return template.into();
    }
    template
        .replace("{agent_id}", &agent.hyphenated().to_string())
        .replace("{org_id}", &org.hyphenated().to_string())
        .into()
}

/// Where `uri` points; `None` if it isn't a SIP URI.
pub fn place(uri: &str) -> Option<Place> {
    let parsed = Uri::parse(uri.as_bytes()).ok()?;
    let secure = match parsed.scheme {
        Scheme::Sip => false,
        Scheme::Sips => true,
        Scheme::Tel | Scheme::Other => return None,
    };
    let transport = if secure {
        Some(Transport::Tls)
    } else {
        parsed.transport()
    };
    let address = |ip: IpAddr| {
        let transport = transport.unwrap_or(Transport::Udp);
        let port = parsed.port.unwrap_or(default_port(transport));
        Place::Known(Target {
            uri: uri.into(),
            transport,
            address: SocketAddr::new(ip, port),
            by: None,
        })
    };
    Some(match parsed.host {
        Host::V4(ip) => address(ip.into()),
        Host::V6(ip) => address(ip.into()),
        Host::Name(name) => Place::Name(Unresolved {
            uri: uri.into(),
            host: std::str::from_utf8(name).ok()?.into(),
            port: parsed.port,
            transport,
        }),
    })
}

/// The port of a URI without one (RFC 3261 §19.1.2).
pub const fn default_port(transport: Transport) -> u16 {
    match transport {
        Transport::Udp | Transport::Tcp => 5060,
        Transport::Tls => 5061,
    }
}

/// The host part of a URI in lower case, to compare a redirection with the configured hosts.
pub(crate) fn host_of(uri: &[u8]) -> Option<String> {
    let parsed = Uri::parse(uri).ok()?;
    Some(match parsed.host {
        Host::V4(ip) => ip.to_string(),
        Host::V6(ip) => ip.to_string(),
        Host::Name(name) => String::from_utf8_lossy(name).to_ascii_lowercase(),
    })
}
