//! A WebSocket client (RFC 6455) on a plain socket, which can also break the protocol.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for the answer to a handshake; no answer takes so long.
const LIMIT: Duration = Duration::from_secs(30);

/// A client's side of a WebSocket.
#[derive(Debug)]
pub struct WebSocket {
    stream: TcpStream,
    received: Vec<u8>,
}

/// A received message, or the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WebSocketMessage {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    /// Close frame with its status.
    Close(u16),
    /// The connection is closed.
    End,
}

impl WebSocket {
    /// Opens a WebSocket with these header lines.
    ///
    /// # Errors
    /// The status, if it isn't 101.
    pub fn open(at: SocketAddr, path: &str, lines: &str) -> Result<Self, u16> {
        let mut stream = TcpStream::connect_timeout(&at, LIMIT).expect("it connects");
        stream.set_read_timeout(Some(LIMIT)).expect("a time-out");
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{lines}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("it is sent");

        let mut head = Vec::new();
        // Octet by octet: a daemon may send its first frame together with the head.
        while !head.ends_with(b"\r\n\r\n") {
            let mut octet = [0];
            stream.read_exact(&mut octet).expect("an answer");
            head.push(octet[0]);
        }

        let head = String::from_utf8_lossy(&head).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
        match status.expect("a status") {
            101 => {
                // RFC 6455 §1.3 has this pair of key and answer.
                assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
                Ok(Self {
                    stream,
                    received: Vec::new(),
                })
            }
            status => Err(status),
        }
    }

    /// Sends a text message.
    pub fn text(&mut self, text: &str) {
        self.frame(0x81, text.as_bytes());
    }

    /// Sends a binary message.
    pub fn binary(&mut self, octets: &[u8]) {
        self.frame(0x82, octets);
    }

    /// Sends a masked frame that begins with this octet. Ignores a peer that has closed the connection.
    pub fn frame(&mut self, first: u8, payload: &[u8]) {
        const MASK: [u8; 4] = [7, 77, 177, 17];
        let mut octets = vec![first];
        match payload.len() {
            short @ 0..=125 => octets.push(0x80 | short as u8),
            middle => {
                octets.push(0x80 | 126);
                octets.extend((middle as u16).to_be_bytes());
            }
        }

        octets.extend(MASK);
        let masked = payload.iter().zip(MASK.iter().cycle());
        octets.extend(masked.map(|(octet, mask)| octet ^ mask));
        let _ = self.stream.write_all(&octets);
    }

    /// Sends octets as they are; false if the connection is broken.
    pub fn raw(&mut self, octets: &[u8]) -> bool {
        self.stream.write_all(octets).is_ok()
    }

    /// Returns the next message; `None` once no octet has come for `patience`. Pings are answered.
    pub fn receive(&mut self, patience: Duration) -> Option<WebSocketMessage> {
        loop {
            if let Some(message) = self.take() {
                if let WebSocketMessage::Ping(data) = &message {
                    let data = data.clone();
                    self.frame(0x8a, &data);
                }
                return Some(message);
            }
            // A socket refuses a time-out of zero.
            let patience = patience.max(Duration::from_millis(1));
            self.stream
                .set_read_timeout(Some(patience))
                .expect("a time-out");
            let mut octets = [0; 16_384];

            match self.stream.read(&mut octets) {
                Ok(0) => return Some(WebSocketMessage::End),
                Ok(count) => self.received.extend_from_slice(&octets[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return None;
                }
                Err(_) => return Some(WebSocketMessage::End),
            }
        }
    }

    fn take(&mut self) -> Option<WebSocketMessage> {
        let (&first, &second) = (self.received.first()?, self.received.get(1)?);
        let (start, length) = match second {
            126 => {
                let length = self.received.get(2..4)?;
                (4, usize::from(u16::from_be_bytes([length[0], length[1]])))
            }
            127.. => panic!("longer than anything that a phone gets"),
            short => (2, usize::from(short)),
        };

        let payload = self.received.get(start..start + length)?.to_vec();
        self.received.drain(..start + length);
        Some(match first & 0x0f {
            1 => WebSocketMessage::Text(String::from_utf8(payload).expect("a text")),
            2 => WebSocketMessage::Binary(payload),
            8 => WebSocketMessage::Close(
                payload
                    .first_chunk()
                    .map_or(1005, |status| u16::from_be_bytes(*status)),
            ),
            9 => WebSocketMessage::Ping(payload),
            other => panic!("a frame of type {other}"),
        })
    }
}
