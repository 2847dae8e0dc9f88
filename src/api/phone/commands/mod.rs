//! Commands for a call, as the node carries them out that has it. Which node that is, is [`remote`](super::remote)'s affair.

pub(super) mod hang_up;
pub(super) mod hold;
pub(super) mod outbound;
pub(super) mod trace;
pub(super) mod transfer;
