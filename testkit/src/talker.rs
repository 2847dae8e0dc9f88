//! A caller made of two sockets: SIP written by hand, with whatever SDP a test wants, and RTP from any address.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use trunkline_sip::wire::{Framing, HeaderName, lex};

use crate::process::Deadline;

/// How long an answer may take until the request is sent again, and how often it is.
const AGAIN: Duration = Duration::from_millis(500);
const TIMES: u32 = 40;

/// How long RTP may take to be heard: packets of this many milliseconds, so often.
const PACKET: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(10);

/// One call, from the caller's side. It isn't ended: the daemon of a test ends before it would miss anything.
#[derive(Debug)]
pub struct Talker {
    socket: UdpSocket,
    own: SocketAddr,
    /// Host and port of its Contact.
    contact: String,
    id: String,
    to: String,
    target: String,
    cseq: Cell<u32>,
}

/// A final answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// As it came.
    pub text: String,
}

impl Answer {
    /// The address and port that its SDP names.
    pub fn media(&self) -> SocketAddr {
        let after = |prefix: &str| {
            let line = self.text.lines().find_map(|line| line.strip_prefix(prefix));
            let line = line.unwrap_or_else(|| panic!("no {prefix} in {}", self.text));
            line.split(' ').next().unwrap_or_default().trim().to_owned()
        };
        let ip = match self.text.contains("c=IN IP6 ") {
            true => after("c=IN IP6 "),
            false => after("c=IN IP4 "),
        };
        let port = after("m=audio ").parse().expect("a port");
        SocketAddr::new(ip.parse().expect("an address"), port)
    }

    /// The value of a header line.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.text.lines().take_while(|line| !line.is_empty());
        lines
            .filter_map(|line| line.split_once(':'))
            .find_map(|(label, value)| label.eq_ignore_ascii_case(name).then_some(value.trim()))
    }
}

/// An offer of G.711 and telephone-events at this address.
pub fn offer(at: SocketAddr) -> String {
    let (family, ip, port) = (if at.is_ipv4() { "IP4" } else { "IP6" }, at.ip(), at.port());
    format!(
        "v=0\r\no=- 1 1 IN {family} {ip}\r\ns=-\r\nc=IN {family} {ip}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0 101\r\n\
         a=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n"
    )
}

