//! Requests that we send (RFC 3261 §8.1, §17.1), CANCEL (§9.1) and the ACK of a 2xx (RFC 3261 §13.2.2.4). A request too large for a
//! datagram is printed in its shortest form (§18.1.1); the sender decides which transport carries it.

use crate::fault::Fault;
use crate::flow::{Flow, Transport};
use crate::moment::Moment;
use crate::slot::{Branch, LoopKey, Slot, user_of};
use crate::transaction::client_invite::ClientInvite;
use crate::transaction::client_other::{ClientOther, ClientTimeout, ResponseEffect};
use crate::transaction::io::{Io, MachineContext};
use crate::transaction::sketch::IdentifyingHeaders;
use crate::transaction::table::Entry;
use crate::transaction::timer::{Timer, Tx};
use crate::wire::compact::{LARGEST_DATAGRAM, compact};
use crate::wire::{HeaderName, Malformed, Message, Method, UnreadableResponse, print};

use super::budget::MOST_FOR_ONE;
use super::machines::Client;
use super::sent_by::{self, SentBy};
use super::{ClientTx, Endpoint, Event, LargeRequest, Owner, Received, Request, TableFull};

/// Most octets that the endpoint adds to a request, not counting the method, the URI and this host's sent-by in Via: the rest of the
/// start line and of Via, and Content-Length.
const ADDED: usize = 110;

/// Returns the parts by which we recognise our INVITE if it loops back.
fn loop_key<'a>(request: &Request<'a>, known: &IdentifyingHeaders<'a>) -> LoopKey<'a> {
    LoopKey {
        user: user_of(request.uri),
        from_tag: known.from_tag.unwrap_or_default(),
        call_id: known.call_id,
        cseq: known.cseq,
    }
}

/// An entry's machine and the context it runs in.
fn parts<'a>(
    tx: ClientTx,
    entry: &'a mut Entry<Client>,
    shared: &'a mut MachineContext,
    now: Moment,
) -> (&'a mut Client, Io<'a>) {
    let flow = entry.flow();
    let Entry {
        running, machine, ..
    } = entry;
    (
        machine,
        Io {
            tx: Tx::Client(tx),
            flow,
            now,
            running,
            shared,
        },
    )
}

impl Endpoint {
    /// Sends a request in a new transaction. The endpoint adds its Via, with the branch. An ACK has no
    /// transaction: send it with [`Endpoint::ack`].
    ///
    /// # Errors
    /// The table of client transactions is full; nothing was sent.
    pub fn request(
        &mut self,
        flow: Flow,
        request: &Request<'_>,
        owner: Owner,
        now: Moment,
    ) -> Result<ClientTx, TableFull> {
        // Judged before the request is printed, since all that is printed is sent.
        if self.clients.is_full() {
            return Err(TableFull);
        }

        let known = IdentifyingHeaders::read(request.head);
        let slot = self.slot_of(&known);
        let bits = if request.method == Method::Invite {
            let key = loop_key(request, &known);
            self.minter.invite_bits(&key, &mut self.entropy)
        } else {
            self.entropy.bits64()
        };

        let branch = self.minter.branch_of(slot, bits);
        let printed = self.print_request(flow, request, &branch);
        let machine = if request.method == Method::Invite {
            Client::Invite(ClientInvite::new(printed.into()))
        } else if flow.transport.is_reliable() {
            // On a stream such a request is never sent again, so nothing of it is kept.
            Client::Other(ClientOther::new(request.method, Box::default()))
        } else {
            Client::Other(ClientOther::new(request.method, printed.into()))
        };

        let tx = ClientTx(
            // The random bits suffice as key: a branch that comes back is read only if its MAC is right.
            self.clients
                .insert(u128::from(bits), flow, owner, machine)?,
        );
        self.start_client(tx, now);
        Ok(tx)
    }

