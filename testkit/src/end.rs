//! One end of a call, made of a bare socket: it reads single lines, and answers as a test wants.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use trunkline_sip::wire::{Framing, lex};

use crate::answer::{answer, reply};
use crate::{Deadline, Message};

const PATIENCE: Duration = Duration::from_secs(20);

/// An SDP that is offered and answered.
pub const SDP: &str = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n";

/// One end of a call.
#[derive(Debug)]
pub struct End {
    pub socket: UdpSocket,
    pub own: SocketAddr,
    daemon: SocketAddr,
}

impl End {
    pub fn new(daemon: SocketAddr) -> Self {
        Self::on(Ipv4Addr::LOCALHOST, daemon)
    }

    /// At another loopback address.
    pub fn on(ip: Ipv4Addr, daemon: SocketAddr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).expect("a port");
        let limit = Duration::from_millis(200);
        socket.set_read_timeout(Some(limit)).expect("a limit");
        let own = socket.local_addr().expect("an address");
        Self {
            socket,
            own,
            daemon,
        }
    }

    /// The same socket once more.
    pub fn same(&self) -> Self {
        Self {
            socket: self.socket.try_clone().expect("a second handle"),
            ..*self
        }
    }

    pub fn send(&self, text: &str) {
        self.socket
            .send_to(text.as_bytes(), self.daemon)
            .expect("it is sent");
    }

    /// The next message, if one comes within a moment.
    pub fn receive(&self) -> Option<(Message, Vec<u8>)> {
        let mut octets = vec![0; 8192];
        let count = self.socket.recv(&mut octets).ok()?;
        octets.truncate(count);
        Some((Message::of(&String::from_utf8_lossy(&octets)), octets))
    }

    /// The next message like this, whatever else comes before.
    pub fn next(&self, what: &str, is_meant: impl Fn(&Message) -> bool) -> (Message, Vec<u8>) {
        let meant = || self.receive().filter(|(message, _)| is_meant(message));
        let found = Deadline::after(PATIENCE).poll(meant);
        found.unwrap_or_else(|| panic!("no {what} came"))
    }

    pub fn request(&self, method: &str) -> (Message, Vec<u8>) {
        self.next(method, |message| message.is_request(method))
    }

    pub fn answer(&self, cseq: &str) -> Message {
        let is_meant = |message: &Message| {
            let is_final = message.status().is_some_and(|status| status >= 200);
            is_final && message.header("CSeq") == Some(cseq)
        };
        self.next(cseq, is_meant).0
    }

    /// Answers a request.
    pub fn reply(&self, request: &[u8], status: &str) {
        self.reply_with(request, status, "");
    }

    /// Answers an INVITE with an SDP.
    pub fn reply_with_sdp(&self, invite: &[u8], status: &str, sdp: &str) {
        let invite = lex(invite, Framing::Datagram).expect("a request");
        let own = self.own;
        let lines = format!("Contact: <sip:{own}>\r\nContent-Type: application/sdp\r\n");
        self.send(&answer(&invite, status, "peer", &lines, sdp));
    }

    /// Answers a request, with more lines.
    pub fn reply_with(&self, request: &[u8], status: &str, lines: &str) {
        let lines = format!("Contact: <sip:{}>\r\n{lines}", self.own);
        let request = lex(request, Framing::Datagram).expect("a request");
        self.send(&reply(&request, status, &lines));
    }
}
