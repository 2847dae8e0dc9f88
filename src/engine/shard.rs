//! Shard: one OS thread with its own sockets, SIP endpoint and calls. It receives a batch, handles it, and sends a batch.
//!
//! The endpoint and the calls belong to this thread alone, so no lock guards them. What a message means is decided by the endpoint and by
//! `Calls`.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;
use trunkline_calls::peers::Peers;
use trunkline_calls::registrar::Registrar;
use trunkline_calls::{Calls, Reason};
use trunkline_model::view::View;
use trunkline_net::listener::Lost;
use trunkline_net::listener::connections::Connections;
use trunkline_net::listener::udp::{self, Batch, UdpSocket};
use trunkline_sip::endpoint::{Endpoint, Received, Response};
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::wire::{Framing, Malformed, Message, Method, lex};

use super::bots::DialledBot;
use super::clock;
use super::effect_runner::EffectRunner;
use super::inbox::{ForwardedMessage, InboxReceiver, Input, ShardRouter};
use super::invite_queue::{Fate, InviteQueue};
use super::observe::Observer;
use super::pace::{self, Pace};
use crate::directory::Directory;
use crate::memory;

/// Batches received from one socket before other sockets, the inbox and the timers have their turn.
const BATCHES_A_TURN: usize = 32;
/// INVITEs refused in one turn. More, in a turn of 2,048 datagrams, would leave no time for calls. Further ones by UDP are dropped; those
/// on streams are refused all the same.
const REFUSALS_A_TURN: usize = 128;
/// Inputs of the inbox handled in one turn.
const INPUTS_A_TURN: usize = 256;

/// State of one shard.
pub(crate) struct Shard {
    pub(crate) index: usize,
    pub(crate) sockets: Vec<UdpSocket>,
    pub(crate) connections: Connections,
    pub(crate) endpoint: Endpoint,
    pub(crate) calls: Calls,
    pub(crate) registrar: Registrar,
    pub(crate) peers: Peers,
    pub(crate) directory: Arc<Directory>,
    pub(crate) router: ShardRouter,
    pub(crate) effect_runner: EffectRunner,
    pub(crate) observer: Observer,
    pub(crate) invite_queue: InviteQueue,
    pub(crate) pace: Pace,
    /// True if the last batch of datagrams was full. New INVITEs are queued then.
    pub(crate) pressed: bool,
    /// True if more inputs waited in the inbox than a turn handles. New INVITEs are queued then too: those of streams come by the inbox.
    pub(crate) inbox_pressed: bool,
    /// INVITEs that may still be refused in this turn.
    pub(crate) sheds_left: usize,
    pub(crate) batch: Batch,
    /// Flows that were found broken while receiving or sending. `flush` handles them.
    pub(crate) lost: Vec<Lost>,
    /// Messages received in this turn for other shards, by shard.
    pub(crate) foreign: Vec<Vec<ForwardedMessage>>,
}

impl Shard {
    /// Runs until [`Input::Stop`].
    pub(crate) async fn run(mut self, mut outlet: InboxReceiver) {
        loop {
            let first = match self.pace.rest(clock::now()) {
                Some(rest) => {
                    let is_behind = self.effect_runner.tap.is_behind();
                    pace::gather(rest, is_behind, !self.invite_queue.is_empty());
                    None
                }
                None => self.wait_for_work(&mut outlet).await,
            };

            // A panic outside the handling of a call aborts this turn only.
            let turn = catch_unwind(AssertUnwindSafe(|| self.turn(first, &mut outlet)));
            match turn {
                Ok(ControlFlow::Break(())) => return,
                Ok(ControlFlow::Continue(())) => {}
                Err(_) => self.after_panic(clock::now()),
            }
        }
    }

