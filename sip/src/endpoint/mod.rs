//! The interface of the protocol: takes messages in, matches transactions, puts out messages and events (RFC 3261 §17, §18).
//!
//! An endpoint serves one shard. It knows no sockets, no clock and no dialogs: flows and moments are inputs. Messages to send wait in
//! [`Endpoint::transmits`], events of a transaction in [`Endpoint::poll_event`]. The endpoint keeps nothing of a request until
//! [`Endpoint::accept`].

mod budget;
mod client;
mod large;
mod machines;
mod merged;
mod receive;
mod reply_flow;
mod sent_by;
mod server;
#[cfg(test)]
mod tests;
mod unproven;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::time::Duration;

use crate::entropy::Entropy;
use crate::fault::Fault;
use crate::flow::Flow;
use crate::moment::Moment;
use crate::slot::Minter;
use crate::transaction::io::{MachineContext, Outbox};
use crate::transaction::table::Table;
use crate::transaction::timer::{FiredTimer, Times};
use crate::transaction::tombstone::Tombstones;
use crate::wheel::Wheel;
use crate::wire::{Message, UnreadableResponse};

pub use crate::transaction::table::{ClientTx, Owner, ServerTx, TableFull};
pub use crate::transaction::timer::Tx;
pub use crate::transaction::{Request, Response};
pub use large::LargeRequest;
pub use sent_by::SentBy;

use budget::Budget;
use large::LargeRequests;
use machines::{Client, Server};
use merged::MergedRequests;

/// Most timers and tombstones that one call of [`Endpoint::handle_timeout`] serves, so that the output stays bounded.
const TIMEOUTS_PER_TURN: usize = 1024;
/// BYEs may have one server transaction more for this many of [`Config::max_transactions`]: a full table must not keep calls from ending.
const RESERVE_FOR_BYE: usize = 16;
/// Most tombstones for each of [`Config::max_transactions`]: a tombstone lives longer than a transaction, and is smaller. A further one
/// replaces an old one.
const TOMBSTONES_PER_TRANSACTION: usize = 4;

/// Configuration of an endpoint, fixed for its life.
#[derive(Clone, Debug)]
pub struct Config {
    /// Mints tags and branches, and recognises them.
    pub minter: Minter,
    /// RFC 3261 §17.1.1.1: the round-trip estimate, 500 ms.
    pub t1: Duration,
    /// The longest interval between retransmissions of anything but an INVITE, 4 s.
    pub t2: Duration,
    /// The longest time that a message stays in the network, 5 s.
    pub t4: Duration,
    /// The value of the Server header of every response; none if empty.
    pub server: String,
    /// `host:port` for our Via, indexed by [`Flow::listener`].
    pub sent_by: Vec<SentBy>,
    /// Most transactions alive on either side. An INVITE that was answered with 2xx stays alive as a client
    /// transaction for 64*T1, so that the table must hold that many seconds' worth of calls. BYEs have a sixteenth more.
    pub max_transactions: usize,
}

/// The transaction of an INVITE, as its CANCEL names it too (RFC 3261 §9.2): a keyed hash.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct InviteKey(pub u128);

/// Outcome of a received message.
#[derive(Debug)]
pub enum Received<'m> {
    /// The endpoint has dealt with the message itself.
    Handled,
    /// A request without a transaction: [`Endpoint::accept`] it, or answer it with
    /// [`Endpoint::respond_stateless`].
    Request(Message<'m>),
    /// The ACK of a 2xx. Once its call is found, call [`Endpoint::acknowledged`].
    Ack(Message<'m>),
    /// A CANCEL, already answered with 200. The INVITE still needs its 487.
    Cancel {
        /// The INVITE.
        invite: ServerTx,
        /// The owner given to [`Endpoint::accept`].
        owner: Owner,
        /// The CANCEL.
        message: Message<'m>,
    },
    /// A response to our request: every provisional and final one, the 2xx of each fork of an INVITE, and each
    /// repetition of a 2xx without a kept [`Endpoint::ack`].
    Response {
        /// The request.
        tx: ClientTx,
        /// The owner given to [`Endpoint::request`].
        owner: Owner,
        /// The response.
        message: Message<'m>,
    },
    /// A response to our request from another IP than the request went to. The endpoint did nothing with it:
    /// call [`Endpoint::accept_response`] if the caller trusts its source.
    ForeignResponse {
        /// The owner given with the request.
        owner: Owner,
        /// The request.
        tx: ClientTx,
        /// The response.
        message: Message<'m>,
    },
    /// A 2xx to our INVITE whose transaction has failed or ended: ACK and BYE are due. Or an answer to an OPTIONS sent by
    /// [`Endpoint::request_once`].
    StrayResponse(Message<'m>),
}

/// Event that no readable message caused: a timer fired, or a flow broke.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// No final response came in time (RFC 3261 §17.1.1.2, §17.1.2.2), not even to a cancelled INVITE (RFC 3261 §9.1).
    Timeout {
        /// The request, which is gone.
        tx: ClientTx,
        /// The owner given with it.
        owner: Owner,
    },
    /// The flow broke before a final response came (RFC 3261 §17.1.4).
    TransportError {
        /// The request, which is gone.
        tx: ClientTx,
        /// The owner given with it.
        owner: Owner,
        /// The transport's error.
        fault: Fault,
    },
    /// A response came that can't be read and was dropped. The request goes on.
    Unreadable {
        /// The request.
        tx: ClientTx,
        /// The owner given with it.
        owner: Owner,
        /// The response.
        response: UnreadableResponse,
    },
    /// No ACK came for a 2xx within 64*T1 (RFC 3261 §13.3.1.4).
    NoAck {
        /// The INVITE, which is gone.
        tx: ServerTx,
        /// The owner given to [`Endpoint::accept`].
        owner: Owner,
    },
}

/// Numbers of transactions and timers that are alive.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// INVITEs received.
    pub server_invite: usize,
    /// Other requests received.
    pub server_other: usize,
    /// INVITEs sent.
    pub client_invite: usize,
    /// Other requests sent.
    pub client_other: usize,
    /// Finished server transactions whose retransmissions are still recognised.
    pub tombstones: usize,
    /// Timers running.
    pub timers: usize,
}

