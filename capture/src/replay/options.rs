//! Choices of the user for a replay.

use std::net::SocketAddr;
use std::time::Duration;

use trunkline_sip::moment::Moment;

use crate::Transport;

/// Options of a replay.
#[derive(Clone)]
pub struct Options {
    /// Address of the daemon.
    pub target: SocketAddr,
    /// Transport to use instead of the captured one.
    pub transport: Option<Transport>,
    /// User name and password for challenges. Without them captured credentials are left out, as for an address on the IP allow list.
    pub credentials: Option<(String, String)>,
    /// Address of the runtime's side, if it is played.
    pub runtime: Option<SocketAddr>,
    /// Address of any other called side, if it is played.
    pub other: Option<SocketAddr>,
    /// Factor of the captured speed; `None`: without any waiting.
    pub speed: Option<f64>,
    /// Permitted deviation of a response from its captured time.
    pub tolerance: Duration,
    /// Time to wait for a message beyond the captured time.
    pub patience: Duration,
    /// Replacements of text in the capture.
    pub replace: Vec<(String, String)>,
    /// The clock.
    pub now: fn() -> Moment,
}

impl Options {
    /// Returns the transport for a call that was captured on `captured`. TLS is replayed over TCP.
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
