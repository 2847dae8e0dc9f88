//! Resolves the host of a SIP URI by NAPTR, SRV and address records (RFC 3263 §4, RFC 2782, RFC 3403), off the shard's
//! thread. Answers are cached for their TTL.

mod answers;
mod servers;

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{Either, join, join_all, select};
use hickory_resolver::proto::rr::{RData, RecordType};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use trunkline_calls::invite::attempts::{DnsFault, Resolution};
use trunkline_calls::parts::target::{Target, UnresolvedTarget, default_port};
use trunkline_sip::flow::Transport;
use trunkline_sip::moment::Moment;

use crate::engine::clock;

use answers::{DnsCache, Records};
pub(crate) use answers::{QueryOrigin, query_origin};
use servers::Servers;

/// Times, from the start, after which resolution continues without NAPTR records, without SRV records and without addresses. Each is queried after
/// the answer to the one before; addresses of the host itself are queried at the start.
const FOR_NAPTR: Duration = Duration::from_millis(900);
const FOR_SRV: Duration = Duration::from_millis(1_400);
const FOR_ADDRESSES: Duration = Duration::from_millis(1_900);
/// Time, from the start of both queries, after which an address family that has come no longer waits for the other. Longer than the 50 ms
/// of RFC 8305 §3, since a call isn't dialled twice when the better family comes late.
const FOR_OTHER_FAMILY: Duration = Duration::from_millis(300);
/// Addresses tried for one name.
const MAX_TARGETS: usize = 8;
/// Time that the system resolver may take.
const SYSTEM_TIMEOUT: Duration = Duration::from_secs(3);

/// SRV records of one name that are used.
const MAX_RECORDS: usize = 32;

/// A resolver with its cache. Clones share it.
#[derive(Clone)]
pub(crate) struct Resolver {
    answers: Arc<DnsCache>,
    origin: QueryOrigin,
}

impl Resolver {
    /// Makes a resolver that queries `servers`, or the system's servers if none are given. Without any, only IP
    /// addresses can be reached.
    pub(crate) fn new(servers: &[SocketAddr]) -> Self {
        Self {
            answers: DnsCache::new(Servers::new(servers)),
            origin: QueryOrigin::Operator,
        }
    }

    /// Returns the same resolver, with queries charged to `origin`.
    pub(crate) fn on_behalf_of(&self, origin: QueryOrigin) -> Self {
        Self {
            answers: Arc::clone(&self.answers),
            origin,
        }
    }

    /// Resolves a host to targets in the order to try; empty if it has no address. Takes less than two seconds.
    pub(crate) async fn resolve(&self, wanted: &UnresolvedTarget) -> Vec<Target> {
        self.find(wanted).await.unwrap_or_default()
    }

    /// Like [`Self::resolve`], but says why there is no target.
    pub(crate) async fn find(&self, wanted: &UnresolvedTarget) -> Resolution {
        let search = self.search(MAX_TARGETS);
        let found = search.places(wanted).await;
        if found.is_empty() {
            return Err(match search.is_unanswered.into_inner() {
                true => DnsFault::NoAnswer,
                false => DnsFault::NoAddress,
            });
        }

        let targets = found
            .into_iter()
            .take(MAX_TARGETS)
            .map(|(transport, address)| Target {
                uri: wanted.uri.clone(),
                transport,
                address,
                by: None,
                route: wanted.route.clone(),
                named: wanted.named,
            });

        Ok(targets.collect())
    }

    /// Returns every address that a URI of this host may lead to, over any transport. If DNS has none, asks the system
    /// (`/etc/hosts`). Takes five seconds at most.
    pub(crate) async fn every_address(&self, host: &str) -> Vec<IpAddr> {
        // More than a call would try: what is reserved has to be known by every address.
        let search = self.search(MAX_RECORDS);
        let by_service = [
            None,
            Some(Transport::Udp),
            Some(Transport::Tcp),
            Some(Transport::Tls),
        ]
        .map(|transport| search.by_service(host, transport));

        let by_name = search.addresses(host, default_port(Transport::Udp), Transport::Udp);
        let (mut found, by_service) = join(by_name, join_all(by_service)).await;
        found.extend(by_service.into_iter().flatten());
        if found.is_empty() {
            return addresses_by_system(host).await;
        }
        found.into_iter().map(|(_, place)| place.ip()).collect()
    }

