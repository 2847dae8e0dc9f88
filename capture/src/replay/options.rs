//! Ways to play calls.

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use crate::Transport;

/// How calls are played.
#[derive(Clone)]
pub struct Options {
    /// Where the daemon listens.
    pub target: SocketAddr,
    /// Instead of what each message was captured on.
    pub transport: Option<Transport>,
    /// To answer challenges with; without them credentials are left out, as from a dedicated address.
    pub credentials: Option<(String, String)>,
    /// Where the runtime's side is played.
    pub runtime: Option<SocketAddr>,
    /// Where the side is played of whoever else is called.
    pub other: Option<SocketAddr>,
    /// How many times faster than captured; `None` is without any waiting.
    pub speed: Option<f64>,
    /// How much later or earlier than captured an answer may come.
    pub tolerance: Duration,
    /// How long an answer is waited for beyond what was captured.
    pub patience: Duration,
    /// Text of the capture and what stands for it today.
    pub replace: Vec<(String, String)>,
    /// The clock.
    pub now: fn() -> Moment,
}

impl Options {
    /// What a call is played on that was captured on this.
    pub fn transport_for(&self, captured: Transport) -> Transport {
        match self.transport.unwrap_or(captured) {
            Transport::Tls => Transport::Tcp,
            other @ (Transport::Udp | Transport::Tcp) => other,
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("target", &self.target)
            .field("runtime", &self.runtime)
            .finish_non_exhaustive()
    }
}
