//! State that all calls of a shard share: configuration, tag index, timers, effects, and the stateless answers.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use trunkline_bounds::IdTable;
use trunkline_model::address::AddressPolicy;
use trunkline_model::peer_pattern::PeerPattern;
use trunkline_model::record::Fact;
use trunkline_model::settings::Runtime;
use trunkline_model::view::View;
use trunkline_sip::auth::{Algorithm, NonceSource, NonceWindow, Nonces, Policy};
use trunkline_sip::endpoint::{Endpoint, Response, ServerTx};
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Node, Slot, Tag};
use trunkline_sip::verified::VerifiedNames;
use trunkline_sip::wheel::{TimerId, Wheel};
use trunkline_sip::wire::print::Head;
use trunkline_sip::wire::{HeaderName, Message};
use uuid::Uuid;

use super::effect::Effect;
use super::live::LiveCalls;
use super::resolver_cache::ResolverCache;
use super::traced::{DialogIdentity, Untraced};
use super::uncertain_acks::UncertainAcks;
use crate::limits::Limits;
use crate::limits::attempt_counter::AttemptCounter;
use crate::limits::outbound_limits::OutboundLimits;
use crate::parts::allow::{OUTSIDE, capabilities};
use crate::parts::crossing::{HeaderPrefix, lacking_options};
use crate::parts::flow_choice;
use crate::parts::flow_choice::NoFlow;
use crate::parts::ids::{CallKey, CallRef, CallTimer, DEPLOYMENT, TagOwner};
use crate::parts::refusal::Reason;
use crate::parts::target::Target;
use crate::peers::health::Health;
use crate::peers::registrations::Registrations;
use crate::registrar::bindings::Bindings;
use crate::trust::challenge_report::{ChallengeOutcome, ChallengeReport, Challenger};
use crate::trust::proven_sources::{ProvenSources, SourceProbes};
use crate::trust::refused_logins::RefusedLogIns;
use crate::trust::stale_nonces::StaleNonces;
use crate::trust::token::SessionTokens;
use crate::trust::unanswered_challenges::UnansweredChallenges;

/// Shortest session interval that we accept, in seconds. RFC 4028 §4: "The absolute minimum for the Session-Expires header field is 90
/// seconds."
pub(crate) const MIN_SE: u32 = 90;

/// Configuration, the same for all shards.
#[derive(Debug)]
pub struct Config {
    /// `X-PLATFORM`: the prefix of the context headers.
    pub header_prefix: HeaderPrefix,
    /// Realm of our challenges.
    pub realm: Box<str>,
    /// Offered algorithms, in this order.
    pub algorithms: Vec<Algorithm>,
    /// Runtime of agents that have none of their own.
    pub default_runtime: Arc<Runtime>,
    /// Longest time to the final answer of an INVITE.
    pub setup_timeout: Duration,
    /// Longest duration of a call.
    pub max_duration: Duration,
    /// The session interval that we ask for, in seconds (RFC 4028).
    pub session_expires: u32,
    /// The rule for addresses that tenants and messages name.
    pub addresses: Arc<AddressPolicy>,
    /// Silence of a peer in a call after which it is probed; zero: never.
    pub dead_peer: Duration,
    /// Silence of the media that we carry after which the peer is probed, unless the agent has its own; zero: never.
    pub media_silence: Duration,
    /// The listeners by `Flow::listener`: transport and bound address.
    pub listeners: Vec<(Transport, SocketAddr)>,
    /// Calls over UDP whose caller is known by its address have to be proven. Recorded peers can't prove anything.
    pub asks_for_proof: bool,
    /// For each listener, whether it is known by a public address or name.
    pub public_listeners: Vec<bool>,
    /// `Retry-After` of a 503, in seconds.
    pub retry_after: u32,
    /// Interval at which peers behind NAT are sent OPTIONS.
    pub keep_alive: Duration,
    /// This node.
    pub node: Node,
    /// Key for the tokens that open a session's context.
    pub session_tokens: SessionTokens,
    /// Runtimes that always get the token.
    pub trusted_runtimes: Vec<PeerPattern>,
}

