//! A peer that sends octets and reads what comes back, over UDP and TCP.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use trunkline_sip::wire::frame::{Frame, Framer};

/// Longer than any answer takes, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(30);
/// After this a probe is sent again: a datagram may be lost where a buffer is full, and one who floods isn't always answered.
const PATIENCE: Duration = Duration::from_millis(500);

/// The status of a response.
pub(crate) fn status_of(response: &[u8]) -> u16 {
    let status = response
        .strip_prefix(b"SIP/2.0 ")
        .and_then(|rest| rest.get(..3));
    let status = status.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    status.unwrap_or_else(|| panic!("no response: {}", String::from_utf8_lossy(response)))
}

/// An OPTIONS by which a peer learns that all before it was served.
fn probe(number: u32, transport: &str) -> String {
    format!(
        "OPTIONS sip:trunkline SIP/2.0\r\nVia: SIP/2.0/{transport} probe.invalid;branch=z9hG4bKprobe{number};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:probe@probe.invalid>;tag={number}\r\nTo: <sip:trunkline>\r\nCall-ID: probe-{number}\r\nCSeq: {number} OPTIONS\r\n\
         Content-Length: 0\r\n\r\n"
    )
}

fn is_answer_to_probe(response: &[u8], number: u32) -> bool {
    let ours = is_of_call(response, &format!("probe-{number}"));
    assert!(
        !ours || status_of(response) == 200,
        "{}",
        response.escape_ascii()
    );
    ours
}

fn is_of_call(response: &[u8], call_id: &str) -> bool {
    String::from_utf8_lossy(response).contains(&format!("Call-ID: {call_id}\r\n"))
}

/// How often a new INVITE is sent that is shed since it waited too long for its turn, as happens on a busy machine.
pub(crate) const TRIES: usize = 20;

/// Whether this says that an INVITE was shed.
pub(crate) fn is_shed(answer: &[u8]) -> bool {
    answer.starts_with(b"SIP/2.0 503 ") && String::from_utf8_lossy(answer).contains("Retry-After: ")
}

/// Sends datagrams from one address.
#[derive(Debug)]
pub(crate) struct Stranger {
    socket: UdpSocket,
    probes: Cell<u32>,
}

impl Stranger {
    pub(crate) fn new(daemon: SocketAddr) -> Self {
        Self::from(Ipv4Addr::LOCALHOST, daemon)
    }

    /// From another address of this machine.
    pub(crate) fn from(address: Ipv4Addr, daemon: SocketAddr) -> Self {
        Self::on(UdpSocket::bind((address, 0)).expect("a free port"), daemon)
    }

    /// By a socket that is bound.
    pub(crate) fn on(socket: UdpSocket, daemon: SocketAddr) -> Self {
        socket.connect(daemon).expect("loopback");
        Self {
            socket,
            probes: Cell::new(0),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("bound")
    }

    pub(crate) fn send(&self, octets: impl AsRef<[u8]>) {
        self.socket
            .send(octets.as_ref())
            .expect("the daemon is there");
    }

    pub(crate) fn receive(&self) -> Vec<u8> {
        self.receive_within(LIMIT).expect("an answer")
    }

    /// What has come already.
    pub(crate) fn received(&self) -> Option<Vec<u8>> {
        self.receive_within(Duration::from_millis(10))
    }

    fn receive_within(&self, limit: Duration) -> Option<Vec<u8>> {
        self.socket
            .set_read_timeout(Some(limit))
            .expect("a timeout");
        let mut buffer = vec![0; 65_536];
        match self.socket.recv(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                Some(buffer)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("nothing can be received: {error}"),
        }
    }

    /// What comes for a datagram, until an OPTIONS behind it is answered.
    pub(crate) fn answers_to(&self, octets: &[u8]) -> Vec<Vec<u8>> {
        for _ in 0..TRIES {
            self.send(octets);
            let answers = self.answers_until_probed();
            if !matches!(&answers[..], [answer] if is_shed(answer)) {
                return answers;
            }
        }
        panic!("no turn for a new INVITE");
    }

    /// What comes until an OPTIONS sent now is answered.
    pub(crate) fn answers_until_probed(&self) -> Vec<Vec<u8>> {
        let number = self.probes.get() + 1;
        self.probes.set(number);
        let mut answers = Vec::new();
        for _ in 0..LIMIT.as_millis() / PATIENCE.as_millis() {
            self.send(probe(number, "UDP").as_bytes());
            while let Some(answer) = self.receive_within(PATIENCE) {
                if is_answer_to_probe(&answer, number) {
                    return answers;
                }
                // One that was sent twice is answered twice.
                if !is_answer_to_probe(&answer, number - 1) {
                    answers.push(answer);
                }
            }
        }
        panic!("no answer to an OPTIONS");
    }
}

/// The ports where a peer says that it listens, while it sends from another.
#[derive(Debug)]
pub(crate) struct Listening(Vec<UdpSocket>);

impl Listening {
    pub(crate) fn at(address: Ipv4Addr, ports: impl Iterator<Item = u16>) -> Self {
        let ports: BTreeSet<u16> = ports.filter(|port| *port != 0).collect();
        let open = |port| {
            let socket = UdpSocket::bind((address, port)).expect("a port of this test's");
            socket.set_nonblocking(true).expect("a socket");
            socket
        };
        Self(ports.into_iter().map(open).collect())
    }