    /// Waits for an input, a datagram, a timer or a queued INVITE.
    async fn wait_for_work(&self, outlet: &mut InboxReceiver) -> Option<Input> {
        let deadline = self.next_timeout().map(clock::instant);
        let timer = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        // Which of them ends the wait doesn't matter: a turn looks at the inbox, the sockets, the queue and the
        // timers. So a fixed order starves none of them.
        tokio::select! {
            biased;
            // Don't wait while INVITEs are queued.
            () = std::future::ready(()), if !self.invite_queue.is_empty() => None,
            () = readable(&self.sockets) => None,
            input = outlet.recv() => input,
            () = timer => None,
        }
    }

    fn turn(&mut self, first: Option<Input>, outlet: &mut InboxReceiver) -> ControlFlow<()> {
        self.pace.turn(clock::now());
        self.sheds_left = REFUSALS_A_TURN;
        let mut inputs = 0;
        let more = std::iter::from_fn(|| outlet.try_recv().ok());
        for input in first.into_iter().chain(more).take(INPUTS_A_TURN) {
            inputs += 1;
            if matches!(input, Input::Stop) {
                // Inputs before it in this turn, `HangUpAll` for one, may have left messages and facts unsent.
                self.flush();
                self.effect_runner.tap.leave();
                return ControlFlow::Break(());
            }
            self.handle_input(input);
        }

        self.inbox_pressed = inputs == INPUTS_A_TURN;
        for at in 0..self.sockets.len() {
            for _ in 0..BATCHES_A_TURN {
                let count = self.receive(at);
                self.flush();
                if count < udp::BATCH {
                    break;
                }
            }
        }

        // After the sockets: a CANCEL, or the answer that stops a timer, may have waited in a socket's buffer.
        self.handle_queued_invites();
        self.handle_timeouts();
        self.flush();
        self.effect_runner.forget_projected();
        // While the disk hangs no `Synced` comes, so calls that have waited too long are released here.
        if self.effect_runner.unsynced.is_late(clock::now()) {
            self.synced(self.effect_runner.journal.synced_to());
        }

        // New calls are refused once half of the journal's queue is used. The other half is for calls in progress,
        // which have their ends to record.
        self.calls
            .set_overloaded(!self.effect_runner.journal.has_reserve());

        let tap = &mut self.effect_runner.tap;
        self.observer.look(
            &mut self.endpoint,
            &self.calls,
            &self.router,
            self.index,
            clock::now(),
            || {
                tap.rest();
                memory::give_back();
            },
        );

        ControlFlow::Continue(())
    }

    fn next_timeout(&self) -> Option<Moment> {
        let moments = [
            self.endpoint.next_timeout(),
            self.calls.next_timeout(),
            self.peers.next_timeout(),
            self.observer.next_look(),
        ];
        moments.into_iter().flatten().min()
    }

    fn receive(&mut self, at: usize) -> usize {
        let now = clock::now();
        // Taken out, because its datagrams are borrowed while `self` handles them.
        let mut batch = std::mem::take(&mut self.batch);
        let received =
            self.sockets[at].receive_batch(&mut batch, &mut self.lost, now, clock::system());
        let count = match received {
            Ok(count) => count,
            Err(error) => {
                tracing::warn!(%error, socket = ?self.sockets[at], "cannot receive");
                0
            }
        };

        let view = self.directory.load();
        // A full batch means that more datagrams wait.
        self.pressed = count == udp::BATCH;
        self.pace.received(count);
        for datagram in batch.datagrams() {
            self.receive_message(
                &view,
                datagram.flow,
                datagram.octets,
                Framing::Datagram,
                datagram.received_at,
                now,
            );
        }

        self.batch = batch;
        self.forward();
        count
    }

    fn receive_message(
        &mut self,
        view: &Arc<View>,
        flow: Flow,
        octets: &[u8],
        framing: Framing,
        received_at: Moment,
        now: Moment,
    ) {
        // Keep-alive: line ends only (RFC 5626 §3.5.1), or the zero octets that some phones send.
        if octets
            .iter()
            .all(|octet| matches!(octet, b'\r' | b'\n' | 0))
        {
            return;
        }

        let read = lex(octets, framing);
        let shard = self.router.shard_for_read(&read).unwrap_or(self.index);
        if shard != self.index {
            // A copy, since the next receive reuses the batch.
            return self.foreign[shard].push(ForwardedMessage {
                flow,
                octets: octets.into(),
                received_at,
            });
        }

        match read {
            Ok(message) => self.admit(view, flow, message, received_at, now),
            Err(malformed) => self.handle_malformed(&malformed, flow, octets, now),
        }
    }

