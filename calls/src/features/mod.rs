//! What a call can do once it is up. No feature knows another, or the call that joins it with them.

pub(crate) mod destination_route;
pub mod hold;
pub(crate) mod join;
pub mod joining;
pub(crate) mod replaces;
pub mod transfer;
pub(crate) mod transferring;
