//! What a call can do once it is up. No feature knows another, or the call that joins it with them.

pub mod hold;
pub mod join;
pub(crate) mod replaces;
pub mod transfer;
