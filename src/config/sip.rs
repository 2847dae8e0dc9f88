//! `[sip]`: listeners and their advertised addresses, digest, timers (RFC 3261 §17, RFC 4028), shards.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use figment::value::Value;
use ipnet::IpNet;
use trunkline_sip::endpoint::SentBy;
use trunkline_sip::flow::{Transport, is_private};

use trunkline_model::peer_pattern::PeerPattern;

use super::host::{HostPort, own_address};
use super::http::network;
use super::section::{ConfigEntry, Section};

/// Settings of SIP.
#[derive(Clone, Debug)]
pub struct Sip {
    /// All listeners: UDP, then TCP, then TLS, each in the given order. `listener` of a flow is an index into this
    /// list.
    pub listeners: Vec<Listener>,
    /// Host for peers to dial, if the operator sets one.
    pub public_host: Option<HostPort>,
    /// Realm of digest challenges; absent: the one that the installation has used before ([`Self::realm`] for a new
    /// installation).
    pub realm: Option<Box<str>>,
    /// Brand in `X-PLATFORM-…`, without the trailing dash.
    pub header_prefix: Box<str>,
    /// True if SHA-256 is offered beside MD5 (RFC 8760).
    pub digest_sha256: bool,
    /// Time that a nonce is valid.
    pub nonce_lifetime: Duration,
    /// Interval of OPTIONS probes to runtimes and outbound trunks; absent: no probes.
    pub health_interval: Option<Duration>,
    /// Our certificate chain and private key, both PEM files.
    pub tls_certificate: Option<(PathBuf, PathBuf)>,
    /// CAs for TLS peers that we call; absent: the system's.
    pub tls_ca: Option<PathBuf>,
    /// CAs for TLS clients; absent: no client certificate is required.
    pub tls_client_ca: Option<PathBuf>,
    /// Delay after a failed registration; it doubles with each further failure.
    pub register_retry: Duration,
    /// Interval of keep-alives to peers behind NAT.
    pub keep_alive: Duration,
    /// Number of shards, each a thread with its own sockets.
    pub shards: usize,
    /// Number of this node among those that share a database.
    pub node: u8,
    /// Time without a sign of life after which other nodes consider this one dead.
    pub node_lease: Duration,
    /// Maximum time from INVITE to a final response.
    pub setup_timeout: Duration,
    /// Maximum time from the answer of a call until we send BYE.
    pub max_duration: Duration,
    /// Silence of a peer in a call after which it is probed; zero: never.
    pub dead_peer: Duration,
    /// Name servers for hosts of trunks and runtimes; empty: the system's.
    pub nameservers: Vec<SocketAddr>,
    /// Loopback, link-local and private addresses that tenants and messages may name; absent: none.
    pub allow_private_peers: Option<Vec<IpNet>>,
    /// Peers that trust this node by its address: no tenant may name them.
    pub reserved_peers: Vec<PeerPattern>,
    /// Runtimes that get the session token without asking for it; absent: none.
    pub trusted_runtimes: Option<Vec<PeerPattern>>,
    /// Timer T1, the round-trip estimate (RFC 3261 §17.1.1.1).
    pub t1: Duration,
}

/// Address to listen on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// UDP, TCP or TLS.
    pub transport: Transport,
    /// Address to bind.
    pub address: SocketAddr,
    /// Host advertised to its peers instead of `sip.public_host`.
    pub advertise: Option<HostPort>,
}

/// Host by which a listener is reached.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct KnownBy<'c> {
    /// The host.
    pub host: &'c HostPort,
    /// Key that configures it.
    pub key: &'static str,
}

impl KnownBy<'_> {
    /// Returns whether packets to it may come to this address: it is a name, or an address of the same family.
    fn leads_to(&self, bound: SocketAddr) -> bool {
        let ip = self.host.ip();
        ip.is_none_or(|ip| ip.is_ipv6() == bound.is_ipv6())
    }
}

impl Sip {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        let sip = Self {
            listeners: listeners(section),
            public_host: section.parsed("public_host"),
            realm: token(section, "realm", |octet| {
                octet != b'"' && octet != b'\\' && !octet.is_ascii_control()
            }),
            header_prefix: token(section, "header_prefix", |octet| {
                octet.is_ascii_alphanumeric() || octet == b'-'
            })
            .unwrap_or("X-PLATFORM".into()),

            digest_sha256: section.switch("digest_sha256").unwrap_or(false),
            nonce_lifetime: seconds(section, "nonce_lifetime_s", 10, 3_600, 30),

            health_interval: Some(seconds(section, "health_interval_s", 0, 3_600, 60))
                .filter(|interval| !interval.is_zero()),

            tls_certificate: section.certificate(),
            tls_ca: section.text("tls_ca").map(PathBuf::from),
            tls_client_ca: section.text("tls_client_ca").map(PathBuf::from),

            register_retry: seconds(section, "register_retry_s", 1, 1_800, 30),
            keep_alive: seconds(section, "keep_alive_s", 1, 600, 25),