impl Config {
    /// Rules by which a request's digest is judged that came by this flow.
    pub(crate) fn digest_policy(&self, flow: &Flow) -> Policy<'_> {
        Policy {
            algorithms: &self.algorithms,
            source: NonceSource::of(flow),
        }
    }
}

/// State that the calls of one shard share.
#[derive(Debug)]
pub struct Core {
    pub(crate) config: Arc<Config>,
    pub(crate) minter: Minter,
    pub(crate) nonces: Arc<Nonces>,
    /// The directory at the last message.
    view: Weak<View>,
    pub(crate) window: Arc<NonceWindow>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) outbound_limits: Arc<OutboundLimits>,
    /// Addresses of next hops that are names.
    pub(crate) resolver_cache: ResolverCache,
    /// ACKs whose next hop isn't certain.
    pub(crate) uncertain_acks: UncertainAcks,
    pub(crate) live: Arc<LiveCalls>,
    pub(crate) tags: IdTable<u64, TagOwner>,
    /// Identities of legs that traces are about to be given, once the input is handled.
    pub(crate) untraced: Vec<Untraced>,
    pub(crate) timers: Wheel<(CallKey, CallTimer)>,
    pub(crate) effects: VecDeque<Effect>,
    /// Closed connections that legs may still refer to, at most 1,024. The value identifies the TLS name that was proved on it (0: none); it takes
    /// the place of the connection in the flows of those legs.
    pub(crate) lost: HashMap<u32, u32>,
    /// BYEs without a call that have no answer yet.
    pub(crate) late_byes: u32,
    pub(crate) draining: bool,
    /// There is no room for records of further calls.
    pub(crate) overloaded: bool,
    /// Names that peers on TLS have to prove.
    pub(crate) names: Arc<VerifiedNames>,
    /// Registrations of PBXs.
    pub(crate) bindings: Arc<Bindings>,
    /// Our registrations with carriers.
    pub(crate) registrations: Arc<Registrations>,
    /// Peers that answer challenges with expired nonces.
    pub(crate) stale_nonces: StaleNonces,
    /// Requests whose credentials were refused.
    pub(crate) refused_log_ins: RefusedLogIns,
    /// Peers that don't answer challenges at all.
    pub(crate) unanswered_challenges: UnansweredChallenges,
    /// Allowed sources that are being probed.
    pub(crate) source_probes: SourceProbes,
    /// Health of peers.
    pub(crate) health: Arc<Health>,
    scratch: Vec<u8>,
}

impl Core {
    /// An empty core. `nonces`, `window`, `limits`, `outbound_limits` and `live` are shared by all shards.
    pub fn new(
        config: Arc<Config>,
        minter: Minter,
        (nonces, window): (Arc<Nonces>, Arc<NonceWindow>),
        (limits, outbound_limits): (Arc<Limits>, Arc<OutboundLimits>),
        live: Arc<LiveCalls>,
        now: Moment,
    ) -> Self {
        Self {
            config,
            minter,
            nonces,
            view: Weak::new(),
            window,
            limits,
            outbound_limits,
            resolver_cache: ResolverCache::default(),
            uncertain_acks: UncertainAcks::default(),
            live,
            tags: IdTable::default(),
            untraced: Vec::new(),
            timers: Wheel::new(now),
            effects: VecDeque::new(),
            lost: HashMap::new(),
            late_byes: 0,
            draining: false,
            overloaded: false,
            names: Arc::default(),
            bindings: Bindings::new(),
            registrations: Registrations::new(),
            stale_nonces: StaleNonces::default(),
            refused_log_ins: RefusedLogIns::default(),
            unanswered_challenges: UnansweredChallenges::default(),
            source_probes: SourceProbes::default(),
            health: Arc::default(),
            scratch: Vec::with_capacity(4096),
        }
    }

