//! One end of a leg, over UDP or TCP: what comes is read by a thread, what it sends is written by the test.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use trunkline_sip::wire::frame::{Frame, Framer};
use trunkline_sip::wire::{HeaderName, Message};

use crate::caller::read;
use trunkline_testkit::answer::answer;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Transport {
    Udp,
    Tcp,
}

impl Transport {
    /// As Via writes it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        }
    }
}

/// By which a message came, and its answer goes.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Udp(Arc<UdpSocket>, SocketAddr),
    Tcp(Arc<TcpStream>),
}

impl Way {
    pub(crate) fn send(&self, octets: &[u8]) {
        match self {
            Self::Udp(socket, peer) => drop(socket.send_to(octets, peer).expect("it is sent")),
            Self::Tcp(stream) => (&**stream).write_all(octets).expect("it is sent"),
        }
    }
}

/// A message, and the way that it came.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) octets: Vec<u8>,
    way: Way,
}

impl Came {
    pub(crate) fn message(&self) -> Message<'_> {
        read(&self.octets)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.octets).into_owned()
    }

    /// The values of a header, by its name in any case.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        let message = self.message();
        let named = message.headers().filter(|header| {
            let canonical = header.name.as_str();
            canonical.eq_ignore_ascii_case(name)
                || header.raw_name.eq_ignore_ascii_case(name.as_bytes())
        });
        named
            .map(|header| String::from_utf8_lossy(&header.unfolded()).into_owned())
            .collect()
    }

    pub(crate) fn body(&self) -> String {
        String::from_utf8_lossy(self.message().body()).into_owned()
    }

    /// Answers it, with a To-tag of this end.
    pub(crate) fn answer(&self, status: &str, lines: &str, body: &str) {
        let octets = answer(&self.message(), status, "end", lines, body);
        self.way.send(octets.as_bytes());
    }
}

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
    came: Receiver<Came>,
    /// The way of a caller.
    way: Option<Way>,
    seen: RefCell<HashSet<Vec<u8>>>,
}

impl End {
    /// Waits for calls.
    pub(crate) fn listens(transport: Transport) -> Self {
        let (sender, came) = channel();
        let address = match transport {
            Transport::Udp => read_datagrams(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)), sender).1,
            Transport::Tcp => {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
                let address = listener.local_addr().expect("an address");
                std::thread::spawn(move || {
                    while let Ok((stream, _)) = listener.accept() {
                        read_stream(stream, sender.clone());
                    }
                });
                address
            }
        };
        Self {
            transport,
            address,
            came,
            way: None,
            seen: RefCell::default(),
        }
    }

    /// Calls the daemon from this address.
    pub(crate) fn calls(transport: Transport, from: Ipv4Addr, daemon: SocketAddr) -> Self {
        let (sender, came) = channel();
        let (way, address) = match transport {
            Transport::Udp => {
                let (socket, address) = read_datagrams(UdpSocket::bind((from, 0)), sender);
                (Way::Udp(socket, daemon), address)
            }
            Transport::Tcp => {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
                let own = SocketAddr::from((from, 0)).into();
                socket.bind(&own).expect("a free port");
                socket.connect(&daemon.into()).expect("the daemon listens");
                let stream = TcpStream::from(socket);
                let address = stream.local_addr().expect("an address");
                (read_stream(stream, sender), address)
            }
        };
        Self {
            transport,
            address,
            came,
            way: Some(way),
            seen: RefCell::default(),
        }
    }

    /// A URI that leads here.
    pub(crate) fn uri(&self, user: &str) -> String {
        let parameter = match self.transport {
            Transport::Udp => "",
            Transport::Tcp => ";transport=tcp",
        };
        format!("sip:{user}@{}{parameter}", self.address)
    }

    pub(crate) fn send(&self, octets: &[u8]) {
        self.way.as_ref().expect("it calls").send(octets);
    }

    /// The next message that this holds for; others, and what comes again, are passed over.
    fn next(&self, what: &str, is_meant: impl Fn(&Message<'_>) -> bool) -> Came {
        loop {
            let came = self.came.recv_timeout(PATIENCE);
            let came = came.unwrap_or_else(|_| panic!("no {what}"));
            let message = came.message();
            if self.is_new(&message) && is_meant(&message) {
                drop(message);
                return came;
            }
        }
    }

    /// The next message that hasn't come before, if one comes within this time.
    pub(crate) fn soon(&self, time: Duration) -> Option<Came> {
        let came = self.came.recv_timeout(time).ok()?;
        let is_new = self.is_new(&came.message());
        is_new.then_some(came)
    }

    fn is_new(&self, message: &Message<'_>) -> bool {
        let cseq = message.first(HeaderName::CSeq).unwrap_or_default();
        let which = [message.call_id(), cseq, message.reason()].concat();
        self.seen.borrow_mut().insert(which)
    }

    pub(crate) fn request(&self, method: &str) -> Came {
        self.next(method, |message| {
            message.is_request() && message.method_token() == method.as_bytes()
        })
    }

    /// The answer with this status.
    pub(crate) fn response(&self, status: u16) -> Came {
        self.next(&status.to_string(), |message| message.status() == status)
    }

    /// The next final answer to a request of this method.
    pub(crate) fn outcome(&self, method: &str) -> Came {
        self.next("final answer", |message| {
            message.status() >= 200 && message.cseq_method_token() == method.as_bytes()
        })
    }
}

/// Answers OPTIONS, so that the peer counts as there, and hands on the rest.
fn hand_on(sender: &Sender<Came>, came: Came) -> bool {
    let is_probe = {
        let message = came.message();
        message.is_request() && message.method_token() == b"OPTIONS"
    };
    if is_probe {
        came.answer("200 OK", "", "");
        return true;
    }
    sender.send(came).is_ok()
}

fn read_datagrams(
    socket: std::io::Result<UdpSocket>,
    sender: Sender<Came>,
) -> (Arc<UdpSocket>, SocketAddr) {
    let socket = Arc::new(socket.expect("a port"));
    let address = socket.local_addr().expect("an address");
    let reading = Arc::clone(&socket);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 65_536];
        while let Ok((length, from)) = reading.recv_from(&mut buffer) {
            let octets = buffer[..length].to_vec();
            let way = Way::Udp(Arc::clone(&reading), from);
            let is_message = octets.len() > 4;
            if is_message && !hand_on(&sender, Came { octets, way }) {
                return;
            }
        }
    });
    (socket, address)
}

fn read_stream(stream: TcpStream, sender: Sender<Came>) -> Way {
    stream.set_nodelay(true).expect("an option");
    let stream = Arc::new(stream);
    let reading = Arc::clone(&stream);
    std::thread::spawn(move || {
        let (mut framer, mut buffer) = (Framer::new(), [0; 4_096]);
        while let Ok(count @ 1..) = (&*reading).read(&mut buffer) {
            framer.push(&buffer[..count]);
            while let Some(frame) = framer.next_frame().expect("the daemon sends messages") {
                let Frame::Message(octets) = frame else {
                    continue;
                };
                let octets = octets.to_vec();
                let way = Way::Tcp(Arc::clone(&reading));
                if !hand_on(&sender, Came { octets, way }) {
                    return;
                }
            }
        }
    });
    Way::Tcp(stream)
}
