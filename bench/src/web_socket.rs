//! The bots' side of WebSockets over TLS (RFC 6455), one per call, without a thread for each.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mio::net::TcpStream;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection};
use sha1::{Digest as _, Sha1};

const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Octets per read.
const READ: usize = 16 * 1024;

/// A certificate for 127.0.0.1, as PEM for the daemon to trust, and the configuration of servers with it.
#[derive(Debug)]
pub struct Identity {
    /// The certificate.
    pub pem: String,
    config: Arc<ServerConfig>,
}

impl Identity {
    /// Generates a certificate.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub fn new() -> io::Result<Self> {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).map_err(io::Error::other)?;
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).map_err(io::Error::other)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .map_err(io::Error::other)?;
        Ok(Self {
            pem: cert.pem(),
            config: Arc::new(config),
        })
    }
}

/// One connection.
#[derive(Debug)]
pub struct WebSocket {
    stream: TcpStream,
    tls: ServerConnection,
    /// Octets that don't make a whole head or frame yet.
    octets: Vec<u8>,
    /// The handshake has been answered.
    is_open: bool,
}

/// State of a connection after a turn of reading.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum After {
    /// More octets may come.
    Open,
    /// The daemon has closed.
    Closed,
}

impl WebSocket {
    /// Takes an accepted connection.
    ///
    /// # Errors
    /// The socket or TLS refuses.
    pub fn new(stream: TcpStream, identity: &Identity) -> io::Result<Self> {
        // Nagle's algorithm would hold small messages back, and look like a delay of the daemon.
        stream.set_nodelay(true)?;
        let config = Arc::clone(&identity.config);
        let tls = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self {
            stream,
            tls,
            octets: Vec::new(),
            is_open: false,
        })
    }

    /// The socket, to register with a poll.
    pub const fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Reads all available octets, and calls `on_text` with each message.
    ///
    /// # Errors
    /// TLS or the WebSocket is broken.
    pub fn read(&mut self, mut on_text: impl FnMut(&[u8])) -> io::Result<After> {
        let mut part = [0; READ];
        loop {
            match self.tls.read_tls(&mut self.stream) {
                Ok(0) => return Ok(After::Closed),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }

            self.tls.process_new_packets().map_err(io::Error::other)?;
            loop {
                match self.tls.reader().read(&mut part) {
                    Ok(0) => return Ok(After::Closed),
                    Ok(count) => self.octets.extend_from_slice(&part[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
            }
        }

        if !self.is_open {
            self.answer()?;
        }

        let after = match self.is_open {
            true => self.take_frames(&mut on_text),
            false => After::Open,
        };
        self.flush()?;
        Ok(after)
    }

    /// Answers the handshake once its head is whole.
    fn answer(&mut self) -> io::Result<()> {
        let end = self
            .octets
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .map(|at| at + 4);
        let Some(end) = end else { return Ok(()) };

        let head: Vec<u8> = self.octets.drain(..end).collect();
        let head = String::from_utf8_lossy(&head);
        let key = head
            .lines()
            .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "));
        let key = key.ok_or(ErrorKind::InvalidData)?;
        let accept = STANDARD.encode(Sha1::digest(format!("{key}{GUID}")));

        write!(
            self.tls.writer(),
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        )?;
        self.is_open = true;
        Ok(())
    }

    fn take_frames(&mut self, on_text: &mut impl FnMut(&[u8])) -> After {
        let mut begin = 0;
        while let Some((opcode, payload, end)) = frame(&self.octets[begin..]) {
            let (payload, end) = (payload.start + begin..payload.end + begin, end + begin);
            let mask: [u8; 4] = std::array::from_fn(|at| self.octets[payload.start - 4 + at]);
            for (octet, mask) in self.octets[payload.clone()]
                .iter_mut()
                .zip(mask.iter().cycle())
            {
                *octet ^= mask;
            }

            match opcode {
                1 => on_text(&self.octets[payload]),
                8 => return After::Closed,
                _ => {}
            }
            begin = end;
        }

        self.octets.drain(..begin);
        After::Open
    }

    /// Sends a text.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn send(&mut self, text: &[u8]) -> io::Result<()> {
        let mut head = vec![0x81];
        match text.len() {
            short @ 0..=125 => head.push(short as u8),
            middle @ 126..=0xffff => {
                head.push(126);
                head.extend((middle as u16).to_be_bytes());
            }
            long => {
                head.push(127);
                head.extend((long as u64).to_be_bytes());
            }
        }

        let mut writer = self.tls.writer();
        writer.write_all(&head)?;
        writer.write_all(text)?;
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                // The rest goes when the socket has room again: that event calls `read`, which flushes.
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// The first frame from a client: its opcode, the range of its payload, and its end; `None` while it is incomplete.
fn frame(octets: &[u8]) -> Option<(u8, std::ops::Range<usize>, usize)> {
    const MASK: usize = 4;
    let &[first, second, ..] = octets else {
        return None;
    };
    let (head, length) = match second & 0x7f {
        126 => (
            4,
            usize::from(u16::from_be_bytes([*octets.get(2)?, *octets.get(3)?])),
        ),
        // The daemon's messages are shorter than 64 KiB. A longer one would never count as complete.
        127 => return None,
        short => (2, usize::from(short)),
    };

    let begin = head + MASK;
    let end = begin + length;
    (octets.len() >= end).then_some((first & 0x0f, begin..end, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found() {
        let mut octets = vec![0x81, 0x83, 1, 2, 3, 4, b'a', b'b', b'c'];
        assert_eq!(frame(&octets), Some((1, 6..9, 9)));
        octets.pop();
        assert_eq!(frame(&octets), None);
        let mut long = vec![0x81, 0xfe, 1, 0, 0, 0, 0, 0];
        long.extend([7; 256]);
        assert_eq!(frame(&long), Some((1, 8..264, 264)));
    }
}
