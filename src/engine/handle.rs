//! What others ask of the shards: by the slot in the call's id, and with a deadline.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use trunkline_calls::caps::{Caps, Denied};
use trunkline_calls::health::Health;
use trunkline_calls::hold;
use trunkline_calls::limits::Limits;
use trunkline_calls::outbound::{Order, Placed};
use trunkline_calls::peers::standing::{Standing, Standings};
use trunkline_calls::place_of;
use trunkline_calls::registrar::bindings::{Binding, Bindings};
use trunkline_calls::transfer::{Ask, Unable};
use trunkline_calls::verification::Verification;
use trunkline_calls::wall::transfer_on;
use trunkline_model::address::AddressPolicy;
use trunkline_model::transfer::Transfer;
use trunkline_sip::moment::Moment;
use trunkline_sip::slot::{Node, Slot};
use trunkline_store::journal;
use uuid::Uuid;

use super::clock;
use super::inbox::{Input, ShardRouter};
use crate::traces::Traces;

/// How long a shard may take to do what it is asked.
const PATIENCE: Duration = Duration::from_secs(2);

/// The shards, from outside. Clones reach the same.
#[derive(Clone, Debug)]
pub struct Handle {
    pub(super) router: ShardRouter,
    pub(super) limits: Arc<Limits>,
    pub(super) bindings: Arc<Bindings>,
    pub(super) caps: Arc<Caps>,
    pub(super) health: Arc<Health>,
    pub(super) standings: Arc<Standings>,
    pub(super) addresses: Arc<AddressPolicy>,
    pub(super) node: Node,
    pub(super) traces: Arc<Traces>,
    pub(super) journal: Arc<journal::Condition>,
}

/// A shard did not answer in time: it is overloaded, or has ended.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the shard of the call does not answer")]
pub struct NoAnswer;

impl Handle {
    /// The live calls of an agent, trunk or org.
    pub fn live(&self, id: Uuid) -> u32 {
        self.limits.live(id)
    }

    /// The rule for addresses that tenants and messages name.
    pub fn addresses(&self) -> Arc<AddressPolicy> {
        Arc::clone(&self.addresses)
    }

    /// Whether facts get where they belong.
    pub fn journal(&self) -> journal::State {
        self.journal.state()
    }

    /// What orgs and trunks may begin, and have begun.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Begins an outbound call, and returns once its beginning can't be lost.
    ///
    /// # Errors
    /// A shard doesn't answer; within, why the call can't begin.
    pub async fn place(&self, order: Order) -> Result<Result<Placed, Denied>, NoAnswer> {
        let slot = Slot::new(rand::random_range(0..Slot::COUNT)).ok_or(NoAnswer)?;
        let inbox = &self.router.shards()[self.router.shard_of(slot)];
        let (done, answer) = oneshot::channel();
        let order = Box::new(order);
        let asked = async {
            inbox.send(Input::Place { slot, order, done }).await;
            answer.await.map_err(|_| NoAnswer)
        };
        tokio::time::timeout(PATIENCE, asked)
            .await
            .map_err(|_| NoAnswer)?
    }

    /// Begins a call that speaks a code. Nothing of it is recorded.
    ///
    /// # Errors
    /// A shard doesn't answer; within, why the call can't begin.
    pub async fn verify(&self, asked: Verification) -> Result<Result<(), Denied>, NoAnswer> {
        let slot = Slot::new(rand::random_range(0..Slot::COUNT)).ok_or(NoAnswer)?;
        let inbox = &self.router.shards()[self.router.shard_of(slot)];
        let (done, answer) = oneshot::channel();
        let asked = Box::new(asked);
        let begun = async {
            inbox.send(Input::Verify { slot, asked, done }).await;
            answer.await.map_err(|_| NoAnswer)
        };
        tokio::time::timeout(PATIENCE, begun)
            .await
            .map_err(|_| NoAnswer)?
    }

    /// What passed on the wire.
    pub const fn traces(&self) -> &Arc<Traces> {
        &self.traces
    }

    /// Whether an outbound trunk's peer answers; `None` while nothing is known.
    pub fn reachable(&self, trunk: Uuid) -> Option<bool> {
        self.health.trunk(trunk)
    }

    /// How our registration with an outbound trunk's carrier stands; `None` if it has none.
    pub fn standing(&self, trunk: Uuid) -> Option<Standing> {
        let standing = self.standings.of(trunk)?;
        let shown = |moment: Option<Moment>| moment.map(clock::on_wall);
        Some(Standing {
            registered_at: shown(standing.registered_at),
            expires_at: shown(standing.expires_at),
            next_at: shown(standing.next_at),
            ..standing
        })
    }

    /// Where the PBX of an inbound trunk has registered, the best place first.
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

    /// The node by whose flow alone the PBX of an inbound trunk can be called, if that is another one.
    pub fn node_of_registration(&self, trunk: Uuid) -> Option<u8> {
        let now = clock::now();
        let is_reached_here = !self.bindings.reach(trunk, &self.addresses, now).is_empty();
        let other = self.bindings.node_with_flow(trunk, now)?;
        (!is_reached_here).then_some(other)
    }

    /// Ends a call; false if it isn't up on this node.
    ///
    /// # Errors
    /// Its shard doesn't answer.
    pub async fn hang_up(&self, call: Uuid) -> Result<bool, NoAnswer> {
        let asked = self.ask(call, |done| Input::HangUp { call, done });
        Ok(asked.await?.unwrap_or(false))
    }

    /// Hands a call to one of its agent's destinations.
    ///
    /// # Errors
    /// Its shard doesn't answer; inside, why there is no transfer.
    pub async fn transfer(
        &self,
        call: Uuid,
        ask: Ask,
    ) -> Result<Result<Transfer, Unable>, NoAnswer> {
        let asked = self.ask(call, |done| Input::Transfer { call, ask, done });
        let begun = asked.await?.unwrap_or(Err(Unable::NotUp));
        Ok(begun.map(|transfer| transfer_on(transfer, clock::wall())))
    }

    /// Holds a call, or resumes it: the number of the change, or `None` if it stands so already. What becomes of it is on the live
    /// call.
    ///
    /// # Errors
    /// Its shard doesn't answer; inside, why nothing is changed.
    pub async fn hold(
        &self,
        call: Uuid,
        wanted: bool,
    ) -> Result<Result<Option<u32>, hold::Unable>, NoAnswer> {
        let asked = self.ask(call, |done| Input::Hold { call, wanted, done });
        Ok(asked.await?.unwrap_or(Err(hold::Unable::NotUp)))
    }

    /// The number of this node.
    pub const fn node(&self) -> u8 {
        self.node.0
    }

    /// The node that has or had a call, if it isn't this one.
    pub fn another_of(&self, call: Uuid) -> Option<u8> {
        let (node, _) = place_of(call)?;
        (node != self.node).then_some(node.0)
    }

    /// Asks the shard of a call; `None` if that is on another node, or nowhere.
    async fn ask<T>(
        &self,
        call: Uuid,
        input: impl FnOnce(oneshot::Sender<T>) -> Input,
    ) -> Result<Option<T>, NoAnswer> {
        let Some((node, slot)) = place_of(call) else {
            return Ok(None);
        };
        if node != self.node {
            return Ok(None);
        }
        let inbox = &self.router.shards()[self.router.shard_of(slot)];
        let (done, answer) = oneshot::channel();
        let asked = async {
            inbox.send(input(done)).await;
            answer.await.map(Some).map_err(|_| NoAnswer)
        };
        tokio::time::timeout(PATIENCE, asked)
            .await
            .map_err(|_| NoAnswer)?
    }
}
