//! The smallest caller and the smallest callee: one tries whether a call is taken, and where it goes, the other takes none.

use std::cell::Cell;
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use trunkline_sip::wire::{self, Framing, HeaderName, Method, lex};

use crate::answer::reply;
use crate::digest::{Asking, Challenge};
use crate::{Credentials, Message};

/// How long an answer may take until the request is sent again, and how often it is.
const AGAIN: Duration = Duration::from_millis(500);
const TIMES: u32 = 40;

/// Calls from an address of its own, without credentials.
#[derive(Debug)]
pub struct Probe {
    pub socket: UdpSocket,
    pub own: SocketAddr,
    pub daemon: SocketAddr,
    turn: Cell<u32>,
    answers: bool,
}

impl Probe {
    pub fn new(from: Ipv4Addr, daemon: SocketAddr) -> Self {
        let socket = UdpSocket::bind((from, 0)).expect("a port");
        socket.connect(daemon).expect("an address");
        socket.set_read_timeout(Some(AGAIN)).expect("a limit");
        Self {
            own: socket.local_addr().expect("an address"),
            socket,
            daemon,
            answers: true,
            turn: Cell::new(0),
        }
    }

    /// One that doesn't answer what it is asked: what is sent to a forged source never comes to its forger.
    pub fn forged(from: Ipv4Addr, daemon: SocketAddr) -> Self {
        Self {
            answers: false,
            ..Self::new(from, daemon)
        }
    }

    /// The final status of a call to `user` with this header line; one that is answered stays up. `None`: the daemon had too much to do.
    pub fn call(&self, user: &str, line: &str) -> Option<u16> {
        let (own, daemon) = (self.own, self.daemon);
        let sdp = format!(
            "v=0\r\no=- 1 1 IN IP4 {ip}\r\ns=-\r\nc=IN IP4 {ip}\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n",
            ip = own.ip()
        );
        let uri = format!("sip:{user}@{daemon}");
        let more =
            format!("Contact: <sip:probe@{own}>\r\n{line}\r\nContent-Type: application/sdp\r\n");
        let (id, answered) = self.ask("INVITE", &uri, &more, &sdp);
        let answered = lex(&answered, Framing::Datagram).expect("a response");
        let status = answered.status();
        let text = |name| {
            let value = answered.first(name).unwrap_or_default();
            String::from_utf8_lossy(value).into_owned()
        };
        let (to, contact) = (text(HeaderName::To), text(HeaderName::Contact));
        // The ACK of a 2xx is a transaction of its own (RFC 3261 §17.1.1.3).
        let (uri, branch) = if status < 300 {
            let uri = contact.split(['<', '>']).nth(1).unwrap_or(&uri);
            (uri.to_owned(), format!("{id}-ack"))
        } else {
            (uri, id.clone())
        };
        let from = self.caller();
        let ack = format!(
            "ACK {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{branch};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:{from}@{own}>;tag={id}\r\nTo: {to}\r\nCall-ID: {id}@{own}\r\nCSeq: 1 ACK\r\nContent-Length: 0\r\n\r\n"
        );
        self.socket.send(ack.as_bytes()).expect("it is sent");
        (status != 503).then_some(status)
    }

    /// Another number at each turn: one caller may not call a number as often as tests do.
    fn caller(&self) -> String {
        format!("+441632{:06}", self.turn.get() % 1_000_000)
    }