/// Counters since the start.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Messages that the lexer refused.
    pub malformed: u64,
    /// Lines of messages that are no headers and were skipped.
    pub skipped_lines: u64,
    /// Messages that were ignored: responses without a request of ours, requests out of place.
    pub dropped: u64,
    /// Responses that were ignored because they came by a less secure transport than their request.
    pub less_secure: u64,
    /// Repeated requests and responses received.
    pub retransmissions_received: u64,
    /// Messages sent again.
    pub retransmissions_sent: u64,
    /// Answers that were withheld because they were too large for a request from an unverified source.
    pub withheld: u64,
    /// Requests sent by UDP although too large for it in their shortest form.
    pub large_requests: u64,
    /// Responses sent for the first time, by class: index 1 for 1xx to 6 for 6xx.
    pub responses_sent: [u64; 7],
}

/// The transactions of one shard.
#[derive(Debug)]
pub struct Endpoint {
    minter: Minter,
    /// Randomness of tokens.
    entropy: Entropy,
    /// Randomness of decisions, apart from that of tokens ([`Endpoint::chance`]).
    chance: Entropy,
    server: Box<str>,
    sent_by: Vec<SentBy>,
    /// Buffer for the Via of a request.
    via: String,
    /// Buffer for a message from which another is made.
    scratch: Vec<u8>,
    /// Moment of the last input.
    latest: Moment,
    clients: Table<Client>,
    servers: Table<Server>,
    /// Most server transactions of methods other than BYE.
    max_servers: usize,
    tombstones: Tombstones,
    merged: MergedRequests,
    shared: MachineContext,
    large: LargeRequests,
    budget: Budget,
    events: VecDeque<Event>,
    /// Connections on which a request was accepted.
    proven: Vec<u32>,
    counts: Counts,
    stats: Stats,
}

impl Endpoint {
    /// An endpoint without transactions.
    pub fn new(config: Config, mut entropy: Entropy) -> Self {
        let Config {
            minter,
            t1,
            t2,
            t4,
            server,
            sent_by,
            max_transactions,
        } = config;

        let times = Times { t1, t2, t4 };
        let reserve = max_transactions.div_ceil(RESERVE_FOR_BYE);
        let max_tombstones = max_transactions.saturating_mul(TOMBSTONES_PER_TRANSACTION);

        Self {
            budget: Budget::new(&mut entropy),
            chance: entropy.split(),
            entropy,
            server: server.into(),
            sent_by,
            via: String::new(),
            scratch: Vec::new(),
            latest: Moment::default(),
            clients: Table::new(minter.clone(), max_transactions),
            servers: Table::new(minter.clone(), max_transactions + reserve),
            max_servers: max_transactions,
            tombstones: Tombstones::new(times, max_tombstones),
            merged: MergedRequests::default(),
            shared: MachineContext {
                outbox: Outbox::default(),
                wheel: Wheel::new(Moment::default()),
                times,
            },
            large: LargeRequests::default(),
            events: VecDeque::new(),
            proven: Vec::new(),
            counts: Counts::default(),
            stats: Stats::default(),
            minter,
        }
    }

    /// Mints and reads the tokens of this node.
    pub fn minter(&self) -> &Minter {
        &self.minter
    }

    /// Randomness for tokens: tags, branches, Call-IDs, nonces and ids.
    pub fn entropy(&mut self) -> &mut Entropy {
        &mut self.entropy
    }

