//! Targets of our requests: a URI, with a runtime's placeholders filled in, and the addresses that it resolves to.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use trunkline_model::address::{AddressPolicy, NamedBy};
use trunkline_model::tied::{Namer, TiedPeers};
use trunkline_model::ws_url::WsUrl;
use trunkline_routing::E164;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::header::name_addr::NameAddr;
use trunkline_sip::header::uri::{Host, Scheme, Uri};
use trunkline_sip::wire::{HeaderName, Message};
use uuid::Uuid;

use super::preloaded_route;

/// Place to try: a Request-URI, and the address to send it to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The Request-URI.
    pub uri: Box<str>,
    /// The transport.
    pub transport: Transport,
    /// The peer.
    pub address: SocketAddr,
    /// Flow to send by, if it is fixed: a registered PBX is reached by the flow of its REGISTER.
    pub by: Option<Flow>,
    /// Its Route header: the path by which a PBX has registered (RFC 3327), or the service route of a carrier (RFC 3608).
    pub route: Option<Box<str>>,
    /// Party that named the address.
    pub named: NamedBy,
}

impl Target {
    /// URI of the first hop, whose host a peer on TLS has to prove: that of the route, or the Request-URI.
    pub(crate) fn hop(&self) -> &str {
        let first = self.route.as_deref().and_then(preloaded_route::first);
        first.unwrap_or(&self.uri)
    }

    /// Returns the same target with that flow.
    #[must_use]
    pub fn reached_by(self, flow: Flow) -> Self {
        Self {
            transport: flow.transport,
            by: Some(flow),
            ..self
        }
    }
}

/// A URI whose host isn't resolved yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnresolvedTarget {
    /// The Request-URI.
    pub uri: Box<str>,
    /// The host: a name or an address.
    pub host: Box<str>,
    /// The port, where the URI has one.
    pub port: Option<u16>,
    /// The transport, where the URI names one.
    pub transport: Option<Transport>,
    /// Its Route header; the host, the port and the transport are those of its first hop then.
    pub route: Option<Box<str>>,
    /// Party that named the URI.
    pub named: NamedBy,
}

impl UnresolvedTarget {
    /// Returns whether both are looked up alike.
    pub(crate) fn is_same_name(&self, other: &Self) -> bool {
        (&self.host, self.port, self.transport) == (&other.host, other.port, other.transport)
    }
}

/// Destination that a URI names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DialTarget {
    /// The host is an address.
    Resolved(Target),
    /// The host is a name, to be resolved by RFC 3263.
    Unresolved(UnresolvedTarget),
}

impl DialTarget {
    /// The Request-URI.
    pub(crate) const fn uri(&self) -> &str {
        match self {
            Self::Resolved(target) => &target.uri,
            Self::Unresolved(wanted) => &wanted.uri,
        }
    }

    /// Returns whether it is a name that tenants may not use.
    pub fn is_reserved(&self, addresses: &AddressPolicy) -> bool {
        match self {
            Self::Unresolved(wanted) if wanted.named == NamedBy::Tenant => {
                addresses.reserved().lists_name(&wanted.host)
            }
            Self::Unresolved(_) | Self::Resolved(_) => false,
        }
    }

    /// Returns the same Request-URI with a known flow.
    #[must_use]
    pub(crate) fn by_flow(&self, by: Flow) -> Self {
        Self::Resolved(Target {
            uri: self.uri().into(),
            transport: by.transport,
            address: by.peer,
            by: Some(by),
            route: None,
            named: NamedBy::Tenant,
        })
    }

    /// Returns the same Request-URI, sent along a route whose first hop says where to (RFC 3261 §8.1.2): by the transport that this hop names, else by
    /// that of the target, and never by a less secure one. The address is a message's word, so it is judged as a tenant's. `None` if nothing can be
    /// sent to that hop.
    #[must_use]
    pub(crate) fn along(&self, route: &str) -> Option<Self> {
        let hop = preloaded_route::first_uri(route)?;
        let own = match self {
            Self::Resolved(target) => Some(target.transport),
            Self::Unresolved(wanted) => wanted.transport,
        };
        let transport = preloaded_route::transport(route, own.unwrap_or(Transport::Udp))?;

        let (uri, named) = (Box::from(self.uri()), NamedBy::Tenant);
        let route = Some(Box::from(route));
        let port = hop.port.unwrap_or(default_port(transport));
        Some(match hop.destination()? {
            Host::Name(name) => Self::Unresolved(UnresolvedTarget {
                uri,
                host: std::str::from_utf8(name).ok()?.into(),
                port: hop.port,
                transport: Some(transport),
                route,
                named,
            }),
            host @ (Host::V4(_) | Host::V6(_)) => Self::Resolved(Target {
                uri,
                transport,
                address: SocketAddr::new(host.address()?, port),
                by: None,
                route,
                named,
            }),
        })
    }

