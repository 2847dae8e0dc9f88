//! Connections of a peer: TCP and TLS, opened or accepted, and the messages on them.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustls::{ClientConnection, ServerConnection, StreamOwned};
use trunkline_sip::wire::frame::{Frame, Framer};

use crate::Message;

/// Time for which one of several connections is read before the next.
const TURN: Duration = Duration::from_millis(2);

/// The socket of a connection.
#[derive(Debug)]
pub enum Stream {
    Tcp(TcpStream),
    Client(Box<StreamOwned<ClientConnection, TcpStream>>),
    Server(Box<StreamOwned<ServerConnection, TcpStream>>),
}

impl Stream {
    pub(crate) fn socket(&self) -> &TcpStream {
        match self {
            Self::Tcp(stream) => stream,
            Self::Client(stream) => &stream.sock,
            Self::Server(stream) => &stream.sock,
        }
    }

    pub(crate) fn read(&mut self, octets: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(octets),
            Self::Client(stream) => stream.read(octets),
            Self::Server(stream) => stream.read(octets),
        }
    }

    pub(crate) fn write(&mut self, octets: &[u8]) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(octets),
            Self::Client(stream) => stream.write_all(octets),
            Self::Server(stream) => stream.write_all(octets),
        }
    }
}

#[derive(Debug)]
struct Link {
    stream: Stream,
    framer: Framer,
}

/// The connections of one peer.
#[derive(Debug, Default)]
pub(crate) struct Links {
    listener: Option<TcpListener>,
    /// Open connections; the one with the most recent message is the last.
    open: Vec<Link>,
    came: VecDeque<Message>,
}

impl Links {
    pub(crate) fn to(stream: Stream) -> Self {
        let mut links = Self::default();
        links.take(stream);
        links
    }

    pub(crate) fn of(listener: TcpListener) -> Self {
        listener.set_nonblocking(true).expect("a listener");
        Self {
            listener: Some(listener),
            ..Self::default()
        }
    }

    fn take(&mut self, stream: Stream) {
        stream.socket().set_nodelay(true).expect("an option");
        let framer = Framer::new();
        self.open.push(Link { stream, framer });
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.listener.is_none() && self.open.is_empty() && self.came.is_empty()
    }

    pub(crate) fn last(&mut self) -> Option<&mut Stream> {
        self.open.last_mut().map(|link| &mut link.stream)
    }

    pub(crate) fn write(&mut self, octets: &[u8]) -> io::Result<()> {
        let stream = self.last();
        stream.map_or(Err(io::ErrorKind::NotConnected.into()), |stream| {
            stream.write(octets)
        })
    }

    /// Returns the next message, if it comes within `wait`. A listener reads each of its connections for [`TURN`] instead.
    pub(crate) fn next(&mut self, wait: Duration) -> Option<Message> {
        if self.came.is_empty() {
            self.read(wait);
        }
        self.came.pop_front()
    }

    fn read(&mut self, wait: Duration) {
        let mut wait = wait;
        while let Some((stream, _)) = self.listener.as_ref().and_then(|it| it.accept().ok()) {
            self.take(Stream::Tcp(stream));
        }
        // Another connection may come at any time, so none is read for long.
        if self.listener.is_some() {
            wait = TURN;
        }
        if self.open.is_empty() {
            return std::thread::sleep(wait);
        }

        let mut at = 0;
        while at < self.open.len() {
            let (is_open, count) = self.open[at].read(wait, &mut self.came);
            if is_open && count == 0 {
                at += 1;
                continue;
            }
            let link = self.open.remove(at);
            if is_open {
                self.open.push(link);
                return;
            }
        }
    }
}

impl Link {
    /// Reads messages into `came`; returns whether the connection is still open, and the number of messages.
    fn read(&mut self, wait: Duration, came: &mut VecDeque<Message>) -> (bool, usize) {
        let mut octets = [0; 4_096];
        let socket = self.stream.socket();
        socket.set_read_timeout(Some(wait)).expect("a limit");
        match self.stream.read(&mut octets) {
            Ok(0) => return (false, 0),
            Ok(count) => self.framer.push(&octets[..count]),
            Err(error) => {
                // TLS reports a connection that closes without close_notify as UnexpectedEof.
                use io::ErrorKind::{ConnectionReset, TimedOut, UnexpectedEof, WouldBlock};
                let kind = error.kind();
                let is_open = matches!(kind, WouldBlock | TimedOut);
                let is_known = is_open || matches!(kind, ConnectionReset | UnexpectedEof);
                assert!(is_known, "neither a message nor the end: {error}");
                return (is_open, 0);
            }
        }

        let before = came.len();
        while let Some(frame) = self.framer.next_frame().expect("the daemon sends messages") {
            if let Frame::Message(octets) = frame {
                came.push_back(Message::of(octets));
            }
        }

        (true, came.len() - before)
    }
}
