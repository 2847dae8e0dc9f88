//! Where a runtime's host is: SRV and address records, off the shard (RFC 3263 §4, RFC 2782).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::proto::rr::RData;
use trunkline_sip::flow::Transport;

use crate::calls::target::{Target, Unresolved, default_port};

/// How long a look-up may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Addresses that are tried for one name.
const MAX_TARGETS: usize = 8;

/// A resolver with the system's name servers; answers are cached by their TTL.
#[derive(Clone)]
pub(crate) struct Resolver(Option<Arc<TokioResolver>>);

impl Resolver {
    /// Without a readable system configuration only the hosts that are addresses can be reached.
    pub(crate) fn from_system() -> Self {
        let resolver = TokioResolver::builder_tokio().and_then(|builder| builder.build());
        match resolver {
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
            })
            .collect()
    }
}

/// RFC 3263 §4.1, §4.2: with a port, address records; without, SRV of the transport first.
async fn places(resolver: &TokioResolver, wanted: &Unresolved) -> Vec<(Transport, SocketAddr)> {
    let transport = wanted.transport.unwrap_or(Transport::Udp);
    if let Some(port) = wanted.port {
        return addresses(resolver, &wanted.host, port, transport).await;
    }
    let asked = match wanted.transport {
        Some(transport) => vec![transport],
        None => vec![Transport::Udp, Transport::Tcp],
    };
    for transport in asked {
        let found = by_srv(resolver, &wanted.host, transport).await;
        if !found.is_empty() {
            return found;
        }
    }
    addresses(resolver, &wanted.host, default_port(transport), transport).await
}

async fn by_srv(
    resolver: &TokioResolver,
    host: &str,
    transport: Transport,
) -> Vec<(Transport, SocketAddr)> {
    let service = match transport {
        Transport::Udp => "_sip._udp",
        Transport::Tcp => "_sip._tcp",
        Transport::Tls => "_sips._tcp",
    };
    let Ok(answer) = resolver.srv_lookup(format!("{service}.{host}")).await else {
        return Vec::new();
    };
    let mut records: Vec<_> = answer
        .answers()
        .iter()
        .filter_map(|record| {
            let RData::SRV(srv) = &record.data else {
                return None;
            };
            Some((srv.priority, srv.weight, srv.port, srv.target.to_utf8()))
        })
        .collect();
    // Lowest priority first, the heavier first within one: a fixed order, so that a call's targets can be foretold.
    records.sort_by_key(|(priority, weight, ..)| (*priority, std::cmp::Reverse(*weight)));
    let mut found = Vec::new();
    for (_, _, port, target) in records.into_iter().take(MAX_TARGETS) {
        found.extend(addresses(resolver, target.trim_end_matches('.'), port, transport).await);
    }
    found
}

async fn addresses(
    resolver: &TokioResolver,
    host: &str,
    port: u16,
    transport: Transport,
) -> Vec<(Transport, SocketAddr)> {
    match resolver.lookup_ip(host).await {
        Ok(answer) => answer
            .iter()
            .map(|ip| (transport, SocketAddr::new(ip, port)))
            .collect(),
        Err(error) => {
            tracing::info!(host, %error, "a runtime's host has no address");
            Vec::new()
        }
    }
}
