//! Carries out the effects that a shard's calls, registrar and peers ask for.
//!
//! Nothing here waits: what takes time runs on the runtime, and its result comes back through the shard's inbox. What
//! an effect means for a call is decided in `trunkline_calls`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::{mpsc, oneshot, watch};
use trunkline_bounds::NoShare;
use trunkline_calls::core::live::LiveCalls;
use trunkline_calls::dial::outbound::PlacedCall;
use trunkline_calls::media::verification::SpokenCode;
use trunkline_calls::peers;
use trunkline_calls::registrar;
use trunkline_calls::{
    AuthFailure, CallKey, Calls, ChallengeReport, Effect, HangUpRequester, UnknownUser,
};
use trunkline_model::record::Fact;
use trunkline_sip::endpoint::Endpoint;
use trunkline_sip::moment::Moment;
use trunkline_store::journal::{FactPosition, Journal};

use trunkline_net::bot::Bot;
use trunkline_net::media::{self, Media};
use uuid::Uuid;

use super::bots::BotDialler;
use super::clock;
use super::contacts::Contacts;
use super::event_sink::EventSink;
use super::failed_log_ins::{self, FailedLogIns, RefusedLogIn};
use super::inbox::{Inbox, Input, ShardRouter};
use super::media_addresses::{MediaAddress, MediaAddresses};
use super::media_record::recorded;
use super::member_invite::AwaitedRecord;
use super::observe::Observer;
use super::placing::PlacingPromise;
use super::prompts::{Prompts, WantedSound};
use super::registrations;
use super::resolve::{QueryOrigin, Resolver, query_origin};
use super::spans::Spans;
use super::stream_opener::StreamOpener;
use super::unsynced::Unsynced;
use crate::traces::Tap;

/// Ended calls that a shard keeps visible until they are rows in the database.
const MAX_UNPROJECTED: usize = 16_384;

/// Connections from a shard to everything outside it.
pub(crate) struct EffectRunner {
    pub(crate) inbox: Inbox,
    pub(crate) journal: Journal<Fact>,
    pub(crate) contacts: Contacts,
    pub(crate) resolver: Resolver,
    pub(crate) bots: BotDialler,
    /// Sounds of built-in agents.
    pub(crate) prompts: Prompts,
    /// Streams for requests that are too large for a datagram.
    pub(crate) streams: StreamOpener,
    pub(crate) media: Media,
    /// Addresses on which RTP is received and which SDP names.
    pub(crate) media_addresses: Arc<MediaAddresses>,
    pub(crate) auth_failures: FailedLogIns,
    /// Stores what peers' challenges have shown.
    pub(crate) challenges: mpsc::Sender<Box<ChallengeReport>>,
    pub(crate) event_sink: EventSink,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Copies messages for traces, and tells whose they are.
    pub(crate) tap: Tap,
    /// OpenTelemetry exporter.
    pub(crate) spans: Option<Spans>,
    /// Facts that the journal hasn't taken yet: those of this turn, and earlier ones while the journal is full.
    pub(crate) facts: Vec<Fact>,
    /// Calls begun on request whose first facts are among `facts`, with the requesters that wait.
    pub(crate) promised: Vec<PlacingPromise>,
    /// Calls that began or ended and may not be on disk yet.
    pub(crate) unsynced: Unsynced,
    /// Calls whose ends are among `facts`.
    pub(crate) ended: Vec<Uuid>,
    /// Calls whose end is in the journal but not yet a row.
    pub(crate) unprojected: VecDeque<(FactPosition, Uuid)>,
    /// Position up to which the journal has become rows.
    pub(crate) projected: watch::Receiver<FactPosition>,
    pub(crate) live: Arc<LiveCalls>,
    /// Number of the shard, part of the keys of its media.
    pub(crate) shard: usize,
    /// Requester of the member's call whose INVITE is being handled; empty otherwise.
    pub(crate) awaited: AwaitedRecord,
}

