//! Carries out what the calls of a shard wish of the world; nothing here waits.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::{mpsc, oneshot, watch};
use trunkline_calls::caps::Denied;
use trunkline_calls::live::LiveCalls;
use trunkline_calls::outbound::Placed;
use trunkline_calls::peers;
use trunkline_calls::registrar;
use trunkline_calls::target::Unresolved;
use trunkline_calls::verification::SpokenCode;
use trunkline_calls::{AuthFailure, CallKey, Calls, Challenged, Effect};
use trunkline_model::address::NamedBy;
use trunkline_model::record::Fact;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use trunkline_store::journal::{Journal, Position};

use trunkline_net::media::{self, EchoMedia};
use uuid::Uuid;

use super::clock;
use super::contacts::Contacts;
use super::event_sink::EventSink;
use super::inbox::{Inbox, Input, ShardRouter};
use super::log_ins::RefusedLogIn;
use super::media_addresses::{MediaAddress, MediaAddresses};
use super::observe::Observer;
use super::registrations;
use super::resolve::{QueryOrigin, Resolver};
use super::spans::Spans;
use super::stream_opener::StreamOpener;
use super::unsynced::Unsynced;
use crate::traces::Beginnings;

/// Calls of a shard that are over and still shown, at most.
const SHOWN: usize = 16_384;

/// Calls that somebody ordered and waits for.
pub(crate) type Promises = Vec<(Placed, oneshot::Sender<Result<Placed, Denied>>)>;

/// What a shard reaches the world by.
pub(crate) struct EffectRunner {
    pub(crate) inbox: Inbox,
    pub(crate) journal: Journal<Fact>,
    pub(crate) contacts: Contacts,
    pub(crate) resolver: Resolver,
    /// Connections for what is too large for a datagram.
    pub(crate) streams: StreamOpener,
    pub(crate) media: EchoMedia,
    /// Where callers are told to send their audio, and where it is received.
    pub(crate) media_addresses: Arc<MediaAddresses>,
    pub(crate) auth_failures: mpsc::Sender<RefusedLogIn>,
    /// Whoever writes down what peers' challenges have shown.
    pub(crate) challenges: mpsc::Sender<Box<Challenged>>,
    pub(crate) event_sink: EventSink,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Whoever has to know which legs belong together.
    pub(crate) beginnings: Option<Beginnings>,
    /// Whoever traces calls.
    pub(crate) spans: Option<Spans>,
    /// Facts of this turn.
    pub(crate) facts: Vec<Fact>,
    /// Calls that were begun on request in this turn, and who waits to hear of it.
    pub(crate) promised: Promises,
    /// Calls that have begun or ended and aren't known to be on disk.
    pub(crate) unsynced: Unsynced,
    /// Calls whose end is among them.
    pub(crate) ended: Vec<Uuid>,
    /// Calls whose end is in the journal and not yet a row.
    pub(crate) unprojected: VecDeque<(Position, Uuid)>,
    /// How far the journal has become rows.
    pub(crate) projected: watch::Receiver<Position>,
    pub(crate) live: Arc<LiveCalls>,
    /// The shard's number, in the media's keys.
    pub(crate) shard: usize,
}

impl EffectRunner {
    /// The same world, for another shard.
    pub(crate) fn share(&self) -> Self {
        Self {
            inbox: self.inbox.clone(),
            journal: self.journal.clone(),
            contacts: self.contacts.clone(),
            resolver: self.resolver.clone(),
            streams: self.streams.clone(),
            media: self.media.clone(),
            media_addresses: Arc::clone(&self.media_addresses),
            auth_failures: self.auth_failures.clone(),
            challenges: self.challenges.clone(),
            event_sink: self.event_sink.clone(),
            runtime: self.runtime.clone(),
            beginnings: self.beginnings.clone(),
            spans: self.spans.clone(),
            facts: Vec::new(),
            promised: Vec::new(),
            unsynced: Unsynced::default(),
            ended: Vec::new(),
            unprojected: VecDeque::new(),
            projected: self.projected.clone(),
            live: Arc::clone(&self.live),
            shard: self.shard,
        }
    }

    /// Carries out all wishes, those that the answers bring forth included.
    pub(crate) fn carry_out(
        &mut self,
        calls: &mut Calls,
        endpoint: &mut Endpoint,
        observer: &mut Observer,
        now: Moment,
    ) {
        while let Some(wish) = calls.poll_effect() {
            self.one(wish, calls, endpoint, observer, now);
        }
    }

