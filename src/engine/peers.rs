//! Watches peers: those of outbound trunks and the runtimes of all orgs are probed with OPTIONS, each once per interval. Publishes what becomes of
//! registrations with carriers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use tokio::sync::watch;
use trunkline_calls::parts::target;
use trunkline_calls::parts::target::{DialTarget, Target};
use trunkline_calls::peers::health::{Health, ProbedPeer, probe_uri};
use trunkline_calls::peers::registrations::{
    RegistrationChange, RegistrationChangeKind, Registrations,
};
use trunkline_calls::peers::{Config, OptionsBatch, Peers};
use trunkline_calls::registrar::bindings::Bindings;
use trunkline_model::address::NamedBy;
use trunkline_model::settings::Runtime;
use trunkline_model::tied::Namer;
use trunkline_model::view::{OutboundRoute, View};
use trunkline_sip::auth::Nonces;
use trunkline_sip::moment::Moment;
use trunkline_sip::verified::VerifiedNames;
use trunkline_store::{EventType, NewEvent, written};
use uuid::Uuid;

use super::event_sink::EventSink;
use super::inbox::{Inbox, Input};
use super::registration_shares::{Handover, RegistrationShares};
use super::resolve::Resolver;
use super::{EngineDeps, clock};
use crate::directory::Directory;
use crate::jobs;
use crate::telemetry::metrics;

/// Peers that are probed; further ones aren't watched.
const MAX_PEERS: usize = 2_000;
/// Lifetime that we ask carriers for; one that wants more is given it.
const REGISTRATION_EXPIRES: Duration = Duration::from_secs(600);
/// Delay before a peer that is down is probed, once something has arrived from its address.
const RECHECK_DELAY: Duration = Duration::from_millis(100);

/// Names resolved at the same time.
const CONCURRENT: usize = 32;
/// Limit on probed peers at one address per org; further ones aren't watched. More names for one address would let a tenant flood another's
/// server.
const MAX_AT_ADDRESS: usize = 8;

/// Peers that one org names, each with the outbound trunk that names it.
type Named = VecDeque<(PeerKey, Option<Uuid>)>;

/// Orgs and trunks that name a peer.
#[derive(Debug, Default)]
struct PeerOwners {
    /// Indices of the orgs, in the list that [`take_in_turn`] gets.
    orgs: HashSet<usize>,
    trunks: Vec<Uuid>,
}

/// Number of peers at each address, by org.
#[derive(Debug, Default)]
struct AddressShares(HashMap<(usize, SocketAddr), usize>);

impl AddressShares {
    /// Returns true if a peer of these orgs may be probed at this address, and counts it for each of them: two orgs that name the
    /// same peers would have no limit otherwise.
    fn take(&mut self, orgs: &HashSet<usize>, address: SocketAddr) -> bool {
        let Self(taken) = self;
        let has_room = |org: &usize| {
            let taken = taken.get(&(*org, address));
            taken.is_none_or(|taken| *taken < MAX_AT_ADDRESS)
        };
        // `any`: an org that has used up its share must not keep the peers of another org from being watched.
        let may = orgs.iter().any(has_room);
        if may {
            for org in orgs {
                *taken.entry((*org, address)).or_default() += 1;
            }
        }
        may
    }
}

/// [`probe_uri`] of a peer, and the party that names it. A peer named by the operator is separate: a tenant that names the same address must learn
/// nothing about it.
type PeerKey = (Box<str>, NamedBy);

/// Peers to probe.
type Probed = HashMap<PeerKey, PeerOwners>;

/// Health of peers, and the handles of the tasks that determine it.
#[derive(Clone, Debug)]
pub(super) struct PeerWatch {
    config: Arc<Config>,
    pub(super) health: Arc<Health>,
    pub(super) registrations: Arc<Registrations>,
    /// Begins to leave the registrations to other nodes, and follows it.
    pub(super) handover: watch::Sender<Handover>,
}