    /// What comes for a datagram of `sender`, at whichever port.
    pub(crate) fn answers_to(&self, sender: &Stranger, octets: &[u8]) -> Vec<Vec<u8>> {
        for _ in 0..TRIES {
            let mut answers = sender.answers_to(octets);
            answers.extend(self.arrived());
            if !matches!(&answers[..], [answer] if is_shed(answer)) {
                return answers;
            }
        }
        panic!("no turn for a new INVITE");
    }

    fn arrived(&self) -> Vec<Vec<u8>> {
        let mut buffer = vec![0; 65_536];
        let mut arrived = Vec::new();
        for socket in &self.0 {
            while let Ok(length) = socket.recv(&mut buffer) {
                arrived.push(buffer[..length].to_vec());
            }
        }
        arrived
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct StreamPeer {
    stream: TcpStream,
}

impl StreamPeer {
    /// From another address of this machine.
    pub(crate) fn from(address: Ipv4Addr, daemon: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket
            .bind(&SocketAddr::from((address, 0)).into())
            .expect("a free port");
        socket.connect(&daemon.into()).expect("the daemon listens");
        Self::on(socket.into())
    }

    /// Whether the daemon answers on this connection.
    pub(crate) fn is_served(&self) -> bool {
        self.send(probe(1, "TCP").as_bytes());
        !self.answers(|_| true).is_empty()
    }

    /// Sends without reading; false if the daemon has closed, or takes no more.
    pub(crate) fn send_for(&self, octets: &[u8]) -> bool {
        self.stream
            .set_write_timeout(Some(LIMIT))
            .expect("a timeout");
        (&self.stream).write_all(octets).is_ok()
    }

    /// One whose receive buffer holds little, so that what isn't read soon stays with the daemon.
    pub(crate) fn with_small_window(daemon: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4_096).expect("an option");
        socket.connect(&daemon.into()).expect("the daemon listens");
        Self::on(socket.into())
    }

    pub(crate) fn connect(daemon: SocketAddr) -> Self {
        Self::on(TcpStream::connect_timeout(&daemon, LIMIT).expect("the daemon listens"))
    }

    fn on(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        stream.set_nodelay(true).expect("an option");
        Self { stream }
    }

    pub(crate) fn send(&self, octets: &[u8]) {
        // A connection that is refused in the middle of a long message is seen by reading.
        let _ = (&self.stream).write_all(octets);
    }

    /// What comes until an OPTIONS sent now is answered.
    pub(crate) fn answers_until_probed(&self) -> Vec<Vec<u8>> {
        self.send(probe(1, "TCP").as_bytes());
        let mut answers = self.answers(|last| is_answer_to_probe(last, 1));
        let last = answers.pop();
        assert!(
            last.is_some_and(|last| is_answer_to_probe(&last, 1)),
            "closed before the OPTIONS was answered"
        );
        answers
    }

    /// What comes until the daemon closes.
    pub(crate) fn answers_until_closed(&self) -> Vec<Vec<u8>> {
        self.answers(|_| false)
    }

    /// So many answers; and what comes, when we send nothing more, until the daemon closes.
    pub(crate) fn answers_then_hang_up(&self, count: usize) -> Vec<Vec<u8>> {
        let mut awaited = count;
        let mut answers = match count {
            0 => Vec::new(),
            _ => self.answers(|_| {
                awaited -= 1;
                awaited == 0
            }),
        };
        self.stream.shutdown(Shutdown::Write).expect("open");
        answers.extend(self.answers_until_closed());
        answers
    }

    fn answers(&self, mut is_last: impl FnMut(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let (mut framer, mut answers) = (Framer::new(), Vec::new());
        let mut buffer = [0; 4_096];
        loop {
            while let Some(frame) = framer.next_frame().expect("the daemon sends messages") {
                let Frame::Message(answer) = frame else {
                    continue;
                };
                answers.push(answer.to_vec());
                if is_last(answer) {
                    return answers;
                }
            }
            match (&self.stream).read(&mut buffer) {
                Ok(0) => return answers,
                Ok(count) => framer.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return answers;
                }
                Err(error) => panic!("neither an answer nor the end: {error}"),
            }
        }
    }
}
