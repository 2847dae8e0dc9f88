//! Sockets of Trunkline: SIP over UDP, TCP and TLS, RTP of the built-in agent, and the certificates of TLS.
//!
//! Knows of SIP messages only where one ends. The clock is passed in.

pub mod listener;
pub mod media;
pub mod tls;
