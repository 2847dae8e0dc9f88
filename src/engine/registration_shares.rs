//! Shares out registrations with carriers: of the nodes that share a database, exactly one registers each outbound trunk.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Weak};

use tokio::sync::watch;
use trunkline_calls::peers::carrier_registration::{
    MovedTrunks, RegisteringTrunk, TrunkAssignment,
};
use trunkline_calls::peers::registrations::{RegistrationStatus, Registrations, State};
use trunkline_model::view::View;
use trunkline_store::journal::Origin;
use trunkline_store::{Serving, Store, nodes};
use uuid::Uuid;

use super::inbox::{Inbox, Input};
use crate::directory::Directory;
use crate::jobs;
use crate::telemetry::metrics;

/// Most checks for which a node keeps registrations that have become another's until that one has made them. After them it withdraws all the same.
const MAX_CHECKS: u32 = 45;

/// Most checks for which a node that drains keeps its registrations until the others have made them.
const MAX_HANDOVER_CHECKS: u32 = 10;

/// Progress of a node that leaves its registrations to the others.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Handover {
    /// The node doesn't drain.
    #[default]
    NotBegun,
    /// The node drains, and the others are to register its trunks.
    Begun,
    /// The node withdraws what it has.
    Done,
}

/// Trunks to register, and what is needed to share them out.
#[derive(Debug)]
pub(super) struct RegistrationShares {
    pub(super) directory: Weak<Directory>,
    pub(super) registrations: Arc<Registrations>,
    pub(super) store: Store,
    /// Inbox of the shard that registers.
    pub(super) inbox: Inbox,
    pub(super) node: u8,
    /// Hosts in the Contacts of this node.
    pub(super) sip_hosts: Vec<String>,
    /// Most registrations of an org.
    pub(super) per_org: u32,
    pub(super) handover: watch::Sender<Handover>,
}

impl RegistrationShares {
    /// Sends the shard the trunks to register whenever they change, until the directory is dropped. Of the nodes that share a database, one registers
    /// each trunk. While the database is away, the nodes keep their assignments.
    ///
    /// A trunk that moves, also from a node that drains, is registered by its next node at once, and withdrawn by its last one only then: its calls
    /// always have a way. A node tells by [`nodes::see`] that it has registered its share. `lapses` counts the times at which other nodes may have
    /// taken over.
    pub(super) async fn assign(self, mut lapses: watch::Receiver<u64>) {
        let Self {
            directory,
            registrations,
            store,
            inbox,
            node,
            sip_hosts,
            per_org,
            handover,
        } = self;
        let mut leaving = handover.subscribe();
        let mut handover_checks = 0;
        let mut turns = jobs::CARRIERS.ticks();
        let mut others = OtherNodes::default();
        // `seen` is the last view, by its address. A weak pointer keeps the address from being reused, but lets the view
        // be freed.
        let (mut seen, mut announced) = (Weak::<View>::new(), Vec::<RegisteringTrunk>::new());
        let mut of_others = HashSet::new();
        let mut left_out = HashSet::new();

        loop {
            tokio::select! {
                _ = turns.tick() => {}
                Ok(()) = leaving.changed() => {}
            }
            let Some(view) = directory.upgrade().map(|directory| directory.load()) else {
                return;
            };

            let state = *leaving.borrow_and_update();
            match state {
                Handover::NotBegun => {}
                Handover::Begun => {
                    handover_checks += 1;
                    let takers = Takers::of(&announced, node, &store).await;
                    if takers.are_done || handover_checks > MAX_HANDOVER_CHECKS {
                        of_others.extend(takers.moved.keys().copied());
                        if !inbox.send(Input::LeaveCarriers(takers.moved)).await {
                            return;
                        }
                        handover.send_replace(Handover::Done);
                    }
                    continue;
                }
                Handover::Done => {
                    // What others have is shown until this process ends.
                    registrations.set_remote(&of_others);
                    continue;
                }
            }

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

            // A trunk that was ours is shown as ours until it is withdrawn.
            registrations.set_remote(&of_others);
            metrics::outbound_registrations(
                registrations
                    .counts()
                    .map(|(state, count)| (state.as_str(), count)),
            );

            // Once all of ours are registered, or have failed to, their last nodes may withdraw them.
            let is_settled = |ours: &RegisteringTrunk| {
                let status = registrations.of(ours.way.id);
                status.is_some_and(|status| status.state != State::Registering)
            };
            if seen.ptr_eq(&Arc::downgrade(&view)) && announced.iter().all(is_settled) {
                others.announce(&store, node, &sip_hosts).await;
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
                    // One that moves away stays until the other nodes have registered theirs.
                    let was_ours = || announced.iter().any(|held| held.way.id == wanted.way.id);
                    let stays = || !others.count_us && was_ours();
                    is_for(node, &numbers, wanted.way.id) || stays()
                });

            of_others = theirs.iter().map(|wanted| wanted.way.id).collect();
            registrations.set_remote(&of_others);
            if announced != ours {
                let moved = theirs.iter().filter_map(|theirs| {
                    let mut takers = numbers.iter();
                    let taker = takers.find(|taker| is_for(**taker, &numbers, theirs.way.id))?;
                    Some((theirs.way.id, Arc::clone(others.hosts.get(taker)?)))
                });
                let assigned = TrunkAssignment {
                    ours: ours.clone(),
                    moved: moved.collect(),
                };
                if !inbox.send(Input::RegisterTrunks(Some(assigned))).await {
                    return;
                }
                announced = ours;
            }
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
    /// Hosts in the Contacts of each node.
    hosts: HashMap<u8, Arc<[String]>>,
    /// True if each of the others counts this node in, or was waited for long enough.
    count_us: bool,
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
        let count_us = serving
            .iter()
            .filter(|other| other.run.node != node)
            .all(|other| own.is_none_or(|own| other.sees.contains(&own.run)));
        self.waited = if count_us { 0 } else { self.waited + 1 };
        let count_us = count_us || self.waited > MAX_CHECKS;
        let runs: Vec<Origin> = serving.iter().map(|one| one.run).collect();
        let hosts = serving.into_iter();
        self.hosts = hosts
            .map(|one| (one.run.node, one.sip_hosts.into()))
            .collect();
        let is_news = !self.is_known || self.runs != runs || self.count_us != count_us;
        (self.is_known, self.runs, self.count_us) = (true, runs, count_us);
        is_news
    }