impl PeerWatch {
    /// Starts to watch. The shard of `inbox` sends the probes.
    pub(super) fn start(
        deps: &EngineDeps,
        calls: &trunkline_calls::Config,
        nonces: &Arc<Nonces>,
        sip_hosts: Vec<String>,
        resolver: Resolver,
        inbox: Inbox,
    ) -> Self {
        let sip = &deps.config.sip;
        let health = Health::shared();
        let registrations = Registrations::new();
        if let Some(interval) = sip.health_interval {
            let watch = watch(
                Arc::downgrade(&deps.directory),
                Arc::clone(&health),
                resolver,
                inbox.clone(),
                Arc::clone(&calls.default_runtime),
                interval,
            );
            jobs::PROBES.spawn(&deps.runtime, watch);
        }

        let handover = watch::Sender::default();
        let shares = RegistrationShares {
            directory: Arc::downgrade(&deps.directory),
            registrations: Arc::clone(&registrations),
            store: deps.store.clone(),
            inbox,
            node: deps.node,
            sip_hosts,
            per_org: deps.config.limits.registrations_per_org,
            handover: handover.clone(),
        };
        jobs::CARRIERS.spawn(&deps.runtime, shares.assign(deps.lapses.clone()));

        let config = Config {
            listeners: calls.listeners.clone(),
            addresses: Arc::clone(&calls.addresses),
            expires: REGISTRATION_EXPIRES,
            retry: sip.register_retry,
            realm: calls.realm.clone(),
            nonces: Arc::clone(nonces),
        };

        Self {
            config: Arc::new(config),
            health,
            registrations,
            handover,
        }
    }

    /// Makes the part of one shard.
    pub(super) fn peers(
        &self,
        names: Arc<VerifiedNames>,
        bindings: Arc<Bindings>,
        now: Moment,
    ) -> Peers {
        Peers::new(
            Arc::clone(&self.config),
            names,
            Arc::clone(&self.health),
            Arc::clone(&self.registrations),
            bindings,
            now,
        )
    }
}

/// Probes peers until the directory is dropped.
async fn watch(
    directory: Weak<Directory>,
    health: Arc<Health>,
    resolver: Resolver,
    inbox: Inbox,
    default: Arc<Runtime>,
    interval: Duration,
) {
    // Several turns at once would have a peer's few failures follow each other in a moment.
    let mut turns = jobs::PROBES.ticks_every(interval);
    let mut rechecks = jobs::PROBES.ticks_every(RECHECK_DELAY);
    turns.tick().await;
    let mut before = HashSet::new();
    loop {
        // A turn probes all peers; between turns, only those that are down and from whose address something has
        // arrived.
        let heard_again = tokio::select! {
            _ = turns.tick() => None,
            _ = rechecks.tick() => Some(health.take_back()),
        };

        if heard_again.as_ref().is_some_and(HashSet::is_empty) {
            continue;
        }

        let Some(view) = directory.upgrade().map(|directory| directory.load()) else {
            return;
        };
        let mut probed = probed(&view, &default);
        let named_now: HashSet<PeerKey> = probed.keys().cloned().collect();
        // A peer that was configured since the last turn is left alone for one interval.
        probed.retain(|uri, _| before.contains(uri));

        if heard_again.is_none() {
            before = named_now;
        }

        let mut targets = resolve(&resolver, probed, &health).await;
        targets.retain(|target| match &heard_again {
            // Such a peer is probed. What came from its address doesn't prove that it is up: a source can be forged.
            Some(heard_again) => heard_again.contains(&target.address) && health.is_down(target),
            None => ProbedPeer::of(target).is_some_and(|peer| health.wants_probe(&peer)),
        });

        if !targets.is_empty()
            && !inbox
                .send(Input::Inquire(OptionsBatch::Probe(targets)))
                .await
        {
            return;
        }

        metrics::peers(health.counts());
        metrics::runtimes(health.runtimes());
        metrics::outbound_trunks(health.trunks());
    }
}