    /// The final answer to a request, and the id in its tag, branch and Call-ID.
    pub fn ask(&self, method: &str, uri: &str, more: &str, body: &str) -> (String, Vec<u8>) {
        let own = self.own;
        self.turn.set(self.turn.get() + 1);
        let id = format!("{}-{}", own.port(), self.turn.get());
        let call_id = format!("{id}@{own}");
        let from = self.caller();
        let request = format!(
            "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-{id};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:{from}@{own}>;tag={id}\r\nTo: <{uri}>\r\nCall-ID: {call_id}\r\nCSeq: 1 {method}\r\n\
             {more}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut octets = vec![0; 8192];
        for _ in 0..TIMES {
            self.socket.send(request.as_bytes()).expect("it is sent");
            while let Ok(count) = self.socket.recv(&mut octets) {
                let message = lex(&octets[..count], Framing::Datagram).expect("a message");
                if message.is_request() && message.method() == Method::Options && self.answers {
                    let ok = reply(&message, "200 OK", "");
                    self.socket.send(ok.as_bytes()).expect("it is sent");
                }
                let is_ours = message.call_id() == call_id.as_bytes();
                if is_ours && is_final(&message) {
                    octets.truncate(count);
                    return (id, octets);
                }
            }
        }
        panic!("no answer to {request}");
    }

    /// Refuses every REFER from now on, and says 200 to everything else.
    pub fn refuse_transfers(self) {
        std::thread::spawn(move || {
            let mut octets = [0; 8192];
            loop {
                let Ok(count) = self.socket.recv(&mut octets) else {
                    continue;
                };
                let message = lex(&octets[..count], Framing::Datagram).expect("a message");
                if !message.is_request() || message.method() == Method::Ack {
                    continue;
                }
                let status = match message.method() == Method::Refer {
                    true => "403 Forbidden",
                    false => "200 OK",
                };
                // The daemon may have gone.
                let _ = self.socket.send(reply(&message, status, "").as_bytes());
            }
        });
    }

    /// The status of a REGISTER with these credentials.
    pub fn register(&self, credentials: &Credentials) -> u16 {
        let (own, daemon) = (self.own, self.daemon);
        let uri = format!("sip:{daemon}");
        let contact = format!("Contact: <sip:probe@{own}>;expires=60\r\n");
        let (_, challenged) = self.ask("REGISTER", &uri, &contact, "");
        let asking = Asking {
            method: "REGISTER",
            uri: &uri,
            nc: 1,
        };
        let challenge = Challenge::of(&Message::from(&*challenged));
        let proof = challenge.answer(&asking, credentials);
        let more = format!("{proof}\r\n{contact}");
        let (_, answered) = self.ask("REGISTER", &uri, &more, "");
        lex(&answered, Framing::Datagram)
            .expect("a response")
            .status()
    }
}

fn is_final(message: &wire::Message<'_>) -> bool {
    !message.is_request() && message.status() >= 200
}

/// Refuses each call as busy, and says that it is there.
#[derive(Debug)]
pub struct Busy {
    pub address: SocketAddr,
    calls: Arc<Mutex<HashSet<Vec<u8>>>>,
}

impl Busy {
    pub fn start() -> Self {
        Self::on(Ipv4Addr::LOCALHOST)
    }

    pub fn on(ip: Ipv4Addr) -> Self {
        let socket = UdpSocket::bind((ip, 0)).expect("a port");
        let address = socket.local_addr().expect("an address");
        let calls = Arc::new(Mutex::new(HashSet::new()));
        let taken = Arc::clone(&calls);
        std::thread::spawn(move || {
            let mut octets = [0; 8192];
            while let Ok((count, from)) = socket.recv_from(&mut octets) {
                let request = lex(&octets[..count], Framing::Datagram).expect("a message");
                let mut status = "200 OK";
                if request.method() == Method::Invite {
                    let mut taken = taken.lock().expect("nobody panics with it");
                    taken.insert(request.call_id().to_vec());
                    status = "486 Busy Here";
                }
                if request.method() == Method::Ack {
                    continue;
                }
                let reply = reply(&request, status, "");
                socket.send_to(reply.as_bytes(), from).expect("it is sent");
            }
        });
        Self { address, calls }
    }

    /// How many calls have come.
    pub fn taken(&self) -> usize {
        self.known().len()
    }

    fn known(&self) -> MutexGuard<'_, HashSet<Vec<u8>>> {
        self.calls.lock().expect("nobody panics with it")
    }
}
