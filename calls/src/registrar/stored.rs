//! Bindings beyond this process: the part that is stored for a restart and for other nodes, and the use of a binding that another process has made.
//!
//! Pure. The flow of such a binding isn't ours: a call goes to its Contact if that is reachable without NAT, else through the node that has the flow.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use trunkline_model::registration::{StoredBinding, UnsavedBindings};
use trunkline_model::view::PeerLogin;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::bindings::{Binding, Bindings, TrunkBindings};
use super::flow_owner::FlowOwner;

impl Bindings {
    /// Sets the nodes that are up: a PBX that only the flow of a dead node leads to can't be called.
    pub fn set_serving(&self, nodes: &[u8]) {
        self.serving.set(nodes);
    }

    /// Returns whether a binding can be called, from here or through the node that has its flow.
    pub(super) fn counts(&self, binding: &Binding) -> bool {
        match binding.flow_owner {
            FlowOwner::ThisProcess => true,
            FlowOwner::EarlierRun => binding.has_way_without_flow(),
            FlowOwner::OtherNode(node) => binding.has_way_without_flow() || self.serving.has(node),
        }
    }

    /// Returns the node of the trunk's best binding that another node owns. Its flow is needed only if this node has no way to the PBX.
    pub fn node_with_flow(&self, trunk: Uuid, now: Moment) -> Option<u8> {
        let bindings = self.of(trunk, now);
        bindings
            .iter()
            .find_map(|binding| match binding.flow_owner {
                FlowOwner::OtherNode(node) => Some(node),
                FlowOwner::ThisProcess | FlowOwner::EarlierRun => None,
            })
    }

    /// Notes that a trunk's stored bindings are out of date.
    pub(super) fn note_unsaved(&self, trunk: Uuid, removed: impl IntoIterator<Item = Box<str>>) {
        self.unsaved.entry(trunk).or_default().extend(removed);
    }

    /// Takes at most `most` trunks whose bindings have changed.
    pub fn take_unsaved(&self, own: u8, most: usize) -> Vec<UnsavedBindings> {
        let trunks: Vec<Uuid> = self
            .unsaved
            .iter()
            .take(most)
            .map(|own| *own.key())
            .collect();

        let taken = trunks.into_iter().filter_map(|trunk| {
            // The mark goes before the bindings are read: a change in between marks the trunk again, and none is lost.
            let (_, removed) = self.unsaved.remove(&trunk)?;
            let registered = self.trunks.get(&trunk);
            let stored = registered.map(|registered| registered.stored(trunk, own));
            Some(UnsavedBindings {
                trunk,
                own: stored.unwrap_or_default(),
                removed,
            })
        });
        taken.collect()
    }

    /// Puts back bindings that couldn't be stored.
    pub fn put_back(&self, unsaved: Vec<UnsavedBindings>) {
        // The bindings themselves are read again when they are stored.
        for UnsavedBindings { trunk, removed, .. } in unsaved {
            self.note_unsaved(trunk, removed);
        }
    }

    /// Takes over the stored bindings of this node's earlier runs and of other nodes. Unreachable ones are removed from the store as well.
    pub fn restore(
        &self,
        stored: &[StoredBinding],
        own: u8,
        pair: impl Fn(&str) -> Option<Arc<PeerLogin>>,
        now: Moment,
    ) {
        for stored in stored {
            let flow_owner = match stored.node == own {
                true => FlowOwner::EarlierRun,
                false => FlowOwner::OtherNode(stored.node),
            };
            self.apply_stored(stored, flow_owner, &pair, now);
            if flow_owner == FlowOwner::EarlierRun && stored.expires_at > now {
                self.note_unsaved(stored.trunk, []);
            }
        }
    }

    /// Applies the bindings that other nodes have stored since.
    pub fn follow(
        &self,
        stored: &[StoredBinding],
        own: u8,
        pair: impl Fn(&str) -> Option<Arc<PeerLogin>>,
        now: Moment,
    ) {
        for stored in stored.iter().filter(|stored| stored.node != own) {
            self.apply_stored(stored, FlowOwner::OtherNode(stored.node), &pair, now);
        }
    }

    /// Takes over contacts of a dead node: this node reports their end.
    pub fn take_over(
        &self,
        stored: &[StoredBinding],
        pair: impl Fn(&str) -> Option<Arc<PeerLogin>>,
        now: Moment,
    ) {
        for stored in stored {
            self.apply_stored(stored, FlowOwner::EarlierRun, &pair, now);
        }
    }