    fn one(
        &mut self,
        wish: Effect,
        calls: &mut Calls,
        endpoint: &mut Endpoint,
        observer: &mut Observer,
        now: Moment,
    ) {
        match wish {
            Effect::Fact(fact) => {
                observer.fact(&fact);
                if let Fact::Ended(ended) = &fact {
                    self.ended.push(ended.call);
                }
                if let Some(spans) = &self.spans {
                    spans.tell(&fact);
                }
                if let (Fact::Started(started), Some(beginnings)) = (&fact, &self.beginnings) {
                    beginnings.tell(started.session, &started.caller_call_id);
                }
                self.facts.push(fact);
            }
            Effect::FindContact { call, org, number } => {
                match self.contacts.remembered(org, number) {
                    Some(contact) => calls.handle_contact(endpoint, call, Some(contact), now),
                    None if self.contacts.ask(org, number, call, self.inbox.clone()) => {}
                    None => calls.handle_contact(endpoint, call, None, now),
                }
            }
            Effect::Resolve { call, org, wanted } => {
                let asker = query_origin(&wanted, org);
                let (resolver, inbox) = (self.resolver.on_behalf_of(asker), self.inbox.clone());
                self.runtime.spawn(async move {
                    let found = resolver.find(&wanted).await;
                    inbox.send(Input::Resolved(call, found)).await;
                });
            }
            Effect::Connect {
                call,
                target,
                stream,
                datagram,
            } => {
                if self.streams.refuses(stream.peer, now) {
                    let targets = vec![target.reached_by(datagram)];
                    return calls.handle_resolved(endpoint, call, Ok(targets), now);
                }

                let (streams, inbox) = (self.streams.clone(), self.inbox.clone());
                self.runtime.spawn(async move {
                    let flow = match streams.opens(&stream).await {
                        true => stream,
                        false => datagram,
                    };
                    let targets = vec![target.reached_by(flow)];
                    inbox.send(Input::Resolved(call, Ok(targets))).await;
                });
            }
            Effect::StreamSilent { peer } => self.streams.note_silent(peer, now),
            Effect::ResolveHop { wanted } => {
                let resolver = self.resolver.on_behalf_of(QueryOrigin::Messages);
                let inbox = self.inbox.clone();
                self.runtime.spawn(async move {
                    let targets = resolver.resolve(&wanted).await;
                    inbox.send(Input::Hop(wanted, targets)).await;
                });
            }
            Effect::OpenEcho {
                call,
                listener,
                near,
            } => {
                let MediaAddress { bind, advertised } =
                    self.media_addresses.at(listener.map(usize::from), near);
                let local = self
                    .media
                    .open(self.media_key(call), bind)
                    .map(|bound| SocketAddr::new(advertised, bound.port()));
                calls.handle_echo_open(endpoint, call, local, now);
            }
            Effect::UpdateEcho { call, media } => {
                let key = self.media_key(call);
                let agreed = media::Agreed {
                    remote: media.remote,
                    payload: media.payload,
                    telephone_event: media.telephone_event,
                    sources: media.sources,
                    from_any: media.from_any,
                };
                self.media.update(key, agreed, now);
            }
            Effect::SpeakCode {
                call,
                code: SpokenCode(digits),
                is_known,
            } => self
                .media
                .speak_code(self.media_key(call), &digits, is_known),
            Effect::CloseEcho { call } => self.media.close(self.media_key(call)),
            Effect::AuthFailure(failure) => self.auth_failure(RefusedLogIn::LogIn(failure)),
            Effect::Unproven(unproven) => self.auth_failure(RefusedLogIn::Unproven(unproven)),
            Effect::Foreign(what) => observer.foreign(what),
            Effect::Challenged(challenged) => self.challenged(challenged),
            Effect::Turned { reason } => observer.turned(reason),
            Effect::FailedOver { cause } => observer.failed_over(cause),
        }
    }

    /// What the registrar has to say.
    pub(crate) fn registered(&self, effect: registrar::Effect, now: Moment) {
        match effect {
            registrar::Effect::Changed(change) => {
                registrations::note(&change, &self.event_sink, now);
            }
            registrar::Effect::AuthFailure(failed) => {
                self.auth_failure(RefusedLogIn::LogIn(AuthFailure {
                    org: failed.org,
                    trunk: failed.trunk,
                    username: failed.username,
                    source: failed.source,
                    at: failed.at,
                    part: failed.part,
                    call_id: failed.call_id,
                    dialled: None,
                }))
            }
        }
    }

