//! The connection to a bot on a media thread: non-blocking, over TLS or without, with bounded buffers in both directions.
//!
//! rustls allocates one buffer per record and frees it, so that with TLS each frame costs rustls's allocations and none of ours.

use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::Duration;

use mio::net::TcpStream;
use rustls::ClientConnection;
use socket2::SockRef;
use trunkline_bounds::Descriptor;

use crate::listener::is_unacknowledged;

use super::connected::{Bot, BotEnd};
use super::frame::{self, Opcode, Reader};
use super::request::BotStart;

/// Most octets that wait for a slow bot, besides the kernel's buffer: 4 s of audio. A bot that is further behind is too slow.
pub(crate) const MAX_WAITING: usize = 64 * 1_024;

/// Size of the kernel's send buffer; Linux allocates twice as much.
const SEND_BUFFER: usize = 16 * 1_024;

/// Time after which unacknowledged data breaks the connection. Audio leaves every 20 ms, so a vanished peer is noticed after this
/// time.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Most octets read in one turn, both encrypted and decrypted, so that a bot that sends without end doesn't delay the others.
pub(crate) const TURN: usize = 16 * 1_024;

/// Most session tickets from a server (RFC 8446 §4.6.1); one more ends the connection. We resume no session, and a ticket costs us more
/// work than it costs the server.
const MAX_TICKETS: u32 = 16;

/// Result of reading for a turn.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum LinkProgress {
    /// The socket has no more octets.
    Emptied,
    /// The turn is over before the socket was empty.
    MoreToRead,
    /// The bot will send no more.
    Ended(BotEnd),
}

/// Connection to a bot.
pub(crate) struct Link {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Frames that the socket hasn't taken (without TLS; rustls has its own buffer).
    waiting: Vec<u8>,
    /// The frame being built.
    frame: Vec<u8>,
    /// Counted until the socket above is closed.
    _descriptor: Option<Descriptor>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("peer", &self.stream.peer_addr().ok())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Takes the connection of a bot; returns it with the octets that have already come, and the bot's facts.
    ///
    /// # Errors
    /// The socket refuses its options.
    pub(crate) fn new(bot: Bot) -> io::Result<(Self, Reader, BotStart)> {
        let socket = SockRef::from(&bot.socket);
        socket.set_send_buffer_size(SEND_BUFFER)?;
        // No shorter: it also ends the connection of a bot that merely doesn't read and keeps its window closed.
        socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;

        let mut tls = bot.tls;
        if let Some(tls) = &mut tls {
            tls.set_buffer_limit(Some(MAX_WAITING));
        }
        let link = Self {
            stream: TcpStream::from_std(bot.socket),
            tls,
            waiting: Vec::new(),
            frame: Vec::new(),
            _descriptor: bot.descriptor,
        };

        Ok((link, Reader::new(bot.rest), bot.start))
    }

    /// Returns the socket, to be registered with a poll.
    pub(crate) const fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Reads the available octets, at most [`TURN`], and appends them to `to`.
    pub(crate) fn read(&mut self, to: &mut Vec<u8>) -> LinkProgress {
        let most = to.len() + TURN;
        let mut wire = 0;
        while to.len() < most && wire < TURN {
            let turn = match &mut self.tls {
                Some(tls) => read_tls(tls, &mut self.stream, to, &mut wire),
                None => read_plain(&mut self.stream, to),
            };
            match turn {
                LinkProgress::MoreToRead => {}
                LinkProgress::Emptied | LinkProgress::Ended(_) => return turn,
            }
        }

        LinkProgress::MoreToRead
    }

    /// Sends a message, or keeps it until the socket takes it.
    ///
    /// # Errors
    /// The bot is too slow, or lost.
    pub(crate) fn send(
        &mut self,
        opcode: Opcode,
        payload: &[u8],
        mask: [u8; 4],
    ) -> Result<(), BotEnd> {
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame::write(&mut frame, opcode, payload, mask);
        let kept = match &mut self.tls {
            // Beyond its limit rustls may have taken a part of the frame. Nothing can be sent after that, so the connection ends.
            Some(tls) => tls.writer().write_all(&frame).is_ok(),
            None if self.waiting.len() + frame.len() > MAX_WAITING => false,
            None => {
                self.waiting.extend_from_slice(&frame);
                true
            }
        };
        self.frame = frame;

        if !kept {
            return Err(self.overflow());
        }
        self.flush()
    }

