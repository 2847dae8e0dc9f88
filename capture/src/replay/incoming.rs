//! Messages received by a replayed side.

use crate::flow::Role;

/// A received message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Side that received it.
    pub party: Role,
    /// The message.
    pub octets: Vec<u8>,
}
