//! Erases contacts on this node: in its journal, in its traces, and in the rows that all nodes share.
//!
//! The journal goes first, because a fact left in it would be projected into rows that are already erased. The rows
//! follow; they name the contact's calls. The traces of those calls go last. An interrupted erasure starts over with
//! what is left.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::runtime;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use trunkline_model::record::Fact;
use trunkline_store::erasures::WaitingErasure;
use trunkline_store::journal::Journal;
use trunkline_store::{Erased, OpenErasure, RowsErased, Store, erasing, erasures};
use uuid::Uuid;

use super::{Handle, clock};
use crate::jobs;
use crate::traces::ErasedCall;

/// Checks between two looks for erasures that wait for nodes which are gone.
const MINUTE: u32 = 60;
/// Checks before an erasure that couldn't be done is tried again: the first time, and at most.
const FIRST_PAUSE: u32 = 4;
const LONGEST_PAUSE: u32 = MINUTE;
/// Erasures tried in one check.
const MAX_PER_CHECK: usize = 20;
/// Erasures under way at once, and of the orgs of one partner together; of an org there is one. A large erasure takes minutes, and others don't wait for
/// it.
const AT_ONCE: usize = 4;
const AT_ONCE_OF_PARTNER: usize = AT_ONCE / 2;
/// Erasures remembered that couldn't be done. Beyond that, the next ones are tried again earlier.
const MAX_DELAYED: usize = 1_000;
/// Number of attempts to truncate the write-ahead log of an embedded database while a reader blocks it, and the time
/// between them.
const TRUNCATIONS: u32 = 200;
const TRUNCATION_INTERVAL: Duration = Duration::from_millis(25);

/// Longest wait for the journal's facts in one turn: an erasure that waits longer is logged, and tried again.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(60);

