//! Bindings of registered PBXs: the location service of RFC 3261 §10, one table for all shards.
//!
//! A trunk's bindings change under its own lock and are few. Nothing here knows messages or the clock.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use smallvec::SmallVec;
use trunkline_model::address::AddressPolicy;
use trunkline_model::registration::{BindingLoss, binding_address};
use trunkline_model::view::PeerLogin;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::header::uri::Uri;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::flow_owner::{FlowOwner, ServingNodes};
use super::liveness::Liveness;
use super::register_request::Contact;

/// Longer User-Agents are cut.
const LONGEST_AGENT: usize = 128;

/// One place where a trunk's PBX is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The Contact URI as the PBX wrote it, with all parameters: the Request-URI of requests to it.
    pub contact: Box<str>,
    /// Route of requests to it, as a Route header: the proxies between it and us (RFC 3327).
    pub path: Option<Box<str>>,
    /// The PBX's preference among its contacts, in thousandths.
    pub q: Option<u16>,
    /// Instance of the device (RFC 5626).
    pub instance: Option<Box<str>>,
    /// Flow of the REGISTER.
    pub flow: Flow,
    /// Process that has that flow.
    pub flow_owner: FlowOwner,
    /// User name and password that the digest of the REGISTER verified with.
    pub pair: Arc<PeerLogin>,
    /// True if a NAT changes addresses, so that only the REGISTER's flow leads back.
    pub is_behind_nat: bool,
    /// The User-Agent of the REGISTER.
    pub user_agent: Option<Box<str>>,
    /// Time of its first REGISTER.
    pub registered_at: Moment,
    /// Time of its last refresh.
    pub refreshed_at: Moment,
    /// Expiry unless it is refreshed.
    pub expires_at: Moment,
    /// Signs that the PBX answers here.
    pub liveness: Liveness,
    pub(super) call_id: Box<[u8]>,
    pub(super) cseq: u32,
}

/// Address of a request to a registered PBX.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingTarget {
    /// The Request-URI.
    pub uri: Box<str>,
    /// Its transport.
    pub transport: Transport,
    /// Its address.
    pub address: SocketAddr,
    /// Its Route header, if it has one.
    pub route: Option<Box<str>>,
    /// Flow to send it by. Connection 0 on a stream means that one to the peer is opened. `None`: by any listener that fits.
    pub by: Option<Flow>,
    /// User name and password that the digest of the REGISTER verified with.
    pub pair: Arc<PeerLogin>,
    /// The address that the REGISTER came from.
    pub source: IpAddr,
}

/// Sender of a REGISTER, and its flow.
#[derive(Clone, Debug)]
pub(super) struct Sender<'m> {
    pub(super) call_id: &'m [u8],
    pub(super) cseq: u32,
    pub(super) user_agent: Option<&'m [u8]>,
    pub(super) flow: Flow,
    pub(super) pair: Arc<PeerLogin>,
    pub(super) is_behind_nat: bool,
    pub(super) path: Option<Box<str>>,
}

/// A trunk whose first binding was made, or whose last one is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BindingChange {
    /// The org.
    pub org: Uuid,
    /// Its inbound trunk.
    pub trunk: Uuid,
    /// The change.
    pub what: BindingChangeKind,
}

/// Change of a trunk's bindings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BindingChangeKind {
    /// It has its first binding.
    Registered(Box<Binding>),
    /// Its last binding is gone.
    Lost(BindingLoss),
}

/// Reason why nothing was changed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum ChangeRefused {
    /// The same or a later request of that Call-ID was handled before.
    OutOfOrder,
}

/// The bindings of one trunk.
#[derive(Debug)]
pub(super) struct TrunkBindings {
    pub(super) org: Uuid,
    pub(super) bindings: SmallVec<[Binding; 1]>,
}

/// Every known binding, by trunk.
#[derive(Debug, Default)]
pub struct Bindings {
    pub(super) trunks: DashMap<Uuid, TrunkBindings>,
    /// Trunks whose bindings have to be stored again, with the contacts of other nodes that were removed here.
    pub(super) unsaved: DashMap<Uuid, HashSet<Box<str>>>,
    /// Nodes that are up.
    pub(super) serving: ServingNodes,
    /// Trunks with bindings on a connection.
    by_connection: DashMap<u32, SmallVec<[Uuid; 1]>>,
    count: AtomicUsize,
}

