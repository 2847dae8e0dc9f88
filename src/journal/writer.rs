//! The thread that writes facts down: gather, write, sync, tell; and begin again elsewhere when the disk fails.
//!
//! A failed sync says nothing about what is on the disk, so that whatever fails the batch is written once more, whole,
//! into a new segment, as long as it takes. Meanwhile the queue fills up and the shards see it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::Serialize;
use tokio::sync::watch;

use super::frame::{self, Unwritable};
use super::queue::{Batch, Queue};
use super::recent::Written;
use super::segment::{Disk, Segment, Tail};
use super::{Position, Settings, Shared, Synced};
use crate::memory;

/// Facts written at once at most, which bounds how far a segment can grow beyond its length.
const BATCH: usize = 4_096;

/// Octets of room that the writer keeps from one batch to the next.
const ROOM: usize = 256 << 10;

/// How often a closing journal tries a disk that fails before it gives up what was never acknowledged.
const LAST_ATTEMPTS: u32 = 8;

pub(super) struct Writer<T, D: Disk> {
    disk: D,
    segment: Segment,
    /// Absent when the segment is full or failed: the next batch begins another.
    tail: Option<D::Tail>,
    /// The segment's length, all of it synced.
    octets: u64,
    queue: Arc<Queue<T>>,
    shared: Arc<Shared<T>>,
    synced: watch::Sender<Synced>,
    settings: Settings,
}

impl<T: Serialize + Send + 'static, D: Disk + Send + 'static> Writer<T, D>
where
    D::Tail: Send,
{
    /// Starts the thread, which ends when the queue is closed and all of it written.
    pub(super) fn start(self) -> io::Result<()> {
        std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || self.run())
            .map(drop)
    }
}

impl<T: Serialize, D: Disk> Writer<T, D> {
    /// Makes the first segment, so that a directory which can't be written shows at once.
    pub(super) fn new(
        disk: D,
        segment: Segment,
        queue: Arc<Queue<T>>,
        shared: Arc<Shared<T>>,
        synced: watch::Sender<Synced>,
        settings: Settings,
    ) -> io::Result<Self> {
        let tail = Some(disk.create(&segment)?);
        Ok(Self {
            disk,
            segment,
            tail,
            octets: 0,
            queue,
            shared,
            synced,
            settings,
        })
    }

    pub(super) fn run(mut self) {
        let mut lines = Vec::new();
        loop {
            let has_more = self.queue.wait(|| {
                lines = Vec::new();
                memory::give_back();
            });
            if !has_more {
                return;
            }
            std::thread::sleep(self.settings.gather);
            let batch = self.queue.take(BATCH);
            let facts = batch.facts.len();
            if !self.keep(&mut lines, batch) {
                tracing::error!(
                    facts,
                    "the journal closes without these facts: the disk fails"
                );
            }
            lines.clear();
            lines.shrink_to(ROOM);
            crate::telemetry::metrics::queue_depth("journal").set(self.queue.depth() as f64);
        }
    }

    /// Writes until it is done, into `lines` first, which are empty; `false` when the journal closes and the disk still fails.
    fn keep(&mut self, lines: &mut Vec<u8>, batch: Batch<T>) -> bool {
        let Encoded { last, is_whole } = encode(&batch, lines);
        let mut attempts_closed = 0;
        while let Err(error) = self.write(lines) {
            self.failed(&error);
            attempts_closed += u32::from(self.queue.is_closed());
            if attempts_closed == LAST_ATTEMPTS {
                return false;
            }
            std::thread::sleep(self.settings.disk_retry);
        }
        if self.shared.condition.set_disk_refuses(false) {
            tracing::info!("the journal is written again");
        }
        let start = self.octets;
        self.octets += lines.len() as u64;
        if is_whole {
            self.shared.recent.leave(Written {
                segment: self.segment.number,
                octets: start..self.octets,
                facts: batch.facts,
                last,
            });
        }
        self.shared
            .spooled
            .fetch_add(lines.len() as u64, Ordering::Relaxed);
        // Nobody listens once handles and projector are gone.
        self.synced.send_replace(Synced {
            segment: self.segment.number,
            octets: self.octets,
            position: last,
        });
        if self.octets >= self.settings.segment_octets {
            self.tail = None;
        }
        true
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let spooled = self.shared.spooled.load(Ordering::Relaxed);
        if spooled.saturating_add(lines.len() as u64) > self.settings.spool_octets {
            return Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the journal has reached its size",
            ));
        }
        if self.tail.is_none() {
            // A number is never used twice, whatever became of the file.
            self.segment.number += 1;
            self.octets = 0;
            self.tail = Some(self.disk.create(&self.segment)?);
        }
        let Some(tail) = &mut self.tail else {
            return Ok(());
        };
        let written = tail.write(lines).and_then(|()| tail.sync());
        if written.is_err() {
            tail.cut(self.octets);
            self.tail = None;
        }
        written
    }

    fn failed(&self, error: &io::Error) {
        metrics::counter!("trunkline_journal_errors_total").increment(1);
        if self.shared.condition.set_disk_refuses(true) {
            tracing::error!(%error, waiting = self.queue.depth(), "the journal cannot be written; facts wait in memory");
        }
    }
}

