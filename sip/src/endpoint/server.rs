//! Requests that we answer (RFC 3261 §8.2, §17.2), and the tombstones of finished transactions (RFC 6026 §7.1).

use std::net::SocketAddr;

use crate::flow::{Flow, Transport};
use crate::moment::Moment;
use crate::transaction::io::{Io, MachineContext};
use crate::transaction::key::{self, server_key};
use crate::transaction::server_invite::{AckEffect, InviteTimeout, ServerInvite};
use crate::transaction::server_other::{ServerFate, ServerOther};
use crate::transaction::sketch::RequestSketch;
use crate::transaction::table::Entry;
use crate::transaction::timer::{Timer, Tx};
use crate::transaction::tombstone::{ToTag, Tombstone, TombstoneLifetime};
use crate::wire::compact::{compact_answer, compact_challenge};
use crate::wire::message::RequestKeys;
use crate::wire::{Message, Method, print};

use super::budget::MOST_FOR_ONE;
use super::machines::{Machine, Server};
use super::reply_flow::reply_flow;
use super::{Endpoint, Event, InviteKey, Owner, Received, Response, ServerTx, TableFull};

/// An entry's machine and the context it runs in.
pub(super) fn parts<'a>(
    tx: ServerTx,
    entry: &'a mut Entry<Server>,
    shared: &'a mut MachineContext,
    now: Moment,
) -> (&'a mut Server, Io<'a>) {
    let flow = entry.flow();
    let Entry {
        running, machine, ..
    } = entry;
    (
        machine,
        Io {
            tx: Tx::Server(tx),
            flow,
            now,
            running,
            shared,
        },
    )
}

impl Endpoint {
    /// Accepts a request that [`Endpoint::receive`] has handed out. An INVITE is answered with 100 at once, and then waits without
    /// limit for the user's final response. Any other request must be answered within 64*T1, when its sender gives up: then its
    /// transaction ends without an answer.
    ///
    /// # Errors
    /// The table of server transactions is full: answer 503 with [`Endpoint::respond_stateless`]. A BYE finds room in a reserve.
    pub fn accept(
        &mut self,
        request: &Message<'_>,
        flow: Flow,
        owner: Owner,
        now: Moment,
    ) -> Result<ServerTx, TableFull> {
        let tx = self.accept_unverified(request, flow, owner, now)?;
        self.note_proven(&reply_flow(request, flow), now);
        Ok(tx)
    }

    pub(super) fn accept_unverified(
        &mut self,
        request: &Message<'_>,
        flow: Flow,
        owner: Owner,
        now: Moment,
    ) -> Result<ServerTx, TableFull> {
        // A BYE ends a call, and so makes room: it may use the places that are kept back from all others.
        let is_full = match request.method() == Method::Bye {
            true => self.servers.is_full(),
            false => self.servers.len() >= self.max_servers,
        };
        if is_full {
            return Err(TableFull);
        }

        let flow = reply_flow(request, flow);

        let RequestKeys {
            transaction: key,
            merged,
            ..
        } = key::keys(request, &self.minter);

        let sketch = RequestSketch::of(request, &flow, &mut self.scratch);
        let server = Server {
            merged,
            slot: self.minter.slot_of(request),
            sent_by_port: sent_by_port(request, flow.transport),
            status: 0,
            tag: ToTag::None,
            machine: if request.method() == Method::Invite {
                Machine::Invite(ServerInvite::new(sketch))
            } else {
                Machine::Other(ServerOther::new(sketch))
            },
        };

        let tx = ServerTx(self.servers.insert(key, flow, owner, server)?);
        if merged != 0 {
            self.merged.insert(merged, key);
        }

        self.start_server(tx, now);
        Ok(tx)
    }

    /// Notes the sender of a request that the user has accepted: it isn't forged. Over UDP its address may be sent more, and a connection no longer
    /// gives way to others.
    pub(super) fn note_proven(&mut self, flow: &Flow, now: Moment) {
        if !flow.transport.is_reliable() {
            self.budget.prove(flow.peer.ip(), now);
        } else if self.proven.last() != Some(&flow.connection) {
            // Requests that follow each other on one connection make one entry: the list is taken only after a turn.
            self.proven.push(flow.connection);
        }
    }

