//! Persists registrations of PBXs and follows those of other nodes that share the database.
//!
//! A change is stored within a fifth of a second; a crash loses no more, and the PBX registers again. Shards never wait
//! for the store. Bindings in memory use the monotonic clock, stored ones the wall clock, which other processes share.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use trunkline_calls::registrar::bindings::Bindings;
use trunkline_model::registration::{BindingLoss, StoredBinding};
use trunkline_model::view::{PeerLogin, View};
use trunkline_sip::moment::Moment;
use trunkline_store::{Store, nodes, registrations as kept};

use super::{clock, registrations};
use crate::directory::Directory;
use crate::jobs;

/// Checks between two readings of the serving nodes, and between two prunings of ended registrations.
const SERVING: u32 = 5;
const PRUNE: u32 = 1_500;
/// Trunks stored in one transaction.
const BATCH: usize = 500;

/// Task that stores registrations and follows those of other nodes.
pub(super) struct RegistrationKeeper {
    bindings: Weak<Bindings>,
    directory: Weak<Directory>,
    store: Store,
    node: u8,
    /// Time after the end of a node's lease at which its registrations are taken over.
    grace: Duration,
    /// Signals that other nodes may have considered this one dead.
    lapses: watch::Receiver<u64>,
    /// Position up to which stored registrations were followed; `None` until all were read once.
    seen: Option<Moment>,
    /// Directory view against which the bindings' orgs were checked last.
    held_against: Weak<View>,
    /// True while the database fails, so that the failure is logged once.
    fails: bool,
}

impl RegistrationKeeper {
    pub(super) fn new(
        bindings: &Arc<Bindings>,
        directory: &Arc<Directory>,
        store: Store,
        node: u8,
        grace: Duration,
        lapses: watch::Receiver<u64>,
    ) -> Self {
        Self {
            bindings: Arc::downgrade(bindings),
            directory: Arc::downgrade(directory),
            store,
            node,
            grace,
            lapses,
            seen: None,
            held_against: Weak::new(),
            fails: false,
        }
    }

    /// Runs until the table of bindings is dropped.
    pub(super) async fn run(mut self) {
        let mut turns = jobs::STORED_REGISTRATIONS.ticks();
        for turn in 0_u32.. {
            turns.tick().await;
            let (Some(bindings), Some(directory)) =
                (self.bindings.upgrade(), self.directory.upgrade())
            else {
                return;
            };

            let done = self.turn(turn, &bindings, &directory.load()).await;
            match done {
                Ok(()) => self.fails = false,
                Err(error) if !self.fails => {
                    self.fails = true;
                    tracing::warn!(%error, "registrations of PBXs are neither kept nor followed until the database is back");
                }
                Err(_) => {}
            }
        }
    }

    async fn turn(
        &mut self,
        turn: u32,
        bindings: &Bindings,
        view: &Arc<View>,
    ) -> Result<(), trunkline_store::Error> {
        let now = clock::now();
        // An org can only disappear with a new view, so bindings are checked once per view.
        if !std::ptr::eq(self.held_against.as_ptr(), Arc::as_ptr(view)) {
            bindings.forget_orgs(|org| view.org(org).is_some());
            self.held_against = Arc::downgrade(view);
        }

        let pair = |user: &str| pair(view, user, clock::wall_time());
        if self.store.is_shared() && turn.is_multiple_of(SERVING) {
            let serving = self.store.read(nodes::serving).await?;
            let nodes: Vec<u8> = serving.iter().map(|one| one.run.node).collect();
            bindings.set_serving(&nodes);
            self.take_over(bindings, view).await?;
        }

        // Other nodes may have taken our registrations over meanwhile: store all of ours again.
        if self.lapses.has_changed().unwrap_or_default() {
            self.lapses.borrow_and_update();
            bindings.store_again();
        }

        match self.seen {
            // Nothing is stored before this: it would overwrite the bindings of an earlier run.
            None => {
                let (all, seen) = self.store.read(kept::all).await?;
                bindings.restore(&on_timers(all), self.node, pair, now);
                self.seen = Some(seen);
            }
            Some(seen) if self.store.is_shared() => {
                let (news, seen) = self.store.read(move |tx| kept::since(tx, seen)).await?;
                bindings.follow(&on_timers(news), self.node, pair, now);
                self.seen = Some(seen);
            }
            // An embedded database has one node: there is nobody to follow.
            Some(_) => {}
        }

        let mut unsaved = bindings.take_unsaved(self.node, BATCH);
        for kept in unsaved.iter_mut().flat_map(|unsaved| &mut unsaved.own) {
            kept.change_times(clock::on_wall);
        }

        if !unsaved.is_empty() {
            // A copy, since the changes are put back if the database fails.
            let (node, trunks) = (self.node, unsaved.clone());
            let saved = self
                .store
                .write(move |tx| kept::save(tx, node, &trunks, clock::wall_time()));
            if let Err(error) = saved.await {
                // The next turn tries again.
                bindings.put_back(unsaved);
                return Err(error);
            }
        }

        if turn % PRUNE == PRUNE - 1 {
            let pruned = self.store.write(|tx| kept::prune(tx, clock::wall_time()));
            pruned.await?;
        }

        Ok(())
    }

    /// Takes over registrations of nodes that are gone, and reports those that are lost.
    async fn take_over(
        &self,
        bindings: &Bindings,
        view: &View,
    ) -> Result<(), trunkline_store::Error> {
        let (node, grace) = (self.node, self.grace);
        let gone = self
            .store
            .read(move |tx| nodes::left_registered(tx, node, grace));
        let gone = gone.await?;
        if gone.is_empty() {
            return Ok(());
        }

        // The statement claims the rows, so that of several nodes one takes a contact over and reports a loss.
        let taken = self
            .store
            .write(move |tx| kept::take_over(tx, node, &gone, clock::wall_time()));
        let taken = taken.await?;
        let pair = |user: &str| pair(view, user, clock::wall_time());
        bindings.take_over(&on_timers(taken.kept), pair, clock::now());

        for (org, trunk) in taken.lost {
            registrations::note_lost(org, trunk, BindingLoss::NodeLost);
        }

        Ok(())
    }
}

/// Converts stored wall-clock times to this process's timers.
fn on_timers(mut all: Vec<StoredBinding>) -> Vec<StoredBinding> {
    for kept in &mut all {
        kept.change_times(clock::from_wall);
    }
    all
}

/// Returns the credentials of a trunk, while they are valid.
fn pair(view: &View, user: &str, wall_time: Moment) -> Option<Arc<PeerLogin>> {
    let login = view.login(user.as_bytes())?;
    // By the wall clock, in which the store keeps the end of a replaced password. The clock of timers stops while the
    // machine is suspended.
    login.is_valid(wall_time).then(|| Arc::clone(&login.pair))
}
