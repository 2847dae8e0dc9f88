//! SIP for Trunkline, sans-IO: no sockets, no clock, no executor.
//!
//! Octets come in through [`endpoint::Endpoint::receive`], time and randomness are inputs, and what is
//! to be sent is drained as transmits. RFC 3261 is the spine; each module names the section it holds.

pub mod auth;
pub mod dialog;
pub mod endpoint;
pub mod entropy;
pub mod fault;
pub mod flow;
pub mod header;
pub mod method;
pub mod moment;
pub mod slot;
pub mod transaction;
pub mod verified;
pub mod wheel;
pub mod wire;