    fn start_client(&mut self, tx: ClientTx, now: Moment) {
        let Some(entry) = self.clients.entry_mut(tx.0) else {
            return;
        };

        match parts(tx, entry, &mut self.shared, now) {
            (Client::Invite(invite), mut io) => {
                self.counts.client_invite += 1;
                invite.start(&mut io);
            }
            (Client::Other(other), mut io) => {
                self.counts.client_other += 1;
                other.start(&mut io);
            }
        }
    }

    /// Asks the peer to end our INVITE that it has not answered. `head` holds further header lines of the CANCEL, such as Reason.
    /// The CANCEL waits for a 1xx; a peer that sends none is given up 64*T1 after the INVITE. If no final response comes
    /// within 64*T1 of the CANCEL, the INVITE is given up too. Both are reported as [`Event::Timeout`].
    pub fn cancel(&mut self, tx: ClientTx, head: &[u8], now: Moment) {
        let Some(entry) = self.clients.entry_mut(tx.0) else {
            return;
        };
        if let (Client::Invite(invite), mut io) = parts(tx, entry, &mut self.shared, now) {
            invite.cancel(head, &mut io);
        }
    }

    /// Acknowledges a 2xx of our INVITE. The transaction keeps the ACK while it exists (64*T1), and sends it again for each
    /// repetition of the 2xx with that To-tag, which then is [`Received::Handled`].
    pub fn ack(
        &mut self,
        tx: ClientTx,
        to_tag: &[u8],
        flow: Flow,
        request: &Request<'_>,
        _now: Moment,
    ) {
        self.ack_stateless(flow, request);
        let Some(entry) = self.clients.entry_mut(tx.0) else {
            return;
        };
        // Kept on a stream too: RFC 3261 §13.3.1.4 has the UAS repeat its 2xx until the ACK, over any transport.
        let sent = self.shared.outbox.last();
        if let (Client::Invite(invite), Some(sent)) = (&mut entry.machine, sent) {
            invite.keep_ack(to_tag, flow, sent);
        }
    }

    /// Returns whether our accepted INVITE carried an offer; `None` for every other request.
    pub fn offered(&self, tx: ClientTx) -> Option<bool> {
        match &self.clients.entry(tx.0)?.machine {
            Client::Invite(invite) => invite.offered(),
            Client::Other(_) => None,
        }
    }

    /// Returns the further header lines of the CANCEL of our accepted INVITE; empty if it wasn't cancelled, and for every other request.
    pub fn canceled_with(&self, tx: ClientTx) -> &[u8] {
        match self.clients.entry(tx.0).map(|entry| &entry.machine) {
            Some(Client::Invite(invite)) => invite.canceled_with(),
            Some(Client::Other(_)) | None => b"",
        }
    }

    /// Sends a request without a transaction. The answer to an OPTIONS arrives as [`Received::StrayResponse`]; other answers are dropped.
    pub fn request_once(&mut self, flow: Flow, request: &Request<'_>) {
        self.ack_stateless(flow, request);
    }

    /// Charges the messages behind the first `waiting` ones in the outbox to the source of `message`, which may be forged. Drops them if
    /// they have more than twice the size of `message`, or exceed the source's budget. A stream's source isn't charged, since the
    /// handshake proved it.
    pub fn charge_since(&mut self, waiting: usize, message: &Message<'_>, flow: &Flow) {
        if flow.transport.is_reliable() {
            return;
        }

        let brought = message.raw().len();
        let outbox = &mut self.shared.outbox;
        let size = outbox.size_since(waiting);
        let is_paid_for = size <= brought * MOST_FOR_ONE
            && self.budget.pay(flow.peer.ip(), brought, size, self.latest);
        if !is_paid_for {
            // The ACK isn't lost for good: a real peer repeats its 2xx until an ACK comes (RFC 3261 §13.3.1.4), and each
            // repetition adds to its budget.
            outbox.drop_since(waiting);
            self.stats.withheld += 1;
        }
    }