/// Talkers of this process: a port comes back, and a call of the one that had it may be up.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Talker {
    /// Calls `user` from this address with this SDP.
    pub fn call(from: IpAddr, daemon: SocketAddr, user: &str, sdp: &str) -> (Self, Answer) {
        Self::call_with(None, from, daemon, user, sdp)
    }

    /// The same, where its Contact may be another address than its own.
    pub fn call_with(
        contact: Option<&str>,
        from: IpAddr,
        daemon: SocketAddr,
        user: &str,
        sdp: &str,
    ) -> (Self, Answer) {
        let socket = UdpSocket::bind((from, 0)).expect("a port");
        socket.connect(daemon).expect("an address");
        socket.set_read_timeout(Some(AGAIN)).expect("a limit");
        let own = socket.local_addr().expect("an address");
        let uri = format!("sip:{user}@{daemon}");
        let mut talker = Self {
            socket,
            own,
            contact: contact.map_or_else(|| own.to_string(), str::to_owned),
            to: format!("<{uri}>"),
            target: uri,
            id: format!(
                "talker-{}-{}",
                own.port(),
                MADE.fetch_add(1, Ordering::Relaxed)
            ),
            cseq: Cell::new(0),
        };
        let answer = talker.invite(sdp);
        if answer.status < 300 {
            talker.to = answer.header("To").expect("a To").to_owned();
            let contact = answer.header("Contact").expect("a Contact");
            talker.target = contact.split(['<', '>']).nth(1).expect("a URI").to_owned();
            talker.acknowledge(&answer);
        }
        (talker, answer)
    }

    /// Offers something else inside the call.
    pub fn offer(&self, sdp: &str) -> Answer {
        let answer = self.invite(sdp);
        self.acknowledge(&answer);
        answer
    }

    fn invite(&self, sdp: &str) -> Answer {
        self.cseq.set(self.cseq.get() + 1);
        let body = format!(
            "Content-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{sdp}",
            sdp.len()
        );
        let request = self.request("INVITE", &self.branch(), &self.target, &self.to, &body);
        let mut octets = vec![0; 8_192];
        for _ in 0..TIMES {
            self.socket.send(request.as_bytes()).expect("it is sent");
            while let Ok(count) = self.socket.recv(&mut octets) {
                let message = lex(&octets[..count], Framing::Datagram).expect("a message");
                let cseq = format!("{} INVITE", self.cseq.get());
                let is_ours = !message.is_request()
                    && message.first(HeaderName::CSeq) == Some(cseq.as_bytes())
                    && message.status() >= 200;
                if is_ours {
                    let answer = Answer {
                        status: message.status(),
                        text: String::from_utf8_lossy(&octets[..count]).into_owned(),
                    };
                    if answer.status >= 300 {
                        let to = answer.header("To").unwrap_or_default();
                        self.send_ack(&self.branch(), &self.target, to);
                    }
                    return answer;
                }
            }
        }
        panic!("no answer to {request}");
    }

    /// The ACK of a 2xx is a transaction of its own (RFC 3261 §13.2.2.4).
    fn acknowledge(&self, answer: &Answer) {
        if answer.status < 300 {
            self.send_ack(&format!("{}-ack", self.branch()), &self.target, &self.to);
        }
    }

    fn send_ack(&self, branch: &str, target: &str, to: &str) {
        let ack = self.request("ACK", branch, target, to, "Content-Length: 0\r\n\r\n");
        self.socket.send(ack.as_bytes()).expect("it is sent");
    }

    fn branch(&self) -> String {
        format!("{}-{}", self.id, self.cseq.get())
    }

    fn request(&self, method: &str, branch: &str, uri: &str, to: &str, rest: &str) -> String {
        let Self {
            own, id, contact, ..
        } = self;
        format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{branch};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:+441632960001@{own}>;tag={id}\r\nTo: {to}\r\nCall-ID: {id}@{own}\r\nCSeq: {} {method}\r\n\
             Contact: <sip:talker@{contact}>\r\n{rest}",
            self.cseq.get()
        )
    }

    /// The next request that comes inside the call.
    pub fn asked(&self, method: &str) -> Option<String> {
        let mut octets = vec![0; 8_192];
        Deadline::after(PATIENCE).poll(|| {
            let count = self.socket.recv(&mut octets).ok()?;
            let text = String::from_utf8_lossy(&octets[..count]).into_owned();
            text.starts_with(method).then_some(text)
        })
    }
}

/// A source of RTP.
#[derive(Debug)]
pub struct Rtp {
    socket: UdpSocket,
    sequence: Cell<u16>,
}

impl Rtp {
    pub fn new(from: IpAddr) -> Self {
        let socket = UdpSocket::bind((from, 0)).expect("a port");
        socket.set_read_timeout(Some(PACKET)).expect("a limit");
        Self {
            socket,
            sequence: Cell::new(1_000),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.socket.local_addr().expect("an address")
    }

    /// Sends a packet of audio.
    pub fn speak(&self, to: SocketAddr) {
        self.send(
            to,
            &packet(0, self.next(), self.address().port(), &[0xff; 160]),
        );
    }

    /// Presses a key: its event, three times.
    pub fn press(&self, to: SocketAddr, digit: u8) {
        for _ in 0..3 {
            let event = [digit, 10, 0, 160];
            self.send(to, &packet(101, self.next(), self.address().port(), &event));
        }
    }

    fn next(&self) -> u16 {
        let sequence = self.sequence.get().wrapping_add(1);
        self.sequence.set(sequence);
        sequence
    }

    fn send(&self, to: SocketAddr, octets: &[u8]) {
        self.socket.send_to(octets, to).expect("it is sent");
    }

    /// Whether a packet comes within the length of one.
    pub fn hears(&self) -> Option<SocketAddr> {
        let mut octets = [0; 2_048];
        self.socket
            .recv_from(&mut octets)
            .ok()
            .map(|(_, from)| from)
    }

    /// Speaks until it hears itself; where from.
    pub fn converse(&self, to: SocketAddr) -> Option<SocketAddr> {
        Deadline::after(PATIENCE).poll(|| {
            self.speak(to);
            self.hears()
        })
    }
}

/// An RTP packet; the SSRC is made of the port.
pub fn packet(payload_type: u8, sequence: u16, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x80, payload_type];
    octets.extend(sequence.to_be_bytes());
    octets.extend((u32::from(sequence) * 160).to_be_bytes());
    octets.extend(u32::from(port).to_be_bytes());
    octets.extend(payload);
    octets
}
