//! INVITEs of ours as a part of a call: whom they are for, and what their outcomes mean for it.

pub(crate) mod calling;
pub(crate) mod dialing;
pub mod outbound;
