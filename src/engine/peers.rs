//! Watches peers and shares out registrations with carriers.
//!
//! The peers of outbound trunks and the runtimes of all orgs are probed with OPTIONS, each once per interval. The
//! second half decides which outbound trunks this node registers, so that of several nodes exactly one registers each.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use trunkline_calls::health::{Health, ProbedPeer, probe_uri};
use trunkline_calls::peers::carrier_registration::RegisteringTrunk;
use trunkline_calls::peers::registrations::{
    RegistrationChange, RegistrationChangeKind, RegistrationStatus, Registrations, State,
};
use trunkline_calls::peers::{Config, OptionsBatch, Peers};
use trunkline_calls::registrar::bindings::Bindings;
use trunkline_calls::target::{self, DialTarget, Target};
use trunkline_model::address::NamedBy;
use trunkline_model::settings::Runtime;
use trunkline_model::tied::Namer;
use trunkline_model::view::{OutboundRoute, View};
use trunkline_sip::auth::Nonces;
use trunkline_sip::moment::Moment;
use trunkline_sip::verified::VerifiedNames;
use trunkline_store::journal::Origin;
use trunkline_store::{EventType, NewEvent, Serving, Store, nodes, written};
use uuid::Uuid;

use super::event_sink::EventSink;
use super::inbox::{Inbox, Input};
use super::resolve::Resolver;
use super::{EngineDeps, clock};
use crate::directory::Directory;
use crate::telemetry::metrics;

/// Peers that are probed; further ones aren't watched.
const MAX_PEERS: usize = 2_000;
/// Lifetime that we ask carriers for; one that wants more is given it.
const REGISTRATION_EXPIRES: Duration = Duration::from_secs(600);
/// Interval between checks which trunks to register and which other nodes serve.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before a peer that is down is probed, once something has arrived from its address.
const RECHECK_DELAY: Duration = Duration::from_millis(100);
/// Most checks for which a new node waits until the other nodes have noticed it and have withdrawn the registrations that become its own.
/// After them it registers all the same.
const MAX_CHECKS: u32 = 45;

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
}

impl PeerWatch {
    /// Starts to watch. The shard of `inbox` sends the probes.
    pub(super) fn start(
        deps: &EngineDeps,
        calls: &trunkline_calls::Config,
        nonces: &Arc<Nonces>,
        (resolver, inbox): (Resolver, Inbox),
    ) -> Self {
        let sip = &deps.config.sip;
        let health = Health::shared();
        let registrations = Registrations::new();
        if let Some(interval) = sip.health_interval {
            deps.runtime.spawn(watch(
                Arc::downgrade(&deps.directory),
                Arc::clone(&health),
                (resolver, inbox.clone()),
                (Arc::clone(&calls.default_runtime), interval),
            ));
        }

        deps.runtime.spawn(assign_registrations(
            Arc::downgrade(&deps.directory),
            Arc::clone(&registrations),
            (deps.store.clone(), inbox, deps.node),
            deps.lapses.clone(),
            deps.config.limits.registrations_per_org,
        ));

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
            (
                Arc::clone(&self.health),
                Arc::clone(&self.registrations),
                bindings,
            ),
            now,
        )
    }
}

/// Probes peers until the directory is dropped.
async fn watch(
    directory: Weak<Directory>,
    health: Arc<Health>,
    (resolver, inbox): (Resolver, Inbox),
    (default, interval): (Arc<Runtime>, Duration),
) {
    let mut turns = tokio::time::interval(interval);
    let mut rechecks = tokio::time::interval(RECHECK_DELAY);
    // Turns that were missed aren't made up for: several at once would have a peer's few failures follow each other in a moment.
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    rechecks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
            .chain(runtimes.flat_map(|(agent, runtime)| {
                runtime_uris(runtime, (*agent, *id), org.namer(*agent))
            }))
            .collect()
    });

    let default = runtime_uris(default, (Uuid::nil(), Uuid::nil()), Namer::Operator).collect();
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
    (agent, org): (Uuid, Uuid),
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