/// A writer that is gone, be it by a panic, must not leave the shards appending to nobody.
impl<T, D: Disk> Drop for Writer<T, D> {
    fn drop(&mut self) {
        self.queue.close();
        self.shared.condition.set_disk_refuses(true);
    }
}

/// What became of a batch.
struct Encoded {
    /// The position of its last fact.
    last: Position,
    /// Whether every fact has its line.
    is_whole: bool,
}

/// The lines of a batch.
fn encode<T: Serialize>(batch: &Batch<T>, lines: &mut Vec<u8>) -> Encoded {
    let mut encoded = Encoded {
        last: Position(batch.first.0 - 1),
        is_whole: true,
    };
    for fact in &batch.facts {
        encoded.last.0 += 1;
        let line = frame::append(lines, encoded.last, |out| serde_json::to_writer(out, fact));
        if let Err(fault @ (Unwritable::Json(_) | Unwritable::TooLong(_))) = line {
            encoded.is_whole = false;
            metrics::counter!("trunkline_journal_refused_facts_total").increment(1);
            tracing::error!(
                error = &fault as &dyn std::error::Error,
                "a fact cannot be written down"
            );
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use super::super::Origin;
    use super::super::frame::{Piece, Pieces};
    use super::super::recent::Recent;
    use super::*;

    /// What a disk does next; when the list is empty all goes well.
    #[derive(Copy, Clone, PartialEq, Eq, Debug)]
    enum Fault {
        Create,
        /// Only so many octets are written.
        WriteAfter(usize),
        /// The sync fails, and nothing since the last one is on the disk.
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

        /// Takes the next fault if it is about what is being done.
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
        synced: usize,
    }

    impl Disk for Fake {
        type Tail = FakeTail;

        fn create(&self, segment: &Segment) -> io::Result<FakeTail> {
            if self.fails(|fault| fault == Fault::Create).is_some() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            assert_eq!(
                self.state().segments.insert(segment.number, Vec::new()),
                None,
                "a number is used once"
            );
            Ok(FakeTail {
                disk: self.clone(),
                number: segment.number,
                synced: 0,
            })
        }
    }

    impl Tail for FakeTail {
        fn write(&mut self, octets: &[u8]) -> io::Result<()> {
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

        fn sync(&mut self) -> io::Result<()> {
            let fault = self.disk.fails(|fault| fault == Fault::Sync);
            let mut state = self.disk.state();
            let segment = state.segments.get_mut(&self.number).unwrap();
            if fault.is_some() {
                segment.truncate(self.synced);
                return Err(io::ErrorKind::Other.into());
            }
            self.synced = segment.len();
            Ok(())
        }

        /// A full disk that can't even cut: the torn line stays.
        fn cut(&mut self, _length: u64) {}
    }

    fn shared() -> Arc<Shared<u32>> {
        let lock = File::open("/dev/null").unwrap();
        Arc::new(Shared {
            spooled: 0.into(),
            condition: Arc::default(),
            recent: Recent::new(),
            _lock: lock,
        })
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

    /// Writes the batches over a disk with these faults, and returns the last that was told of.
    fn write(disk: &Fake, settings: &Settings, batches: &[&[u32]]) -> Synced {
        let queue = Arc::new(Queue::new(settings.queue_facts));
        let shared = shared();
        let (to, synced) = watch::channel(Synced {
            segment: 1,
            octets: 0,
            position: Position(0),
        });
        let first = Segment {
            number: 1,
            origin: Origin { node: 1, boot: 1 },
        };
        let mut writer = Writer::new(
            disk.clone(),
            first,
            Arc::clone(&queue),
            Arc::clone(&shared),
            to,
            settings.clone(),
        )
        .unwrap();
        for batch in batches {
            queue.push(&mut batch.to_vec()).unwrap();
            writer.keep(&mut Vec::new(), queue.take(BATCH));
            assert_eq!(
                writer.shared.condition.state(),
                crate::journal::State::Ok,
                "it works in the end"
            );
        }
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
                (expected.to_vec(), Position(4)),
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
            Synced {
                segment: 3,
                octets: 37,
                position: Position(5)
            }
        );
    }

    #[test]
    fn a_closing_journal_gives_up_on_a_disk_that_stays_full_and_tells_of_nothing() {
        let disk = Fake::default();
        let queue = Arc::new(Queue::new(10));
        let (to, synced) = watch::channel(Synced {
            segment: 1,
            octets: 0,
            position: Position(0),
        });
        let first = Segment {
            number: 1,
            origin: Origin { node: 1, boot: 1 },
        };
        let limits = Settings {
            spool_octets: 50,
            ..settings()
        };
        let writer = Writer::new(
            disk.clone(),
            first,
            Arc::clone(&queue),
            shared(),
            to,
            limits,
        )
        .unwrap();
        queue.push(&mut vec![1, 2]).unwrap();
        queue.close();
        writer.run();
        assert_eq!(
            (facts_on(&disk), synced.borrow().position),
            (vec![], Position(0))
        );
    }
}
