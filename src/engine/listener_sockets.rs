//! Sockets of the SIP listeners, bound before anything else starts and handed to the engine. This file opens none
//! itself.

use std::net::{SocketAddr, TcpListener, UdpSocket};

use trunkline_sip::flow::Transport;

/// One SIP listener with its sockets.
#[derive(Debug)]
pub struct BoundListener {
    /// The address, with the port that the system chose where the configuration says 0.
    pub address: SocketAddr,
    /// The sockets themselves, non-blocking.
    pub sockets: ListenerSockets,
}

/// Sockets of one listener, by transport.
#[derive(Debug)]
pub enum ListenerSockets {
    /// One UDP socket per shard; the kernel spreads peers over them.
    Udp(Vec<UdpSocket>),
    /// One TCP socket for all shards.
    Tcp(TcpListener),
    /// One TCP socket for TLS, for all shards.
    Tls(TcpListener),
}

/// Sockets of all listeners, sorted by the part of the engine that serves them.
pub(super) struct SortedSockets {
    /// UDP sockets of each shard, with the index of their listener.
    pub(super) udp: Vec<Vec<(u16, UdpSocket)>>,
    /// Listening streams: index of the listener, TCP or TLS, and the socket.
    pub(super) streams: Vec<(u16, Transport, TcpListener)>,
    /// Bound address of each listener.
    pub(super) addresses: Vec<SocketAddr>,
}

impl SortedSockets {
    pub(super) fn new(bound: Vec<BoundListener>, shards: usize) -> Self {
        let mut sorted = Self {
            udp: (0..shards).map(|_| Vec::new()).collect(),
            streams: Vec::new(),
            addresses: Vec::new(),
        };

        for (index, listener) in bound.into_iter().enumerate() {
            let index = u16::try_from(index).expect("there are fewer listeners than ports");
            sorted.addresses.push(listener.address);

            match listener.sockets {
                ListenerSockets::Udp(sockets) => {
                    for (shard, socket) in sorted.udp.iter_mut().zip(sockets) {
                        shard.push((index, socket));
                    }
                }
                ListenerSockets::Tcp(socket) => {
                    sorted.streams.push((index, Transport::Tcp, socket))
                }
                ListenerSockets::Tls(socket) => {
                    sorted.streams.push((index, Transport::Tls, socket))
                }
            }
        }

        sorted
    }
}