    /// Returns when the next timer is due. Those of `source_probes` are taken by the shard, all others by [`Self::pop_timer`].
    pub(crate) fn next_timeout(&self) -> Option<Moment> {
        let moments = [
            self.timers.next_deadline(),
            self.unanswered_challenges.next_timeout(),
            self.source_probes.next_timeout(),
        ];
        moments.into_iter().flatten().min()
    }

    /// Takes a timer that is due. Also reports callers that have let a challenge time out.
    pub(crate) fn pop_timer(&mut self, now: Moment) -> Option<(CallKey, CallTimer)> {
        while let Some(unproven) = self.unanswered_challenges.pop(now) {
            self.effects
                .push_back(Effect::UnansweredChallenge(unproven));
        }
        self.timers.pop(now)
    }

    /// Takes the table of sources that have answered, shared by all shards.
    #[must_use]
    pub fn with_proven_sources(self, proven: Arc<ProvenSources>) -> Self {
        let source_probes = SourceProbes::of(proven);
        Self {
            source_probes,
            ..self
        }
    }

    /// Stores the current directory.
    pub(crate) fn sees(&mut self, view: &Arc<View>) {
        // Compared first: this runs for each message, and the directory changes seldom.
        if self.view.as_ptr() != Arc::as_ptr(view) {
            self.view = Arc::downgrade(view);
        }
    }

    /// Returns whether a digest user name is an inbound trunk's here; true while no directory is known.
    pub(crate) fn is_inbound_user(&self, user: &str) -> bool {
        let view = self.view.upgrade();
        view.is_none_or(|view| view.login(user.as_bytes()).is_some())
    }

    /// Takes the health of peers, shared with the shard that probes them.
    #[must_use]
    pub fn with_health(self, health: Arc<Health>) -> Self {
        Self { health, ..self }
    }

    /// Takes the names proven over TLS and the bindings, shared with the streams and the registrar.
    #[must_use]
    pub fn with_names_and_bindings(
        self,
        names: Arc<VerifiedNames>,
        bindings: Arc<Bindings>,
    ) -> Self {
        Self {
            names,
            bindings,
            ..self
        }
    }

    /// Takes our registrations with carriers, shared with the shard that sends the REGISTERs.
    #[must_use]
    pub fn with_registrations(self, registrations: Arc<Registrations>) -> Self {
        Self {
            registrations,
            ..self
        }
    }

    /// Reason to refuse new calls now, if there is one.
    pub(crate) fn closed(&self) -> Option<Reason> {
        match (self.draining, self.overloaded || self.limits.is_full()) {
            (true, _) => Some(Reason::Draining),
            (false, true) => Some(Reason::Overload),
            (false, false) => None,
        }
    }

    /// Records a fact and updates the list of live calls. Calls of no org are never listed.
    pub(crate) fn fact(&mut self, fact: Fact) {
        // A verification call has no org that could list it, and no row to write.
        if fact.org() == DEPLOYMENT {
            return;
        }
        let fact = self.live.note(fact);
        self.effects.push_back(Effect::Fact(fact));
    }

