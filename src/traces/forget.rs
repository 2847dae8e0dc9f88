//! Removes the messages of some calls from all traces: from the open blocks, the blocks in memory and the segments on
//! disk. A block is unpacked, filtered and packed again; a segment is written to a new file, which then replaces the
//! old one.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use trunkline_capture::Captured;
use trunkline_sip::moment::Moment;

use super::block::Block;
use super::dialog::PeerDialog;
use super::removal_filter::{RemovalFilter, RemovedLeg};
use super::successor::{Successor, is_our_bye};
use super::{Traces, lock};

/// Legs of one call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CallLegs {
    /// Call-ID of the leg that a peer began, which the peer chose.
    pub peer_call_id: Option<String>,
    /// Time of that leg's INVITE, or later.
    pub began: Moment,
    /// Known Call-IDs of legs that we began.
    pub call_ids: Vec<String>,
    /// Header line of the session, as our INVITEs have it and nobody else's.
    pub session_line: Option<String>,
    /// Earliest time of a message.
    pub from: Moment,
    /// Latest time of a message.
    pub until: Moment,
}

/// Legs of a call that replaced each other, at most. Messages of further ones aren't searched for.
const MAX_SUCCESSORS: usize = 8;

impl Traces {
    /// Removes the messages of these calls and adds their number to `gone`, also where it fails halfway. Reads and writes files.
    ///
    /// # Errors
    /// A segment can't be read or written; it is unchanged, and the call can be repeated.
    pub fn forget(&self, legs: &[CallLegs], gone: &mut u64) -> io::Result<()> {
        for legs in legs {
            self.forget_one(&self.going(legs)?, gone)?;
        }
        Ok(())
    }

    /// Collects all legs of a call.
    fn going(&self, legs: &CallLegs) -> io::Result<RemovalFilter> {
        let (from, until) = (legs.from, legs.until);
        let mut going: HashMap<Vec<u8>, RemovedLeg> = HashMap::new();

        if let Some(line) = &legs.session_line {
            // With both line ends, so that nothing but the whole header matches.
            let line = format!("\r\n{line}\r\n");
            let begun = self.begun(line.as_bytes(), from, until)?.into_iter();
            going.extend(begun.map(|id| (id.into_bytes(), RemovedLeg::Whole)));
        }

        let known = legs.call_ids.iter();
        going.extend(known.map(|id| (id.clone().into_bytes(), RemovedLeg::Whole)));

        let mut next = legs
            .peer_call_id
            .clone()
            .map(|id| (id, legs.began.as_micros()));
        // Bounded, since each step reads files, and a peer decides how often its leg is replaced.
        for _ in 0..MAX_SUCCESSORS {
            let Some((call_id, began)) = next else { break };

            // All messages of the leg are searched, not only the first ones, which a trace shows: those that decide may come after them.
            let each =
                |take: &mut dyn FnMut(bool, &Captured)| self.each_of(&call_id, from, until, take);
            let Some(dialog) = PeerDialog::search(each, began)? else {
                // The INVITE has given way to newer messages, so the dialog isn't known any more. The messages that are left may name the
                // person, so they go by their Call-ID alone.
                going.insert(call_id.into_bytes(), RemovedLeg::Whole);
                break;
            };

            let mut bye: Option<Captured> = None;
            each(&mut |is_sent, captured| {
                let is_first = bye.as_ref().is_none_or(|first| captured.at < first.at);
                if is_first && is_our_bye(is_sent, captured) && dialog.holds(is_sent, captured) {
                    bye = Some(captured.clone());
                }
            })?;

            going.insert(call_id.into_bytes(), RemovedLeg::Peer(dialog));
            let successor = match bye {
                Some(bye) => Successor::after(self, &bye, Some(until))?,
                None => None,
            };
            next = successor.map(|successor| (successor.call_id, successor.began));
        }

        Ok(RemovalFilter::new(going, from, until))
    }

    fn forget_one(&self, going: &RemovalFilter, gone: &mut u64) -> io::Result<()> {
        // What waits in the queues of shards has to go as well.
        self.sweep((self.clock)());
        let mut scratch = Vec::new();

        // All code takes the locks in this order, so nothing moves from memory to disk meanwhile.
        let mut files = self.segments.as_ref().map(lock);
        {
            let mut kept = lock(&self.kept);
            let kept = &mut *kept;
            for store in [&mut kept.unmatched, &mut kept.calls] {
                for gathered in [&mut store.full, &mut store.open] {
                    *gone += gathered.drop_if(|record| going.takes(record));
                }
                let blocks = std::mem::take(&mut store.closed);
                store.held = 0;
                for block in blocks {
                    let left = filtered(going, block, &mut scratch, gone);
                    store.held += left.as_ref().map_or(0, |block| block.size());
                    store.closed.extend(left);
                }
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
