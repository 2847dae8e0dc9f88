//! Sockets of Trunkline: SIP over UDP, TCP and TLS, RTP of calls whose media Trunkline terminates, WebSockets of bots, and TLS
//! certificates.
//!
//! Knows of a SIP message only where it ends. The clock is passed in.

pub mod bot;
pub mod listener;
pub mod media;
pub mod tls;
