//! Streams as those see them who take what comes: bounds, messages, and where these go.

use std::time::Duration;

use bytes::Bytes;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;

use super::Lost;

/// Bounds of the streams.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Accepted connections, in all.
    pub accepted: usize,
    /// Accepted connections from one source: in IPv6 a /64.
    pub accepted_per_source: usize,
    /// Connections that we opened.
    pub opened: usize,
    /// Those to one peer, whatever the ports and names: in IPv6 to a /64.
    pub opened_to_one: usize,
    /// How long an accepted connection may take to its first octet.
    pub first_octet: Duration,
    /// How long a new connection may take to its first whole message.
    pub first_message: Duration,
    /// How long a message may take from its first octet to its last, and a peer to read some of what is sent.
    pub message: Duration,
    /// How long a connection may rest between messages or keep-alives.
    pub idle: Duration,
    /// How long opening a connection may take.
    pub connect: Duration,
    /// What may wait to be written to one connection.
    pub outbox_octets: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            accepted: 8_192,
            accepted_per_source: 2_048,
            opened: 4_096,
            opened_to_one: 256,
            first_octet: Duration::from_secs(10),
            first_message: Duration::from_secs(30),
            message: Duration::from_secs(10),
            idle: Duration::from_secs(15 * 60),
            connect: Duration::from_secs(4),
            outbox_octets: 512 << 10,
        }
    }
}

/// A message that came on a stream, without what keeps streams alive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The connection it came on.
    pub flow: Flow,
    /// Exactly the message.
    pub octets: Bytes,
    /// When its last octets were read.
    pub received_at: Moment,
}

/// Takes what comes on streams.
pub trait Sink: Clone + Send + Sync + 'static {
    /// Takes a message, and returns once there was room for it: until then the connection isn't read.
    fn deliver(&self, received: Received) -> impl Future<Output = ()> + Send;

    /// Learns that the peer of a connection sends no more, or nothing that can be read: answers still leave by it, but no request is to
    /// ([`Connections::retire`](super::connections::Connections::retire)). `proved` as in [`Lost`].
    fn closing(&self, flow: Flow, proved: u32) -> impl Future<Output = ()> + Send;

    /// Learns that a connection has ended, or could not be opened. Comes after the connection's last message.
    fn lost(&self, lost: Lost) -> impl Future<Output = ()> + Send;
}
