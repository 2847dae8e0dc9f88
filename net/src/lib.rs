//! Sockets of Trunkline: SIP over UDP, TCP and TLS, RTP of calls whose media Trunkline terminates, WebSockets of bots, and TLS
//! certificates.
//!
//! Knows of a SIP message only where it ends. The clock is passed in.
//!
//! - [`listener`]: SIP in and out: UDP in batches of one system call, TCP, TLS
//! - [`media`]: RTP that ends here, for built-in agents, bots, browsers and spoken codes. A media thread owns its calls; each is pure but for its
//!   socket
//! - [`bot`]: WebSockets of bots: handshake, frames, the JSON of Twilio's and Telnyx' formats
//! - [`tls`]: certificates, read again on SIGHUP
//! - [`shortage`]: the log's line about sockets that are refused for want of descriptors

pub mod bot;
pub mod listener;
pub mod media;
pub mod shortage;
pub mod tls;