    fn search(&self, most: usize) -> Search<'_> {
        Search {
            answers: &self.answers,
            origin: self.origin,
            began: clock::now(),
            most,
            is_unanswered: AtomicBool::new(false),
        }
    }
}

/// Limit on queries to the system's resolver: each holds a thread until the system answers, even if the caller has given up. Further ones
/// wait, for [`SYSTEM_TIMEOUT`] at most.
static SYSTEM_LOOKUPS: Semaphore = Semaphore::const_new(16);

/// Resolves a name through the system (`/etc/hosts`), which needs no name server.
pub(super) async fn addresses_by_system(host: &str) -> Vec<IpAddr> {
    let host = host.to_owned();
    let ask = async {
        let permit = SYSTEM_LOOKUPS.acquire().await.ok()?;
        let asked = tokio::task::spawn_blocking(move || {
            let found = (host.as_str(), 0).to_socket_addrs();
            drop(permit);
            found
        });
        asked.await.ok()?.ok()
    };

    let found = timeout(SYSTEM_TIMEOUT, ask).await.ok().flatten();
    let found = found.into_iter().flatten();
    found.map(|address| address.ip()).collect()
}

type ServiceAddresses = Vec<(Transport, SocketAddr)>;

/// Resolution of one host.
struct Search<'a> {
    answers: &'a Arc<DnsCache>,
    origin: QueryOrigin,
    began: Moment,
    /// Services that are used, and records of each.
    most: usize,
    /// Set once a query was left without an answer.
    is_unanswered: AtomicBool,
}

