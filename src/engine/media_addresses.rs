//! Addresses for RTP, chosen by the listener that a call came by: the one that the socket is bound to and the one that
//! SDP names.
//!
//! Both are of one family: a caller on IPv6 gets an IPv6 address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use trunkline_calls::parts::target::UnresolvedTarget;
use trunkline_model::address::NamedBy;
use trunkline_sip::dialog::sdp::IpVersion;
use trunkline_sip::flow::Transport;

use super::resolve::{Resolver, addresses_by_system};
use crate::config::{Config, MediaHost, Sip};

/// Addresses of one call's RTP.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) struct MediaAddress {
    /// The address that the socket is bound to.
    pub(crate) bind: IpAddr,
    /// The address in SDP.
    pub(crate) advertised: IpAddr,
}

/// Name in the configuration that resolves to no address usable in SDP.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{key} is {host}, which resolves to no address for SDP: set media.ip to the address that callers send their audio to, or {key} to a name that resolves"
)]
pub(crate) struct NoMediaAddress {
    key: &'static str,
    host: Box<str>,
}

/// The addresses of all listeners.
#[derive(Clone, Debug)]
pub(crate) struct MediaAddresses {
    listeners: Vec<ListenerMedia>,
    /// Addresses of this machine.
    own: Vec<IpAddr>,
}

/// Addresses for callers of one listener.
#[derive(Copy, Clone, Debug)]
struct ListenerMedia {
    bound: IpAddr,
    /// Address for SDP; `None` means the address that the call came to.
    advertised: Option<IpAddr>,
}

impl MediaAddresses {
    /// Reads the configuration and resolves the names in it.
    ///
    /// # Errors
    /// A name has no usable address.
    pub(crate) async fn find(config: &Config) -> Result<Self, NoMediaAddress> {
        let resolver = Resolver::new(&config.sip.nameservers);
        let mut found: HashMap<&str, Vec<IpAddr>> = HashMap::new();
        let mut listeners = Vec::with_capacity(config.sip.listeners.len());
        for listener in &config.sip.listeners {
            let advertised = match config.media.host_for(&config.sip, listener) {
                MediaHost::Address(ip) => Some(ip),
                MediaHost::Own => None,
                MediaHost::Name { host, key } => {
                    if !found.contains_key(host) {
                        found.insert(host, addresses(&resolver, host).await);
                    }
                    let all = found.get(host).map_or(&[][..], Vec::as_slice);
                    if all.is_empty() {
                        let host = host.into();
                        return Err(NoMediaAddress { key, host });
                    }

                    // If the name has no address of this family, SDP names the one that a call came to.
                    let is_v6 = listener.address.is_ipv6();
                    all.iter().copied().find(|ip| ip.is_ipv6() == is_v6)
                }
            };

            listeners.push(ListenerMedia {
                bound: listener.address.ip(),
                advertised,
            });
        }

        Ok(Self {
            listeners,
            own: super::local::addresses(),
        })
    }

    /// Returns the address for SDP to callers of a listener, before anything else of a call is known.
    pub(crate) fn advertised(&self, listener: usize) -> Option<IpAddr> {
        let held = self.listeners.get(listener)?;
        Some(self.at(Some(listener), held.bound, None).advertised)
    }

