//! Where the host of a URI is: NAPTR, SRV and address records, off the shard (RFC 3263 §4, RFC 2782, RFC 3403). Answers are cached by
//! their TTL.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use hickory_resolver::{Resolver as Hickory, TokioResolver};
use trunkline_sip::flow::Transport;

use crate::calls::target::{Target, Unresolved, default_port};

/// How long a look-up may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses that are tried for one name.
const MAX_TARGETS: usize = 8;

/// SRV records of one name that are looked at.
const MAX_RECORDS: usize = 32;

/// A resolver with its cache.
#[derive(Clone)]
pub(crate) struct Resolver(Option<Arc<TokioResolver>>);

impl Resolver {
    /// Asks `servers`, or the system's where none are given. Without any, only hosts that are addresses can be reached.
    pub(crate) fn new(servers: &[SocketAddr]) -> Self {
        let builder = if servers.is_empty() {
            TokioResolver::builder_tokio()
        } else {
            let servers = servers.iter().map(name_server).collect();
            let config = ResolverConfig::from_parts(None, Vec::new(), servers);
            Ok(Hickory::builder_with_config(
                config,
                TokioRuntimeProvider::default(),
            ))
        };
        match builder.and_then(|builder| builder.build()) {
            Ok(resolver) => Self(Some(Arc::new(resolver))),
            Err(error) => {
                tracing::warn!(%error, "no name server: hosts that are names cannot be resolved");
                Self(None)
            }
        }
    }

    /// The places of a host in the order to be tried; none if it has no address.
    pub(crate) async fn resolve(&self, wanted: &Unresolved) -> Vec<Target> {
        let Some(resolver) = &self.0 else {
            return Vec::new();
        };
        let found = tokio::time::timeout(PATIENCE, places(resolver, wanted))
            .await
            .unwrap_or_default();
        found
            .into_iter()
            .take(MAX_TARGETS)
            .map(|(transport, address)| Target {
                uri: wanted.uri.clone(),
                transport,
                address,
                by: None,
                named: wanted.named,
            })
            .collect()
    }
}

fn name_server(address: &SocketAddr) -> NameServerConfig {
    let mut server = NameServerConfig::udp_and_tcp(address.ip());
    let on_port = |connection: &mut ConnectionConfig| connection.port = address.port();
    server.connections.iter_mut().for_each(on_port);
    server
}

type Places = Vec<(Transport, SocketAddr)>;

/// RFC 3263 §4.1, §4.2: with a port, address records; without, SRV records of the transport; without that as well, NAPTR first.
async fn places(resolver: &TokioResolver, wanted: &Unresolved) -> Places {
    let transport = wanted.transport.unwrap_or(Transport::Udp);
    if let Some(port) = wanted.port {
        return addresses(resolver, &wanted.host, port, transport).await;
    }
    let services = match wanted.transport {
        Some(transport) => vec![(transport, service(transport, &wanted.host))],
        None => services(resolver, &wanted.host).await,
    };
    let mut found = Vec::new();
    for (transport, name) in services {
        found.extend(by_srv(resolver, &name, transport).await);
        if found.len() >= MAX_TARGETS {
            break;
        }
    }
    if found.is_empty() {
        return addresses(resolver, &wanted.host, default_port(transport), transport).await;
    }
    found
}

fn service(transport: Transport, host: &str) -> String {
    match transport {
        Transport::Udp => format!("_sip._udp.{host}"),
        Transport::Tcp => format!("_sip._tcp.{host}"),
        Transport::Tls => format!("_sips._tcp.{host}"),
    }
}

/// The services that a host names by NAPTR, best first; those it might have where it names none.
async fn services(resolver: &TokioResolver, host: &str) -> Vec<(Transport, String)> {
    let mut named = Vec::new();
    if let Ok(answer) = resolver.lookup(host, RecordType::NAPTR).await {
        for record in answer.answers().iter().take(MAX_RECORDS) {
            let RData::NAPTR(naptr) = &record.data else {
                continue;
            };
            if let Some(transport) = naptr_transport(&naptr.flags, &naptr.services) {
                let place = (naptr.order, naptr.preference);
                named.push((place, transport, naptr.replacement.to_utf8()));
            }
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    if named.is_empty() {
        return [Transport::Udp, Transport::Tcp]
            .map(|transport| (transport, service(transport, host)))
            .into();
    }
    named
        .into_iter()
        .map(|(_, transport, name)| (transport, name))
        .collect()
}

/// The transport that a record leads to, if it leads to SRV records of ours.
fn naptr_transport(flags: &[u8], services: &[u8]) -> Option<Transport> {
    if !flags.eq_ignore_ascii_case(b"s") {
        return None;
    }
    let names: [(&[u8], Transport); 3] = [
        (b"SIP+D2U", Transport::Udp),
        (b"SIP+D2T", Transport::Tcp),
        (b"SIPS+D2T", Transport::Tls),
    ];
    names
        .into_iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(services))
        .map(|(_, transport)| transport)
}

/// One SRV record.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Srv {
    priority: u16,
    weight: u16,
    port: u16,
    target: String,
}