    /// Returns the same target for a dialog on this flow: never by a less secure transport. `None` if its URI names one.
    #[must_use]
    pub(crate) fn beside(self, flow: &Flow) -> Option<Self> {
        match flow.transport.is_secure() {
            true => self.over_tls(),
            false => Some(self),
        }
    }

    /// Returns the same target over TLS, at the port of its URI or 5061; `None` if the URI names a less secure transport.
    #[must_use]
    pub(crate) fn over_tls(self) -> Option<Self> {
        let transport = Transport::Tls;
        let uri = Uri::parse(self.uri().as_bytes()).ok()?;
        let (named, port) = (uri.transport(), uri.port.unwrap_or(default_port(transport)));
        let known = match &self {
            Self::Resolved(target) => Some(target.transport),
            Self::Unresolved(wanted) => wanted.transport,
        };
        if known.is_some_and(Transport::is_secure) {
            return Some(self);
        }

        if named.is_some() {
            return None;
        }

        Some(match self {
            Self::Resolved(target) => Self::Resolved(Target {
                transport,
                address: SocketAddr::new(target.address.ip(), port),
                ..target
            }),
            Self::Unresolved(wanted) => Self::Unresolved(UnresolvedTarget {
                transport: Some(transport),
                ..wanted
            }),
        })
    }

    /// Returns the same target, as named by an org with these peers.
    #[must_use]
    pub fn of_org(self, tied: &TiedPeers) -> Self {
        let is_tied = match &self {
            Self::Resolved(target) => tied.contains(target.address.ip()),
            Self::Unresolved(wanted) => tied.lists(&wanted.host),
        };
        match is_tied {
            true => self.named(NamedBy::Tied),
            false => self,
        }
    }

    /// Returns the same target of a runtime, as named by `namer`.
    #[must_use]
    pub fn of_runtime(self, namer: &Namer) -> Self {
        match namer {
            Namer::Operator => self.named(NamedBy::Operator),
            Namer::Org(tied) => self.of_org(tied),
        }
    }

    /// Party that named it.
    pub const fn named_by(&self) -> NamedBy {
        match self {
            Self::Resolved(target) => target.named,
            Self::Unresolved(wanted) => wanted.named,
        }
    }

    /// Returns the same target, as named by another party.
    #[must_use]
    pub fn named(self, named: NamedBy) -> Self {
        match self {
            Self::Resolved(target) => Self::Resolved(Target { named, ..target }),
            Self::Unresolved(wanted) => Self::Unresolved(UnresolvedTarget { named, ..wanted }),
        }
    }
}

/// Fills in `{agent_id}` and `{org_id}`.
pub fn fill(template: &str, agent: Uuid, org: Uuid) -> Box<str> {
    if !template.contains('{') {
        return template.into();
    }
    template
        .replace("{agent_id}", &agent.hyphenated().to_string())
        .replace("{org_id}", &org.hyphenated().to_string())
        .into()
}

/// Values of a runtime's placeholders.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Parties<'a> {
    pub(crate) agent: Uuid,
    pub(crate) org: Uuid,
    pub(crate) session: Uuid,
    /// The number that was called, or the text in its place.
    pub(crate) called: &'a str,
    /// The caller; empty if withheld.
    pub(crate) caller: &'a str,
}

/// Returns a number as E.164 if possible, else as it was sent.
pub(crate) fn written<'a>(number: Option<&'a E164>, raw: &'a str) -> &'a str {
    number.map_or(raw, E164::as_str)
}

/// Octets of a peer's text that a placeholder may hold; longer text is cut.
const LONGEST: usize = 128;