impl Search<'_> {
    /// Applies RFC 3263 §4.1 and §4.2: with a port, address records; without one, SRV records of the transport; without
    /// a transport as well, NAPTR first.
    async fn places(&self, wanted: &UnresolvedTarget) -> ServiceAddresses {
        // RFC 3263 §4.1: without a transport, but with a port, "the client SHOULD use UDP for a SIP URI".
        let transport = wanted.transport.unwrap_or(Transport::Udp);
        let port = wanted.port.unwrap_or(default_port(transport));
        let by_name = self.addresses(&wanted.host, port, transport);
        // RFC 3263 §4.2: a port in the URI rules out SRV records, which would name another.
        if wanted.port.is_some() {
            return by_name.await;
        }

        // Query both at once, so that missing SRV records don't delay the addresses.
        let (by_service, by_name) = (
            pin!(self.by_service(&wanted.host, wanted.transport)),
            pin!(by_name),
        );
        match select(by_service, by_name).await {
            Either::Left((found, by_name)) if found.is_empty() => by_name.await,
            Either::Left((found, _)) => found,
            Either::Right((by_name, by_service)) => {
                let found = by_service.await;
                if found.is_empty() { by_name } else { found }
            }
        }
    }

    /// Targets that SRV records name, preferred first.
    async fn by_service(&self, host: &str, transport: Option<Transport>) -> ServiceAddresses {
        let services = match transport {
            Some(transport) => vec![(transport, service(transport, host))],
            None => self.services(host).await,
        };
        let asked = services.iter().take(self.most);
        let found = join_all(asked.map(|(transport, name)| self.by_srv(name, *transport))).await;
        found.into_iter().flatten().collect()
    }

    /// Services that the host's NAPTR records name, preferred first; without any, the services that the host might
    /// have.
    async fn services(&self, host: &str) -> Vec<(Transport, String)> {
        let mut named = Vec::new();
        let answer = self.ask(host, RecordType::NAPTR, FOR_NAPTR).await;
        for record in answer.iter().take(MAX_RECORDS) {
            let RData::NAPTR(naptr) = record else {
                continue;
            };
            if let Some(transport) = naptr_transport(&naptr.flags, &naptr.services) {
                let place = (naptr.order, naptr.preference);
                named.push((place, transport, naptr.replacement.to_utf8()));
            }
        }

        // RFC 3403 §4.1: by order first, then by preference.
        named.sort_by_key(|(place, ..)| *place);
        if named.is_empty() {
            // RFC 3263 §4.1: without NAPTR records each transport is asked for by the service `_sip` for SIP URIs. TLS
            // has `_sips`.
            return [Transport::Udp, Transport::Tcp]
                .map(|transport| (transport, service(transport, host)))
                .into();
        }

        named
            .into_iter()
            .map(|(_, transport, name)| (transport, name))
            .collect()
    }

    async fn by_srv(&self, name: &str, transport: Transport) -> ServiceAddresses {
        let answer = self.ask(name, RecordType::SRV, FOR_SRV).await;
        let records = answer.iter().take(MAX_RECORDS).filter_map(srv);
        let records = in_order(records.collect(), |below| rand::random_range(0..=below));
        let asked = records.iter().take(self.most);
        let found = join_all(asked.map(|srv| self.addresses(&srv.target, srv.port, transport)));
        found.await.into_iter().flatten().collect()
    }

    /// Returns the addresses of a host, IPv6 first. After [`FOR_OTHER_FAMILY`] one family is enough: some servers never
    /// answer AAAA queries.
    async fn addresses(&self, host: &str, port: u16, transport: Transport) -> ServiceAddresses {
        let v6 = self.ask(host, RecordType::AAAA, FOR_ADDRESSES);
        let v4 = self.ask(host, RecordType::A, FOR_ADDRESSES);
        let late = sleep(FOR_OTHER_FAMILY);
        let (mut v6, mut v4, mut late) = (pin!(v6), pin!(v4), pin!(late));

        let (mut six, mut four, mut is_late) = (None::<Records>, None::<Records>, false);
        while six.is_none() || four.is_none() {
            tokio::select! {
                records = &mut v6, if six.is_none() => six = Some(records),
                records = &mut v4, if four.is_none() => four = Some(records),
                () = &mut late, if !is_late => is_late = true,
            }
            let has_some = [&six, &four]
                .into_iter()
                .flatten()
                .any(|found| !found.is_empty());
            if is_late && has_some {
                break;
            }
        }

        let found = [six, four];
        let ips = found.iter().flatten().flat_map(|records| records.iter());
        let places: ServiceAddresses = ips
            .filter_map(RData::ip_addr)
            .map(|ip| (transport, SocketAddr::new(ip, port)))
            .collect();

        if places.is_empty() {
            tracing::debug!(host, "a host has no address");
        }

        places
    }

    async fn ask(&self, name: &str, kind: RecordType, within: Duration) -> Records {
        let until = self.began + within;
        let answer = self.answers.ask(name, kind, self.origin, until).await;
        answer.unwrap_or_else(|| {
            self.is_unanswered.store(true, Ordering::Relaxed);
            Records::default()
        })
    }
}

fn service(transport: Transport, host: &str) -> String {
    match transport {
        Transport::Udp => format!("_sip._udp.{host}"),
        Transport::Tcp => format!("_sip._tcp.{host}"),
        Transport::Tls => format!("_sips._tcp.{host}"),
    }
}

/// Returns the transport of a NAPTR record, if it leads to SRV records of a transport that we have.
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

/// Reads an SRV record. The root as target means that the service doesn't exist there (RFC 2782).
fn srv(record: &RData) -> Option<Srv> {
    let RData::SRV(srv) = record else {
        return None;
    };
    (!srv.target.is_root()).then(|| Srv {
        priority: srv.priority,
        weight: srv.weight,
        port: srv.port,
        target: srv.target.to_utf8(),
    })
}

/// Orders SRV records by RFC 2782: lowest priority first; within a priority, each next record is drawn by weight.
/// `draw` returns a number from 0 to its argument.
fn in_order(mut records: Vec<Srv>, mut draw: impl FnMut(u32) -> u32) -> Vec<Srv> {
    // RFC 2782 puts records without weight first, which gives them a chance to be drawn.
    records.sort_by_key(|record| (record.priority, record.weight));
    let mut ordered = Vec::with_capacity(records.len());
    while let Some(first) = records.first() {
        let priority = first.priority;
        let same = records
            .iter()
            .take_while(|record| record.priority == priority);

        let total: u32 = same.clone().map(|record| u32::from(record.weight)).sum();
        // RFC 2782: "select the RR whose running sum value is the first in the selected order which is greater than or
        // equal to the random number selected".
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
