//! The sockets that the engine is given: bound before anything else starts.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use trunkline_sip::flow::Transport;

/// One SIP listener with its sockets.
#[derive(Debug)]
pub struct Bound {
    /// The address, with the port that the system chose where the configuration says 0.
    pub address: SocketAddr,
    /// The sockets themselves, non-blocking.
    pub sockets: Listening,
}

/// The sockets of one listener.
#[derive(Debug)]
pub enum Listening {
    /// One a shard, between which the kernel spreads peers.
    Udp(Vec<UdpSocket>),
    /// One for all shards.
    Tcp(TcpListener),
    /// The same, for TLS.
    Tls(TcpListener),
}

/// The sockets of all listeners, sorted by who serves them.
pub(super) struct Sorted {
    /// By shard: listener index and socket.
    pub(super) udp: Vec<Vec<(u16, UdpSocket)>>,
    /// Listener index, TCP or TLS, and socket.
    pub(super) streams: Vec<(u16, Transport, TcpListener)>,
    /// By listener.
    pub(super) addresses: Vec<SocketAddr>,
}

impl Sorted {
    pub(super) fn new(bound: Vec<Bound>, shards: usize) -> Self {
        let mut sorted = Self {
            udp: (0..shards).map(|_| Vec::new()).collect(),
            streams: Vec::new(),
            addresses: Vec::new(),
        };
        for (index, listener) in bound.into_iter().enumerate() {
            let index = u16::try_from(index).expect("there are fewer listeners than ports");
            sorted.addresses.push(listener.address);
            match listener.sockets {
                Listening::Udp(sockets) => {
                    for (shard, socket) in sorted.udp.iter_mut().zip(sockets) {
                        shard.push((index, socket));
                    }
                }
                Listening::Tcp(socket) => sorted.streams.push((index, Transport::Tcp, socket)),
                Listening::Tls(socket) => sorted.streams.push((index, Transport::Tls, socket)),
            }
        }

        sorted
    }
}
