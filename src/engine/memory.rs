//! Gives memory back to the system once a shard has come to rest.
//!
//! The allocator keeps a thread's empty pages until that thread allocates again, which a shard without calls
//! doesn't do.

/// Returns this thread's empty pages. Costs milliseconds: for a thread that is idle.
#[expect(
    unsafe_code,
    reason = "the allocator's own function, which has no safe face"
)]
pub(super) fn give_back() {
    // SAFETY: takes no pointers and may be called from any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}
