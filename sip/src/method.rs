//! Request methods: those of RFC 3261 and its extensions that Trunkline distinguishes.

use serde::{Deserialize, Serialize};

/// A request method. An unlisted one is [`Method::Other`]; its token stays in the message.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Method {
    /// RFC 3261.
    Invite,
    /// RFC 3261.
    Ack,
    /// RFC 3261.
    Bye,
    /// RFC 3261.
    Cancel,
    /// RFC 3261.
    Options,
    /// RFC 3261.
    Register,
    /// RFC 3262.
    Prack,
    /// RFC 3311.
    Update,
    /// RFC 6086.
    Info,
    /// RFC 3515.
    Refer,
    /// RFC 6665.
    Notify,
    /// RFC 6665.
    Subscribe,
    /// RFC 3428.
    Message,
    /// RFC 3903.
    Publish,
    /// Any other token.
    Other,
}

impl Method {
    /// Reads a method's token. Methods are case-sensitive (RFC 3261 §7.1).
    pub fn from_token(token: &[u8]) -> Self {
        match token {
            b"INVITE" => Self::Invite,
            b"ACK" => Self::Ack,
            b"BYE" => Self::Bye,
            b"CANCEL" => Self::Cancel,
            b"OPTIONS" => Self::Options,
            b"REGISTER" => Self::Register,
            b"PRACK" => Self::Prack,
            b"UPDATE" => Self::Update,
            b"INFO" => Self::Info,
            b"REFER" => Self::Refer,
            b"NOTIFY" => Self::Notify,
            b"SUBSCRIBE" => Self::Subscribe,
            b"MESSAGE" => Self::Message,
            b"PUBLISH" => Self::Publish,
            _ => Self::Other,
        }
    }

    /// The token; empty for [`Method::Other`].
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invite => "INVITE",
            Self::Ack => "ACK",
            Self::Bye => "BYE",
            Self::Cancel => "CANCEL",
            Self::Options => "OPTIONS",
            Self::Register => "REGISTER",
            Self::Prack => "PRACK",
            Self::Update => "UPDATE",
            Self::Info => "INFO",
            Self::Refer => "REFER",
            Self::Notify => "NOTIFY",
            Self::Subscribe => "SUBSCRIBE",
            Self::Message => "MESSAGE",
            Self::Publish => "PUBLISH",
            Self::Other => "",
        }
    }
}
