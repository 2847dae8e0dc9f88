//! The four transaction machines of RFC 3261 §17 as RFC 6026 corrects them, and the tables that hold them.
//!
//! A machine knows its own state, the octets it may have to repeat and its timers. It knows neither sockets, nor its
//! users, nor dialogs.

pub(crate) mod client_invite;
pub(crate) mod client_other;
pub(crate) mod handle;
pub(crate) mod io;
pub(crate) mod key;
pub(crate) mod server_invite;
pub(crate) mod server_other;
pub(crate) mod sketch;
pub(crate) mod table;
pub(crate) mod timer;
pub(crate) mod tombstone;

use crate::wire::Method;

/// A response to be sent. The endpoint adds what it copies from the request, `Server` and `Content-Length`.
#[derive(Copy, Clone, Debug)]
pub struct Response<'a> {
    /// 100..=699.
    pub status: u16,
    /// The reason phrase; the standard phrase of the status if `None`.
    pub reason: Option<&'a str>,
    /// The tag for a To header without one. If `None`, the endpoint chooses a tag and keeps it.
    pub to_tag: Option<&'a [u8]>,
    /// Further header lines, each ended by CRLF.
    pub head: &'a [u8],
    /// The body; its `Content-Type` is in `head`.
    pub body: &'a [u8],
}

impl Response<'_> {
    /// A response with a status alone.
    pub const fn bare(status: u16) -> Self {
        Self {
            status,
            reason: None,
            to_tag: None,
            head: b"",
            body: b"",
        }
    }

    /// Returns true if the response has no lines and no body of its own. It can then be printed again from the request, its status and its
    /// To-tag, with the status's standard phrase.
    pub(crate) fn is_bare(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }
}

/// A request to be sent. The endpoint adds `Via` and `Content-Length`.
#[derive(Copy, Clone, Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: Method,
    /// The method as sent, for one without its own [`Method`].
    pub token: &'a str,
    /// The Request-URI.
    pub uri: &'a [u8],
    /// All other header lines, each ended by CRLF: Max-Forwards, From, To, Call-ID, CSeq, …
    pub head: &'a [u8],
    /// The body; its `Content-Type` is in `head`.
    pub body: &'a [u8],
}
