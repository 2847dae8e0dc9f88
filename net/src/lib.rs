//! Sockets of Trunkline: SIP in and out, RTP of the built-in agent, and the certificates of TLS.

pub mod listener;
pub mod media;
pub mod tls;
