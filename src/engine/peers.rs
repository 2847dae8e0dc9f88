//! Whom to ask whether they are there, and when: the peers of outbound trunks and the runtimes of all orgs, each once an interval. And which
//! outbound trunks this node registers with their carriers.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde_json::json;
use trunkline_sip::moment::Moment;
use trunkline_sip::verified::Names;
use uuid::Uuid;

use super::inbox::{Inbox, Input};
use super::resolve::Resolver;
use super::told::Told;
use super::{Deps, clock};
use crate::calls;
use crate::calls::health::{Health, Peer};
use crate::calls::target::{self, Place, Target};
use crate::directory::Directory;
use crate::directory::view::{Runtime, View};
use crate::journal::Origin;
use crate::peers::enrolment::Wanted;
use crate::peers::standing::{Change, Standings, State, What};
use crate::peers::{Config, Peers};
use crate::store::{EventType, NewEvent, Serving, Store, written};
use crate::telemetry::metrics;

/// Peers that are asked; the further ones are not watched.
const MOST: usize = 2_000;
/// How often is looked whether other trunks are to be registered, and which other nodes serve.
const LOOK: Duration = Duration::from_secs(1);
/// Looks for which a node waits until the others count it in, and have taken back what is its own from now on.
const PATIENCE: u32 = 45;

/// A URI without its user, and the trunks that lead there.
type Probed = HashMap<Box<str>, Vec<Uuid>>;

/// What is known of peers, and who finds it out.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    config: Arc<Config>,
    pub(super) health: Arc<Health>,
    pub(super) standings: Arc<Standings>,
}

impl Watched {
    /// Begins to watch, by way of the shard of that inbox.
    pub(super) fn start(
        deps: &Deps,
        calls: &calls::Config,
        (resolver, inbox): (Resolver, Inbox),
    ) -> Self {
        let sip = &deps.config.sip;
        let health = Health::shared(sip.health_down_after, sip.health_up_after);
        let standings = Standings::new();
        if let Some(interval) = sip.health_interval {
            deps.runtime.spawn(watch(
                Arc::downgrade(&deps.directory),
                Arc::clone(&health),
                (resolver, inbox.clone()),
                (Arc::clone(&calls.default_runtime), interval),
            ));
        }
        deps.runtime.spawn(enrol(
            Arc::downgrade(&deps.directory),
            Arc::clone(&standings),
            (deps.store.clone(), inbox, deps.node),
        ));
        let config = Config {
            listeners: calls.listeners.clone(),
            addresses: Arc::clone(&calls.addresses),
            expires: sip.register_expires,
            retry: sip.register_retry,
        };
        Self {
            config: Arc::new(config),
            health,
            standings,
        }
    }

    /// A shard's share.
    pub(super) fn peers(&self, names: Arc<Names>, now: Moment) -> Peers {
        Peers::new(
            Arc::clone(&self.config),
            names,
            (Arc::clone(&self.health), Arc::clone(&self.standings)),
            now,
        )
    }
}

/// Asks for as long as somebody holds the directory. Whoever has only just been configured is left alone for one interval.
async fn watch(
    directory: Weak<Directory>,
    health: Arc<Health>,
    (resolver, inbox): (Resolver, Inbox),
    (default, interval): (Arc<Runtime>, Duration),
) {
    let mut turns = tokio::time::interval(interval);
    turns.tick().await;
    let mut before = HashSet::new();
    loop {
        turns.tick().await;
        let Some(view) = directory.upgrade().map(|directory| directory.load()) else {
            return;
        };
        let mut probed = probed(&view, &default);
        let now: HashSet<Box<str>> = probed.keys().cloned().collect();
        probed.retain(|uri, _| before.contains(uri));
        before = now;
        let mut targets = resolve(&resolver, probed, &health).await;
        targets.retain(|target| health.wants_probe((target.transport, target.address)));
        if !targets.is_empty() && !inbox.send(Input::Probe(targets)).await {
            return;
        }
        metrics::peers(health.counts());
    }
}

