//! The back-to-back user agent, pure: messages, time and answers from outside come in, transmits and effects go out. It knows no
//! socket, no store, no clock.
//!
//! [`Calls`] holds the calls of one shard. A new INVITE goes through [`admission`] and `setup`; what the runtime answers through
//! `answer`; what happens inside a call through `in_dialog` and `reoffer`; its end through `hangup`.

#![warn(missing_docs)]

pub mod admission;
mod allow;
mod answer;
mod asked;
pub mod attempts;
mod blame;
pub mod bot;
mod call;
mod callee;
pub mod caps;
mod context;
mod credentials;
mod crossing;
mod dialing;
mod dialled;
mod dialogs;
mod effect;
mod exchange;
mod families;
mod generation;
mod hangup;
pub mod health;
mod held;
pub mod hold;
mod holding;
mod hops;
mod in_dialog;
mod invite_client;
pub mod joining;
mod keep_alive;
mod large;
mod leg;
pub mod limits;
pub mod live;
mod local_media;
mod moved;
mod ordered;
mod origin;
pub mod outbound;
pub mod pbx;
pub mod peers;
mod places;
mod presence;
mod privacy;
mod proofs;
mod provisional;
mod provisional_relay;
mod refusal;
pub mod registrar;
mod reoffer;
mod repeats;
mod replaces;
mod reply;
mod request_origin;
mod request_queue;
mod role;
mod runtime_chain;
mod runtime_invite;
mod secure;
mod session;
mod setup;
mod shares;
mod sources;
pub mod target;
pub mod token;
pub mod transfer;
mod turns;
mod uas_invite;
mod unanswered;
mod unproven;
pub mod verification;
pub mod wall;
pub mod ways;

use std::collections::HashMap;
use std::sync::Arc;

use slab::Slab;
use trunkline_sip::dialog::body::{has_sdp, sdp_of};
use trunkline_sip::endpoint::{ClientTx, Endpoint, Event, Owner, Received};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{HeaderName, Message, Method};
use uuid::Uuid;

pub use call::CallKey;
pub use context::{Config, Core, place_of};
pub use effect::{
    AgreedMedia, AuthFailure, ChallengeOutcome, Challenged, Challenger, Effect, Foreign,
    Unanswerable, UnknownUser, Unproven,
};
pub use privacy::NOBODY_USER;
pub use refusal::Reason;
pub use role::LegRole;
pub use setup::DOCTOR;
pub use sources::ProvenSources;
pub use trunkline_sip::flow::is_private;

use call::Call;
use context::{CallTimer, Cx};
use refusal::uri_refusal;

use trunkline_model::view::View;

/// Lost connections that are remembered before the calls are searched for them.
const MAX_LOST: usize = 1_024;

/// The calls of one shard.
#[derive(Debug)]
pub struct Calls {
    slab: Slab<Slot>,
    generation: u32,
    core: Core,
    /// The call that is being worked on, so that a panic can be pinned on it.
    current: Option<CallKey>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    call: Box<Call>,
}

impl Calls {
    /// No calls yet.
    pub fn new(core: Core) -> Self {
        Self {
            slab: Slab::new(),
            generation: 0,
            core,
            current: None,
        }
    }

    /// Live calls.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether no call is left.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Numbers of dialog tags and timers that exist.
    pub fn left_over(&self) -> (usize, usize) {
        (self.core.tags.len(), self.core.timers.len())
    }

    /// From now on new calls get 503 and OPTIONS says so.
    pub fn drain(&mut self) {
        self.core.draining = true;
    }

    /// Whether there is room to record further calls; without it new ones get 503.
    pub fn set_overloaded(&mut self, overloaded: bool) {
        self.core.overloaded = overloaded;
    }

    /// Refuses a new INVITE that has waited too long.
    pub fn shed(&mut self, endpoint: &mut Endpoint, flow: Flow, invite: &Message<'_>) {
        admission::turn_away(&mut self.core, endpoint, flow, invite, Reason::Overload);
    }

    /// Whether a new INVITE goes before those of strangers when there is no time for all.
    pub fn expects(&self, view: &View, flow: &Flow, invite: &Message<'_>, now: Moment) -> bool {
        admission::is_expected(&self.core, view, flow, invite, now)
    }

