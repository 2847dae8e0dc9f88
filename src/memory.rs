//! Gives memory back to the system once a load is over.
//!
//! The allocator keeps a thread's empty pages until that thread allocates again, which a thread without work doesn't do.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often the node has come to rest.
static RESTS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The rests that this thread has followed.
    static FOLLOWED: Cell<usize> = const { Cell::new(0) };
}

/// Returns this thread's empty pages. Costs milliseconds: for a thread that is idle.
#[expect(
    unsafe_code,
    reason = "the allocator's own function, which has no safe face"
)]
pub(crate) fn give_back() {
    // SAFETY: takes no pointers and may be called from any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// The node has come to rest: this thread returns its empty pages, every other that [follows](follow) when it next passes, and the C
/// library, whose memory the database's is, its own.
pub(crate) fn come_to_rest() {
    RESTS.fetch_add(1, Ordering::Relaxed);
    follow(|| ());
    trim();
}

/// Drops what this thread keeps for loads alone and returns its empty pages, once after each rest. Costs next to nothing otherwise.
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

/// Other libraries have no such function.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
const fn trim() {}
