//! Calls of one shard: their storage, access to one of them, and its release.

mod commands;
mod dispatch;
mod early;
mod media;
pub mod member;
mod placing;
mod proving;
mod replaces;
mod setup;
mod source_trust;
mod table;
mod verification;

use std::collections::HashMap;

use trunkline_bounds::Holder;
use trunkline_sip::endpoint::{Endpoint, Owner};
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use crate::call::Call;
use crate::core::context::{Core, Cx};
use crate::core::effect::Effect;
use crate::dial::outbound::Outbound;
use crate::media::local_media;
use crate::parts::ids::{CallKey, key_of};
use crate::parts::refusal::Reason;
use table::CallTable;

pub use commands::HangUpRequester;
pub use setup::DOCTOR;

/// Bound on stored lost connections, after which the calls are searched for them.
const MAX_LOST: usize = 1_024;

/// The calls of one shard.
#[derive(Debug)]
pub struct Calls {
    pub(crate) table: CallTable,
    pub(crate) core: Core,
    /// The call whose input is being handled, which ends if that panics.
    current: Option<CallKey>,
}

impl Calls {
    /// Makes a shard without calls.
    pub fn new(core: Core) -> Self {
        Self {
            table: CallTable::default(),
            core,
            current: None,
        }
    }

    /// Returns the number of live calls.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether no call is left.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Numbers of dialog tags and timers in use.
    pub fn left_over(&self) -> (usize, usize) {
        (self.core.tags.len(), self.core.timers.len())
    }

    /// Refuses new calls with 503 from now on, and OPTIONS too.
    pub fn drain(&mut self) {
        self.core.draining = true;
    }

    /// Sets whether there is no room to record further calls: new ones get 503.
    pub fn set_overloaded(&mut self, overloaded: bool) {
        self.core.overloaded = overloaded;
    }

    /// Takes the next effect.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.core.effects.pop_front()
    }

    /// Returns when the next timer of a call is due.
    pub fn next_timeout(&self) -> Option<Moment> {
        self.core.next_timeout()
    }

    /// Handles a closed connection: the next request inside a call opens a new one to the peer's Contact. `proved` is the number of the name that its
    /// peer has proved over TLS, or 0; the peer of a new connection has to prove the same name.
    pub fn handle_flow_lost(&mut self, lost: &Flow, proved: u32) {
        // 0 names no connection, and without calls no leg can name this one.
        if lost.connection == 0 || self.table.is_empty() {
            return;
        }
        // Only noted: each leg looks here when it next sends (`Cx::next_flow`). No call has to be visited.
        self.core.lost.insert(lost.connection, proved);
        if self.core.lost.len() > MAX_LOST {
            for call in self.table.iter_mut() {
                call.bridge.legs.leave_connections(&self.core.lost);
            }
            self.core.lost.clear();
        }
    }

    /// Ends a call on request (draining deadline, API).
    pub fn hang_up(&mut self, endpoint: &mut Endpoint, key: CallKey, reason: Reason, now: Moment) {
        self.with(key, endpoint, now, |call, cx| call.hang_up(cx, reason));
    }

    /// Ends every call (the draining deadline has passed).
    pub fn hang_up_all(&mut self, endpoint: &mut Endpoint, reason: Reason, now: Moment) {
        // Collected first: hanging up may remove a call from the slab.
        let keys: Vec<CallKey> = self.table.iter().map(|call| call.bridge.key).collect();
        for key in keys {
            self.hang_up(endpoint, key, reason, now);
        }
    }

    /// Ends the call whose input has panicked, on both legs, and drops it.
    pub fn abort_current(&mut self, endpoint: &mut Endpoint, now: Moment) {
        // A panic outside of `with` belongs to no call, and ends none.
        let Some(key) = self.current.take() else {
            return;
        };
        self.hang_up(endpoint, key, Reason::Internal, now);

        // Dropped even if its BYEs have no answer yet: no further input may reach what the panic has left half changed.
        self.current = None;
        self.forget(endpoint, key);
    }

    /// Runs `act` on the call that owns a transaction, if there is one.
    pub(crate) fn with_owner(
        &mut self,
        owner: Owner,
        endpoint: &mut Endpoint,
        now: Moment,
        act: impl FnOnce(&mut Call, &mut Cx<'_>),
    ) {
        if let Some(key) = key_of(owner) {
            self.with(key, endpoint, now, act);
        }
    }

    /// Runs `act` on a call, and drops the call once it is done. False if there is no such call.
    pub(crate) fn with(
        &mut self,
        key: CallKey,
        endpoint: &mut Endpoint,
        now: Moment,
        act: impl FnOnce(&mut Call, &mut Cx<'_>),
    ) -> bool {
        let Some(slot) = self.table.slot_mut(key) else {
            return false;
        };
        // Names the call that ends if `act` panics: the engine catches the panic and calls `abort_current`.
        self.current = Some(key);

        let mut cx = Cx {
            core: &mut self.core,
            endpoint,
            attempt_counter: &mut slot.attempt_counter,
            now,
        };
        act(&mut slot.call, &mut cx);

        // Any input may have ended the exchange that a queued request of ours waits for.
        slot.call.take_turns(&mut cx);
        let (id, org) = (slot.call.ids.call, slot.call.ids.org);
        slot.call
            .hold
            .report(&mut slot.call.bridge, cx.core, id, org);
        slot.call.bridge.report_traced(cx.core, &slot.call.ids);

        let done = slot.call.is_done();
        self.current = None;
        if done {
            self.forget(endpoint, key);
        }

        true
    }

    fn forget(&mut self, endpoint: &mut Endpoint, key: CallKey) {
        let Some(call) = self.table.remove(key) else {
            return;
        };
        let over = Effect::Untraced(call.ids.call);
        self.core.effects.push_back(over);
        // The call is over on both legs, so no further ACK will come: stops the retransmissions of our 2xx.
        for (_, ack) in call.bridge.awaited() {
            endpoint.acknowledged(ack.server);
        }
        release(&mut self.core, &call);
        // No leg is left to name these connections. A new map also frees what a burst of them has allocated.
        if self.table.is_empty() {
            self.core.lost = HashMap::new();
        }
    }

    /// Id of the call at `key`, if it is still there.
    pub fn id_of(&self, key: CallKey) -> Option<Uuid> {
        self.table.get(key).map(|call| call.ids.call)
    }

    /// Returns the org in whose share a call counts.
    pub fn holder_of(&self, key: CallKey) -> Option<Holder> {
        self.table.get(key).map(|call| call.ids.holder())
    }
}

/// Releases what a finished call holds.
fn release(core: &mut Core, call: &Call) {
    for tag in &call.bridge.tags {
        core.tags.remove(tag);
    }

    let proof = call.proof.as_ref().and_then(|proof| proof.timer);
    let mut timers = vec![call.lifetime.timer(), call.transfer.timer(), proof];
    timers.extend(call.bridge.requests.timers().map(Some));

    let outbound = call.outbound.as_deref();
    if outbound.is_some_and(Outbound::has_media) {
        core.effects
            .push_back(local_media::closed_media(&call.bridge, &call.ids));
    }

    for leg in call.bridge.legs.iter() {
        timers.extend(leg.timers().map(Some));
        if leg.local().is_some_and(|media| media.local.is_some()) {
            core.effects
                .push_back(local_media::closed_media(&call.bridge, &call.ids));
        }
    }

    for timer in timers.into_iter().flatten() {
        core.timers.cancel(timer);
    }
}
