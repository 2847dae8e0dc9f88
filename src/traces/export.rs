//! Copies all messages to a HEP collector (Homer) by UDP. Both legs of a call get one correlation id, the Call-ID of
//! the caller's leg. The session in our INVITE tells which leg belongs to which call.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

use trunkline_capture::hep;
use trunkline_sip::moment::Moment;
use uuid::Uuid;

use super::record::Record;
use super::scan;

/// Calls that have begun and that the exporter hasn't read yet.
const QUEUE: usize = 8_192;
/// Sessions and legs remembered: at least so many of each, the latest; at most twice as many.
const MAX_REMEMBERED: usize = 32_768;
/// Time after which the collector is resolved again, and a failure is logged again.
const RETRY_INTERVAL: Duration = Duration::from_secs(60);

/// HEP collector.
#[derive(Clone, Debug)]
pub struct Collector {
    /// Name or address.
    pub host: String,
    /// UDP port.
    pub port: u16,
    /// Id of this node at the collector.
    pub node: u32,
    /// Header that names the session on a leg to a runtime.
    pub session_header: String,
}

/// Map of bounded size: its older half is dropped when the newer is full.
#[derive(Debug)]
struct GenerationalMap<K, V>([HashMap<K, V>; 2]);

impl<K: std::hash::Hash + Eq, V: Clone> GenerationalMap<K, V> {
    fn new() -> Self {
        Self([HashMap::new(), HashMap::new()])
    }

    fn insert(&mut self, key: K, value: V) {
        if self.0[0].len() >= MAX_REMEMBERED {
            self.0.swap(0, 1);
            self.0[0].clear();
        }
        self.0[0].insert(key, value);
    }

    fn get(&self, key: &K) -> Option<&V> {
        self.0.iter().find_map(|half| half.get(key))
    }
}

/// Reports calls that begin. It never waits; the legs of a call beyond the bound aren't correlated.
#[derive(Clone, Debug)]
pub struct CallStarts(SyncSender<(Uuid, Box<str>)>);

impl CallStarts {
    /// Reports a session with the Call-ID of its caller's leg.
    pub fn push(&self, session: Uuid, call_id: &str) {
        match self.0.try_send((session, call_id.into())) {
            Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
        }
    }
}

/// Sends the copies.
#[derive(Debug)]
pub(super) struct Exporter {
    collector: Collector,
    socket: Option<UdpSocket>,
    /// Result of a look-up that is under way, on a thread of its own: the exporter is used under the lock of the traces, which must not
    /// wait for a name server. The timeout of the system's resolver ends the look-up.
    connecting: Option<Receiver<io::Result<UdpSocket>>>,
    begun: Receiver<(Uuid, Box<str>)>,
    sessions: GenerationalMap<Uuid, Arc<str>>,
    legs: GenerationalMap<u64, Arc<str>>,
    /// Time at which the collector may be resolved again.
    next_look: Moment,
    lost: u64,
}

impl Exporter {
    pub(super) fn new(collector: Collector) -> (Self, CallStarts) {
        let (tell, begun) = sync_channel(QUEUE);
        let mut exporter = Self {
            collector,
            socket: None,
            connecting: None,
            begun,
            sessions: GenerationalMap::new(),
            legs: GenerationalMap::new(),
            next_look: Moment::from_secs(0),
            lost: 0,
        };
        // Looked up before the first message.
        exporter.prepare(Moment::from_secs(0));
        (exporter, CallStarts(tell))
    }

    /// Prepares for sending: has the collector resolved, and reads the calls that have begun. Never waits.
    pub(super) fn prepare(&mut self, now: Moment) {
        while let Ok((session, call_id)) = self.begun.try_recv() {
            self.sessions.insert(session, call_id.into());
        }

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
    pub(super) fn send(&mut self, key: u64, record: &Record<'_>) {
        if record.is_sent && record.octets.starts_with(b"INVITE ") {
            self.join(key, record.octets);
        }

        let captured = record.captured();
        let own;
        let correlation = if let Some(of_caller) = self.legs.get(&key) {
            &**of_caller
        } else {
            own = String::from_utf8_lossy(scan::call_id(record.octets));
            &*own
        };

        let envelope = hep::close(&captured, self.collector.node, correlation);
        // The socket doesn't block: if its buffer is full, the copy is lost.
        let is_sent = self
            .socket
            .as_ref()
            .is_some_and(|socket| socket.send(&envelope).is_ok());
        self.lost += u64::from(!is_sent);
    }

    fn join(&mut self, key: u64, invite: &[u8]) {
        let session = scan::header(invite, &[self.collector.session_header.as_bytes()])
            .and_then(|value| Uuid::try_parse_ascii(value).ok())
            .and_then(|session| self.sessions.get(&session));
        if let Some(call_id) = session.cloned() {
            self.legs.insert(key, call_id);
        }
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
        let (mut exporter, _beginnings) = Exporter::new(Collector {
            host: "localhost".to_owned(),
            port: 9,
            node: 1,
            session_header: "X-ACME-SESSION-ID".to_owned(),
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

    #[test]
    fn a_leg_is_joined_by_the_header_that_is_configured() {
        let (mut exporter, beginnings) = Exporter::new(Collector {
            host: "127.0.0.1".to_owned(),
            port: 9,
            node: 1,
            session_header: "X-ACME-SESSION-ID".to_owned(),
        });
        let session = Uuid::from_u128(7);
        beginnings.push(session, "of the caller");
        exporter.prepare(Moment::from_secs(1));
        let invite = |prefix| {
            format!("INVITE sip:a SIP/2.0\r\nCall-ID: b\r\n{prefix}-Session-ID: {session}\r\n\r\n")
        };
        exporter.join(1, invite("X-PLATFORM").as_bytes());
        assert_eq!(exporter.legs.get(&1), None);

        exporter.join(1, invite("X-Acme").as_bytes());
        assert_eq!(exporter.legs.get(&1).map(|id| &**id), Some("of the caller"));
    }
}
