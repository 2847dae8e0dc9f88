//! A raw peer on a socket: it sends given octets, right or wrong, and returns each message received. It sends nothing by itself, except the
//! answers to OPTIONS if it is [`Peer::attentive`].

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::link::{Links, Stream};
use crate::message::status_of;
use crate::{Deadline, Message};

/// Longer than any answer takes on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(30);
/// Longer than any test takes.
pub const FOREVER: Duration = Duration::from_secs(3_600);
/// Wait for a message that need not come.
const MOMENT: Duration = Duration::from_millis(200);
/// Interval for sending a datagram again that may have been lost in a full buffer.
const AGAIN: Duration = Duration::from_millis(500);
/// Most times that a request is sent: it may be lost, or shed because it waited too long, as happens on a busy machine.
pub const TRIES: usize = 40;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Transport {
    Udp,
    Tcp,
    Tls,
}

impl Transport {
    /// The name in a Via header.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        }
    }
}

#[derive(Debug)]
enum PeerSocket {
    Datagrams(UdpSocket),
    Streams(Mutex<Links>),
}

/// The peer. Clones share its socket, which closes with the last of them.
#[derive(Debug, Clone)]
pub struct Peer {
    pub own: SocketAddr,
    pub transport: Transport,
    /// The To-tag of its answers.
    pub tag: &'static str,
    way: Arc<PeerSocket>,
    /// Address that it sends datagrams to: the daemon, or for a listening peer the source of the first one.
    far: Arc<Mutex<Option<SocketAddr>>>,
    probes: Arc<AtomicU32>,
    /// Messages seen before, if repetitions are skipped.
    seen: Option<Arc<Mutex<HashSet<String>>>>,
}

impl Peer {
    /// A peer over UDP, with its own port.
    pub fn new(daemon: SocketAddr) -> Self {
        Self::on(Ipv4Addr::LOCALHOST, daemon)
    }

    /// A peer over UDP at another address of this machine.
    pub fn on(ip: impl Into<IpAddr>, daemon: SocketAddr) -> Self {
        let socket = UdpSocket::bind((ip.into(), 0)).expect("a port");
        Self::bound(socket, Some(daemon))
    }

    /// A peer on a bound socket.
    pub fn bound(socket: UdpSocket, daemon: Option<SocketAddr>) -> Self {
        let own = socket.local_addr().expect("an address");
        Self::by(PeerSocket::Datagrams(socket), own, Transport::Udp, daemon)
    }

    fn by(way: PeerSocket, own: SocketAddr, transport: Transport, far: Option<SocketAddr>) -> Self {
        Self {
            own,
            transport,
            tag: "peer",
            way: Arc::new(way),
            far: Arc::new(Mutex::new(far)),
            probes: Arc::default(),
            seen: None,
        }
    }

    /// A peer over a TCP connection.
    pub fn tcp(ip: Ipv4Addr, daemon: SocketAddr) -> Self {
        Self::connected(ip, daemon, |_| {})
    }

    /// The same with a small receive buffer, so that unread messages soon stay with the daemon.
    pub fn with_small_window(daemon: SocketAddr) -> Self {
        Self::connected(Ipv4Addr::LOCALHOST, daemon, |socket| {
            socket.set_recv_buffer_size(4_096).expect("an option");
        })
    }

