//! Inputs of a shard other than its own sockets, the bounded queue that carries them, and the choice of the shard for a
//! message.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tokio::sync::{mpsc, oneshot};
use trunkline_calls::features::hold;
use trunkline_calls::features::transfer::{TransferError, TransferRequest};
use trunkline_calls::invite::attempts::Resolution;
use trunkline_calls::limits::outbound_limits::OutboundRefusal;
use trunkline_calls::media::bot::{BotFailure, BotGone};
use trunkline_calls::media::verification::Verification;
use trunkline_calls::parts::target::{Target, UnresolvedTarget};
use trunkline_calls::peers::OptionsBatch;
use trunkline_calls::peers::carrier_registration::{MovedTrunks, TrunkAssignment};
use trunkline_calls::{CallKey, HangUpRequester, Reason};
use trunkline_model::transfer::Transfer;
use trunkline_net::listener::Lost;
use trunkline_sip::flow::{Flow, Transport};
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Minter, Slot};
use trunkline_sip::wire::{Framing, Malformed, Message, lex};
use trunkline_store::journal::FactPosition;
use uuid::Uuid;

use super::bots::DialledBot;
use super::cancel_router::CancelRouter;
use super::clock;
use super::member_invite::MemberInvite;
use super::placing::PlacingRequest;

/// Message that arrived on a stream, or on the socket of another shard.
#[derive(Debug)]
pub(crate) struct ForwardedMessage {
    pub(crate) flow: Flow,
    pub(crate) octets: Box<[u8]>,
    pub(crate) received_at: Moment,
}

/// One input of a shard.
#[derive(Debug)]
pub(crate) enum Input {
    /// Messages for this shard's slots.
    Messages(Vec<ForwardedMessage>),
    /// First message of a member's user agent.
    Member(Box<MemberInvite>),
    /// A connection broke.
    Lost(Lost),
    /// The peer has closed its side of a connection. The number identifies the name that it has proved ([`Lost::proved`]).
    Closing(Flow, u32),
    /// Result of resolving a runtime's host.
    Resolved(CallKey, Resolution),
    /// Result of resolving the next hop of requests inside calls; empty if it failed.
    Hop(UnresolvedTarget, Vec<Target>),
    /// Result of a contact look-up.
    Contact(CallKey, Option<Uuid>),
    /// The media of a call has heard no RTP for too long.
    MediaSilent(CallKey),
    /// Media of a call is heard again, after a silence that was reported.
    MediaHeard(CallKey),
    /// A fault of ours has ended the media of a call.
    MediaFailed(CallKey),
    /// Peers to probe with OPTIONS.
    Inquire(OptionsBatch),
    /// Position up to which the journal is on disk.
    Synced(FactPosition),
    /// A peer stopped answering; its calls are probed.
    Gone(Transport, SocketAddr),
    /// Complete list of trunks to register with their carriers. `None` if other nodes may have taken over our
    /// registrations: none is ours until the next list.
    RegisterTrunks(Option<TrunkAssignment>),
    /// Result of resolving the registrar of a trunk; empty if it failed.
    Registrar(Uuid, Vec<Target>),
    /// A bot's WebSocket is open, or could not be opened.
    Bot(CallKey, Box<Result<DialledBot, BotFailure>>),
    /// A bot has gone.
    BotClosed(CallKey, BotGone),
    /// The media of a call has heard a DTMF digit.
    MediaDigit(CallKey, u8),
    /// The sound with this serial of a call's built-in agent has ended, or could not be played.
    Played(CallKey, u32),
    /// A call's built-in agent hands its caller off.
    HandOff(CallKey),
    /// The verification code of a call has been spoken, or the peer was not heard in time.
    Spoken(CallKey),
    /// Begins a call in this slot that speaks a verification code; answers whether it began.
    Verify {
        slot: Slot,
        asked: Box<Verification>,
        /// Set by the shard as it begins the call, or by the API as it gives up waiting: the second of them does nothing.
        begun: Arc<AtomicBool>,
        done: oneshot::Sender<Result<(), OutboundRefusal>>,
    },
    /// Refuses new calls from now on.
    Drain,
    /// Withdraws all registrations with carriers, and makes none from now on. Other nodes have registered these trunks.
    LeaveCarriers(MovedTrunks),
    /// Begins an outbound call.
    Place(PlacingRequest),
    /// Ends one call; answers true if it was up.
    HangUp {
        call: Uuid,
        by: HangUpRequester,
        done: oneshot::Sender<bool>,
    },
    /// Transfers a call to one of its agent's destinations; answers with the transfer.
    Transfer {
        call: Uuid,
        ask: TransferRequest,
        done: oneshot::Sender<Result<Transfer, TransferError>>,
    },
    /// Holds or resumes one call; answers with the number of the change.
    Hold {
        call: Uuid,
        wanted: bool,
        done: oneshot::Sender<Result<Option<u32>, hold::HoldError>>,
    },
    /// Answered in the shard's next turn, which proves that the shard is alive.
    Ping(oneshot::Sender<()>),
    /// Ends all calls.
    HangUpAll(Reason),
    /// Ends the shard.
    Stop,
}

