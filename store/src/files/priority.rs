//! Priority of threads: on a busy processor a shard's turn goes before all else.

use rustix::process::{getpid, getpriority_process, setpriority_process};

/// By how much threads of the runtime, which serve the API, and the thread that keeps traces give way. Traces with less than that would find no room.
pub const API_AND_TRACES: i32 = 5;
/// By how much threads that keep records and logs give way.
pub const RECORDS: i32 = 10;

/// Lowers the priority of the calling thread, and of those that it starts, below that of the process, which shards have.
pub fn give_way(by: i32) {
    // Of the main thread, since the caller may have inherited a lowered one.
    let of_process = getpriority_process(Some(getpid())).unwrap_or(0);
    // If the system refuses, all threads run at the same priority.
    let _ = setpriority_process(None, of_process.saturating_add(by));
}
