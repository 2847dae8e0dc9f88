//! Commands to a call, run by the node that has it. [`remote`](super::remote) finds that node.

pub(super) mod hang_up;
pub(super) mod hold;
pub(super) mod outbound;
pub(super) mod trace;
pub(super) mod transfer;