    /// What our own registrations wish.
    pub(crate) fn enrolled(&self, effect: peers::Effect, router: &ShardRouter, now: Moment) {
        match effect {
            peers::Effect::Down(peer) => {
                for inbox in router.shards() {
                    // A shard without room asks when its own time has come.
                    inbox.offer(Input::Gone(peer.transport, peer.address));
                }
            }
            peers::Effect::Resolve { trunk, org, wanted } => {
                let asker = query_origin(&wanted, org);
                let (resolver, inbox) = (self.resolver.on_behalf_of(asker), self.inbox.clone());
                self.runtime.spawn(async move {
                    let targets = resolver.resolve(&wanted).await;
                    inbox.send(Input::Registrar(trunk, targets)).await;
                });
            }
            peers::Effect::Challenged(challenged) => self.challenged(challenged),
            peers::Effect::Changed(change) => super::peers::note(change, &self.event_sink, now),
            peers::Effect::Tried(tried) => {
                crate::telemetry::metrics::outbound_registration(tried.as_str());
            }
        }
    }

    /// A flood of failed log-ins is cut, not queued.
    fn auth_failure(&self, failure: RefusedLogIn) {
        if self.auth_failures.try_send(failure).is_err() {
            metrics::counter!("trunkline_auth_failures_unrecorded_total").increment(1);
        }
    }

    /// What isn't written now is shown by the next challenge.
    fn challenged(&self, challenged: Box<Challenged>) {
        let _ = self.challenges.try_send(challenged);
    }

    /// Hands the turn's facts to the journal; what it has no room for is kept for the next turn. Calls are refused
    /// before that room is used up, so that what gathers here is bounded by the calls in progress.
    pub(crate) fn flush(&mut self) {
        if self.facts.is_empty() {
            return;
        }

        let mut pending: SmallVec<[Uuid; 8]> = SmallVec::new();
        let mut has_answers = false;
        for fact in &self.facts {
            if let Fact::Started(_) | Fact::Ended(_) = fact {
                pending.push(fact.call());
            }
            has_answers |= matches!(fact, Fact::Answered { .. });
        }

        match self.journal.append(&mut self.facts) {
            Ok(position) => {
                // The 200 leaves after this: whatever ends this process then, the call has its record.
                if has_answers {
                    self.journal.hand_over(clock::now());
                }
                for call in pending {
                    self.unsynced.add(call, position, clock::now());
                }
                self.unprojected
                    .extend(self.ended.drain(..).map(|call| (position, call)));
                self.keep_promises(position);
            }
            Err(_) => metrics::counter!("trunkline_journal_full_total").increment(1),
        }
    }

    /// Whoever ordered a call hears of it once its first fact can't be lost.
    fn keep_promises(&mut self, position: Position) {
        if self.promised.is_empty() {
            return;
        }
        let promised = std::mem::take(&mut self.promised);
        let journal = self.journal.clone();
        self.runtime.spawn(async move {
            if journal.synced(position).await.is_ok() {
                for (placed, done) in promised {
                    // Who asked may have gone.
                    let _ = done.send(Ok(placed));
                }
            }
        });
    }

    /// Forgets the calls whose end is a row by now.
    pub(crate) fn forget_projected(&mut self) {
        let projected = *self.projected.borrow();
        while let Some((position, call)) = self.unprojected.front() {
            // While the database is away only so many are kept.
            if *position > projected && self.unprojected.len() <= SHOWN {
                return;
            }
            self.live.forget(*call);
            self.unprojected.pop_front();
        }
        if self.unprojected.capacity() > 1_024 {
            self.unprojected.shrink_to_fit();
        }
    }

    fn media_key(&self, call: CallKey) -> u64 {
        media_key(self.shard, call)
    }
}

/// On whose behalf a host of that org is looked up: its own, unless the operator has named it.
const fn query_origin(wanted: &Unresolved, org: Uuid) -> QueryOrigin {
    match wanted.named {
        NamedBy::Operator => QueryOrigin::Operator,
        NamedBy::Tied | NamedBy::Tenant => QueryOrigin::Org(org),
    }
}

/// A call's media by one number: 8 bits of shard, 24 of place in the slab, 32 of generation.
pub(crate) const fn media_key(shard: usize, call: CallKey) -> u64 {
    (shard as u64) << 56 | (call.index as u64 & 0x00ff_ffff) << 32 | call.generation as u64
}

/// The shard and call of a media key.
#[expect(
    clippy::cast_possible_truncation,
    reason = "each part fits by construction"
)]
pub(crate) const fn call_of_media(key: u64) -> (usize, CallKey) {
    (
        (key >> 56) as usize,
        CallKey {
            index: (key >> 32) as u32 & 0x00ff_ffff,
            generation: key as u32,
        },
    )
}