    /// Handles a message that can't be read. A response is traced, since its call waits for one.
    fn handle_malformed(
        &mut self,
        malformed: &Malformed<'_>,
        flow: Flow,
        octets: &[u8],
        now: Moment,
    ) {
        if malformed.response.is_some() {
            self.effect_runner.tap.note(now, flow, false, octets);
        }
        self.endpoint.receive_malformed(malformed, &flow);
        self.handle_events(now);
    }

    /// Handles a message of this shard. `fate` is that of a new INVITE; every other message is served.
    pub(super) fn handle_message(
        &mut self,
        view: &Arc<View>,
        flow: Flow,
        message: Message<'_>,
        fate: Fate,
        now: Moment,
    ) {
        // The shard that received a forwarded message neither counts nor traces it, so it appears once.
        self.observer.received(&message);
        self.effect_runner.tap.note(now, flow, false, message.raw());
        // RFC 3261 §9.2: a CANCEL without a matching transaction gets 481. The endpoint has none for an INVITE that
        // still waits, so it mustn't see this CANCEL.
        if self.cancel_waiting(flow, &message, now) {
            return;
        }

        let Self {
            endpoint,
            calls,
            peers,
            registrar,
            ..
        } = self;

        let work = catch_unwind(AssertUnwindSafe(|| {
            let received = endpoint.receive_message(message, flow, now);
            if let Received::Response { owner, message, .. } = &received
                && Peers::owns(*owner)
            {
                return peers.handle_response(endpoint, *owner, message, now);
            }

            if let Received::Request(request) = &received
                && request.method() == Method::Register
            {
                return registrar.handle(endpoint, view, flow, request, now);
            }

            if let Received::Request(request) = &received {
                // Only requests without a transaction come here. The endpoint has handled the retransmission of an
                // accepted INVITE by its transaction, and `fate` doesn't apply to it.
                match fate {
                    Fate::Served => {}
                    Fate::Shed => return calls.shed(endpoint, flow, request),
                    Fate::Canceled => {
                        // RFC 3261 §9.2: the INVITE gets 487. It is stateless, as the 200 to the CANCEL was, since
                        // nothing is known of the sender.
                        let terminated = Response::bare(487);
                        return endpoint.respond_stateless(request, &flow, &terminated);
                    }
                }
            }

            calls.handle(endpoint, view, flow, received, now);
        }));

        if work.is_err() {
            self.after_panic(now);
        }

        self.handle_events(now);
    }

    /// Handles a broken flow, including one that its peer had closed before.
    pub(super) fn handle_lost_flow(&mut self, lost: &Lost, now: Moment) {
        let flow = &lost.flow;
        match lost.was_closing {
            true => self.endpoint.handle_flow_closed(flow, now),
            false => self.endpoint.handle_flow_lost(flow, &lost.fault, now),
        }
        self.calls
            .handle_unreachable(&mut self.endpoint, flow, &lost.fault, now);
        // A flow by name means any connection to that peer, so no particular connection has ended.
        if !flow.is_named() {
            self.calls.handle_flow_lost(flow, lost.proved);
        }
        self.peers.handle_flow_lost(&mut self.endpoint, flow, now);
        self.registrar.handle_flow_lost(flow);
    }

    fn handle_input(&mut self, input: Input) {
        let now = clock::now();
        // Not inside the `catch_unwind` below: each message has one of its own, so that a panic loses that message
        // alone.
        if let Input::Messages(messages) = input {
            self.handle_messages(messages, now);
            return self.flush();
        }
        let work = catch_unwind(AssertUnwindSafe(|| self.dispatch_input(input, now)));
        if work.is_err() {
            self.after_panic(now);
        }
        self.handle_events(now);
    }

