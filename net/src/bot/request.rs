//! Request to connect to a bot, and the reasons why it fails.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use trunkline_bounds::Descriptor;

/// Bot to connect to.
#[derive(Debug)]
pub struct BotRequest {
    /// URL as configured, `wss://` or `ws://`. The certificate has to name its host.
    pub url: String,
    /// Address of the host, resolved and checked.
    pub address: SocketAddr,
    /// Trusted certificate authorities, for `wss://`.
    pub tls: Arc<ClientConfig>,
    /// Further headers of the handshake, in addition to those of RFC 6455 §4.1.
    pub headers: Vec<(String, String)>,
    /// Facts of the call that the bot gets at its start.
    pub start: BotStart,
    /// Descriptor of the connection, counted until it is closed.
    pub descriptor: Option<Descriptor>,
}

/// Facts of a call that its bot gets in `start`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BotStart {
    /// Format of the messages.
    pub protocol: BotProtocol,
    /// `AC` and 32 hexadecimal digits.
    pub account_sid: String,
    /// `CA` and 32 hexadecimal digits.
    pub call_sid: String,
    /// `MZ` and 32 hexadecimal digits.
    pub stream_sid: String,
    /// Custom parameters: name and value.
    pub parameters: Vec<(String, String)>,
}

/// Format of a bot's messages.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum BotProtocol {
    /// Twilio's bidirectional Media Streams.
    Twilio,
    /// Telnyx' bidirectional media streaming.
    Telnyx,
}

/// Reason why a bot isn't connected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BotError {
    /// The URL isn't one of a WebSocket.
    #[error("the URL is no ws:// or wss:// URL")]
    Url,
    /// A header of the handshake has characters that HTTP doesn't allow.
    #[error("a header of the handshake has characters that HTTP doesn't allow")]
    Header,
    /// The address accepts no connection.
    #[error("the bot accepts no connection: {0}")]
    Refused(String),
    /// The handshake takes too long.
    #[error("the bot has not accepted the WebSocket in time")]
    Timeout,
    /// TLS fails, or the certificate isn't trusted.
    #[error("TLS with the bot failed: {0}")]
    Tls(String),
    /// The bot answers with another status than 101.
    #[error("the bot answered the WebSocket handshake with status {0}")]
    Status(u16),
    /// The answer is none of RFC 6455.
    #[error("the bot's answer is no WebSocket handshake: {0}")]
    NotWebSocket(&'static str),
}

impl BotError {
    /// Returns the stable word of the reason.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Header => "header",
            Self::Refused(_) => "refused",
            Self::Timeout => "timeout",
            Self::Tls(_) => "tls",
            Self::Status(_) => "status",
            Self::NotWebSocket(_) => "not_websocket",
        }
    }
}