impl Bindings {
    /// None yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Returns the number of bindings, including those that have just expired.
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bindings of a trunk, the best first: those that answer, then by the PBX's preference, then the one refreshed last.
    pub fn of(&self, trunk: Uuid, now: Moment) -> Vec<Binding> {
        let mut bindings: Vec<Binding> = self
            .trunks
            .get(&trunk)
            .map(|registered| {
                let alive = registered.bindings.iter();
                alive
                    .filter(|binding| binding.expires_at > now && self.counts(binding))
                    .cloned()
                    .collect()
            })
            .unwrap_or_default();

        bindings.sort_by_key(|binding| {
            let is_reachable = !binding.liveness.is_unreachable();
            std::cmp::Reverse((
                is_reachable,
                binding.q.unwrap_or(1000),
                binding.refreshed_at,
            ))
        });
        bindings
    }

    /// Returns whether a PBX of the trunk has registered by this flow.
    pub(crate) fn has_flow(&self, trunk: Uuid, flow: &Flow, now: Moment) -> bool {
        let registered = self.trunks.get(&trunk);
        registered.is_some_and(|registered| {
            let mut bindings = registered.bindings.iter();
            bindings.any(|binding| {
                let by = &binding.flow;
                binding.expires_at > now
                    && (by.transport, by.listener, by.peer)
                        == (flow.transport, flow.listener, flow.peer)
            })
        })
    }

    /// Returns where to call the trunk's PBX, the best address first; empty if it isn't registered.
    pub fn reach(&self, trunk: Uuid, addresses: &AddressPolicy, now: Moment) -> Vec<BindingTarget> {
        let bindings = self.of(trunk, now);
        let reach = |binding: &Binding| binding.reach(addresses);
        bindings.iter().filter_map(reach).collect()
    }

    /// Makes, refreshes and removes bindings, all of them or none. Returns whether the trunk has gained its first or lost its last one.
    pub(super) fn change(
        &self,
        org: Uuid,
        trunk: Uuid,
        contacts: &[Contact],
        sender: &Sender<'_>,
        most: usize,
        now: Moment,
    ) -> Result<Option<BindingChange>, ChangeRefused> {
        let mut entry = self.trunks.entry(trunk).or_insert_with(|| TrunkBindings {
            org,
            bindings: SmallVec::new(),
        });
        let registered = &mut *entry;
        let count = registered.bindings.len();
        let are_others = registered.of_other_nodes().len() == count;
        let was_there = registered.bindings.iter().any(|held| held.expires_at > now);
        registered.bindings.retain(|held| held.expires_at > now);

        // RFC 3261 §10.3 step 7: updates are committed only "if all binding updates and additions succeed", so all
        // Contacts are checked before the first one changes anything.
        let late = |contact: &Contact| {
            let held = registered.bindings.iter().find(|held| held.is_for(contact));
            held.is_some_and(|held| held.is_newer_than(sender))
        };
        if contacts.iter().any(late) {
            // The expired bindings are gone, although the request is refused.
            self.recount(count, registered.bindings.len());
            return Err(ChangeRefused::OutOfOrder);
        }

        let others = registered.of_other_nodes();
        for contact in contacts {
            registered.apply(contact, sender, now);
        }
        while registered.bindings.len() > most {
            registered.forget_oldest();
        }

        let left = registered.of_other_nodes();
        self.note_unsaved(trunk, others.into_iter().filter(|one| !left.contains(one)));
        self.recount(count, registered.bindings.len());

        let newest = registered.bindings.last().cloned();
        let is_gone = newest.is_none();
        // Another shard may add a binding before `remove_if` locks the entry again, which therefore asks once more.
        drop(entry);
        if is_gone {
            self.trunks
                .remove_if(&trunk, |_, registered| registered.bindings.is_empty());
        } else if sender.flow.connection != 0 {
            self.note_connection(sender.flow.connection, trunk);
        }

        // Expired bindings that no sweep has found count: their loss wasn't reported, so this is no new registration.
        let what = match newest {
            Some(binding) if count == 0 => Some(BindingChangeKind::Registered(Box::new(binding))),
            None if was_there => Some(BindingChangeKind::Lost(BindingLoss::Removed)),
            // They have expired since the last sweep, and the next one won't find them. Another node reports its own.
            None if !are_others => Some(BindingChangeKind::Lost(BindingLoss::Expired)),
            Some(_) | None => None,
        };
        Ok(what.map(|what| BindingChange { org, trunk, what }))
    }

    /// Removes every binding that the request may remove (§10.3 step 6).
    pub(super) fn remove_all(
        &self,
        trunk: Uuid,
        sender: &Sender<'_>,
    ) -> Result<Option<BindingChange>, ChangeRefused> {
        let Entry::Occupied(mut entry) = self.trunks.entry(trunk) else {
            return Ok(None);
        };

        let registered = entry.get_mut();
        if registered
            .bindings
            .iter()
            .any(|held| held.is_newer_than(sender))
        {
            return Err(ChangeRefused::OutOfOrder);
        }

        self.recount(registered.bindings.len(), 0);
        self.note_unsaved(trunk, registered.of_other_nodes());

        let org = registered.org;
        entry.remove();
        Ok(Some(BindingChange {
            org,
            trunk,
            what: BindingChangeKind::Lost(BindingLoss::Removed),
        }))
    }

