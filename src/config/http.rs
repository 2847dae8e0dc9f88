//! `[http]`: the REST API, health checks and metrics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use ipnet::IpNet;

use super::host::own_address;
use super::section::{ConfigEntry, Section};

/// Addresses, TLS and limits of HTTP.
#[derive(Clone, Debug)]
pub struct Http {
    /// Address that the API listens on.
    pub listen: SocketAddr,
    /// A second address, plain HTTP, for `/healthz`, `/readyz` and `/metrics`. [`listen`](Self::listen) then has no `/metrics`.
    pub health_listen: Option<SocketAddr>,
    /// Base URL of the API for its users, without a trailing slash; absent: `http://` and the bound address.
    pub public_url: Option<Box<str>>,
    /// Base URL of the dashboard; absent: this daemon's.
    pub dashboard_url: Option<Box<str>>,
    /// Certificate chain and private key, both PEM files. With them HTTPS is served instead of HTTP.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Maximum number of connections; those that never authenticated are evicted for new ones.
    pub max_connections: usize,
    /// Proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Serves the console over plain HTTP to other machines too.
    pub allow_plain_console: bool,
}

impl Http {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            listen: section
                .parsed("listen")
                .unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))),
            health_listen: section.parsed("health_listen"),
            public_url: base_url(section, "public_url"),
            dashboard_url: base_url(section, "dashboard_url"),
            tls: section.certificate(),
            max_connections: section
                .number("max_connections", 1..=65_536)
                .unwrap_or(1_024),
            trusted_proxies: section
                .list("trusted_proxies", network)
                // An absent list trusts a proxy on this machine, an empty one none.
                .unwrap_or_else(loopback),
            allow_plain_console: section.switch("allow_plain_console").unwrap_or(false),
        }
    }

    /// Returns true if other machines reach the API over plain HTTP, and so have no console.
    pub fn is_plain_beyond_loopback(&self) -> bool {
        let is_plain = self.tls.is_none() && !self.allow_plain_console;
        is_plain && !self.listen.ip().to_canonical().is_loopback()
    }

    /// Base URL of the API, once the listener is bound to `bound`. A listener on every address is known by this machine's own, since no browser
    /// opens the unspecified one.
    pub fn base_url(&self, bound: SocketAddr) -> String {
        let public = self.public_url.as_deref();
        public.map_or_else(|| self.url_at(reachable(bound)), str::to_owned)
    }

    fn url_at(&self, address: SocketAddr) -> String {
        format!("{}://{address}", self.scheme())
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Base URL of the dashboard: its own, or this daemon's. Over plain HTTP it is served to this machine alone, and so known by loopback.
    pub fn dashboard_url(&self, bound: SocketAddr) -> String {
        let configured = self.dashboard_url.as_deref().or(self.public_url.as_deref());
        match configured {
            Some(url) => url.to_owned(),
            None if bound.ip().is_unspecified() && self.is_plain_beyond_loopback() => {
                self.url_at(on_loopback(bound))
            }
            None => self.base_url(bound),
        }
    }
}

/// Returns the address itself, or this machine's own in place of an unspecified one.
fn reachable(bound: SocketAddr) -> SocketAddr {
    match bound.ip().is_unspecified() {
        true => SocketAddr::new(own_address(bound.is_ipv6()), bound.port()),
        false => bound,
    }
}

const fn on_loopback(bound: SocketAddr) -> SocketAddr {
    let ip = match bound {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    SocketAddr::new(ip, bound.port())
}

fn loopback() -> Vec<IpNet> {
    vec![
        IpNet::from(IpAddr::from(Ipv4Addr::LOCALHOST)),
        IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST)),
    ]
}

/// Parses a CIDR block, or an address alone.
pub(super) fn network(entry: &ConfigEntry) -> Result<IpNet, String> {
    let text = entry.text()?;
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| format!("{text:?} is neither an address nor a CIDR block"))
}

/// Reads a base URL, and drops a trailing slash.
pub(super) fn base_url(section: &mut Section<'_>, key: &'static str) -> Option<Box<str>> {
    let url = section.text(key)?;
    let host = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
        .unwrap_or_default();
    // No query or fragment, because paths are appended.
    if host.is_empty() || host.starts_with('/') || url.contains([' ', '?', '#', '"', '<', '>']) {
        section.refuse_key(
            key,
            format!("{url:?} is not an http:// or https:// address"),
        );
        return None;
    }
    Some(url.trim_end_matches('/').into())
}
