//! What reaches a shard from outside its own sockets, and the bounded way there.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use trunkline_calls::attempts::Found;
use trunkline_calls::caps::Denied;
use trunkline_calls::outbound::{Order, Placed};
use trunkline_calls::peers::Inquiry;
use trunkline_calls::peers::enrolment::Wanted;
use trunkline_calls::target::{Target, Unresolved};
use trunkline_calls::transfer::{Ask, Unable};
use trunkline_calls::verification::Verification;
use trunkline_calls::{CallKey, Reason, hold};
use trunkline_model::transfer::Transfer;
use trunkline_net::listener::Lost;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Slot};
use trunkline_sip::wire::{Framing, Message, lex};
use trunkline_store::journal::Position;
use uuid::Uuid;

use super::cancel_router::CancelRouter;
use super::clock;

/// A message that came by a stream, or to another shard's socket.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) flow: Flow,
    pub(crate) octets: Box<[u8]>,
    pub(crate) received_at: Moment,
}

/// One input of a shard.
#[derive(Debug)]
pub(crate) enum Input {
    /// Messages for this shard's slots.
    Messages(Vec<Arrived>),
    /// A flow is broken.
    Lost(Lost),
    /// The peer of a connection sends no more.
    Closing(Flow, u32),
    /// A runtime's host was resolved, or why it wasn't.
    Resolved(CallKey, Found),
    /// The next hop of requests inside calls was resolved; empty if it wasn't.
    Hop(Unresolved, Vec<Target>),
    /// A contact was found or made, or not.
    Contact(CallKey, Option<Uuid>),
    /// The echo agent hears nothing.
    EchoSilent(CallKey),
    /// These are asked whether they are there.
    Inquire(Inquiry),
    /// The journal has this fact on disk, with all before it.
    Synced(Position),
    /// A peer doesn't answer any more: it is asked in its calls.
    Gone(Transport, SocketAddr),
    /// These trunks, and no others, are registered with their carriers; `None`: registrations of ours may be gone, and are not ours until the
    /// next of these.
    Enrol(Option<Vec<Wanted>>),
    /// The registrar of a trunk was resolved; empty if it wasn't.
    Registrar(Uuid, Vec<Target>),
    /// The echo agent hears a key.
    EchoDigit(CallKey, u8),
    /// A call has heard its code.
    Spoken(CallKey),
    /// A call that speaks a code is to be begun in this slot; whether it was is told.
    Verify {
        slot: Slot,
        asked: Box<Verification>,
        done: oneshot::Sender<Result<(), Denied>>,
    },
    /// New calls are refused from now on.
    Drain,
    /// A call is to be begun in this slot; once that can't be lost it is told, or at once why not.
    Place {
        slot: Slot,
        order: Box<Order>,
        done: oneshot::Sender<Result<Placed, Denied>>,
    },
    /// One call ends now; whether it was up is told.
    HangUp {
        call: Uuid,
        done: oneshot::Sender<bool>,
    },
    /// A call is handed to one of its agent's destinations; what becomes of that is told.
    Transfer {
        call: Uuid,
        ask: Ask,
        done: oneshot::Sender<Result<Transfer, Unable>>,
    },
    /// One call is held, or resumed; what becomes of that is told.
    Hold {
        call: Uuid,
        wanted: bool,
        done: oneshot::Sender<Result<Option<u32>, hold::Unable>>,
    },
    /// All calls end now.
    HangUpAll(Reason),
    /// The shard ends.
    Stop,
}

/// How many inputs may wait for one shard.
const INBOX: usize = 4096;

/// The way into one shard.
#[derive(Clone, Debug)]
pub(crate) struct Inbox(mpsc::Sender<Input>);

/// The shard's end of it.
pub(crate) type Outlet = mpsc::Receiver<Input>;

impl Inbox {
    pub(crate) fn new() -> (Self, Outlet) {
        let (sender, receiver) = mpsc::channel(INBOX);
        (Self(sender), receiver)
    }

    /// Hands an input over without waiting; false if there is no room.
    pub(crate) fn offer(&self, input: Input) -> bool {
        self.0.try_send(input).is_ok()
    }

    /// Hands an input over and waits for room; false if the shard is gone.
    pub(crate) async fn send(&self, input: Input) -> bool {
        self.0.send(input).await.is_ok()
    }

    /// Inputs that wait.
    pub(crate) fn depth(&self) -> usize {
        self.0.max_capacity() - self.0.capacity()
    }
}

/// Which shard serves which slot.
#[derive(Clone, Debug)]
pub(crate) struct ShardRouter {
    minter: Minter,
    shards: Arc<[Inbox]>,
    cancels: Arc<CancelRouter>,
}

impl ShardRouter {
    pub(crate) fn new(minter: Minter, shards: Vec<Inbox>) -> Self {
        Self {
            minter,
            shards: shards.into(),
            cancels: Arc::default(),
        }
    }

    /// The number of the shard that serves `slot`.
    pub(crate) fn shard_of(&self, slot: Slot) -> usize {
        usize::from(slot.index()) % self.shards.len()
    }

    pub(crate) fn shards(&self) -> &[Inbox] {
        &self.shards
    }

    /// The number of the shard that works on a message.
    pub(crate) fn shard_for(&self, message: &Message<'_>) -> usize {
        if self.shards.len() == 1 {
            return 0;
        }
        let slot = self.minter.dispatch(message);
        let by_call_id = || self.minter.slot_of_call_id(message.call_id());
        let slot = self.cancels.place(message, slot, by_call_id, clock::now);
        self.shard_of(slot)
    }

    /// The shard for a message from a stream. What can't be read goes to the first, which answers or drops it.
    pub(crate) fn inbox_for(&self, octets: &[u8]) -> &Inbox {
        match lex(octets, Framing::Stream) {
            Ok(message) => &self.shards[self.shard_for(&message)],
            Err(_) => &self.shards[0],
        }
    }
}
