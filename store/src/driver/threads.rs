//! Threads that run transactions, each with a connection of its own, so that no executor thread ever waits for the disk or the server.
//!
//! A task that has a transaction to run waits for a free thread, in the order of arrival and for a bounded time, and hands it over whole:
//! one hop there and one back. A transaction of several steps keeps its thread until it is ended or dropped, or the thread has waited too
//! long for a step.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tracing::Span;

use super::acting::Acting;
use super::caller::{Caller, Presence};
use super::error::{Broke, Error};
use super::server::{Purpose, Remote};
use super::tx::Tx;
use crate::files::priority::{RECORDS, give_way};

/// Longest wait for a free thread; then the caller gets [`Broke::Busy`].
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait of a thread for the next step of a transaction; then the transaction is rolled back.
const TURN: Duration = Duration::from_secs(10);
/// Idle time after which a connection is tested before its next use.
const RESTED: Duration = Duration::from_secs(1);
/// Idle time after which a connection is closed.
const IDLE: Duration = Duration::from_secs(600);

/// The threads. Clones share them.
#[derive(Clone)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
    /// The server, unless the database is embedded.
    remote: Option<Remote>,
}

struct Shared {
    /// Creates the connection of a thread.
    make: Box<dyn Fn() -> Result<Tx, Error> + Send + Sync>,
    /// One permit for each thread that may run.
    permits: Arc<Semaphore>,
    most: u32,
    patience: Duration,
    turn: Duration,
    /// Idle threads, the last used on top; `None` once they are closed.
    idle: Mutex<Option<Vec<Worker>>>,
}

struct Worker {
    tasks: Sender<Task>,
    thread: JoinHandle<()>,
}

type Work = Box<dyn FnOnce(&mut Tx, Seat) + Send>;

/// Work for a thread, and the seat: dropped when the work is done, it returns the thread to the pool.
struct Task {
    work: Work,
    seat: Seat,
}

/// The right to use a thread. Dropping it frees the thread for another task.
struct Seat {
    worker: Option<Worker>,
    shared: Arc<Shared>,
    _permit: OwnedSemaphorePermit,
}

/// A transaction that runs in several steps. Dropped before it is ended, it is rolled back.
pub(crate) struct OpenTransaction {
    steps: Sender<Step>,
    caller: Presence,
    remote: Option<Remote>,
}

/// A step; returns whether the transaction continues after it.
type Step = Box<dyn FnOnce(&mut Tx) -> bool + Send>;

/// Outcome of work: its result, or the panic in which it ended.
type Done<T> = std::thread::Result<T>;

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads")
            .field("most", &self.shared.most)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OpenTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenTransaction").finish_non_exhaustive()
    }
}

impl Threads {
    /// Creates a pool of at most `most` threads, each with a connection from `make`.
    pub(crate) fn new(
        most: u32,
        remote: Option<Remote>,
        make: impl Fn() -> Result<Tx, Error> + Send + Sync + 'static,
    ) -> Self {
        Self::bounded(PATIENCE, TURN, most, remote, make)
    }

    fn bounded(
        patience: Duration,
        turn: Duration,
        most: u32,
        remote: Option<Remote>,
        make: impl Fn() -> Result<Tx, Error> + Send + Sync + 'static,
    ) -> Self {
        let most = most.max(1);
        let shared = Arc::new(Shared {
            make: Box::new(make),
            permits: Arc::new(Semaphore::new(most as usize)),
            most,
            patience,
            turn,
            idle: Mutex::new(Some(Vec::new())),
        });
        Self { shared, remote }
    }

