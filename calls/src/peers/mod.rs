//! Requests outside of calls to the peers that we call: OPTIONS, to learn whether they are up (RFC 3261 §11), and REGISTER, where an outbound trunk
//! has to register with its carrier (§10.2).
//!
//! Pure: messages, time and results of lookups come in, transmits go into the endpoint, effects into [`Peers::effects`]. One shard sends
//! all of them; the engine decides which peers to ask, and when.

pub mod carrier_registration;
pub mod health;
mod probe;
mod register;
mod register_challenge;
pub mod registrations;
mod reply;
mod service_route;

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use trunkline_model::address::AddressPolicy;
use trunkline_sip::auth::Nonces;
use trunkline_sip::endpoint::{Endpoint, Event, Owner, Request};
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::Slot;
use trunkline_sip::verified::VerifiedNames;
use trunkline_sip::wheel::Wheel;
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{Message, Method};
use uuid::Uuid;

use crate::parts::flow_choice;
use crate::parts::target::{Target, UnresolvedTarget};
use crate::peers::health::{Health, ProbedPeer};
use crate::registrar::bindings::Bindings;
use crate::registrar::keep_alive::KeepAlive;
use crate::trust::challenge_report::ChallengeReport;
use carrier_registration::CarrierRegistration;
use registrations::{RegistrationChange, Registrations};
use reply::PeerReply;

/// Owners with this upper half belong to this module and are no calls.
const OURS: u64 = 0xffff_fffe_0000_0000;
/// Requests that may wait for an answer. A further one isn't sent.
const MOST: usize = 32_768;

/// Configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listeners by `Flow::listener`: transport and bound address.
    pub listeners: Vec<(Transport, SocketAddr)>,
    /// The rule for addresses that tenants name.
    pub addresses: Arc<AddressPolicy>,
    /// Expiry that a registration asks for.
    pub expires: Duration,
    /// Wait after a first failure; it doubles with each further failure.
    pub retry: Duration,
    /// The realm of our own challenges.
    pub realm: Box<str>,
    /// Keys by which our own nonces are recognised.
    pub nonces: Arc<Nonces>,
}

/// Effect for the engine to carry out.
#[derive(Debug)]
pub enum PeersEffect {
    /// Find the registrar of a trunk; answered by [`Peers::handle_resolved`].
    Resolve {
        /// The outbound trunk that it is for.
        trunk: Uuid,
        /// The trunk's org.
        org: Uuid,
        /// Name to resolve.
        registrar: UnresolvedTarget,
    },
    /// A trunk's registration was granted, or has ended.
    Changed(RegistrationChange),
    /// A REGISTER was answered, or wasn't.
    RegisterFinished(registrations::RegisterOutcome),
    /// A peer is down.
    Down(ProbedPeer),
    /// A challenge has shown its realm, or couldn't be answered.
    Challenged(Box<ChallengeReport>),
}

/// Peers to send OPTIONS to.
#[derive(Clone, Debug)]
pub enum OptionsBatch {
    /// Peers that we call, to learn whether they are up.
    Probe(Vec<Target>),
    /// Registered PBXs behind NAT, to keep their mappings alive.
    KeepAlive(Vec<KeepAlive>),
}

/// Purpose of a request without an answer yet.
#[derive(Clone, Debug)]
enum PendingRequest {
    Probe(ProbedPeer),
    KeepAlive(KeepAlive),
    Register(Uuid),
}

/// The peers, as the shard that sends the requests sees them.
#[derive(Debug)]
pub struct Peers {
    config: Arc<Config>,
    names: Arc<VerifiedNames>,
    health: Arc<Health>,
    registrations: Arc<Registrations>,
    bindings: Arc<Bindings>,
    asked: HashMap<u32, PendingRequest>,
    /// Peers with a probe that isn't answered yet: the next one waits for its end.
    probing: HashSet<ProbedPeer>,
    last_number: u32,
    carriers: HashMap<Uuid, CarrierRegistration>,
    timers: Wheel<Uuid>,
    effects: Vec<PeersEffect>,
    /// All registrations are being removed.
    leaving: bool,
    lines: Vec<u8>,
}

