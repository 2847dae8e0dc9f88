//! A caller with any SDP that a test wants, and RTP from any address.

use std::cell::Cell;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::dialog::Dialog;
use crate::{Deadline, Message, Peer};

/// Interval of packets.
const PACKET: Duration = Duration::from_millis(20);
/// Longest wait for a packet or a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// One call, from the caller's side. It sends no BYE: the test's daemon ends before it would miss one.
#[derive(Debug)]
pub struct Talker {
    peer: Peer,
    dialog: Dialog,
    cseq: Cell<u32>,
}

/// An offer of G.711 and telephone-events at this address.
pub fn offer(at: SocketAddr) -> String {
    let (family, ip, port) = (if at.is_ipv4() { "IP4" } else { "IP6" }, at.ip(), at.port());
    format!(
        "v=0\r\no=- 1 1 IN {family} {ip}\r\ns=-\r\nc=IN {family} {ip}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0 101\r\n\
         a=rtpmap:0 PCMU/8000\r\na=rtpmap:101 telephone-event/8000\r\n"
    )
}

/// Number of talkers in this process. It makes each one's Call-ID unique: a port is reused while the earlier talker's call may be up.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Talker {
    /// Calls `user` from this address with this SDP; returns the final answer too.
    pub fn call(from: IpAddr, daemon: SocketAddr, user: &str, sdp: &str) -> (Self, Message) {
        Self::call_with(None, from, daemon, user, sdp)
    }

    /// The same, with a Contact that may differ from the talker's own address.
    pub fn call_with(
        contact: Option<&str>,
        from: IpAddr,
        daemon: SocketAddr,
        user: &str,
        sdp: &str,
    ) -> (Self, Message) {
        let peer = Peer::on(from, daemon);
        let (made, port) = (MADE.fetch_add(1, Ordering::Relaxed), peer.own.port());
        let (uri, id) = (
            format!("sip:{user}@{daemon}"),
            format!("talker-{port}-{made}"),
        );
        let own = peer.own.to_string();
        let dialog = Dialog::calling(&uri, "+441632960001", &id, &peer).with(&format!(
            "Contact: <sip:talker@{}>",
            contact.unwrap_or(&own)
        ));
        let mut talker = Self {
            peer,
            dialog,
            cseq: Cell::new(0),
        };

        let answer = talker.invite(sdp);
        if answer.status() < Some(300) {
            talker.dialog.accepted(&answer);
        }

        talker.acknowledge(&answer);
        (talker, answer)
    }

    /// Sends a new offer in the call.
    pub fn offer(&self, sdp: &str) -> Message {
        let answer = self.invite(sdp);
        self.acknowledge(&answer);
        answer
    }

    /// Sends an INFO with this body in the call; returns the final answer.
    pub fn inform(&self, kind: &str, body: &str) -> Message {
        self.cseq.set(self.cseq.get() + 1);
        let of = (self.cseq.get(), "INFO");
        let lines = format!("Content-Type: {kind}\r\n");
        self.peer
            .ask(&self.dialog.request(&self.peer, of, &lines, body))
    }

    fn invite(&self, sdp: &str) -> Message {
        self.cseq.set(self.cseq.get() + 1);
        let of = (self.cseq.get(), "INVITE");
        let invite = self.dialog.request(&self.peer, of, "", sdp);
        self.peer.ask(&invite)
    }

    fn acknowledge(&self, answer: &Message) {
        let ack = self.dialog.ack(&self.peer, self.cseq.get(), answer);
        self.peer.send(ack);
    }

    /// Accepts a request in the call, with this SDP if there is one.
    pub fn accept(&self, request: &Message, sdp: &str) {
        match sdp.is_empty() {
            true => self.peer.answer(request, "200 OK", "", ""),
            false => self.peer.reply_with_sdp(request, "200 OK", sdp),
        }
    }

    /// Returns the next message, if one comes within a moment.
    pub fn soon(&self) -> Option<Message> {
        self.peer.soon()
    }

    /// Waits for the next request of this method in the call; of any method if it is empty.
    pub fn asked(&self, method: &str) -> Option<Message> {
        Deadline::after(PATIENCE).poll(|| {
            let message = self.peer.soon()?;
            message.method()?.starts_with(method).then_some(message)
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
        Self::at((from, 0).into())
    }

    /// A source at this address and port.
    pub fn at(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).expect("a port");
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

    /// Sends a packet of this audio.
    pub fn say(&self, to: SocketAddr, audio: &[u8]) {
        self.send(to, &packet(0, self.next(), self.address().port(), audio));
    }

    /// Sends a packet of comfort noise (RFC 3389).
    pub fn hum(&self, to: SocketAddr) {
        self.send(to, &packet(13, self.next(), self.address().port(), &[0x40]));
    }

    /// Sends a receiver report without a report block (RFC 3550 §6.4.2), on one port with RTP.
    pub fn report(&self, to: SocketAddr) {
        self.send(to, &[0x80, 201, 0, 1, 1, 2, 3, 4]);
    }

    /// Sends a packet of this payload type and payload, the next of the stream.
    pub fn send_as(&self, to: SocketAddr, payload_type: u8, payload: &[u8]) {
        self.send_numbered(to, payload_type, self.next(), payload);
    }

    /// Sends a packet under a sequence number of the test's own.
    pub fn send_numbered(&self, to: SocketAddr, payload_type: u8, sequence: u16, payload: &[u8]) {
        let packet = packet(payload_type, sequence, self.address().port(), payload);
        self.send(to, &packet);
    }

    /// Waits for a packet, but no longer than 20 ms; returns its payload type and payload.
    pub fn received(&self) -> Option<(u8, Vec<u8>)> {
        const HEADER: usize = 12;
        let mut octets = [0; 2_048];
        let (length, _) = self.socket.recv_from(&mut octets).ok()?;
        let payload = octets.get(HEADER..length)?;
        Some((octets[1] & 0x7f, payload.to_vec()))
    }

    /// Waits for a packet, but no longer than 20 ms; returns its audio.
    pub fn audio(&self) -> Option<Vec<u8>> {
        self.received().map(|(_, payload)| payload)
    }

    /// Presses a key and releases it: one packet of its event, and three of the event's end (RFC 4733 §2.5.1.4). All have the timestamp of its
    /// beginning, where the marker is set (§2.5.1.1, §2.5.1.2).
    pub fn press(&self, to: SocketAddr, digit: u8) {
        self.press_as(to, 101, digit);
    }

    /// The same under another payload type.
    pub fn press_as(&self, to: SocketAddr, payload_type: u8, digit: u8) {
        const MARKER: u8 = 0x80;
        const END: u8 = 0x80;
        const VOLUME: u8 = 10;

        let port = self.address().port();
        let begins = [digit, VOLUME, 0, 160];
        let first = packet(MARKER | payload_type, self.next(), port, &begins);
        self.send(to, &first);

        for _ in 0..3 {
            let ended = [digit, END | VOLUME, 2, 128];
            let mut last = packet(payload_type, self.next(), port, &ended);
            last[TIMESTAMP].copy_from_slice(&first[TIMESTAMP]);
            self.send(to, &last);
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

    /// Waits for a packet, but no longer than 20 ms; returns its source.
    pub fn hears(&self) -> Option<SocketAddr> {
        let mut octets = [0; 2_048];
        self.socket
            .recv_from(&mut octets)
            .ok()
            .map(|(_, from)| from)
    }

    /// Sends audio until it hears its echo; returns the echo's source.
    pub fn converse(&self, to: SocketAddr) -> Option<SocketAddr> {
        // Again and again: the daemon learns the talker's address only after several packets.
        Deadline::after(PATIENCE).poll(|| {
            self.speak(to);
            self.hears()
        })
    }
}

/// Place of the timestamp in an RTP packet.
const TIMESTAMP: std::ops::Range<usize> = 4..8;

/// An RTP packet; its SSRC is derived from the port.
pub fn packet(payload_type: u8, sequence: u16, port: u16, payload: &[u8]) -> Vec<u8> {
    let mut octets = vec![0x80, payload_type];
    octets.extend(sequence.to_be_bytes());
    octets.extend((u32::from(sequence) * 160).to_be_bytes());
    octets.extend(u32::from(port).to_be_bytes());
    octets.extend(payload);
    octets
}