impl Parties<'_> {
    /// Fills in a URI. A peer's text is only inserted in the user part, escaped.
    pub(crate) fn uri(&self, template: &str) -> Box<str> {
        let filled = fill(template, self.agent, self.org);
        let Some((user, host)) = filled
            .split_once('@')
            .filter(|(user, _)| user.contains('{'))
        else {
            return filled;
        };
        let user = self.replaced(user, escaped);
        [&user, "@", host].concat().into()
    }

    /// Fills in the value of a header; drops control characters.
    pub(crate) fn value(&self, template: &str) -> Box<str> {
        let filled = fill(template, self.agent, self.org);
        let mut value = self.replaced(&filled, str::to_owned);
        // After filling in, since a caller's text may bring the CR LF that would begin another header line.
        value.retain(|char| !char.is_control());
        value.into()
    }

    /// Fills in the placeholders for a peer's text; `write` writes each value.
    fn replaced(&self, template: &str, write: impl Fn(&str) -> String) -> String {
        let session = self.session.hyphenated().to_string();
        let mut filled = String::with_capacity(template.len() + 64);
        let mut rest = template;

        // One pass from left to right, so that a placeholder in a peer's text isn't filled in.
        while let Some(at) = rest.find('{') {
            let (before, behind) = rest.split_at(at);
            filled.push_str(before);
            let stands_for = [
                ("{called}", self.called),
                ("{caller}", self.caller),
                ("{session_id}", &session),
            ];
            let found = stands_for
                .into_iter()
                .find_map(|(name, value)| Some((behind.strip_prefix(name)?, value)));

            rest = match found {
                Some((behind, value)) => {
                    filled.push_str(&write(cut(value)));
                    behind
                }
                None => {
                    filled.push('{');
                    &behind[1..]
                }
            };
        }

        filled.push_str(rest);
        filled
    }
}

/// Returns at most [`LONGEST`] octets of it.
fn cut(text: &str) -> &str {
    let end = (0..=LONGEST.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Escapes it for a user part (RFC 3261 §25.1): everything but letters, digits and marks, also signs that are allowed in a user part and have a
/// meaning there.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for octet in text.bytes() {
        if octet.is_ascii_alphanumeric() || b"-_.!~*'()+".contains(&octet) {
            out.push(char::from(octet));
        } else {
            out.push_str(&format!("%{octet:02X}"));
        }
    }
    out
}

/// Returns the target of a URI; `None` if it isn't a SIP URI.
pub fn dial_target(uri: &str) -> Option<DialTarget> {
    let parsed = Uri::parse(uri.as_bytes()).ok()?;

    // A Request-URI must not have headers (RFC 3261 §19.1.1).
    let uri = match parsed.headers.len() {
        0 => uri.strip_suffix('?').unwrap_or(uri),
        headers => uri.get(..uri.len() - headers - 1)?,
    };

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
        // RFC 3263 §4.1: for a numeric address "the client SHOULD use UDP for a SIP URI".
        let transport = transport.unwrap_or(Transport::Udp);
        let port = parsed.port.unwrap_or(default_port(transport));
        DialTarget::Resolved(Target {
            uri: uri.into(),
            transport,
            address: SocketAddr::new(ip, port),
            by: None,
            route: None,
            named: NamedBy::Tenant,
        })
    };

    Some(match parsed.destination()? {
        Host::V4(ip) => address(ip.into()),
        Host::V6(ip) => address(ip.into()),
        Host::Name(name) => DialTarget::Unresolved(UnresolvedTarget {
            uri: uri.into(),
            host: std::str::from_utf8(name).ok()?.into(),
            port: parsed.port,
            transport,
            route: None,
            named: NamedBy::Tenant,
        }),
    })
}