            shards: section.number("shards", 1..=256).unwrap_or_else(cores),
            node: section.number("node", 0..=255).unwrap_or(0),
            node_lease: Duration::from_secs(section.number("node_lease_s", 5..=300).unwrap_or(30)),

            setup_timeout: seconds(section, "setup_timeout_s", 1, 600, 60),
            max_duration: seconds(section, "max_duration_s", 1, 604_800, 14_400),
            dead_peer: seconds(section, "dead_peer_s", 0, 86_400, 300),

            nameservers: section.list("nameservers", nameserver).unwrap_or_default(),
            allow_private_peers: section.list("allow_private_peers", network),
            reserved_peers: section
                .list("reserved_peers", peer_pattern)
                .unwrap_or_default(),
            trusted_runtimes: section.list("trusted_runtimes", peer_pattern),

            // At most T2, which is 4 s.
            t1: Duration::from_millis(section.number("t1_ms", 10..=4_000).unwrap_or(500)),
        };

        sip.check(section);
        sip
    }

    /// Notes faults that concern more than one key.
    fn check(&self, section: &mut Section<'_>) {
        let has_tls = self
            .listeners
            .iter()
            .any(|listener| listener.transport == Transport::Tls);
        // With other faults the certificate may be missing because its key couldn't be read, which has been said
        // already.
        if has_tls && self.tls_certificate.is_none() && section.faults.is_empty() {
            section.refuse_key("tls", "needs sip.tls_certificate and sip.tls_key");
        }

        if self.listeners.is_empty() && section.faults.is_empty() {
            section.refuse_key(
                "udp",
                "there is no listener: sip.udp and sip.tcp are both empty",
            );
        }

        for (index, listener) in self.listeners.iter().enumerate() {
            let same = |other: &Listener| {
                other.transport == listener.transport && other.address == listener.address
            };
            // With port 0 the system chooses a port for each of them.
            if listener.address.port() != 0 && self.listeners.iter().take(index).any(same) {
                section.refuse_key(
                    listener.transport.uri_name(),
                    format!("{} is listed twice", listener.address),
                );
            }
        }
    }

    /// Returns host and port for Via, Contact and Route of messages sent by `listener`, whose socket is bound to
    /// `bound`.
    ///
    /// In this order: the listener's advertised host, `sip.public_host`, the bound address, or, if that is unspecified,
    /// the address that the peer called. A missing port is the bound one. An address of the other family is passed over: no packet
    /// to it comes to this listener.
    pub fn sent_by(&self, listener: &Listener, bound: SocketAddr) -> SentBy {
        let port = bound.port();
        let by_address = |ip: IpAddr| HostPort::of_ip(ip).with_port(port);
        let known_by = self.known_by(listener).find(|known| known.leads_to(bound));
        match known_by {
            Some(KnownBy { host, .. }) => SentBy::Fixed(host.with_port(host.port.unwrap_or(port))),
            None if bound.ip().is_unspecified() => SentBy::Called {
                port,
                otherwise: by_address(own_address(bound.is_ipv6())),
            },
            None => SentBy::Fixed(by_address(bound.ip())),
        }
    }

    /// Returns host and port of a listener towards peers of which nothing is known yet.
    pub fn advertised(&self, listener: &Listener, bound: SocketAddr) -> String {
        match self.sent_by(listener, bound) {
            SentBy::Fixed(host)
            | SentBy::Called {
                otherwise: host, ..
            } => host,
        }
    }

    /// Returns the configured address that would apply to a listener, but is one of the other family.
    pub fn unused_host<'c>(&'c self, listener: &'c Listener) -> Option<KnownBy<'c>> {
        let mut known_by = self.known_by(listener);
        let first = known_by.next()?;
        (!first.leads_to(listener.address)).then_some(first)
    }

    /// Hosts by which the configuration says that a listener is reached, in the order in which they apply.
    fn known_by<'c>(&'c self, listener: &'c Listener) -> impl Iterator<Item = KnownBy<'c>> {
        let own = (listener.advertise.as_ref(), "advertise");
        [own, (self.public_host.as_ref(), "sip.public_host")]
            .into_iter()
            .filter_map(|(host, key)| Some(KnownBy { host: host?, key }))
    }

    /// Returns whether a listener is known by a public address or name.
    pub fn is_public(&self, listener: &Listener) -> bool {
        let host = listener.advertise.as_ref().or(self.public_host.as_ref());
        host.map_or_else(
            || {
                let bound = listener.address.ip();
                !bound.is_unspecified() && !is_private(bound)
            },
            HostPort::is_public,
        )
    }

    /// Address from which this machine sends packets.
    pub(crate) fn own_address(v6: bool) -> IpAddr {
        own_address(v6)
    }

    /// Address that a PBX dials (`sip_endpoint`): `sip.public_host`, or what the first listener advertises; SIP's
    /// default port is left out.
    pub fn endpoint(&self) -> String {
        let Some(listener) = self.listeners.first() else {
            return String::new();
        };

        // A port that the operator has written stays, 5060 too.
        match &self.public_host {
            Some(host) => host.to_string(),
            None => {
                let sent_by = self.advertised(listener, listener.address);
                sent_by
                    .strip_suffix(":5060")
                    .map_or(sent_by.clone(), str::to_owned)
            }
        }
    }

    /// Realm of digest challenges: the configured one, or the host of [`Self::endpoint`].
    pub fn realm(&self) -> Box<str> {
        self.realm.clone().unwrap_or_else(|| {
            let host = self.endpoint().parse::<HostPort>().ok();
            host.map_or("trunkline".into(), |host| host.host().into())
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn seconds(
    section: &mut Section<'_>,
    key: &'static str,
    least: u64,
    most: u64,
    default: u64,
) -> Duration {
    Duration::from_secs(section.number(key, least..=most).unwrap_or(default))
}

/// Parses an address, with or without a port.
fn nameserver(entry: &ConfigEntry) -> Result<SocketAddr, String> {
    let text = entry.text()?;
    let with_port = text.parse::<SocketAddr>();
    let bare = || text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 53));
    with_port
        .or_else(|_| bare())
        .map_err(|_| format!("{text:?} is not an address such as 192.0.2.53 or 192.0.2.53:53"))
}

/// Parses a host, an address or a CIDR block.
fn peer_pattern(entry: &ConfigEntry) -> Result<PeerPattern, String> {
    peer(&entry.text()?)
}

/// Parses a host, an address or a CIDR block on the command line.
///
/// # Errors
/// A sentence about what is wrong.
pub fn peer(text: &str) -> Result<PeerPattern, String> {
    let is_host = text
        .parse::<HostPort>()
        .is_ok_and(|host| host.port.is_none());
    if !is_host && text.parse::<IpNet>().is_err() {
        return Err(format!(
            "{text:?} is not a host, an address or a CIDR block"
        ));
    }
    text.parse()
        .map_err(|error: std::convert::Infallible| match error {})
}

/// Reads a text of at most 64 octets that goes into a header. Dashes at its end are cut: the prefix of headers is written without its last one.
fn token(
    section: &mut Section<'_>,
    key: &'static str,
    allowed: impl Fn(u8) -> bool,
) -> Option<Box<str>> {
    let text = section.text(key)?;
    if text.len() > 64 || !text.bytes().all(allowed) {
        section.refuse_key(key, format!("{text:?} can't be used in a SIP header"));
        return None;
    }
    Some(text.trim_end_matches('-').into())
}

fn listeners(section: &mut Section<'_>) -> Vec<Listener> {
    let default = |transport| {
        vec![Listener {
            transport,
            address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 5060)),
            advertise: None,
        }]
    };
    // An absent list has a default, an empty one switches the transport off.
    let mut all = section
        .list("udp", |entry| listener(entry, Transport::Udp))
        .unwrap_or_else(|| default(Transport::Udp));

    all.extend(
        section
            .list("tcp", |entry| listener(entry, Transport::Tcp))
            .unwrap_or_else(|| default(Transport::Tcp)),
    );

    let tls = section
        .list("tls", |entry| listener(entry, Transport::Tls))
        .unwrap_or_default();
    all.extend(tls);

    all
}

