//! The sockets of one side. A thread reads each of them and passes on whole messages; it ends with the link.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::Incoming;
use crate::Transport;
use crate::flow::Role;
use crate::message::{is_sip, length_on_stream, without_empty_lines};

/// Interval at which a reading thread checks whether it has to end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Attempts to bind a port, each a fifth of [`POLL_INTERVAL`] after the other.
const BIND_ATTEMPTS: u32 = 30;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest message on a stream in octets; a longer one ends the reading of its connection.
const MAX_MESSAGE: usize = 256 * 1024;

/// Path by which messages are sent.
#[derive(Debug, Default)]
enum SendPath {
    #[default]
    None,
    Datagram(SocketAddr),
    Stream(TcpStream),
}

/// One side's sockets.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) local: SocketAddr,
    udp: Option<UdpSocket>,
    /// Path of our messages: to the daemon, or to the peer that was last heard.
    way: Arc<Mutex<SendPath>>,
    is_over: Arc<AtomicBool>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

struct Reader {
    party: Role,
    sender: Sender<Incoming>,
    way: Arc<Mutex<SendPath>>,
    is_over: Arc<AtomicBool>,
}

impl Link {
    /// Opens the side that calls the daemon.
    pub(super) fn towards(
        target: SocketAddr,
        transport: Transport,
        party: Role,
        sender: &Sender<Incoming>,
    ) -> io::Result<Self> {
        let way = Arc::new(Mutex::new(SendPath::None));
        let is_over = Arc::new(AtomicBool::new(false));
        let reader = Reader {
            party,
            sender: sender.clone(),
            way: way.clone(),
            is_over: is_over.clone(),
        };

        if transport == Transport::Udp {
            let any: SocketAddr = if target.is_ipv4() {
                ([0, 0, 0, 0], 0).into()
            } else {
                "[::]:0".parse().map_err(io::Error::other)?
            };

            let socket = UdpSocket::bind(any)?;
            socket.connect(target)?;
            let local = socket.local_addr()?;
            set(&way, SendPath::Datagram(target));
            let reading = socket.try_clone()?;
            std::thread::spawn(move || reader.datagrams(&reading));

            return Ok(Self {
                local,
                udp: Some(socket),
                way,
                is_over,
            });
        }

        let stream = TcpStream::connect_timeout(&target, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        let local = stream.local_addr()?;
        set(&way, SendPath::Stream(stream.try_clone()?));
        std::thread::spawn(move || reader.stream(stream));

        Ok(Self {
            local,
            udp: None,
            way,
            is_over,
        })
    }

    /// Opens a side that the daemon calls, on UDP and TCP.
    pub(super) fn listening(
        local: SocketAddr,
        party: Role,
        sender: &Sender<Incoming>,
    ) -> io::Result<Self> {
        let way = Arc::new(Mutex::new(SendPath::None));
        let is_over = Arc::new(AtomicBool::new(false));
        let reader = || Reader {
            party,
            sender: sender.clone(),
            way: way.clone(),
            is_over: is_over.clone(),
        };

        let socket = once_free(|| UdpSocket::bind(local))?;
        let reading = socket.try_clone()?;
        let listener = once_free(|| TcpListener::bind(local))?;
        // So that the accepting thread looks every few milliseconds whether the link is over.
        listener.set_nonblocking(true)?;
        let (datagrams, streams) = (reader(), reader());
        std::thread::spawn(move || datagrams.datagrams(&reading));
        std::thread::spawn(move || streams.accept(&listener));

        Ok(Self {
            local,
            udp: Some(socket),
            way,
            is_over,
        })
    }

    pub(super) fn send(&self, octets: &[u8]) -> io::Result<()> {
        let mut way = self
            .way
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);

        match (&mut *way, &self.udp) {
            (SendPath::Stream(stream), _) => stream.write_all(octets),
            (SendPath::Datagram(peer), Some(socket)) => {
                // A connected socket accepts no address.
                let sent = if socket.peer_addr().is_ok() {
                    socket.send(octets)
                } else {
                    socket.send_to(octets, *peer)
                };
                sent.map(drop)
            }
            (SendPath::Datagram(_), None) | (SendPath::None, _) => Err(io::Error::new(
                io::ErrorKind::NotConnected,
                "nobody has called",
            )),
        }
    }

    /// Sends a datagram to a peer that has not called.
    pub(super) fn ask(&self, peer: SocketAddr, octets: &[u8]) {
        if let Some(socket) = &self.udp {
            // A daemon without UDP doesn't receive it.
            let _ = socket.send_to(octets, peer);
        }
    }

    /// Returns the transport in use.
    pub(super) fn transport(&self) -> Transport {
        match &*self
            .way
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
        {
            SendPath::Stream(_) => Transport::Tcp,
            SendPath::None | SendPath::Datagram(_) => Transport::Udp,
        }
    }
}

/// Binds a port that the previous link may still hold: its threads end within [`POLL_INTERVAL`].
fn once_free<T>(bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    for _ in 0..BIND_ATTEMPTS {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                std::thread::sleep(POLL_INTERVAL / 5)
            }
            bound => return bound,
        }
    }
    bind()
}

fn set(way: &Mutex<SendPath>, new: SendPath) {
    *way.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner) = new;
}

impl Reader {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn hand_on(&self, octets: Vec<u8>) -> bool {
        let incoming = Incoming {
            party: self.party,
            octets,
        };
        self.sender.send(incoming).is_ok()
    }

    fn datagrams(&self, socket: &UdpSocket) {
        // Fails for a timeout of zero alone.
        let _ = socket.set_read_timeout(Some(POLL_INTERVAL));
        let mut buffer = vec![0; 65_536];
        let listens = socket.peer_addr().is_err();

        while !self.is_over() {
            let Ok((length, peer)) = socket.recv_from(&mut buffer) else {
                continue; // nothing came in time, or the port was unreachable
            };

            if !is_sip(&buffer[..length]) {
                continue;
            }

            if listens {
                set(&self.way, SendPath::Datagram(peer));
            }

            if !self.hand_on(buffer[..length].to_vec()) {
                return;
            }
        }
    }

    fn accept(self, listener: &TcpListener) {
        while !self.is_over() {
            let Ok((stream, _)) = listener.accept() else {
                std::thread::sleep(POLL_INTERVAL / 5);
                continue;
            };

            let Ok(writer) = stream
                .set_nonblocking(false)
                .and_then(|()| stream.try_clone())
            else {
                continue;
            };

            set(&self.way, SendPath::Stream(writer));

            let reader = Self {
                party: self.party,
                sender: self.sender.clone(),
                way: self.way.clone(),
                is_over: self.is_over.clone(),
            };
            std::thread::spawn(move || reader.stream(stream));
        }
    }

    fn stream(&self, mut stream: TcpStream) {
        // Fails for a timeout of zero alone.
        let _ = stream.set_read_timeout(Some(POLL_INTERVAL));
        let mut held: Vec<u8> = Vec::new();
        let mut buffer = vec![0; 16 * 1024];
        while !self.is_over() {
            match stream.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => held.extend_from_slice(&buffer[..length]),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    continue;
                }
                Err(_) => return,
            }

            loop {
                let skipped = held.len() - without_empty_lines(&held).len();
                held.drain(..skipped);
                let Some(length) = length_on_stream(&held).filter(|length| *length <= held.len())
                else {
                    break;
                };
                if !self.hand_on(held.drain(..length).collect()) {
                    return;
                }
            }

            // What is left here is an unfinished message: one without end must not fill the memory.
            if held.len() > MAX_MESSAGE {
                return;
            }
        }
    }
}