impl EffectRunner {
    /// Makes the effect runner of another shard.
    pub(crate) fn share(&self) -> Self {
        Self {
            inbox: self.inbox.clone(),
            journal: self.journal.clone(),
            contacts: self.contacts.clone(),
            resolver: self.resolver.clone(),
            bots: self.bots.clone(),
            prompts: self.prompts.clone(),
            streams: self.streams.clone(),
            media: self.media.clone(),
            media_addresses: Arc::clone(&self.media_addresses),
            auth_failures: self.auth_failures.clone(),
            challenges: self.challenges.clone(),
            event_sink: self.event_sink.clone(),
            runtime: self.runtime.clone(),
            tap: Tap::closed(),
            spans: self.spans.clone(),
            facts: Vec::new(),
            promised: Vec::new(),
            unsynced: Unsynced::default(),
            ended: Vec::new(),
            unprojected: VecDeque::new(),
            projected: self.projected.clone(),
            live: Arc::clone(&self.live),
            shard: self.shard,
            awaited: AwaitedRecord::default(),
        }
    }

    /// Carries out all pending effects, including those that their results cause.
    pub(crate) fn carry_out(
        &mut self,
        calls: &mut Calls,
        endpoint: &mut Endpoint,
        observer: &mut Observer,
        now: Moment,
    ) {
        while let Some(effect) = calls.poll_effect() {
            self.run(effect, calls, endpoint, observer, now);
        }
    }