async fn by_srv(resolver: &TokioResolver, name: &str, transport: Transport) -> Places {
    let Ok(answer) = resolver.srv_lookup(name).await else {
        return Vec::new();
    };
    let records = answer.answers().iter().take(MAX_RECORDS);
    let records = records.filter_map(|record| {
        let RData::SRV(srv) = &record.data else {
            return None;
        };
        // The root as target says that there is no such service here.
        (!srv.target.is_root()).then(|| Srv {
            priority: srv.priority,
            weight: srv.weight,
            port: srv.port,
            target: srv.target.to_utf8(),
        })
    });
    let records = in_order(records.collect(), |below| rand::random_range(0..=below));
    let mut found = Vec::new();
    for Srv { port, target, .. } in records.into_iter().take(MAX_TARGETS) {
        found.extend(addresses(resolver, &target, port, transport).await);
    }
    found
}

/// RFC 2782: the lowest priority first; within one, each next is drawn by its share of the weight. `draw` gives a number from 0 to
/// its argument.
fn in_order(mut records: Vec<Srv>, mut draw: impl FnMut(u32) -> u32) -> Vec<Srv> {
    // Those without weight first, so that they have a chance at all.
    records.sort_by_key(|record| (record.priority, record.weight));
    let mut ordered = Vec::with_capacity(records.len());
    while let Some(first) = records.first() {
        let priority = first.priority;
        let same = records
            .iter()
            .take_while(|record| record.priority == priority);
        let total: u32 = same.clone().map(|record| u32::from(record.weight)).sum();
        let mut left = draw(total);
        let chosen = same
            .clone()
            .position(|record| {
                let weight = u32::from(record.weight);
                let is_it = left <= weight;
                left = left.saturating_sub(weight);
                is_it
            })
            .unwrap_or(0);
        ordered.push(records.remove(chosen));
    }
    ordered
}

async fn addresses(
    resolver: &TokioResolver,
    host: &str,
    port: u16,
    transport: Transport,
) -> Places {
    match resolver.lookup_ip(host).await {
        Ok(answer) => answer
            .iter()
            .map(|ip| (transport, SocketAddr::new(ip, port)))
            .collect(),
        Err(error) => {
            tracing::info!(host, %error, "a host has no address");
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(priority: u16, weight: u16, port: u16) -> Srv {
        Srv {
            priority,
            weight,
            port,
            target: "h.".to_owned(),
        }
    }

    fn ports(draws: &[u32], records: &[Srv]) -> Vec<u16> {
        let mut draws = draws.iter().copied();
        let ordered = in_order(records.to_vec(), |below| {
            draws.next().expect("a draw").min(below)
        });
        ordered.into_iter().map(|record| record.port).collect()
    }

    #[test]
    fn priorities_come_first_and_weights_are_drawn() {
        let records = [record(2, 0, 20), record(1, 10, 11), record(1, 90, 12)];
        assert_eq!(ports(&[5, 0, 0], &records), [11, 12, 20]);
        assert_eq!(ports(&[11, 0, 0], &records), [12, 11, 20]);
        assert_eq!(ports(&[100, 0, 0], &records), [12, 11, 20]);
        let weightless = [record(1, 0, 1), record(1, 0, 2), record(1, 5, 3)];
        assert_eq!(ports(&[0, 0, 0], &weightless), [1, 2, 3]);
        assert_eq!(ports(&[3, 0, 0], &weightless), [3, 1, 2]);
    }

    #[test]
    fn naptr_records_of_other_services_are_left_out() {
        for (flags, services, transport) in [
            (&b"s"[..], &b"SIP+D2U"[..], Some(Transport::Udp)),
            (b"S", b"sip+d2t", Some(Transport::Tcp)),
            (b"s", b"SIPS+D2T", Some(Transport::Tls)),
            (b"s", b"SIP+D2W", None),
            (b"u", b"SIP+D2U", None),
            (b"", b"SIP+D2U", None),
        ] {
            assert_eq!(naptr_transport(flags, services), transport);
        }
    }
}