    /// Announces to the other nodes which nodes we count in, and the hosts in our Contacts.
    async fn announce(&mut self, store: &Store, node: u8, sip_hosts: &[String]) {
        let own = self.runs.iter().find(|run| run.node == node).copied();
        let (runs, hosts) = (self.runs.clone(), sip_hosts.to_vec());
        if let Some(own) = own.filter(|_| self.announced != self.runs)
            && store
                .write(move |tx| nodes::see(tx, own, &runs, &hosts))
                .await
                .is_ok()
        {
            self.announced.clone_from(&self.runs);
        }
    }
}

/// Other nodes that take over the trunks of this one, which drains.
#[derive(Debug, Default)]
struct Takers {
    /// Trunks that they have registered.
    moved: MovedTrunks,
    /// They have registered all of them, or tried to; or there is nobody to wait for.
    are_done: bool,
}

impl Takers {
    async fn of(ours: &[RegisteringTrunk], node: u8, store: &Store) -> Self {
        let nobody = Self {
            are_done: true,
            ..Self::default()
        };
        if ours.is_empty() || !store.is_shared() {
            return nobody;
        }
        // While the database is away, no other node learns that this one drains.
        match store.read(nodes::serving).await {
            Ok(serving) => Self::among(ours, node, &serving),
            Err(_) => nobody,
        }
    }

    fn among(ours: &[RegisteringTrunk], node: u8, serving: &[Serving]) -> Self {
        let others = || serving.iter().filter(|one| one.run.node != node);
        let numbers: Vec<u8> = others().map(|other| other.run.node).collect();
        // It has registered its share of all trunks, counted without this node.
        let is_done = |other: &&Serving| {
            let sees_us = other.sees.iter().any(|run| run.node == node);
            other.sees.contains(&other.run) && !sees_us
        };

        let moved = ours.iter().filter_map(|ours| {
            let trunk = ours.way.id;
            let taker = others().find(|other| is_for(other.run.node, &numbers, trunk))?;
            is_done(&taker).then(|| (trunk, taker.sip_hosts.clone().into()))
        });
        Self {
            moved: moved.collect(),
            are_done: others().all(|other| is_done(&other)),
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

    /// A trunk that the carrier knows by our Contact alone would have no way in between.
    #[test]
    fn a_node_that_drains_waits_until_the_others_have_its_trunks() {
        const OURS: u8 = 0;
        let run = |node| Origin { node, boot: 1 };
        let serving = |node, sees: &[u8]| Serving {
            run: run(node),
            sees: sees.iter().map(|node| run(*node)).collect(),
            sip_hosts: vec![format!("192.0.2.{node}:5060")],
        };
        let ours: Vec<RegisteringTrunk> =
            (1..20).map(|id| registering(Uuid::from_u128(id))).collect();
        let takers = |nodes: &[Serving]| Takers::among(&ours, OURS, nodes);

        let before = takers(&[
            serving(0, &[0, 1, 2]),
            serving(1, &[0, 1, 2]),
            serving(2, &[0, 1, 2]),
        ]);
        assert!(!before.are_done && before.moved.is_empty());
        // The second has registered its part.
        let halfway = takers(&[serving(1, &[0, 1, 2]), serving(2, &[1, 2])]);
        assert!(!halfway.are_done && !halfway.moved.is_empty());
        assert!(
            halfway
                .moved
                .values()
                .all(|hosts| **hosts == ["192.0.2.2:5060"])
        );
        let after = takers(&[serving(1, &[1, 2]), serving(2, &[1, 2])]);
        assert!(after.are_done && after.moved.len() == ours.len());
        assert_eq!(after.moved.values().collect::<HashSet<_>>().len(), 2);
        // One that has just begun, and has registered nothing yet.
        assert!(!takers(&[serving(1, &[])]).are_done);
        let alone = takers(&[serving(0, &[0])]);
        assert!(alone.are_done && alone.moved.is_empty());
    }

    fn registering(id: Uuid) -> RegisteringTrunk {
        RegisteringTrunk {
            org: Uuid::nil(),
            way: Arc::new(trunkline_model::view::OutboundRoute {
                org: Uuid::nil(),
                id,
                peer: None,
                named: Default::default(),
                transport: trunkline_sip::flow::Transport::Udp,
                login: None,
                realms: Arc::default(),
                caller_number: trunkline_routing::E164::parse("+442071838750").unwrap(),
                from_host: None,
                p_asserted_identity: false,
                user_phone: false,
                register: true,
                max_concurrent_calls: None,
                calls_per_second: None,
                transfer_way: Default::default(),
                keeps_caller: false,
            }),
            shares_user: false,
        }
    }
}