    /// Marks all of this node's contacts to be stored again: other nodes may have taken it for dead.
    pub fn store_again(&self) {
        for registered in &self.trunks {
            let is_own = |binding: &Binding| binding.flow_owner == FlowOwner::ThisProcess;
            if registered.bindings.iter().any(is_own) {
                self.note_unsaved(*registered.key(), []);
            }
        }
    }

    /// Applies stored bindings without events: the node that saw the PBX reports it.
    fn apply_stored(
        &self,
        stored: &StoredBinding,
        flow_owner: FlowOwner,
        pair: &impl Fn(&str) -> Option<Arc<PeerLogin>>,
        now: Moment,
    ) {
        let mut entry = self
            .trunks
            .entry(stored.trunk)
            .or_insert_with(|| TrunkBindings {
                org: stored.org,
                bindings: Default::default(),
            });
        let registered = &mut *entry;

        let count = registered.bindings.len();
        let mut known = registered.bindings.iter();
        let place = known.position(|held| held.is_at(stored.instance.as_deref(), &stored.contact));

        let held = place.map(|place| &mut registered.bindings[place]);
        let is_known = held.is_some_and(|held| {
            // The times of one REGISTER differ if the wall clock was stepped since.
            match held.cseq == stored.cseq && held.call_id == stored.call_id {
                true => {
                    // Another node may have taken over the binding.
                    if held.flow_owner != FlowOwner::ThisProcess {
                        held.flow_owner = flow_owner;
                    }
                    // A node that removes a binding stores its end: an expired row of this REGISTER takes it away here.
                    stored.expires_at > now
                }
                false => held.refreshed_at > stored.refreshed_at,
            }
        });

        if !is_known {
            if let Some(place) = place {
                registered.bindings.remove(place);
            }
            // A log-in that has been removed meanwhile takes its bindings with it.
            let pair = pair(&stored.username).filter(|_| stored.expires_at > now);
            let binding = pair.map(|pair| Binding::from_stored(stored, flow_owner, pair));
            let usable = |binding: &Binding| {
                flow_owner != FlowOwner::EarlierRun || binding.has_way_without_flow()
            };
            registered.bindings.extend(binding.filter(usable));
        }

        self.recount(count, registered.bindings.len());
        // The lock is released first: `remove_if` takes it again.
        drop(entry);
        self.trunks.remove_if(&stored.trunk, |_, registered| {
            registered.bindings.is_empty()
        });
    }
}

impl TrunkBindings {
    fn stored(&self, trunk: Uuid, own: u8) -> Vec<StoredBinding> {
        let bindings = self.bindings.iter();
        let own_bindings =
            bindings.filter(|binding| !matches!(binding.flow_owner, FlowOwner::OtherNode(_)));
        let stored = own_bindings.map(|binding| StoredBinding {
            org: self.org,
            trunk,
            node: own,
            contact: binding.contact.clone(),
            path: binding.path.clone(),
            instance: binding.instance.clone(),
            q: binding.q,
            transport: binding.flow.transport,
            source: binding.flow.peer,
            is_behind_nat: binding.is_behind_nat,
            username: binding.pair.user.clone(),
            user_agent: binding.user_agent.clone(),
            call_id: binding.call_id.clone(),
            cseq: binding.cseq,
            registered_at: binding.registered_at,
            refreshed_at: binding.refreshed_at,
            expires_at: binding.expires_at,
        });

        stored.collect()
    }
}

impl Binding {
    fn from_stored(stored: &StoredBinding, flow_owner: FlowOwner, pair: Arc<PeerLogin>) -> Self {
        let any: IpAddr = match stored.source {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };

        Self {
            contact: stored.contact.clone(),
            path: stored.path.clone(),
            q: stored.q,
            instance: stored.instance.clone(),
            flow: Flow {
                transport: stored.transport,
                listener: 0,
                connection: 0,
                local: SocketAddr::new(any, 0),
                peer: stored.source,
            },
            flow_owner,
            pair,
            is_behind_nat: stored.is_behind_nat,
            user_agent: stored.user_agent.clone(),
            registered_at: stored.registered_at,
            refreshed_at: stored.refreshed_at,
            expires_at: stored.expires_at,
            liveness: Default::default(),
            call_id: stored.call_id.clone(),
            cseq: stored.cseq,
        }
    }
}

#[cfg(test)]
mod tests {
    use trunkline_sip::flow::Transport;

    use super::*;

    const TRUNK: Uuid = Uuid::from_u128(2);
    const NOW: Moment = Moment::from_secs(1_790_000_000);
    const DIRECT: &str = "sip:pbx@192.0.2.7:5060";

    fn later(seconds: u64) -> Moment {
        Moment::from_secs(1_790_000_000 + seconds)
    }