/// Reason why this node's part of an erasure isn't done.
#[derive(Debug, thiserror::Error)]
enum ErasureFault {
    #[error("{0}")]
    Store(#[from] trunkline_store::Error),
    #[error("journal or traces: {0}")]
    Files(#[from] io::Error),
    #[error("readers keep the database's log in use")]
    InUse,
}

/// Handle of the task; dropping it stops the task.
#[derive(Debug)]
pub struct ErasureTask(JoinHandle<()>);

impl ErasureTask {
    /// Starts the task that erases.
    pub fn start(store: Store, engine: Handle, journal: Journal<Fact>) -> Self {
        let eraser = Arc::new(Eraser {
            store,
            engine,
            journal,
        });
        let worker = ErasureWorker {
            eraser,
            delayed: DelayedErasures::default(),
            due: VecDeque::new(),
            under_way: UnderWay::default(),
            tasks: JoinSet::new(),
        };
        let runtime = runtime::Handle::current();
        Self(jobs::ERASURE.spawn(&runtime, worker.run()))
    }
}

impl Drop for ErasureTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct ErasureWorker {
    eraser: Arc<Eraser>,
    delayed: DelayedErasures,
    /// Erasures of the last check that haven't begun.
    due: VecDeque<WaitingErasure>,
    under_way: UnderWay,
    /// Dropped, and so aborted, with the worker.
    tasks: JoinSet<(Uuid, Result<ErasureProgress, ErasureFault>)>,
}

/// Does this node's part of erasures.
struct Eraser {
    store: Store,
    engine: Handle,
    journal: Journal<Fact>,
}

impl ErasureWorker {
    async fn run(mut self) {
        let mut ticks = jobs::ERASURE.ticks();
        let mut fails = false;
        let mut turn = 0_u32;
        loop {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => self.end(ended, turn),
                _ = ticks.tick() => {
                    match self.look(turn).await {
                        Ok(()) => fails = false,
                        Err(error) if !fails => {
                            fails = true;
                            tracing::warn!(%error, "erasing contacts failed; retrying");
                        }
                        Err(_) => {}
                    }
                    turn = turn.wrapping_add(1);
                }
            }
            self.begin_some();
        }
    }

    /// Looks for the erasures that wait. One that can't be done gives its place in the next checks to the others.
    async fn look(&mut self, turn: u32) -> Result<(), ErasureFault> {
        let store = &self.eraser.store;
        let (node, limit) = (self.eraser.engine.node(), self.delayed.limit());
        let waiting = store
            .read(move |tx| erasures::waiting(tx, node, limit))
            .await?;
        self.due = self.delayed.due(waiting, turn).into();

        if turn.is_multiple_of(MINUTE) {
            erasures::settle(store, clock::wall_time()).await?;
        }
        Ok(())
    }

    /// Begins those that are due, as far as there are places for their orgs.
    fn begin_some(&mut self) {
        let under_way = &mut self.under_way;
        let mut begun = Vec::new();
        self.due.retain(|erasure| {
            let begins = under_way.begin(*erasure);
            begun.extend(begins.then_some(erasure.id));
            !begins
        });
        for id in begun {
            let eraser = Arc::clone(&self.eraser);
            self.tasks
                .spawn(async move { (id, eraser.erase(id).await) });
        }
    }

    fn end(
        &mut self,
        ended: Result<(Uuid, Result<ErasureProgress, ErasureFault>), JoinError>,
        turn: u32,
    ) {
        let (id, progress) = match ended {
            Ok(ended) => ended,
            Err(aborted) if aborted.is_cancelled() => return,
            // It is found again by the next check.
            Err(panicked) => {
                tracing::error!(%panicked, "an erasure panicked");
                self.under_way = UnderWay::default();
                self.tasks.abort_all();
                return;
            }
        };
        self.under_way.end(id);
        match progress {
            Ok(ErasureProgress::Done) => self.delayed.remove(id),
            Ok(ErasureProgress::CallIsUp) => self.delayed.insert(id, turn),
            Err(error) => {
                tracing::warn!(%error, erasure.id = %id, "erasing a contact failed; retrying within a minute");
                self.delayed.insert(id, turn);
            }
        }
    }
}

/// Erasures under way, with their orgs and partners.
#[derive(Debug, Default)]
struct UnderWay(Vec<WaitingErasure>);

impl UnderWay {
    /// Takes a place for an erasure; false if it is under way, or its org or partner has its share.
    fn begin(&mut self, erasure: WaitingErasure) -> bool {
        let of_org = self.0.iter().any(|other| other.org_id == erasure.org_id);
        let is_partners = |other: &&WaitingErasure| {
            other.partner_id.is_some() && other.partner_id == erasure.partner_id
        };
        let of_partner = self.0.iter().filter(is_partners).count();
        let is_free = self.0.len() < AT_ONCE && !of_org && of_partner < AT_ONCE_OF_PARTNER;
        if is_free {
            self.0.push(erasure);
        }
        is_free
    }

    fn end(&mut self, id: Uuid) {
        self.0.retain(|erasure| erasure.id != id);
    }
}

impl Eraser {
    /// Does this node's part of one erasure. Leaves it open while a call of the contact is up.
    async fn erase(&self, id: Uuid) -> Result<ErasureProgress, ErasureFault> {
        let open = self.store.read(move |tx| erasures::open(tx, id)).await?;
        // Another node has done the last part since this one was read as waiting.
        let Some(erasure) = &open else {
            return Ok(ErasureProgress::Done);
        };

        self.journal.clear(JOURNAL_TIMEOUT).await?;
        let journal_lines = self.forget_set_aside(erasure).await?;
        self.count(
            id,
            Erased {
                journal_lines,
                ..Erased::default()
            },
        )
        .await?;
        let rows = erasing::erase_rows(&self.store, erasure, clock::wall_time()).await?;
        if rows == RowsErased::CallIsUp {
            return Ok(ErasureProgress::CallIsUp);
        }

        self.forget_traces(erasure).await?;
        // Before `done` says that nothing is left: the log of an embedded database still has the rows as they were.
        self.truncate_log().await?;
        let node = self.engine.node();
        self.store
            .write(move |tx| erasures::done(tx, id, node, clock::wall_time()))
            .await?;

        // Rows that the journal search relied on may have been erased a moment ago.
        self.truncate_log().await?;
        tracing::info!(org.id = %erasure.org_id, erasure.id = %erasure.id, "a contact is erased on this node");
        Ok(ErasureProgress::Done)
    }

