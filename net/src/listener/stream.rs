//! The interface to streams for their users: bounds, received messages, and the sink that takes them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use trunkline_bounds::Descriptors;
use trunkline_sip::flow::Flow;
use trunkline_sip::moment::Moment;

use super::Lost;

/// Bounds of the streams: numbers of connections, times, and octets.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    /// Most accepted connections in total.
    pub accepted: usize,
    /// Most accepted connections from one source: in IPv6 a /64.
    pub accepted_per_source: usize,
    /// Most connections that this node opened.
    pub opened: usize,
    /// Most connections that this node opened to one peer, over all ports and names: in IPv6 to a /64.
    pub opened_to_one: usize,
    /// Time from accepting a connection to its first octet.
    pub first_octet: Duration,
    /// Time from the start of a connection to its first whole message.
    pub first_message: Duration,
    /// Time from the first octet of a message to its last, and time for the peer to read some of the sent octets.
    pub message: Duration,
    /// Idle time between messages or keep-alives.
    pub idle: Duration,
    /// Time for opening a connection.
    pub connect: Duration,
    /// Most octets queued for one connection. A message beyond ends the connection.
    pub outbox_octets: usize,
    /// Descriptors, of which each connection takes one.
    pub descriptors: Arc<Descriptors>,
}

impl Default for StreamSettings {
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
            descriptors: Arc::default(),
        }
    }
}

/// A message received on a stream; keep-alives are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// Connection of the message.
    pub flow: Flow,
    /// The message without anything around it.
    pub octets: Bytes,
    /// Time at which its last octets were read.
    pub received_at: Moment,
}

/// Receiver of the messages and the end of streams.
pub trait Sink: Clone + Send + Sync + 'static {
    /// Takes a message, and returns once there is room for it: until then the connection isn't read.
    fn deliver(&self, received: Received) -> impl Future<Output = ()> + Send;

    /// Reports that the peer of a connection sends no more, or nothing readable. Responses still leave by the connection, but no new
    /// request may use it ([`Connections::retire`](super::connections::Connections::retire)). `proved` is that of [`Lost`].
    fn closing(&self, flow: Flow, proved: u32) -> impl Future<Output = ()> + Send;

    /// Reports that a connection has ended, or could not be opened. Called after the connection's last message.
    fn lost(&self, lost: Lost) -> impl Future<Output = ()> + Send;
}
