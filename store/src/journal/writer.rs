//! The thread that writes facts to disk: gather, write, sync, report; and start a new segment when the disk fails.
//!
//! Shards also write, if a fact can't wait: see `current`. A failed sync doesn't say which data is on the disk. So after any failure the
//! whole batch is written again into a new segment, repeatedly until it succeeds. Until then the queue fills up. Once half of it is used,
//! shards refuse new calls.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use tokio::sync::watch;

use super::position::{FactPosition, SyncedTo};
use super::queue::{Batch, Queue};
use super::recent::RecentWrite;
use super::segment::{Disk, Open, Segment};
use super::settings::Settings;
use super::shared::Shared;
use crate::files::priority::{RECORDS, give_way};

/// Capacity in octets that the writer keeps from one batch to the next.
const ROOM: usize = 256 << 10;

/// Attempts of a closing journal on a failing disk before it gives up facts that were never acknowledged.
const LAST_ATTEMPTS: u32 = 8;

pub(super) struct Writer<T, D: Disk> {
    disk: D,
    segment: Segment,
    /// File of the segment. Shards may already write to the following segment, or to none while the disk fails.
    tail: Open,
    /// Length of the segment, all of it synced.
    octets: u64,
    /// Number of the last segment created.
    number: u64,
    queue: Arc<Queue<T>>,
    shared: Arc<Shared<T>>,
    synced: watch::Sender<SyncedTo>,
    settings: Settings,
    /// Spare buffer for lines.
    spare: Vec<u8>,
}

/// A segment that isn't in use yet, and its file.
type Following = (Segment, Open);

impl<T: Serialize + Send + 'static, D: Disk + Send + 'static> Writer<T, D> {
    /// Starts the thread, which ends when the queue is closed and all of it written.
    pub(super) fn start(self) -> io::Result<()> {
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || {
                give_way(RECORDS);
                self.run();
            })
            .map(drop)
    }
}

impl<T, D: Disk> Writer<T, D> {
    /// Creates a writer for the first segment, whose file is `tail`.
    pub(super) fn new(
        disk: D,
        segment: Segment,
        tail: Open,
        queue: Arc<Queue<T>>,
        shared: Arc<Shared<T>>,
        synced: watch::Sender<SyncedTo>,
        settings: Settings,
    ) -> Self {
        Self {
            disk,
            number: segment.number,
            segment,
            tail,
            octets: 0,
            queue,
            shared,
            synced,
            settings,
            spare: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            let spare = &mut self.spare;
            let has_more = self.queue.wait(|| {
                *spare = Vec::new();
                (self.settings.on_idle)();
            });
            if !has_more {
                return;
            }

            self.queue.gather(self.settings.gather);
            self.keep();
            (self.settings.on_depth)(self.queue.depth());
        }
    }

    /// Writes and syncs all queued facts, however long it takes; gives up only if the journal is closing and the disk still fails.
    fn keep(&mut self) {
        let mut following = self.following();
        // From here on shards append to the following segment, while this thread syncs the present one.
        let (batch, written) = self.take(following.as_ref());
        let mut attempt = written.and_then(|()| self.shared.current.sync(&self.tail));
        let mut attempts_closed = 0;

        while let Err(error) = attempt {
            // Shards may have written to the following segment. `abandon` empties it; their lines are still in the
            // queue.
            following = None;
            self.abandon();
            self.shared.disk_failed(&self.queue, &error);
            // Attempts before the close don't count: facts of an open journal wait for as long as the disk needs.
            attempts_closed += u32::from(self.queue.is_closed());

            if attempts_closed == LAST_ATTEMPTS {
                let facts = batch.facts.len();
                tracing::error!(
                    facts,
                    "the journal closes without these facts: the disk fails"
                );
                return;
            }

            std::thread::sleep(self.settings.disk_retry);
            attempt = self.write_anew(&batch.lines);
        }

        self.kept(batch, following);
    }