    /// Runs work on a thread. Work whose caller has gone before it begins is skipped; a panic continues in the caller.
    ///
    /// # Errors
    /// [`Broke`] if no thread is free in time.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        purpose: Purpose,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let caller = Presence::default();
        let seen = Arc::clone(&caller.0);
        let served = async {
            let seat = self.seat().await?;
            let (reply, answer) = oneshot::channel();
            // Both belong to the task: on the thread they would be unknown.
            let (span, acting) = (Span::current(), Acting::current());
            let work = move |tx: &mut Tx| Acting::on(acting, || work(tx));

            seat.hand_over(move |tx, seat| {
                let done = attempt(tx, &span, seen, work);
                tx.reset();
                // Freed before the caller continues, since it may come again at once.
                drop(seat);
                // A caller that has gone needs no result.
                let _ = reply.send(done);
            });

            finished(answer.await)
        };
        match &self.remote {
            Some(remote) => remote.unless_away(&caller.0, purpose, served).await,
            None => served.await,
        }
    }

    /// Takes a thread for a transaction of several steps.
    ///
    /// # Errors
    /// [`Broke`] if no thread is free in time.
    pub(crate) async fn session(&self) -> Result<OpenTransaction, Error> {
        let caller = Presence::default();
        let seated = self.seat();
        let seat = match &self.remote {
            Some(remote) => {
                remote
                    .unless_away(&caller.0, Purpose::Write, seated)
                    .await?
            }
            None => seated.await?,
        };
        let (steps, coming) = mpsc::channel();
        seat.hand_over(move |tx, seat| {
            take_steps(tx, &coming, seat.shared.turn);
            tx.reset();
            drop(seat);
        });

        Ok(OpenTransaction {
            steps,
            caller,
            remote: self.remote.clone(),
        })
    }

    /// Waits until all work is done, and ends the threads.
    pub(crate) async fn close(&self) {
        // Fails only if the semaphore was closed before.
        // All permits at once: every thread has then returned its seat, so nothing is in progress.
        let _all = self.shared.permits.acquire_many(self.shared.most).await;
        // Tasks that wait for a thread get an error from here on.
        self.shared.permits.close();
        let ended = self.shared.idle().take().unwrap_or_default();
        let ended = tokio::task::spawn_blocking(|| {
            for Worker { tasks, thread } in ended {
                drop(tasks);
                // Panics of work are caught, so the thread itself doesn't panic.
                let _ = thread.join();
            }
        });
        let _ = ended.await;
    }

    async fn seat(&self) -> Result<Seat, Error> {
        let permit = Arc::clone(&self.shared.permits).acquire_owned();
        let permit = tokio::time::timeout(self.shared.patience, permit).await;
        let permit = permit
            .map_err(|_| Broke::Busy)?
            .map_err(|_| Broke::Closed)?;
        // The last one used: the others rest, and their connections to a server close once they have been idle for
        // long.
        let resting = match self.shared.idle().as_mut() {
            Some(idle) => idle.pop(),
            None => return Err(Broke::Closed.into()),
        };
        let worker = match resting {
            Some(worker) => worker,
            // Only under a permit, so there are never more threads than permits.
            None => self.shared.start()?,
        };

        Ok(Seat {
            worker: Some(worker),
            shared: Arc::clone(&self.shared),
            _permit: permit,
        })
    }
}

impl Shared {
    fn start(&self) -> Result<Worker, Error> {
        let tx = (self.make)()?;
        let (tasks, coming) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("database".to_owned())
            .spawn(move || {
                give_way(RECORDS);
                serve(&coming, tx);
            })
            .map_err(Broke::Thread)?;
        Ok(Worker { tasks, thread })
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<Worker>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    fn hand_over(self, work: impl FnOnce(&mut Tx, Self) + Send + 'static) {
        let Some(worker) = &self.worker else { return };
        let tasks = worker.tasks.clone();
        let work = Box::new(work);
        // A thread lives as long as its seat. Work that it doesn't take is dropped, and its caller gets an error.
        let _ = tasks.send(Task { work, seat: self });
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The thread is returned before the permit is released, which happens after this body: the task that gets the
        // permit then finds an idle thread.
        let worker = self.worker.take();
        if let Some(idle) = self.shared.idle().as_mut() {
            idle.extend(worker);
        }
    }
}

/// Main loop of a thread.
fn serve(tasks: &Receiver<Task>, mut tx: Tx) {
    while let Some(Task { work, seat }) = next(tasks, &mut tx) {
        work(&mut tx, seat);
    }
    tx.close();
}

fn next(tasks: &Receiver<Task>, tx: &mut Tx) -> Option<Task> {
    // A connection to a server that has been silent may have been cut by a firewall or a restart, unseen from here.
    if tx.is_remote() {
        match tasks.recv_timeout(RESTED) {
            Err(RecvTimeoutError::Timeout) => tx.rest(),
            task => return task.ok(),
        }
        match tasks.recv_timeout(IDLE) {
            Err(RecvTimeoutError::Timeout) => tx.close(),
            task => return task.ok(),
        }
    }
    tasks.recv().ok()
}

/// Runs steps until the last of them, or until none comes in time.
fn take_steps(tx: &mut Tx, steps: &Receiver<Step>, turn: Duration) {
    loop {
        // On SQLite all other writers wait for this thread. A request that hangs between two steps must not stop them.
        match steps.recv_timeout(turn) {
            Ok(step) => {
                if !step(tx) {
                    return;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("a transaction that was left open is rolled back");
                return;
            }
        }
    }
}

/// Runs work for a caller, unless the caller has gone.
fn attempt<T>(
    tx: &mut Tx,
    span: &Span,
    caller: Arc<Caller>,
    work: impl FnOnce(&mut Tx) -> Result<T, Error>,
) -> Done<Result<T, Error>> {
    if caller.is_gone() {
        // Nobody reads this: the task was dropped while its work waited in the queue.
        return Ok(Err(Broke::Away.into()));
    }
    tx.serve(caller);
    // The thread and its connection outlive a panic. What the work left half done is rolled back by `Tx::reset`.
    catch_unwind(AssertUnwindSafe(|| span.in_scope(|| work(tx))))
}

/// Returns the outcome of a thread's work; resumes its panic.
fn finished<T>(
    answer: Result<Done<Result<T, Error>>, oneshot::error::RecvError>,
) -> Result<T, Error> {
    match answer {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => Err(Broke::Closed.into()),
    }
}

impl OpenTransaction {
    /// Runs a step. A step that fails or panics doesn't end the transaction.
    ///
    /// # Errors
    /// Those of `work`; [`Broke`] if the transaction was rolled back because this step came too late.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.step(true, work).await
    }

    /// Runs the last step.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub(crate) async fn end<T: Send + 'static>(
        self,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        self.step(false, work).await
    }