    /// Handles a closed connection: a PBX behind NAT can't be reached any more, others over a new connection.
    pub(super) fn lose(&self, lost: &Flow) -> Vec<BindingChange> {
        if lost.connection == 0 {
            return Vec::new();
        }

        let Some((_, trunks)) = self.by_connection.remove(&lost.connection) else {
            return Vec::new();
        };

        let gone = trunks.into_iter().filter_map(|trunk| {
            self.retain(trunk, BindingLoss::Disconnected, |held| {
                if held.flow.connection != lost.connection {
                    return true;
                }
                // Without its connection it is kept only if a new one can be opened to its Contact.
                held.flow.connection = 0;
                held.has_way_without_flow()
            })
        });
        gone.collect()
    }

    /// Removes expired bindings.
    pub fn sweep(&self, now: Moment) -> Vec<BindingChange> {
        // Collected first: `retain` locks the table that is being iterated.
        let due = self.trunks.iter().filter(|entry| {
            let mut bindings = entry.bindings.iter();
            bindings.any(|held| held.expires_at <= now)
        });
        let due: Vec<Uuid> = due.map(|entry| *entry.key()).collect();
        let expired = due.into_iter().filter_map(|trunk| {
            self.retain(trunk, BindingLoss::Expired, |held| held.expires_at > now)
        });
        expired.collect()
    }

    /// Removes the registrations of orgs that no longer exist.
    pub fn forget_orgs(&self, exists: impl Fn(Uuid) -> bool) {
        let gone = self.trunks.iter().filter(|entry| !exists(entry.org));
        let gone: Vec<Uuid> = gone.map(|entry| *entry.key()).collect();
        for trunk in gone {
            // No org is left to get an event.
            let _ = self.retain(trunk, BindingLoss::Removed, |_| false);
            self.note_unsaved(trunk, []);
        }
    }

    /// Removes the bindings of a trunk that `keep` refuses. Returns the loss if none is left and one of them was this node's.
    fn retain(
        &self,
        trunk: Uuid,
        loss: BindingLoss,
        keep: impl FnMut(&mut Binding) -> bool,
    ) -> Option<BindingChange> {
        let Entry::Occupied(mut entry) = self.trunks.entry(trunk) else {
            return None;
        };

        let registered = entry.get_mut();
        let count = registered.bindings.len();
        let is_other = |held: &Binding| matches!(held.flow_owner, FlowOwner::OtherNode(_));
        let was_others = registered.bindings.iter().all(is_other);
        registered.bindings.retain(keep);
        self.recount(count, registered.bindings.len());

        // Expired bindings are gone for all nodes.
        if loss == BindingLoss::Disconnected {
            self.note_unsaved(trunk, []);
        }
        if !registered.bindings.is_empty() {
            return None;
        }

        let org = registered.org;
        entry.remove();

        // The node that had the PBX reports its loss.
        (!was_others).then_some(BindingChange {
            org,
            trunk,
            what: BindingChangeKind::Lost(loss),
        })
    }

    /// Lets `change` work on every binding.
    pub(super) fn each(&self, mut change: impl FnMut(Uuid, &mut Binding)) {
        for mut entry in self.trunks.iter_mut() {
            let trunk = *entry.key();
            for binding in &mut entry.bindings {
                change(trunk, binding);
            }
        }
    }

    /// Lets `change` work on the bindings of one trunk; returns whether it has changed something.
    pub(super) fn change_one(
        &self,
        trunk: Uuid,
        mut change: impl FnMut(&mut Binding) -> bool,
    ) -> bool {
        let Some(mut entry) = self.trunks.get_mut(&trunk) else {
            return false;
        };
        let mut is_news = false;
        for binding in &mut entry.bindings {
            is_news |= change(binding);
        }
        is_news
    }

    fn note_connection(&self, connection: u32, trunk: Uuid) {
        let mut trunks = self.by_connection.entry(connection).or_default();
        if !trunks.contains(&trunk) {
            trunks.push(trunk);
        }
    }

    pub(super) fn recount(&self, before: usize, after: usize) {
        // Added first: the unsigned count must not pass below zero while another shard reads it.
        self.count.fetch_add(after, Ordering::Relaxed);
        self.count.fetch_sub(before, Ordering::Relaxed);
    }
}

