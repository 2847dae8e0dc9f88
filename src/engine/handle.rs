//! Requests to the shards from the API and other parts of the daemon. The slot in a call's id selects the shard; each
//! request has a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use trunkline_bounds::NoShare;
use trunkline_calls::core::live::LiveCalls;
use trunkline_calls::dial::outbound::{NewOutboundCall, PlacedCall};
use trunkline_calls::features::hold;
use trunkline_calls::features::transfer::{TransferError, TransferRequest};
use trunkline_calls::limits::Limits;
use trunkline_calls::limits::outbound_limits::{OutboundLimits, OutboundRefusal};
use trunkline_calls::media::verification::Verification;
use trunkline_calls::node_and_slot_of;
use trunkline_calls::peers::health::Health;
use trunkline_calls::peers::registrations::{RegistrationStatus, Registrations};
use trunkline_calls::registrar::bindings::{Binding, Bindings};
use trunkline_calls::{HangUpRequester, Reason};
use trunkline_model::address::AddressPolicy;
use trunkline_model::media::MediaStep;
use trunkline_model::transfer::Transfer;
use trunkline_net::media::Media;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Node, Slot};
use trunkline_store::journal;
use uuid::Uuid;

use super::browser::{BrowserCall, BrowserLine, BrowserOrder};
use super::clock;
use super::inbox::{Input, ShardRouter};
use super::media_record::steps_on_wall;
use super::placing::PlacingRequest;
use crate::traces::Traces;

/// Time that a shard has to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Time that an outbound call has to begin: its first fact is synced to disk, which takes long on a busy disk. After a shorter time, calls would
/// be ended again only because the disk is busy.
const PLACING: Duration = Duration::from_secs(15);

/// Access to the shards from outside. Clones reach the same shards.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) router: ShardRouter,
    pub(super) live: Arc<LiveCalls>,
    pub(super) limits: Arc<Limits>,
    pub(super) bindings: Arc<Bindings>,
    pub(super) outbound_limits: Arc<OutboundLimits>,
    pub(super) health: Arc<Health>,
    pub(super) registrations: Arc<Registrations>,
    pub(super) addresses: Arc<AddressPolicy>,
    pub(super) node: Node,
    pub(super) traces: Arc<Traces>,
    pub(super) journal: Arc<journal::Condition>,
    pub(super) browsers: BrowserLine,
    pub(super) media: Media,
}

/// The shard did not answer in time: it is overloaded, or has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the shard of the call does not answer")]
pub struct NoAnswer;

impl Handle {
    /// Returns the number of live calls of an agent, trunk or org.
    pub fn live(&self, id: Uuid) -> u32 {
        self.limits.live(id)
    }

    /// Policy for addresses that tenants and messages name.
    pub fn addresses(&self) -> Arc<AddressPolicy> {
        Arc::clone(&self.addresses)
    }

    /// State of the journal: whether facts reach the disk and the database.
    pub fn journal(&self) -> journal::State {
        self.journal.state()
    }

    /// Limits of outbound calls for orgs and trunks, with what they have used.
    pub fn outbound_limits(&self) -> &OutboundLimits {
        &self.outbound_limits
    }

    /// Begins an outbound call, and returns once the call's first fact is on disk.
    ///
    /// # Errors
    /// `NoAnswer` if the shard has ended, or has begun the call but doesn't have it on disk in time, and ends it again. The inner error is
    /// the reason why the call hasn't begun: `Overload` if the shard didn't come to it in time.
    pub async fn place(
        &self,
        order: NewOutboundCall,
    ) -> Result<Result<PlacedCall, OutboundRefusal>, NoAnswer> {
        let slot = Slot::new(rand::random_range(0..Slot::COUNT)).ok_or(NoAnswer)?;
        let inbox = self.router.shards()[self.router.shard_of(slot)].clone();
        // A task of its own: a client that disconnects meanwhile doesn't withdraw its call.
        let (request, requester) = PlacingRequest::new(slot, order);
        let sending = async move {
            inbox.send(Input::Place(request)).await;
        };
        let placing = tokio::spawn(requester.wait(sending, PLACING));
        placing.await.ok().flatten().ok_or(NoAnswer)
    }

    /// Begins a call of a browser. Its user agent calls this node and reports the outcome by events.
    ///
    /// # Errors
    /// No RTP port is free, or the org's share of them is used up.
    pub fn call_from_browser(&self, order: BrowserOrder) -> Result<BrowserCall, NoShare> {
        self.browsers.call(order)
    }

    /// Begins a call that speaks a verification code. Nothing of it is recorded.
    ///
    /// # Errors
    /// `NoAnswer` if the shard doesn't answer, but may have begun the call. The inner error is the reason why the call hasn't begun.
    pub async fn verify(
        &self,
        asked: Verification,
    ) -> Result<Result<(), OutboundRefusal>, NoAnswer> {
        let slot = Slot::new(rand::random_range(0..Slot::COUNT)).ok_or(NoAnswer)?;
        let inbox = &self.router.shards()[self.router.shard_of(slot)];
        let (done, answer) = oneshot::channel();
        let begun = Arc::new(AtomicBool::new(false));
        let input = Input::Verify {
            slot,
            asked: Box::new(asked),
            begun: Arc::clone(&begun),
            done,
        };
        let answered = async {
            inbox.send(input).await;
            answer.await.map_err(|_| NoAnswer)
        };

        match tokio::time::timeout(TIMEOUT, answered).await {
            Ok(answer) => answer,
            // The shard was first: the call may have begun.
            Err(_) if begun.swap(true, Ordering::AcqRel) => Err(NoAnswer),
            // The shard will find the flag set, and begin nothing.
            Err(_) => Ok(Err(Reason::Overload.into())),
        }
    }