/// Sends the shard the trunks to register whenever they change, until the directory is dropped. Of the nodes that share a database, one registers
/// each trunk. While the database is away, the nodes keep their assignments.
async fn assign_registrations(
    directory: Weak<Directory>,
    registrations: Arc<Registrations>,
    (store, inbox, node): (Store, Inbox, u8),
    mut lapses: watch::Receiver<u64>,
    per_org: u32,
) {
    let mut turns = tokio::time::interval(CHECK_INTERVAL);
    // After a stall of the database the turns that were missed aren't made up for in a burst.
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut others = OtherNodes::default();
    // `seen` is the last view, by its address. A weak pointer keeps the address from being reused, but lets the view
    // be freed.
    let (mut seen, mut announced) = (Weak::<View>::new(), Vec::new());
    let mut of_others = HashSet::new();
    let mut left_out = HashSet::new();

    loop {
        turns.tick().await;
        let Some(view) = directory.upgrade().map(|directory| directory.load()) else {
            return;
        };
        // An error means that the lease isn't kept any more, as the process ends.
        if lapses.has_changed().unwrap_or_default() {
            lapses.borrow_and_update();
            // Other nodes have registered our trunks meanwhile: until we have agreed with them again, none counts as
            // ours.
            if !inbox.send(Input::RegisterTrunks(None)).await {
                return;
            }
            others = OtherNodes::default();
            (seen, announced) = (Weak::new(), Vec::new());
        }

        let (wanted, beyond) = wanted(&view, per_org);

        // Nothing is registered before the other nodes are known.
        if !wanted.is_empty()
            && let Ok(serving) = store.read(nodes::serving).await
            && others.look(node, serving)
        {
            seen = Weak::new();
        }

        for (_, trunk) in &left_out {
            // Shown as failed only once a registration that it may still have is withdrawn.
            if registrations.of(*trunk).is_none() {
                registrations.set(*trunk, RegistrationStatus::bare(State::Failed));
            }
        }

        // A trunk that was ours is shown as ours until its registration is withdrawn.
        registrations.set_remote(&of_others);
        metrics::outbound_registrations(
            registrations
                .counts()
                .map(|(state, count)| (state.as_str(), count)),
        );

        // Once a trunk that isn't ours any more is withdrawn, its next node may register it.
        let is_back = |trunk| {
            let status = registrations.of(trunk);
            status.is_none_or(|status| status.state == State::OtherNode)
        };
        if seen.ptr_eq(&Arc::downgrade(&view)) && of_others.iter().copied().all(is_back) {
            others.announce(&store, node).await;
        }

        if seen.ptr_eq(&Arc::downgrade(&view)) || (!others.is_known && !wanted.is_empty()) {
            continue;
        }

        seen = Arc::downgrade(&view);
        if left_out != beyond {
            for (_, trunk) in left_out.difference(&beyond) {
                registrations.forget(*trunk);
            }
            for (org, trunk) in beyond.difference(&left_out) {
                tracing::warn!(org.id = %org, trunk.id = %trunk, "not registered: the org has as many trunks registered as it may have (trunkline org limits, limits.registrations_per_org)");
            }
            left_out = beyond;
        }

        let numbers: Vec<u8> = others.runs.iter().map(|run| run.node).collect();
        let (ours, theirs): (Vec<RegisteringTrunk>, Vec<RegisteringTrunk>) =
            wanted.into_iter().partition(|wanted| {
                // A trunk that moves here is registered once the other nodes count this one in, since they have
                // withdrawn it by then. One that is registered here stays.
                let is_held = || {
                    announced
                        .iter()
                        .any(|held: &RegisteringTrunk| held.way.id == wanted.way.id)
                };
                is_for(node, &numbers, wanted.way.id) && (others.counts_us || is_held())
            });

        of_others = theirs.iter().map(|wanted| wanted.way.id).collect();
        registrations.set_remote(&of_others);
        if announced != ours {
            if !inbox.send(Input::RegisterTrunks(Some(ours.clone()))).await {
                return;
            }
            announced = ours;
        }
    }
}

/// Nodes that share out the registrations, as this node sees them.
#[derive(Debug, Default)]
struct OtherNodes {
    /// True once the nodes were read. False again if this node's lease had expired.
    is_known: bool,
    /// Nodes that serve, this one included.
    runs: Vec<Origin>,
    /// True if each of the others counts this node in, or was waited for long enough.
    counts_us: bool,
    /// Checks in a row in which another node didn't count this one in.
    waited: u32,
    /// Nodes that we have announced as seen.
    announced: Vec<Origin>,
}

