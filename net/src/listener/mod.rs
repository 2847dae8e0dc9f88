//! SIP transports: the sockets on which SIP is received and sent (RFC 3261 §18).
//!
//! Owns sockets, connections and the time of arrival. Knows where a message ends, nothing else of its content.

mod connection;
pub mod connections;
mod datagram_errors;
mod handshake;
mod in_process;
mod lost;
mod mmsg;
mod outbox;
mod send_error;
mod sip_identity;
mod stream;
pub mod tcp;
mod tcp_info;
pub mod tls;
pub mod udp;

pub use in_process::InProcess;
pub use lost::Lost;
pub(crate) use mmsg::{next_unreachable, report_unreachable};
pub(crate) use tcp_info::is_unacknowledged;
