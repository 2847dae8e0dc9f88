//! Removes the messages of some calls from all traces: from the open blocks, the blocks in memory and the segments on
//! disk. A block is unpacked, filtered and packed again; a segment is written to a new file, which then replaces the
//! old one. Messages that belong to no call are in memory alone, for seconds.

use std::io;
use std::sync::Arc;

use super::block::Block;
use super::removal_filter::{ErasedCall, RemovalFilter};
use super::{Traces, lock};

/// Calls whose messages are removed in one pass over the blocks.
const CALLS_AT_ONCE: usize = 100;

impl Traces {
    /// Removes the messages of these calls and adds their number to `gone`, also where it fails halfway. Reads and writes files.
    ///
    /// # Errors
    /// A segment can't be read or written; it is unchanged, and the call can be repeated.
    pub fn forget(&self, erased: &[ErasedCall], gone: &mut u64) -> io::Result<()> {
        // Some at a time: the locks are held meanwhile.
        erased
            .chunks(CALLS_AT_ONCE)
            .try_for_each(|some| self.forget_some(&RemovalFilter::new(some), gone))
    }

    fn forget_some(&self, going: &RemovalFilter, gone: &mut u64) -> io::Result<()> {
        // What waits in the queues of shards has to go as well.
        self.sweep((self.clock)());
        let mut scratch = Vec::new();

        // All code takes the locks in this order, so nothing moves from memory to disk meanwhile.
        let mut files = self.segments.as_ref().map(lock);
        {
            let mut kept = lock(&self.kept);
            let kept = &mut *kept;
            // An erased call is over: late messages that repeat its texts are kept no more.
            going.calls().for_each(|call| kept.assignments.remove(call));
            *gone += kept.calls.open.drop_if(|record| going.takes(record));
            let blocks = std::mem::take(&mut kept.calls.closed);
            kept.calls.held = 0;
            for block in blocks {
                let left = filtered(going, block, &mut scratch, gone);
                kept.calls.held += left.as_ref().map_or(0, |block| block.size());
                kept.calls.closed.extend(left);
            }

            let unwritten = std::mem::take(&mut kept.unwritten);
            for block in unwritten {
                let left = filtered(going, block, &mut scratch, gone);
                kept.unwritten.extend(left);
            }
        }

        match &mut files {
            Some(files) => files.forget(going, &mut scratch, gone),
            None => Ok(()),
        }
    }
}

/// Returns the block, or what is left of it.
fn filtered(
    going: &RemovalFilter,
    block: Arc<Block>,
    scratch: &mut Vec<u8>,
    gone: &mut u64,
) -> Option<Arc<Block>> {
    match going.filtered(&block, scratch) {
        None => Some(block),
        Some((left, count)) => {
            *gone += count;
            left.map(Arc::new)
        }
    }
}
