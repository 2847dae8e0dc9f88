//! Messages that come to a side that is played.

use crate::flow::Role;

/// A message that came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incoming {
    /// Whose side it came to.
    pub party: Role,
    /// The message.
    pub octets: Vec<u8>,
}