/// Parses `host:port`, `host:port=advertised`, or a table `{listen, advertise}`.
fn listener(entry: &ConfigEntry, transport: Transport) -> Result<Listener, String> {
    let (address, advertise) = match &entry.value {
        Value::Dict(_, fields) => {
            if let Some(key) = fields
                .keys()
                .find(|key| !["listen", "advertise"].contains(&key.as_str()))
            {
                return Err(format!(
                    "{key:?} is not a field of a listener: use listen and advertise"
                ));
            }

            let field = |name: &str| match fields.get(name) {
                None => Ok(None),
                Some(value) => match value.as_str() {
                    Some(text) => Ok(Some(text.to_owned())),
                    None => Err(format!("`{name}` must be text in quotation marks")),
                },
            };

            (
                field("listen")?.ok_or("a listener needs `listen`")?,
                field("advertise")?,
            )
        }

        Value::String(..)
        | Value::Char(..)
        | Value::Bool(..)
        | Value::Num(..)
        | Value::Empty(..)
        | Value::Array(..) => {
            let text = entry.text()?;
            match text.split_once('=') {
                Some((address, advertise)) => (address.to_owned(), Some(advertise.to_owned())),
                None => (text, None),
            }
        }
    };

    let address = address
        .trim()
        .parse()
        .map_err(|_| format!("{address:?} is not an address such as 0.0.0.0:5060 or [::]:5060"))?;
    let advertise = advertise
        .map(|host| {
            host.trim()
                .parse::<HostPort>()
                .map_err(|error| format!("{host:?} {error}"))
        })
        .transpose()?;

    Ok(Listener {
        transport,
        address,
        advertise,
    })
}
