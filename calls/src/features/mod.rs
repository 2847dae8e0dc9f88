//! Hold, join, replacement and transfer of a call that is up. No feature imports another, or `call`, which brings them together.

pub mod hold;
pub mod join;
pub(crate) mod replaces;
pub mod transfer;