    /// Answers a request statelessly.
    pub(crate) fn stateless(
        &mut self,
        endpoint: &mut Endpoint,
        message: &Message<'_>,
        flow: Flow,
        status: u16,
        head: impl FnOnce(&mut Head<'_>),
    ) {
        let mut lines = std::mem::take(&mut self.scratch);
        lines.clear();
        head(&mut Head::new(&mut lines));
        let answer = Response {
            status,
            reason: None,
            to_tag: None,
            head: &lines,
            body: b"",
        };
        endpoint.respond_stateless(message, &flow, &answer);
        self.scratch = lines;
    }

    /// Answers OPTIONS outside a call with our capabilities, or 503 while draining (RFC 3261 §11).
    pub(crate) fn answer_options(
        &mut self,
        endpoint: &mut Endpoint,
        message: &Message<'_>,
        flow: Flow,
    ) {
        // A peer that was found down shows by its own probes that it may be back.
        self.health.came_from(flow.peer);
        let retry_after = u64::from(self.config.retry_after);
        // RFC 3261 §11.2: the status "MUST be the same that would have been chosen had the request been an INVITE".
        if self.draining {
            return self.stateless(endpoint, message, flow, 503, |head| {
                head.number("Retry-After", retry_after)
            });
        }
        if let Some(lacking) = lacking_options(message) {
            return self.stateless(endpoint, message, flow, 420, |head| {
                head.line("Unsupported", &lacking)
            });
        }
        self.stateless(endpoint, message, flow, 200, |head| {
            capabilities(head, OUTSIDE);
        });
    }

    /// 405 for a method that we know and don't serve, 501 for one that we don't know.
    pub(crate) fn method_not_allowed(
        &mut self,
        endpoint: &mut Endpoint,
        message: &Message<'_>,
        flow: Flow,
        status: u16,
    ) {
        self.stateless(endpoint, message, flow, status, |head| {
            head.line("Allow", OUTSIDE)
        });
    }
}

/// Context passed to every `Call` method: shared state, endpoint, now.
pub(crate) struct Cx<'a> {
    pub(crate) core: &'a mut Core,
    pub(crate) endpoint: &'a mut Endpoint,
    /// Attempts of the call that is worked on.
    pub(crate) attempt_counter: &'a mut AttemptCounter,
    pub(crate) now: Moment,
}

/// Makes a time-ordered random id (UUIDv7) with node and slot in its random part, so that a later request finds the shard of the call.
fn placed_id(node: Node, slot: Slot, mut random: [u8; 16], now: Moment) -> Uuid {
    let [high, low] = slot.index().to_be_bytes();
    random[..3].copy_from_slice(&[node.0, high, low]);
    let mut counter = [0; 10];
    counter.copy_from_slice(&random[..10]);
    // The first two octets share a field with the version, so node and slot go after the variant.
    counter.rotate_right(3);
    uuid::Builder::from_unix_timestamp_millis(now.as_millis(), &counter).into_uuid()
}

/// Returns node and slot in an id of a call. `None` if the slot is out of range; for an id of another origin the result means nothing.
pub fn node_and_slot_of(id: Uuid) -> Option<(Node, Slot)> {
    let octets = id.as_bytes();
    let slot = Slot::new(u16::from_be_bytes([octets[10], octets[11]]))?;
    Some((Node(octets[9]), slot))
}

