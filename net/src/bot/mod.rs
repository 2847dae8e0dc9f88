//! WebSocket of a bot (RFC 6455): the handshake, and afterwards the connection that a media thread reads and writes.
//!
//! Owns the wire: frames, masks, and the JSON of both formats that bots speak. Knows nothing of RTP, nor of the time at which audio is due.
//! The caller has resolved and checked the bot's address.

mod connect;
mod connected;
pub(crate) mod frame;
pub(crate) mod link;
pub(crate) mod message;
mod request;
pub(crate) mod wire;

pub use connect::connect;
pub(crate) use connected::NORMAL_CLOSURE;
pub use connected::{Bot, BotEnd};
pub use request::{BotError, BotProtocol, BotRequest, BotStart};

#[cfg(test)]
mod tests;