    /// Randomness for decisions: waits after glare, `Retry-After`, and the spread of timers over time. It is separate from the tokens'
    /// randomness, so that one token more, or two drawn in another order, changes no decision.
    pub fn chance(&mut self) -> &mut Entropy {
        &mut self.chance
    }

    /// Sends the events of that transaction to `owner` from now on.
    pub fn set_owner(&mut self, tx: impl Into<Tx>, owner: Owner) {
        let current = match tx.into() {
            Tx::Client(tx) => self.clients.entry_mut(tx.0).map(|entry| &mut entry.owner),
            Tx::Server(tx) => self.servers.entry_mut(tx.0).map(|entry| &mut entry.owner),
        };
        // A transaction that has ended raises no more events. An event that is queued already keeps its owner.
        if let Some(current) = current {
            *current = owner;
        }
    }

    /// Our `host:port` on that flow's listener, for Via and Contact.
    pub fn sent_by(&self, flow: &Flow) -> Cow<'_, str> {
        sent_by::on(&self.sent_by, flow)
    }

    /// Serves the timers due at `now`, a bounded number of them. While [`Endpoint::next_timeout`] isn't later than `now`, send
    /// the waiting messages and call again.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.latest = now;
        for _ in 0..TIMEOUTS_PER_TURN {
            let Some(FiredTimer { tx, timer }) = self.shared.wheel.pop(now) else {
                break;
            };
            match tx {
                Tx::Client(tx) => self.client_timeout(tx, timer, now),
                Tx::Server(tx) => self.server_timeout(tx, timer, now),
            }
        }

        // Tombstones have no timers on the wheel: there may be four for each transaction, and none of them is urgent.
        for _ in 0..TIMEOUTS_PER_TURN {
            let Some(fallen) = self.tombstones.sweep(now) else {
                break;
            };
            // RFC 3261 §8.2.2.2 refuses merged requests of an ongoing transaction alone. The same headers are a new
            // request again.
            self.merged.remove(fallen.merged);
        }
    }

    /// Returns the moment to call [`Endpoint::handle_timeout`] next.
    pub fn next_timeout(&self) -> Option<Moment> {
        let sweep = self.tombstones.next_sweep();
        self.shared
            .wheel
            .next_deadline()
            .into_iter()
            .chain(sweep)
            .min()
    }

    /// Handles a lost flow: the connection is closed, could not be opened, or on UDP the peer is unreachable. Unanswered requests fail
    /// with [`Event::TransportError`]; responses go over a new connection (RFC 3261 §18.2.2).
    pub fn handle_flow_lost(&mut self, lost: &Flow, fault: &Fault, now: Moment) {
        // A request is its user's to repeat, perhaps to another target. A response can only go back to its peer, so it
        // is moved here.
        self.fail_clients(lost, fault);
        self.move_servers(lost, now);
    }

    /// Handles a connection whose peer sends no more: unanswered requests fail as when it is lost. Answers still leave by it, until
    /// [`Endpoint::handle_flow_closed`].
    pub fn handle_flow_closing(&mut self, closing: &Flow) {
        self.fail_clients(closing, &Fault::Closed);
    }

    /// Handles the end of a connection that was closing. Requests that name this connection fail. Those that any connection to the peer may
    /// carry go on: they have used another one since [`Endpoint::handle_flow_closing`].
    pub fn handle_flow_closed(&mut self, closed: &Flow, now: Moment) {
        self.fail_clients_on(closed, &Fault::Closed);
        self.move_servers(closed, now);
    }

    /// Takes the next event, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes the number of a connection on which a request was accepted, which proves its peer.
    pub fn poll_proven_connection(&mut self) -> Option<u32> {
        self.proven.pop()
    }

    /// Returns the messages to send, in order. They stay until [`Endpoint::clear_transmits`].
    pub fn transmits(&self) -> impl Iterator<Item = (Flow, &[u8])> {
        self.shared.outbox.messages()
    }

    /// Drops the messages of [`Endpoint::transmits`], once they have been handed on.
    pub fn clear_transmits(&mut self) {
        self.shared.outbox.clear();
    }

    /// Frees the buffers that grew under load. Call it while the endpoint is idle.
    pub fn rest(&mut self) {
        self.shared.outbox.rest();
        self.scratch = Vec::new();
    }

    /// Counts the transactions and timers that are alive.
    pub fn counts(&self) -> Counts {
        Counts {
            tombstones: self.tombstones.len(),
            timers: self.shared.wheel.len(),
            ..self.counts
        }
    }

    /// Returns the counters since the start.
    pub fn stats(&self) -> Stats {
        Stats {
            retransmissions_sent: self.shared.outbox.retransmissions(),
            large_requests: self.large.count(),
            ..self.stats
        }
    }
}