/// Returns the target of a WebSocket's URL; `None` if it isn't one.
pub fn dial_target_of_url(url: &str) -> Option<DialTarget> {
    let parsed = WsUrl::parse(url)?;
    let transport = match parsed.is_secure {
        true => Transport::Tls,
        false => Transport::Tcp,
    };
    let named = NamedBy::Tenant;

    Some(match parsed.host.parse::<IpAddr>() {
        Ok(ip) => DialTarget::Resolved(Target {
            uri: url.into(),
            transport,
            address: SocketAddr::new(ip, parsed.port),
            by: None,
            route: None,
            named,
        }),
        Err(_) => DialTarget::Unresolved(UnresolvedTarget {
            uri: url.into(),
            host: parsed.host.into(),
            port: Some(parsed.port),
            transport: Some(transport),
            route: None,
            named,
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

/// Contacts of a redirection that are read. Further ones are ignored.
const MAX_CONTACTS: usize = 8;

/// Returns the targets of a redirection within `hosts`, by descending `q` (RFC 3261 §8.1.3.4). One received over TLS leads to TLS only.
pub(crate) fn redirections(
    message: &Message<'_>,
    hosts: &[String],
    came_by: Transport,
) -> VecDeque<DialTarget> {
    let contacts = message.elements(HeaderName::Contact).take(MAX_CONTACTS);
    let within = contacts.filter_map(|contact| {
        let contact = NameAddr::parse(contact).ok()?;
        let place = dial_target(std::str::from_utf8(contact.uri).ok()?)?;
        let place = match came_by.is_secure() {
            true => place.over_tls()?,
            false => place,
        };
        let is_within = hosts.contains(&host_of(contact.uri)?);
        is_within.then(|| (wanted(&contact), place))
    });
    let mut found: Vec<_> = within.collect();
    found.sort_by(|(wanted, _), (other, _)| other.total_cmp(wanted));
    found.into_iter().map(|(_, place)| place).collect()
}

/// `q`, from 0 to 1; 1 where there is none.
fn wanted(contact: &NameAddr<'_>) -> f32 {
    let q = contact.param("q").flatten();
    let q = q.and_then(|q| std::str::from_utf8(q).ok()?.trim().parse().ok());
    q.filter(|q| (0.0..=1.0).contains(q)).unwrap_or(1.0)
}

/// Host that a request by this URI is sent to (`maddr`, else the URI's host) in lower case, to compare it with the configured hosts.
pub fn host_of(uri: &[u8]) -> Option<String> {
    Some(in_lower_case(Uri::parse(uri).ok()?.destination()?))
}

/// Domain of a URI in lower case, which a certificate has to name whatever `maddr` says (RFC 5922 §4).
pub(crate) fn domain_of(uri: &[u8]) -> Option<String> {
    Some(in_lower_case(Uri::parse(uri).ok()?.host))
}

fn in_lower_case(host: Host<'_>) -> String {
    // In canonical form, since one IPv6 address has many spellings.
    if let Host::V6(ip) = host {
        return ip.to_string();
    }
    let mut text = String::new();
    host.push_to(&mut text);
    text.make_ascii_lowercase();
    text
}

/// Returns whether the host of a URI is an IP address, as most are, without parsing the URI, which would cost each leg of each call.
pub(crate) fn has_ip_literal(uri: &[u8]) -> bool {
    let before = memchr::memrchr(b'@', uri).or_else(|| memchr::memchr(b':', uri));
    let host = &uri[before.map_or(0, |at| at + 1)..];
    let mut host = host.split(|octet| b":;?".contains(octet));
    let host = host.next().unwrap_or_default();
    host.starts_with(b"[")
        || host
            .iter()
            .all(|octet| octet.is_ascii_digit() || *octet == b'.')
}

#[cfg(test)]
mod tests {
    use trunkline_sip::wire::{Framing, lex};

    use super::*;

    #[test]
    fn a_host_that_is_an_address_differs_from_a_name() {
        for (uri, is_literal) in [
            ("sip:a@192.0.2.1", true),
            ("sip:192.0.2.1:5060;lr", true),
            ("sip:a@[2001:db8::1]:5060", true),
            ("sip:a@3.example.com;lr", false),
            ("sips:example.com", false),
            ("sip:1@a:5060", false),
        ] {
            assert_eq!(has_ip_literal(uri.as_bytes()), is_literal, "{uri}");
        }
    }

    #[test]
    fn a_redirection_is_followed_where_it_is_wanted_most_and_without_headers() {
        let octets = b"SIP/2.0 302 Moved\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
            Call-ID: x\r\nCSeq: 1 INVITE\r\nContact: <sip:low@10.0.0.1>;q=0.1, <sip:away@10.0.0.9>;q=1.0,\r\n \
            <sip:high@10.0.0.1;x=y?X-H=1&Subject=hi>;q=0.9, <sip:what@10.0.0.1?>;q=0.5\r\nContact: <sip:unsaid@10.0.0.1>\r\n\
            Content-Length: 0\r\n\r\n";
        let message = lex(octets, Framing::Datagram).unwrap();
        let hosts = ["10.0.0.1".to_owned()];
        let secured = redirections(&message, &hosts, Transport::Tls);
        assert!(secured.iter().all(
            |place| matches!(place, DialTarget::Resolved(target) if target.transport == Transport::Tls)
        ));
        let dial_targets = redirections(&message, &hosts, Transport::Udp);
        let uris: Vec<_> = dial_targets
            .iter()
            .map(|place| match place {
                DialTarget::Resolved(target) => &*target.uri,
                DialTarget::Unresolved(name) => &*name.uri,
            })
            .collect();
        assert_eq!(
            uris,
            [
                "sip:unsaid@10.0.0.1",
                "sip:high@10.0.0.1;x=y",
                "sip:what@10.0.0.1",
                "sip:low@10.0.0.1"
            ]
        );
    }

    #[test]
    fn a_redirection_with_maddr_is_judged_by_where_it_leads() {
        let hosts = ["runtime.example".to_owned()];
        let leads = |contact: &str| {
            let octets = format!(
                "SIP/2.0 302 Moved\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:a@b>;tag=1\r\nTo: <sip:c@d>;tag=2\r\n\
                 Call-ID: x\r\nCSeq: 1 INVITE\r\nContact: <{contact}>\r\nContent-Length: 0\r\n\r\n"
            );
            let message = lex(octets.as_bytes(), Framing::Datagram).unwrap();
            redirections(&message, &hosts, Transport::Udp).len()
        };

        assert_eq!(leads("sip:a@runtime.example;maddr=192.0.2.9"), 0);
        assert_eq!(leads("sip:a@runtime.example;maddr"), 0);
        assert_eq!(leads("sip:a@192.0.2.9;maddr=RUNTIME.example"), 1);
    }

    #[test]
    fn a_place_over_tls_has_its_own_port_or_that_of_tls() {
        for (uri, over_tls) in [
            ("sip:a@192.0.2.1", Some("192.0.2.1:5061")),
            ("sip:a@192.0.2.1:5070", Some("192.0.2.1:5070")),
            ("sip:a@192.0.2.1;transport=tls", Some("192.0.2.1:5061")),
            ("sips:a@192.0.2.1:5071", Some("192.0.2.1:5071")),
            ("sip:a@192.0.2.1;transport=tcp", None),
            ("sip:a@192.0.2.1:5061;transport=udp", None),
        ] {
            let found = dial_target(uri).expect("a target").over_tls();
            let found = found.map(|place| match place {
                DialTarget::Resolved(target) => (target.transport, target.address.to_string()),
                DialTarget::Unresolved(name) => panic!("{name:?} is an address"),
            });
            let expected = over_tls.map(|address| (Transport::Tls, address.to_owned()));
            assert_eq!(found, expected, "{uri}");
        }

        for (uri, transport) in [
            ("sip:pbx.example", Some(Transport::Tls)),
            ("sip:pbx.example;transport=tls", Some(Transport::Tls)),
            ("sip:pbx.example;transport=tcp", None),
        ] {
            let found = dial_target(uri).expect("a target").over_tls();
            let found = found.map(|place| match place {
                DialTarget::Unresolved(name) => name.transport,
                DialTarget::Resolved(target) => Some(target.transport),
            });
            assert_eq!(found, transport.map(Some), "{uri}");
        }
    }

    #[test]
    fn what_a_peer_supplies_stays_in_the_user_part() {
        let parties = Parties {
            agent: Uuid::nil(),
            org: Uuid::nil(),
            session: Uuid::nil(),
            called: "+4420;x=1",
            caller: "a@evil.example\r\nX: {called}",
        };

        let id = Uuid::nil();
        for (template, filled) in [
            (
                "sip:{called}@h;p={agent_id}",
                format!("sip:+4420%3Bx%3D1@h;p={id}"),
            ),
            (
                "sip:{caller}@h",
                "sip:a%40evil.example%0D%0AX%3A%20%7Bcalled%7D@h".to_owned(),
            ),
            ("sip:{session_id}-{org_id}@h", format!("sip:{id}-{id}@h")),
            ("sip:a@{called}", "sip:a@{called}".to_owned()),
            ("sip:h;p={caller}", "sip:h;p={caller}".to_owned()),
        ] {
            assert_eq!(*parties.uri(template), *filled, "{template}");
        }

        let value = parties.value("{caller}, {session_id}");
        assert_eq!(*value, *format!("a@evil.exampleX: {{called}}, {id}"));
    }
}
