//! Sockets of Trunkline: SIP over UDP, TCP and TLS, RTP of calls that end here, WebSockets of bots, and the certificates of
//! TLS.
//!
//! Knows of SIP messages only where one ends. The clock is passed in.

pub mod bot;
pub mod listener;
pub mod media;
pub mod tls;
