//! A PBX that registers: it writes its own REGISTERs and answers the challenge.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use trunkline_sip::wire::frame::{Frame, Framer};
use trunkline_sip::wire::{Framing, HeaderName, Method, lex};

use crate::digest::{Asking, Challenge};
use crate::tls::reply_to;
use crate::{Authority, Credentials, Daemon, Deadline, Message};

const PATIENCE: Duration = Duration::from_secs(5);

/// Its only socket.
#[derive(Debug)]
enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Tls(SocketAddr, Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// The PBX of the first org's trunk.
#[derive(Debug)]
pub struct Pbx {
    socket: Socket,
    daemon: SocketAddr,
    username: String,
    pub password: String,
    /// The user in To and From, whose address of record it registers.
    pub registers: String,
    /// What its Via says.
    pub sent_by: String,
    call_id: String,
    cseq: u32,
}

/// The final answer to a REGISTER.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub contacts: Vec<String>,
    pub min_expires: Option<u32>,
}

impl Pbx {
    pub fn udp(daemon: &Daemon) -> Self {
        Self::udp_to(daemon.sip(), daemon.credentials())
    }

    pub fn udp_to(daemon: SocketAddr, credentials: Credentials) -> Self {
        Self::udp_from(daemon.ip(), daemon, credentials)
    }