    /// Removes unreadable journal lines that were set aside: those of the org, and those that name no org.
    async fn forget_set_aside(&self, erasure: &OpenErasure) -> Result<u64, ErasureFault> {
        let (journal, erasure) = (self.journal.clone(), erasure.clone());
        let forgotten = tokio::task::spawn_blocking(move || {
            journal.forget_set_aside(|line| {
                let text = String::from_utf8_lossy(line);
                erasure.subject.mentioned_in(&text)
                    && org_of(line).is_none_or(|org| org == erasure.org_id)
            })
        });
        Ok(forgotten.await.map_err(io::Error::other)??)
    }

    /// Adds to the receipt, at once after each step: if a later one fails, the next attempt finds nothing left to count.
    async fn count(&self, id: Uuid, more: Erased) -> Result<(), ErasureFault> {
        if more != Erased::default() {
            let counted = self.store.write(move |tx| erasures::count(tx, id, &more));
            counted.await?;
        }
        Ok(())
    }

    async fn forget_traces(&self, erasure: &OpenErasure) -> Result<(), ErasureFault> {
        let id = erasure.id;
        let legs = self.store.read(move |tx| erasures::legs(tx, id)).await?;

        let org = erasure.org_id;
        let erased = legs.into_iter().map(|legs| ErasedCall {
            org,
            call: legs.call,
            from: legs.from,
            until: legs.until,
        });
        let erased: Vec<ErasedCall> = erased.collect();

        let traces = Arc::clone(self.engine.traces());
        let forgotten = tokio::task::spawn_blocking(move || {
            let mut trace_messages = 0;
            let forgotten = traces.forget(&erased, &mut trace_messages);
            (trace_messages, forgotten)
        });
        let (trace_messages, forgotten) = forgotten.await.map_err(io::Error::other)?;
        // Counted before the fault is passed on: the next attempt doesn't find what is removed by now.
        self.count(
            id,
            Erased {
                trace_messages,
                ..Erased::default()
            },
        )
        .await?;
        Ok(forgotten?)
    }

    async fn truncate_log(&self) -> Result<(), ErasureFault> {
        for _ in 0..TRUNCATIONS {
            if self.store.truncate_log().await? {
                return Ok(());
            }
            tokio::time::sleep(TRUNCATION_INTERVAL).await;
        }
        Err(ErasureFault::InUse)
    }
}

/// Result of one attempt at an erasure.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum ErasureProgress {
    /// This node's part is done.
    Done,
    /// A call that mentions the contact is up.
    CallIsUp,
}

/// Erasures that couldn't be done.
#[derive(Debug, Default)]
struct DelayedErasures(HashMap<Uuid, Delay>);

#[derive(Copy, Clone, Debug)]
struct Delay {
    /// Check in which the erasure was tried last.
    tried: u32,
    /// Checks before the next attempt.
    pause: u32,
}

impl Delay {
    fn is_due(self, turn: u32) -> bool {
        turn.wrapping_sub(self.tried) >= self.pause
    }
}

impl DelayedErasures {
    /// Number of waiting erasures to read, so that enough are left beside the delayed ones.
    fn limit(&self) -> u32 {
        u32::try_from(MAX_PER_CHECK + self.0.len()).unwrap_or(u32::MAX)
    }

    /// Returns the erasures to try in this check.
    fn due(&mut self, waiting: Vec<WaitingErasure>, turn: u32) -> Vec<WaitingErasure> {
        // Those that weren't tried although they are due don't wait any more: another node did the last part, or the org is gone.
        self.0
            .retain(|_, delay| turn.wrapping_sub(delay.tried) < 2 * LONGEST_PAUSE);
        let delayed = &self.0;
        let is_due = |erasure: &WaitingErasure| {
            let delay = delayed.get(&erasure.id);
            delay.is_none_or(|delay| delay.is_due(turn))
        };
        let due = waiting.into_iter().filter(is_due);
        due.take(MAX_PER_CHECK).collect()
    }