    /// Number of messages that wait to be sent.
    pub fn waiting(&self) -> usize {
        self.shared.outbox.len()
    }

    /// Sends an ACK without keeping it.
    pub fn ack_stateless(&mut self, flow: Flow, request: &Request<'_>) {
        let slot = self.slot_of(&IdentifyingHeaders::read(request.head));
        let branch = self.minter.branch(slot, &mut self.entropy);
        self.print_request(flow, request, &branch);
    }

    /// Returns true while that transaction is alive, answered or not.
    pub fn client_exists(&self, tx: ClientTx) -> bool {
        self.clients.entry(tx.0).is_some()
    }

    /// The slot of our tag in From, since answers must come to the shard of the dialog; else the slot of the Call-ID.
    fn slot_of(&self, known: &IdentifyingHeaders<'_>) -> Slot {
        match known.from_tag.and_then(|tag| self.minter.read_tag(tag)) {
            Some(key) => key.slot,
            None => self.minter.slot_of_call_id(known.call_id),
        }
    }

    fn print_request(&mut self, flow: Flow, request: &Request<'_>, branch: &Branch) -> &[u8] {
        self.write_via(&flow, branch);
        let Request {
            token,
            uri,
            head,
            body,
            ..
        } = *request;

        let via = &self.via;
        let printed = self
            .shared
            .outbox
            .print(flow, |out| print::request(out, token, uri, via, head, body))
            .len();
        if printed > LARGEST_DATAGRAM && !flow.transport.is_reliable() {
            self.shorten_last(&flow);
        }

        self.shared.outbox.last().unwrap_or_default()
    }

    /// Our Via on a flow.
    pub(super) fn write_via(&mut self, flow: &Flow, branch: &Branch) {
        let transport = flow.transport;
        let sent_by = sent_by::on(&self.sent_by, flow);

        // RFC 3581 is about UDP; on a stream the answer returns over the same connection.
        let rport = if transport.is_reliable() {
            ""
        } else {
            ";rport"
        };

        let protocol = transport.via_name();
        self.via.clear();
        for part in [
            "SIP/2.0/",
            protocol,
            " ",
            &sent_by,
            ";branch=",
            branch.as_str(),
            rport,
        ] {
            self.via.push_str(part);
        }
    }