    /// Creates the next segment if the queued facts fill the present one, or if it is asked for (see [`Queue::nudge`]). Called
    /// before the segment is locked, so that no shard waits for the file.
    fn following(&mut self) -> Option<Following> {
        let length = self.octets + self.queue.octets() as u64;
        // The nudge is taken even if the segment is empty: one that stays would keep `Queue::wait` from waiting.
        let is_wanted = self.queue.take_nudge() && length > 0;
        if length < self.settings.segment_octets && !is_wanted {
            return None;
        }
        // If the creation fails, the present segment grows longer.
        let made = self.create();
        made.map_err(|error| self.shared.disk_failed(&self.queue, &error))
            .ok()
    }

    fn create(&mut self) -> io::Result<Following> {
        // A number is never used twice, even if creating the file failed.
        self.number += 1;
        let segment = Segment {
            number: self.number,
            origin: self.segment.origin,
        };
        let tail = self.disk.create(&segment)?;
        Ok((segment, tail))
    }

    /// Takes all queued facts, and writes those lines that shards haven't. If that succeeds and there is a following segment, shards write
    /// to it from then on.
    fn take(&mut self, following: Option<&Following>) -> (Batch<T>, io::Result<()>) {
        let mut current = self.shared.current.lock();
        let batch = self.queue.take(std::mem::take(&mut self.spare));
        let written = match &*current {
            // Written under the lock: a shard's later lines must not get in between, since positions ascend in a
            // segment.
            Some(tail) => self
                .has_room(&batch.lines)
                .and_then(|()| tail.write(&batch.lines[batch.written..])),
            // What the failed write has left in the segment isn't known: an error has the whole batch written anew.
            None => Err(io::Error::other("a shard could not write to it")),
        };
        if let (Ok(()), Some((_, tail))) = (&written, following) {
            *current = Some(Arc::clone(tail));
        }
        (batch, written)
    }

    fn has_room(&self, lines: &[u8]) -> io::Result<()> {
        let spooled = self.shared.spooled.load(Ordering::Relaxed);
        // Treated like a full disk: facts wait in memory, and shards refuse new calls once half of the queue is used.
        if spooled.saturating_add(lines.len() as u64) > self.settings.spool_octets {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the journal has reached its size",
            ));
        }
        Ok(())
    }

    /// Abandons data that is written but not synced. Shards write nothing until there is another segment.
    fn abandon(&mut self) {
        let mut current = self.shared.current.lock();
        self.queue.take_back();
        if let Some(tail) = current.take().filter(|tail| !Arc::ptr_eq(tail, &self.tail)) {
            tail.cut(0);
        }

        // A failed sync may leave whole lines, which are also written to the next segment. If the cut fails as well,
        // their facts are projected twice, which is safe.
        self.tail.cut(self.octets);

        // Keep only segments with synced facts: otherwise a full disk would collect empty segments.
        if self.octets == 0 {
            self.disk.remove(&self.segment);
        }
    }

    /// Writes the lines into a new segment and continues there.
    fn write_anew(&mut self, lines: &[u8]) -> io::Result<()> {
        self.has_room(lines)?;
        let (segment, tail) = self.create()?;
        self.segment = segment;
        self.octets = 0;
        self.tail = Arc::clone(&tail);
        tail.write(lines)?;
        self.shared.current.sync(&tail)?;
        // Shards write again only after a sync of the new segment has succeeded.
        *self.shared.current.lock() = Some(tail);
        Ok(())
    }

    /// Publishes a batch that is synced.
    fn kept(&mut self, batch: Batch<T>, following: Option<Following>) {
        if self.shared.condition.set_disk_refuses(false) {
            tracing::info!("the journal is written again");
        }

        let start = self.octets;
        let length = batch.lines.len() as u64;
        self.octets += length;

        // A batch with a fact that has no line is read back from disk: the store gets what a restart would replay.
        if batch.is_whole && !batch.facts.is_empty() {
            self.shared.recent.leave(RecentWrite {
                segment: self.segment.number,
                octets: start..self.octets,
                first: FactPosition(batch.last.0 + 1 - batch.facts.len() as u64),
                facts: batch.facts,
                last: batch.last,
            });
        }

        self.shared.spooled.fetch_add(length, Ordering::Relaxed);

        if let Some((segment, tail)) = following {
            self.segment = segment;
            self.tail = tail;
            self.octets = 0;
        }

        // After handles and projector are dropped the channel has no receiver.
        self.synced.send_replace(SyncedTo {
            segment: self.segment.number,
            octets: self.octets,
            position: batch.last,
        });

        self.spare = batch.lines;
        self.spare.clear();

        self.spare.shrink_to(ROOM);
    }
}