fn probed(view: &View, default: &Runtime) -> Probed {
    let mut probed = Probed::new();
    let mut add = |uri: &str, trunk: Option<Uuid>| {
        if let Some(uri) = without_user(&target::fill(uri, Uuid::nil(), Uuid::nil()))
            && (probed.len() < MOST || probed.contains_key(&*uri))
        {
            let trunks = probed.entry(uri).or_default();
            trunks.extend(trunk.filter(|trunk| !trunks.contains(trunk)));
        }
    };
    for way in view.orgs.values().flat_map(|org| &org.outbound) {
        if let Some((host, port)) = &way.peer {
            let port = Some(*port)
                .filter(|port| *port != target::default_port(way.transport))
                .map(|port| format!(":{port}"))
                .unwrap_or_default();
            let uri = format!("sip:{host}{port};transport={}", way.transport.uri_name());
            add(&uri, Some(way.id));
        }
    }
    let runtimes = view.orgs.values().flat_map(|org| org.runtimes.values());
    for runtime in runtimes.map(|runtime| &**runtime).chain([default]) {
        if let Runtime::Sip { uri, fallbacks } = runtime {
            add(uri, None);
            for uri in fallbacks {
                add(uri, None);
            }
        }
    }
    probed
}

/// `sip:host` of `sip:user@host`.
fn without_user(uri: &str) -> Option<Box<str>> {
    let (scheme, rest) = uri.split_once(':')?;
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    Some(format!("{scheme}:{place}").into())
}

async fn resolve(resolver: &Resolver, probed: Probed, health: &Health) -> Vec<Target> {
    let mut targets: Vec<Target> = Vec::new();
    let mut of_trunks: HashMap<Uuid, Vec<Peer>> = HashMap::new();
    let mut listed: HashSet<Peer> = HashSet::new();
    for (uri, trunks) in probed {
        let found = match target::place(&uri) {
            Some(Place::Known(target)) => vec![target],
            Some(Place::Name(name)) => resolver.resolve(&name).await,
            None => Vec::new(),
        };
        for target in found {
            let peer = (target.transport, target.address);
            for trunk in &trunks {
                of_trunks.entry(*trunk).or_default().push(peer);
            }
            if listed.insert(peer) {
                targets.push(target);
            }
        }
    }
    let peers: Vec<Peer> = listed.into_iter().collect();
    health.watch(&peers, of_trunks);
    targets
}

/// Tells the shard which trunks to register, whenever that changes, for as long as somebody holds the directory. Of the nodes that share a
/// database one registers each trunk; while the database is away they stay with what they agreed on.
async fn enrol(
    directory: Weak<Directory>,
    standings: Arc<Standings>,
    (store, inbox, node): (Store, Inbox, u8),
) {
    let mut turns = tokio::time::interval(LOOK);
    let mut around = Around::default();
    let (mut seen, mut told) = (Weak::<View>::new(), Vec::new());
    let mut elsewhere = HashSet::new();
    loop {
        turns.tick().await;
        let Some(view) = directory.upgrade().map(|directory| directory.load()) else {
            return;
        };
        let wanted = wanted(&view);
        // Before the first is registered it must be known who else might.
        if !wanted.is_empty()
            && let Ok(serving) = store.nodes().serving(clock::now()).await
            && around.look(node, serving)
        {
            seen = Weak::new();
        }
        // What was ours is shown as such until it has been taken back.
        standings.elsewhere(&elsewhere);
        metrics::outbound_registrations(
            standings
                .counts()
                .map(|(state, count)| (state.as_str(), count)),
        );
        // What isn't ours any more has been taken back: its next node may begin.
        let is_back = |trunk| {
            let standing = standings.of(trunk);
            standing.is_none_or(|standing| standing.state == State::Elsewhere)
        };
        if seen.ptr_eq(&Arc::downgrade(&view)) && elsewhere.iter().copied().all(is_back) {
            around.tell(&store, node).await;
        }
        if seen.ptr_eq(&Arc::downgrade(&view)) || (!around.is_known && !wanted.is_empty()) {
            continue;
        }
        seen = Arc::downgrade(&view);
        let numbers: Vec<u8> = around.runs.iter().map(|run| run.node).collect();
        let (ours, others): (Vec<Wanted>, Vec<Wanted>) = wanted.into_iter().partition(|wanted| {
            let is_held = || {
                told.iter()
                    .any(|held: &Wanted| held.way.id == wanted.way.id)
            };
            is_for(node, &numbers, wanted.way.id) && (around.counts_us || is_held())
        });
        elsewhere = others.iter().map(|wanted| wanted.way.id).collect();
        standings.elsewhere(&elsewhere);
        if told != ours {
            if !inbox.send(Input::Enrol(ours.clone())).await {
                return;
            }
            told = ours;
        }
    }
}