/// Collects the peers to probe: the operator's default runtime, and what the orgs name.
fn probed(view: &View, default: &Runtime) -> Probed {
    let mut orgs: Vec<_> = view.orgs.iter().collect();
    // In a fixed order: where there are more than `MAX_PEERS`, each turn takes the same ones.
    orgs.sort_unstable_by_key(|(id, _)| **id);
    let named = orgs.into_iter().map(|(id, org)| {
        let trunks = org.outbound.iter();
        let trunks = trunks.filter_map(|way| Some(((trunk_uri(way)?, way.named), Some(way.id))));
        let mut runtimes: Vec<_> = org.runtimes.iter().collect();
        runtimes.sort_unstable_by_key(|(agent, _)| **agent);
        let runtimes = runtimes.into_iter();
        trunks
            .chain(
                runtimes.flat_map(|(agent, runtime)| {
                    runtime_uris(runtime, *agent, *id, org.namer(*agent))
                }),
            )
            .collect()
    });

    let default = runtime_uris(default, Uuid::nil(), Uuid::nil(), Namer::Operator).collect();
    take_in_turn(std::iter::once(default).chain(named).collect())
}

/// URI of an outbound trunk's peer.
fn trunk_uri(way: &OutboundRoute) -> Option<Box<str>> {
    let (host, port) = way.peer.as_ref()?;
    let port = Some(*port)
        .filter(|port| *port != target::default_port(way.transport))
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    probe_uri(&format!(
        "sip:{host}{port};transport={}",
        way.transport.uri_name()
    ))
}

/// SIP URIs of a runtime and its fallbacks. The bots among them aren't probed: opening a WebSocket would begin a conversation.
fn runtime_uris(
    runtime: &Runtime,
    agent: Uuid,
    org: Uuid,
    namer: Namer,
) -> impl Iterator<Item = (PeerKey, Option<Uuid>)> {
    runtime.sip_uris().filter_map(move |uri| {
        let uri = target::fill(uri, agent, org);
        let named = target::dial_target(&uri)?.of_runtime(&namer).named_by();
        Some(((probe_uri(&uri)?, named), None))
    })
}

/// Takes one peer of each org in turn, up to [`MAX_PEERS`], so that no org uses up another's share. A peer that is already
/// taken costs no turn.
fn take_in_turn(mut named: Vec<Named>) -> Probed {
    let mut probed = Probed::new();
    while named.iter().any(|own| !own.is_empty()) {
        for (org, own) in named.iter_mut().enumerate() {
            while let Some((peer, trunk)) = own.pop_front() {
                let is_new = !probed.contains_key(&peer);
                // Full, but the rest is read on: a peer that is taken counts for every org and trunk that names it.
                if is_new && probed.len() >= MAX_PEERS {
                    continue;
                }

                let owners = probed.entry(peer).or_default();
                owners.orgs.insert(org);
                let trunk = trunk.filter(|trunk| !owners.trunks.contains(trunk));
                owners.trunks.extend(trunk);

                if is_new {
                    break;
                }
            }
        }
    }

    probed
}

/// Resolves peers, many at a time, so that one slow name server delays no other peer.
async fn resolve(resolver: &Resolver, probed: Probed, health: &Health) -> Vec<Target> {
    let resolving = probed.into_iter().map(|((uri, named), by)| async move {
        let found = match target::dial_target(&uri).map(|place| place.named(named)) {
            Some(DialTarget::Resolved(target)) => vec![target],
            Some(DialTarget::Unresolved(name)) => resolver.resolve(&name).await,
            None => Vec::new(),
        };
        (by, found)
    });

    let mut resolving = futures_util::stream::iter(resolving).buffer_unordered(CONCURRENT);
    let mut targets: HashMap<ProbedPeer, Target> = HashMap::new();
    let mut of_trunks: HashMap<Uuid, Vec<ProbedPeer>> = HashMap::new();
    let mut shares = AddressShares::default();
    while let Some((by, found)) = resolving.next().await {
        for target in found {
            let Some(peer) = ProbedPeer::of(&target) else {
                continue;
            };
            if !shares.take(&by.orgs, target.address) {
                continue;
            }

            for trunk in &by.trunks {
                of_trunks.entry(*trunk).or_default().push(peer.clone());
            }

            targets.insert(peer, target);
        }
    }

    // A peer whose name doesn't resolve now isn't among them, and its health is forgotten.
    health.watch(targets.keys(), of_trunks);
    targets.into_values().collect()
}