    fn run(
        &mut self,
        effect: Effect,
        calls: &mut Calls,
        endpoint: &mut Endpoint,
        observer: &mut Observer,
        now: Moment,
    ) {
        match effect {
            Effect::Fact(fact) => {
                observer.fact(&fact);
                if let Fact::Ended(ended) = &fact {
                    self.ended.push(ended.call);
                }
                if let Fact::Started(started) = &fact {
                    self.awaited.note(started);
                }

                if let Some(spans) = &self.spans {
                    spans.push(&fact);
                }
                self.facts.push(fact);
            }

            Effect::FindContact { call, org, number } => {
                match self.contacts.remembered(org, number) {
                    Some(contact) => calls.handle_contact(endpoint, call, Some(contact), now),
                    None if self.contacts.ask(org, number, call, self.inbox.clone()) => {}
                    // Too many look-ups wait. The call goes on at once, without its contact.
                    None => calls.handle_contact(endpoint, call, None, now),
                }
            }

            Effect::Resolve { call, org, wanted } => {
                let origin = query_origin(&wanted, org);
                let (resolver, inbox) = (self.resolver.on_behalf_of(origin), self.inbox.clone());
                self.runtime.spawn(async move {
                    let found = resolver.find(&wanted).await;
                    // Waits for room: nothing asks again, and the call would wait for its set-up deadline.
                    inbox.send(Input::Resolved(call, found)).await;
                });
            }

            Effect::Connect {
                call,
                target,
                stream,
                datagram,
            } => {
                // A peer that takes no streams must not cost every call half a second.
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

            Effect::OpenMedia {
                call,
                listener,
                near,
                version,
            } => {
                let listener = listener.map(usize::from);
                let MediaAddress { bind, advertised } =
                    self.media_addresses.at(listener, near, version);
                let key = self.media_key(call);
                let holder = calls.holder_of(call).ok_or(NoShare::Full);
                let local = holder
                    .and_then(|holder| self.media.open(key, bind, holder))
                    .map(|bound| SocketAddr::new(advertised, bound.port()));
                if let Some(id) = calls.id_of(call).filter(|_| local.is_ok()) {
                    self.live.note_media(id, key);
                }
                calls.handle_media_open(endpoint, call, local, now);
            }

            Effect::UpdateMedia { call, media } => {
                let key = self.media_key(call);
                // The caller may be a browser, whose port is this node's own.
                let inside = self.media_addresses.inside_of(media.remote);
                let inside = inside.filter(|inside| self.media.is_port(*inside));
                let agreed = media::NegotiatedMedia {
                    remote: inside.unwrap_or(media.remote),
                    payload: media.payload,
                    telephone_event: media.telephone_event,
                    received: media.received,
                    direction: media.direction,
                    packet_time: media.packet_time,
                    rtcp: media.rtcp.filter(|_| inside.is_none()),
                    sources: inside.map_or(media.sources, |inside| [inside.ip(); 2]),
                    from_any: media.from_any,
                    peer: media::MediaPeer {
                        trunk: media.trunk.as_u128(),
                        signals_from: Some(media.signals_from),
                        // A port of this node speaks by itself.
                        claimed: media.claimed.filter(|_| inside.is_none()),
                        is_proven: media.is_proven,
                        silence: media.silence,
                    },
                };
                self.media.update(key, agreed, now);
            }

            Effect::ProveMedia { call } => self.media.prove(self.media_key(call)),
            Effect::SpeakCode {
                call,
                code: SpokenCode(digits),
            } => self.media.speak_code(self.media_key(call), &digits),

            Effect::CloseMedia { call, record } => {
                let figures = self.media.close(self.media_key(call), now);
                let media = record
                    .zip(figures)
                    .and_then(|(of, figures)| recorded(of, &figures));
                if let Some(media) = media {
                    // Written before the end of the call, whose event shows the figures.
                    self.facts
                        .push(self.live.note(Fact::Media(Box::new(media))));
                }
            }

            Effect::DialBot { call, dial } => {
                if let Some(id) = calls.id_of(call) {
                    self.live.note_bot(id);
                }
                let (bots, inbox) = (self.bots.clone(), self.inbox.clone());
                self.runtime.spawn(async move {
                    let dialled = bots.dial(*dial).await;
                    inbox.send(Input::Bot(call, Box::new(dialled))).await;
                });
            }

            Effect::PlaySound {
                call,
                org,
                serial,
                sound,
            } => {
                let wanted = WantedSound {
                    call,
                    media: self.media_key(call),
                    org,
                    serial,
                    sound,
                };
                self.prompts.play(wanted, &self.inbox);
            }

            Effect::HandOff { call } => {
                // Through the inbox, since a hand-off reads the directory, which isn't at hand here.
                let inbox = self.inbox.clone();
                self.runtime
                    .spawn(async move { inbox.send(Input::HandOff(call)).await });
            }

            Effect::StartBot { call, answered_at } => {
                self.media.start(self.media_key(call), answered_at);
            }
            Effect::PressKey { call, key } => self.media.pass_key(self.media_key(call), key),
            Effect::AuthFailure(failure) => self.auth_failure(RefusedLogIn::LogIn(failure)),
            Effect::UnknownUser(unknown) => self.unknown_user(unknown),
            Effect::UnansweredChallenge(unproven) => {
                self.auth_failure(RefusedLogIn::UnansweredChallenge(unproven))
            }
            Effect::UnknownSource(what) => observer.foreign(what),
            Effect::Proof(outcome) => observer.proof(outcome),
            Effect::Challenged(challenged) => self.challenged(challenged),
            Effect::TurnedAway { reason } => observer.turned(reason),
            Effect::Traced(leg, partner, identity) => {
                if let Some(partner) = partner {
                    self.tap.belongs(leg.org, partner);
                }
                self.tap.assign(leg, identity);
            }
            Effect::Untraced(call) => self.tap.end(call),
            Effect::FailedOver { cause } => observer.failed_over(cause),
        }
    }

    /// Gives a bot the media of its call.
    pub(crate) fn attach_bot(&self, call: CallKey, bot: Bot) {
        self.media.attach(self.media_key(call), bot);
    }

    /// Carries out an effect of the registrar.
    pub(crate) fn run_registrar_effect(&self, effect: registrar::RegistrarEffect, now: Moment) {
        match effect {
            registrar::RegistrarEffect::Changed(change) => {
                registrations::note(&change, &self.event_sink, now);
            }
            registrar::RegistrarEffect::AuthFailure(failed) => {
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
            registrar::RegistrarEffect::UnknownUser(unknown) => self.unknown_user(unknown),
        }
    }

    /// Carries out an effect of the peer watch and of registrations with carriers.
    pub(crate) fn run_peer_effect(
        &self,
        effect: peers::PeersEffect,
        router: &ShardRouter,
        now: Moment,
    ) {
        match effect {
            peers::PeersEffect::Down(peer) => {
                for inbox in router.shards() {
                    // A shard whose inbox is full notices the dead peer by its own timers.
                    inbox.offer(Input::Gone(peer.transport, peer.address));
                }
            }

            peers::PeersEffect::Resolve {
                trunk,
                org,
                registrar,
            } => {
                let origin = query_origin(&registrar, org);
                let (resolver, inbox) = (self.resolver.on_behalf_of(origin), self.inbox.clone());
                self.runtime.spawn(async move {
                    let targets = resolver.resolve(&registrar).await;
                    inbox.send(Input::Registrar(trunk, targets)).await;
                });
            }

            peers::PeersEffect::Challenged(challenged) => self.challenged(challenged),
            peers::PeersEffect::Changed(change) => {
                super::peers::note(change, &self.event_sink, now)
            }
            peers::PeersEffect::RegisterFinished(tried) => {
                crate::telemetry::metrics::outbound_registration(tried.as_str());
            }
        }
    }

    /// Returns whether a call whose media was reported silent is still silent.
    pub(crate) fn is_silent(&self, call: CallKey) -> bool {
        self.media.is_silent(self.media_key(call))
    }

    /// Queues a failed log-in to be stored; a flood of them is cut and counted.
    fn auth_failure(&self, failure: RefusedLogIn) {
        crate::telemetry::metrics::auth_failures(failure.cause(), 1);
        if !self.auth_failures.refuse(failure) {
            metrics::counter!(failed_log_ins::UNRECORDED).increment(1);
        }
    }

    /// Queues a log-in with an unknown user name to be logged. These log-ins have a queue of their own, so that a flood of them displaces no log-in
    /// of an org. If it is full the log-in is dropped: the log takes only a few lines a second anyway.
    fn unknown_user(&self, unknown: UnknownUser) {
        crate::telemetry::metrics::auth_failures(failed_log_ins::UNKNOWN_USER, 1);
        let _ = self.auth_failures.unknown.try_send(unknown);
    }

    /// Queues a challenge to be stored. If the queue is full it is dropped: the peer's next challenge says the same.
    fn challenged(&self, challenged: Box<ChallengeReport>) {
        let _ = self.challenges.try_send(challenged);
    }

    /// Appends the turn's facts to the journal. If the journal is full they stay for the next turn; new calls are
    /// refused before it is full, so the calls in progress bound how many gather here.
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
                // The 200 leaves after this line: even if the process ends right then, the call has its record.
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
            Err(_) => {
                // Nothing was taken: facts, ends and promises stay here for the next turn.
                metrics::counter!("trunkline_journal_full_total").increment(1);
                self.end_given_up();
            }
        }
    }