/// The nodes that share the registrations out, as this one sees them.
#[derive(Debug, Default)]
struct Around {
    is_known: bool,
    runs: Vec<Origin>,
    /// Each of the others counts this one in, or has been waited for long enough.
    counts_us: bool,
    waited: u32,
    /// What the others were told that we see.
    told: Vec<Origin>,
}

impl Around {
    /// True if something has changed.
    fn look(&mut self, node: u8, serving: Vec<Serving>) -> bool {
        let own = serving.iter().find(|one| one.run.node == node);
        let counts_us = serving
            .iter()
            .filter(|other| other.run.node != node)
            .all(|other| own.is_none_or(|own| other.sees.contains(&own.run)));
        self.waited = if counts_us { 0 } else { self.waited + 1 };
        let counts_us = counts_us || self.waited > PATIENCE;
        let runs: Vec<Origin> = serving.into_iter().map(|one| one.run).collect();
        let is_news = !self.is_known || self.runs != runs || self.counts_us != counts_us;
        (self.is_known, self.runs, self.counts_us) = (true, runs, counts_us);
        is_news
    }

    /// Tells the others whom we count in.
    async fn tell(&mut self, store: &Store, node: u8) {
        let own = self.runs.iter().find(|run| run.node == node);
        if let Some(own) = own.filter(|_| self.told != self.runs)
            && store.nodes().see(*own, &self.runs).await.is_ok()
        {
            self.told.clone_from(&self.runs);
        }
    }
}

/// The trunks that want to be registered, in the order of their ids.
fn wanted(view: &View) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = view
        .orgs
        .iter()
        .flat_map(|(org, orgs)| orgs.outbound.iter().map(|way| (*org, way)))
        .filter(|(_, way)| way.register && way.peer.is_some() && way.login.is_some())
        .map(|(org, way)| Wanted {
            org,
            way: Arc::clone(way),
        })
        .collect();
    wanted.sort_by_key(|wanted| wanted.way.id);
    wanted
}

/// Each trunk goes to the node that draws highest for it, so that a node that comes or goes moves no more than its share.
fn is_for(node: u8, nodes: &[u8], trunk: Uuid) -> bool {
    let draw = |node: u8| {
        let mut hasher = DefaultHasher::new();
        (trunk, node).hash(&mut hasher);
        (hasher.finish(), node)
    };
    nodes
        .iter()
        .all(|other| *other == node || draw(*other) < draw(node))
}

/// Says that a trunk is registered with its carrier, or is no more.
pub(crate) fn note(change: Change, told: &Told, now: Moment) {
    let Change { org, trunk, what } = change;
    let lost = |why: &'static str| {
        tracing::info!(org.id = %org, trunk.id = %trunk, why, "no longer registered with the carrier");
        (
            EventType::TrunkLost,
            json!({"trunk_id": trunk, "reason": why}),
        )
    };
    let (kind, data) = match what {
        What::Registered {
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
                "registered_at": written(registered_at),
                "expires_at": written(expires_at),
            });
            (EventType::TrunkRegistered, data)
        }
        What::Expired => lost("expired"),
        What::Removed => lost("removed"),
    };
    told.tell(NewEvent::new(org, kind, &data, now));
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
            // A node that goes moves nothing of the others.
            for gone in nodes.into_iter().filter(|node| *node != taker) {
                let left: Vec<u8> = nodes.into_iter().filter(|node| *node != gone).collect();
                assert!(is_for(taker, &left, trunk), "{trunk}");
            }
        }
        assert!(shares.iter().all(|share| *share > 40), "{shares:?}");
    }

    #[test]
    fn a_uri_loses_its_user() {
        for (uri, without) in [
            ("sip:a@h:5070;transport=tcp", "sip:h:5070;transport=tcp"),
            ("sips:h", "sips:h"),
        ] {
            assert_eq!(without_user(uri).as_deref(), Some(without));
        }
    }
}