    /// Over UDP, by a NAT that has this address inside.
    pub fn behind(daemon: &Daemon, nat: SocketAddr) -> Self {
        let socket = UdpSocket::bind((nat.ip(), 0)).expect("a port");
        socket.connect(nat).expect("the NAT's port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self::new(daemon.sip(), daemon.credentials(), Socket::Udp(socket))
    }

    /// Answers what comes by UDP from now on, beside what else is done.
    pub fn answer_options(&self) {
        let Socket::Udp(socket) = &self.socket else {
            panic!("only over UDP");
        };
        let socket = socket.try_clone().expect("a second handle");
        std::thread::spawn(move || {
            let mut octets = vec![0; 8192];
            loop {
                let Ok(count) = socket.recv(&mut octets) else {
                    continue;
                };
                let (_, reply) = reply_to(&octets[..count], "sip:pbx@10.9.8.7");
                // The test may be over.
                let _ = socket.send(reply.as_bytes());
            }
        });
    }

    pub fn tcp(daemon: &Daemon) -> Self {
        Self::tcp_to(daemon.sip(), daemon.credentials())
    }

    pub fn tcp_to(daemon: SocketAddr, credentials: Credentials) -> Self {
        let stream = TcpStream::connect(daemon).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        Self::new(daemon, credentials, Socket::Tcp(stream))
    }

    /// From now on hears this node, and no other; by UDP alone.
    pub fn listens_to(&self, node: SocketAddr) {
        if let Socket::Udp(socket) = &self.socket {
            socket.connect(node).expect("the node's port");
        }
    }

    /// Over TLS to `listener`, whose certificate has to be this authority's.
    pub fn tls(daemon: &Daemon, listener: SocketAddr, authority: &Authority) -> Self {
        let stream = authority.connect(listener).expect("TLS");
        let own = stream.sock.local_addr().expect("an address");
        let socket = Socket::Tls(own, Box::new(stream));
        Self::new(daemon.sip(), daemon.credentials(), socket)
    }

    /// Over UDP from this address, which may be one behind a NAT.
    pub fn udp_from(own: IpAddr, daemon: SocketAddr, credentials: Credentials) -> Self {
        let socket = UdpSocket::bind((own, 0)).expect("a port");
        socket.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let pbx = Self::new(daemon, credentials, Socket::Udp(socket));
        pbx.listens_to(daemon);
        pbx
    }

    fn new(daemon: SocketAddr, credentials: Credentials, socket: Socket) -> Self {
        let mut pbx = Self {
            socket,
            daemon,
            registers: credentials.username.clone(),
            username: credentials.username,
            password: credentials.password,
            sent_by: String::new(),
            call_id: String::new(),
            cseq: 0,
        };
        pbx.sent_by = pbx.address().to_string();
        pbx.call_id = format!("registration@{}", pbx.sent_by);
        pbx
    }

    /// Answers what comes by UDP within that time, or until a call is hung up; the methods that came.
    pub fn answer_within(&self, limit: Duration) -> Vec<Method> {
        let Socket::Udp(socket) = &self.socket else {
            panic!("only over UDP");
        };
        let glance = Some(Duration::from_millis(100));
        socket.set_read_timeout(glance).expect("a limit");
        let contact = format!("sip:pbx@{}", self.sent_by);
        let (mut heard, mut octets) = (Vec::new(), vec![0; 8192]);
        Deadline::after(limit).poll(|| {
            let count = socket.recv(&mut octets).ok()?;
            let (method, reply) = reply_to(&octets[..count], &contact);
            heard.push(method);
            if !reply.is_empty() {
                socket.send(reply.as_bytes()).expect("it is sent");
            }
            (method == Method::Bye).then_some(())
        });
        heard
    }

    /// Where it sends from.
    pub fn address(&self) -> SocketAddr {
        let address = match &self.socket {
            Socket::Udp(socket) => socket.local_addr(),
            Socket::Tcp(stream) => stream.local_addr(),
            Socket::Tls(own, _) => Ok(*own),
        };
        address.expect("an address")
    }

    /// Registers with these lines, answering the challenge once.
    pub fn register(&mut self, lines: &str) -> Answer {
        let challenged = self.ask(lines);
        let refused = Message::from(&*challenged);
        assert_eq!(
            refused.status(),
            Some(401),
            "a first REGISTER is challenged"
        );
        let uri = format!("sip:{}", self.daemon);
        let asking = Asking {
            method: "REGISTER",
            uri: &uri,
            nc: 1,
        };
        let credentials = Credentials {
            username: self.username.clone(),
            password: self.password.clone(),
        };
        let proof = Challenge::of(&refused).answer(&asking, &credentials);
        let answered = self.ask(&format!("{proof}\r\n{lines}"));
        let answer = lex(&answered, Framing::Datagram).expect("a response");
        let contacts = answer.elements(HeaderName::Contact);
        Answer {
            status: answer.status(),
            contacts: contacts
                .map(|contact| String::from_utf8_lossy(contact).into_owned())
                .collect(),
            min_expires: answer.number(HeaderName::MinExpires),
        }
    }

    /// Answers one call on the socket that it has registered by, until that is hung up; what came.
    pub fn take_call(&mut self) -> Vec<(Method, String)> {
        let contact = format!("sip:pbx@{}", self.sent_by);
        let (mut framer, mut heard) = (Framer::new(), Vec::new());
        let mut octets = vec![0; 8192];
        loop {
            let count = match &mut self.socket {
                Socket::Udp(socket) => socket.recv(&mut octets),
                Socket::Tcp(stream) => stream.read(&mut octets),
                Socket::Tls(_, stream) => stream.read(&mut octets),
            };
            let count = count.unwrap_or_else(|error| panic!("{error} after {heard:?}"));
            assert!(count > 0, "the connection ended after {heard:?}");
            // Datagrams hold whole messages, so they can be framed as well.
            framer.push(&octets[..count]);
            while let Ok(Some(frame)) = framer.next_frame() {
                let Frame::Message(octets) = frame else {
                    continue;
                };
                let (method, reply) = reply_to(octets, &contact);
                heard.push((method, String::from_utf8_lossy(octets).into_owned()));
                let sent = match &mut self.socket {
                    _ if reply.is_empty() => Ok(()),
                    Socket::Udp(socket) => socket.send(reply.as_bytes()).map(drop),
                    Socket::Tcp(stream) => stream.write_all(reply.as_bytes()),
                    Socket::Tls(_, stream) => stream.write_all(reply.as_bytes()),
                };
                sent.expect("it is sent");
            }
            if heard.iter().any(|(method, _)| *method == Method::Bye) {
                return heard;
            }
        }
    }

    fn ask(&mut self, lines: &str) -> Vec<u8> {
        self.cseq += 1;
        let Self {
            daemon,
            registers,
            sent_by,
            call_id,
            cseq,
            ..
        } = self;
        let transport = match self.socket {
            Socket::Udp(_) => "UDP",
            Socket::Tcp(_) => "TCP",
            Socket::Tls(..) => "TLS",
        };
        let request = format!(
            "REGISTER sip:{daemon} SIP/2.0\r\nVia: SIP/2.0/{transport} {sent_by};branch=z9hG4bK-{cseq};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{registers}@pbx.example>;tag=pbx\r\nTo: <sip:{registers}@pbx.example>\r\n\
             Call-ID: {call_id}\r\nCSeq: {cseq} REGISTER\r\n{lines}Content-Length: 0\r\n\r\n"
        );
        let mut octets = vec![0; 4096];
        let count = match &mut self.socket {
            Socket::Udp(socket) => {
                socket.send(request.as_bytes()).expect("it is sent");
                socket.recv(&mut octets).expect("an answer")
            }
            Socket::Tcp(stream) => {
                stream.write_all(request.as_bytes()).expect("it is sent");
                stream.read(&mut octets).expect("an answer")
            }
            Socket::Tls(_, stream) => {
                stream.write_all(request.as_bytes()).expect("it is sent");
                stream.read(&mut octets).expect("an answer")
            }
        };
        octets.truncate(count);
        octets
    }
}
