//! Requests of ours inside a call: those that wait for their answers, and those that wait for their turn.
//!
//! One object for both dialogs of the bridge, not one for each. A peer's offer is relayed to the other leg, and is open until that leg's
//! peer has answered it. Our own offers (hold, join, refresh) must neither collide with it on that leg nor change its answer (RFC 3261
//! §14.1, RFC 3725 §4). So one exchange at a time is open in a call, one timer bounds it, and what waits for a turn waits for both dialogs.
//! The bound on requests in flight is one for the call, too.
//!
//! Bare requests wait for no exchange: INFO, PRACK, BYE, an UPDATE without a body.

use std::time::Duration;

use trunkline_sip::dialog::Dialog;
use trunkline_sip::endpoint::{ClientTx, ServerTx};
use trunkline_sip::moment::Moment;
use trunkline_sip::wheel::TimerId;
use trunkline_sip::wire::Method;

use super::own_request::{JoinRound, Pending, Purpose, RequestKind};
use crate::core::context::Cx;
use crate::leg::request_queue::{NextRequest, RequestQueue};
use crate::parts::ids::{CallKey, CallTimer, LegId};
use crate::parts::reply::PAUSE;

/// Requests of one call that may be in flight at once. At this number a peer's further request gets 503, unless it is a BYE. Our own are
/// counted, but never refused for it.
const MAX_PENDING: usize = 16;
/// Time without a final answer after which a re-INVITE is cancelled. No person has to answer it, and it blocks every other negotiation.
const EXCHANGE_PATIENCE: Duration = Duration::from_secs(32);

/// Requests of ours in both dialogs of a call.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    /// Requests that wait for their answers. Most calls that are up have none, and keep no room for any.
    pending: Vec<Pending>,
    /// Requests that wait for their turn.
    queue: RequestQueue,
    /// Runs until the queue may have a request to send or to give up (`set_turn`).
    turn: Option<TimerId>,
    /// Runs while a re-INVITE of ours waits for its final answer.
    exchange: Option<TimerId>,
    /// The last INVITE of a peer inside the call, until `check_theirs` finds its transaction gone.
    theirs: Option<ServerTx>,
}

impl Requests {
    /// Returns whether there is no room for another request.
    pub(crate) fn is_full(&self) -> bool {
        self.pending.len() >= MAX_PENDING
    }

    /// Requests that wait for their answers, the oldest first.
    pub(crate) fn pending(&self) -> &[Pending] {
        &self.pending
    }

    /// Returns whether a request on that leg waits for its answer.
    pub(crate) fn awaits(&self, id: LegId) -> bool {
        self.pending.iter().any(|pending| pending.leg == id)
    }

    /// Returns whether a request with that purpose waits for its answer.
    pub(crate) fn is_out(&self, purpose: Purpose) -> bool {
        self.by_purpose(purpose).is_some()
    }

    /// Returns whether an UPDATE of a peer, relayed to that leg and fork, waits for its answer.
    pub(crate) fn relays_update(&self, to: LegId, fork: u8) -> bool {
        let is_it = |pending: &Pending| {
            let is_relayed = matches!(pending.purpose, Purpose::Relay(_));
            is_relayed
                && pending.method == Method::Update
                && (pending.leg, pending.fork) == (to, fork)
        };
        self.pending.iter().any(is_it)
    }

    fn by_purpose(&self, purpose: Purpose) -> Option<&Pending> {
        let mut pending = self.pending.iter();
        pending.find(|pending| pending.purpose == purpose)
    }

    /// Returns whether a refresh of a leg's session, or a probe of its silent peer, has been sent and waits for its answer.
    pub(crate) fn refreshes(&self, id: LegId) -> bool {
        let is_it = |pending: &Pending| pending.leg == id && pending.purpose == Purpose::Refresh;
        self.pending.iter().any(is_it)
    }

    /// Returns whether such a request waits for its answer, as in [`Self::refreshes`], or still for its turn.
    pub(crate) fn is_refreshing(&self, id: LegId) -> bool {
        self.is_queued(RequestKind::Refresh(id)) || self.refreshes(id)
    }

    /// The first request that makes an offer or asks for one.
    pub(crate) fn offering(&self) -> Option<&Pending> {
        self.pending.iter().find(|pending| pending.offers)
    }

    /// The last INVITE of a peer, as far as it is known to be unfinished.
    pub(crate) const fn theirs(&self) -> Option<ServerTx> {
        self.theirs
    }

    /// Notes an INVITE of a peer.
    pub(crate) const fn note_theirs(&mut self, server: ServerTx) {
        self.theirs = Some(server);
    }