    /// Waits until every shard has had a turn.
    ///
    /// # Errors
    /// `NoAnswer` if not every shard has had a turn within two seconds, or a media thread has had none for ten.
    pub async fn turns(&self) -> Result<(), NoAnswer> {
        let turned = async {
            for inbox in self.router.shards() {
                let (done, answer) = oneshot::channel();
                inbox.send(Input::Ping(done)).await;
                answer.await.map_err(|_| NoAnswer)?;
            }
            Ok(())
        };
        tokio::time::timeout(TIMEOUT, turned)
            .await
            .map_err(|_| NoAnswer)??;
        match self.media.is_hanging(clock::now()) {
            true => Err(NoAnswer),
            false => Ok(()),
        }
    }

    /// Traces: the SIP messages that were received and sent.
    pub const fn traces(&self) -> &Arc<Traces> {
        &self.traces
    }

    /// Returns true if the peer of an outbound trunk answers; `None` while nothing is known.
    pub fn reachable(&self, trunk: Uuid) -> Option<bool> {
        self.health.trunk(trunk)
    }

    /// State of our registration with an outbound trunk's carrier; `None` if the trunk has no registration.
    pub fn registration_status(&self, trunk: Uuid) -> Option<RegistrationStatus> {
        let status = self.registrations.of(trunk)?;
        let shown = |moment: Option<Moment>| moment.map(clock::on_wall);
        Some(RegistrationStatus {
            registered_at: shown(status.registered_at),
            expires_at: shown(status.expires_at),
            next_at: shown(status.next_at),
            ..status
        })
    }

    /// Contacts that the PBX of an inbound trunk has registered, preferred first.
    pub fn registrations(&self, trunk: Uuid) -> Vec<Binding> {
        let bindings = self.bindings.of(trunk, clock::now()).into_iter();
        let shown = |mut binding: Binding| {
            for moment in [
                &mut binding.registered_at,
                &mut binding.refreshed_at,
                &mut binding.expires_at,
            ] {
                *moment = clock::on_wall(*moment);
            }
            binding
        };
        bindings.map(shown).collect()
    }

    /// Returns the other node that alone can reach the PBX of an inbound trunk, because the PBX's connection ends
    /// there.
    pub fn node_of_registration(&self, trunk: Uuid) -> Option<u8> {
        let now = clock::now();
        let is_reached_here = !self.bindings.reach(trunk, &self.addresses, now).is_empty();
        let other = self.bindings.node_with_flow(trunk, now)?;
        (!is_reached_here).then_some(other)
    }

    /// Ends a call; false if it isn't up on this node.
    ///
    /// # Errors
    /// `NoAnswer` if the call's shard doesn't answer.
    pub async fn hang_up(&self, call: Uuid, by: HangUpRequester) -> Result<bool, NoAnswer> {
        let asked = self.ask(call, |done| Input::HangUp { call, by, done });
        Ok(asked.await?.unwrap_or(false))
    }

    /// Transfers a call to one of its agent's destinations.
    ///
    /// # Errors
    /// `NoAnswer` if the call's shard doesn't answer. The inner error is the reason why there is no transfer.
    pub async fn transfer(
        &self,
        call: Uuid,
        ask: TransferRequest,
    ) -> Result<Result<Transfer, TransferError>, NoAnswer> {
        let asked = self.ask(call, |done| Input::Transfer { call, ask, done });
        let begun = asked.await?.unwrap_or(Err(TransferError::NotUp));
        Ok(begun.map(|transfer| self.live.transfer_on_wall(transfer)))
    }

    /// Holds or resumes a call. Returns the number of the change, or `None` if the call is in that state already. The
    /// live call shows the outcome.
    ///
    /// # Errors
    /// `NoAnswer` if the call's shard doesn't answer. The inner error is the reason why nothing changes.
    pub async fn hold(
        &self,
        call: Uuid,
        wanted: bool,
    ) -> Result<Result<Option<u32>, hold::HoldError>, NoAnswer> {
        let asked = self.ask(call, |done| Input::Hold { call, wanted, done });
        Ok(asked.await?.unwrap_or(Err(hold::HoldError::NotUp)))
    }

    /// Returns the steps so far of a call's media with this key; none once they are closed.
    pub fn media_steps(&self, call: Uuid, key: u64) -> Vec<MediaStep> {
        let wall = self.live.offset_of(call);
        let figures = self.media.statistics(key);
        figures.map_or_else(Vec::new, |figures| steps_on_wall(&figures, wall))
    }

    /// Number of this node.
    pub const fn node(&self) -> u8 {
        self.node.0
    }

    /// Returns the node that has or had a call, if it is another one.
    pub fn another_of(&self, call: Uuid) -> Option<u8> {
        let (node, _) = node_and_slot_of(call)?;
        (node != self.node).then_some(node.0)
    }

    /// Sends a request to the shard of a call; `None` if the call is on another node, or its id names no node and slot.
    async fn ask<T>(
        &self,
        call: Uuid,
        input: impl FnOnce(oneshot::Sender<T>) -> Input,
    ) -> Result<Option<T>, NoAnswer> {
        let Some((node, slot)) = node_and_slot_of(call) else {
            return Ok(None);
        };
        if node != self.node {
            return Ok(None);
        }
        let inbox = &self.router.shards()[self.router.shard_of(slot)];
        let (done, answer) = oneshot::channel();

        // If the shard has ended, `send` drops the input and its `done` with it, which ends the wait.
        let asked = async {
            inbox.send(input(done)).await;
            answer.await.map(Some).map_err(|_| NoAnswer)
        };
        tokio::time::timeout(TIMEOUT, asked)
            .await
            .map_err(|_| NoAnswer)?
    }
}