    /// Returns the reason why the buffer is full: the bot reads too slowly, or has vanished. The kernel breaks the connection to a vanished peer
    /// only later, after [`UNACKNOWLEDGED`].
    pub(crate) fn overflow(&self) -> BotEnd {
        match is_unacknowledged(&self.stream) {
            true => BotEnd::Lost,
            false => BotEnd::TooSlow,
        }
    }

    /// Returns whether the socket has taken all that was sent.
    pub(crate) fn is_idle(&self) -> bool {
        match &self.tls {
            Some(tls) => !tls.wants_write(),
            None => self.waiting.is_empty(),
        }
    }

    /// Writes the waiting octets to the socket.
    ///
    /// # Errors
    /// The bot is lost.
    pub(crate) fn flush(&mut self) -> Result<(), BotEnd> {
        loop {
            let written = match &mut self.tls {
                Some(tls) if tls.wants_write() => tls.write_tls(&mut self.stream),
                None if !self.waiting.is_empty() => self.stream.write(&self.waiting),
                Some(_) | None => return Ok(()),
            };

            match written {
                // A socket that takes nothing, and doesn't ask to wait, would keep this loop running.
                Ok(0) => return Err(BotEnd::Lost),
                Ok(count) if self.tls.is_none() => {
                    self.waiting.drain(..count);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(BotEnd::Lost),
            }
        }
    }

    /// Sends the waiting octets, and discards received ones, at most [`TURN`]. Returns false once either side has closed.
    pub(crate) fn drain(&mut self) -> bool {
        let mut octets = [0; 4_096];
        let mut left = TURN;
        let mut is_open = self.flush().is_ok();
        while is_open && left > 0 {
            // Read beneath TLS: what is discarded needn't be decrypted.
            match self.stream.read(&mut octets) {
                Ok(count) => {
                    is_open = count > 0;
                    left = left.saturating_sub(count);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => is_open = error.kind() == ErrorKind::Interrupted,
            }
        }

        is_open
    }

    /// Ends the sending side: over TLS with close_notify. Octets that wait leave as far as the socket takes them; none may be added.
    pub(crate) fn finish(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
        }
        // The connection ends in any case.
        let _ = self.flush();
    }
}

fn read_plain(stream: &mut TcpStream, to: &mut Vec<u8>) -> LinkProgress {
    let mut octets = [0; 4_096];
    match stream.read(&mut octets) {
        Ok(0) => LinkProgress::Ended(BotEnd::Closed),
        Ok(count) => {
            to.extend_from_slice(&octets[..count]);
            LinkProgress::MoreToRead
        }
        Err(error) => failed(&error),
    }
}

/// Reads some octets. Adds the encrypted ones to `wire`, since records without content add nothing to `to`.
fn read_tls(
    tls: &mut ClientConnection,
    stream: &mut TcpStream,
    to: &mut Vec<u8>,
    wire: &mut usize,
) -> LinkProgress {
    // Octets that the handshake left decrypted come first.
    let mut octets = [0; 4_096];
    match tls.reader().read(&mut octets) {
        Ok(0) => return LinkProgress::Ended(BotEnd::Closed),
        Ok(count) => {
            to.extend_from_slice(&octets[..count]);
            return LinkProgress::MoreToRead;
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        // The peer has closed TCP without closing TLS.
        Err(_) => return LinkProgress::Ended(BotEnd::Lost),
    }

    match tls.read_tls(stream) {
        // rustls reports the end through its reader.
        Ok(count) => {
            *wire += count;
            match tls.process_new_packets() {
                Ok(_) if tls.tls13_tickets_received() <= MAX_TICKETS => LinkProgress::MoreToRead,
                Ok(_) | Err(_) => LinkProgress::Ended(BotEnd::Protocol),
            }
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &io::Error) -> LinkProgress {
    if error.kind() == ErrorKind::WouldBlock {
        LinkProgress::Emptied
    } else if error.kind() == ErrorKind::Interrupted {
        LinkProgress::MoreToRead
    } else {
        LinkProgress::Ended(BotEnd::Lost)
    }
}