    fn start_server(&mut self, tx: ServerTx, now: Moment) {
        let Some(entry) = self.servers.entry_mut(tx.0) else {
            return;
        };
        let (server, mut io) = parts(tx, entry, &mut self.shared, now);

        match &mut server.machine {
            Machine::Invite(invite) => {
                self.counts.server_invite += 1;
                self.stats.responses_sent[1] += 1;
                invite.start(&self.server, &mut io);
            }
            Machine::Other(other) => {
                self.counts.server_other += 1;
                other.start(&mut io);
            }
        }
    }

    /// Sends a response. A 2xx to an INVITE is sent again (T1 doubling to T2) until [`Endpoint::acknowledged`]; after
    /// 64*T1 without that call: [`Event::NoAck`]. Does nothing after a final response.
    ///
    /// The final response to any other request ends its transaction if the request came on a stream, or if `head` and `body` are
    /// empty: a tombstone can print such a response again for a retransmission. Only a larger response is kept.
    pub fn respond(&mut self, tx: ServerTx, response: &Response<'_>, now: Moment) {
        let Some(entry) = self.servers.entry_mut(tx.0) else {
            return;
        };

        let (server, mut io) = parts(tx, entry, &mut self.shared, now);
        let Server {
            slot,
            status,
            tag,
            machine,
            ..
        } = server;
        if response.status > 100 && machine.wants_tag() {
            match response.to_tag {
                Some(chosen) => *tag = ToTag::new(chosen, &self.minter),
                None if *tag == ToTag::None => {
                    *tag = ToTag::own(*slot, &mut self.entropy);
                }
                None => {}
            }
        }

        let sent = io.shared.outbox.len();
        let fate = tag.with(&self.minter, |tag| match machine {
            Machine::Invite(invite) => {
                invite.respond(response, tag, &self.server, &mut io);
                ServerFate::Alive
            }
            Machine::Other(other) => other.respond(response, tag, &self.server, &mut io),
        });
        if io.shared.outbox.len() > sent {
            *status = response.status;
            self.count_response(response.status);
        }

        self.settle(tx, fate, now);
    }

    /// Chooses the To-tag of all answers to a request that has none.
    pub fn set_tag(&mut self, tx: ServerTx, tag: &[u8]) {
        if let Some(entry) = self.servers.entry_mut(tx.0) {
            entry.machine.tag = ToTag::new(tag, &self.minter);
        }
    }

    /// Answers a request without a transaction. Without `to_tag` the To-tag is [`Minter::stateless_tag`], so
    /// that the ACK of an INVITE is absorbed. An ACK is never answered.
    ///
    /// [`Minter::stateless_tag`]: crate::slot::Minter::stateless_tag
    pub fn respond_stateless(
        &mut self,
        request: &Message<'_>,
        flow: &Flow,
        response: &Response<'_>,
    ) {
        if request.method() == Method::Ack {
            return;
        }
        let is_tagged = response.to_tag.is_some() || request.to_tag().is_some();
        let ours =
            (response.status > 100 && !is_tagged).then(|| self.minter.stateless_tag(request));
        let tag = response.to_tag.or(ours.as_deref());
        self.print_response(request, *flow, response, tag);
    }

    /// Answers every further OPTIONS from an address that somebody has entered as a peer's: monitors send hundreds a second.
    pub fn expect_probes(&mut self, flow: &Flow) {
        if !flow.transport.is_reliable() {
            self.budget.expect_probes(flow.peer.ip(), self.latest);
        }
    }

    fn print_response(
        &mut self,
        request: &Message<'_>,
        flow: Flow,
        response: &Response<'_>,
        tag: Option<&[u8]>,
    ) {
        let Response {
            status,
            reason,
            head,
            body,
            ..
        } = *response;

        let flow = reply_flow(request, flow);
        let server = &self.server;
        self.shared.outbox.print(flow, |out| {
            print::response(out, request, &flow, status, reason, tag, server, head, body);
        });
        if flow.transport.is_reliable() || self.is_paid_for(request, &flow, status) {
            self.count_response(status);
        }
    }