impl Cx<'_> {
    /// Makes a local tag and registers it in the index.
    pub(crate) fn mint_tag(&mut self, slot: Slot, owner: TagOwner) -> Tag {
        let tag = self.core.minter.tag(slot, self.endpoint.entropy());
        // The bits are random, so two tags of a shard don't meet here.
        self.core.tags.insert(tag.bits(), owner);
        tag
    }

    /// Has traces assign messages with this identity to a leg.
    pub(crate) fn trace(&mut self, owner: TagOwner, identity: DialogIdentity) {
        self.core.untraced.push(Untraced { owner, identity });
    }

    /// An id for something of this node that lives in `slot`.
    pub(crate) fn mint_id(&mut self, slot: Slot) -> Uuid {
        let random = self.endpoint.entropy().bits128().to_be_bytes();
        placed_id(self.core.config.node, slot, random, self.now)
    }

    /// Writes head lines into a reused buffer and passes them to `send`.
    pub(crate) fn with_head<T>(
        &mut self,
        write: impl FnOnce(&mut Head<'_>),
        send: impl FnOnce(&mut Self, &[u8]) -> T,
    ) -> T {
        // Taken while in use: a call inside of `send` gets an empty buffer.
        let mut lines = std::mem::take(&mut self.core.scratch);
        lines.clear();
        write(&mut Head::new(&mut lines));
        let sent = send(self, &lines);
        self.core.scratch = lines;
        sent
    }

    /// Answers a server transaction.
    pub(crate) fn respond(
        &mut self,
        tx: ServerTx,
        status: u16,
        to_tag: Option<&[u8]>,
        write: impl FnOnce(&mut Head<'_>),
        body: &[u8],
    ) {
        self.respond_as(tx, status, None, to_tag, write, body);
    }

    /// Answers a server transaction with a reason phrase of its own.
    pub(crate) fn respond_as(
        &mut self,
        tx: ServerTx,
        status: u16,
        reason: Option<&str>,
        to_tag: Option<&[u8]>,
        write: impl FnOnce(&mut Head<'_>),
        body: &[u8],
    ) {
        self.with_head(write, |cx, head| {
            cx.endpoint.respond(
                tx,
                &Response {
                    status,
                    reason,
                    to_tag,
                    head,
                    body,
                },
                cx.now,
            );
        });
    }

    /// Our Contact on a flow. It is a `sips:` URI if the dialog began with one (`is_sips`) and the flow is TLS.
    pub(crate) fn contact(&self, flow: &Flow, is_sips: bool) -> String {
        match is_sips && flow.transport == Transport::Tls {
            true => flow_choice::secure_contact(self.endpoint, flow),
            false => flow_choice::contact(self.endpoint, flow),
        }
    }

    /// Reports the outcome of a peer's challenge.
    pub(crate) fn report(
        &mut self,
        challenger: Option<Challenger>,
        news: impl FnOnce() -> ChallengeOutcome,
    ) {
        let challenged = challenger.map(|challenger| ChallengeReport {
            challenger,
            at: self.now,
            news: news(),
        });
        let effects = challenged.map(|challenged| Effect::Challenged(Box::new(challenged)));
        self.core.effects.extend(effects);
    }

    /// Records that the callee's or the runtime's phone rings.
    pub(crate) fn note_ringing(&mut self, ids: &CallRef) {
        self.core.fact(Fact::Ringing {
            call: ids.call,
            org: ids.org,
            at: self.now,
        });
    }

    /// Records that the call is answered. `runtime_call_id`: Call-ID of the runtime's leg; empty without one.
    pub(crate) fn note_answered(&mut self, ids: &CallRef, runtime_call_id: Box<str>) {
        self.core.fact(Fact::Answered {
            call: ids.call,
            org: ids.org,
            at: self.now,
            runtime_call_id,
        });
    }

    pub(crate) fn schedule(&mut self, key: CallKey, after: Duration, timer: CallTimer) -> TimerId {
        self.core.timers.schedule(self.now + after, (key, timer))
    }

    pub(crate) fn cancel_timer(&mut self, timer: &mut Option<TimerId>) {
        if let Some(timer) = timer.take() {
            self.core.timers.cancel(timer);
        }
    }

    /// Returns a flow for a call to `target`, or the reason why there is none; the target may be down.
    pub(crate) fn flow_to(&self, target: &Target) -> Result<Flow, NoFlow> {
        let way = self.way_to(target)?;
        match self.core.health.is_down(target) {
            true => Err(NoFlow::KnownDown),
            false => Ok(way),
        }
    }

    pub(crate) fn way_to(&self, target: &Target) -> Result<Flow, NoFlow> {
        let Config {
            listeners,
            addresses,
            ..
        } = &*self.core.config;
        flow_choice::flow_to_target(listeners, addresses, &self.core.names, target)
    }
}

/// Returns whether the peer's message lists a method in `Allow`.
pub(crate) fn allows(message: &Message<'_>, method: &str) -> bool {
    message.has_token(HeaderName::Allow, method)
}

/// Returns whether the peer's message has Allow, and REFER isn't in it.
pub(crate) fn lacks_refer(message: &Message<'_>) -> bool {
    message.first(HeaderName::Allow).is_some() && !allows(message, "REFER")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_carries_its_place() {
        let now = Moment::from_secs(1_800_000_000);
        for (node, slot, random) in [(0, 0, 0xff), (255, 1023, 0), (7, 513, 0xa5)] {
            let place = (Node(node), Slot::new(slot).expect("a slot"));
            let id = placed_id(place.0, place.1, [random; 16], now);
            assert_eq!(node_and_slot_of(id), Some(place), "{id}");
            assert_eq!(id.get_version_num(), 7, "{id}");
        }
        assert_eq!(node_and_slot_of(Uuid::max()), None);
    }
}