    pub(super) fn receive_response<'m>(
        &mut self,
        message: Message<'m>,
        flow: Flow,
        now: Moment,
    ) -> Received<'m> {
        let branch = message
            .top_via()
            .branch
            .and_then(|branch| self.minter.read_branch(branch));
        // All nodes share the secret, so another node's branch can be read too; its bits are no key of this table.
        let branch = branch.filter(|key| key.node == self.minter.node());
        // A second Via means that the response is for another element, which wants it forwarded (RFC 3261 §8.1.3.3).
        let forwarded = message.elements(HeaderName::Via).nth(1).is_some();
        let Some(branch) = branch.filter(|_| !forwarded) else {
            return self.drop_message();
        };
        let Some(tx) = self.clients.find(u128::from(branch.bits)).map(ClientTx) else {
            return self.stray(message);
        };
        let Some(entry) = self.clients.entry(tx.0) else {
            return Received::Handled;
        };

        // Anyone who has seen the request knows its branch. An answer has to come from where the request went (RFC 3261 §18.2.2, RFC 3581 §4).
        let (sent, owner) = (entry.flow(), entry.owner);
        if !sent.transport.admits(flow.transport) {
            self.stats.less_secure += 1;
            return Received::Handled;
        }
        if !sent.is_with(&flow) {
            return Received::ForeignResponse { owner, tx, message };
        }
        self.accept_response(tx, message, now)
    }

    /// Reports a response that can't be read to the owner of its request, if it came from where the request went.
    pub(super) fn receive_unreadable(
        &mut self,
        malformed: &Malformed<'_>,
        response: &Message<'_>,
        flow: &Flow,
    ) {
        let branch = response.top_via().branch;
        let branch = branch.and_then(|branch| self.minter.read_branch(branch));
        let branch = branch.filter(|key| key.node == self.minter.node());
        let tx = branch.and_then(|key| self.clients.find(u128::from(key.bits)));
        let Some((tx, entry)) = tx.and_then(|tx| Some((tx, self.clients.entry(tx)?))) else {
            return;
        };

        let sent = entry.flow();
        if entry.machine.is_answered()
            || !sent.transport.admits(flow.transport)
            || !sent.is_with(flow)
        {
            return;
        }
        self.events.push_back(Event::Unreadable {
            tx: ClientTx(tx),
            owner: entry.owner,
            response: UnreadableResponse {
                status: response.status(),
                fault: malformed.fault,
                line: malformed.line,
            },
        });
    }

    /// Handles a response to that request, whatever its source.
    pub fn accept_response<'m>(
        &mut self,
        tx: ClientTx,
        message: Message<'m>,
        now: Moment,
    ) -> Received<'m> {
        let Some(entry) = self.clients.entry_mut(tx.0) else {
            return Received::Handled;
        };

        let owner = entry.owner;
        let method = message.method();
        let heard = match parts(tx, entry, &mut self.shared, now) {
            (Client::Invite(invite), mut io) if method == Method::Invite => {
                invite.handle_response(&message, &mut io)
            }
            // A CANCEL shares its INVITE's branch (RFC 3261 §17.1.3). The user waits for the INVITE's own final response.
            (Client::Invite(invite), mut io) if method == Method::Cancel => {
                invite.handle_cancel_response(message.status(), &mut io);
                return Received::Handled;
            }
            (Client::Other(other), mut io) if method == other.method() => {
                other.handle_response(message.status(), &mut io)
            }
            // RFC 3261 §17.1.3: a response matches only if its CSeq names the method of the request.
            (Client::Invite(_) | Client::Other(_), _) => return self.drop_message(),
        };

        match heard {
            ResponseEffect::New => Received::Response { tx, owner, message },
            ResponseEffect::Last => {
                self.end_client(tx);
                Received::Response { tx, owner, message }
            }
            ResponseEffect::Stray => Received::StrayResponse(message),
            ResponseEffect::Absorbed => {
                self.stats.retransmissions_received += 1;
                Received::Handled
            }
        }
    }

    /// Handles a response with our branch but without a transaction. A 2xx to an INVITE has set up a call, which the user must end. The
    /// 2xx may come from any host that knows the branch, which never expires: [`Endpoint::charge_since`] bounds the octets that we send
    /// because of it.
    fn stray<'m>(&mut self, message: Message<'m>) -> Received<'m> {
        let sets_up = message.method() == Method::Invite && (200..300).contains(&message.status());
        if sets_up || message.method() == Method::Options {
            Received::StrayResponse(message)
        } else {
            self.drop_message()
        }
    }

    pub(super) fn client_timeout(&mut self, tx: ClientTx, timer: Timer, now: Moment) {
        let Some(entry) = self.clients.entry_mut(tx.0) else {
            return;
        };

        let owner = entry.owner;
        let fired = match parts(tx, entry, &mut self.shared, now) {
            (Client::Invite(invite), mut io) => invite.handle_timeout(timer, &mut io),
            (Client::Other(other), mut io) => other.handle_timeout(timer, &mut io),
        };

        match fired {
            ClientTimeout::Waits => {}
            ClientTimeout::Ended => self.end_client(tx),
            ClientTimeout::TimedOut => {
                self.end_client(tx);
                self.events.push_back(Event::Timeout { tx, owner });
            }
        }
    }

    /// Ends each transaction that has no final response yet, since its transport has failed (RFC 3261 §17.1.4). The answered ones end by
    /// their own Timer D, K or M.
    ///
    /// A request sent by "a connection to that peer" has no connection number: any connection may have carried it.
    pub(super) fn fail_clients(&mut self, lost: &Flow, fault: &Fault) {
        self.fail_clients_on(lost, fault);
        if lost.connection != 0 {
            let any = Flow {
                connection: 0,
                ..*lost
            };
            self.fail_clients_on(&any, fault);
        }
    }

    /// Fails the requests sent on this flow alone; spares those that any connection to the peer may carry.
    pub(super) fn fail_clients_on(&mut self, lost: &Flow, fault: &Fault) {
        for handle in self.clients.on_flow(lost) {
            let Some(entry) = self.clients.entry(handle) else {
                continue;
            };
            // RFC 3261 §18.2.2: if the connection is no longer open, "the server SHOULD open a connection" for the response. The user's
            // deadline ends the wait for a peer that doesn't. Its CANCEL takes another connection: any to the peer over TCP, one that proves the
            // same name over TLS. Without a name nothing could take the CANCEL there.
            let flow = entry.flow();
            let has_another = flow.transport == Transport::Tcp || flow.is_named();
            let is_closed = *fault == Fault::Closed && has_another;
            if is_closed && entry.machine.outlives_connection() {
                if flow.connection != 0 && flow.transport == Transport::Tcp {
                    let any = Flow {
                        connection: 0,
                        ..flow
                    };
                    self.clients.move_to(handle, any);
                }
                continue;
            }
            // An answered transaction has only repetitions left to absorb, and its user knows the outcome.
            if !entry.machine.is_answered() {
                let (tx, owner) = (ClientTx(handle), entry.owner);
                self.end_client(tx);
                let fault = fault.clone();
                self.events
                    .push_back(Event::TransportError { tx, owner, fault });
            }
        }
    }

    fn end_client(&mut self, tx: ClientTx) {
        let Some(entry) = self.clients.remove(tx.0) else {
            return;
        };
        self.shared.stop(entry.running);
        match entry.machine {
            Client::Invite(_) => self.counts.client_invite -= 1,
            Client::Other(_) => self.counts.client_other -= 1,
        }
    }

    /// Takes a peer that was sent a request too large for UDP. Each peer is returned once.
    pub fn poll_large_request(&mut self) -> Option<LargeRequest> {
        self.large.pop_unreported()
    }

    /// Returns true if a request is too large for a datagram on that flow, even in its shortest form.
    pub fn is_too_large(&mut self, flow: &Flow, request: &Request<'_>) -> bool {
        let Request {
            token,
            uri,
            head,
            body,
            ..
        } = *request;
        let sent_by = self.sent_by.get(usize::from(flow.listener));
        let given = token.len() + uri.len() + head.len() + body.len();
        let at_most = given + sent_by.map_or(0, SentBy::longest) + ADDED;
        // Judged by an upper bound first, since most requests are far smaller and needn't be printed for it.
        if flow.transport.is_reliable() || at_most <= LARGEST_DATAGRAM {
            return false;
        }

        // All branches have the same length.
        let branch = self.minter.branch_of(Slot::default(), 0);
        self.write_via(flow, &branch);
        // Printed aside: what is in the outbox is sent.
        let (mut printed, mut shortest) = (Vec::new(), Vec::new());
        print::request(&mut printed, token, uri, &self.via, head, body);
        compact(&printed, &mut shortest);
        shortest.len() > LARGEST_DATAGRAM
    }

    /// Prints the last request in its shortest form.
    fn shorten_last(&mut self, flow: &Flow) {
        let shortest = self.shared.outbox.rewrite_last(compact).len();
        // RFC 3261 §18.1.1 wants a stream for so large a request. Only the code that sends it knows whether the peer can be
        // reached by one ([`Endpoint::is_too_large`]). Here the request leaves as a datagram, in fragments, and is counted.
        if shortest > LARGEST_DATAGRAM {
            self.large.note(flow.peer, shortest);
        }
    }
}
