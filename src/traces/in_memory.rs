//! Messages of calls in memory: those that no file has, up to a quota. An org beyond its share loses its own oldest first.

use std::collections::VecDeque;
use std::sync::Arc;

use super::block::{Block, Open};
use super::shares::{self, Partners, THINNED_PERCENT};

/// Blocks in memory from which the messages of orgs above their share are dropped at once: taps wait meanwhile.
const THINNED_AT_ONCE: u32 = 8;

/// Messages of calls.
#[derive(Debug, Default)]
pub(super) struct CallsInMemory {
    pub(super) open: Open,
    pub(super) closed: VecDeque<Arc<Block>>,
    /// Octets of the closed blocks.
    pub(super) held: usize,
}

impl CallsInMemory {
    /// Keeps a block, and makes room for it.
    pub(super) fn hold(
        &mut self,
        block: Arc<Block>,
        limit: usize,
        partners: &Partners,
        scratch: &mut Vec<u8>,
    ) {
        self.held += block.size();
        self.closed.push_back(block);
        self.make_room(limit, partners, scratch);
    }

    /// Drops messages until all are within `limit`: the oldest of orgs that have more than their share, or else the oldest block.
    fn make_room(&mut self, limit: usize, partners: &Partners, scratch: &mut Vec<u8>) {
        let mut thinned = 0;
        while self.held > limit {
            if thinned < THINNED_AT_ONCE && self.thin(limit, partners, scratch) {
                thinned += 1;
                continue;
            }
            match self.closed.pop_front() {
                Some(oldest) => self.held -= oldest.size(),
                None => return,
            }
        }
    }

    /// Drops the messages of orgs with more than their share of `limit` from the oldest block that has many of them; false if there is none, or if
    /// the oldest block has nobody else's.
    fn thin(&mut self, limit: usize, partners: &Partners, scratch: &mut Vec<u8>) -> bool {
        let blocks = self.closed.iter();
        let blocks = blocks.map(|block| (block.size() as u64, &block.orgs));
        let above = shares::above_their_share(blocks, limit as u64, partners);
        let percent = |block: &Arc<Block>| block.orgs.percent_of(&above);
        if above.is_empty() || (self.closed.front()).is_none_or(|oldest| percent(oldest) == 100) {
            return false;
        }

        let mut oldest_first = self.closed.iter();
        let Some(at) = oldest_first.position(|block| percent(block) >= THINNED_PERCENT) else {
            return false;
        };
        self.held -= self.closed[at].size();
        match self.closed[at].without(&above, scratch) {
            Some(left) => {
                self.held += left.size();
                self.closed[at] = Arc::new(left);
            }
            None => drop(self.closed.remove(at)),
        }
        shares::count_thinned();
        true
    }
}