    fn connected(ip: Ipv4Addr, daemon: SocketAddr, prepare: impl FnOnce(&Socket)) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        prepare(&socket);
        let own = SocketAddr::from((ip, 0)).into();
        socket.bind(&own).expect("a free port");
        socket.connect(&daemon.into()).expect("the daemon listens");
        Self::over(Stream::Tcp(TcpStream::from(socket)))
    }

    /// A peer on an open connection.
    pub fn over(stream: Stream) -> Self {
        let transport = match &stream {
            Stream::Tcp(_) => Transport::Tcp,
            Stream::Client(_) | Stream::Server(_) => Transport::Tls,
        };
        let own = stream.socket().local_addr().expect("an address");
        let links = Mutex::new(Links::to(stream));
        Self::by(PeerSocket::Streams(links), own, transport, None)
    }

    /// A peer that waits for datagrams or connections.
    pub fn listening(transport: Transport) -> Self {
        let at = (Ipv4Addr::LOCALHOST, 0);
        if transport == Transport::Udp {
            return Self::bound(UdpSocket::bind(at).expect("a port"), None);
        }
        let listener = TcpListener::bind(at).expect("a port");
        let own = listener.local_addr().expect("an address");
        let links = Mutex::new(Links::of(listener));
        Self::by(PeerSocket::Streams(links), own, transport, None)
    }

    /// Answers OPTIONS by itself, so that the daemon finds it up, and skips repeated messages.
    pub fn attentive(mut self) -> Self {
        self.seen = Some(Arc::default());
        self
    }

    pub fn tagged(mut self, tag: &'static str) -> Self {
        self.tag = tag;
        self
    }

    /// Sends to this node from now on. Over UDP, datagrams of other sources are no longer received.
    pub fn turn_to(&self, node: SocketAddr) {
        *self.far() = Some(node);
        if let PeerSocket::Datagrams(socket) = &*self.way {
            socket.connect(node).expect("the node's port");
        }
    }

    fn far(&self) -> MutexGuard<'_, Option<SocketAddr>> {
        self.far.lock().expect("nobody panics with it")
    }

    /// A URI that leads to this peer.
    pub fn uri(&self, user: &str) -> String {
        let parameter = match self.transport {
            Transport::Udp => "",
            Transport::Tcp => ";transport=tcp",
            Transport::Tls => ";transport=tls",
        };
        format!("sip:{user}@{}{parameter}", self.own)
    }

    /// Sends octets. A daemon that closes the connection halfway through a long message is noticed only by reading.
    pub fn send(&self, octets: impl AsRef<[u8]>) {
        self.takes(octets);
    }

    /// Sends without reading; false if the daemon has closed, or reads no more.
    pub fn takes(&self, octets: impl AsRef<[u8]>) -> bool {
        let octets = octets.as_ref();
        match &*self.way {
            PeerSocket::Datagrams(socket) => {
                let far = self.far().expect("the peer's address is known");
                let sent = match socket.peer_addr() {
                    Ok(_) => socket.send(octets),
                    Err(_) => socket.send_to(octets, far),
                };
                sent.expect("it is sent");
                true
            }
            PeerSocket::Streams(links) => {
                let mut links = links.lock().expect("nobody panics with it");
                if let Some(stream) = links.last() {
                    let limit = stream.socket().set_write_timeout(Some(LIMIT));
                    limit.expect("a timeout");
                }
                links.write(octets).is_ok()
            }
        }
    }

    /// Waits for the next message.
    pub fn receive(&self) -> Message {
        self.receive_within(LIMIT).expect("a message")
    }

    /// Returns the next message, if one comes within a moment.
    pub fn soon(&self) -> Option<Message> {
        self.receive_within(MOMENT)
    }

    pub fn receive_within(&self, limit: Duration) -> Option<Message> {
        let end = Deadline::after(limit);
        loop {
            let came = self.read(end.left());
            match came {
                Some(message) if self.is_for_the_test(&message) => return Some(message),
                None if end.is_over() || self.is_closed() => return None,
                Some(_) | None => {}
            }
        }
    }

    fn read(&self, wait: Duration) -> Option<Message> {
        let wait = wait.max(Duration::from_millis(1));
        match &*self.way {
            PeerSocket::Datagrams(socket) => {
                socket.set_read_timeout(Some(wait)).expect("a limit");
                let mut octets = [0; 65_536];
                let (count, from) = socket.recv_from(&mut octets).ok()?;
                self.far().get_or_insert(from);
                Some(Message::of(&octets[..count]))
            }
            PeerSocket::Streams(links) => links.lock().expect("nobody panics with it").next(wait),
        }
    }

    fn is_closed(&self) -> bool {
        match &*self.way {
            PeerSocket::Datagrams(_) => false,
            PeerSocket::Streams(links) => links.lock().expect("nobody panics with it").is_closed(),
        }
    }

    fn is_for_the_test(&self, message: &Message) -> bool {
        let Some(seen) = &self.seen else {
            return true;
        };
        if message.is_request("OPTIONS") {
            self.answer(message, "200 OK", "", "");
        }
        let [id, cseq] = ["Call-ID", "CSeq"].map(|name| message.header(name).unwrap_or_default());
        let which = format!("{id} {cseq} {}", message.start_line());
        let is_new = seen.lock().expect("nobody panics with it").insert(which);
        is_new && !message.is_request("OPTIONS") && !id.is_empty()
    }

    /// Waits for the next message that `is_meant` accepts, skipping others.
    pub fn next(&self, what: &str, is_meant: impl Fn(&Message) -> bool) -> Message {
        let end = Deadline::after(LIMIT);
        let mut passed = Vec::new();
        while !end.is_over() {
            match self.receive_within(end.left()) {
                Some(message) if is_meant(&message) => return message,
                Some(message) => passed.push(message),
                None => break,
            }
        }
        panic!("no {what} came, but {passed:?}")
    }

    pub fn request(&self, method: &str) -> Message {
        self.next(method, |message| message.is_request(method))
    }

    /// Waits for the next response with this status.
    pub fn response(&self, status: u16) -> Message {
        let is_it = |message: &Message| message.status() == Some(status);
        self.next(&status.to_string(), is_it)
    }

    /// Waits for the next final response to a request of this CSeq, or of this method.
    pub fn outcome(&self, of: &str) -> Message {
        self.next(of, |message| message.is_final() && message.answers(of))
    }

    /// Answers a request. `status` is the code with its reason phrase, `lines` are whole lines.
    pub fn answer(&self, request: &Message, status: &str, lines: &str, body: &str) {
        self.send(request.answer(status, self.tag, lines, body));
    }

    /// Answers a request, with its Contact and more lines.
    pub fn reply(&self, request: &Message, status: &str, lines: &str) {
        let lines = format!("Contact: <sip:{}>\r\n{lines}", self.own);
        self.answer(request, status, &lines, "");
    }

    /// Answers an INVITE with an SDP.
    pub fn reply_with_sdp(&self, invite: &Message, status: &str, sdp: &str) {
        let own = self.own;
        let lines = format!("Contact: <sip:{own}>\r\nContent-Type: application/sdp\r\n");
        self.answer(invite, status, &lines, sdp);
    }

    /// Sends a request until its final response comes; returns that.
    pub fn ask(&self, request: &str) -> Message {
        let asked = Message::of(request);
        let [id, cseq] = ["Call-ID", "CSeq"].map(|name| asked.value(name));
        let is_meant = |message: &Message| {
            let is_of_call = message.header("Call-ID") == Some(&id);
            is_of_call && message.is_final() && message.answers(&cseq)
        };

        for _ in 0..TRIES {
            self.send(request);
            let came = std::iter::from_fn(|| self.receive_within(AGAIN));
            if let Some(answer) = came.into_iter().find(is_meant) {
                return answer;
            }
        }
        panic!("no answer to {request}");
    }

    /// Returns the answers to a message, until an OPTIONS behind it is answered.
    pub fn answers_to(&self, octets: impl AsRef<[u8]>) -> Vec<Message> {
        for _ in 0..TRIES {
            self.send(&octets);
            let answers = self.answers_until_probed();
            if !matches!(&answers[..], [answer] if is_shed(answer)) {
                return answers;
            }
        }
        panic!("no turn for a new INVITE");
    }

    /// Returns the messages that come until an OPTIONS sent now is answered.
    pub fn answers_until_probed(&self) -> Vec<Message> {
        let number = self.probes.fetch_add(1, Ordering::Relaxed) + 1;
        let mut answers = Vec::new();
        let again = match self.transport {
            Transport::Udp => AGAIN,
            Transport::Tcp | Transport::Tls => LIMIT,
        };

        for _ in 0..LIMIT.as_millis() / again.as_millis() {
            self.send(self.probe(number));
            while let Some(answer) = self.receive_within(again) {
                if is_answer_to_probe(&answer, number) {
                    return answers;
                }
                // A probe that was sent twice is answered twice.
                if !is_answer_to_probe(&answer, number - 1) {
                    answers.push(answer);
                }
            }
        }

        panic!("no answer to an OPTIONS, but {answers:?}");
    }

    /// An OPTIONS whose answer shows that all earlier messages were handled.
    fn probe(&self, number: u32) -> String {
        format!(
            "OPTIONS sip:trunkline SIP/2.0\r\nVia: SIP/2.0/{} probe.invalid;branch=z9hG4bKprobe{number};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:probe@probe.invalid>;tag={number}\r\nTo: <sip:trunkline>\r\nCall-ID: probe-{number}\r\nCSeq: {number} OPTIONS\r\n\
             Content-Length: 0\r\n\r\n",
            self.transport.name()
        )
    }

    /// Returns true if the daemon sends anything on this connection after an OPTIONS.
    pub fn is_served(&self) -> bool {
        self.send(self.probe(1));
        self.receive_within(LIMIT).is_some()
    }

    /// Returns the messages that come until the daemon closes the connection.
    pub fn answers_until_closed(&self) -> Vec<Message> {
        let answers = std::iter::from_fn(|| self.receive_within(LIMIT)).collect();
        assert!(self.is_closed(), "it stays open: {answers:?}");
        answers
    }

    /// Waits for `count` answers, shuts the sending side, and returns what comes until the daemon closes.
    pub fn answers_then_hang_up(&self, count: usize) -> Vec<Message> {
        let first = std::iter::from_fn(|| self.receive_within(LIMIT)).take(count);
        let mut answers: Vec<_> = first.collect();
        if let PeerSocket::Streams(links) = &*self.way {
            let mut links = links.lock().expect("nobody panics with it");
            let stream = links.last().expect("it is open").socket();
            stream.shutdown(Shutdown::Write).expect("open");
        }
        answers.extend(self.answers_until_closed());
        answers
    }
}

/// Returns true if the answer says that an INVITE was shed.
pub fn is_shed(answer: &Message) -> bool {
    answer.status() == Some(503) && answer.header("Retry-After").is_some()
}

fn is_answer_to_probe(response: &Message, number: u32) -> bool {
    let is_ours = response.header("Call-ID") == Some(&format!("probe-{number}"));
    assert!(!is_ours || status_of(response) == 200, "{response:?}");
    is_ours
}