/// Closes the queue when the writer ends, also by a panic: otherwise shards would append facts that no thread writes.
impl<T, D: Disk> Drop for Writer<T, D> {
    fn drop(&mut self) {
        self.queue.close();
        self.shared.condition.set_disk_refuses(true);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use super::super::current::{Current, HandOver, Watch};
    use super::super::frame::{Draft, Piece, Pieces};
    use super::super::position::Origin;
    use super::super::recent::Recent;
    use super::super::segment::Tail;
    use super::*;

    /// The next faults of the disk; once the list is empty, every call succeeds.
    #[derive(Copy, Clone, PartialEq, Eq, Debug)]
    enum Fault {
        Create,
        /// Only this many octets are written.
        WriteAfter(usize),
        /// The sync fails, and no data since the last sync is on the disk.
        Sync,
        None,
    }

    #[derive(Clone, Default)]
    struct Fake(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        faults: Vec<Fault>,
        segments: BTreeMap<u64, Vec<u8>>,
    }

    impl Fake {
        fn state(&self) -> std::sync::MutexGuard<'_, State> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Takes the next fault if it concerns this operation.
        fn fails(&self, is_it: impl Fn(Fault) -> bool) -> Option<Fault> {
            let mut state = self.state();
            let next = state
                .faults
                .first()
                .copied()
                .filter(|&fault| is_it(fault))?;
            state.faults.remove(0);
            Some(next)
        }
    }

    struct FakeTail {
        disk: Fake,
        number: u64,
        synced: AtomicUsize,
    }

    impl Disk for Fake {
        fn create(&self, segment: &Segment) -> io::Result<Open> {
            if self.fails(|fault| fault == Fault::Create).is_some() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            assert_eq!(
                self.state().segments.insert(segment.number, Vec::new()),
                None,
                "a number is used once"
            );
            Ok(Arc::new(FakeTail {
                disk: self.clone(),
                number: segment.number,
                synced: AtomicUsize::new(0),
            }))
        }

        /// A disk that can't delete: the segment keeps its content.
        fn remove(&self, _segment: &Segment) {}
    }

    impl Tail for FakeTail {
        fn write(&self, octets: &[u8]) -> io::Result<()> {
            let fault = self
                .disk
                .fails(|fault| matches!(fault, Fault::WriteAfter(_) | Fault::None));
            let mut state = self.disk.state();
            let segment = state.segments.get_mut(&self.number).unwrap();
            let Some(Fault::WriteAfter(count)) = fault else {
                segment.extend(octets);
                return Ok(());
            };
            segment.extend(&octets[..count]);
            Err(io::ErrorKind::StorageFull.into())
        }

        fn sync(&self) -> io::Result<()> {
            let fault = self.disk.fails(|fault| fault == Fault::Sync);
            let mut state = self.disk.state();
            let segment = state.segments.get_mut(&self.number).unwrap();
            if fault.is_some() {
                segment.truncate(self.synced.load(Ordering::Relaxed));
                return Err(io::ErrorKind::Other.into());
            }
            self.synced.store(segment.len(), Ordering::Relaxed);
            Ok(())
        }

        /// A full disk that can't even truncate: the torn line stays.
        fn cut(&self, _length: u64) {}
    }

    /// A journal on a disk that fails on demand; the tests call its writer instead of running it.
    struct Bench {
        queue: Arc<Queue<u32>>,
        shared: Arc<Shared<u32>>,
        writer: Writer<u32, Fake>,
        synced: watch::Receiver<SyncedTo>,
        watch: Watch,
    }

    impl Bench {
        fn new(disk: &Fake, settings: &Settings) -> Self {
            let first = Segment {
                number: 1,
                origin: Origin { node: 1, boot: 1 },
            };
            let tail = disk.create(&first).unwrap();
            let queue = Arc::new(Queue::new(settings.queue_facts, settings.queue_octets));
            let shared = Arc::new(Shared {
                spooled: 0.into(),
                condition: Arc::default(),
                recent: Recent::new(),
                current: Current::new(Arc::clone(&tail)),
                _lock: File::open("/dev/null").unwrap(),
            });

            let (to, synced) = watch::channel(SyncedTo {
                segment: 1,
                octets: 0,
                position: FactPosition(0),
            });

            let writer = Writer::new(
                disk.clone(),
                first,
                tail,
                Arc::clone(&queue),
                Arc::clone(&shared),
                to,
                settings.clone(),
            );

            Self {
                queue,
                shared,
                writer,
                synced,
                watch: Watch::default(),
            }
        }

        fn push(&self, facts: &[u32]) {
            let mut draft = Draft::default();
            for (number, fact) in facts.iter().enumerate() {
                let written = draft.add(number as u64, |out| serde_json::to_writer(out, fact));
                written.unwrap();
            }
            let pushed = self.queue.push(&mut facts.to_vec(), &mut draft, true);
            pushed.unwrap();
        }

        /// Hands over as a shard does before a SIP response leaves.
        fn hand_over(&mut self) -> HandOver {
            let now = trunkline_sip::moment::Moment::from_secs(1);
            let current = &self.shared.current;
            current.hand_over(&self.queue, &mut Vec::new(), &mut self.watch, now)
        }
    }

    fn settings() -> Settings {
        Settings {
            queue_facts: 100,
            gather: Duration::ZERO,
            disk_retry: Duration::ZERO,
            ..Settings::default()
        }
    }

    fn facts_on(disk: &Fake) -> Vec<u32> {
        let state = disk.state();
        let segments = state.segments.values();
        segments.flat_map(|octets| facts_in(octets)).collect()
    }

    fn facts_in(octets: &[u8]) -> Vec<u32> {
        let fact = |piece| match piece {
            Piece::Fact { json, .. } => Some(serde_json::from_slice(json).unwrap()),
            Piece::Damage { .. } | Piece::Torn { .. } => None,
        };
        Pieces::new(octets).filter_map(fact).collect()
    }

    /// Writes the batches to a disk with these faults, and returns the last report.
    fn write(disk: &Fake, settings: &Settings, batches: &[&[u32]]) -> SyncedTo {
        let mut bench = Bench::new(disk, settings);
        for batch in batches {
            bench.push(batch);
            bench.writer.keep();
            assert_eq!(
                bench.shared.condition.state(),
                crate::journal::State::Ok,
                "it works in the end"
            );
        }

        let Bench { shared, synced, .. } = &bench;
        for (number, octets) in &disk.state().segments {
            while let Some(from) = shared.recent.begins(*number) {
                let held = shared.recent.take(*number, from, u64::MAX).unwrap();
                let place = from as usize..held.octets.end as usize;
                assert_eq!(
                    facts_in(&octets[place]),
                    held.facts,
                    "memory and disk agree"
                );
            }
        }

        *synced.borrow()
    }

    #[test]
    fn whatever_fails_each_fact_is_on_the_disk_once_it_is_told_of() {
        let cases: [(&str, &[Fault], &[u32]); 6] = [
            ("nothing", &[], &[1, 2, 3, 4]),
            (
                "a full disk, with a torn line left",
                &[Fault::None, Fault::WriteAfter(20)],
                &[1, 2, 3, 4],
            ),
            (
                "a full disk behind a whole line",
                &[Fault::None, Fault::WriteAfter(40)],
                &[1, 2, 3, 3, 4],
            ),
            (
                "no new segment for a while",
                &[Fault::WriteAfter(0), Fault::Create, Fault::Create],
                &[1, 2, 3, 4],
            ),
            (
                "a sync that loses everything since the last",
                &[Fault::None, Fault::None, Fault::Sync],
                &[1, 2, 3, 4],
            ),
            (
                "a sync that fails twice",
                &[Fault::None, Fault::Sync, Fault::None, Fault::Sync],
                &[1, 2, 3, 4],
            ),
        ];
        for (name, faults, expected) in cases {
            let disk = Fake::default();
            disk.state().faults = faults.to_vec();
            let synced = write(&disk, &settings(), &[&[1, 2], &[3, 4]]);
            assert_eq!(
                (facts_on(&disk), synced.position),
                (expected.to_vec(), FactPosition(4)),
                "{name}"
            );
            assert_eq!(disk.state().faults, [], "{name}: all of it happened");
        }
    }

    #[test]
    fn a_full_segment_is_followed_by_another() {
        let disk = Fake::default();
        let synced = write(
            &disk,
            &Settings {
                segment_octets: 60,
                ..settings()
            },
            &[&[1], &[2], &[3], &[4], &[5]],
        );

        let lengths: Vec<_> = disk
            .state()
            .segments
            .iter()
            .map(|(&number, octets)| (number, octets.len()))
            .collect();

        assert_eq!(lengths, [(1, 74), (2, 74), (3, 37)]);
        assert_eq!(
            synced,
            SyncedTo {
                segment: 3,
                octets: 37,
                position: FactPosition(5)
            }
        );
    }

    #[test]
    fn a_closing_journal_gives_up_on_a_disk_that_stays_full_and_tells_of_nothing() {
        let disk = Fake::default();
        let limits = Settings {
            spool_octets: 50,
            ..settings()
        };
        let bench = Bench::new(&disk, &limits);
        bench.push(&[1, 2]);
        bench.queue.close();
        bench.writer.run();
        let synced = bench.synced;
        assert_eq!(
            (facts_on(&disk), synced.borrow().position),
            (vec![], FactPosition(0))
        );
    }
    #[test]
    fn what_is_handed_over_is_written_at_once_and_only_once() {
        let disk = Fake::default();
        let mut bench = Bench::new(&disk, &settings());
        bench.push(&[1, 2]);
        assert!(matches!(bench.hand_over(), HandOver::Over));
        assert_eq!(facts_on(&disk), [1, 2], "before the writer comes by");
        bench.push(&[3]);
        bench.writer.keep();
        bench.push(&[4]);
        assert!(matches!(bench.hand_over(), HandOver::Over));
        bench.writer.keep();
        assert_eq!(facts_on(&disk), [1, 2, 3, 4]);
        assert_eq!(bench.synced.borrow().position, FactPosition(4));
    }

    #[test]
    fn what_the_disk_refuses_a_shard_is_written_anew_by_the_writer() {
        let disk = Fake::default();
        let mut bench = Bench::new(&disk, &settings());
        bench.push(&[1]);
        bench.writer.keep();
        disk.state().faults = vec![Fault::WriteAfter(40)];
        bench.push(&[2, 3]);
        assert!(matches!(bench.hand_over(), HandOver::Refused(_)));
        bench.push(&[4]);
        assert!(matches!(bench.hand_over(), HandOver::Kept));
        bench.writer.keep();

        // The complete line of fact 2 is in both segments.
        assert_eq!(facts_on(&disk), [1, 2, 2, 3, 4]);
        bench.push(&[5]);

        assert!(matches!(bench.hand_over(), HandOver::Over));
        assert_eq!(facts_on(&disk).last(), Some(&5), "shards write again");
        bench.writer.keep();
        assert_eq!(bench.synced.borrow().position, FactPosition(5));
    }

    #[test]
    fn facts_behind_a_full_segment_are_handed_to_the_next() {
        let disk = Fake::default();
        let limits = Settings {
            segment_octets: 60,
            ..settings()
        };
        let mut bench = Bench::new(&disk, &limits);
        bench.push(&[1, 2]);
        assert!(matches!(bench.hand_over(), HandOver::Over));

        bench.writer.keep();
        bench.push(&[3]);
        assert!(matches!(bench.hand_over(), HandOver::Over));

        let segments: Vec<_> = disk
            .state()
            .segments
            .values()
            .map(|octets| facts_in(octets))
            .collect();

        assert_eq!(segments, [vec![1, 2], vec![3]]);
    }
}
