//! Header values as types: each with its own parser over octets and a canonical `Display`.
//!
//! Parsers read network input: they borrow, run in linear time, never panic, and allocate only to unescape. A value may still hold
//! folds (CR, LF and a blank), which count as blanks here. Nothing in this module knows messages, transactions or dialogs
//! (RFC 3261 §7.3, §20, §25.1).

pub mod auth;
pub mod content_type;
pub mod cseq;
pub mod name_addr;
pub mod params;
pub mod privacy;
pub mod rack;
pub mod reason;
pub mod refer_to;
pub mod replaces;
pub mod session_expires;
pub mod subscription_state;
pub mod text;
pub mod uri;
mod uri_equal;
pub mod via;