    /// Keeps the answer printed last if it fits the budget of its source; takes it back otherwise.
    fn is_paid_for(&mut self, request: &Message<'_>, flow: &Flow, status: u16) -> bool {
        let brought = request.raw().len();
        let most = brought * MOST_FOR_ONE;
        let outbox = &mut self.shared.outbox;
        let mut answer = outbox.last().map_or(0, <[u8]>::len);
        if answer > most {
            answer = outbox.rewrite_last(compact_answer).len();
        }
        // The smallest INVITE or REGISTER that is complete gets a challenge, or else nobody behind it could ever log in.
        if answer > most && status == 401 {
            answer = outbox.rewrite_last(compact_challenge).len();
        }

        let (peer, now) = (flow.peer.ip(), self.latest);
        let is_owed = request.method() == Method::Options && self.budget.owes_probes(peer, now);
        let is_paid_for =
            answer <= most && (is_owed || self.budget.pay(peer, brought, answer, now));

        if !is_paid_for {
            self.shared.outbox.drop_last();
            self.stats.withheld += 1;
        }
        is_paid_for
    }

    fn count_response(&mut self, status: u16) {
        if let Some(count) = self.stats.responses_sent.get_mut(usize::from(status / 100)) {
            *count += 1;
        }
    }

    /// Stops the retransmission of an INVITE's 2xx, whose ACK has come.
    pub fn acknowledged(&mut self, tx: ServerTx) {
        let Some(entry) = self.servers.entry(tx.0) else {
            return;
        };
        if let Machine::Invite(invite) = &entry.machine.machine
            && invite.acknowledged()
        {
            self.settle(
                tx,
                ServerFate::Buried(TombstoneLifetime::Patience),
                self.latest,
            );
        }
    }

    /// Returns true while that transaction is alive: unanswered, or its answer still in transit.
    pub fn server_exists(&self, tx: ServerTx) -> bool {
        self.servers.entry(tx.0).is_some()
    }

    fn settle(&mut self, tx: ServerTx, fate: ServerFate, now: Moment) {
        match fate {
            ServerFate::Alive => {}
            ServerFate::Ended => self.end_server(tx),
            ServerFate::Buried(lifetime) => self.bury(tx, lifetime, now),
        }
    }

    fn end_server(&mut self, tx: ServerTx) {
        if let Some(server) = self.take_server(tx) {
            self.merged.remove(server.machine.merged);
        }
    }

    fn bury(&mut self, tx: ServerTx, lifetime: TombstoneLifetime, now: Moment) {
        let Some(entry) = self.take_server(tx) else {
            return;
        };

        let key = entry.key();
        let Server {
            merged,
            status,
            tag,
            ..
        } = entry.machine;

        let yielded =
            self.tombstones
                .raise(Tombstone::new(key, merged, status, tag), lifetime, now);
        if let Some(yielded) = yielded {
            self.merged.remove(yielded.merged);
        }
    }

    fn take_server(&mut self, tx: ServerTx) -> Option<Entry<Server>> {
        let entry = self.servers.remove(tx.0)?;
        self.shared.stop(entry.running);
        match entry.machine.machine {
            Machine::Invite(_) => self.counts.server_invite -= 1,
            Machine::Other(_) => self.counts.server_other -= 1,
        }
        Some(entry)
    }

