//! Priority of the threads that keep records.

/// Gives the calling thread, which keeps records or logs, a lower priority than all that handles calls: on a busy processor a shard's turn goes
/// first.
pub fn give_way() {
    // If the system refuses, all threads run at the same priority.
    let _ = rustix::process::setpriority_process(None, 10);
}
