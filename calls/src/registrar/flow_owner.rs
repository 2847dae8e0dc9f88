//! Processes that have the flows of bindings.

use std::sync::atomic::{AtomicU64, Ordering};

/// Process that has the flow of a binding.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum FlowOwner {
    /// This one.
    ThisProcess,
    /// An earlier run of this node: the flow is gone.
    EarlierRun,
    /// Another node.
    OtherNode(u8),
}

/// Nodes that are up, by their numbers.
#[derive(Debug, Default)]
pub(super) struct ServingNodes([AtomicU64; 4]);

impl ServingNodes {
    pub(super) fn has(&self, node: u8) -> bool {
        let word = self.0[usize::from(node / 64)].load(Ordering::Relaxed);
        word & 1 << (node % 64) != 0
    }

    pub(super) fn set(&self, nodes: &[u8]) {
        for (place, word) in self.0.iter().enumerate() {
            let own = nodes.iter().filter(|node| usize::from(*node / 64) == place);
            let bits = own.fold(0, |bits, node| bits | 1_u64 << (node % 64));
            word.store(bits, Ordering::Relaxed);
        }
    }
}