/// Inputs that may wait for one shard. Beyond, `offer` fails, and `send` and `deliver` wait for room.
const CAPACITY: usize = 4096;

/// Sender of a shard's inputs.
#[derive(Clone, Debug)]
pub(crate) struct Inbox(mpsc::Sender<Input>);

/// Receiver of a shard's inputs.
pub(crate) type InboxReceiver = mpsc::Receiver<Input>;

impl Inbox {
    pub(crate) fn new() -> (Self, InboxReceiver) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self(sender), receiver)
    }

    /// Queues an input without waiting; false if the inbox is full.
    pub(crate) fn offer(&self, input: Input) -> bool {
        self.0.try_send(input).is_ok()
    }

    /// Queues an input that must not get lost. If the inbox is full, a task on `runtime` waits for room.
    pub(crate) fn deliver(&self, input: Input, runtime: &tokio::runtime::Handle) {
        // A closed inbox is no loss: the shard has ended, and its calls with it.
        if let Err(mpsc::error::TrySendError::Full(input)) = self.0.try_send(input) {
            let inbox = self.clone();
            runtime.spawn(async move { inbox.send(input).await });
        }
    }

    /// Queues an input, waiting for room; false if the shard has ended.
    pub(crate) async fn send(&self, input: Input) -> bool {
        self.0.send(input).await.is_ok()
    }

    /// Number of waiting inputs.
    pub(crate) fn depth(&self) -> usize {
        self.0.max_capacity() - self.0.capacity()
    }
}

/// Assignment of slots to shards.
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

    /// Returns the index of the shard that serves `slot`.
    pub(crate) fn shard_of(&self, slot: Slot) -> usize {
        usize::from(slot.index()) % self.shards.len()
    }

    pub(crate) fn shards(&self) -> &[Inbox] {
        &self.shards
    }

    /// Returns the index of the shard that handles a message.
    pub(crate) fn shard_for(&self, message: &Message<'_>) -> usize {
        if self.shards.len() == 1 {
            return 0;
        }
        let slot = self.minter.dispatch(message);
        // Hash and time are computed for few messages: INVITEs with Replaces, and while the table has entries.
        let by_call_id = || self.minter.slot_of_call_id(message.call_id());
        let slot = self.cancels.route(message, slot, by_call_id, clock::now);
        self.shard_of(slot)
    }

    /// Returns the inbox for a message from a stream. A response that can't be read goes to the shard of its request, another malformed
    /// message to the first shard, which answers or drops it.
    pub(crate) fn inbox_for(&self, octets: &[u8]) -> &Inbox {
        // Lexed for the choice alone. A `Message` borrows its octets, so the shard lexes them again.
        let read = lex(octets, Framing::Stream);
        &self.shards[self.shard_for_read(&read).unwrap_or(0)]
    }

    /// Returns the index of the shard that handles a message, or a response that can't be read; `None` for any other malformed message: its
    /// answer needs no state, so any shard can give it.
    pub(crate) fn shard_for_read(
        &self,
        read: &Result<Message<'_>, Malformed<'_>>,
    ) -> Option<usize> {
        match read {
            Ok(message) => Some(self.shard_for(message)),
            Err(malformed) => Some(self.shard_for(malformed.response.as_deref()?)),
        }
    }
}