    /// Addresses that sockets may be bound to. The start-up check tries one port on each.
    pub(crate) fn to_try(&self) -> Vec<IpAddr> {
        let mut all: Vec<IpAddr> = self.listeners.iter().map(|held| held.bound).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Returns the address by which this machine itself reaches a listener's advertised address, since a NAT in front of it may not route packets
    /// back. `None` for any other address.
    pub(crate) fn inside_of(&self, remote: SocketAddr) -> Option<SocketAddr> {
        let ip = remote.ip();
        let is_advertised = self
            .listeners
            .iter()
            .any(|held| held.advertised == Some(ip));
        if !is_advertised || ip.is_loopback() || self.own.contains(&ip) {
            return None;
        }

        let loopback = match ip {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        Some(SocketAddr::new(loopback, remote.port()))
    }

    /// Returns the addresses for a call by `listener` whose packets arrive at `local`, and whose peer has media of this IP version. `listener` is
    /// `None` while it isn't known by which listener the call leaves, and the version while the peer's media aren't known.
    pub(crate) fn at(
        &self,
        listener: Option<usize>,
        local: IpAddr,
        version: Option<IpVersion>,
    ) -> MediaAddress {
        let by_listener = self.by_listener(listener, local);
        match version {
            Some(version) if version != IpVersion::of(by_listener.advertised) => {
                self.of_version(version, local)
            }
            Some(_) | None => by_listener,
        }
    }

    /// Returns the addresses for media of another IP version than the signalling at `local`: those of the first listener of that version, else
    /// this machine's own.
    fn of_version(&self, version: IpVersion, local: IpAddr) -> MediaAddress {
        // A caller on this machine stays on it.
        let near = match local.is_loopback() {
            true => version.loopback(),
            false => version.unspecified(),
        };
        let is_its = |held: &ListenerMedia| IpVersion::of(held.bound) == version;
        match self.listeners.iter().position(is_its) {
            Some(at) => self.by_listener(Some(at), near),
            None => {
                let advertised = match near.is_loopback() {
                    true => near,
                    false => Sip::own_address(near.is_ipv6()),
                };
                MediaAddress {
                    bind: self.bind_for(advertised, near),
                    advertised,
                }
            }
        }
    }

    fn by_listener(&self, listener: Option<usize>, local: IpAddr) -> MediaAddress {
        let first_of_v4 = || self.listeners.iter().find(|held| held.bound.is_ipv4());
        let held = match listener {
            Some(at) => self.listeners.get(at),
            None => first_of_v4().or(self.listeners.first()),
        };

        let bound = held.map_or(Ipv4Addr::UNSPECIFIED.into(), |held| held.bound);
        let local = match local.to_canonical() {
            // An unspecified local address, or one of the other family, doesn't show the interface of the packets.
            ip if ip.is_ipv6() == bound.is_ipv6() && !ip.is_unspecified() => ip,
            _ => bound,
        };

        // A caller on this machine gets an address of this machine; any other caller gets the configured one.
        let advertised = match held.and_then(|held| held.advertised) {
            Some(advertised) if !local.is_loopback() => advertised,
            Some(_) | None if !local.is_unspecified() => local,
            Some(advertised) => advertised,
            None => Sip::own_address(bound.is_ipv6()),
        };

        MediaAddress {
            bind: self.bind_for(advertised, local),
            advertised,
        }
    }

    fn bind_for(&self, advertised: IpAddr, local: IpAddr) -> IpAddr {
        let all: IpAddr = match advertised {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let fits = |ip: &IpAddr| ip.is_ipv6() == all.is_ipv6();

        // Behind a NAT the advertised address isn't this machine's, and can't be bound.
        let is_here = |ip: &IpAddr| fits(ip) && (ip.is_loopback() || self.own.contains(ip));
        [advertised, local]
            .into_iter()
            .find(is_here)
            .filter(|ip| !is_link_local(*ip))
            .unwrap_or(all)
    }
}

/// Returns true for an address that needs an interface to mean anything.
const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(_) => false,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Resolves a name to addresses of both families: its own, or those of its SRV records.
async fn addresses(resolver: &Resolver, host: &str) -> Vec<IpAddr> {
    // A port in the URI rules SRV records out (RFC 3263 §4.2).
    for port in [Some(5060), None] {
        let wanted = UnresolvedTarget {
            uri: format!("sip:{host}").into(),
            host: host.into(),
            port,
            transport: Some(Transport::Udp),
            route: None,
            named: NamedBy::Operator,
        };

        let found = resolver.resolve(&wanted).await;
        if !found.is_empty() {
            return found.iter().map(|target| target.address.ip()).collect();
        }
    }
    addresses_by_system(host).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn addresses() -> MediaAddresses {
        let listener = |bound, advertised: Option<&str>| ListenerMedia {
            bound: ip(bound),
            advertised: advertised.map(ip),
        };
        MediaAddresses {
            listeners: vec![
                listener("0.0.0.0", Some("203.0.113.9")),
                listener("10.0.0.5", None),
                listener("::", None),
                listener("0.0.0.0", Some("10.0.0.5")),
            ],
            own: vec![ip("10.0.0.5"), ip("2001:db8::5"), ip("fe80::5")],
        }
    }

    #[test]
    fn rtp_leaves_by_the_address_that_sdp_says() {
        for (case, listener, local, advertised, bind) in [
            (
                "a public address that a NAT holds",
                Some(0),
                "10.0.0.5",
                "203.0.113.9",
                "10.0.0.5",
            ),
            (
                "this machine",
                Some(0),
                "127.0.0.1",
                "127.0.0.1",
                "127.0.0.1",
            ),
            (
                "a bound address",
                Some(1),
                "10.0.0.5",
                "10.0.0.5",
                "10.0.0.5",
            ),
            ("IPv6", Some(2), "2001:db8::5", "2001:db8::5", "2001:db8::5"),
            ("a link alone", Some(2), "fe80::5", "fe80::5", "::"),
            (
                "one of our own",
                Some(3),
                "10.0.0.7",
                "10.0.0.5",
                "10.0.0.5",
            ),
            ("not known yet", None, "0.0.0.0", "203.0.113.9", "0.0.0.0"),
            (
                "IPv4 on an IPv6 socket",
                Some(0),
                "::ffff:10.0.0.5",
                "203.0.113.9",
                "10.0.0.5",
            ),
        ] {
            let expected = MediaAddress {
                bind: ip(bind),
                advertised: ip(advertised),
            };
            assert_eq!(
                addresses().at(listener, ip(local), None),
                expected,
                "{case}"
            );
        }
    }

    #[test]
    fn media_of_another_ip_version_than_the_signalling_has_an_address_of_its_own() {
        use IpVersion::{V4, V6};
        for (case, listener, local, version, advertised) in [
            ("IPv4 media", 2, "2001:db8::5", V4, "203.0.113.9"),
            ("IPv4 media on this machine", 2, "::1", V4, "127.0.0.1"),
            ("IPv6 media on this machine", 0, "127.0.0.1", V6, "::1"),
            ("the same version", 2, "2001:db8::5", V6, "2001:db8::5"),
        ] {
            let found = addresses().at(Some(listener), ip(local), Some(version));
            assert_eq!(found.advertised, ip(advertised), "{case}");
            assert_eq!(IpVersion::of(found.bind), version, "{case}");
        }

        let only_v6 = MediaAddresses {
            listeners: addresses().listeners.split_off(2)[..1].to_vec(),
            own: Vec::new(),
        };
        let found = only_v6.at(Some(0), ip("2001:db8::5"), Some(V4));
        assert_eq!(IpVersion::of(found.advertised), V4, "no listener of it");
    }

    #[test]
    fn what_a_nat_stands_for_is_reached_inside_of() {
        let inside = |remote: &str| {
            let found = addresses().inside_of(remote.parse().expect("an address"));
            found.map(|address| address.to_string())
        };

        for (name, remote, expected) in [
            ("advertised", "203.0.113.9:40000", Some("127.0.0.1:40000")),
            ("another host", "203.0.113.10:40000", None),
        ] {
            assert_eq!(inside(remote).as_deref(), expected, "{name}");
        }
    }
}