impl Peers {
    /// Makes it without peers. Others read `health`, `registrations` and `bindings`.
    pub fn new(
        config: Arc<Config>,
        names: Arc<VerifiedNames>,
        health: Arc<Health>,
        registrations: Arc<Registrations>,
        bindings: Arc<Bindings>,
        now: Moment,
    ) -> Self {
        Self {
            config,
            names,
            health,
            registrations,
            bindings,
            asked: HashMap::new(),
            probing: HashSet::new(),
            last_number: 0,
            carriers: HashMap::new(),
            timers: Wheel::new(now),
            effects: Vec::new(),
            leaving: false,
            lines: Vec::new(),
        }
    }

    /// Returns whether a transaction belongs to this module.
    pub const fn owns(owner: Owner) -> bool {
        owner.0 >> 32 == OURS >> 32
    }

    /// Takes the effects.
    pub fn effects(&mut self) -> std::vec::Drain<'_, PeersEffect> {
        self.effects.drain(..)
    }

    /// Returns when [`Self::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Moment> {
        self.timers.next_deadline()
    }

    /// Handles an answer to a request of this module.
    pub fn handle_response(
        &mut self,
        endpoint: &mut Endpoint,
        owner: Owner,
        message: &Message<'_>,
        now: Moment,
    ) {
        if message.status() >= 200 {
            self.replied(endpoint, owner, PeerReply::Message(message), now);
        }
    }

    /// Handles an event of the endpoint; false if it belongs to another module.
    pub fn handle_event(&mut self, endpoint: &mut Endpoint, event: &Event, now: Moment) -> bool {
        let (owner, reply) = match event {
            Event::Timeout { owner, .. } => (*owner, PeerReply::Silence),
            Event::TransportError { owner, fault, .. } => (*owner, PeerReply::Broken(fault)),
            // It may still be followed by one that can be read.
            Event::Unreadable { owner, .. } => return Self::owns(*owner),
            Event::NoAck { .. } => return false,
        };
        if !Self::owns(owner) {
            return false;
        }
        self.replied(endpoint, owner, reply, now);
        true
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, endpoint: &mut Endpoint, now: Moment) {
        while let Some(trunk) = self.timers.pop(now) {
            self.due(endpoint, trunk, now);
        }
    }

    fn replied(
        &mut self,
        endpoint: &mut Endpoint,
        owner: Owner,
        reply: PeerReply<'_>,
        now: Moment,
    ) {
        let number = u32::try_from(owner.0 & !OURS).unwrap_or_default();
        match self.asked.remove(&number) {
            Some(PendingRequest::Probe(peer)) => {
                self.probing.remove(&peer);
                self.probed(&peer, reply);
            }
            Some(PendingRequest::KeepAlive(asked)) => self.kept_alive(&asked, reply),
            Some(PendingRequest::Register(trunk)) => {
                self.register_replied(endpoint, trunk, number, reply, now);
            }
            None => {}
        }
    }

    /// Sends a request in a new transaction; returns its number, or `None` if there is no room.
    fn send(
        &mut self,
        endpoint: &mut Endpoint,
        (flow, method, uri): (Flow, Method, &str),
        asked: PendingRequest,
        write: impl FnOnce(&mut Head<'_>),
        now: Moment,
    ) -> Option<u32> {
        // A probe is then left out, and a REGISTER fails and is repeated like any that fails.
        if self.asked.len() >= MOST {
            return None;
        }

        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        write(&mut Head::new(&mut lines));
        // A number is free again long before the counter wraps: no request waits longer than its transaction.
        self.last_number = self.last_number.wrapping_add(1);

        let number = self.last_number;
        let request = Request {
            method,
            token: method.as_str(),
            uri: uri.as_bytes(),
            head: &lines,
            body: b"",
        };

        let owner = Owner(OURS | u64::from(number));
        let sent = endpoint.request(flow, &request, owner, now);
        self.lines = lines;
        sent.ok()?;
        self.asked.insert(number, asked);
        Some(number)
    }

    fn way_to(&self, target: &Target) -> Option<Flow> {
        let Config {
            listeners,
            addresses,
            ..
        } = &*self.config;
        flow_choice::flow_to_target(listeners, addresses, &self.names, target).ok()
    }
}

/// Slot of all requests of this module, whose shard sends them.
const SLOT: Slot = match Slot::new(0) {
    Some(slot) => slot,
    None => panic!("the first slot is one"),
};

#[cfg(test)]
mod tests;
