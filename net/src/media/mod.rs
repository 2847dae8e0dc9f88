//! Media of the built-in echo agent: returns a caller's audio to the caller (RFC 3550, RFC 4733). A call that verifies a number hears its
//! code instead.
//!
//! Owns the RTP sockets, the threads that serve them, and the choice of the address that is heard on each. Knows nothing of SIP or SDP: a
//! call is a number, and [`EchoMedia::update`] passes what it negotiated.

mod event;
mod learning;
mod negotiated;
mod ports;
mod rtp;
mod session;
mod settings;
mod speech;
mod spoken;
mod worker;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use trunkline_sip::entropy::Entropy;
use trunkline_sip::moment::Moment;

pub use event::MediaEvent;
pub use negotiated::NegotiatedMedia;
pub use settings::MediaSettings;

use ports::Ports;
use session::Session;
use speech::Speech;
use worker::Worker;

/// Handle of the echo; clones share it, and dropping the last one ends it.
#[derive(Clone)]
pub struct EchoMedia {
    ports: Arc<Ports>,
    /// Dropped with the last handle, which stops the workers.
    _running: Arc<Running>,
}

impl EchoMedia {
    /// Starts the threads; ports are bound when calls need them. The threads call `on_event` with the key of a call.
    ///
    /// # Errors
    /// The address isn't this machine's, no port of the range is free, or the machine refuses sockets or threads.
    pub fn new(
        settings: &MediaSettings,
        entropy: Entropy,
        clock: impl Fn() -> Moment + Copy + Send + 'static,
        on_event: impl Fn(u64, MediaEvent) + Clone + Send + 'static,
    ) -> io::Result<Self> {
        describe();
        let polls = (0..settings.workers.max(1))
            .map(|_| mio::Poll::new())
            .collect::<io::Result<Vec<_>>>()?;
        let ports = Arc::new(Ports::new(settings, &polls, entropy)?);
        let running = Arc::new(Running(Arc::clone(&ports)));
        for (index, poll) in polls.into_iter().enumerate() {
            Worker::new(index, poll, Arc::clone(&ports), settings.silence)
                .start(clock, on_event.clone())?;
        }
        Ok(Self {
            ports,
            _running: running,
        })
    }

    /// Binds a port at `ip` for the call `key`; packets that arrive there are discarded until [`EchoMedia::update`]. `None` when all ports
    /// are taken. A call that already has a port gets the same one.
    pub fn open(&self, key: u64, ip: IpAddr) -> Option<SocketAddr> {
        self.ports.open(key, ip)
    }

    /// Sets what the call `key` has negotiated. Nothing is sent before the peer is heard, and then only to the address it is heard from.
    pub fn update(&self, key: u64, agreed: NegotiatedMedia, now: Moment) {
        self.ports
            .with_session(key, |session| session.negotiate(agreed, now));
    }

    /// Speaks these digits to the peer of the call `key`, in place of the echo. With `is_known` the negotiated address is also the one that
    /// signals, and is spoken to at once; any other peer is spoken to once it is heard.
    pub fn speak_code(&self, key: u64, digits: &[u8], is_known: bool) {
        self.ports
            .speak(key, Speech::new(spoken::code(digits), is_known));
    }

    /// Releases the port of the call `key`.
    pub fn close(&self, key: u64) {
        self.ports.close(key);
    }

    /// Returns the number of calls that hold a port.
    pub fn open_calls(&self) -> usize {
        self.ports.open_calls()
    }
}

impl fmt::Debug for EchoMedia {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EchoMedia")
            .field("open_calls", &self.open_calls())
            .finish_non_exhaustive()
    }
}

fn describe() {
    use metrics::{describe_counter, describe_gauge};
    describe_counter!(
        "trunkline_media_packets_total",
        "RTP packets received by the echo, by their fate"
    );
    describe_gauge!("trunkline_media_calls", "Calls that hold an RTP port");
    describe_gauge!(
        "trunkline_media_sockets",
        "RTP sockets bound, in use or kept for the next calls"
    );
}

/// Stops the workers when dropped.
struct Running(Arc<Ports>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests;
