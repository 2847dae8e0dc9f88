//! A bot that has accepted the WebSocket, and the reason why its connection ended.

use std::fmt;
use std::net::TcpStream;

use rustls::ClientConnection;
use trunkline_bounds::Descriptor;

use super::request::BotStart;

/// Bot that has accepted the WebSocket, ready to be attached to a call's media. Dropping it closes the connection.
pub struct Bot {
    pub(super) socket: TcpStream,
    pub(super) tls: Option<Box<ClientConnection>>,
    /// Octets that came behind the handshake's response.
    pub(super) rest: Vec<u8>,
    pub(super) url: String,
    pub(super) start: BotStart,
    pub(super) descriptor: Option<Descriptor>,
}

impl Bot {
    /// Returns the account that the call belongs to.
    pub(crate) fn account(&self) -> &str {
        &self.start.account_sid
    }

    /// Returns the URL as configured.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl fmt::Debug for Bot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bot")
            .field("peer", &self.socket.peer_addr().ok())
            .field("is_tls", &self.tls.is_some())
            .finish_non_exhaustive()
    }
}

/// Status of the Close frame at the end of a call (RFC 6455 §7.4.1).
pub(crate) const NORMAL_CLOSURE: u16 = 1_000;

/// Reason why an attached bot has gone.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BotEnd {
    /// The bot closed the WebSocket.
    Closed,
    /// The bot broke the protocol, or sent too many messages with an unknown meaning.
    Protocol,
    /// The bot reads more slowly than audio comes.
    TooSlow,
    /// The connection broke, or the peer is gone.
    Lost,
}

impl BotEnd {
    /// Returns the stable word of the reason.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::TooSlow => "too_slow",
            Self::Lost => "lost",
        }
    }

    /// Returns the status of the Close frame that the bot gets (RFC 6455 §7.4.1).
    pub(crate) const fn close_status(self) -> u16 {
        match self {
            Self::Closed | Self::Lost => NORMAL_CLOSURE,
            Self::Protocol => 1_002,
            // Of the registered ones, "violates its policy" comes closest.
            Self::TooSlow => 1_008,
        }
    }
}