    /// Handles messages from streams and from other shards.
    fn handle_messages(&mut self, messages: Vec<ForwardedMessage>, now: Moment) {
        let view = self.directory.load();
        for ForwardedMessage {
            flow,
            octets,
            received_at,
        } in messages
        {
            match lex(&octets, framing(flow)) {
                Ok(message) => self.admit(&view, flow, message, received_at, now),
                Err(malformed) => self.handle_malformed(&malformed, flow, &octets, now),
            }
        }
    }

    /// Handles inputs that aren't messages: results of effects, and requests from outside.
    fn dispatch_input(&mut self, input: Input, now: Moment) {
        let Self {
            endpoint,
            calls,
            peers,
            ..
        } = self;

        match input {
            Input::Messages(messages) => self.handle_messages(messages, now),
            Input::Member(invite) => self.handle_member(*invite, now),
            Input::Closing(flow, proved) => self.handle_closing(flow, proved),
            Input::Lost(lost) => self.handle_lost_flow(&lost, now),

            Input::Resolved(call, found) => calls.handle_resolved(endpoint, call, found, now),
            Input::Hop(wanted, targets) => calls.handle_hop(endpoint, &wanted, targets, now),
            Input::Contact(call, contact) => calls.handle_contact(endpoint, call, contact, now),
            // Media may have come while the report waited.
            Input::MediaSilent(call) if !self.effect_runner.is_silent(call) => {}
            Input::MediaSilent(call) => calls.handle_media_silent(endpoint, call, now),
            Input::MediaHeard(call) => calls.handle_media_heard(endpoint, call, now),

            Input::Bot(call, dialled) => {
                let (bot, dialled) = match *dialled {
                    Ok(DialledBot { bot, address }) => (Some(bot), Ok(address)),
                    Err(failure) => (None, Err(failure)),
                };
                let is_wanted = calls.handle_bot(endpoint, call, dialled, now);
                // If the call no longer wants the bot, it is dropped here, which closes its connection.
                if let Some(bot) = bot.filter(|_| is_wanted) {
                    self.effect_runner.attach_bot(call, bot);
                }
            }

            Input::BotClosed(call, how) => calls.handle_bot_closed(endpoint, call, how, now),
            Input::MediaDigit(call, digit) => {
                let view = self.directory.load();
                calls.handle_media_digit(endpoint, &view, call, digit, now);
            }
            Input::Played(call, serial) => calls.handle_played(endpoint, call, serial, now),
            Input::HandOff(call) => {
                let view = self.directory.load();
                calls.handle_hand_off(endpoint, &view, call, now);
            }
            Input::Spoken(call) => calls.handle_spoken(endpoint, call, now),
            Input::MediaFailed(call) => {
                self.observer.panicked();
                calls.hang_up(endpoint, call, Reason::Internal, now);
            }

            Input::Inquire(inquiry) => peers.ask(endpoint, inquiry, now),
            Input::RegisterTrunks(wanted) => peers.register_trunks(endpoint, wanted, now),
            Input::Registrar(trunk, targets) => {
                peers.handle_resolved(endpoint, trunk, targets, now);
            }
            Input::Synced(position) => self.synced(position),
            Input::Gone(transport, address) => calls.suspect(transport, address, now),

            // The API has waited in vain, and takes the call's code back.
            Input::Verify { begun, .. } if begun.swap(true, Ordering::AcqRel) => {}
            Input::Verify {
                slot, asked, done, ..
            } => {
                let view = self.directory.load();
                answer(done, calls.verify(endpoint, &view, slot, &asked, now));
            }

            // Answered by the effect runner, once the call's first fact is on disk.
            Input::Place(request) => {
                let view = self.directory.load();
                let place = |slot, order: &_| calls.place(endpoint, &view, slot, order, now);
                self.effect_runner.promised.extend(request.begin(place));
            }
            Input::Transfer { call, ask, done } => {
                let view = self.directory.load();
                answer(done, calls.transfer(endpoint, &view, call, ask, now));
            }
            Input::Hold { call, wanted, done } => {
                answer(done, calls.hold(endpoint, call, wanted, now));
            }
            Input::HangUp { call, by, done } => {
                let was_up = calls.hang_up_by_id(endpoint, call, by, now);
                answer(done, was_up);
            }
            Input::Ping(done) => answer(done, ()),

            Input::HangUpAll(reason) => calls.hang_up_all(endpoint, reason, now),
            Input::Drain => calls.drain(),
            Input::LeaveCarriers(moved) => peers.leave(endpoint, &moved, now),
            // Handled by `turn`, which ends the shard.
            Input::Stop => {}
        }
    }

