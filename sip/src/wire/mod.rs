//! Octets and messages: the bounded lexer, the framer of streams, the printer, and `rsip` behind them.
//!
//! `rsip` never sees raw network octets, since it accepts what is wrong and refuses what is right too often; nothing outside this folder sees
//! `rsip`. The lexer reads each message once, and is enough for all but the INVITE that begins a call. Once its sender has proved who it is, that
//! INVITE is put into normal form, read by `rsip`, and compared with what the lexer says of it.

pub mod compact;
pub mod fault;
pub mod frame;
pub mod invite;
pub mod lex;
pub mod message;
pub mod name;
mod normalise;
pub mod owned_message;
pub mod print;

pub use crate::header::cseq::CSeq;
pub use crate::method::Method;
pub use fault::{Malformed, MessageFault, UnreadableResponse};
pub use lex::{Framing, lex};
pub use message::{Header, Message};
pub use name::HeaderName;
pub use owned_message::OwnedMessage;
