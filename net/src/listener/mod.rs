//! Octets in and octets out: the sockets that SIP is spoken on (RFC 3261 §18).
//!
//! Owns sockets, connections and the time of arrival. Knows nothing of what a message says, only where one ends.

mod connection;
pub mod connections;
mod handshake;
mod lost;
mod mmsg;
mod outbox;
mod send_error;
mod stream;
pub mod tcp;
pub mod tls;
pub mod udp;

pub use lost::Lost;