    /// Handles a connection that its peer closes.
    fn handle_closing(&mut self, flow: Flow, proved: u32) {
        // Half of the connection is closed: our answers still leave by it, new requests take another one.
        self.endpoint.handle_flow_closing(&flow);
        if !flow.is_named() {
            self.connections.retire(flow.connection);
            self.calls.handle_flow_lost(&flow, proved);
            self.registrar.handle_flow_lost(&flow);
        }
    }

    fn handle_timeouts(&mut self) {
        let now = clock::now();
        // The endpoint fires a bounded number of timers at a time, which bounds what waits to be sent.
        loop {
            self.endpoint.handle_timeout(now);
            self.handle_events(now);
            if self.endpoint.next_timeout().is_none_or(|due| due > now) {
                break;
            }
            self.flush();
        }

        let Self {
            endpoint,
            calls,
            peers,
            ..
        } = self;
        let work = catch_unwind(AssertUnwindSafe(|| {
            calls.handle_timeout(endpoint, now);
            peers.handle_timeout(endpoint, now);
        }));

        if work.is_err() {
            self.after_panic(now);
        }

        self.handle_events(now);
    }

    /// Handles the endpoint's events, then carries out the effects of registrar, peers and calls.
    pub(super) fn handle_events(&mut self, now: Moment) {
        let Self {
            endpoint,
            calls,
            peers,
            ..
        } = self;

        while let Some(event) = endpoint.poll_event() {
            if catch_unwind(AssertUnwindSafe(|| {
                if !peers.handle_event(endpoint, &event, now) {
                    calls.handle_event(endpoint, event, now);
                }
            }))
            .is_err()
            {
                calls.abort_current(endpoint, now);
                self.observer.panicked();
            }
        }

        // A connection whose peer is known gives way to no other when there are too many.
        while let Some(connection) = endpoint.poll_proven_connection() {
            self.connections.prove(connection);
        }

        for effect in self.registrar.effects() {
            self.effect_runner.run_registrar_effect(effect, now);
        }

        for effect in self.peers.effects() {
            self.effect_runner
                .run_peer_effect(effect, &self.router, now);
        }

        self.effect_runner
            .carry_out(&mut self.calls, &mut self.endpoint, &mut self.observer, now);
    }

    /// Ends the call that was being handled; all others go on.
    pub(super) fn after_panic(&mut self, now: Moment) {
        self.observer.panicked();
        self.calls.abort_current(&mut self.endpoint, now);
    }
}

pub(super) const fn framing(flow: Flow) -> Framing {
    match flow.transport {
        Transport::Udp => Framing::Datagram,
        Transport::Tcp | Transport::Tls => Framing::Stream,
    }
}

/// Sends a result to the requester, which may have given up.
fn answer<T>(done: oneshot::Sender<T>, answer: T) {
    let _ = done.send(answer);
}

/// Waits until one of the sockets is readable.
async fn readable(sockets: &[UdpSocket]) {
    let mut waits: Vec<_> = sockets
        .iter()
        .map(|socket| Box::pin(socket.readable()))
        .collect();
    std::future::poll_fn(|context| {
        for wait in &mut waits {
            if wait.as_mut().poll(context).is_ready() {
                return std::task::Poll::Ready(());
            }
        }
        std::task::Poll::Pending
    })
    .await;
}
