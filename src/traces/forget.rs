//! Removes the messages of some calls from all traces: from the open blocks, the blocks in memory and the segments on
//! disk. A block is unpacked, filtered and packed again; a segment is written to a new file, which then replaces the
//! old one.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use trunkline_sip::moment::Moment;

use super::block::{Block, BlockQuery};
use super::removal_filter::RemovalFilter;
use super::{Traces, lock, scan};

/// Legs of one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallLegs {
    /// Known Call-IDs. Legs whose INVITE names one of them, or the session, belong to the call too.
    pub call_ids: Vec<String>,
    /// Session, as our INVITEs name it.
    pub session: Option<String>,
    /// Earliest time of a message.
    pub from: Moment,
    /// Latest time of a message.
    pub until: Moment,
}

/// Rounds of the search for further legs; each is named by one found before.
const ROUNDS: usize = 4;

impl Traces {
    /// Removes the messages of these calls and returns their number. Reads and writes files.
    ///
    /// # Errors
    /// A segment can't be written; it is unchanged, and the call can be repeated.
    pub fn forget(&self, legs: &[CallLegs]) -> io::Result<u64> {
        let mut gone = 0;
        for legs in legs {
            gone += self.forget_one(&self.going(legs))?;
        }
        Ok(gone)
    }

    /// Collects all Call-IDs of a call.
    fn going(&self, legs: &CallLegs) -> RemovalFilter {
        let mut call_ids: HashSet<Vec<u8>> = legs
            .call_ids
            .iter()
            .map(|id| id.clone().into_bytes())
            .collect();
        let wanted = BlockQuery {
            keys: None,
            from: legs.from,
            until: legs.until,
        };

        for _ in 0..ROUNDS {
            let names = legs
                .session
                .iter()
                .map(|session| session.as_bytes().to_vec());
            let names: Vec<Vec<u8>> = names.chain(call_ids.iter().cloned()).collect();
            let finders: Vec<_> = names.iter().map(memchr::memmem::Finder::new).collect();
            let mut more = HashSet::new();
            self.each(&wanted, &mut |record| {
                let call_id = scan::call_id(record.octets);
                let is_new = record.octets.starts_with(b"INVITE ") && !call_ids.contains(call_id);
                if is_new
                    && finders
                        .iter()
                        .any(|name| name.find(record.octets).is_some())
                {
                    more.insert(call_id.to_vec());
                }
            });

            if more.is_empty() {
                break;
            }

            call_ids.extend(more);
        }

        RemovalFilter::new(call_ids, legs.from, legs.until)
    }

    fn forget_one(&self, going: &RemovalFilter) -> io::Result<u64> {
        self.sweep((self.clock)());
        let mut gone = 0;
        let mut scratch = Vec::new();

        // All code takes the locks in this order, so nothing moves from memory to disk meanwhile.
        let mut files = self.segments.as_ref().map(lock);
        {
            let mut kept = lock(&self.kept);
            let kept = &mut *kept;
            for store in [&mut kept.unmatched, &mut kept.calls] {
                for gathered in [&mut store.full, &mut store.open] {
                    gone += gathered.drop_if(|record| going.takes(record));
                }
                let blocks = std::mem::take(&mut store.closed);
                store.held = 0;
                for block in blocks {
                    let left = filtered(going, block, &mut scratch, &mut gone);
                    store.held += left.as_ref().map_or(0, |block| block.size());
                    store.closed.extend(left);
                }
            }

            let unwritten = std::mem::take(&mut kept.unwritten);
            for block in unwritten {
                let left = filtered(going, block, &mut scratch, &mut gone);
                kept.unwritten.extend(left);
            }
        }

        if let Some(files) = &mut files {
            gone += files.forget(going, &mut scratch)?;
        }

        Ok(gone)
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