impl OtherNodes {
    /// Returns true if something changed.
    fn look(&mut self, node: u8, serving: Vec<Serving>) -> bool {
        let own = serving.iter().find(|one| one.run.node == node);
        // This node isn't listed while it drains. It registers nothing then, so nobody has to count it in.
        let counts_us = serving
            .iter()
            .filter(|other| other.run.node != node)
            .all(|other| own.is_none_or(|own| other.sees.contains(&own.run)));
        self.waited = if counts_us { 0 } else { self.waited + 1 };
        let counts_us = counts_us || self.waited > MAX_CHECKS;
        let runs: Vec<Origin> = serving.into_iter().map(|one| one.run).collect();
        let is_news = !self.is_known || self.runs != runs || self.counts_us != counts_us;
        (self.is_known, self.runs, self.counts_us) = (true, runs, counts_us);
        is_news
    }

    /// Announces to the other nodes which nodes we count in.
    async fn announce(&mut self, store: &Store, node: u8) {
        let own = self.runs.iter().find(|run| run.node == node).copied();
        let runs = self.runs.clone();
        if let Some(own) = own.filter(|_| self.announced != self.runs)
            && store
                .write(move |tx| nodes::see(tx, own, &runs))
                .await
                .is_ok()
        {
            self.announced.clone_from(&self.runs);
        }
    }
}

/// Orgs and trunks beyond the limit on registrations.
type BeyondLimit = HashSet<(Uuid, Uuid)>;

/// Trunks to register, in order of their ids, which is the order of their creation; at most `per_org` of each org. The
/// second result holds those beyond.
fn wanted(view: &View, per_org: u32) -> (Vec<RegisteringTrunk>, BeyondLimit) {
    let orgs = view.registering.keys();
    let mut wanted: Vec<RegisteringTrunk> = orgs
        .filter_map(|org| Some((org, view.org(*org)?)))
        .flat_map(|(org, own)| own.outbound.iter().map(|way| (*org, way)))
        .filter(|(_, way)| way.register && way.peer.is_some() && way.login.is_some())
        .map(|(org, way)| RegisteringTrunk {
            org,
            way: Arc::clone(way),
            shares_user: way
                .login
                .as_ref()
                .is_some_and(|login| view.login(login.user.as_bytes()).is_some()),
        })
        .collect();

    wanted.sort_by_key(|wanted| wanted.way.id);
    let most = |org| {
        let own = view.org(org).map(|own| own.registrations);
        own.unwrap_or_default().in_force(per_org)
    };
    let mut counts: HashMap<Uuid, u32> = HashMap::new();
    let (within, beyond): (Vec<RegisteringTrunk>, Vec<RegisteringTrunk>) =
        wanted.into_iter().partition(|wanted| {
            let count = counts.entry(wanted.org).or_default();
            *count += 1;
            *count <= most(wanted.org)
        });

    let beyond = beyond.iter().map(|wanted| (wanted.org, wanted.way.id));
    (within, beyond.collect())
}

/// Returns true if this node draws highest for the trunk (rendezvous hashing). When a node joins or leaves, only its own share moves.
fn is_for(node: u8, nodes: &[u8], trunk: Uuid) -> bool {
    let draw = |node: u8| {
        // Made by `new`, it has fixed keys: all nodes draw alike.
        let mut hasher = DefaultHasher::new();
        (trunk, node).hash(&mut hasher);
        (hasher.finish(), node)
    };
    nodes
        .iter()
        .all(|other| *other == node || draw(*other) < draw(node))
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
    fn one_of_the_nodes_registers_each_trunk() {
        let trunks = (1..200_u128).map(Uuid::from_u128);
        let mut shares = [0; 3];
        for trunk in trunks {
            let nodes = [0, 1, 2];
            let takers: Vec<u8> = nodes
                .into_iter()
                .filter(|node| is_for(*node, &nodes, trunk))
                .collect();
            let [taker] = takers[..] else {
                panic!("{trunk}: {takers:?}");
            };
            shares[usize::from(taker)] += 1;
            // When a node leaves, the others' trunks stay.
            for gone in nodes.into_iter().filter(|node| *node != taker) {
                let left: Vec<u8> = nodes.into_iter().filter(|node| *node != gone).collect();
                assert!(is_for(taker, &left, trunk), "{trunk}");
            }
        }

        assert!(shares.iter().all(|share| *share > 40), "{shares:?}");
    }

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
