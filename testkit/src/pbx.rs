//! A PBX that registers: it writes its own REGISTERs and answers challenges.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::digest::{Asking, Challenge};
use crate::peer::{FOREVER, LIMIT};
use crate::tls::serve_call;
use crate::{Authority, Credentials, Daemon, Message, Peer};

/// The PBX of the first org's trunk.
#[derive(Debug)]
pub struct Pbx {
    peer: Peer,
    daemon: SocketAddr,
    username: String,
    pub password: String,
    /// The user in To and From, whose address of record it registers.
    pub registers: String,
    /// Sent-by of its Via.
    pub sent_by: String,
    call_id: String,
    cseq: u32,
}

impl Pbx {
    pub fn udp(daemon: &Daemon) -> Self {
        Self::udp_to(daemon.sip(), daemon.credentials())
    }

    pub fn udp_to(daemon: SocketAddr, credentials: Credentials) -> Self {
        Self::udp_from(daemon.ip(), daemon, credentials)
    }

    /// Registers over UDP from behind a NAT with this inner address.
    pub fn behind(daemon: &Daemon, nat: SocketAddr) -> Self {
        let peer = Peer::on(nat.ip(), nat);
        Self::new(daemon.sip(), daemon.credentials(), peer)
    }

    /// Answers requests from now on, in the background.
    pub fn answer_options(&self) {
        let peer = self.peer.clone();
        std::thread::spawn(move || serve_call(&peer, "sip:pbx@10.9.8.7", FOREVER));
    }

    pub fn tcp(daemon: &Daemon) -> Self {
        Self::tcp_to(daemon.sip(), daemon.credentials())
    }

    pub fn tcp_to(daemon: SocketAddr, credentials: Credentials) -> Self {
        let peer = Peer::tcp(Ipv4Addr::LOCALHOST, daemon);
        Self::new(daemon, credentials, peer)
    }

    /// Listens to this node alone from now on; for UDP.
    pub fn listens_to(&self, node: SocketAddr) {
        self.peer.turn_to(node);
    }

    /// Registers over TLS with `listener`, whose certificate must be this authority's.
    pub fn tls(daemon: &Daemon, listener: SocketAddr, authority: &Authority) -> Self {
        let peer = authority.peer(listener);
        Self::new(daemon.sip(), daemon.credentials(), peer)
    }

    /// Registers over UDP from this address, which may be behind a NAT.
    pub fn udp_from(own: IpAddr, daemon: SocketAddr, credentials: Credentials) -> Self {
        let pbx = Self::new(daemon, credentials, Peer::on(own, daemon));
        pbx.listens_to(daemon);
        pbx
    }

    fn new(daemon: SocketAddr, credentials: Credentials, peer: Peer) -> Self {
        Self {
            daemon,
            registers: credentials.username.clone(),
            username: credentials.username,
            password: credentials.password,
            sent_by: peer.own.to_string(),
            call_id: format!("registration@{}", peer.own),
            cseq: 0,
            peer,
        }
    }

    /// Answers requests within that time, or until a call is hung up; returns the messages received.
    pub fn answer_within(&self, limit: Duration) -> Vec<Message> {
        serve_call(&self.peer, &format!("sip:pbx@{}", self.sent_by), limit)
    }

    /// Answers one call on the socket of its registration, until it is hung up; returns the messages received.
    pub fn take_call(&mut self) -> Vec<Message> {
        let heard = self.answer_within(LIMIT);
        let last = heard.last();
        assert!(
            last.is_some_and(|last| last.is_request("BYE")),
            "nobody hung up: {heard:?}"
        );
        heard
    }

    /// Address that it sends from.
    pub fn address(&self) -> SocketAddr {
        self.peer.own
    }

    /// Registers with these lines, answering the challenge once; returns the final answer.
    pub fn register(&mut self, lines: &str) -> Message {
        let refused = self.ask(lines);
        assert_eq!(
            refused.status(),
            Some(401),
            "a first REGISTER is challenged"
        );

        let asking = Asking {
            method: "REGISTER",
            uri: &format!("sip:{}", self.daemon),
            nc: 1,
        };
        let credentials = Credentials {
            username: self.username.clone(),
            password: self.password.clone(),
        };
        let proof = Challenge::of(&refused).answer(&asking, &credentials);
        self.ask(&format!("{proof}\r\n{lines}"))
    }

    fn ask(&mut self, lines: &str) -> Message {
        self.cseq += 1;
        let Self {
            daemon,
            registers,
            sent_by,
            call_id,
            cseq,
            ..
        } = self;

        let transport = self.peer.transport.name();
        self.peer.send(format!(
            "REGISTER sip:{daemon} SIP/2.0\r\nVia: SIP/2.0/{transport} {sent_by};branch=z9hG4bK-{cseq};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:{registers}@pbx.example>;tag=pbx\r\nTo: <sip:{registers}@pbx.example>\r\n\
             Call-ID: {call_id}\r\nCSeq: {cseq} REGISTER\r\n{lines}Content-Length: 0\r\n\r\n"
        ));
        self.peer.receive()
    }
}