    async fn step<T: Send + 'static>(
        &self,
        goes_on: bool,
        work: impl FnOnce(&mut Tx) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let (seen, span) = (Arc::clone(&self.caller.0), Span::current());
        let acting = Acting::current();
        let work = move |tx: &mut Tx| Acting::on(acting, || work(tx));

        let step = move |tx: &mut Tx| {
            let done = attempt(tx, &span, seen, work);
            // A caller that has gone needs no result.
            let _ = reply.send(done);
            goes_on
        };

        // Fails once the thread has stopped waiting for this transaction.
        self.steps.send(Box::new(step)).map_err(|_| Broke::Late)?;

        let served = async { finished(answer.await) };
        match &self.remote {
            Some(remote) => {
                remote
                    .unless_away(&self.caller.0, Purpose::Write, served)
                    .await
            }
            None => served.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::commit::commit;
    use crate::driver::sqlite::{Connections, OpenMode};
    use crate::driver::tx::Mode;

    /// More than a thread needs for its turn on a busy machine.
    const SHORT: Duration = Duration::from_secs(2);
    const LONG: Duration = Duration::from_secs(60);

    /// A pool of one writing thread, and its directory.
    fn threads(bounds: (Duration, Duration)) -> (tempfile::TempDir, Threads) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shop.db");
        std::fs::write(&file, []).unwrap();
        let connections = Arc::new(Connections::new(file, OpenMode::Writing(SHORT), 1));
        let make = move || Ok(Tx::on_sqlite(Arc::clone(&connections), Arc::default()));
        (folder, Threads::bounded(bounds.0, bounds.1, 1, None, make))
    }

    async fn write(
        threads: &Threads,
        work: impl FnOnce(&mut Tx) -> Result<u64, Error> + Send + 'static,
    ) -> Result<u64, Error> {
        let written = move |tx: &mut Tx| {
            tx.begin(Mode::Write)?;
            let value = work(tx)?;
            commit(tx).map(|_| value)
        };
        threads.run(Purpose::Write, written).await
    }

    #[tokio::test]
    async fn a_free_thread_is_waited_for_in_time() {
        let (_folder, threads) = threads((SHORT, LONG));
        let first = threads.session().await.unwrap();
        first.run(|tx| tx.begin(Mode::Write)).await.unwrap();
        let fault = threads.run(Purpose::Read, |_| Ok(())).await.unwrap_err();
        assert!(matches!(fault, Error::Broke(Broke::Busy)), "{fault}");
        drop(first);
        threads.run(Purpose::Read, |_| Ok(())).await.unwrap();
        threads.close().await;
    }

    #[tokio::test]
    async fn a_transaction_that_is_left_open_loses_its_turn() {
        let (_folder, threads) = threads((LONG, SHORT));
        let shop = |tx: &mut Tx| tx.run("CREATE TABLE shoes (size INTEGER)", &[]);
        write(&threads, shop).await.unwrap();
        let left = threads.session().await.unwrap();
        let step = |tx: &mut Tx| {
            tx.begin(Mode::Write)?;
            tx.run("INSERT INTO shoes VALUES (40)", &[])
        };
        left.run(step).await.unwrap();
        let deleted = write(&threads, |tx| tx.run("DELETE FROM shoes", &[])).await;
        assert_eq!(deleted.unwrap(), 0, "what was left open is rolled back");
        let fault = left.run(step).await.unwrap_err();
        assert!(matches!(fault, Error::Broke(Broke::Late)), "{fault}");
        threads.close().await;
    }

    #[tokio::test]
    async fn steps_are_of_one_transaction_until_it_is_ended() {
        let (_folder, threads) = threads((LONG, LONG));
        let shop = |tx: &mut Tx| tx.run("CREATE TABLE shoes (size INTEGER)", &[]);
        write(&threads, shop).await.unwrap();

        let insert = |tx: &mut Tx| {
            tx.begin(Mode::Write)?;
            tx.run("INSERT INTO shoes VALUES (40)", &[])
        };
        let dropped = threads.session().await.unwrap();
        dropped.run(insert).await.unwrap();
        drop(dropped);

        let kept = threads.session().await.unwrap();
        for _ in 0..3 {
            kept.run(insert).await.unwrap();
            kept.run(|tx| tx.run("INSERT INTO socks VALUES (1)", &[]))
                .await
                .unwrap_err();
        }
        kept.end(commit).await.unwrap();

        let deleted = write(&threads, |tx| tx.run("DELETE FROM shoes", &[])).await;
        assert_eq!(deleted.unwrap(), 3);
        threads.close().await;
    }
}