/// Publishes that a trunk is registered with its carrier, or no longer is.
pub(crate) fn note(change: RegistrationChange, event_sink: &EventSink, now: Moment) {
    let RegistrationChange { org, trunk, what } = change;
    let lost = |why: &'static str| {
        tracing::info!(org.id = %org, trunk.id = %trunk, why, "no longer registered with the carrier");
        (
            EventType::TrunkLost,
            json!({"trunk_id": trunk, "reason": why}),
        )
    };

    let (kind, data) = match what {
        RegistrationChangeKind::Registered {
            contact,
            registrar,
            transport,
            registered_at,
            expires_at,
        } => {
            tracing::info!(org.id = %org, trunk.id = %trunk, %registrar, %transport, "registered with the carrier");

            let data = json!({
                "trunk_id": trunk,
                "contact": contact,
                "source": registrar.to_string(),
                "transport": transport.uri_name(),
                "user_agent": null,
                "registered_at": written(clock::on_wall(registered_at)),
                "expires_at": written(clock::on_wall(expires_at)),
            });
            (EventType::TrunkRegistered, data)
        }

        RegistrationChangeKind::Expired => lost("expired"),
        RegistrationChangeKind::Removed => lost("removed"),
    };

    event_sink.push(org, NewEvent::new(org, kind, &data, clock::on_wall(now)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_shared_out_among_orgs() {
        let named = |org: &str, count: usize| -> Named {
            (0..count)
                .map(|number| {
                    let uri = format!("sip:{org}-{number}.example");
                    ((uri.into(), NamedBy::Tenant), None)
                })
                .collect()
        };

        let of = |probed: &Probed, org: &str| {
            let start = format!("sip:{org}-");
            probed
                .keys()
                .filter(|(uri, _)| uri.starts_with(&start))
                .count()
        };

        let probed = take_in_turn(vec![
            named("default", 1),
            named("greedy", 5_000),
            named("small", 10),
            named("middle", 900),
        ]);

        assert_eq!(probed.len(), MAX_PEERS);
        assert_eq!(
            ["default", "small", "middle"].map(|org| of(&probed, org)),
            [1, 10, 900]
        );
        assert_eq!(of(&probed, "greedy"), MAX_PEERS - 911);

        let both = take_in_turn(vec![named("same", 2), named("same", 1)]);
        let orgs = |uri: &str| both[&(uri.into(), NamedBy::Tenant)].orgs.clone();
        assert_eq!(orgs("sip:same-0.example"), [0, 1].into());
        assert_eq!(orgs("sip:same-1.example"), [0].into());
    }

    #[test]
    fn orgs_that_name_the_same_peers_flood_no_address() {
        let (one, other): (SocketAddr, SocketAddr) = (
            "192.0.2.1:5060".parse().unwrap(),
            "192.0.2.2:5060".parse().unwrap(),
        );
        let mut shares = AddressShares::default();
        let (both, third) = ([1, 2].into(), [3].into());
        let taken = (0..100).filter(|_| shares.take(&both, one));
        assert_eq!(taken.count(), MAX_AT_ADDRESS);
        assert!(shares.take(&both, other), "at another address");
        assert!(shares.take(&third, one), "of another org");
    }
}