    fn insert(&mut self, erasure: Uuid, turn: u32) {
        let before = self.0.get(&erasure);
        let pause = before.map_or(FIRST_PAUSE, |delay| (2 * delay.pause).min(LONGEST_PAUSE));
        if before.is_some() || self.0.len() < MAX_DELAYED {
            let tried = turn;
            self.0.insert(erasure, Delay { tried, pause });
        }
    }

    fn remove(&mut self, erasure: Uuid) {
        self.0.remove(&erasure);
    }
}

/// Returns the org that a journal line names, if it names one.
fn org_of(line: &[u8]) -> Option<Uuid> {
    #[derive(Deserialize)]
    struct OfOrg {
        org: Uuid,
    }
    // A fact is an object within one whose only key is its kind.
    let fact: HashMap<String, OfOrg> = serde_json::from_slice(line).ok()?;
    fact.into_values().next().map(|of| of.org)
}

#[cfg(test)]
mod tests {
    use trunkline_model::record::Fact;

    use super::*;

    fn erasure(id: u128, org: u128, partner: Option<u128>) -> WaitingErasure {
        WaitingErasure {
            id: Uuid::from_u128(id),
            org_id: Uuid::from_u128(org),
            partner_id: partner.map(Uuid::from_u128),
        }
    }

    #[test]
    fn a_journal_line_names_its_org() {
        let org = Uuid::from_u128(7);
        let fact = Fact::Held {
            call: Uuid::from_u128(1),
            org,
            held: true,
        };
        let line = serde_json::to_vec(&fact).unwrap();
        assert_eq!(org_of(&line), Some(org));
        assert_eq!(org_of(&line[..line.len() / 2]), None, "a torn one");
    }

    /// However long those of one org or partner take.
    #[test]
    fn an_org_and_a_partner_leave_places_for_the_erasures_of_others() {
        let mut under_way = UnderWay::default();
        for (case, id, org, partner, begins) in [
            ("the first", 1, 1, Some(7), true),
            ("the same", 1, 1, Some(7), false),
            ("another of the org", 2, 1, Some(7), false),
            ("another org of the partner", 3, 2, Some(7), true),
            ("a third org of the partner", 4, 3, Some(7), false),
            ("an honest org", 5, 4, None, true),
            ("another honest org", 6, 5, None, true),
            ("a fifth one", 7, 6, None, false),
        ] {
            let begun = under_way.begin(erasure(id, org, partner));
            assert_eq!(begun, begins, "{case}");
        }
        under_way.end(Uuid::from_u128(1));
        assert!(under_way.begin(erasure(2, 1, Some(7))));
    }

    #[test]
    fn erasures_that_cannot_be_done_leave_their_places_to_others() {
        let mut delayed = DelayedErasures::default();
        let all: Vec<WaitingErasure> = (1..=50).map(|id| erasure(id, id, None)).collect();
        let mut tried = Vec::new();
        for turn in 0..3 {
            let limit = usize::try_from(delayed.limit()).unwrap();
            let waiting = all.iter().copied().take(limit).collect();
            for erasure in delayed.due(waiting, turn) {
                tried.push(erasure);
                delayed.insert(erasure.id, turn);
            }
        }
        assert_eq!(tried, all);

        let again = delayed.due(all.clone(), FIRST_PAUSE);
        assert_eq!(again, all[..MAX_PER_CHECK]);
        // Each time later, but within a minute.
        let mut turn = FIRST_PAUSE;
        for pause in [8, 16, 32, 60, 60] {
            delayed.insert(all[0].id, turn);
            let first = vec![all[0]];
            assert!(delayed.due(first.clone(), turn + pause - 1).is_empty());
            assert_eq!(delayed.due(first, turn + pause), all[..1], "{pause}");
            turn += pause;
        }

        let many = (1..).map(Uuid::from_u128).take(2 * MAX_DELAYED);
        many.for_each(|id| delayed.insert(id, turn));
        assert_eq!(delayed.0.len(), MAX_DELAYED);
    }
}