    pub(super) fn receive_request<'m>(
        &mut self,
        mut message: Message<'m>,
        flow: Flow,
        now: Moment,
    ) -> Received<'m> {
        let key = server_key(&message, &self.minter);
        if let Some(tx) = self.servers.find(key).map(ServerTx) {
            self.answer_again(tx, now);
            return Received::Handled;
        }

        if let Some(tombstone) = self.tombstones.find(key, now) {
            let (status, tag) = (tombstone.status, tombstone.tag.clone());
            self.answer_from_tombstone(&message, flow, status, &tag);
            return Received::Handled;
        }

        let keys = key::of_new(&message, key, &self.minter);
        message.set_keys(keys);
        if keys.merged != 0 && self.merged.is_elsewhere(keys.merged, key) {
            self.respond_stateless(&message, &flow, &Response::bare(482));
            return Received::Handled;
        }

        Received::Request(message)
    }

    fn answer_again(&mut self, tx: ServerTx, now: Moment) {
        self.stats.retransmissions_received += 1;
        let Some(entry) = self.servers.entry_mut(tx.0) else {
            return;
        };
        let (server, mut io) = parts(tx, entry, &mut self.shared, now);
        match &mut server.machine {
            Machine::Invite(invite) => invite.handle_retransmission(&self.server, &mut io),
            Machine::Other(other) => other.handle_retransmission(&mut io),
        }
    }

    /// Answers a retransmission once more; absorbs it if it is an INVITE that was acknowledged (RFC 3261 §17.2.1, RFC 6026 §7.1). A
    /// retransmission may come from another source than the request, so its source's budget is charged as for a stateless answer.
    fn answer_from_tombstone(
        &mut self,
        message: &Message<'_>,
        flow: Flow,
        status: u16,
        tag: &ToTag,
    ) {
        self.stats.retransmissions_received += 1;
        if message.method() == Method::Invite {
            return;
        }
        let flow = reply_flow(message, flow);
        let (minter, server) = (&self.minter, &self.server);
        let outbox = &mut self.shared.outbox;
        tag.with(minter, |tag| {
            outbox.print(flow, |out| {
                print::response(out, message, &flow, status, None, tag, server, b"", b"");
            });
        });
        if flow.transport.is_reliable() || self.is_paid_for(message, &flow, status) {
            self.shared.outbox.count_retransmission();
        }
    }

    pub(super) fn receive_ack<'m>(&mut self, message: Message<'m>, now: Moment) -> Received<'m> {
        let key = server_key(&message, &self.minter);
        if let Some(tx) = self.servers.find(key).map(ServerTx) {
            return self.ack_of(tx, message, now);
        }
        match self
            .tombstones
            .find(key, now)
            .map(|tombstone| tombstone.status)
        {
            // The ACK of a refusal ends here (RFC 3261 §17.2.1).
            Some(300..) => Received::Handled,
            // The ACK of a refusal that was sent without a transaction ends here too.
            None if self.minter.is_stateless_tag(&message) => Received::Handled,
            // The ACK of a 2xx is a transaction of its own: the dialog takes it.
            Some(_) | None => Received::Ack(message),
        }
    }

    /// Handles an ACK with the branch of its INVITE: of a refusal, or of a 2xx by a peer older than RFC 3261.
    fn ack_of<'m>(&mut self, tx: ServerTx, message: Message<'m>, now: Moment) -> Received<'m> {
        let Some(entry) = self.servers.entry_mut(tx.0) else {
            return Received::Handled;
        };
        let (server, io) = parts(tx, entry, &mut self.shared, now);
        let acked = match &mut server.machine {
            Machine::Invite(invite) => invite.handle_ack(&io),
            Machine::Other(_) => AckEffect::Absorbed(ServerFate::Alive),
        };

        match acked {
            AckEffect::Passed => Received::Ack(message),
            AckEffect::Absorbed(fate) => {
                self.settle(tx, fate, now);
                Received::Handled
            }
        }
    }

    /// Answers a CANCEL hop by hop: 200 with the To-tag of its INVITE if that is known, else 481 (RFC 3261 §9.2). A CANCEL can't be
    /// challenged, so it has to come from where its INVITE came from (RFC 3261 §22.1).
    pub(super) fn receive_cancel<'m>(
        &mut self,
        message: Message<'m>,
        flow: Flow,
        now: Moment,
    ) -> Received<'m> {
        let key = server_key(&message, &self.minter);
        let Some(tx) = self.servers.find(key).map(ServerTx) else {
            self.cancel_finished(&message, flow, key, now);
            return Received::Handled;
        };
        let Some(entry) = self.servers.entry_mut(tx.0) else {
            return Received::Handled;
        };

        let invited = entry.flow();
        if !invited.is_with(&flow) || !invited.transport.admits(flow.transport) {
            self.respond_stateless(&message, &flow, &Response::bare(481));
            return Received::Handled;
        }

        let owner = entry.owner;
        let Server {
            slot, tag, machine, ..
        } = &mut entry.machine;
        if machine.wants_tag() && *tag == ToTag::None {
            // The 200 to the CANCEL and the INVITE's 487 have the same tag (RFC 3261 §9.2).
            *tag = ToTag::own(*slot, &mut self.entropy);
        }

        let first = match machine {
            Machine::Invite(invite) => invite.cancel(),
            Machine::Other(_) => false,
        };
        let tag = tag.clone();

        self.confirm_cancel(&message, flow, &tag);
        if first {
            Received::Cancel {
                invite: tx,
                owner,
                message,
            }
        } else {
            Received::Handled
        }
    }

    /// Returns the key of an INVITE or of its CANCEL.
    pub fn invite_key(&self, message: &Message<'_>) -> InviteKey {
        InviteKey(server_key(message, &self.minter))
    }

    /// Returns whether an INVITE was accepted, and its transaction or tombstone still exists. An INVITE that wasn't accepted may still
    /// wait outside of the endpoint. Then its CANCEL needs a 200 and the INVITE a 487, both by [`Endpoint::respond_stateless`], which
    /// gives them one To-tag.
    pub fn has_accepted(&self, InviteKey(key): InviteKey, now: Moment) -> bool {
        self.servers.find(key).is_some() || self.tombstones.find(key, now).is_some()
    }

    fn cancel_finished(&mut self, message: &Message<'_>, flow: Flow, key: u128, now: Moment) {
        match self
            .tombstones
            .find(key, now)
            .map(|tombstone| tombstone.tag.clone())
        {
            Some(tag) => self.confirm_cancel(message, flow, &tag),
            None => self.respond_stateless(message, &flow, &Response::bare(481)),
        }
    }

    fn confirm_cancel(&mut self, message: &Message<'_>, flow: Flow, tag: &ToTag) {
        let minter = self.minter.clone();
        tag.with(&minter, |tag| {
            self.print_response(message, flow, &Response::bare(200), tag)
        });
    }

    pub(super) fn server_timeout(&mut self, tx: ServerTx, timer: Timer, now: Moment) {
        let Some(entry) = self.servers.entry_mut(tx.0) else {
            return;
        };

        let owner = entry.owner;
        let (server, mut io) = parts(tx, entry, &mut self.shared, now);
        let expired = match &mut server.machine {
            Machine::Invite(invite) => invite.handle_timeout(timer, &mut io),
            Machine::Other(_) => InviteTimeout::Ended,
        };
        match expired {
            InviteTimeout::Waits => {}
            InviteTimeout::Ended => self.end_server(tx),
            InviteTimeout::NoAck => {
                self.end_server(tx);
                self.events.push_back(Event::NoAck { tx, owner });
            }
            // The tombstone absorbs copies of the INVITE, which would begin another call.
            InviteTimeout::UnprovenNoAck => {
                self.bury(tx, TombstoneLifetime::Patience, now);
                self.events.push_back(Event::NoAck { tx, owner });
            }
        }
    }

    /// Moves responses whose connection is gone to a new one, to the source's address and the port of sent-by
    /// (RFC 3261 §18.2.2). A connection that couldn't be opened isn't tried again by itself.
    pub(super) fn move_servers(&mut self, lost: &Flow, now: Moment) {
        if !lost.transport.is_reliable() || lost.connection == 0 {
            return;
        }

        for handle in self.servers.on_flow(lost) {
            let Some(entry) = self.servers.entry(handle) else {
                continue;
            };
            let mut flow = entry.flow();
            flow.connection = 0;
            flow.peer = SocketAddr::new(flow.peer.ip(), entry.machine.sent_by_port);
            self.servers.move_to(handle, flow);
            let Some(entry) = self.servers.entry_mut(handle) else {
                continue;
            };
            let (server, mut io) = parts(ServerTx(handle), entry, &mut self.shared, now);
            if let Machine::Invite(invite) = &mut server.machine {
                invite.handle_moved(&mut io);
            }
        }
    }
}

fn sent_by_port(request: &Message<'_>, transport: Transport) -> u16 {
    let usual = match transport {
        Transport::Udp | Transport::Tcp => 5060,
        Transport::Tls => 5061,
    };
    request.top_via().port.unwrap_or(usual)
}
