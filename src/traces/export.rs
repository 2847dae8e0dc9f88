//! Copies all messages to a HEP collector (Homer) by UDP. All legs of a call get one correlation id, the call's id. A message that belongs to no
//! call gets its Call-ID.

use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::time::Duration;

use rustix::net::sockopt::set_socket_send_buffer_size;
use trunkline_capture::hep;
use trunkline_sip::moment::Moment;

use super::record::Record;
use super::scan::Seen;

/// Time after which the collector is resolved again, and a failure is logged again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// Octets of copies that may wait for the network.
const SEND_BUFFER: usize = 1 << 20;

/// HEP collector.
#[derive(Clone, Debug)]
pub struct Collector {
    /// Name or address.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// Id of this node at the collector.
    pub node: u32,
}

/// Sends the copies.
#[derive(Debug)]
pub(super) struct Exporter {
    collector: Collector,
    socket: Option<UdpSocket>,
    /// Result of a look-up that is under way, on a thread of its own: the exporter is used under the lock of the traces, which must not
    /// wait for a name server. The timeout of the system's resolver ends the look-up.
    connecting: Option<Receiver<io::Result<UdpSocket>>>,
    /// Time at which the collector may be resolved again.
    next_look: Moment,
    lost: u64,
}

impl Exporter {
    pub(super) fn new(collector: Collector) -> Self {
        let mut exporter = Self {
            collector,
            socket: None,
            connecting: None,
            next_look: Moment::from_secs(0),
            lost: 0,
        };
        // Looked up before the first message.
        exporter.prepare(Moment::from_secs(0));
        exporter
    }

    /// Prepares for sending: has the collector resolved. Never waits.
    pub(super) fn prepare(&mut self, now: Moment) {
        match self.connecting.as_ref().map(Receiver::try_recv) {
            Some(Ok(connected)) => self.use_socket(connected),
            // The thread ends only after it has sent.
            Some(Err(TryRecvError::Disconnected)) => self.connecting = None,
            Some(Err(TryRecvError::Empty)) => return,
            None => {}
        }

        // While copies get through, the address is kept. Lost ones may mean that it has changed.
        if now < self.next_look || (self.socket.is_some() && self.lost == 0) {
            return;
        }

        self.next_look = now + RETRY_INTERVAL;
        if self.lost > 0 {
            tracing::warn!(messages = self.lost, collector = %self.collector.host, "copies didn't reach the HEP collector");
            self.lost = 0;
        }

        // An address takes no look-up, and then not even the first copies are lost.
        match self.collector.host.parse() {
            Ok(ip) => self.use_socket(connect([SocketAddr::new(ip, self.collector.port)])),
            Err(_) => self.look_up(),
        }
    }

    /// Has a thread look the collector up.
    fn look_up(&mut self) {
        let (host, port) = (self.collector.host.clone(), self.collector.port);
        let (done, connecting) = sync_channel(1);
        let thread = std::thread::Builder::new().name("hep-look-up".to_owned());
        let spawned = thread.spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            // The exporter may have gone.
            let _ = done.send(found.and_then(connect));
        });
        match spawned {
            Ok(_) => self.connecting = Some(connecting),
            Err(fault) => self.use_socket(Err(fault)),
        }
    }

    fn use_socket(&mut self, connected: io::Result<UdpSocket>) {
        self.connecting = None;
        match connected {
            Ok(socket) => self.socket = Some(socket),
            Err(fault) => {
                tracing::warn!(%fault, collector = %self.collector.host, "the HEP collector can't be reached");
            }
        }
    }

    /// Sends a copy, or counts it as lost.
    pub(super) fn send(&mut self, record: &Record<'_>) {
        let captured = record.captured();
        // Callers choose their Call-IDs: two calls may have the same.
        let correlation = match record.leg {
            Some(leg) => leg.call.to_string(),
            None => String::from_utf8_lossy(Seen::of(record.octets).call_id).into_owned(),
        };

        let envelope = hep::close(&captured, self.collector.node, &correlation);
        // The socket doesn't block: if its buffer is full, the copy is lost.
        let is_sent = self
            .socket
            .as_ref()
            .is_some_and(|socket| socket.send(&envelope).is_ok());
        self.lost += u64::from(!is_sent);
    }
}

fn connect(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<UdpSocket> {
    let mut fault = io::Error::other("it has no address");
    for address in addresses {
        let any: SocketAddr = if address.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            (Ipv6Addr::UNSPECIFIED, 0).into()
        };
        let connected = UdpSocket::bind(any).and_then(|socket| {
            socket.set_nonblocking(true)?;
            // A block of messages that no call has claimed leaves at once. The system may allow less.
            let _ = set_socket_send_buffer_size(&socket, SEND_BUFFER);
            socket.connect(address)?;
            Ok(socket)
        });

        match connected {
            Ok(socket) => return Ok(socket),
            Err(other) => fault = other,
        }
    }

    Err(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_is_not_waited_for() {
        let mut exporter = Exporter::new(Collector {
            host: "localhost".to_owned(),
            port: 9,
            node: 1,
        });
        let (answer, connecting) = sync_channel(1);
        exporter.connecting = Some(connecting);
        // The name server doesn't answer yet.
        exporter.prepare(Moment::from_secs(100));
        assert!(exporter.socket.is_none() && exporter.connecting.is_some());

        let socket = UdpSocket::bind("127.0.0.1:0");
        answer.send(socket).unwrap();
        exporter.prepare(Moment::from_secs(101));
        assert!(exporter.socket.is_some() && exporter.connecting.is_none());

        exporter.socket = None;
        exporter.prepare(Moment::from_secs(200));
        assert!(exporter.connecting.is_some(), "on a thread of its own");
    }
}