    /// Keeps a request that was sent, until its answer comes.
    pub(crate) fn add(
        &mut self,
        cx: &mut Cx<'_>,
        call: CallKey,
        pending: Pending,
    ) -> Option<&mut Pending> {
        if pending.method == Method::Invite {
            cx.cancel_timer(&mut self.exchange);
            self.exchange = Some(cx.schedule(call, EXCHANGE_PATIENCE, CallTimer::Exchange));
        }
        self.pending.push(pending);
        self.pending.last_mut()
    }

    /// Takes the request of that transaction.
    pub(crate) fn take(&mut self, cx: &mut Cx<'_>, client: ClientTx) -> Option<Pending> {
        let mut pending = self.pending.iter();
        let at = pending.position(|pending| pending.client == client)?;
        let pending = self.pending.remove(at);
        if self.pending.is_empty() {
            self.pending = Vec::new();
        }
        let is_invite = |pending: &Pending| pending.method == Method::Invite;
        // One timer serves all INVITEs that are out, and was started by the last one: it runs on while another leg's INVITE waits.
        if is_invite(&pending) && !self.pending.iter().any(is_invite) {
            cx.cancel_timer(&mut self.exchange);
        }
        Some(pending)
    }

    /// Cancels the re-INVITEs that have had no final answer in time.
    pub(crate) fn on_exchange_late(&mut self, cx: &mut Cx<'_>) {
        self.exchange = None;
        for pending in &mut self.pending {
            // Their 487, or the time-out of their transactions, ends them: the timer needs no successor.
            if pending.method == Method::Invite {
                pending.cancel(cx, b"");
            }
        }
    }

    /// Cancels our request by which that request of a peer was relayed.
    pub(crate) fn cancel_relayed(&mut self, cx: &mut Cx<'_>, server: ServerTx, lines: &[u8]) {
        let mut pending = self.pending.iter_mut();
        if let Some(relayed) = pending.find(|it| it.purpose == Purpose::Relay(server)) {
            relayed.cancel(cx, lines);
        }
    }

    /// Keeps the response to a relayed request from going back to the peer that sent it.
    pub(crate) fn forget_relayed(&mut self, server: ServerTx) {
        for pending in &mut self.pending {
            if pending.purpose == Purpose::Relay(server) {
                pending.purpose = Purpose::Stale;
            }
        }
    }

    /// Keeps the dialog of a leg whose peer is lost with the BYE that is out on it, if there is one.
    pub(crate) fn keep_for_bye(&mut self, id: LegId, dialog: Dialog) {
        let mut pending = self.pending.iter_mut();
        let is_it = |pending: &&mut Pending| pending.leg == id && pending.method == Method::Bye;
        if let Some(bye) = pending.find(is_it) {
            bye.last_dialog = Some(Box::new(dialog));
        }
    }

    /// Cancels our re-INVITE to the caller that was to connect it with a destination.
    pub(crate) fn cancel_join(&mut self, cx: &mut Cx<'_>) {
        for pending in &mut self.pending {
            if pending.purpose == Purpose::Join(JoinRound::Join) {
                pending.purpose = Purpose::Stale;
                pending.cancel(cx, b"");
            }
        }
    }

    /// Stops all relaying. A peer whose relayed request has no final answer gets 487 (RFC 3261 §15.1.2), and every re-INVITE is cancelled.
    /// Later answers get no more than their ACKs.
    pub(crate) fn abandon(&mut self, cx: &mut Cx<'_>) {
        for pending in &mut self.pending {
            // A late answer to REFER may still bring the outcome of the transfer.
            if pending.purpose != Purpose::Transfer {
                leave(cx, pending, Purpose::Own);
            }
        }
    }

    /// Ends what is pending with the agent, which leaves. On other legs, refreshes, `Own` requests and the re-INVITE that brings the caller
    /// the destination's media go on; the rest is given up.
    pub(crate) fn abandon_agent(&mut self, cx: &mut Cx<'_>, agent: LegId) {
        for pending in &mut self.pending {
            let own = matches!(
                pending.purpose,
                Purpose::Refresh | Purpose::Own | Purpose::Join(JoinRound::Join)
            );
            match (pending.leg == agent, own) {
                (true, _) => {
                    leave(cx, pending, Purpose::Own);
                    // The agent's leg leaves: its open offer must not block the caller's next exchange.
                    pending.offers = false;
                }
                (false, true) => {}
                // The peer may still accept this request. With `Stale` it is then offered the media in use again.
                (false, false) => leave(cx, pending, Purpose::Stale),
            }
        }
        self.withdraw(RequestKind::Refresh(agent));
    }

