//! Sizes and times of a journal.

use std::time::Duration;

/// Sizes and times of a journal, and callbacks of its writer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Most facts that may wait to be written. Beyond this number none is taken ([`Full`](super::Full)).
    pub queue_facts: usize,
    /// Most octets of the lines of these facts. Beyond them no fact is taken either.
    pub queue_octets: usize,
    /// Time for which facts are gathered before they are written and synced together, unless somebody waits for one of them.
    pub gather: Duration,
    /// Length at which the next segment is started.
    pub segment_octets: u64,
    /// Interval at which the next segment is started although the present one isn't full, so that stored facts don't stay on disk.
    pub segment_age: Duration,
    /// Most octets of all segments on disk. Beyond them the journal works as on a full disk: facts wait in memory.
    pub spool_octets: u64,
    /// Time that the writer waits after the disk failed.
    pub disk_retry: Duration,
    /// Time for which synced facts are gathered before they are projected, so that a short call costs one row.
    pub window: Duration,
    /// Shortest and longest time that the projector waits after a failure.
    pub project_retry: (Duration, Duration),
    /// Called on the writer's thread once no fact has come for a second.
    pub on_idle: fn(),
    /// Called on the writer's thread after each batch, with the number of facts that wait.
    pub on_depth: fn(usize),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            queue_facts: 65_536,
            queue_octets: 128 << 20,
            gather: Duration::from_millis(50),
            segment_octets: 8 << 20,
            segment_age: Duration::from_secs(3_600),
            spool_octets: 4 << 30,
            disk_retry: Duration::from_millis(250),
            window: Duration::from_millis(100),
            project_retry: (Duration::from_millis(100), Duration::from_secs(5)),
            on_idle: || (),
            on_depth: |_| (),
        }
    }
}
