//! Handles of transactions.

use std::num::NonZeroU32;

/// A server transaction (RFC 3261 §17.2). Plain data; refers to nothing once the transaction has ended.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ServerTx(pub(crate) Handle);

/// A client transaction (RFC 3261 §17.1). Plain data; refers to nothing once the transaction has ended.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct ClientTx(pub(crate) Handle);

/// A place in a table, valid while the stamps match.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Handle {
    pub(super) index: u32,
    pub(super) stamp: NonZeroU32,
}