    /// Takes the first of the effects that have gathered.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.core.effects.pop_front()
    }

    /// When a timer of a call is next due.
    pub fn next_timeout(&self) -> Option<Moment> {
        self.core.next_timeout()
    }

    /// Works on what the endpoint made of a message.
    pub fn handle(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        received: Received<'_>,
        now: Moment,
    ) {
        self.core.sees(view);
        match received {
            Received::Handled => {}
            Received::Request(message) => self.request(endpoint, view, flow, &message, now),
            Received::Ack(message) => {
                if let Some(found) = self.dialog_of(&message)
                    && self.lets_ack_in(view, found, &flow, &message, now)
                {
                    let (key, id, _) = found;
                    self.with(key, endpoint, now, |call, cx| call.on_ack(cx, id, &message));
                }
            }
            Received::Cancel {
                invite,
                owner,
                message,
            } => {
                self.with_owner(owner, endpoint, now, |call, cx| {
                    call.on_cancel(cx, invite, &message)
                });
            }
            Received::ForeignResponse { owner, tx, message } => {
                self.foreign_response(endpoint, view, flow, (tx, owner), message, now);
            }
            Received::StrayAnswer(message) if message.method() == Method::Options => {
                self.source_answered(endpoint, view, flow, &message, now);
            }
            // The call goes on, and had acknowledged it for as long as it may be repeated.
            Received::StrayAnswer(message) if self.is_agreed(&message) => {}
            Received::StrayAnswer(message) => {
                let mut cx = Cx {
                    core: &mut self.core,
                    endpoint,
                    now,
                };
                hangup::refuse_late_answer(&mut cx, flow, None, &message);
            }
            Received::Response { tx, owner, message } => {
                self.response(endpoint, flow, tx, owner, &message, now)
            }
        }
    }

    /// Works on what the endpoint says of its own accord.
    pub fn handle_event(&mut self, endpoint: &mut Endpoint, event: Event, now: Moment) {
        match event {
            Event::Timeout { owner: NOBODY, .. } | Event::TransportError { owner: NOBODY, .. } => {
                self.core.late_byes = self.core.late_byes.saturating_sub(1);
            }
            Event::Timeout { tx, owner } => {
                self.with_owner(owner, endpoint, now, |call, cx| {
                    call.on_no_answer(cx, tx, attempts::NoAnswer::Silence)
                });
            }
            Event::TransportError { tx, owner, fault } => {
                self.with_owner(owner, endpoint, now, |call, cx| {
                    call.on_no_answer(cx, tx, attempts::NoAnswer::Broken(fault))
                });
            }
            Event::NoAck { tx, owner } => {
                self.with_owner(owner, endpoint, now, |call, cx| call.on_no_ack(cx, tx));
            }
        }
    }

    /// A connection is gone: the next request inside a call opens a new one to the peer's Contact. `proved` is the number of the name that its peer
    /// has proved over TLS, or 0: who comes in its place has to prove the same.
    pub fn handle_flow_lost(&mut self, lost: &Flow, proved: u32) {
        if lost.connection == 0 || self.slab.is_empty() {
            return;
        }
        self.core.lost.insert(lost.connection, proved);
        if self.core.lost.len() > MAX_LOST {
            for (_, slot) in &mut self.slab {
                slot.call.leave_connections(&self.core.lost);
            }
            self.core.lost.clear();
        }
    }

    /// Runs the timers that are due.
    pub fn handle_timeout(&mut self, endpoint: &mut Endpoint, now: Moment) {
        self.distrust_silent(endpoint, now);
        while let Some((key, timer)) = self.core.pop_timer(now) {
            self.with(key, endpoint, now, |call, cx| match timer {
                CallTimer::Deadline => call.on_deadline(cx),
                CallTimer::Contact => call.on_contact(cx, None),
                CallTimer::Attempt => {
                    call.with_dialing(cx, |client, cx, text| client.handle_silence(cx, text))
                }
                CallTimer::Ringing => call.on_ringing_timeout(cx),
                CallTimer::Turn => call.on_turn(cx),
                CallTimer::Reliable(fork) => call.on_reliable_timer(cx, fork),
                CallTimer::Exchange => call.on_exchange_late(cx),
                CallTimer::Session(id) => call.on_session_timer(cx, id),
                CallTimer::KeepAlive(id) => call.on_keep_alive(cx, id),
                CallTimer::Transfer => call.on_transfer_timer(cx),
            });
        }
    }

    /// The answer to [`Effect::Resolve`] and [`Effect::Connect`].
    pub fn handle_resolved(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        found: attempts::Found,
        now: Moment,
    ) {
        self.with(key, endpoint, now, |call, cx| call.on_resolved(cx, found));
    }

    /// The answer to [`Effect::ResolveHop`].
    pub fn handle_hop(
        &mut self,
        wanted: &target::Unresolved,
        targets: Vec<target::Target>,
        now: Moment,
    ) {
        self.core.hops.learn(wanted, targets, now);
    }

    /// The answer to [`Effect::FindContact`].
    pub fn handle_contact(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        contact: Option<Uuid>,
        now: Moment,
    ) {
        self.with(key, endpoint, now, |call, cx| call.on_contact(cx, contact));
    }

    /// The answer to [`Effect::OpenMedia`]: our RTP address, or `None` if no port was free.
    pub fn handle_media_open(
        &mut self,
        endpoint: &mut Endpoint,
        key: CallKey,
        local: Option<std::net::SocketAddr>,
        now: Moment,
    ) {
        let is_known = self.with(key, endpoint, now, |call, cx| call.on_media_open(cx, local));
        // A call that is known has closed it where it ended with that very step.
        if !is_known && local.is_some() {
            self.core
                .effects
                .push_back(Effect::CloseMedia { call: key });
        }
    }

    /// The caller's media has been silent for too long.
    pub fn handle_media_silent(&mut self, endpoint: &mut Endpoint, key: CallKey, now: Moment) {
        self.with(key, endpoint, now, |call, cx| {
            if call.has_own_media() {
                call.hang_up(cx, Reason::MediaSilent);
            }
        });
    }

    /// Ends a call from outside (draining deadline, API).
    pub fn hang_up(&mut self, endpoint: &mut Endpoint, key: CallKey, reason: Reason, now: Moment) {
        self.with(key, endpoint, now, |call, cx| call.hang_up(cx, reason));
    }

    /// Ends every call (the draining deadline has passed).
    pub fn hang_up_all(&mut self, endpoint: &mut Endpoint, reason: Reason, now: Moment) {
        let keys: Vec<CallKey> = self.slab.iter().map(|(_, slot)| slot.call.key).collect();
        for key in keys {
            self.hang_up(endpoint, key, reason, now);
        }
    }

    /// After a panic: ends the call that was being worked on, on both legs, and forgets it.
    pub fn abort_current(&mut self, endpoint: &mut Endpoint, now: Moment) {
        let Some(key) = self.current.take() else {
            return;
        };
        self.hang_up(endpoint, key, Reason::Internal, now);
        self.current = None;
        if self
            .slab
            .get(key.index as usize)
            .is_some_and(|slot| slot.generation == key.generation)
        {
            self.forget(endpoint, key);
        }
    }

    fn request(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) {
        if message.to_tag().is_some() {
            return match self.dialog_of(message) {
                Some(found) if !self.lets_in(endpoint, view, found, flow, message, now) => {}
                Some((key, id, fork)) => {
                    let org = self.org_for(view, key, message);
                    self.with(key, endpoint, now, |call, cx| {
                        call.on_request(cx, id, fork, flow, message, org);
                    });
                }
                // It is sent again, and by then the answer that it has overtaken is in.
                None if !flow.transport.is_reliable() && self.is_ahead(message) => {}
                None => self.core.stateless(endpoint, message, flow, 481, |_| {}),
            };
        }

        // An INVITE's is judged once its sender is known, so that the refusal leaves a record.
        if message.method() != Method::Invite
            && let Some(status) = uri_refusal(message)
        {
            return self.core.stateless(endpoint, message, flow, status, |_| {});
        }

        match message.method() {
            Method::Invite => self.invite(endpoint, view, flow, message, now),
            Method::Options => self.core.answer_options(endpoint, message, flow),
            Method::Bye
            | Method::Prack
            | Method::Update
            | Method::Info
            | Method::Notify
            | Method::Cancel => {
                self.core.stateless(endpoint, message, flow, 481, |_| {});
            }
            // It is taken inside a call alone (RFC 3515 §2.4.2).
            Method::Refer => self.core.stateless(endpoint, message, flow, 403, |_| {}),
            Method::Register | Method::Subscribe | Method::Message | Method::Publish => {
                self.core.method_not_allowed(endpoint, message, flow, 405);
            }
            Method::Other => self.core.method_not_allowed(endpoint, message, flow, 501),
            Method::Ack => {}
        }
    }

    fn invite(
        &mut self,
        endpoint: &mut Endpoint,
        view: &Arc<View>,
        flow: Flow,
        message: &Message<'_>,
        now: Moment,
    ) {
        let replaces = message.first(HeaderName::Replaces).is_some();
        if replaces && let Some(org) = self.asked_by_ourselves(message) {
            return self.join_own(endpoint, flow, message, org, now);
        }

        let Some(admitted) = admission::admit(&mut self.core, endpoint, view, flow, message, now)
        else {
            return;
        };

        if replaces {
            return self.replace(endpoint, admitted, now);
        }

        let key = self.reserve();
        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            now,
        };
        let Some(call) = setup::start(&mut cx, key, admitted) else {
            return;
        };

        self.slab.insert(Slot {
            generation: key.generation,
            call: Box::new(call),
        });
        self.with(key, endpoint, now, |call, cx| call.begin_runtime(cx));
    }

    fn reserve(&mut self) -> CallKey {
        self.generation = self.generation.wrapping_add(1);
        let index =
            u32::try_from(self.slab.vacant_key()).expect("the node's call limit is below 2^32");
        CallKey {
            index,
            generation: self.generation,
        }
    }

    fn response(
        &mut self,
        endpoint: &mut Endpoint,
        flow: Flow,
        tx: ClientTx,
        owner: Owner,
        message: &Message<'_>,
        now: Moment,
    ) {
        if owner == NOBODY && message.status() >= 200 {
            self.core.late_byes = self.core.late_byes.saturating_sub(1);
        }
        let key = key_of(owner);
        let known = self.with(key, endpoint, now, |call, cx| {
            call.on_response(cx, flow, tx, message)
        });
        if !known && message.method() == Method::Invite && (200..300).contains(&message.status()) {
            let mut cx = Cx {
                core: &mut self.core,
                endpoint,
                now,
            };
            hangup::refuse_late_answer(&mut cx, flow, Some(tx), message);
        }
    }

    fn with_owner(
        &mut self,
        owner: Owner,
        endpoint: &mut Endpoint,
        now: Moment,
        act: impl FnOnce(&mut Call, &mut Cx<'_>),
    ) {
        self.with(key_of(owner), endpoint, now, act);
    }

    /// Lets `act` work on a call and forgets the call once it is done. False if there is no such call.
    fn with(
        &mut self,
        key: CallKey,
        endpoint: &mut Endpoint,
        now: Moment,
        act: impl FnOnce(&mut Call, &mut Cx<'_>),
    ) -> bool {
        let Some(slot) = self
            .slab
            .get_mut(key.index as usize)
            .filter(|slot| slot.generation == key.generation)
        else {
            return false;
        };
        self.current = Some(key);

        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            now,
        };
        act(&mut slot.call, &mut cx);
        slot.call.take_turns(&mut cx);
        slot.call.tell_held(&mut cx);

        let done = slot.call.is_done();
        self.current = None;
        if done {
            self.forget(endpoint, key);
        }

        true
    }

    fn forget(&mut self, endpoint: &mut Endpoint, key: CallKey) {
        let mut slot = self.slab.remove(key.index as usize);
        // Both sides know of the end: what they haven't acknowledged by now, they won't.
        for (_, ack) in slot.call.awaited() {
            endpoint.acknowledged(ack.server);
        }
        self.core.release(&mut slot.call);
        if self.slab.is_empty() {
            self.core.lost = HashMap::new();
        }
    }
}

/// A call's key as the endpoint carries it.
pub(crate) const fn owner_of(key: CallKey) -> Owner {
    Owner((key.index as u64) << 32 | key.generation as u64)
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of 64 bits")]
const fn key_of(owner: Owner) -> CallKey {
    CallKey {
        index: (owner.0 >> 32) as u32,
        generation: owner.0 as u32,
    }
}

/// A server transaction that no call owns: refusals.
pub(crate) const NOBODY: Owner = Owner(u64::MAX);