    /// A stored binding without NAT, refreshed at that second and good for a minute.
    fn stored(node: u8, contact: &str, refreshed: u64) -> StoredBinding {
        StoredBinding {
            org: Uuid::from_u128(1),
            trunk: TRUNK,
            node,
            contact: contact.into(),
            path: None,
            instance: None,
            q: None,
            transport: Transport::Udp,
            source: "192.0.2.7:5060".parse().expect("an address"),
            is_behind_nat: false,
            username: "pbx".into(),
            user_agent: None,
            call_id: b"one@pbx".as_slice().into(),
            cseq: 7 + refreshed as u32,
            registered_at: NOW,
            refreshed_at: later(refreshed),
            expires_at: later(refreshed + 60),
        }
    }

    fn behind_nat(node: u8) -> StoredBinding {
        StoredBinding {
            is_behind_nat: true,
            ..stored(node, "sip:pbx@10.1.2.3", 0)
        }
    }

    fn pair(user: &str) -> Option<Arc<PeerLogin>> {
        let login = PeerLogin {
            user: user.into(),
            password: "secret".into(),
        };
        (user == "pbx").then(|| Arc::new(login))
    }

    /// Returns usable contacts, and how many of them are called from here.
    fn found(bindings: &Bindings, now: Moment) -> (Vec<String>, usize) {
        let of = bindings.of(TRUNK, now).into_iter();
        let reach = bindings.reach(TRUNK, &Default::default(), now);
        assert!(reach.iter().all(|reach| reach.by.is_none()));
        (of.map(|one| one.contact.into()).collect(), reach.len())
    }

    #[test]
    fn after_a_restart_only_what_needs_no_flow_counts() {
        let bindings = Bindings::new();
        let over = StoredBinding {
            expires_at: NOW,
            ..stored(3, "sip:old@192.0.2.8", 0)
        };
        let rotated = StoredBinding {
            username: "former".into(),
            ..stored(3, "sip:former@192.0.2.9", 0)
        };
        let all = [stored(3, DIRECT, 0), behind_nat(3), over, rotated];
        bindings.restore(&all, 3, pair, NOW);
        assert_eq!(found(&bindings, NOW), (vec![DIRECT.to_owned()], 1));
        assert_eq!(bindings.len(), 1);

        // A removed binding is removed from the store as well.
        let unsaved = bindings.take_unsaved(3, 10);
        assert_eq!(unsaved.len(), 1);
        assert_eq!(unsaved[0].own, [stored(3, DIRECT, 0)]);
        assert!(bindings.take_unsaved(3, 10).is_empty());
        bindings.put_back(unsaved);
        assert_eq!(bindings.take_unsaved(3, 10).len(), 1);
        assert!(bindings.sweep(later(60)).len() == 1 && bindings.is_empty());
    }

    #[test]
    fn another_nodes_flow_counts_while_that_node_serves() {
        let bindings = Bindings::new();
        bindings.follow(&[behind_nat(200)], 3, pair, NOW);
        assert_eq!(
            found(&bindings, NOW),
            (vec![], 0),
            "it isn't known to serve"
        );
        bindings.set_serving(&[3, 200]);
        assert_eq!(found(&bindings, NOW).0.len(), 1);
        assert_eq!(found(&bindings, NOW).1, 0);
        assert_eq!(bindings.node_with_flow(TRUNK, NOW), Some(200));
        bindings.set_serving(&[3]);
        assert_eq!(found(&bindings, NOW), (vec![], 0));
        assert!(bindings.sweep(later(60)).is_empty(), "that node tells");
        assert!(bindings.is_empty());
    }

    #[test]
    fn the_later_register_counts_whichever_way_it_is_heard_of() {
        let bindings = Bindings::new();
        let ends = |bindings: &Bindings| {
            let of = bindings.of(TRUNK, NOW);
            of.first().map(|one| one.expires_at)
        };

        // The wall clock was stepped forward by two seconds since.
        let ended = StoredBinding {
            refreshed_at: later(18),
            expires_at: NOW,
            ..stored(5, DIRECT, 20)
        };
        for (case, news, left) in [
            ("new", stored(4, DIRECT, 10), Some(70)),
            ("again", stored(4, DIRECT, 10), Some(70)),
            ("older", stored(5, DIRECT, 5), Some(70)),
            ("moved to another node", stored(5, DIRECT, 20), Some(80)),
            ("our own", stored(3, DIRECT, 30), Some(80)),
            ("removed", ended, None),
        ] {
            bindings.follow(&[news], 3, pair, NOW);
            assert_eq!(ends(&bindings), left.map(later), "{case}");
        }

        assert!(bindings.is_empty());
        assert!(bindings.take_unsaved(3, 10).is_empty(), "others write it");
    }
}