    /// Ends the calls whose requesters no longer wait, while the journal takes no facts of them.
    fn end_given_up(&mut self) {
        let given_up = self
            .promised
            .extract_if(.., |promise| promise.given_up().is_some());
        for placed in given_up.filter_map(|promise| promise.given_up()) {
            let inbox = self.inbox.clone();
            self.runtime.spawn(end_placed(inbox, placed));
        }
    }

    /// Answers the requesters of new calls, once the first fact of each call is on disk, and ends the calls that can't
    /// be acknowledged.
    fn keep_promises(&mut self, position: FactPosition) {
        for promise in self.promised.drain(..) {
            let (journal, inbox) = (self.journal.clone(), self.inbox.clone());
            self.runtime.spawn(async move {
                if let Some(placed) = promise.keep(journal.synced(position)).await {
                    end_placed(inbox, placed).await;
                }
            });
        }
    }

    /// Forgets ended calls that have become rows.
    pub(crate) fn forget_projected(&mut self) {
        let projected = *self.projected.borrow();
        while let Some((position, call)) = self.unprojected.front() {
            // While the database is away, only the latest ones are kept.
            if *position > projected && self.unprojected.len() <= MAX_UNPROJECTED {
                return;
            }
            self.live.forget(*call);
            self.unprojected.pop_front();
        }
        // After an outage of the database the queue still has room for thousands.
        if self.unprojected.capacity() > 1_024 {
            self.unprojected.shrink_to_fit();
        }
    }

    fn media_key(&self, call: CallKey) -> u64 {
        media_key(self.shard, call)
    }
}

/// Hangs up a call that its requester doesn't learn of.
async fn end_placed(inbox: Inbox, placed: PlacedCall) {
    // Nothing waits for the answer.
    let (done, _) = oneshot::channel();
    let (call, by) = (placed.call, HangUpRequester::Operator);
    inbox.send(Input::HangUp { call, by, done }).await;
}

/// Number that names a call's media: 8 bits of shard, 24 of slab index, 32 of generation.
pub(crate) const fn media_key(shard: usize, call: CallKey) -> u64 {
    (shard as u64) << 56 | (call.index as u64 & 0x00ff_ffff) << 32 | call.generation as u64
}

/// Returns the shard and the call that a media key names.
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
