//! Captures of SIP traffic: read from pcap, pcapng, text and HEP, stored as flows that people can read, and replayed against a daemon.
//!
//! `read` reads file formats, `decode` the headers below SIP, `reassemble` fragments and streams; `message` parses SIP as tolerantly as
//! captures need, `calls` groups messages into calls, `flow` is the text format. Knows nothing of the daemon's own types. Everything is
//! bounded: a capture of any size is read in the memory that its calls in progress need.

pub mod anonymise;
pub mod calls;
pub mod decode;
pub mod flow;
pub mod hep;
pub mod import;
pub mod message;
pub mod read;
pub mod reassemble;
pub mod replay;
pub mod text;

use std::net::SocketAddr;

/// Transport of a message.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub enum Transport {
    /// Datagrams.
    Udp,
    /// A stream.
    Tcp,
    /// An encrypted stream; only text captures contain its messages.
    Tls,
}

impl Transport {
    /// Returns the name in flows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
            Self::Tls => "tls",
        }
    }

    /// Parses the name in flows, ignoring case.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Udp, Self::Tcp, Self::Tls]
            .into_iter()
            .find(|transport| transport.as_str().eq_ignore_ascii_case(text))
    }
}

/// One message, or octets taken for one, with source and destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Captured {
    /// Microseconds since 1970.
    pub at: u64,
    /// Source.
    pub source: SocketAddr,
    /// Destination.
    pub target: SocketAddr,
    /// Transport.
    pub transport: Transport,
    /// The octets, from the start line to the end of the body.
    pub octets: Vec<u8>,
}

/// Reason why a capture can't be used, in a sentence for its owner.
#[derive(Debug, thiserror::Error)]
pub enum CaptureFault {
    /// The file can't be read or written at all.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The first octets are of no known format.
    #[error(
        "it is neither pcap, pcapng, a hex dump of a frame, sngrep or HEP text, nor a trunkline flow"
    )]
    UnknownFormat,
    /// Compressed files are recognised, not unpacked.
    #[error("it is compressed ({0}): unpack it first")]
    Compressed(&'static str),
    /// The format is known, but the file violates it before anything was found.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The packets have an unknown link type.
    #[error(
        "its packets have link type {0}, which isn't known here (known: Ethernet, Linux cooked v1 and v2, raw IP, loopback)"
    )]
    LinkType(u32),
    /// The capture was read to its end, and holds no SIP.
    #[error("it holds no SIP message: {0}")]
    NoSip(String),
    /// A flow has a mistake.
    #[error("line {line}: {what}")]
    Flow {
        /// The line, from 1 on.
        line: usize,
        /// The mistake.
        what: String,
    },
}
