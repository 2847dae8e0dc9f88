//! Lines of the log on their way to standard error, whose reader may be slow: a shard never waits for it, and wakes the thread that writes once for
//! many lines.

use std::io::{self, Write};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;
use trunkline_store::priority::{RECORDS, give_way};

/// Lines, and their octets, that may wait. A line beyond them is dropped, and counted.
const MAX_LINES: usize = 16_384;
const MAX_OCTETS: usize = 16 << 20;
/// Time for which lines gather before they are written together.
const GATHER: Duration = Duration::from_millis(10);
/// Longest time that the end of the process waits for the last lines.
const FAREWELL: Duration = Duration::from_secs(1);
/// Capacity that an empty buffer keeps.
const ROOM: usize = 64 << 10;

/// Queue of lines. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LogQueue(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// Notified when the first line comes, at the close, and when everything is written after it.
    changed: Condvar,
    dropped: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    octets: Vec<u8>,
    lines: usize,
    is_closed: bool,
    /// True once the thread has written everything after the close.
    is_over: bool,
}

/// Writes the remaining lines when it is dropped, for a second at most.
#[derive(Debug)]
#[must_use = "what is logged after the guard is dropped is lost"]
pub struct LogGuard(LogQueue);

impl LogQueue {
    /// Starts the thread that writes lines to `to`. Without one, which the system may refuse, every line is dropped and counted.
    pub(super) fn start(to: impl Write + Send + 'static) -> (Self, LogGuard) {
        let queue = Self::default();
        let writing = queue.clone();
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writing.write_all(to));
        if thread.is_err() {
            let mut waiting = queue.waiting();
            (waiting.is_closed, waiting.is_over) = (true, true);
        }
        (queue.clone(), LogGuard(queue))
    }

    /// Number of lines dropped so far.
    pub(super) fn dropped(&self) -> usize {
        self.0.dropped.load(Ordering::Relaxed)
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        let has_room = waiting.lines < MAX_LINES && waiting.octets.len() + line.len() <= MAX_OCTETS;
        if waiting.is_closed || !has_room {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }

        // The thread sleeps only while nothing waits.
        let is_first = waiting.lines == 0;
        waiting.octets.extend_from_slice(line);
        waiting.lines += 1;
        drop(waiting);
        if is_first {
            self.0.changed.notify_all();
        }
    }

    fn write_all(&self, mut to: impl Write) {
        give_way(RECORDS);
        let mut taken = Vec::new();
        loop {
            let waiting = self.until(|waiting| waiting.lines > 0 || waiting.is_closed, None);
            if waiting.lines == 0 {
                break;
            }
            drop(waiting);

            let mut waiting = self.until(|waiting| waiting.is_closed, Some(GATHER));
            std::mem::swap(&mut taken, &mut waiting.octets);
            waiting.lines = 0;
            drop(waiting);

            // Standard error is the only output: that it can't be written can't be said anywhere.
            let _ = to.write_all(&taken).and_then(|()| to.flush());
            taken.clear();
            taken.shrink_to(ROOM);
        }

        self.waiting().is_over = true;
        self.0.changed.notify_all();
    }

    /// Waits until `is_so`, for this long at most.
    fn until(
        &self,
        is_so: impl Fn(&Waiting) -> bool,
        at_most: Option<Duration>,
    ) -> MutexGuard<'_, Waiting> {
        let waiting = self.waiting();
        let goes_on = |waiting: &mut Waiting| !is_so(waiting);
        match at_most {
            Some(at_most) => {
                let waited = self.0.changed.wait_timeout_while(waiting, at_most, goes_on);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.0.changed.wait_while(waiting, goes_on);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LogGuard {
    fn drop(&mut self) {
        let LogQueue(shared) = &self.0;
        self.0.waiting().is_closed = true;
        shared.changed.notify_all();
        drop(self.0.until(|waiting| waiting.is_over, Some(FAREWELL)));
    }
}

/// Takes one line a call, as the formatter writes it.
#[derive(Debug)]
pub(super) struct LineWriter<'q>(&'q LogQueue);

impl Write for LineWriter<'_> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'q> MakeWriter<'q> for LogQueue {
    type Writer = LineWriter<'q>;

    fn make_writer(&'q self) -> Self::Writer {
        LineWriter(self)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// An output that waits for leave before each write.
    struct Slow(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Slow {
        fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            self.1.lock().unwrap().extend_from_slice(octets);
            Ok(octets.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_in_order_and_to_the_last() {
        let (leave, wait) = mpsc::channel();
        let written = Arc::default();
        let (queue, guard) = LogQueue::start(Slow(wait, Arc::clone(&written)));
        // Every write has its leave.
        drop(leave);
        for line in 0..100 {
            queue.push(format!("{line}\n").as_bytes());
        }
        drop(guard);

        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let expected: String = (0..100).map(|line| format!("{line}\n")).collect();
        assert_eq!(text, expected);
        assert_eq!(queue.dropped(), 0);

        queue.push(b"late\n");
        assert_eq!(queue.dropped(), 1);
    }

    #[test]
    fn nobody_waits_for_a_reader_that_reads_nothing() {
        let (leave, wait) = mpsc::channel();
        let (queue, guard) = LogQueue::start(Slow(wait, Arc::default()));
        for _ in 0..3 * MAX_LINES {
            queue.push(b"line\n");
        }
        // At most as many as are being written, and as many as wait.
        let dropped = queue.dropped();
        assert!((MAX_LINES..=2 * MAX_LINES).contains(&dropped), "{dropped}");
        drop(leave);
        drop(guard);
    }
}