impl TrunkBindings {
    fn apply(&mut self, contact: &Contact, sender: &Sender<'_>, now: Moment) {
        let place = self.bindings.iter().position(|held| held.is_for(contact));

        // The newest is last.
        let held = place.map(|at| self.bindings.remove(at));
        if contact.expires.is_zero() {
            return;
        }

        let registered_at = held.as_ref().map_or(now, |held| held.registered_at);
        let mut liveness = held.map(|held| held.liveness).unwrap_or_default();
        liveness.hear();
        self.bindings.push(Binding {
            contact: contact.uri.clone(),
            path: sender.path.clone(),
            q: contact.q,
            instance: contact.instance.clone(),
            flow: sender.flow,
            flow_owner: FlowOwner::ThisProcess,
            pair: Arc::clone(&sender.pair),
            is_behind_nat: sender.is_behind_nat,
            user_agent: sender.user_agent.map(agent_name),
            registered_at,
            refreshed_at: now,
            expires_at: now + contact.expires.max(Duration::from_secs(1)),
            liveness,
            call_id: sender.call_id.into(),
            cseq: sender.cseq,
        });
    }

    /// Contacts whose flows belong to other nodes.
    fn of_other_nodes(&self) -> SmallVec<[Box<str>; 1]> {
        let bindings = self.bindings.iter();
        let others = bindings.filter(|held| matches!(held.flow_owner, FlowOwner::OtherNode(_)));
        others.map(|held| held.contact.clone()).collect()
    }

    fn forget_oldest(&mut self) {
        let oldest = self
            .bindings
            .iter()
            .enumerate()
            .min_by_key(|(_, held)| held.refreshed_at);
        if let Some((at, _)) = oldest {
            self.bindings.remove(at);
        }
    }
}

impl Binding {
    /// Returns whether it is the same address, or the same device at a new one.
    fn is_for(&self, contact: &Contact) -> bool {
        self.is_at(contact.instance.as_deref(), &contact.uri)
    }

    pub(super) fn is_at(&self, instance: Option<&str>, contact: &str) -> bool {
        // Two contacts without an instance aren't one device.
        if self.instance.is_some() && self.instance.as_deref() == instance {
            return true;
        }
        let same = |one: &str, two: &str| {
            let one = Uri::parse(one.as_bytes()).ok()?;
            let two = Uri::parse(two.as_bytes()).ok()?;
            Some(one.is_same(&two))
        };
        *self.contact == *contact || same(&self.contact, contact).unwrap_or(false)
    }

    fn is_newer_than(&self, sender: &Sender<'_>) -> bool {
        // RFC 3261 §10.3 step 7: CSeq compares requests of one Call-ID; a PBX that restarts begins a new one.
        *self.call_id == *sender.call_id && self.cseq >= sender.cseq
    }

    /// Returns whether its Contact, or the first hop of its path, is reachable without the flow and without NAT.
    pub(super) fn has_way_without_flow(&self) -> bool {
        !self.is_behind_nat && self.address().is_some()
    }

    pub(super) fn address(&self) -> Option<SocketAddr> {
        let path = self.path.as_deref();
        binding_address(&self.contact, path, self.flow.transport, self.flow.peer)
    }

    /// Returns how to reach it: by its connection while that is up; else by its Contact if that can be trusted, or by the source of its REGISTER if
    /// not (RFC 3581, RFC 5626).
    ///
    /// The source replaces a Contact behind NAT, one that isn't an address of the REGISTER's transport and address family, and one that may
    /// not be contacted. `None` if only a flow of another process leads to it.
    fn reach(&self, addresses: &AddressPolicy) -> Option<BindingTarget> {
        let may_be = |address: &SocketAddr| {
            *address == self.flow.peer || addresses.examine(*address).is_ok()
        };
        let direct = self
            .address()
            .filter(|_| !self.is_behind_nat && self.flow.connection == 0)
            .filter(may_be);
        let by = match self.flow_owner {
            FlowOwner::ThisProcess => {
                let mut flow = self.flow;
                if flow.connection == 0 {
                    flow.peer = direct.unwrap_or(flow.peer);
                }
                Some(flow)
            }
            FlowOwner::EarlierRun | FlowOwner::OtherNode(_) => None,
        };

        Some(BindingTarget {
            // As the PBX wrote it: 3CX recognises calls to it by the `rinstance` of its Contact.
            uri: self.contact.clone(),
            route: self.path.clone(),
            transport: self.flow.transport,
            address: by.map(|flow| flow.peer).or(direct)?,
            by,
            pair: Arc::clone(&self.pair),
            source: self.flow.peer.ip(),
        })
    }
}

fn agent_name(value: &[u8]) -> Box<str> {
    let text = String::from_utf8_lossy(value);
    let plain = text.chars().filter(|letter| !letter.is_control());
    plain.take(LONGEST_AGENT).collect::<String>().into()
}
