//! Octets and messages: the bounded lexer, the framer of streams, the printer, and `rsip` behind them.
//!
//! `rsip` never sees raw network octets; nothing outside this folder sees `rsip`.

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
pub use fault::{Malformed, MessageFault};
pub use lex::{Framing, lex};
pub use message::{Header, Message};
pub use name::HeaderName;
pub use owned_message::OwnedMessage;
