//! Returns memory to the system after a load.
//!
//! The allocator keeps a thread's empty pages until that thread allocates again, which an idle thread doesn't do.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of times that the node has become idle.
static RESTS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Number of rests that this thread has followed.
    static FOLLOWED: Cell<usize> = const { Cell::new(0) };
}

/// Returns this thread's empty pages. Takes milliseconds, so only an idle thread calls it.
#[expect(
    unsafe_code,
    reason = "the allocator's own function, which has no safe face"
)]
pub(crate) fn give_back() {
    // SAFETY: takes no pointers and may be called from any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// Notes that the node has become idle: this thread returns its empty pages, every other one that [follows](follow)
/// does so at its next turn, and the C library, whose memory the database uses, returns its own.
pub(crate) fn come_to_rest() {
    RESTS.fetch_add(1, Ordering::Relaxed);
    follow(|| ());
    trim();
}

/// Drops the buffers that this thread keeps for loads and returns its empty pages, once each time the node becomes
/// idle. Otherwise it costs next to nothing.
pub(crate) fn follow(drop_spare: impl FnOnce()) {
    let rests = RESTS.load(Ordering::Relaxed);
    if FOLLOWED.replace(rests) != rests {
        drop_spare();
        give_back();
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "the library's own function, which has no safe face"
)]
fn trim() {
    // SAFETY: takes no pointers and may be called from any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries have no such function.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn trim() {}
