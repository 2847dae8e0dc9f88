//! `[http]`: the REST API, health checks and metrics.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;

use super::section::{Entry, Section};

/// Where HTTP is served and how others reach it.
#[derive(Clone, Debug)]
pub struct Http {
    /// The address that the API listens on.
    pub listen: SocketAddr,
    /// The API's base address as its users know it, without a slash at the end; absent: `http://` and the bound address.
    pub public_url: Option<Box<str>>,
    /// The dashboard's base address; absent: this daemon's.
    pub dashboard_url: Option<Box<str>>,
    /// Peers whose `X-Forwarded-For` is believed.
    pub trusted_proxies: Vec<IpNet>,
}

impl Http {
    pub(super) fn read(section: &mut Section<'_>) -> Self {
        Self {
            listen: section
                .parsed("listen")
                .unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 8080))),
            public_url: base_url(section, "public_url"),
            dashboard_url: base_url(section, "dashboard_url"),
            trusted_proxies: section
                .list("trusted_proxies", network)
                .unwrap_or_else(loopback),
        }
    }

    /// The API's base address, once the listener is bound to `bound`.
    pub fn base_url(&self, bound: SocketAddr) -> String {
        self.public_url
            .as_deref()
            .map_or_else(|| format!("http://{bound}"), str::to_owned)
    }

    /// The dashboard's base address: its own, or this daemon's.
    pub fn dashboard_url(&self, bound: SocketAddr) -> String {
        let own = self.dashboard_url.as_deref();
        own.map_or_else(|| self.base_url(bound), str::to_owned)
    }
}

fn loopback() -> Vec<IpNet> {
    vec![
        IpNet::from(IpAddr::from(Ipv4Addr::LOCALHOST)),
        IpNet::from(IpAddr::from(Ipv6Addr::LOCALHOST)),
    ]
}

/// A CIDR block, or an address alone.
pub(super) fn network(entry: &Entry) -> Result<IpNet, String> {
    let text = entry.text()?;
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| format!("{text:?} is no address and no CIDR block"))
}

pub(super) fn base_url(section: &mut Section<'_>, key: &'static str) -> Option<Box<str>> {
    let url = section.text(key)?;
    let host = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"))
        .unwrap_or_default();
    if host.is_empty() || host.starts_with('/') || url.contains([' ', '?', '#', '"', '<', '>']) {
        section.refuse_key(key, format!("{url:?} is no http:// or https:// address"));
        return None;
    }
    Some(url.trim_end_matches('/').into())
}