    /// Ends the requests that were relayed in dialogs that are gone. Their requesters get 481, since their own dialogs are gone as well
    /// (RFC 3261 §12.2.2). A PRACK gets 200, since the response that it acknowledges was ours (RFC 3262 §3), unless an SDP in it would stay
    /// without an answer.
    pub(crate) fn abandon_dropped(&mut self, cx: &mut Cx<'_>, is_held: impl Fn(u8) -> bool) {
        for pending in &mut self.pending {
            let Purpose::Relay(server) = pending.purpose else {
                continue;
            };
            if is_held(pending.fork) {
                continue;
            }

            let status = match pending.method == Method::Prack && !pending.had_sdp {
                true => 200,
                false => 481,
            };
            cx.respond(server, status, None, |_| {}, b"");
            pending.purpose = Purpose::Own;
            pending.offers = false;
        }
    }

    /// Ends what is pending with a leg that was replaced.
    pub(crate) fn abandon_replaced(&mut self, cx: &mut Cx<'_>, replaced: LegId) {
        self.withdraw(RequestKind::Refresh(replaced));
        for pending in &mut self.pending {
            if pending.leg == replaced {
                refuse_requester(cx, pending, Purpose::SecondBye);
            }
        }
    }

    /// Queues a request. It is sent after `wait` at the earliest, once the open exchange admits it; at `until` it comes back as too late.
    pub(crate) fn ask(
        &mut self,
        cx: &Cx<'_>,
        request: RequestKind,
        wait: Duration,
        until: Option<Moment>,
    ) {
        self.queue.push(request, cx.now + wait, until);
    }

    /// Removes a request that isn't needed any more.
    pub(crate) fn withdraw(&mut self, request: RequestKind) {
        self.queue.withdraw(request);
    }

    /// Returns whether a request waits for its turn.
    pub(crate) fn is_queued(&self, request: RequestKind) -> bool {
        self.queue.has(request)
    }

    /// Returns whether no request waits for its turn, nor a timer for one.
    pub(crate) fn has_no_turns(&self) -> bool {
        self.queue.is_empty() && self.turn.is_none()
    }

    /// Notes that the timer of the queue has fired.
    pub(crate) const fn on_turn(&mut self) {
        self.turn = None;
    }

    /// Forgets a peer's INVITE that is over. The exchange of an INVITE lasts until its answer is acknowledged (RFC 3261 §14.1). The ACK to
    /// a refusal never reaches the call, so the transaction is looked up instead.
    pub(crate) fn check_theirs(&mut self, cx: &Cx<'_>) {
        self.theirs = self.theirs.filter(|tx| cx.endpoint.server_exists(*tx));
    }

    /// Takes the first request whose turn has come.
    pub(crate) fn next_turn(
        &mut self,
        now: Moment,
        may_go: impl Fn(RequestKind) -> bool,
    ) -> Option<NextRequest> {
        self.queue.poll(now, may_go)
    }

    /// Sets the timer of the queue to its next change.
    pub(crate) fn set_turn(&mut self, cx: &mut Cx<'_>, call: CallKey) {
        cx.cancel_timer(&mut self.turn);
        // No event says that a peer's INVITE is over (`check_theirs`), so it is looked at again after a pause.
        let look = self.theirs.filter(|_| !self.queue.is_empty());
        let look = look.map(|_| PAUSE);
        let next = self.queue.next_after(cx.now).into_iter().chain(look).min();
        self.turn = next.map(|after| cx.schedule(call, after, CallTimer::Turn));
    }

    /// Drops what waits for its turn: the call is over.
    pub(crate) fn end(&mut self, cx: &mut Cx<'_>) {
        self.queue.clear();
        for timer in [&mut self.exchange, &mut self.turn] {
            cx.cancel_timer(timer);
        }
    }

    /// The timers that run.
    pub(crate) fn timers(&self) -> impl Iterator<Item = TimerId> {
        [self.exchange, self.turn].into_iter().flatten()
    }
}

/// Gives a request another purpose, refuses the peer that waits for its answer, and cancels a re-INVITE.
fn leave(cx: &mut Cx<'_>, pending: &mut Pending, left: Purpose) {
    refuse_requester(cx, pending, left);
    if pending.method == Method::Invite {
        pending.cancel(cx, b"");
    }
}

fn refuse_requester(cx: &mut Cx<'_>, pending: &mut Pending, left: Purpose) {
    if let Purpose::Relay(server) = std::mem::replace(&mut pending.purpose, left) {
        cx.respond(server, 487, None, |_| {}, b"");
    }
}
